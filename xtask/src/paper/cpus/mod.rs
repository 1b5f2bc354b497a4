//! Several CPUs: what the papers do not try. Two CPUs live, with threads, trees, sleepers and strangers; 4 and 64 simulated.

mod cases;
mod daemon;
mod live;
mod simulated;

use anyhow::Result;

pub(crate) use daemon::DIVVYD;

use super::Setting;
use crate::PaperArgs;

/// Runs the experiments and writes `OUT/cpus.md`.
///
/// # Errors
/// The first run or file that fails; everything that was started has ended then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut setting = Setting::new(args, "cpus")?;
    setting.parts(&[("live", live::run), ("daemon", daemon::run), ("simulated", simulated::run)])?;
    setting.finish(
        "Several CPUs",
        &[
            "What is not met, and why. **Strangers that take most of the CPUs**: a client of one thread gets at most what the \
             kernel gives one thread beside theirs, one of several threads several times that; the gate ends its cycle as \
             soon as the clients that have something left do not cover the CPUs, so that none idles, and whoever was slowed \
             carries at most one quota or 100 ms of credit. Where the slow one stays slow, the others run on: the long run is \
             off, most where a share needs nearly all of a CPU. `alps` waits for it, at the price of idle CPUs where there are \
             no strangers. Targets are of both CPUs; where strangers leave 1.3 of them, `1, 1, 6` comes to 12.5 : 12.5 : 75, and \
             what the row says of it is no error of that size. **Threads** run wherever the kernel puts them, but beside a client of one thread: where those of two \
             clients share CPUs, its slices show in single cycles. **Sleepers** run beside the others when they wake: whom \
             they delay makes up for it with what each keeps for the cycle's end, and in the next cycle for what is more than that. **CPU used**: what \
             divvy itself takes is missing, 1 to 4 % of a CPU, as the machine's day is: the same wake-up costs twice as much on another.",
            "The kernel counts idle time in steps of 10 ms: `used` is good to .1 % in a run of 8 s.",
        ],
    )
}
