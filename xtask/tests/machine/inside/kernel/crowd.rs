//! A crowd of which each waits for many seconds, and what must not wait as long for it.

use std::fs::{self, OpenOptions};
use std::process::Command;

use divvy_linux::clock;
use divvy_policy::Nanos;

use super::super::{Child, Group, SPIN, check_inside, sleep};
use super::{Scheduler, state};

const CROWD: usize = 200;
/// Of 101, so that each of the crowd waits for some 10 s, when it is overdue.
const SHARES: &str = "[[client]]\nname = \"crowd\"\nshare = 1\ncgroup = \"/crowd\"\n\
                      [[client]]\nname = \"other\"\nshare = 100\ncgroup = \"/other\"\n";
const GATE: &str = "/tmp/gate";
const PLACE: &str = "/tmp/place";
/// A crowd that has begun, so that some were taken off the CPU.
const WARM_MS: u64 = 5_000;
/// Under the kernel's own scheduler, beside the same crowd, it is less than a tenth of that.
const MAX_WAIT: Nanos = Nanos::from_millis(1_000);

/// The crowd looks up paths all the time, which RCU guards, and most of its turns end in the middle of that. Whoever unmounts something waits until all
/// who were there have gone on: for as long as they wait for their next turn, if nobody cares. The kernel ends a scheduler after 21 s
/// (`RCU CPU stall detected`), as it did with 2,000 tasks on slow machines.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn nobody_waits_for_readers_of_a_crowd() {
    check_inside();
    let (crowd, other) = (Group::new("crowd"), Group::new("other"));
    assert!(Command::new("mkfifo").arg(GATE).status().expect("busybox has it").success());
    fs::create_dir(PLACE).expect("root may");
    // They wait until somebody writes, and begin once that one has gone.
    let look = "while [ -e /sys/fs/cgroup/crowd/cpu.stat ]; do :; done";
    let line = format!("for i in $(seq {CROWD}); do (read x <{GATE}; {look}) & done; wait");
    let _crowd = Child::start(&crowd.cgroup, &line);
    while crowd.cgroup.processes().expect("there").len() <= CROWD {
        sleep(100);
    }
    let _other = Child::start(&other.cgroup, SPIN);
    drop(OpenOptions::new().write(true).open(GATE).expect("somebody reads"));
    for policy in ["stride", "pbs"] {
        let mut scheduler = Scheduler::with_shares(policy, SHARES);
        sleep(WARM_MS);
        let mut longest = Nanos::ZERO;
        for _ in 0..5 {
            let mounted = Command::new("mount").args(["-t", "tmpfs", "none", PLACE]).status();
            assert!(mounted.expect("busybox has it").success());
            let began = clock::now();
            assert!(Command::new("umount").arg(PLACE).status().expect("busybox has it").success());
            longest = longest.max(clock::now().since(began));
            sleep(200);
        }
        println!("{policy}: {:.3} s", longest.as_secs_f64());
        assert_eq!(state(), "enabled");
        assert!(longest <= MAX_WAIT, "{policy}: umount took {:.3} s", longest.as_secs_f64());
        scheduler.stop();
    }
    fs::remove_dir(PLACE).expect("ours");
    fs::remove_file(GATE).expect("ours");
}
