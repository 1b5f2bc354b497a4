//! What CPUs have been doing since the machine started, by the kernel's own books.

use std::fs::File;
use std::io::Read as _;

use divvy_policy::Nanos;

use crate::{Error, Result};

const STAT: &str = "/proc/stat";
/// Room for what it says on most machines. Its size is told as 0: whoever goes by that, as `File` does where it is not only taken
/// from, reads it in many small pieces.
const USUAL_LENGTH: usize = 8 << 10;

/// Nanoseconds in a tick of `/proc/stat` (`USER_HZ` is 100 on every Linux).
const TICK_NS: u64 = 10_000_000;

/// Time of some CPUs, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// For whomever they ran, interrupts included.
    pub busy: Nanos,
    /// For nobody.
    pub idle: Nanos,
    /// Taken by the hypervisor, as far as it tells.
    pub stolen: Nanos,
}

impl CpuTimes {
    /// So much more than there was may a difference of two readings show for each CPU: a tick of each kind of time (a user's, the
    /// system's, interrupts'), which is told in whole ticks by itself.
    pub const ERROR: Nanos = Nanos(3 * TICK_NS);

    /// Sums over `cpus`, by the kernel's numbers, of `/proc/stat`.
    ///
    /// # Errors
    /// [`Error::System`] where it cannot be read, [`Error::Malformed`] where a CPU is missing.
    pub fn read(cpus: &[u32]) -> Result<Self> {
        let mut text = String::with_capacity(USUAL_LENGTH);
        let read = File::open(STAT).and_then(|file| file.take(u64::MAX).read_to_string(&mut text));
        read.map_err(|e| {
            let errno = rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO);
            Error::system("read", STAT, errno)
        })?;
        Self::parse(&text, cpus).ok_or(Error::Malformed { object: STAT.into(), what: "times of a CPU" })
    }

    fn parse(text: &str, cpus: &[u32]) -> Option<Self> {
        let mut sum = Self::default();
        for cpu in cpus {
            let name = format!("cpu{cpu}");
            let mut fields = text
                .lines()
                .map(str::split_whitespace)
                .find_map(|mut words| (words.next() == Some(name.as_str())).then_some(words))?;
            // user nice system idle iowait irq softirq steal
            let mut ticks = || fields.next()?.parse::<u64>().ok();
            let [user, nice, system, idle, wait] = [ticks()?, ticks()?, ticks()?, ticks()?, ticks()?];
            let [irq, softirq, stolen] = [ticks()?, ticks()?, ticks().unwrap_or(0)];
            sum.busy += Nanos((user + nice + system + irq + softirq) * TICK_NS);
            sum.idle += Nanos((idle + wait) * TICK_NS);
            sum.stolen += Nanos(stolen * TICK_NS);
        }
        Some(sum)
    }

    /// What they have done since they were as in `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpus_that_were_asked_for_are_added_up() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 100 5 6 7 8 0 0\ncpu1 10 0 0 0 0 0 0 1 0 0\ncpu10 1 1 1 1 1 1 1 1\n";
        let times = |busy, idle, stolen| {
            let ns = |ticks: u64| Nanos(ticks * TICK_NS);
            Some(CpuTimes { busy: ns(busy), idle: ns(idle), stolen: ns(stolen) })
        };
        assert_eq!(CpuTimes::parse(text, &[0]), times(19, 105, 8));
        assert_eq!(CpuTimes::parse(text, &[0, 1]), times(29, 105, 9));
        assert_eq!(CpuTimes::parse(text, &[2]), None);
    }

    #[test]
    fn this_machine_has_been_busy() {
        let times = CpuTimes::read(&[0]).expect("readable");
        assert!(times.busy > Nanos::ZERO && times.since(times) == CpuTimes::default());
    }
}
