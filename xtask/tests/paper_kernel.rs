//! The quick run of the storms of `cargo xtask paper kernel`: forks, changes of affinity and a crowd; under VTRR and PBS on a slow CPU one of 2,000 tasks.

use std::path::Path;
use std::process::Command;

mod common;

const NAME: &str = "paper_kernel::schedulers_survive_storms";

/// What fails it is the kernel's watchdog, which waits for 8 s and for 20, by the machine's clock.
#[test]
fn schedulers_survive_storms() {
    let xtask = || Command::new(env!("CARGO_BIN_EXE_xtask"));
    let fetched = xtask().args(["vm", "fetch"]).output().expect("run xtask");
    if !fetched.status.success() {
        return common::lacks(NAME, "test machine", &String::from_utf8_lossy(&fetched.stderr));
    }
    for program in ["/usr/bin/stress-ng", "/usr/bin/flac"] {
        if !Path::new(program).is_file() {
            return common::lacks(NAME, program, "run scripts/setup.sh");
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let study = ["paper", "kernel", "--quick", "--only", "storms", "--lanes", "1", "--out"];
    let done = xtask().args(study).arg(dir.path()).output().expect("run xtask");
    let said = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() && said.contains("divvy-scx cannot be built") {
        return common::lacks(NAME, "divvy-scx", &said);
    }
    assert!(done.status.success(), "{said}");
    let page = std::fs::read_to_string(dir.path().join("kernel.md")).expect("a page");
    assert!(page.contains("## Goals: 4 of 4 met"), "{page}");
}
