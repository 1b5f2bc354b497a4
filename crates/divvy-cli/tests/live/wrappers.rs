//! Programs that stop themselves when they see their child stopped, and wait for a shell to resume them: `su`, `runuser`.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{PATIENCE, SPIN, Sandbox, eventually, one_cpu, skip};

/// Computes for some seconds.
const SOME: &str = "i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done # child";

/// A wrapper that stands while its child does not is looked at for so long, in reality far shorter.
const HELD_AT_MOST: Duration = Duration::from_secs(10);

/// A place for a test as root, where there are such wrappers.
fn with_wrappers(test: &str) -> Option<Sandbox> {
    let sandbox = Sandbox::shared(test)?;
    let runs = |program: &str| std::process::Command::new(program).arg("--help").output().is_ok();
    if !runs("runuser") || !runs("su") {
        skip(test, "no su and runuser (util-linux)");
        return None;
    }
    Some(sandbox)
}

#[test]
fn a_wrapper_that_mirrors_its_childs_stops_goes_on() {
    let Some(sandbox) = with_wrappers("a_wrapper_that_mirrors_its_childs_stops_goes_on") else { return };
    let words = [
        format!("1:runuser -u nobody -- sh -c '{SOME}'"),
        format!("1:su -s /bin/sh nobody -c '{SOME}'"),
        format!("1:{SPIN} # client"),
    ];
    let cpu = one_cpu();
    let mut args = vec!["share", "--quiet", "--backend", "signals", "--cpus", &cpu, "--quantum", "5ms"];
    args.extend(words.iter().map(String::as_str));
    let running = sandbox.start(&args);
    eventually("both children", || (sandbox.with("# child").len() >= 4).then_some(()));
    // No wrapper stands for longer than its child is held for; and at the end both are gone, for they have waited for it.
    let begun = Instant::now();
    let mut standing: Vec<(rustix::process::Pid, Instant)> = Vec::new();
    let mut seen = 0;
    loop {
        let wrappers: Vec<_> = sandbox
            .processes()
            .into_iter()
            .filter(|p| ["su", "runuser"].contains(&p.comm.as_str()))
            .collect();
        if wrappers.is_empty() {
            break;
        }
        let stands: Vec<_> = wrappers.iter().filter(|p| p.state == 'T').map(|p| p.pid).collect();
        seen += stands.len();
        standing.retain(|(pid, _)| stands.contains(pid));
        for pid in stands {
            if !standing.iter().any(|(p, _)| *p == pid) {
                standing.push((pid, Instant::now()));
            }
        }
        for (pid, since) in &standing {
            assert!(since.elapsed() < HELD_AT_MOST, "{pid} stands for {:?}", since.elapsed());
        }
        assert!(begun.elapsed() < PATIENCE, "they do not end: {wrappers:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("a wrapper was seen to stand {seen} times in {:?}", begun.elapsed());
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
}

/// It is nobody's client: only the child is divided, and ends while it is.
#[test]
fn a_wrapper_outside_goes_on_too() {
    let Some(sandbox) = with_wrappers("a_wrapper_outside_goes_on_too") else { return };
    let cpu = one_cpu();
    let mut wrapper = sandbox
        .command("setsid")
        .args(["taskset", "-c", &cpu, "runuser", "-u", "nobody", "--", "sh", "-c", SOME])
        .spawn()
        .expect("a wrapper");
    let is_shell = |p: &crate::harness::Process| p.comm == "sh";
    let child = eventually("the child", || sandbox.with("# child").into_iter().find(is_shell));
    let words = [format!("1:@pid:{}", child.pid), format!("1:{SPIN} # client")];
    let mut args = vec!["share", "--quiet", "--backend", "signals", "--cpus", &cpu, "--quantum", "5ms"];
    args.extend(words.iter().map(String::as_str));
    let running = sandbox.start(&args);
    let stands = |p: &crate::harness::Process| p.comm == "runuser" && p.state == 'T';
    eventually("the wrapper to stand", || sandbox.processes().iter().any(stands).then_some(()));
    let code = eventually("the wrapper to end", || wrapper.try_wait().expect("its end"));
    assert_eq!(code.code(), Some(0));
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
}

/// One who lets a client go that stood, or stood a moment ago, leaves no wrapper of it suspended.
#[test]
fn a_wrapper_outside_is_resumed_as_its_childs_client_is_detached() {
    const TEST: &str = "a_wrapper_outside_is_resumed_as_its_childs_client_is_detached";
    let Some(sandbox) = with_wrappers(TEST) else { return };
    crate::daemon::start_divvyd(&sandbox, &["--backend", "signals", "--cpus", &one_cpu()]);
    for again in [&["resume", "x"][..], &[]] {
        let mut wrapper = sandbox
            .command("setsid")
            .args(["runuser", "-u", "nobody", "--", "sh", "-c", &format!("{SPIN} # child")])
            .spawn()
            .expect("a wrapper");
        let is_shell = |p: &crate::harness::Process| p.comm == "sh";
        let child = eventually("the child", || sandbox.with("# child").into_iter().find(is_shell));
        let divvy = |args: &[&str]| assert_eq!(sandbox.run(args).code, Some(0), "{args:?}");
        divvy(&["attach", &format!("tree:{}", child.pid), "--name", "x"]);
        divvy(&["pause", "x"]);
        let stands = |p: &crate::harness::Process| p.comm == "runuser" && p.state == 'T';
        eventually("the wrapper to stand", || sandbox.processes().iter().any(stands).then_some(()));
        if !again.is_empty() {
            divvy(again);
        }
        divvy(&["detach", "x"]);
        eventually("the wrapper to go on", || (!sandbox.processes().iter().any(stands)).then_some(()));
        rustix::process::kill_process(child.pid, Signal::KILL).expect("ours");
        wrapper.wait().expect("ours");
    }
}
