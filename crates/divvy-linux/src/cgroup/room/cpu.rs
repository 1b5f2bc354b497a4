//! The controllers cpu and cpuset.

use divvy_policy::gate::limited::WINDOW;
use divvy_policy::{CpuLimit, Nanos};

use super::text::{Limit, Parse, Pressure, Spell, keyed, micros};
use super::{Attribute, Controller, ReadOnly};
use crate::CpuMask;

/// Part of the CPU among siblings, 1 to 10000; 100 to begin with.
pub const CPU_WEIGHT: Attribute<u64> = Attribute::new("cpu.weight", Controller::Cpu, "1 to 10000");
/// Most CPU time in a period.
pub const CPU_MAX: Attribute<CpuMax> =
    Attribute::new("cpu.max", Controller::Cpu, "max or at least 1000, and a period of 1000 to 1000000 us");
/// What it used.
pub const CPU_STAT: Attribute<CpuStat, ReadOnly> = Attribute::new("cpu.stat", Controller::Cpu, "");
/// How much of the time its processes waited for a CPU.
pub const CPU_PRESSURE: Attribute<Pressure, ReadOnly> = Attribute::new("cpu.pressure", Controller::Cpu, "");

/// The CPUs that its processes may use, where the cgroups around it have them too; none for those of the cgroup around it.
pub const CPUSET_CPUS: Attribute<CpuMask> =
    Attribute::new("cpuset.cpus", Controller::Cpuset, "CPUs, as in 0,2-3");
/// The CPUs that its processes may use.
pub const CPUSET_EFFECTIVE: Attribute<CpuMask, ReadOnly> =
    Attribute::new("cpuset.cpus.effective", Controller::Cpuset, "");

impl Parse for CpuMask {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() { Ok(Self::default()) } else { text.parse().map_err(|_| "a list of CPUs") }
    }
}

impl Spell for CpuMask {
    fn spell(&self) -> String {
        self.to_string()
    }
}

/// `cpu.max`: `quota` in each `period`, both in us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMax {
    /// CPU time in a period, us, on all CPUs together.
    pub quota: Limit,
    /// The period, us.
    pub period: u64,
}

impl CpuMax {
    /// No bound, and the kernel's own period.
    pub const NONE: Self = Self { quota: Limit::Max, period: 100_000 };

    /// What a limit allows in each [`WINDOW`].
    pub(in crate::cgroup) fn of(limit: CpuLimit) -> Self {
        let period = WINDOW.0 / 1000;
        Self { quota: Limit::At(limit.ppm() * period / 1_000_000), period }
    }
}

impl Parse for CpuMax {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (quota, period) = text.trim().split_once(' ').ok_or("the period")?;
        let quota = Limit::word(quota).ok_or("the quota")?;
        Ok(Self { quota, period: period.parse().map_err(|_| "the period")? })
    }
}

impl Spell for CpuMax {
    fn spell(&self) -> String {
        format!("{} {}", self.quota, self.period)
    }
}

/// `cpu.stat`. What the kernel does not tell (throttling, where the controller is off) is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// CPU time of all that ever were in it, children's included.
    pub usage: Nanos,
    /// Of that, in user mode.
    pub user: Nanos,
    /// Of that, in the kernel.
    pub system: Nanos,
    /// Periods of `cpu.max` in which somebody ran.
    pub nr_periods: u64,
    /// Of those, the ones in which the quota ran out.
    pub nr_throttled: u64,
    /// Time for which its processes were kept from running by the quota, summed over CPUs.
    pub throttled: Nanos,
}

impl Parse for CpuStat {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let or_none = |key| keyed(text, key).unwrap_or(0);
        Ok(Self {
            usage: micros(keyed(text, "usage_usec").ok_or("usage_usec")?),
            user: micros(keyed(text, "user_usec").ok_or("user_usec")?),
            system: micros(keyed(text, "system_usec").ok_or("system_usec")?),
            nr_periods: or_none("nr_periods"),
            nr_throttled: or_none("nr_throttled"),
            throttled: micros(or_none("throttled_usec")),
        })
    }
}
