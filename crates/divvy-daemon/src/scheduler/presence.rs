//! Who competes: a client that has slept for long is idle in the market, and competes again as soon as it wakes.
//!
//! **Flapping.** Who sleeps a little longer than it takes to become idle would be idle for a moment in each of its periods,
//! and everybody's shares would change twice. So a client that wakes before it was idle for as long as it had to sleep
//! for it, has to sleep twice as long the next time, up to [`PATIENCE_MAX`] times as long; one that was idle for four
//! times as long is back where it began. And it becomes idle no sooner than [`REST`] after its last change: at most two
//! changes a second, whatever it does.

use std::collections::{BTreeMap, BTreeSet};

use divvy_policy::{ClientId, Instant, Nanos};

/// A client becomes idle this long after it was last said to compete, at the soonest.
const REST: Nanos = Nanos::from_secs(1);
/// How much longer than at first a client that flaps has to sleep, at most.
const PATIENCE_MAX: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct One {
    asleep: bool,
    competes: bool,
    /// How long it has to sleep to become idle.
    patience: Nanos,
    changed: Instant,
    due: Option<Instant>,
}

/// All clients that the market knows.
#[derive(Debug)]
pub(super) struct Presences {
    idle_after: Nanos,
    clients: BTreeMap<ClientId, One>,
    due: BTreeSet<(Instant, ClientId)>,
}

impl Presences {
    /// Nobody yet; who sleeps for `idle_after` becomes idle.
    pub(super) fn new(idle_after: Nanos) -> Self {
        Self { idle_after, clients: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// A client has come, awake, and competes.
    pub(super) fn join(&mut self, client: ClientId, now: Instant) {
        let one = One { asleep: false, competes: true, patience: self.idle_after, changed: now, due: None };
        self.clients.insert(client, one);
    }

    /// A client has left.
    pub(super) fn leave(&mut self, client: ClientId) {
        if let Some(One { due: Some(at), .. }) = self.clients.remove(&client) {
            self.due.remove(&(at, client));
        }
    }

    /// Whether a client counts as one that competes; one that is not known does.
    pub(super) fn competes(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_none_or(|one| one.competes)
    }

    /// A client was seen asleep, or awake. Says whether it competes from now on, and did not before.
    pub(super) fn see(&mut self, client: ClientId, asleep: bool, now: Instant) -> bool {
        let Some(one) = self.clients.get_mut(&client) else { return false };
        if one.asleep == asleep {
            return false;
        }
        one.asleep = asleep;
        if asleep {
            let at = (now + one.patience).max(one.changed + REST);
            one.due = Some(at);
            self.due.insert((at, client));
            return false;
        }
        if let Some(at) = one.due.take() {
            self.due.remove(&(at, client));
        }
        if one.competes {
            return false;
        }
        let idle = now.since(one.changed);
        if idle < one.patience {
            one.patience = Nanos((one.patience.0 * 2).min(self.idle_after.0 * PATIENCE_MAX));
        } else if idle.0 >= one.patience.0 * 4 {
            one.patience = self.idle_after;
        }
        (one.competes, one.changed) = (true, now);
        true
    }

    /// When the next becomes idle if it sleeps on.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|&(at, _)| at)
    }

    /// The next that has become idle by `now`.
    pub(super) fn take_idle(&mut self, now: Instant) -> Option<ClientId> {
        let &(at, client) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&(at, client));
        let one = self.clients.get_mut(&client)?;
        (one.due, one.competes, one.changed) = (None, false, now);
        Some(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const A: ClientId = ClientId(3);

    /// A client that is awake for `on` and asleep for `off` ms, over and over: when it became idle (false) and competed.
    fn periods(idle_after: u64, on: u64, off: u64, until: u64) -> Vec<(u64, bool)> {
        let mut all = Presences::new(Nanos::from_millis(idle_after));
        all.join(A, Instant(0));
        let mut changes = Vec::new();
        for ms in 0..until {
            let now = Instant(ms * MS);
            while let Some(client) = all.take_idle(now) {
                assert_eq!(client, A);
                changes.push((ms, false));
            }
            // Seen again and again, as the engine does.
            if all.see(A, ms % (on + off) >= on, now) {
                changes.push((ms, true));
            }
            assert_eq!(all.competes(A), changes.last().is_none_or(|c| c.1));
        }
        changes
    }

    #[test]
    fn one_that_sleeps_for_long_is_idle_and_competes_as_soon_as_it_wakes() {
        let changes = periods(1000, 2000, 60_000, 124_000);
        assert_eq!(changes, [(3000, false), (62_000, true), (65_000, false)]);
    }

    #[test]
    fn a_short_sleep_is_none() {
        assert_eq!(periods(1000, 10, 990, 20_000), []);
    }

    #[test]
    fn a_periodic_sleeper_does_not_flap() {
        // Idle for half a second once, then it has to sleep for two, which it never does.
        assert_eq!(periods(1000, 1000, 1500, 100_000), [(2000, false), (2500, true)]);
        // Sleeps of 9 s: idle for 8 each time, eight times as long as it took. It is really away.
        let changes = periods(1000, 1000, 9000, 100_000);
        assert_eq!(changes.len(), 19, "it wakes for the tenth time at the end");
    }

    #[test]
    fn there_are_at_most_two_changes_a_second() {
        for (on, off) in [(1, 1), (1, 5), (5, 50), (300, 900), (1, 100), (499, 501)] {
            let changes = periods(1, on, off, 60_000);
            for (i, &(at, _)) in changes.iter().enumerate() {
                let within = changes[i..].iter().take_while(|(t, _)| *t < at + 1000).count();
                assert!(within <= 2, "{on}/{off}: {changes:?}");
            }
        }
    }

    #[test]
    fn whoever_has_left_is_not_waited_for() {
        let mut all = Presences::new(Nanos::from_millis(100));
        all.join(A, Instant(0));
        assert!(!all.see(A, true, Instant(5 * MS)));
        assert_eq!(all.next(), Some(Instant(0) + REST));
        all.leave(A);
        assert_eq!((all.next(), all.take_idle(Instant(u64::MAX))), (None, None));
        assert!(!all.see(A, false, Instant(6 * MS)) && all.competes(A));
    }
}
