//! The quick run of `cargo xtask paper isolation`: the kernel of the test machine divides a disk by tickets, and the page
//! tells it.

use std::process::Command;

mod common;

#[test]
fn a_quick_run_makes_the_page() {
    let xtask = || Command::new(env!("CARGO_BIN_EXE_xtask"));
    let fetched = xtask().args(["vm", "fetch"]).output().expect("run xtask");
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stderr);
        return common::lacks("paper_isolation::a_quick_run_makes_the_page", "test machine", &why);
    }
    let out = tempfile::tempdir().expect("a directory");
    let done = xtask().args(["paper", "isolation", "--quick", "--out"]).arg(out.path()).output();
    let done = done.expect("run xtask");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let page = std::fs::read_to_string(out.path().join("isolation.md")).expect("a page");
    assert!(page.contains("**This is a quick run**") && page.contains("## Goals: 2 of 2 met"), "{page}");
    assert!(out.path().join("isolation/fig8.csv").is_file());
}
