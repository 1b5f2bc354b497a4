//! A site of Slurm on this machine, with a divvyd on each node: `cargo xtask cluster`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use divvy_linux::{Pid, ProcessRef, Signal, clock};
use divvy_policy::Nanos;

mod common;
#[path = "common/processes.rs"]
mod processes;

use common::{lacks, skip};
use processes::{PATIENCE, check_gone, descendants};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The directory of this build's programs.
fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--quiet", "--workspace", "--bin", "divvy", "--bin", "divvyd"])
            .args((!cfg!(debug_assertions)).then_some("--release"));
        assert!(build.status().expect("cargo").success(), "the divvy of the nodes is of this build");
        Path::new(env!("CARGO_BIN_EXE_xtask")).parent().expect("a directory").to_owned()
    })
}

/// `cargo xtask cluster` with what it builds and remembers in a directory of the test's own.
fn cluster(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("cluster").env("CARGO_TARGET_DIR", dir).stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().expect("run xtask");
    (status.code(), text(&stdout) + &text(&stderr))
}

/// Whether a site can be brought up here; says aloud why not.
fn can(test: &str, dir: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        skip(test, "not root: namespaces with a site of Slurm are root's to make");
        return false;
    }
    let (code, said) = output(cluster(dir).arg("check"));
    if code != Some(0) {
        lacks(test, "Slurm", &said);
    }
    code == Some(0)
}

/// A site's daemons are among them.
fn check_site(processes: &[(String, ProcessRef)]) {
    let count = |wanted: &str| processes.iter().filter(|(name, _)| name == wanted).count();
    let names: Vec<&String> = processes.iter().map(|(name, _)| name).collect();
    let daemons = ["munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd"].map(count);
    assert_eq!(daemons, [1, 1, 1, 1, 3], "{names:?}");
    assert!(count("divvyd") >= 3, "{names:?}");
}

/// Runs `cargo xtask cluster WORDS`, which ends well and last says `end`. What it said; nothing where there can be no site.
fn passes(test: &str, words: &[&str], end: &str) -> Option<String> {
    let dir = tempfile::tempdir().expect("a directory");
    if !can(test, dir.path()) {
        return None;
    }
    let (code, said) = output(cluster(dir.path()).args(words).arg("--programs").arg(programs()));
    eprintln!("{said}");
    assert_eq!(code, Some(0));
    assert!(said.ends_with(&format!("cluster: {end}\n")), "it came to its end");
    Some(said)
}

#[test]
fn a_site_divides_its_nodes_and_fails_no_job() {
    let test = "cluster::a_site_divides_its_nodes_and_fails_no_job";
    let Some(said) = passes(test, &["--quick"], "all checks passed") else { return };
    assert_eq!(said.matches("cluster: ok: ").count(), 13, "every check has passed");
}

#[test]
fn fairshare_charges_what_jobs_used() {
    passes("cluster::fairshare_charges_what_jobs_used", &["usage"], "usage goes back");
}

/// Daemons killed, a network cut, a node lost; jobs that are suspended, fewer times than by hand.
#[test]
fn faults_are_survived() {
    let words = ["faults", "--suspensions", "3"];
    passes("cluster::faults_are_survived", &words, "all faults were survived");
}

#[test]
fn an_administrator_follows_the_page() {
    passes("cluster::an_administrator_follows_the_page", &["page"], "the page was followed to its end");
}

/// Ctrl-C, and a kill that nobody can catch: nothing of the site outlives the program that made it.
#[test]
fn a_site_ends_with_the_program_that_made_it() {
    let dir = tempfile::tempdir().expect("a directory");
    if !can("cluster::a_site_ends_with_the_program_that_made_it", dir.path()) {
        return;
    }
    for signal in [Signal::INT, Signal::KILL] {
        let mut command = cluster(dir.path());
        command.args(["--quick", "--programs"]).arg(programs()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start xtask");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut lines = lines.map(|line| line.expect("a line"));
        assert!(lines.any(|line| line.starts_with("cluster: ok: ")), "no check passed");
        // The second check has begun: soon jobs run, and are held in turns.
        let xtask = ProcessRef::open_child(Pid::from_child(&child)).expect("our child");
        let until = clock::now() + PATIENCE;
        let processes = loop {
            let processes = descendants(xtask.pid());
            if processes.iter().filter(|(name, _)| name == "sha256sum").count() == 3 {
                break processes;
            }
            assert!(clock::now() < until, "three jobs run: {processes:?}");
            clock::sleep(Nanos::from_millis(100));
        };
        check_site(&processes);
        xtask.signal(signal).expect("end it");
        child.wait().expect("our child");
        check_gone(&processes);
    }
}

#[test]
fn a_site_stays_until_it_is_taken_down() {
    let dir = tempfile::tempdir().expect("a directory");
    if !can("cluster::a_site_stays_until_it_is_taken_down", dir.path()) {
        return;
    }
    let run = |args: &[&str]| output(cluster(dir.path()).args(args));
    let up = || output(cluster(dir.path()).args(["up", "--programs"]).arg(programs()));
    let (code, said) = run(&["run", "--", "true"]);
    assert!(code == Some(1) && said.contains("no site is up; bring one up"), "{said}");
    /// Nothing is left of a test that fails.
    struct Site<'a>(&'a Path);
    impl Drop for Site<'_> {
        fn drop(&mut self) {
            let _ = output(cluster(self.0).arg("down"));
        }
    }
    let _site = Site(dir.path());
    let (code, said) = up();
    assert_eq!(code, Some(0), "{said}");
    let record =
        std::fs::read_to_string(dir.path().join("cluster/machine.json")).expect("what is remembered");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    let pid = record["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("a pid");
    let processes = descendants(pid);
    check_site(&processes);
    let (code, said) = up();
    assert!(code == Some(1) && said.contains("a site is up already"), "{said}");
    let (code, said) = run(&["run", "--", "sh", "-c", "sinfo -h -N -o %N | sort | tr '\\n' ' '; exit 7"]);
    assert_eq!((code, said.as_str()), (Some(7), "n1 n2 n3 "));
    let (code, said) = run(&["run", "--node", "n2", "--", "divvy", "ls", "--system"]);
    assert!(code == Some(0) && said.contains("no clients"), "{said}");
    let (code, said) = run(&["run", "--node", "n4", "--", "true"]);
    assert!(code == Some(1) && said.contains("--node n4: there are n1, n2, n3"), "{said}");
    assert_eq!(run(&["down"]), (Some(0), "cluster: down\n".to_owned()));
    check_gone(&processes);
    assert_eq!(run(&["down"]), (Some(0), "cluster: no site is up\n".to_owned()));
}

#[test]
fn what_cannot_be_a_site_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    if !can("cluster::what_cannot_be_a_site_is_refused", dir.path()) {
        return;
    }
    let refused = |args: &[&str], why: &str| {
        let (code, said) = output(cluster(dir.path()).args(args));
        assert!(code.is_some_and(|code| code != 0) && said.contains(why), "{args:?}: {said}");
    };
    refused(&[], "give --quick, or one of up, run, down, page, usage, faults, scale, check");
    refused(&["--quick", "--programs", "/no/such"], "find /no/such");
    refused(&["up", "--programs", "/etc"], "/etc/divvy: no such program");
    refused(&["--quick", "down"], "down");
}
