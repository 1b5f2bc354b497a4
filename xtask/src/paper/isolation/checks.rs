//! What is to be exact, what the kernel's tests of its CPU controller check, and users who mean ill.

use anyhow::Result;

use super::super::Setting;
use super::super::page::Limit;
use super::super::stats::worst;
use super::Machine;
use super::inside::{Check, Checks, REQUESTS};

/// Whose errors are judged together: how their names begin, what they are, and by how many percent any may be off.
const GOALS: [(&[&str], &str, f64); 9] = [
    (&["nested weights", "quota"], "nested weights and quota, one CPU", 1.0),
    (&["cpu 1:2:3, one CPU"], "shares of the CPU 1:2:3, one CPU", 1.0),
    (&["cpu 1:2:3, two CPUs"], "shares of the CPU 1:2:3, two CPUs in real time", 10.0),
    (&["under-committed"], "under-committed, two CPUs in real time", 10.0),
    (&["who traces"], "a limit of who traces its own processes", 1.0),
    (&["io.max"], "a limit of a disk, in real time", 5.0),
    (&["disk by iocost"], "a disk by iocost, 1:4 and 40:60", 5.0),
    (&["disk by BFQ"], "a disk by BFQ, 1:4 and 40:60", 5.0),
    (&["docs/admin.md"], "what docs/admin.md does with disk and memory", 5.0),
];
/// By what part anybody may have less than is due at least.
const SHORT: f64 = 0.02;

pub(super) fn checks(s: &mut Setting) -> Result<()> {
    let machine = |two_cpus, shift| Machine { two_cpus, shift, memory_mib: 1024, add: &[] };
    let mut seen = Vec::new();
    for (experiment, seconds, machine) in [
        ("figchecks", s.pick(8, 60), machine(false, 4)),
        ("figexact", s.pick(8, 60), machine(false, 4)),
        ("figbfq", s.pick(5, 20), machine(false, 1)),
        ("figcpus", s.pick(4, 20), machine(true, 1)),
    ] {
        let checks: Checks = machine.run(s, experiment, &[seconds.to_string()])?;
        seen.extend(checks.checks);
    }
    s.page.heading("Exact parts, what the kernel's own tests check, and users who mean ill");
    s.page.text(&format!(
        "`nested weights`, `quota` and `under-committed` are what the kernel's `cgroup/test_cpu` checks: weights within weights (here a currency \
         within a user's), a quota alone and beside others, and less wanted than there is, on two CPUs in real time. The kernel's tests \
         allow them 15 to 35 %. Then what [admin.md](../admin.md) does: alice has 2000 base tickets of CPU and bob 1000, both as many of \
         memory and disk, and bob gives 500 disk for 500 cpu; each computes with one program and reads with another that has {REQUESTS} \
         requests at the disk."
    ));
    s.page.text(
        "Who traces its own processes has four that compute, and stops and continues each of them all the time (`PTRACE_INTERRUPT`, \
         `PTRACE_CONT`). Of the two hostile users bob starts 24 processes that compute and more without end, and resumes all of his all the \
         time; carol reads with eight threads and writes to as much memory as there is; alice runs one task for each resource.",
    );
    s.page.text(
        "Where three programs have shares of 1, 2 and 3 each computes with one thread; on two CPUs the last is due the whole of one. `io.max` \
         is of a reader with four requests, in real time. Disks are \
         read by two users, with four requests each. BFQ serves one operation of 200 us after the other, waits for the next request of who \
         is due more (`strict_guarantees`), and knows nothing of who is interactive (`low_latency` off). It estimates how fast a \
         disk is from its use, and is far off at first: `BFQ by hand, two who read from the start` is what it made of weights that were written \
         without a divvyd. The other rows by hand are of the time after that, and divvyd's come last.",
    );
    let rows = seen.iter().map(|check| {
        let least = if check.at_least { "at least " } else { "" };
        vec![check.what.clone(), format!("{least}{:.4}", check.due), format!("{:.4}", check.got)]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    s.page.table("what | due | got", &rows);
    let of = |begin: &[&str], check: &Check| begin.iter().any(|begin| check.what.starts_with(begin));
    for (begin, what, most) in GOALS {
        let exact = seen.iter().filter(|check| !check.at_least && of(begin, check));
        s.page.goal(
            format!("{what}: the largest error of any part"),
            Limit::Most(most),
            worst(exact.map(|check| (check.got / check.due - 1.0).abs() * 100.0)),
            "%",
        );
    }
    let least: Vec<&Check> = seen.iter().filter(|check| check.at_least).collect();
    let met = least.iter().filter(|check| check.got >= check.due * (1.0 - SHORT)).count();
    s.page.goal_of_all(
        "what is left by a limit, and an honest user beside one who traces or two who are hostile: has what is due, to within 2 %",
        least.len(),
        met,
        "checks",
    );
    Ok(())
}
