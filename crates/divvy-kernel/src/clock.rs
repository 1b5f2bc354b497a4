//! The one module that reads the clock and waits.

use std::time::Duration;

use rustix::time::{ClockId, clock_getres, clock_gettime};

/// A moment since boot, as the programs in the kernel have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        Self(u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
    }

    /// So much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// What has gone by since `earlier`; nothing if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "this is where waiting is done")]
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// A tick of the kernel, in ns: what slices end on.
#[must_use]
pub fn tick_ns() -> u64 {
    let tick = clock_getres(ClockId::RealtimeCoarse);
    u64::try_from(tick.tv_nsec).unwrap_or(4_000_000).clamp(100_000, 10_000_000)
}
