//! Virtual machines at 1:2:3 (VTRR, section 5): qemu in software, each with Linux and a program in it that counts its work.

use anyhow::Result;

use super::counted::Counted;
use super::divided::Division;
use crate::paper::Setting;
use crate::paper::real::arena::Arena;
use crate::vm::small::{self, Small};

const MACHINES: Counted = Counted {
    part: "machines",
    title: "Three virtual machines at 1:2:3",
    text: "Each user has a virtual machine of one CPU (qemu, in software) with Linux in it, and in that a shell that has 32 KiB hashed \
           over and over, two processes and a pipe each time, and says on the console how often. VTRR's section 5 does the same with \
           VMware. The machine's clock counts its instructions: by a real one its ticks would cost the same whatever it is given, and what \
           it does would not be as its CPU time.",
    unit: "hashes a second",
    counts: small::counts,
    alike: true,
    quick: &[Division::Default],
    full: &[
        Division::Nobody,
        Division::Default,
        Division::Cgroup,
        Division::Signals,
        Division::Weights,
        Division::FreezeInTurn,
        Division::StopInTurn,
    ],
};

/// Where no machine can be had, a line of the page says why.
pub(super) fn machines(s: &mut Setting, arena: &Arena) -> Result<()> {
    let small = match s.wants(MACHINES.part).then(|| Small::new(arena.memory())).transpose() {
        Ok(small) => small,
        Err(e) => {
            s.page.text(&format!("machines: not measured: {e:#}."));
            return Ok(());
        }
    };
    let script = small.map(|small| format!("exec {}", small.command())).unwrap_or_default();
    MACHINES.run(s, arena, |_| Ok(vec![script.clone(); 3]))
}
