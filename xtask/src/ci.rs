//! Everything that has to hold before a change is taken.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Runs every check: `scripts/test.sh`, which is what CI runs.
///
/// # Errors
/// That one of them failed; the script has said which.
pub(crate) fn run() -> Result<()> {
    let root = root();
    let status = Command::new("scripts/test.sh").current_dir(&root).status();
    let status = status.context("start scripts/test.sh")?;
    ensure!(status.success(), "scripts/test.sh: {status}");
    Ok(())
}

/// The workspace's directory.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A cargo command: the one that runs this program, else the one on the path.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.current_dir(root);
    command
}
