//! Processes that a program of ours has started.

use divvy_linux::{Pid, ProcessRef, clock, procfs};
use divvy_policy::Nanos;

/// How long a test waits for what must come.
pub const PATIENCE: Nanos = Nanos::from_secs(60);

/// Every process below `pid`, by name.
pub fn descendants(pid: Pid) -> Vec<(String, ProcessRef)> {
    let (mut found, mut todo) = (Vec::new(), vec![pid]);
    while let Some(pid) = todo.pop() {
        let mut threads = Vec::new();
        // Children are of the thread that made them.
        let _ = procfs::threads(pid, |thread| threads.push(thread.pid));
        for thread in threads {
            let _ = procfs::children(pid, thread, &mut todo);
        }
        let Ok(Some(process)) = ProcessRef::open(pid) else { continue };
        let Ok(Some(stat)) = process.stat() else { continue };
        found.push((stat.comm.to_string(), process));
    }
    found
}

/// Waits until none of them is left, stopped ones included.
pub fn check_gone(processes: &[(String, ProcessRef)]) {
    let until = clock::now() + PATIENCE;
    for (name, process) in processes {
        while process.is_alive().expect("ask after it") {
            assert!(clock::now() < until, "{name} ({}) is left", process.pid());
            clock::sleep(Nanos::from_millis(10));
        }
    }
}
