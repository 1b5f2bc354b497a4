//! Processes that ran before divvy came: divided among like commands, and left alone at the end.

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::accounts::nobody;
use crate::harness::{
    ENOUGH_TICKS, Process, SPIN, Sandbox, Victim, as_both_users, check_fractions, client, cpu, eventually,
    one_cpu, skip,
};

as_both_users! {
    processes_get_their_shares_and_go_on
    a_member_stopped_by_somebody_else_stays_stopped
    killed_at_random_moments_with_members_that_fork
    killed_together_with_its_guardian
}

/// Rounds of the crash test, for each user.
const ROUNDS: u64 = 60;
/// The latest moment of a kill, after the start of the process.
const LATEST: Duration = Duration::from_millis(250);

/// A process that is not divvy's. Dropping it ends it.
struct Outsider(Child);

impl Outsider {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).spawn().expect("a process"))
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A shell of the sandbox's user that runs `script` on one CPU, in a session of its own.
fn outside(sandbox: &Sandbox, script: &str) -> Outsider {
    let mut command = sandbox.command("setsid");
    command.args(["taskset", "-c", &one_cpu(), "sh", "-c", script]);
    Outsider::start(&mut command)
}

fn pid(outsider: &Outsider) -> Pid {
    Pid::from_child(&outsider.0)
}

