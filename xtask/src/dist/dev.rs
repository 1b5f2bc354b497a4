//! `libdivvy-dev_VERSION_ARCH.deb`: the library for C, shared and static, its header, and what pkg-config wants to know.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{call, deb, epoch};
use crate::{ci, install};

/// The name that programs are linked with (`crates/divvy-c/build.rs`).
const SONAME: &str = "libdivvy.so.0";
/// What the static library needs beside itself.
const PRIVATE: &str = "-lpthread -ldl -lm";

/// Builds the libraries for release, and gives the directory that they are in.
///
/// # Errors
/// Where they cannot be built.
pub(super) fn build() -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "-p", "divvy-c"]).current_dir(ci::root());
    let status = cargo.status().context("run cargo")?;
    ensure!(status.success(), "cargo build: {status}");
    Ok(install::target_dir().join("release"))
}

/// Packs the libraries of a directory into `out`.
///
/// # Errors
/// What is missing on this machine, with the package that has it, or what failed.
pub(super) fn write(built: &Path, version: &str, level: u8, work: &Path, out: &Path) -> Result<PathBuf> {
    let triplet = call(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"), "dpkg-dev")?;
    let triplet = triplet.trim();
    let root = work.join("root");
    let lib = root.join("usr/lib").join(triplet);
    let (include, doc) = (root.join("usr/include"), root.join("usr/share/doc/libdivvy-dev"));
    for dir in [&lib.join("pkgconfig"), &include, &doc.join("examples")] {
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    }
    let shared = format!("libdivvy.so.{version}");
    copy(&built.join("libdivvy.so"), &lib.join(&shared))?;
    copy(&built.join("libdivvy.a"), &lib.join("libdivvy.a"))?;
    // Of the crates' parts only what is linked is kept; what debuggers would want is in a build of one's own.
    call(Command::new("strip").arg("--strip-unneeded").arg(lib.join(&shared)), "binutils")?;
    call(Command::new("strip").arg("--strip-debug").arg(lib.join("libdivvy.a")), "binutils")?;
    for link in [SONAME, "libdivvy.so"] {
        std::os::unix::fs::symlink(&shared, lib.join(link)).with_context(|| format!("link {link}"))?;
    }
    copy(&ci::root().join("crates/divvy-c/include/divvy.h"), &include.join("divvy.h"))?;
    copy(&ci::root().join("crates/divvy-c/examples/divide.c"), &doc.join("examples/divide.c"))?;
    copy(&ci::root().join("docs/c.md"), &doc.join("c.md"))?;
    deb::put(&lib.join("pkgconfig/divvy.pc"), pkg_config(version, triplet).as_bytes(), 0o644)?;
    deb::write_docs(&doc)?;
    let depends = deb::depends(&[lib.join(&shared)], work)?;
    let kib = deb::installed_kib(&root)?;
    let architecture = call(Command::new("dpkg").arg("--print-architecture"), "dpkg")?;
    let architecture = architecture.trim();
    let info = root.join("DEBIAN");
    std::fs::create_dir_all(&info).with_context(|| format!("create {}", info.display()))?;
    let control = control(version, architecture, &deb::maintainer()?, &depends, kib);
    deb::put(&info.join("control"), control.as_bytes(), 0o644)?;
    // The linker's cache learns of the library, and forgets it.
    deb::put(&info.join("triggers"), b"activate-noawait ldconfig\n", 0o644)?;
    let file = out.join(format!("libdivvy-dev_{version}_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", epoch()?);
    dpkg.args(["--root-owner-group", "-Zxz"]).arg(format!("-z{level}")).arg("--build").arg(&root).arg(&file);
    call(&mut dpkg, "dpkg")?;
    Ok(file)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let bytes = std::fs::read(from).with_context(|| format!("read {}", from.display()))?;
    deb::put(to, &bytes, 0o644)
}

fn pkg_config(version: &str, triplet: &str) -> String {
    format!(
        "prefix=/usr\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib/{triplet}\n\
         \n\
         Name: divvy\n\
         Description: shares of the CPU for a program's own processes\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -ldivvy\n\
         Libs.private: {PRIVATE}\n"
    )
}

fn control(version: &str, architecture: &str, maintainer: &str, depends: &str, kib: u64) -> String {
    format!(
        "Package: libdivvy-dev\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: {maintainer}\n\
         Installed-Size: {kib}\n\
         Depends: {depends}\n\
         Recommends: divvy\n\
         Section: libdevel\n\
         Priority: optional\n\
         Description: shares of the CPU for a program's own processes, from C\n \
         libdivvy divides the CPU among processes that a program names, in proportion\n \
         to shares, without privilege. This package has its header, the shared and the\n \
         static library. What divides is divvyd, of the package divvy.\n"
    )
}
