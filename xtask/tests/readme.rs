//! The README's numbers are those of the pages that it links to.

use std::collections::BTreeMap;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn rows(file: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(root().join("docs/results").join(file)).expect("a page's data");
    reader.deserialize().collect::<Result<_, _>>().expect("rows")
}

/// The numbers of each cell of the README's row that begins with `start`, with how many digits each has after its point.
fn cells(start: &str) -> (String, Vec<Vec<(f64, usize)>>) {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let row = readme.lines().find(|line| line.starts_with(start)).expect("a row");
    let (what, cells) = row.trim_start_matches('|').split_once('|').expect("cells");
    let number = |text: &str| {
        let text = text.trim().strip_suffix(" %").expect("in %");
        (text.parse().expect("a number"), text.split_once('.').map_or(0, |(_, digits)| digits.len()))
    };
    let numbers = |cell: &str| cell.split(',').filter(|text| !text.trim().is_empty()).map(number).collect();
    (what.trim().to_owned(), cells.trim_end_matches('|').split('|').map(numbers).collect())
}

#[track_caller]
fn check((said, digits): (f64, usize), fraction: f64) {
    let half = 0.5 * 10_f64.powi(-i32::try_from(digits).expect("few"));
    assert!((said - fraction * 100.0).abs() <= half * 1.001, "{said} % for {} %", fraction * 100.0);
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().expect("a number")
}

#[test]
fn errors_of_peers_are_those_of_their_page() {
    let rows = rows("peers/shares.csv");
    let (_, cells) = cells("| [1:2:3 on one CPU](docs/results/peers.md)");
    let tools = ["nice", "cpulimit", "weights by hand", "divvy signals"];
    assert_eq!(cells.len(), tools.len());
    for (tool, cell) in tools.into_iter().zip(cells) {
        let row = rows.iter().find(|row| row["case"] == "1:2:3" && row["tool"] == tool).expect("a row");
        let [run, second] = cell[..] else { panic!("{tool}: {cell:?}") };
        check(run, number(row, "error_long"));
        check(second, number(row, "error_window"));
    }
}

#[test]
fn errors_of_real_programs_are_those_of_their_page() {
    let rows = rows("real/real.csv");
    let (what, cells) = cells("| [44 real programs](docs/results/real.md)");
    assert!(what.contains("1:1: error of 20 ms, median"), "{what}");
    // Of those programs whose errors both can be told.
    let errors_by = |tool: &str| -> BTreeMap<String, f64> {
        let mine = rows.iter().filter(|row| row["tool"] == tool && row["shares"] == "1:1");
        let errors = mine.map(|row| (row["program"].clone(), number(row, "windows")));
        errors.filter(|(_, error)| error.is_finite()).collect()
    };
    let both = ["kernel's weights", "divvy"].map(errors_by);
    for (errors, cell) in both.iter().zip(&cells[2..]) {
        let common = errors.iter().filter(|(program, _)| both.iter().all(|of| of.contains_key(*program)));
        let mut errors: Vec<f64> = common.map(|(_, &error)| error).collect();
        errors.sort_unstable_by(f64::total_cmp);
        assert_eq!(errors.len(), 44);
        check(cell[0], errors[21].midpoint(errors[22]));
    }
}
