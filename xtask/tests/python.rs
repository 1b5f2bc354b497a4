//! The Python package: its own tests over the programs of this build, and its wheel.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod common;
#[path = "../../crates/divvy-cli/tests/live/page.rs"]
mod page;

use common::{lacks, skip};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether Python is there, and new enough; a word why not.
fn has_python(test: &str) -> bool {
    let probe =
        Command::new("python3").args(["-c", "import sys; assert sys.version_info >= (3, 9)"]).output();
    match probe {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            lacks(test, "Python 3.9", &said(&output));
            false
        }
        Err(e) => {
            lacks(test, "python3", &e.to_string());
            false
        }
    }
}

/// The directory with the programs of this build.
fn programs() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--workspace", "--bin", "divvy", "--bin", "divvyd"])
        .args((!cfg!(debug_assertions)).then_some("--release"));
    assert!(build.status().expect("cargo").success(), "the divvyd that is asked is of this build");
    Path::new(env!("CARGO_BIN_EXE_xtask")).parent().expect("a directory").to_owned()
}

#[test]
fn the_packages_own_tests_pass() {
    if !has_python("the_packages_own_tests_pass") {
        return;
    }
    let mut python = Command::new("python3");
    python.args(["-W", "error::ResourceWarning", "-m", "unittest", "discover", "--start-directory", "tests"]);
    python
        .current_dir(root().join("python"))
        .env("DIVVY_BIN", programs())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let path = root().join("python/src");
    let output = python.env("PYTHONPATH", path).output().expect("python3");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let ran = text.split("Ran ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(ran >= Some(10), "{text}");
}

#[test]
fn the_wheel_is_installed_and_the_same_each_time() {
    const TEST: &str = "the_wheel_is_installed_and_the_same_each_time";
    if !has_python(TEST) {
        return;
    }
    let can_build = |python: &str| {
        let probe = Command::new(python).args(["-I", "-c", "import setuptools, wheel, pip"]).output();
        probe.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["/usr/bin/python3", "python3"].into_iter().find(|python| can_build(python)) else {
        let why = "pip, setuptools or wheel is missing; scripts/setup.sh installs them on Debian";
        if std::env::consts::OS == "linux" && Path::new("/etc/debian_version").exists() {
            lacks(TEST, "Python's setuptools", why);
        } else {
            skip(TEST, why);
        }
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let name = format!("divvy_cpu-{}-py3-none-any.whl", env!("CARGO_PKG_VERSION"));
    let wheel = |out: &str| {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.args(["dist", "--only", "wheel", "--out"]).arg(dir.path().join(out));
        let output = xtask.env("SOURCE_DATE_EPOCH", "1700000000").output().expect("xtask");
        assert!(output.status.success(), "{}", said(&output));
        dir.path().join(out).join(&name)
    };
    let (first, second) = (wheel("a"), wheel("b"));
    assert_eq!(std::fs::read(&first).expect("a wheel"), std::fs::read(second).expect("a wheel"));
    // What the page has a reader type, with the name of the wheel.
    let page = page::block(include_str!("../../docs/python.md"), "sh wheel");
    let [build, install] = page.lines().collect::<Vec<_>>()[..] else { panic!("two commands: {page}") };
    assert!(build.starts_with("cargo xtask dist --only wheel ") && build.ends_with(&name), "{build}");
    assert_eq!(install, "pip install target/dist/divvy_cpu-*.whl");
    let site = dir.path().join("site");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]);
    let output = pip.arg("--target").arg(&site).arg(&first).output().expect("pip");
    assert!(output.status.success(), "{}", said(&output));
    assert!(site.join("divvy/py.typed").is_file(), "it is typed");
    let script =
        "import divvy, importlib.metadata as m; print(divvy.__version__, m.version('divvy-cpu'), divvy.Pool)";
    let output =
        Command::new("python3").args(["-c", script]).env("PYTHONPATH", &site).output().expect("python3");
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("{version} {version} <class 'divvy._pools.Pool'>\n");
    assert_eq!(said(&output), expected);
}

/// What `py.typed` promises: the package's own types hold, and so do those of whoever uses it, or mypy says where not.
#[test]
fn types_hold_and_wrong_uses_are_found() {
    const TEST: &str = "types_hold_and_wrong_uses_are_found";
    if let Err(e) = Command::new("mypy").arg("--version").output() {
        return lacks(TEST, "mypy", &e.to_string());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mypy = |what: &Path| {
        let mut mypy = Command::new("mypy");
        mypy.args(["--strict", "--python-version", "3.9", "--cache-dir"]).arg(dir.path().join("cache"));
        let output = mypy.arg(what).env("MYPYPATH", root().join("python/src")).output().expect("mypy");
        (output.status.success(), said(&output))
    };
    let (holds, text) = mypy(&root().join("python/src/divvy"));
    assert!(holds, "{text}");
    let user = dir.path().join("user.py");
    let program = "import divvy\n\
                   with divvy.share({'a': 3, 'b': (divvy.Pid(1), 2)}) as shares:\n    \
                   print(shares.run('a', ['true'], limit='50%').wait() + shares.report()['a'].share)\n";
    std::fs::write(&user, program).expect("write");
    let (holds, text) = mypy(&user);
    assert!(holds, "{text}");
    for (wrong, found) in [
        ("shares.set('a', share='3')", r#""set" of "Share" has incompatible type "str""#),
        ("shares.report()['a'].shares", r#""Row" has no attribute "shares""#),
    ] {
        std::fs::write(&user, format!("{program}{wrong}\n")).expect("write");
        let (holds, text) = mypy(&user);
        assert!(!holds && text.contains(found), "{text}");
    }
}