/// Runs divvy on one CPU beside what was started outside, until all have done enough; its report.
fn run(sandbox: &Sandbox, words: &[String]) -> Value {
    sandbox.share_for_ticks(2 * ENOUGH_TICKS, &words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// All processes with `word` go on, none suspended.
fn check_go_on(sandbox: &Sandbox, word: &str, n: usize) {
    eventually("all to be resumed", || {
        let found = sandbox.with(word);
        (found.len() == n && found.iter().all(|p| p.state != 'T')).then_some(())
    });
    let before = cpu(&sandbox.with(word));
    eventually("them to go on", || (cpu(&sandbox.with(word)) > before + 5).then_some(()));
}

fn processes_get_their_shares_and_go_on(sandbox: &Sandbox) {
    let one = outside(sandbox, &format!(": outsider; {SPIN}"));
    // The tree computes in two children, one of them in a session of its own, and in many that come and go.
    let tree = format!(
        ": outsider; setsid sh -c ': outsider; {SPIN}' & ( : ; while :; do sha256sum /bin/sh > /dev/null; done ) & wait"
    );
    let tree = outside(sandbox, &tree);
    sandbox.wait_for(4, "outsider");
    let words =
        [format!("1:@pid:{}", pid(&one)), format!("2:@tree:{}", pid(&tree)), format!("3:: inside; {SPIN}")];
    let report = run(sandbox, &words);
    check_fractions(&report, &[1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
    assert_eq!(client(&report, 0, "exit"), &Value::Null);
    assert_eq!(client(&report, 1, "selector"), &format!("tree:{}", pid(&tree)));
    let membership = &report["self"]["membership"];
    assert!(membership["scans"].as_u64().unwrap() >= 3, "{membership}");
    assert!(membership["skew_ns_max"].as_u64().unwrap() > 0, "{membership}");
    assert_eq!(sandbox.with("inside"), [], "the command was ended");
    check_go_on(sandbox, "outsider", 4);
}

/// What attached processes use while they are let go is neither in the report nor in the trace.
#[test]
fn a_trace_ends_with_the_report() {
    let sandbox = &Sandbox::own();
    let one = outside(sandbox, &format!(": outsider; {SPIN}"));
    sandbox.wait_for(1, "outsider");
    let words = ["--trace".to_owned(), "run.jsonl".to_owned(), format!("1:@pid:{}", pid(&one))];
    let report = run(sandbox, &words);
    let plot = sandbox.run(&["plot", "run.jsonl", "--json"]);
    assert_eq!(plot.code, Some(0), "{}", plot.stderr);
    let plot = serde_json::from_slice(&plot.stdout).expect("JSON");
    assert!(client(&report, 0, "service_ns").as_u64() > Some(0), "{report}");
    assert_eq!(client(&plot, 0, "service_ns"), client(&report, 0, "service_ns"));
}

#[test]
fn each_selector_finds_its_processes() {
    let sandbox = &Sandbox::unprivileged();
    let group = outside(sandbox, &format!("({SPIN} # group\n) & {SPIN}"));
    let name = format!("w{}", std::process::id());
    let program = sandbox.path(&name);
    std::fs::copy("/bin/sh", &program).expect("a copy of the shell");
    let mut named = sandbox.command("taskset");
    named.args(["-c", &one_cpu()]).arg(&program).args(["-c", SPIN]);
    let _named = Outsider::start(&mut named);
    sandbox.wait_for(2, "# group");
    sandbox.wait_for(1, &name);
    sandbox.write(
        "tasks.toml",
        &format!(
            "[[task]]\nshare = 1\nattach = 'group:{g}'\n\n[[task]]\nname = 'by name'\nshare = 1\nattach = 'name:{name}'\n\
             \n[[task]]\nshare = 2\ncommand = ['sh', '-c', '{SPIN}']\n",
            g = pid(&group),
        ),
    );
    let report = run(sandbox, &["--file".to_owned(), "tasks.toml".to_owned()]);
    check_fractions(&report, &[0.25, 0.25, 0.5]);
    assert_eq!(client(&report, 1, "name"), "by name");
    assert_eq!(report["self"]["membership"]["members"], 3);
    // A session, and a pattern that nobody's name matches yet.
    let words =
        [format!("1:@session:{}", pid(&group)), format!("1:@name:{name}*"), "1:@name:no-[s]uch*".to_owned()];
    let report = run(sandbox, &words);
    assert_eq!(client(&report, 2, "service_ns"), 0);
    let service = |i| client(&report, i, "service_ns").as_u64().unwrap() as f64;
    assert!((service(0) / service(1) - 1.0).abs() < 0.2, "{report}");
}

/// Everything of a user who has no other processes, whoever comes later included.
#[test]
fn users_are_clients() {
    if !rustix::process::geteuid().is_root() {
        return skip("users_are_clients", "not root: no other user's processes can be started");
    }
    let sandbox = Sandbox::own();
    let start = |uid: u32, script: &str| {
        let mut command = sandbox.command("setpriv");
        command.args([
            &format!("--reuid={uid}"),
            &format!("--regid={uid}"),
            "--clear-groups",
            "taskset",
            "-c",
        ]);
        Outsider::start(command.args([&one_cpu(), "sh", "-c", script]))
    };
    // Of whom there are no processes but those of the test.
    let (few, many) = (nobody(20), nobody(21));
    let _first = [start(few, SPIN), start(few, SPIN), start(many, SPIN)];
    let late = format!("sleep 2; {SPIN}");
    let _late = start(many, &late);
    sandbox.wait_for(4, "while");
    let words = [format!("1:@user:{few}"), format!("2:@user:{many}")];
    let report = run(&sandbox, &words);
    check_fractions(&report, &[1.0 / 3.0, 2.0 / 3.0]);
    assert_eq!(report["self"]["membership"]["members"], 4);
    check_go_on(&sandbox, "while", 4);
}

/// The processes of a cgroup of our own; where none can be made there is nothing to be tested.
#[test]
fn cgroups_are_clients() {
    const TEST: &str = "cgroups_are_clients";
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let of = |line: &str| Some(line.split_once(" - cgroup2 ")?.0.split(' ').nth(4)?.to_owned());
    let Some(mount) = mounts.lines().find_map(of) else { return skip(TEST, "no cgroup v2") };
    let name = format!("divvy-test-{}", std::process::id());
    let dir = std::path::Path::new(&mount).join(&name);
    if let Err(e) = std::fs::create_dir(&dir) {
        return skip(TEST, &format!("no cgroup can be made: {e}"));
    }
    {
        let sandbox = Sandbox::own();
        let (inside, other) = (outside(&sandbox, SPIN), outside(&sandbox, SPIN));
        sandbox.wait_for(2, "while");
        std::fs::write(dir.join("cgroup.procs"), pid(&inside).to_string()).expect("move it in");
        let report = run(&sandbox, &[format!("2:@cgroup:/{name}"), format!("1:@pid:{}", pid(&other))]);
        check_fractions(&report, &[2.0 / 3.0, 1.0 / 3.0]);
    }
    eventually("the cgroup to be empty", || std::fs::remove_dir(&dir).ok());
}

/// A member that may not be signalled counts and is charged; the others are divided among.
#[test]
fn members_of_another_user_are_counted_and_left_alone() {
    let Some(sandbox) = Sandbox::nobody("members_of_another_user_are_counted_and_left_alone") else { return };
    let root = Sandbox::own();
    let name = format!("m{}", std::process::id());
    let start = |sandbox: &Sandbox| {
        let program = sandbox.path(&name);
        std::fs::copy("/bin/sh", &program).expect("a copy of the shell");
        let mut command = sandbox.command("taskset");
        Outsider::start(command.args(["-c", &one_cpu()]).arg(&program).args(["-c", SPIN]))
    };
    let (_ours, theirs) = (start(&sandbox), start(&root));
    sandbox.wait_for(1, &name);
    root.wait_for(1, &name);
    let refused = sandbox.run(&["share", &format!("1:@pid:{}", pid(&theirs))]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("not permitted"), "{}", refused.stderr);
    let mut running = sandbox.start(&[
        "share",
        "--for",
        "4s",
        "--cpus",
        &one_cpu(),
        "--report",
        "report.json",
        "--quiet",
        &format!("1:@name:{name}"),
        &format!("1:{SPIN}"),
    ]);
    eventually("ours to be held", || {
        assert!(root.suspended().is_empty(), "theirs was stopped");
        sandbox.with(&name).iter().any(|p| p.state == 'T').then_some(())
    });
    assert_eq!(running.wait(), Some(0));
    let membership = &sandbox.report("report.json")["self"]["membership"];
    assert_eq!(
        (&membership["members"], &membership["not_permitted"]),
        (&2.into(), &1.into()),
        "{membership}"
    );
}

/// Fifty workers of whom two compute: the others are not stopped once, as whoever waits for them would see. One that gets
/// work is divided among like the others.
#[test]
fn idle_workers_are_never_stopped() {
    let sandbox = &Sandbox::unprivileged();
    let worker = "sh -c ': idle; while [ ! -e go ]; do read -t 1000 x; done; while :; do :; done' < pipe";
    let busy = format!("sh -c ': busy; {SPIN}'");
    // One holds the pipe open that the others read from.
    let script = format!(
        "mkfifo pipe; exec 3<> pipe; i=0; while [ $i -lt 48 ]; do {worker} & i=$((i + 1)); done; {busy} & {busy} & wait"
    );
    // A shell whose read has no option to wait for so long waits for ever, which is as good.
    let script = script.replace("read -t 1000 x", "read x");
    let server = outside(sandbox, &script);
    // The server itself has all of the words in its command.
    sandbox.wait_for(49, "idle");
    let other = outside(sandbox, &format!(": other; {SPIN}"));
    let running = sandbox.start(&[
        "share",
        "--cpus",
        &one_cpu(),
        "--report",
        "report.json",
        "--quiet",
        &format!("1:@tree:{}", pid(&server)),
        &format!("1:@pid:{}", pid(&other)),
    ]);
    let (mut looks, mut stopped) = (0, HashSet::new());
    let before = sandbox.worked();
    while sandbox.worked() < before + 2 * ENOUGH_TICKS {
        let (idle, rest): (Vec<Process>, Vec<Process>) =
            sandbox.processes().into_iter().partition(|p| p.command.contains(": idle"));
        let idle: Vec<_> = idle.iter().filter(|p| p.pid != pid(&server)).collect();
        assert!(idle.iter().all(|p| p.state != 'T'), "an idle worker was stopped: {idle:?}");
        looks += 1;
        stopped.extend(rest.iter().filter(|p| p.state == 'T').map(|p| p.pid));
    }
    assert!(looks > 10 && stopped.len() >= 3, "{looks} looks, stopped: {stopped:?}");
    sandbox.end_after(0, running);
    let report = sandbox.report("report.json");
    check_fractions(&report, &[0.5, 0.5]);
    let membership = &report["self"]["membership"];
    assert!(membership["idle"].as_u64().unwrap() >= 48, "{membership}");
    // Work for one of them: the line wakes one reader.
    sandbox.write("go", "");
    let running = sandbox.start(&[
        "share",
        "--cpus",
        &one_cpu(),
        "--quiet",
        &format!("1:@tree:{}", pid(&server)),
        &format!("9:@pid:{}", pid(&other)),
    ]);
    std::fs::write(sandbox.path("pipe"), "work\n").expect("a line");
    eventually("the one that woke to be held", || {
        sandbox.with(": idle").iter().any(|p| p.pid != pid(&server) && p.state == 'T').then_some(())
    });
    sandbox.end_after(0, running);
    check_go_on(sandbox, "busy", 3);
}

fn a_member_stopped_by_somebody_else_stays_stopped(sandbox: &Sandbox) {
    let (one, other) =
        (outside(sandbox, &format!(": first; {SPIN}")), outside(sandbox, &format!(": second; {SPIN}")));
    let words = [&one, &other].map(|c| format!("1:@pid:{}", pid(c)));
    let mut running = sandbox.start(&["share", "--quiet", "--cpus", &one_cpu(), &words[0], &words[1]]);
    eventually("somebody to be held", || (!sandbox.suspended().is_empty()).then_some(()));
    // A stop that meets our own on its way is one with it: it is sent again, as a user would.
    let stays = |sandbox: &Sandbox| {
        kill_process(pid(&one), Signal::STOP).expect("our child");
        std::thread::sleep(Duration::from_millis(300));
        let (before, busy) = (cpu(&sandbox.with("first")), cpu(&sandbox.with("second")));
        eventually("the other to go on", || (cpu(&sandbox.with("second")) > busy + 30).then_some(()));
        cpu(&sandbox.with("first")) == before
    };
    assert!((0..12).any(|_| stays(sandbox)), "it was resumed twelve times");
    running.signal(Signal::INT);
    assert_eq!(running.wait(), Some(130));
    assert_eq!(sandbox.with("first")[0].state, 'T', "whoever stopped it resumes it");
    kill_process(pid(&one), Signal::CONT).expect("our child");
    check_go_on(sandbox, "first", 1);
}

/// Three groups outside: one that computes, one that forks all the time, one of sleepers.
fn herd(sandbox: &Sandbox) -> ([Outsider; 3], [String; 3]) {
    let forks = format!(": herd; setsid sh -c ': herd; {SPIN}' & while :; do /bin/true; done");
    let scripts = [
        format!(": herd; (: herd; {SPIN}) & {SPIN}"),
        forks,
        ": herd; while :; do sleep 0.01; done".to_owned(),
    ];
    let children = scripts.map(|script| outside(sandbox, &script));
    eventually("the herd", || (sandbox.with("herd").len() >= 5).then_some(()));
    let [one, two, three] = &children;
    let words = [
        format!("1:@tree:{}", pid(one)),
        format!("2:@tree:{}", pid(two)),
        format!("1:@group:{}", pid(three)),
    ];
    (children, words)
}

fn start(sandbox: &Sandbox, herd: &[String; 3]) -> crate::harness::Running {
    let cpu = one_cpu();
    let mut args = vec!["share", "--quiet", "--cpus", &cpu];
    args.extend(herd.iter().map(String::as_str));
    sandbox.start(&args)
}

fn killed_at_random_moments_with_members_that_fork(sandbox: &Sandbox) {
    let (_outsiders, herd) = herd(sandbox);
    let seed = u64::from(std::process::id());
    let mut random = seed;
    let (mut held_rounds, mut slowest) = (0, Duration::ZERO);
    for round in 0..ROUNDS {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let after = Duration::from_nanos((mixed >> 16) % LATEST.as_nanos() as u64);
        let mut running = start(sandbox, &herd);
        std::thread::sleep(after);
        held_rounds += u64::from(!sandbox.suspended().is_empty());
        let killed = Instant::now();
        running.kill(Victim::ALL[(round % 3) as usize]);
        eventually(&format!("nobody to be suspended (seed {seed}, round {round}, {after:?})"), || {
            let left = sandbox.processes();
            left.iter().all(|p| p.state != 'T' && !p.is_divvy()).then_some(())
        });
        slowest = slowest.max(killed.elapsed());
        assert_eq!(sandbox.suspended(), [], "seed {seed}, round {round}, {after:?}");
    }
    println!(
        "{ROUNDS} rounds (seed {seed}); in {held_rounds} somebody was seen suspended; all resumed within {slowest:?}"
    );
    assert!(held_rounds > 0, "nobody was ever held, which proves nothing");
    assert!(sandbox.with("herd").len() >= 5, "attached processes outlive every divvy");
}

fn killed_together_with_its_guardian(sandbox: &Sandbox) {
    let (_outsiders, herd) = herd(sandbox);
    let mut running = start(sandbox, &herd);
    eventually("somebody to be held", || (!sandbox.suspended().is_empty()).then_some(()));
    let guardian = sandbox.guardian().expect("a guardian");
    running.signal_scheduler(Signal::STOP);
    kill_process(guardian, Signal::KILL).expect("a guardian");
    running.kill(Victim::Scheduler);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!sandbox.suspended().is_empty(), "nobody is left to resume them");
    let outcome = sandbox.run(&["rescue", "--json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    assert!(!report["resumed"].as_array().expect("a list").is_empty(), "{report}");
    eventually("all to be resumed", || sandbox.suspended().is_empty().then_some(()));
}

/// A member's number goes to a stranger in the moment after its end: the stranger is never touched.
#[test]
fn a_recycled_number_is_not_a_member() {
    const TEST: &str = "a_recycled_number_is_not_a_member";
    const LAST: &str = "/proc/sys/kernel/ns_last_pid";
    let sandbox = Sandbox::own();
    let other = outside(&sandbox, &format!(": other; {SPIN}"));
    let mut recycled = 0;
    for _ in 0..20 {
        let mut member = outside(&sandbox, &format!(": member; {SPIN}"));
        sandbox.wait_for(1, ": member");
        let number = pid(&member);
        let mut running = sandbox.start(&[
            "share",
            "--quiet",
            "--cpus",
            &one_cpu(),
            &format!("1:@pid:{number}"),
            &format!("9:@pid:{}", pid(&other)),
        ]);
        eventually("it to be held", || sandbox.with(": member").iter().any(|p| p.state == 'T').then_some(()));
        kill_process(number, Signal::KILL).expect("our child");
        member.0.wait().expect("our child");
        if let Err(e) = std::fs::write(LAST, (number.as_raw_nonzero().get() - 1).to_string()) {
            return skip(TEST, &format!("{LAST}: {e}"));
        }
        let stranger = outside(&sandbox, &format!(": stranger; {SPIN}"));
        if pid(&stranger) == number {
            recycled += 1;
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(600) {
                assert!(sandbox.with(": stranger").iter().all(|p| p.state != 'T'), "a stranger was stopped");
            }
        }
        running.signal(Signal::INT);
        assert_eq!(running.wait(), Some(130));
        kill_process(pid(&stranger), Signal::KILL).expect("our child");
        if recycled == 3 {
            break;
        }
    }
    assert!(recycled > 0, "no number was given again");
}

/// Where `/proc` hides others' processes, one's own are divided all the same.
#[test]
fn hidden_processes_are_nobody() {
    const TEST: &str = "hidden_processes_are_nobody";
    let Some(sandbox) = Sandbox::nobody(TEST) else { return };
    let root = Sandbox::own();
    let theirs = outside(&root, &format!(": theirs; {SPIN}"));
    let mine = outside(&sandbox, &format!(": mine; {SPIN}"));
    root.wait_for(1, ": theirs");
    let divvy = |words: &str| {
        let run = format!(
            "mount -t proc -o hidepid=invisible proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups \
             {} share --quiet --report {} --for 3s --cpus {} {words}",
            sandbox.program().display(),
            sandbox.path("report.json").display(),
            one_cpu(),
        );
        let mut command = root.command("unshare");
        command.args(["--mount", "sh", "-c", &run]).env("DIVVY_RUNTIME_DIR", sandbox.path("run"));
        command.current_dir("/").output().expect("unshare")
    };
    let own = divvy(&format!("1:@pid:{} 1:'{SPIN}'", pid(&mine)));
    let said = String::from_utf8_lossy(&own.stderr).into_owned();
    if said.contains("mount") || said.contains("unshare") {
        return skip(TEST, &said);
    }
    assert!(own.status.success(), "{said}");
    check_fractions(&sandbox.report("report.json"), &[0.5, 0.5]);
    let hidden = divvy(&format!("1:@pid:{}", pid(&theirs)));
    let said = String::from_utf8_lossy(&hidden.stderr).into_owned();
    assert_eq!(hidden.status.code(), Some(3), "{said}");
    assert_eq!(root.suspended(), []);
}
