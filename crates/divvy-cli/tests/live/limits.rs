//! Limits, judged by the kernel's books: what all processes of a client used, those included that have ended.

use std::process::Stdio;
use std::time::{Duration, Instant};

use divvy_linux::cgroup::Survey;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::daemon::{client as daemon_client, start_divvyd};
use crate::harness::{SPIN, Sandbox, client, cpu, eventually, one_cpu, skip};

/// How far above a limit a client may be, of one CPU: a window at the beginning, and being held late at the end.
const MAX_ABOVE: f64 = 0.03;
/// How far below, beside what strangers took: other tests.
const MAX_BELOW: f64 = 0.10;

/// Runs `divvy share` for 5 s with a report, and what the kernel has down for divvy and all below it, as CPUs: `wait4` of
/// the front end tells of the scheduler, which has waited for the commands.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and tells what it used")]
fn share(sandbox: &Sandbox, args: &[&str]) -> (Value, f64) {
    let mut all = vec!["share", "--for", "5s", "--quiet", "--report", "report.json"];
    all.extend(args);
    let mut command = sandbox.divvy(&all);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("divvy starts");
    let pid = i32::try_from(child.id()).expect("a pid");
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: waits for our own child, and both places are ours to be written to.
    let usage = unsafe {
        assert_eq!(libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()), pid);
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let report = sandbox.report("report.json");
    let own = report["self"]["cpu_ns"].as_f64().expect("a number") / 1e9;
    let wall = report["wall_ns"].as_f64().expect("a number") / 1e9;
    (report, (seconds(usage.ru_utime) + seconds(usage.ru_stime) - own) / wall)
}

fn cpus(report: &Value, index: usize) -> f64 {
    client(report, index, "service_ns").as_f64().expect("a number") / report["wall_ns"].as_f64().expect("ns")
}

/// CPU time that others had, in CPUs.
fn strangers(report: &Value) -> f64 {
    let cpus = report["cpus"].as_array().expect("CPUs").len();
    report["strangers"].as_f64().expect("a number") * cpus as f64
}

/// CPU time that the clients could not have, in CPUs: others', and divvy's own, of which benchmarks tell and no test (without optimization,
/// on a slow machine, it has been an eighth of the CPU).
fn taken(report: &Value) -> f64 {
    let own = report["self"]["cpu_ns"].as_f64().expect("a number");
    strangers(report) + own / report["wall_ns"].as_f64().expect("ns")
}

fn check_limit(report: &Value, got: f64, limit: f64, what: &str) {
    assert!(got <= limit + MAX_ABOVE, "{what}: {got} CPUs of {limit}");
    let least = limit - MAX_BELOW * limit.max(1.0) - strangers(report);
    assert!(got >= least, "{what}: {got} CPUs of {limit}, at least {least}");
}

#[test]
fn one_that_is_alone_gets_its_limit() {
    let cpu = one_cpu();
    let (report, kernels) =
        share(&Sandbox::own(), &["--cpus", &cpu, "--limit", "50%", "1:exec sha256sum /dev/zero"]);
    check_limit(&report, cpus(&report, 0), 0.5, "divvy's books");
    // To start and to end divvy is nobody's: some 10 ms.
    check_limit(&report, kernels, 0.5, "the kernel's books");
    assert_eq!(report["clients"][0]["limit"]["ppm"], 500_000);
}

#[test]
fn what_a_limit_leaves_goes_to_the_other() {
    let cpu = one_cpu();
    let args =
        ["--cpus", &cpu, "--limit", "low=30%", "low=3:exec sha256sum /dev/zero", "1:exec md5sum /dev/zero"];
    let (report, _) = share(&Sandbox::own(), &args);
    check_limit(&report, cpus(&report, 0), 0.3, "limited");
    let (limited, other) = (cpus(&report, 0), cpus(&report, 1));
    assert!(limited + other + taken(&report) > 0.9, "3:1 with a limit of 30 %: {limited} and {other} CPUs");
    let target = client(&report, 0, "target_fraction").as_f64().expect("a number");
    assert!((target - 0.3).abs() < 1e-9, "{report}");
}

/// A shell that starts one short child after the other stays within its limit with all of them.
#[test]
fn short_children_count() {
    let cpu = one_cpu();
    let looped = "many=1:while :; do head -c 200k /dev/zero | md5sum >/dev/null; done";
    let limits = ["--limit", "many=25%", "--limit", "40%"];
    let mut args = vec!["--cpus", &cpu, looped, "1:exec sha256sum /dev/zero"];
    args.extend(limits);
    let (report, kernels) = share(&Sandbox::own(), &args);
    check_limit(&report, cpus(&report, 0), 0.25, "the loop");
    check_limit(&report, cpus(&report, 1), 0.4, "beside it");
    check_limit(&report, kernels, 0.65, "the kernel's books");
}

/// Where the kernel divides it keeps limits too, and where clients are frozen they are frozen for it.
#[test]
fn every_back_end_keeps_limits() {
    let survey = Survey::new();
    let grounds = [("cgroup", survey.weights.err()), ("freezer", survey.freezer.err()), ("signals", None)];
    for (backend, missing) in grounds {
        if let Some(why) = missing {
            skip(&format!("every_back_end_keeps_limits: {backend}"), &why);
            continue;
        }
        let cpu = one_cpu();
        let args =
            ["--backend", backend, "--cpus", &cpu, "--limit", "low=20%", "low=1:exec sha256sum /dev/zero"];
        let (report, kernels) = share(&Sandbox::own(), &[&args[..], &["1:exec md5sum /dev/zero"]].concat());
        check_limit(&report, cpus(&report, 0), 0.2, backend);
        assert!(kernels + taken(&report) > 0.9, "{backend}: what it leaves is the other's: {kernels} CPUs");
    }
}

