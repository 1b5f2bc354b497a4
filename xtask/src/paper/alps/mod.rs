//! ALPS, sections 3.2 to 5.2, side by side: the paper's value, the published algorithms on this kernel, and `exact`.

mod blocking;
pub(super) mod groups;
mod lanes;
mod scale;
mod short;
pub(super) mod start;
mod workloads;

use anyhow::Result;

use super::Experiment;
use crate::PaperArgs;

/// The policies that are compared.
const POLICIES: [&str; 3] = ["alps-basic", "alps", "exact"];
/// Beside them, as a floor, what divides without a policy (`RunSpec::minimal`).
const MINIMAL: &str = "minimal loop";

/// Runs the experiments and writes `OUT/alps.md`.
///
/// # Errors
/// The first run or file that fails; everything that was started has ended then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut experiment: Experiment = Experiment::new(args, "alps")?;
    if experiment.wants("start") {
        start::divvy(args.programs.as_deref())?; // What cannot be had is told now, and not after half an hour.
    }
    experiment.parts(&[
        ("workloads", workloads::run),
        ("blocking", blocking::run),
        ("groups", groups::run),
        ("scale", scale::run),
        ("cpus", lanes::run),
        ("short", short::run),
        ("start", start::run),
    ])?;
    experiment.finish(
        "ALPS, side by side",
        &[
            "`alps-basic` is the paper's Algorithm 1, `alps` Algorithm 2 with the I/O rule of Algorithm 3, `exact` our own. The \
             paper's machine was a 2.2 GHz Pentium 4 with FreeBSD 4.8, whose kernel favours processes that ran little; this \
             kernel divides evenly in slices of some milliseconds, and the published algorithms look only once a quantum.",
            "An error is the paper's: root mean square, over the clients, of `received / due - 1` in one cycle. The first four \
             cycles are left out, as in the paper; where a run has fewer than nine, the first one is.",
            "Where `exact` misses a goal, and why. **Errors**: with real-time priority a turn ends with some 20 us left of what is \
             due, as the minimal loop's do with 50; what is off is repaid in the next cycle, and most runs here are 2 to 12 cycles long \
             (`errors_do_not_accumulate` in simulation). **Own CPU**: a wake-up costs 15 to 170 us, as the machine and its day are, all of it \
             for memory that is not in the caches (60 for one of the minimal loop on a day on which ours costs 170); 5000 clients have turns of \
             5 ms, the minimal loop's have 50. **Sleepers**: what divvy itself takes is missing from the CPU used, and B, which wakes 20 to 250 \
             times a second, makes it decide as often. At 2 ms on, 2 off what is off is B's part alone: of what passed while it slept it is owed \
             nothing. **Two CPUs**: a hand-over idles the CPU for some 50 us, {1, 1, 1} has 270 of them a second.",
            "Figure 12 joins errors of cycles with errors of single turns where no cycle ended in the time of a run: \
             the jump there is one of measure.",
        ],
    )
}
