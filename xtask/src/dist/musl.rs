//! Static programs, linked with musl.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::{PROGRAMS, call};
use crate::ci;

/// Rust's name for static programs of this machine's kind.
fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Builds the programs for release and gives their directory. Rust's standard library for musl is fetched by rustup where
/// it is missing.
///
/// # Errors
/// What is missing, with the fix.
pub(super) fn build() -> Result<PathBuf> {
    let target = target();
    have_std(&target)?;
    have_compiler(&target)?;
    let root = ci::root();
    let mut cargo = ci::cargo(&root);
    cargo.args(["build", "--release", "--target", &target]);
    cargo.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
    let status = cargo.status().context("start cargo")?;
    ensure!(status.success(), "cargo build --target {target}: {status}");
    let dir = crate::install::target_dir().join(&target).join("release");
    PROGRAMS.iter().try_for_each(|program| check_static(&dir.join(program)))?;
    Ok(dir)
}

fn have_std(target: &str) -> Result<()> {
    let root = ci::root();
    let libdir = |target: &str| {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", target]).current_dir(&root);
        call(&mut rustc, "rustc").map(|said| PathBuf::from(said.trim()))
    };
    if libdir(target)?.is_dir() {
        return Ok(());
    }
    eprintln!("dist: fetching Rust's standard library for {target}");
    let added = Command::new("rustup").args(["target", "add", target]).current_dir(&root).status();
    match added {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("rustup target add {target}: {status}; it is fetched from the network once"),
        Err(e) => bail!(
            "this Rust has no standard library for {target}, and rustup, which would fetch it, cannot be run ({e}); \
             install Rust with rustup, or pack the other one alone (--only deb)"
        ),
    }
}

/// SQLite is C.
#[expect(clippy::disallowed_methods, reason = "which compiler is meant is said by the environment")]
fn have_compiler(target: &str) -> Result<()> {
    let named = [format!("CC_{target}"), format!("CC_{}", target.replace('-', "_")), "TARGET_CC".to_owned()];
    if named.iter().any(|name| std::env::var_os(name).is_some()) {
        return Ok(());
    }
    let compilers = ["musl-gcc".to_owned(), format!("{}-linux-musl-gcc", std::env::consts::ARCH)];
    let found = compilers.iter().any(|cc| Command::new(cc).arg("--version").output().is_ok());
    ensure!(
        found,
        "no C compiler for musl (tried {}): apt install musl-tools, or name one in {}",
        compilers.join(", "),
        named[1]
    );
    Ok(())
}

/// # Errors
/// Where the program needs another file to run: an interpreter or a library.
pub(super) fn check_static(program: &Path) -> Result<()> {
    let mut readelf = Command::new("readelf");
    let said = call(readelf.arg("-ldW").arg(program), "binutils")?;
    let needs = said.lines().find(|line| line.contains("INTERP") || line.contains("(NEEDED)"));
    ensure!(needs.is_none(), "{}: not static: {}", program.display(), needs.unwrap_or_default().trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_library_is_not_static() {
        let error = check_static(Path::new("/bin/sh")).unwrap_err().to_string();
        assert!(error.contains("not static: "), "{error}");
        assert!(check_static(Path::new("/no/such")).is_err());
    }
}
