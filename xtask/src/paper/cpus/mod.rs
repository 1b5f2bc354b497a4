//! Several CPUs: what the papers do not try. Two CPUs live, with threads, trees, sleepers and strangers; 4 and 64 simulated.

mod cases;
mod daemon;
mod live;
mod simulated;

use anyhow::Result;

pub(crate) use daemon::DIVVYD;

use super::{Part, Setting};
use crate::PaperArgs;

/// Runs the experiments and writes `OUT/cpus.md`.
///
/// # Errors
/// The first run or file that fails; everything that was started has ended then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut setting = Setting::new(args, "cpus")?;
    let parts: [(&str, Part); 3] =
        [("live", live::run), ("daemon", daemon::run), ("simulated", simulated::run)];
    for (name, part) in parts {
        if setting.wants(name) {
            part(&mut setting)?;
        }
    }
    setting.finish("Several CPUs", &[])
}
