//! Everything that has to hold before a change is taken.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// Runs every check, in the order of what fails fastest, and stops at the first that fails.
///
/// # Errors
/// Names the check that failed.
pub(crate) fn run() -> Result<()> {
    let root = root();
    purity(&root)?;
    let cargo = |what: &str, args: &[&str]| step(&root, what, args, &[]);
    cargo("format", &["fmt", "--all", "--check"])?;
    cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    let strict = [("RUSTDOCFLAGS", "-D warnings")];
    step(&root, "documentation", &["doc", "--workspace", "--no-deps"], &strict)?;
    if installed("nextest") {
        cargo("tests", &["nextest", "run", "--workspace"])?;
    } else {
        eprintln!("ci: cargo-nextest is not installed; cargo test runs the same tests");
        cargo("tests", &["test", "--workspace", "--all-targets"])?;
    }
    cargo("documentation's examples", &["test", "--workspace", "--doc"])?;
    eprintln!("ci: all checks passed");
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

fn step(root: &Path, what: &str, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    eprintln!("ci: {what}: cargo {}", args.join(" "));
    let status = cargo(root).args(args).envs(env.iter().copied()).status().context("start cargo")?;
    ensure!(status.success(), "{what}: cargo {}: {status}", args.join(" "));
    Ok(())
}

fn installed(subcommand: &str) -> bool {
    let mut command = Command::new("cargo");
    command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|s| s.success())
}

/// What the pure crates may not have: dependencies, `std`, `unsafe`.
fn purity(root: &Path) -> Result<()> {
    for package in ["divvy-policy", "divvy-market"] {
        eprintln!("ci: purity of {package}");
        let tree = cargo(root)
            .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none"])
            .output()
            .context("start cargo tree")?;
        ensure!(tree.status.success(), "cargo tree: {}", String::from_utf8_lossy(&tree.stderr).trim());
        let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
        check_tree(package, &tree)?;
        let path = root.join("crates").join(package).join("src/lib.rs");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        check_attributes(package, &text)?;
    }
    Ok(())
}

fn check_tree(package: &str, tree: &str) -> Result<()> {
    let lines: Vec<&str> = tree.lines().filter(|l| !l.trim().is_empty()).collect();
    if lines.len() != 1 {
        bail!("{package} has dependencies; it may have none:\n{tree}");
    }
    Ok(())
}

fn check_attributes(package: &str, lib: &str) -> Result<()> {
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        let there = lib.lines().any(|line| line.trim() == attribute);
        ensure!(there, "crates/{package}/src/lib.rs: {attribute} is missing");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_is_found() {
        assert!(check_tree("divvy-policy", "divvy-policy v0.1.0 (/x)\n").is_ok());
        assert!(check_tree("divvy-policy", "divvy-policy v0.1.0 (/x)\nserde v1.0.0\n").is_err());
        assert!(check_tree("divvy-policy", "").is_err());
    }

    #[test]
    fn a_missing_attribute_is_found() {
        assert!(check_attributes("divvy-policy", "//! x\n#![no_std]\n#![forbid(unsafe_code)]\n").is_ok());
        assert!(check_attributes("divvy-policy", "#![no_std]\n").is_err());
        assert!(check_attributes("divvy-policy", "// #![no_std]\n#![forbid(unsafe_code)]\n").is_err());
    }
}
