//! What gates know alike that look at their clients: whom they look at next, and how often at whoever sleeps.

use alloc::collections::BTreeSet;

use crate::{ClientId, Instant, Nanos};

/// The least CPU time that is worth a hand-over: 100 us.
pub const GRAIN: Nanos = Nanos::from_micros(100);
/// How often clients that may fall asleep are looked at while a CPU would idle if they did.
pub const SUSPECT_TICK: Nanos = Nanos::from_millis(1);
/// The longest time for which a sleeping client is not looked at, unless its allowance is longer.
pub const SLEEP_LOOK_MAX: Nanos = Nanos::from_millis(100);
/// Looks at clients that have slept for long fall on multiples of this.
pub(super) const SLEEP_GRID: Nanos = Nanos::from_millis(10);
/// No machine comes to so many cycles.
pub(super) const CYCLES_MAX: u64 = u64::MAX / 2;
/// A client that used all but this much of the time, or an eighth of it, ran all the time.
const IDLE_MIN: Nanos = Nanos::from_micros(100);

/// Clients by the time of the next look at each, which each of them keeps too.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks(BTreeSet<(Instant, ClientId)>);

impl Looks {
    /// The time of the next one.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|&(at, _)| at)
    }

    /// Whose is due by `now`, the longest ago first.
    pub(super) fn due(&self, now: Instant) -> Option<ClientId> {
        self.0.first().filter(|&&(at, _)| at <= now).map(|&(_, client)| client)
    }

    /// Sets the time of the next look at `client`. No clock gets to the end of time: there is none then.
    pub(super) fn arm(&mut self, client: ClientId, due: &mut Option<Instant>, at: Instant) {
        self.disarm(client, due);
        if at != Instant(u64::MAX) {
            *due = Some(at);
            self.0.insert((at, client));
        }
    }

    pub(super) fn disarm(&mut self, client: ClientId, due: &mut Option<Instant>) {
        if let Some(at) = due.take() {
            self.0.remove(&(at, client));
        }
    }
}

/// Whether whoever used so much CPU time in so much time ran all the time.
pub(super) fn ran_on(used: Nanos, elapsed: Nanos) -> bool {
    used + IDLE_MIN.max(Nanos(elapsed.0 / 8)) >= elapsed
}

/// The time until a sleeper is looked at again that has slept for `asleep`: an eighth of that.
pub(super) fn sleep_look(asleep: Nanos) -> Nanos {
    Nanos(asleep.0 / 8).min(SLEEP_LOOK_MAX)
}

/// `span` from `looked` on, and as much longer that those that sleep for long are looked at together: one wake-up for all.
pub(super) fn together(looked: Instant, span: Nanos) -> Nanos {
    let at = looked + span;
    let round_up = if span >= SLEEP_GRID { SLEEP_GRID.0 - at.0 % SLEEP_GRID.0 } else { 0 };
    span + Nanos(round_up)
}

pub(super) fn nanos(ns: i128) -> Nanos {
    Nanos(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))
}
