//! `divvy-VERSION-ARCH-linux.tar.gz`: everything below one directory, to be unpacked over a prefix.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{call, epoch};
use crate::{ci, install};

/// The prefix that the units of systemd expect.
const PREFIX: &str = "/usr/local";

/// Packs the programs of a directory, with what belongs to them, into `out`.
///
/// # Errors
/// What failed.
pub(super) fn write(programs: &Path, version: &str, work: &Path, out: &Path) -> Result<PathBuf> {
    let name = format!("divvy-{version}-{}-linux", std::env::consts::ARCH);
    install::stage(programs, PREFIX, work)?;
    let below = work.join(PREFIX.trim_start_matches('/'));
    let top = work.join(&name);
    std::fs::rename(&below, &top).with_context(|| format!("rename {}", below.display()))?;
    let doc = top.join("share/doc/divvy");
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        let to = doc.join(file);
        std::fs::copy(ci::root().join(file), &to).with_context(|| format!("write {}", to.display()))?;
    }
    let file = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    // Equal content, equal bytes.
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--use-compress-program=gzip -9n"]);
    tar.arg(format!("--mtime=@{}", epoch()?)).arg("--create").arg("--file").arg(&file);
    tar.arg("--directory").arg(work).arg(&name);
    call(&mut tar, "tar")?;
    Ok(file)
}
