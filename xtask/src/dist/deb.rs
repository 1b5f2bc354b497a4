//! `divvy_VERSION_ARCH.deb`, made by dpkg-deb: both programs, manual pages, completions, units, pages for users, examples.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};

use super::{PROGRAMS, call, epoch};
use crate::{ci, install};

/// What dpkg runs; `dist/debian` has them.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Packs the programs of a directory, with what belongs to them, into `out`.
///
/// # Errors
/// What is missing on this machine, with the package that has it, or what failed.
pub(super) fn write(programs: &Path, version: &str, level: u8, work: &Path, out: &Path) -> Result<PathBuf> {
    let root = work.join("root");
    install::stage(programs, "/usr", &root)?;
    compress_pages(&root.join("usr/share/man/man1"))?;
    write_docs(&root.join("usr/share/doc/divvy"))?;
    let architecture = call(Command::new("dpkg").arg("--print-architecture"), "dpkg")?;
    let architecture = architecture.trim();
    let maintainer = maintainer()?;
    let depends = depends(&PROGRAMS.map(|program| root.join("usr/bin").join(program)), work)?;
    let control = control(version, architecture, &maintainer, &depends, installed_kib(&root)?);
    let info = root.join("DEBIAN");
    std::fs::create_dir_all(&info).with_context(|| format!("create {}", info.display()))?;
    put(&info.join("control"), control.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        let from = ci::root().join("dist/debian").join(script);
        let text = std::fs::read(&from).with_context(|| format!("read {}", from.display()))?;
        put(&info.join(script), &text, 0o755)?;
    }
    let file = out.join(format!("divvy_{version}_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", epoch()?);
    dpkg.args(["--root-owner-group", "-Zxz"]).arg(format!("-z{level}")).arg("--build").arg(&root).arg(&file);
    call(&mut dpkg, "dpkg")?;
    Ok(file)
}

/// Who answers for the package: whom `DEBFULLNAME` and `DEBEMAIL` name, as Debian's tools have it, else the author of the commit
/// that is packed, so that packing the same twice gives the same bytes.
#[expect(clippy::disallowed_methods, reason = "dch(1): the environment says who packs")]
pub(super) fn maintainer() -> Result<String> {
    let named = |variable| std::env::var(variable).ok().filter(|value| !value.trim().is_empty());
    let said = match (named("DEBFULLNAME"), named("DEBEMAIL")) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        _ => {
            let mut git = Command::new("git");
            git.args(["log", "-1", "--format=%an <%ae>"]).current_dir(ci::root());
            call(&mut git, "git").context("nobody to name as the maintainer; set DEBFULLNAME and DEBEMAIL")?
        }
    };
    check_maintainer(said.trim())
}

/// A name and an address, on one line: it becomes a field of the package.
fn check_maintainer(said: &str) -> Result<String> {
    let address = said.strip_suffix('>').and_then(|rest| rest.split_once(" <"));
    let is_one = address.is_some_and(|(name, address)| !name.is_empty() && address.contains('@'));
    ensure!(
        is_one && !said.contains(char::is_control),
        "'{}' is no maintainer: set DEBFULLNAME to a name and DEBEMAIL to an address",
        said.escape_default()
    );
    Ok(said.to_owned())
}

fn control(version: &str, architecture: &str, maintainer: &str, depends: &str, kib: u64) -> String {
    format!(
        "Package: divvy\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: {maintainer}\n\
         Installed-Size: {kib}\n\
         Depends: {depends}\n\
         Section: admin\n\
         Priority: optional\n\
         Description: divides the CPU among commands in proportion to shares\n \
         divvy runs commands and divides the CPU among them in proportion to shares, as\n \
         an ordinary user, with nothing set up beforehand. divvyd does that for\n \
         programs that come and go, of one user or of a machine's users, who can trade\n \
         rights to its resources.\n"
    )
}

/// The libraries of this machine that these programs or libraries need, as a package says it.
pub(super) fn depends(files: &[PathBuf], work: &Path) -> Result<String> {
    // It wants to be in the tree of a source package.
    let source = work.join("source/debian");
    std::fs::create_dir_all(&source).with_context(|| format!("create {}", source.display()))?;
    let text = "Source: divvy\n\nPackage: divvy\nArchitecture: any\n";
    put(&source.join("control"), text.as_bytes(), 0o644)?;
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    shlibdeps.arg("-O").current_dir(work.join("source"));
    shlibdeps.args(files);
    let said = call(&mut shlibdeps, "dpkg-dev")?;
    let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let depends = depends.with_context(|| format!("dpkg-shlibdeps said nothing of use: {said}"))?;
    ensure!(depends.contains("libc6"), "a program that needs no C library: {depends}; pack what cargo built");
    Ok(depends.to_owned())
}

/// Manual pages are kept compressed; without a date, so that equal pages are equal bytes.
fn compress_pages(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let page = entry.with_context(|| format!("read {}", dir.display()))?.path();
        let text = std::fs::read(&page).with_context(|| format!("read {}", page.display()))?;
        let mut name = page.clone().into_os_string();
        name.push(".gz");
        put(Path::new(&name), &gzip(&text)?, 0o644)?;
        std::fs::remove_file(&page).with_context(|| format!("remove {}", page.display()))?;
    }
    Ok(())
}

pub(super) fn write_docs(doc: &Path) -> Result<()> {
    let read =
        |name: &str| std::fs::read_to_string(ci::root().join(name)).with_context(|| format!("read {name}"));
    let copyright = format!("{}\n\nOr, as you like:\n\n{}", read("LICENSE-MIT")?, read("LICENSE-APACHE")?);
    put(&doc.join("copyright"), copyright.as_bytes(), 0o644)?;
    put(&doc.join("changelog.gz"), &gzip(read("CHANGELOG.md")?.as_bytes())?, 0o644)
}

fn gzip(text: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(text)?;
    Ok(encoder.finish()?)
}

pub(super) fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    std::fs::write(path, bytes)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)))
        .with_context(|| format!("write {}", path.display()))
}

pub(super) fn installed_kib(dir: &Path) -> Result<u64> {
    let mut kib = 0;
    for entry in std::fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let entry = entry.with_context(|| format!("read {}", dir.display()))?;
        let meta = entry.metadata().with_context(|| format!("look at {}", entry.path().display()))?;
        kib += if meta.is_dir() { installed_kib(&entry.path())? + 1 } else { meta.len().div_ceil(1024) };
    }
    Ok(kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maintainer_has_a_name_and_an_address() {
        assert_eq!(check_maintainer("A B <a@b.example>").unwrap(), "A B <a@b.example>");
        for wrong in ["", "a@b.example", "A <a>", " <a@b>", "A <a@b>\nDepends: evil", "A\t<a@b>"] {
            assert!(check_maintainer(wrong).is_err(), "{wrong:?}");
        }
    }
}
