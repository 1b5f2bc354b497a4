//! `ARCHITECTURE.md` leads to what is there.

use std::path::Path;

#[test]
fn every_place_that_it_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the page");
    // In backquotes, with a slash and without a blank; what a sentence says beside them is prose.
    let named: Vec<&str> =
        page.split('`').skip(1).step_by(2).filter(|word| word.contains('/') && !word.contains(' ')).collect();
    assert!(named.len() > 40, "{named:?}");
    let bases = [root.clone(), root.join("crates"), root.join("crates/divvy-policy/src")];
    let missing: Vec<&&str> =
        named.iter().filter(|place| !bases.iter().any(|base| base.join(place).exists())).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
    // And every crate has its row.
    for entry in std::fs::read_dir(root.join("crates")).expect("crates") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(
            page.contains(&format!("| {name}")) || page.contains(&format!("| [{name}]")),
            "no row for {name}"
        );
    }
}
