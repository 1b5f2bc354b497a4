//! ALPS, sections 3.2 to 5.2, side by side: the paper's value, the published algorithms on this kernel, and `exact`.

mod blocking;
mod groups;
mod lanes;
mod scale;
mod short;
mod start;
mod workloads;

use anyhow::Result;

use super::{Part, Setting};
use crate::PaperArgs;

/// The policies that are compared.
const POLICIES: [&str; 3] = ["alps-basic", "alps", "exact"];

/// Runs the experiments and writes `OUT/alps.md`.
///
/// # Errors
/// The first run or file that fails; everything that was started has ended then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut setting = Setting::new(args, "alps")?;
    let parts: [(&str, Part); 7] = [
        ("workloads", workloads::run),
        ("blocking", blocking::run),
        ("groups", groups::run),
        ("scale", scale::run),
        ("cpus", lanes::run),
        ("short", short::run),
        ("start", start::run),
    ];
    for (name, part) in parts {
        if setting.wants(name) {
            part(&mut setting)?;
        }
    }
    setting.finish(
        "ALPS, side by side",
        &[
            "`alps-basic` is the paper's Algorithm 1, `alps` Algorithm 2 with the I/O rule of Algorithm 3, `exact` our own. The \
             paper's machine was a 2.2 GHz Pentium 4 with FreeBSD 4.8, whose kernel favours processes that ran little; this \
             kernel divides evenly in slices of some milliseconds, and the published algorithms look only once a quantum.",
            "An error is the paper's: root mean square, over the clients, of `received / due - 1` in one cycle. The first four \
             cycles are left out, as in the paper; where a run has fewer than nine, the first one is.",
        ],
    )
}
