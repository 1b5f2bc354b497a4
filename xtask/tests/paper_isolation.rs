//! The quick run of `cargo xtask paper isolation`: the kernel of the test machine divides memory, disks and the CPU by tickets, and
//! the page tells it.

use std::path::Path;
use std::process::{Command, Stdio};

use divvy_linux::{Pid, ProcessRef, Signal, clock};
use divvy_policy::Nanos;

mod common;
#[path = "common/processes.rs"]
mod processes;

use processes::{PATIENCE, check_gone, descendants};

/// The rows of a table of the page's data, as numbers.
fn rows(out: &Path, file: &str) -> Vec<Vec<f64>> {
    let text = std::fs::read_to_string(out.join("isolation").join(file)).expect("its data");
    let number = |word: &str| word.parse::<f64>().unwrap_or_else(|e| panic!("{file}: {word}: {e}"));
    text.lines().skip(1).map(|line| line.split(',').map(number).collect()).collect()
}

/// Makes one part of the page, whose text must have `heading`. None where there is no machine.
///
/// Each part has machines of its own, in which time is counted in instructions: what comes of it does not depend on how busy this
/// machine is, nor on the parts beside it.
fn part(test: &str, name: &str, heading: &str) -> Option<tempfile::TempDir> {
    let xtask = || Command::new(env!("CARGO_BIN_EXE_xtask"));
    let fetched = xtask().args(["vm", "fetch"]).output().expect("run xtask");
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stderr);
        common::lacks(&format!("paper_isolation::{test}"), "test machine", &why);
        return None;
    }
    let out = tempfile::tempdir().expect("a directory");
    let done =
        xtask().args(["paper", "isolation", "--quick", "--only", name, "--out"]).arg(out.path()).output();
    let done = done.expect("run xtask");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let page = std::fs::read_to_string(out.path().join("isolation.md")).expect("a page");
    for line in ["**This is a quick run**", heading] {
        assert!(page.contains(line), "{line}: {page}");
    }
    Some(out)
}

/// t_s,task,pages: of four tasks the two with guarantees keep them from when they have them.
#[test]
fn guarantees_of_memory_are_kept() {
    let Some(out) = part("guarantees_of_memory_are_kept", "fig7", "Fig. 7") else { return };
    let owned = rows(out.path(), "fig7.csv");
    for (task, guaranteed) in [(0.0, 4096.0), (1.0, 2867.0)] {
        let had = owned.iter().filter(|row| row[1] == task).map(|row| row[2]);
        let least = had.skip_while(|&pages| pages < guaranteed).fold(f64::INFINITY, f64::min);
        assert!(least.is_finite() && least >= guaranteed * 0.98, "{task}: {least} of {guaranteed}");
    }
}

/// t_s,task,pages: the first has four times what each of the others has.
#[test]
fn a_disk_is_divided() {
    let Some(out) = part("a_disk_is_divided", "fig8", "Fig. 8") else { return };
    let read = rows(out.path(), "fig8.csv");
    let last: Vec<f64> = read.iter().rev().take(5).map(|row| row[2]).collect();
    let (others, first) = (&last[..4], last[4]);
    assert!(others.iter().all(|&pages| (first / pages / 4.0 - 1.0).abs() < 0.05), "{last:?}");
}

/// tickets,task,done,cpu,disk: by an exchange the first that computes and the first that reads do more, and nobody else has less
/// than a seventh.
#[test]
fn both_gain_by_an_exchange() {
    let Some(out) = part("both_gain_by_an_exchange", "fig9-10", "Figs 9 and 10") else { return };
    let traded = rows(out.path(), "fig9-10.csv");
    let of = |tickets: f64, task: f64| {
        traded.iter().find(|row| row[0] == tickets && row[1] == task).expect("a row")
    };
    for task in [0.0, 2.0] {
        assert!(of(400.0, task)[2] > 1.1 * of(0.0, task)[2], "{task}: {traded:?}");
    }
    assert!(of(400.0, 1.0)[3] >= 1.0 / 7.0, "{traded:?}");
    assert!((3..7).all(|task| of(400.0, f64::from(task))[4] >= 1.0 / 7.0), "{traded:?}");
}

/// disk,memory,small_queries,big_queries,...: both servers gain.
#[test]
fn both_servers_gain_by_an_exchange() {
    let Some(out) = part("both_servers_gain_by_an_exchange", "fig11", "Fig. 11") else { return };
    let served = rows(out.path(), "fig11.csv");
    let [before, after] = &served[..] else { panic!("{served:?}") };
    assert!(after[2] > 1.5 * before[2] && after[3] > before[3], "{served:?}");
}

/// What is counted in instructions keeps its goals in the quick run too; what is in real time, or of a disk that BFQ does not know yet, is
/// only shown.
#[test]
fn checks_are_made() {
    let Some(out) = part("checks_are_made", "checks", "the kernel's own tests") else { return };
    let page = std::fs::read_to_string(out.path().join("isolation.md")).expect("a page");
    for goal in [
        "nested weights and quota",
        "shares of the CPU 1:2:3, one CPU",
        "a limit of who traces",
        "a disk by iocost",
        "what docs/admin.md does",
    ] {
        let row = page.lines().find(|line| line.starts_with(&format!("| {goal}")));
        assert!(row.is_some_and(|row| row.ends_with("| yes |")), "{goal}: {row:?}");
    }
}

#[test]
fn very_many_leaves_are_followed() {
    part("very_many_leaves_are_followed", "leaves", "Very many leaves");
}

/// A study that is asked to end ends with its machine, and leaves no page.
#[test]
fn a_study_ends_when_it_is_asked_to() {
    let xtask = || Command::new(env!("CARGO_BIN_EXE_xtask"));
    let fetched = xtask().args(["vm", "fetch"]).output().expect("run xtask");
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stderr);
        return common::lacks("paper_isolation::a_study_ends_when_it_is_asked_to", "test machine", &why);
    }
    let out = tempfile::tempdir().expect("a directory");
    let mut study = xtask();
    study.args(["paper", "isolation", "--quick", "--only", "fig7", "--out"]).arg(out.path());
    let mut child = study.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run xtask");
    let process = ProcessRef::open_child(Pid::from_child(&child)).expect("our child");
    let mut until = None;
    let processes = loop {
        let processes = descendants(process.pid());
        if processes.iter().any(|(name, _)| name.starts_with("qemu")) {
            break processes;
        }
        // The programs are built first, which takes as long as it takes.
        if processes.iter().any(|(name, _)| name == "cargo") {
            until = None;
        }
        let until = *until.get_or_insert_with(|| clock::now() + PATIENCE);
        assert!(clock::now() < until, "a machine runs: {processes:?}");
        clock::sleep(Nanos::from_millis(50));
    };
    process.signal(Signal::TERM).expect("end it");
    assert!(!child.wait().expect("our child").success(), "it was not done");
    check_gone(&processes);
    assert!(!out.path().join("isolation.md").exists(), "a page of nothing");
}
