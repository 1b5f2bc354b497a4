//! What the kernel's tests of its CPU controller check, by tickets; and hostile users.

use anyhow::Result;

use super::super::Setting;
use super::super::page::Limit;
use super::Machine;
use super::inside::{Check, Checks, REQUESTS};

/// On one CPU, by the machine's clock.
const CLOSE: f64 = 1.0;
/// Of a disk.
const CLOSE_DISK: f64 = 5.0;
/// How checks of what that page does begin.
const ADMIN: &str = "docs/admin.md";
/// On two, in real time.
const CLOSE_ON_TWO: f64 = 10.0;

pub(super) fn checks(s: &mut Setting) -> Result<()> {
    let seconds: u64 = s.pick(8, 60);
    let machine = Machine { two_cpus: false, shift: 4, memory_mib: 1024, add: &[] };
    let one: Checks = machine.run(s, "figchecks", &[seconds.to_string()])?;
    let machine = Machine { two_cpus: true, shift: 1, memory_mib: 1024, add: &[] };
    let seconds = s.pick(4, 20);
    let two: Checks = machine.run(s, "figcpus", &[seconds.to_string()])?;
    s.page.heading("What the kernel's own tests check, and two users who mean ill");
    s.page.text(&format!(
        "The first rows are those of the kernel's `cgroup/test_cpu`: weights within weights (here a currency within a user's), \
         a quota alone and beside others, and less wanted than there is, on two CPUs in real time. The kernel's tests allow them 15 to 35 %. \
         Then what [admin.md](../admin.md) does: alice has 2000 base tickets of CPU and bob 1000, both as many of memory and disk, and bob \
         gives 500 disk for 500 cpu; each computes with one program and reads with another that has {REQUESTS} requests at the disk. \
         In the last rows alice runs one task for each resource; bob starts 24 processes that compute and more without end, and resumes \
         all of his all the time; carol reads with eight threads and writes to as much memory as there is.",
    ));
    let rows = one.checks.iter().chain(&two.checks).map(|check| {
        let least = if check.at_least { "at least " } else { "" };
        vec![check.what.clone(), format!("{least}{:.4}", check.due), format!("{:.4}", check.got)]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    s.page.table("what | due | got", &rows);
    let of_admin = |check: &&Check| check.what.starts_with(ADMIN);
    let off = |checks: Vec<&Check>| {
        let exact = checks.iter().filter(|check| !check.at_least);
        exact.map(|check| (check.got / check.due - 1.0).abs()).fold(0.0, f64::max) * 100.0
    };
    s.page.goal(
        "nested weights and quota: the largest error of any part, one CPU",
        Limit::Most(CLOSE),
        off(one.checks.iter().filter(|check| !of_admin(check)).collect()),
        "%",
    );
    s.page.goal(
        "under-committed: the largest error of any part, two CPUs in real time",
        Limit::Most(CLOSE_ON_TWO),
        off(two.checks.iter().collect()),
        "%",
    );
    s.page.goal(
        "what docs/admin.md does with disk and memory: the largest error of any part",
        Limit::Most(CLOSE_DISK),
        off(one.checks.iter().filter(of_admin).collect()),
        "%",
    );
    let least: Vec<&Check> = one.checks.iter().filter(|check| check.at_least).collect();
    let met = least.iter().filter(|check| check.got >= check.due * (1.0 - 0.02)).count();
    s.page.goal_of_all(
        "what is left by a limit, and an honest user beside hostile ones: has what is due",
        least.len(),
        met,
        "checks",
    );
    Ok(())
}
