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
    assert!(page.contains("**This is a quick run**") && page.contains(" of 2 met"), "{page}");
    // t_s,task,pages. How near to its part each comes in a short run depends on how busy this machine is, and is the page's to
    // say; that the first has several times what the others have does not.
    let csv = std::fs::read_to_string(out.path().join("isolation/fig8.csv")).expect("its data");
    let pages: Vec<u64> = csv
        .lines()
        .rev()
        .take(5)
        .map(|line| line.rsplit(',').next().and_then(|pages| pages.parse().ok()).expect("pages"))
        .collect();
    let (others, first) = (&pages[..4], pages[4]);
    assert!(others.iter().all(|&pages| pages > 0 && first > 3 * pages), "{pages:?}");
}
