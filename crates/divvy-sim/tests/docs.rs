//! The documentation of scenario files says what the code does.

mod common;

use common::toml;
use divvy_sim::output::Report;
use divvy_sim::scenario::schema;
use divvy_sim::study::Study;

fn read(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {path}: {error}"))
}

#[test]
fn every_example_is_a_scenario() {
    let text = read("scenario.md");
    let mut nr_examples = 0;
    for block in text.split("```toml\n").skip(1) {
        let example = block.split("```").next().unwrap();
        let scenario = toml(example);
        Study::new(&scenario).unwrap_or_else(|error| panic!("{error}\n{example}"));
        nr_examples += 1;
    }
    assert_eq!(nr_examples, 8);
}

/// On failure the text that the file should have is printed.
#[test]
fn the_schema_is_the_one_that_is_published() {
    let text = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    assert!(read("scenario.schema.json") == text, "docs/scenario.schema.json should be:\n{text}");
}

#[test]
fn the_schema_of_reports_is_the_one_that_is_published() {
    let text = format!("{}\n", serde_json::to_string_pretty(&Report::schema()).unwrap());
    assert!(read("sim.schema.json") == text, "docs/sim.schema.json should be:\n{text}");
}

#[test]
fn every_key_of_the_schema_is_described() {
    let (text, schema) = (read("scenario.md"), schema());
    let keys = |pointer: &str| -> Vec<String> {
        let table = schema.pointer(pointer).and_then(|table| table.as_object());
        table.unwrap_or_else(|| panic!("{pointer}")).keys().cloned().collect()
    };
    for (prefix, pointer) in [
        ("", "/properties"),
        ("machine.", "/$defs/MachineSpec/properties"),
        ("kernel.", "/$defs/KernelSpec/properties"),
        ("run.", "/$defs/RunSpec/properties"),
        ("measure.", "/$defs/MeasureSpec/properties"),
    ] {
        for key in keys(pointer) {
            let is_table =
                matches!(key.as_str(), "machine" | "kernel" | "run" | "measure") && prefix.is_empty();
            assert!(is_table || text.contains(&format!("`{prefix}{key}`")), "{prefix}{key}");
        }
    }
}
