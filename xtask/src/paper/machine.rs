//! What the numbers were measured on, and who else was there.

use std::fs;
use std::io::Read as _;

use anyhow::{Context as _, Result};
use divvy_policy::Nanos;

/// Ticks of some CPUs since boot, as `/proc/stat` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    busy: u64,
    all: u64,
}

impl Busy {
    /// The fraction of the CPUs' time that was used between two readings; stolen time is used time.
    pub(crate) fn fraction_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        self.busy.saturating_sub(before.busy) as f64 / all.max(1) as f64
    }

    /// Time in which the CPUs idled between two readings, summed over them; counted in steps of 10 ms.
    pub(crate) fn idle_since(self, before: Self) -> Nanos {
        let idle = (self.all - self.busy).saturating_sub(before.all - before.busy);
        Nanos::from_millis(10 * idle)
    }
}

/// The ticks of `cpus` so far; `None` where `/proc/stat` does not tell.
pub(crate) fn busy(cpus: &[u32]) -> Option<Busy> {
    parse_busy(&fs::read_to_string("/proc/stat").ok()?, cpus)
}

/// What `/proc/stat` has counted of `what` since the machine was booted: `ctxt` (switches), `processes` (that were made).
pub(crate) fn counted(what: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("no {what} in /proc/stat"))?.parse()?)
}

/// `cpuN user nice system idle iowait irq softirq steal ...`, proc(5).
fn parse_busy(text: &str, cpus: &[u32]) -> Option<Busy> {
    let mut sum = Busy { busy: 0, all: 0 };
    for cpu in cpus {
        let name = format!("cpu{cpu}");
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name.as_str()))?;
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map_while(|t| t.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else { return None };
        let used = user + nice + system + irq + softirq + steal;
        sum.busy += used;
        sum.all += used + idle + iowait;
    }
    Some(sum)
}

/// The machine in words.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) cpus: usize,
    pub(crate) model: String,
    pub(crate) kernel: String,
    pub(crate) hz: Option<u32>,
    pub(crate) date: String,
}

impl Machine {
    /// This machine, today.
    pub(crate) fn this(cpus: usize) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(':'));
        let model = model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned());
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        Self { cpus, model, hz: hz(&kernel), kernel, date: date(now_seconds()) }
    }

    /// One line for a page.
    pub(crate) fn text(&self) -> String {
        let hz = self.hz.map_or_else(|| "HZ unknown".to_owned(), |hz| format!("HZ={hz}"));
        format!("{} CPUs ({}), Linux {}, {hz}; {}", self.cpus, self.model, self.kernel, self.date)
    }
}

#[expect(clippy::disallowed_methods, reason = "a page bears its date; nothing is decided by it")]
fn now_seconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.as_secs())
}

/// The day of a time in seconds since 1970 (UTC), as `2026-01-31`.
fn date(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
        .to_string()
        .chars()
        .take(10)
        .collect()
}

/// The kernel's tick rate, from its configuration where that can be read without tools.
fn hz(kernel: &str) -> Option<u32> {
    let plain = fs::read_to_string(format!("/boot/config-{kernel}")).ok();
    let text = plain.or_else(|| {
        let zipped = fs::File::open("/proc/config.gz").ok()?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(zipped).read_to_string(&mut text).ok()?;
        Some(text)
    })?;
    text.lines().find_map(|l| l.strip_prefix("CONFIG_HZ=")).and_then(|hz| hz.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 0 0\n\
        cpu0 100 10 20 800 50 1 2 17 0 0\n\
        cpu1 5 0 0 5 0 0 0 0 0 0\n\
        cpu10 1 1 1 1 1 1 1 1 0 0\nintr 5\n";

    #[test]
    fn busy_time_is_all_but_idle_and_waiting() {
        assert_eq!(parse_busy(STAT, &[0]), Some(Busy { busy: 150, all: 1000 }));
        assert_eq!(parse_busy(STAT, &[0, 1]), Some(Busy { busy: 155, all: 1010 }));
        assert_eq!(parse_busy(STAT, &[2]), None);
        let (a, b) = (Busy { busy: 150, all: 1000 }, Busy { busy: 170, all: 1080 });
        assert!((b.fraction_since(a) - 0.25).abs() < 1e-12);
        // 850 and 910 ticks of 10 ms without work.
        assert_eq!(b.idle_since(a), Nanos::from_millis(600));
        assert!(busy(&[]).is_some());
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
    }
}
