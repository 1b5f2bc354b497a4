//! Shares and reservations of disks by a user's own divvyd, judged by the kernel's books of each program.

use std::time::{Duration, Instant};

use crate::daemon::{client, start_divvyd};
use crate::harness::{Sandbox, eventually, skip};

/// What a program reads before it is judged, at least, and at most in so much time.
const ENOUGH: u64 = 256 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that a shell and the children that it has waited for read from disks.
fn read_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|n| n.parse().ok()).expect("our own process")
}

#[test]
fn a_users_own_divvyd_divides_a_disk_by_shares_and_reservations() {
    const NAME: &str = "a_users_own_divvyd_divides_a_disk_by_shares_and_reservations";
    let sandbox = Sandbox::own();
    let mut pids = Vec::new();
    start_divvyd(&sandbox, &[]);
    for name in ["big", "small"] {
        std::fs::write(sandbox.path(name), vec![7; 8 << 20]).expect("a file");
        let line =
            format!("while :; do dd if={name} of=/dev/null bs=64k iflag=direct 2>/dev/null || exit 3; done");
        // Its pid is kept: the command takes the place of `divvy run`'s child.
        let mut run = sandbox.command("setsid");
        run.arg(sandbox.program()).args(["run", "--name", name, "--", "sh", "-c", &line]);
        let child = run.current_dir(sandbox.path("")).spawn().expect("divvy starts");
        let pid = eventually("the client", || {
            client(&sandbox, name)?["members"][0]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
        });
        pids.push((name, pid, child));
    }
    let had = || pids.iter().map(|&(_, pid, _)| read_bytes(pid)).collect::<Vec<u64>>();
    std::thread::sleep(Duration::from_secs(1));
    let direct = !sandbox.with("iflag=direct").is_empty() && had().iter().all(|&n| n > 0);
    let rate = |what: &str| {
        // What was under way when shares changed is over by then.
        std::thread::sleep(Duration::from_secs(1));
        let (before, start) = (had(), Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now: Vec<u64> = had().iter().zip(&before).map(|(now, before)| now - before).collect();
            if now.iter().sum::<u64>() >= ENOUGH || start.elapsed() > PATIENCE {
                let ratio = now[0] as f64 / now[1].max(1) as f64;
                println!("{what}: {now:?} bytes, {ratio:.2}:1");
                return ratio;
            }
        }
    };
    let set = |args: &[&str], said: &str| {
        let outcome = sandbox.run(&[&["set"], args].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert_eq!(String::from_utf8_lossy(&outcome.stdout).trim(), said);
        assert_eq!(outcome.stderr, "", "nothing of it is without effect");
    };
    if direct {
        set(&["big", "--disk-share", "3"], "big: share 1, share of disks 3");
        let ratio = rate("shares of 3:1");
        assert!((2.2..=4.0).contains(&ratio), "{ratio}:1 for 3:1");
        set(&["big", "--disk-share", "0"], "big: share 1");
        // 60 % and half of the rest.
        set(&["small", "--reserve", "disk:60%"], "small: share 1, reserved disk 60%");
        let ratio = rate("a reservation of 60 %");
        assert!((0.17..=0.36).contains(&ratio), "{ratio}:1 for 1:4");
        let told = client(&sandbox, "small").expect("it runs");
        assert!(
            told["uses"]["disk_due_fraction"].as_f64().is_some_and(|part| (part - 0.8).abs() < 0.001),
            "{told}"
        );
        assert!(told["uses"]["memory_bytes"].as_u64() > Some(0), "{told}");
        let more = sandbox.run(&["set", "big", "--reserve", "disk:40%"]);
        assert_eq!(more.code, Some(9), "{}", more.stderr);
        assert!(
            more.stderr.contains("40 % of the disks cannot be reserved: 60 % are already"),
            "{}",
            more.stderr
        );
        // Who is paused holds nobody up, and both go on when all is taken back.
        assert_eq!(sandbox.run(&["pause", "small"]).code, Some(0));
        let before = had()[0];
        eventually("the other to have the disk", || (had()[0] > before + (64 << 20)).then_some(()));
        assert_eq!(sandbox.run(&["resume", "small"]).code, Some(0));
        set(&["small", "--reserve", "disk:none"], "small: share 1");
        let before = had();
        eventually("both to read", || had().iter().zip(&before).all(|(now, was)| now > was).then_some(()));
    } else {
        skip(NAME, "no disk is read directly below the temporary directory");
    }
    let listed = String::from_utf8(sandbox.run(&["ls", "--wide"]).stdout).expect("text");
    assert!(!direct || listed.contains("divided by signals"), "{listed}");
    for (_, pid, mut child) in pids {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("positive");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        child.wait().expect("ours");
    }
}
