//! A quick run over a few real programs makes the page, counts what it should, and leaves nothing behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

#[path = "../../crates/divvy-linux/tests/common/skip.rs"]
mod skip;

#[path = "common/left.rs"]
mod left;

use left::left;
use skip::skip;

/// Divided among two: what one of them gets may not be less than this part of its target, however busy it is here.
const LEAST_OF_TARGET: f64 = 0.2;

fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let mut data = csv::Reader::from_path(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    data.deserialize().map(|row| row.expect("a row")).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|e| panic!("{column} of {row:?}: {e}"))
}

/// Says why nothing was measured; `scripts/test.sh` lists and counts these.
#[test]
fn a_quick_run_makes_the_page_and_leaves_nothing() {
    let out = tempfile::tempdir().expect("a directory");
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--workspace", "--bin", "divvy", "--bin", "divvyd"])
        .args((!cfg!(debug_assertions)).then_some("--release"));
    assert!(build.status().expect("cargo").success(), "the divvy that is measured is of this build");
    let child = Command::new(xtask)
        .args(["paper", "real", "--quick", "--only", "shell arithmetic,dd conv=fsync,daemon", "--out"])
        .arg(out.path())
        .arg("--programs")
        .arg(xtask.parent().expect("a directory"))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("run xtask");
    let pid = child.id();
    let output = child.wait_with_output().expect("our child");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(left(pid), [""; 0]);
    if !rustix::process::geteuid().is_root() {
        // Books and weights are root's: there is nothing to measure by, and no page that says otherwise.
        assert!(!output.status.success() && errors.contains("run this as root"), "{errors}");
        assert!(!out.path().join("real.md").exists());
        skip(
            "real::a_quick_run_makes_the_page_and_leaves_nothing",
            "the kernel's books and weights need root",
        );
        return;
    }
    assert!(output.status.success(), "{errors}");
    let page = std::fs::read_to_string(out.path().join("real.md")).expect("a page");
    assert!(page.contains("**This is a quick run**") && page.contains("## Goals: "), "{page}");
    assert!(!page.contains("**Without "), "{page}");
    for file in ["split", "throughput", "cost"] {
        let png = std::fs::read(out.path().join(format!("real/{file}.png"))).expect("a picture");
        assert!(png.starts_with(b"\x89PNG"), "{file}");
    }
    let rows = rows(&out.path().join("real/real.csv"));
    for program in ["shell arithmetic", "dd conv=fsync", "a daemon with an empty environment"] {
        for (shares, target) in [("3:1", 0.75), ("1:1", 0.5), ("1:3", 0.25)] {
            for tool in ["divvy", "kernel's weights"] {
                let of = |r: &&BTreeMap<String, String>| {
                    r["program"] == program && r["shares"] == shares && r["tool"] == tool
                };
                let row =
                    rows.iter().find(of).unwrap_or_else(|| panic!("no row of {program}, {shares}, {tool}"));
                let (split, used) = (number(row, "split"), number(row, "used"));
                assert!(number(row, "rate") > 0.0 && number(row, "hog_rate") > 0.0, "{row:?}");
                assert!(used > LEAST_OF_TARGET && used < 1.1 && split > 0.0 && split < 1.0, "{row:?}");
                if program == "shell arithmetic" {
                    let error = (split / target).min((1.0 - split) / (1.0 - target));
                    assert!(error > LEAST_OF_TARGET, "{row:?}");
                }
            }
        }
    }
    assert!(rows.iter().any(|r| r["tool"] == "alone" && r["program"] == "dd conv=fsync"));
}
