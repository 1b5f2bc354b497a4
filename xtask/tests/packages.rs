//! What a registry of crates would be given: versions, descriptions and files are there, and each package compiles by what is in it,
//! with the features that it asks for itself. (`cargo package` would build each anew, and those that it needs: 280 s for 110.)

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

fn must(command: &mut Command) {
    let done = command.output().expect("it can be run");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The packages, as they would be published.
fn packed(target: &Path) -> Vec<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--workspace", "--exclude", "xtask", "--allow-dirty", "--no-verify", "--quiet"]);
    must(cargo.arg("--target-dir").arg(target).current_dir(root()));
    let all = std::fs::read_dir(target.join("package")).expect("packages");
    let all = all.map(|entry| entry.expect("an entry").path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|e| e == "crate")).collect();
    all.sort();
    all
}

/// A package's name: the file's without its version.
fn name(package: &Path) -> String {
    let stem = package.file_stem().expect("a name").to_str().expect("text");
    stem.rsplit_once('-').expect("a version").0.to_owned()
}

#[test]
fn each_package_compiles_by_what_is_in_it() {
    let target = root().join("target/packages");
    // What an earlier version left would be checked too.
    for old in ["package", "unpacked"] {
        let _ = std::fs::remove_dir_all(target.join(old));
    }
    let (all, unpacked) = (packed(&target), target.join("unpacked"));
    assert!(all.len() >= 11, "every crate but that of the kernel is published: {all:?}");
    std::fs::create_dir_all(&unpacked).expect("a directory");
    // They need each other as they are, and no registry has them yet.
    let mut workspace = "[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n[patch.crates-io]\n".to_owned();
    for package in &all {
        // As new: what is looked at is when a file was written.
        must(Command::new("tar").arg("-xmf").arg(package).arg("-C").arg(&unpacked));
        let dir = package.file_stem().expect("a name").to_str().expect("text");
        writeln!(workspace, "{} = {{ path = \"{dir}\" }}", name(package)).expect("a string");
    }
    std::fs::write(unpacked.join("Cargo.toml"), workspace).expect("written");
    std::fs::copy(root().join("Cargo.lock"), unpacked.join("Cargo.lock")).expect("copied");
    for package in &all {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["check", "--quiet", "--offline", "-p", &name(package), "--manifest-path"]);
        must(cargo.arg(unpacked.join("Cargo.toml")).arg("--target-dir").arg(root().join("target")));
    }
}
