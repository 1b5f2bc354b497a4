//! The `divvyd` of this build. Cargo builds the programs of the package under test only, and divvyd is another's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// `divvyd` beside this `divvy`, of the same profile: built unless it is newer than everything it is made from.
pub fn built_beside(divvy: &Path) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(divvy)).clone()
}

fn build(divvy: &Path) -> PathBuf {
    let divvyd = divvy.with_file_name("divvyd");
    if is_up_to_date(&divvyd) {
        return divvyd;
    }
    let dir = divvy.parent().expect("a directory");
    let profile = match dir.file_name().and_then(|name| name.to_str()).expect("a profile's directory") {
        "debug" => "dev",
        profile => profile,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace", "--bin", "divvyd", "--profile", profile]);
    cargo.arg("--target-dir").arg(dir.parent().expect("a target directory"));
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
    assert!(status.success() && divvyd.is_file(), "{}: not built: {status}", divvyd.display());
    divvyd
}

/// Whether it is newer than every file in the list that cargo wrote beside it: what it is made from.
fn is_up_to_date(divvyd: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let newer = |built: SystemTime, source: &str| changed(Path::new(source)).is_some_and(|at| at <= built);
    let Some(built) = changed(divvyd) else { return false };
    // `/a/divvyd: /a/src/main.rs /a/src/lib.rs`, in one line.
    let list = std::fs::read_to_string(divvyd.with_extension("d")).unwrap_or_default();
    let mut sources = list.lines().next().unwrap_or_default().split(' ').skip(1).peekable();
    sources.peek().is_some() && sources.all(|source| newer(built, source))
}
