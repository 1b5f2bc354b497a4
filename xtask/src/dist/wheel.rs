//! The Python package as a wheel, built with setuptools: Debian's, where the machine has it, else whichever pip fetches.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{call, epoch};
use crate::ci;

/// What a wheel is made of, below `python/`.
const PARTS: [&str; 3] = ["pyproject.toml", "README.md", "src/divvy"];
/// The module that says the version.
const VERSION: &str = "src/divvy/__init__.py";
/// Debian's Python, for which apt installs what builds wheels.
const SYSTEM: &str = "/usr/bin/python3";

/// Builds the wheel of `version` into `out`, in `work`.
///
/// # Errors
/// What is missing, with the fix, or what failed.
pub(super) fn write(version: &str, work: &Path, out: &Path) -> Result<PathBuf> {
    let (from, to) = (ci::root().join("python"), work.join("python"));
    for part in PARTS {
        copy(&from.join(part), &to.join(part))?;
    }
    set_version(&to.join(VERSION), version)?;
    let name = format!("divvy_cpu-{version}-py3-none-any.whl");
    let can_build = |python: &str| {
        let mut probe = Command::new(python);
        probe.args(["-I", "-c", "import setuptools, wheel, pip"]);
        probe.output().is_ok_and(|output| output.status.success())
    };
    let here = [SYSTEM, "python3"].into_iter().find(|python| can_build(python));
    let mut pip = Command::new(here.unwrap_or("python3"));
    pip.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]);
    if here.is_some() {
        pip.args(["--no-index", "--no-build-isolation"]);
    }
    pip.arg("--wheel-dir").arg(out).arg(&to).env("SOURCE_DATE_EPOCH", epoch()?);
    call(&mut pip, "python3-pip python3-setuptools python3-wheel")?;
    let file = out.join(name);
    ensure!(
        file.is_file(),
        "{}: pip made no wheel of that name; is {version} a version to Python?",
        file.display()
    );
    Ok(file)
}

/// Copies a file, or the files of a directory that has no other directories worth copying.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        let parent = to.parent().context("a file is in a directory")?;
        std::fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        std::fs::copy(from, to).with_context(|| format!("write {}", to.display()))?;
        return Ok(());
    }
    let entries = std::fs::read_dir(from).with_context(|| format!("list {}", from.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", from.display()))?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

fn set_version(module: &Path, version: &str) -> Result<()> {
    let text = std::fs::read_to_string(module).with_context(|| format!("read {}", module.display()))?;
    let own = format!("__version__ = \"{}\"", env!("CARGO_PKG_VERSION"));
    ensure!(text.contains(&own), "{}: not of this version: no line {own}", module.display());
    let text = text.replace(&own, &format!("__version__ = \"{version}\""));
    std::fs::write(module, text).with_context(|| format!("write {}", module.display()))
}
