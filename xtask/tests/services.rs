//! Services of three users, divided: a quick run makes the page, and whatever ends it, nothing is left of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use divvy_linux::{Pid, ProcessRef, Signal, clock};
use divvy_policy::Nanos;

mod common;
#[path = "common/left.rs"]
mod left;

use common::{lacks, skip};
use left::left;

/// How long a test waits for what must come.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// A service may not have less than this part of its due, or more than so many times as much, however busy the machine is.
const LEAST_OF_DUE: f64 = 0.6;
const MOST_OF_DUE: f64 = 1.5;
/// What `scripts/setup.sh` installs for them.
const PROGRAMS: [&str; 6] = ["apache2", "mariadbd", "ab", "sysbench", "lame", "setpriv"];

/// Whether services can be run here; says aloud why not.
fn can(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        skip(test, "not root: only root runs the servers of three users");
        return false;
    }
    let dirs = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(Path::new);
    let missing: Vec<&str> =
        PROGRAMS.into_iter().filter(|name| !dirs.iter().any(|dir| dir.join(name).exists())).collect();
    if !missing.is_empty() {
        lacks(test, "services", &format!("not installed: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// `cargo xtask paper services --quick` into `out`.
fn services(out: &Path, only: Option<&str>) -> Command {
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--workspace", "--bin", "divvy"])
        .args((!cfg!(debug_assertions)).then_some("--release"));
    assert!(build.status().expect("cargo").success(), "the divvy that is measured is of this build");
    let mut command = Command::new(xtask);
    command.args(["paper", "services", "--quick", "--out"]).arg(out);
    command.arg("--programs").arg(xtask.parent().expect("a directory"));
    command.args(only.into_iter().flat_map(|part| ["--only", part])).stdin(Stdio::null());
    command
}

fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let mut data = csv::Reader::from_path(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    data.deserialize().map(|row| row.expect("a row")).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|e| panic!("{column} of {row:?}: {e}"))
}

/// All divided rows of a file: everybody has worked, and has about what is due of the CPU time.
fn check_divided(path: &Path, all: usize, divided: &[&str]) {
    let rows = rows(path);
    assert_eq!(rows.len(), all, "{}", path.display());
    assert!(rows.iter().all(|row| number(row, "per_second") > 0.0), "{rows:?}");
    for division in divided {
        let of: Vec<_> = rows.iter().filter(|row| row["division"] == *division).collect();
        let (used, shares): (f64, f64) =
            (of.iter().map(|r| number(r, "used")).sum(), of.iter().map(|r| number(r, "share")).sum());
        for row in of {
            let of_due = number(row, "used") / used * shares / number(row, "share");
            assert!((LEAST_OF_DUE..MOST_OF_DUE).contains(&of_due), "{of_due} of what is due: {row:?}");
        }
    }
}

#[test]
fn a_quick_run_makes_the_page_and_leaves_nothing() {
    if !can("services::a_quick_run_makes_the_page_and_leaves_nothing") {
        return;
    }
    let out = tempfile::tempdir().expect("a directory");
    let child = services(out.path(), None).stderr(Stdio::piped()).spawn().expect("run xtask");
    let pid = child.id();
    let output = child.wait_with_output().expect("our child");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(left(pid), [""; 0]);
    assert!(output.status.success(), "{errors}");
    let page = std::fs::read_to_string(out.path().join("services.md")).expect("a page");
    assert!(page.contains("**This is a quick run**") && page.contains("## Goals: "), "{page}");
    let data = out.path().join("services");
    // Where the kernel's books are of version 2 alone, divvy takes its clients out of them by default.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("what is mounted");
    let both = ["divvy, signals", "divvy, default"];
    let known = if mounts.contains("cpuacct") { &both[..] } else { &both[..1] };
    check_divided(&data.join("web.csv"), 9, known);
    check_divided(&data.join("oltp.csv"), 3, &["divvy, signals"]);
    check_divided(&data.join("suites.csv"), 3, &["divvy, signals"]);
    let fetched =
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(["vm", "fetch"]).output().expect("run xtask");
    if fetched.status.success() {
        check_divided(&data.join("machines.csv"), 3, &known[1..]);
    } else {
        lacks("services: three virtual machines", "test machine", &String::from_utf8_lossy(&fetched.stderr));
    }
    let failed: f64 = rows(&data.join("web.csv")).iter().map(|row| number(row, "failed")).sum();
    assert!(failed < 1.0, "{failed} requests have failed");
    let encoders = rows(&data.join("encoders.csv"));
    let last = |share: &str| {
        let of = encoders.iter().filter(|row| row["share"] == share);
        of.map(|row| number(row, "encoded")).fold(0.0, f64::max)
    };
    let encoded = ["1", "2", "3", "4", "5"].map(last);
    assert!(encoded[0] > 0.0 && encoded.is_sorted(), "{encoded:?}");
    for picture in ["web", "encoders-lame"] {
        let png = std::fs::read(data.join(format!("{picture}.png"))).expect("a picture");
        assert!(png.starts_with(b"\x89PNG"), "{picture}");
    }
}

/// Ctrl-C, and a kill that nobody can catch: no server outlives the program that started it.
#[test]
fn servers_end_with_the_program_that_started_them() {
    if !can("services::servers_end_with_the_program_that_started_them") {
        return;
    }
    for signal in [Signal::INT, Signal::KILL] {
        let out = tempfile::tempdir().expect("a directory");
        let mut child = services(out.path(), Some("web")).stderr(Stdio::null()).spawn().expect("run xtask");
        let xtask = ProcessRef::open_child(Pid::from_child(&child)).expect("our child");
        let until = clock::now() + PATIENCE;
        // Three databases and their web servers are there.
        while left(child.id()).iter().filter(|path| path.starts_with("/proc/")).count() < 12 {
            assert!(clock::now() < until && child.try_wait().expect("our child").is_none(), "no servers");
            clock::sleep(Nanos::from_millis(50));
        }
        xtask.signal(signal).expect("end it");
        child.wait().expect("our child");
        while !left(child.id()).is_empty() {
            assert!(clock::now() < until, "left behind: {:?}", left(child.id()));
            clock::sleep(Nanos::from_millis(50));
        }
    }
}