/// Clients of divvyd: a limit at the start, others later, and what is shown of it.
#[test]
fn a_clients_limit_changes_at_any_moment() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--cpus", &one_cpu()]);
    // In sessions of their own: the kernel hangs up on a group of which somebody stands stopped when it is left alone.
    let mut job = sandbox.command("setsid");
    job.arg(sandbox.program()).args(["run", "--limit", "40%", "--name", "job", "--", "sh", "-c", SPIN]);
    let mut job = job.spawn().expect("divvy starts");
    eventually("the client", || {
        daemon_client(&sandbox, "job").filter(|c| c["service_ns"].as_u64() > Some(0))
    });
    let used = |seconds: u64| {
        let (before, start) = (cpu(&sandbox.with("while")), Instant::now());
        std::thread::sleep(Duration::from_secs(seconds));
        let ticks = cpu(&sandbox.with("while")) - before;
        ticks as f64 / 100.0 / start.elapsed().as_secs_f64()
    };
    let most = |limit: f64| limit + 2.0 * MAX_ABOVE;
    let limited = used(3);
    assert!(limited > 0.02 && limited <= most(0.4), "{limited} CPUs of 0.4");
    assert_eq!(daemon_client(&sandbox, "job").expect("it runs")["limit_ppm"], 400_000);
    let set = |args: &[&str], said: &str| {
        let outcome = sandbox.run(&[&["set", "job"], args].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert_eq!(String::from_utf8_lossy(&outcome.stdout).trim(), said);
    };
    set(&["--limit", "10%"], "job: share 1, limit 10%");
    let less = used(3);
    assert!(less > 0.01 && less <= most(0.1), "{less} CPUs of 0.1");
    let listed = String::from_utf8(sandbox.run(&["ls"]).stdout).expect("text");
    assert!(listed.contains("limit") && listed.contains("10%"), "{listed}");
    set(&["3"], "job: share 3, limit 10%");
    // A pause and its end leave the limit as it was.
    assert_eq!(sandbox.run(&["pause", "job"]).code, Some(0));
    assert_eq!(sandbox.run(&["resume", "job"]).code, Some(0));
    let still = used(2);
    assert!(still > 0.01 && still <= most(0.1), "{still} CPUs of 0.1");
    set(&["--limit", "none"], "job: share 3, no limit of CPU time");
    eventually("more than before", || (used(1) > 0.2).then_some(()));
    let told = daemon_client(&sandbox, "job").expect("it runs");
    assert!(told["limit_ppm"].is_null(), "{told}");
    // One that runs already.
    let mut spin = sandbox.command("setsid");
    let mut spin = spin.args(["sh", "-c", &format!("{SPIN} # another")]).spawn().expect("a shell");
    sandbox.wait_for(1, "# another");
    let pid = spin.id().to_string();
    let outcome = sandbox.run(&["attach", "--tree", &pid, "--limit", "0.25", "--as", "another"]);
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.code == Some(0) && said.contains("share 1, limit 25%"), "{said}{}", outcome.stderr);
    let asked = rustix::process::kill_process(Pid::from_child(&job), Signal::TERM);
    asked.expect("it runs");
    job.wait().expect("ours");
    let (before, start) = (cpu(&sandbox.with("# another")), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let part = (cpu(&sandbox.with("# another")) - before) as f64 / 100.0 / start.elapsed().as_secs_f64();
    assert!(part > 0.01 && part <= most(0.25), "{part} CPUs of 0.25");
    assert_eq!(sandbox.run(&["detach", "another"]).code, Some(0));
    spin.kill().expect("ours");
    spin.wait().expect("ours");
}

/// What is wrong with a limit is said before anything runs.
#[test]
fn wrong_limits_are_named() {
    let sandbox = Sandbox::own();
    for (args, text) in [
        (
            &["--limit", "fast", "1:true"][..],
            "'fast' is no limit; write 50% (of one CPU), 1.5 (CPUs) or none",
        ),
        (&["--limit", "4000", "1:true"], "for a percentage of one CPU write 4000%"),
        (&["--limit", "0%", "1:true"], "a limit is at least 1% of one CPU"),
        (
            &["--limit", "biuld=5%", "build=1:true"],
            "no task is called 'biuld'; there are build; did you mean 'build'?",
        ),
        (&["--limit", "5%", "--limit", "6%", "1:true"], "--limit: two limits for all; give one"),
    ] {
        let outcome = sandbox.run(&[&["share"], args].concat());
        assert_eq!(outcome.code, Some(2), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(text), "{args:?}: {}", outcome.stderr);
    }
    sandbox.write("tasks.toml", "[[task]]\nshare = 1\nlimit = \"half\"\ncommand = \"true\"\n");
    let outcome = sandbox.run(&["share", "--file", "tasks.toml"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("task 1 (unnamed): limit 'half' is no limit"), "{}", outcome.stderr);
}

#[test]
fn a_tree_of_three_has_one_cpu_and_a_half() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("a_tree_of_three_has_one_cpu_and_a_half", "one CPU");
        return;
    }
    let tree = format!("big=1:({SPIN}) & ({SPIN}) & {SPIN}");
    let (report, kernels) = share(&Sandbox::own(), &["--limit", "big=1.5", &tree]);
    check_limit(&report, cpus(&report, 0), 1.5, "divvy's books");
    check_limit(&report, kernels, 1.5, "the kernel's books");
}
