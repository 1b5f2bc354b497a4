//! What the exact gate knows of one client.

use alloc::vec::Vec;

use super::queue::Ticket;
use crate::{Instant, Nanos, Share};

/// Where a client is. Only heads and those beside them may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Joined, never seen awake.
    Out,
    /// Held: waits for a lane in this cycle, or, where the number is a later one, for that cycle. Since the number
    /// says which, nobody has to be touched when a cycle ends.
    Waiting(u64),
    /// Runs on a lane.
    Head(u32),
    /// A suspect: runs beside the lanes whenever it is awake.
    Beside,
    /// Held, through with this cycle, and a suspect: released as soon as the next begins.
    SpentSuspect,
}

impl Place {
    /// Whether the client stands in one of the queues.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    pub(super) fn runs(self) -> bool {
        matches!(self, Self::Head(_) | Self::Beside)
    }
}

/// The answer that the driver owes about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Await {
    Nothing,
    /// A measurement is decided; the driver has not been told yet.
    ToBeAsked,
    Charge,
    State,
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) share: Share,
    /// CPUs that it can use at once.
    pub(super) width: u32,
    /// CPUs that it was last found to use at once when it ran, 1 to `width`: threads that sleep need none.
    pub(super) active: u32,
    /// Since when it was seen to use fewer at every look, though it had the lanes.
    pub(super) narrow_since: Option<Instant>,
    /// When that was last believed, or taken back.
    pub(super) narrowed: Instant,
    /// CPU time left in this cycle, ns, as of `epoch`.
    pub(super) allowance: i128,
    /// The cycle up to which the allowance has been replenished.
    pub(super) epoch: u64,
    pub(super) place: Place,
    pub(super) ticket: Ticket,
    /// Whether the driver was told to release it.
    pub(super) released: bool,
    pub(super) blocked: bool,
    /// The lane that it was last told to run on, and still does if it is released.
    pub(super) told_lane: Option<u32>,
    /// The CPUs that it was last told to keep to, of several threads; none for all.
    pub(super) told_cpus: Vec<u32>,
    /// The last cycle in which it counts as a suspect, if it is one at all.
    pub(super) suspect_until: Option<u64>,
    pub(super) awaits: Await,
    pub(super) looked: Instant,
    pub(super) used_since_look: Nanos,
    /// CPU time used since it got its lane, or since its last slice ended.
    pub(super) turn_used: Nanos,
    /// Since when, and how much, it has used on the lanes that it has: what `active` is found from.
    pub(super) lanes_since: Instant,
    pub(super) lanes_used: Nanos,
    pub(super) tick: Nanos,
    /// Got nothing since the last look but one, though it wanted the CPU, on one CPU.
    pub(super) starved: bool,
    /// Released, and not looked at since.
    pub(super) fresh: bool,
    pub(super) due: Option<Instant>,
    /// When it was last found to have used anything.
    pub(super) last_used: Instant,
    pub(super) last_used_cycle: u64,
    /// What it gets for a cycle where its share is infeasible.
    pub(super) cap: Option<i128>,
    pub(super) claims: bool,
    /// The part of the CPU that it used when it had that to itself lately, in units of 1/256, smoothed; one CPU only.
    pub(super) alone: u32,
    /// The driver tells when it falls asleep and when it wakes, as it happens; one CPU only.
    pub(super) prompt: bool,
    /// When it last did.
    pub(super) heard: Instant,
    /// What the others were ahead of it when it was told to have fallen asleep, ns, and what all had used by then.
    pub(super) owed: i128,
    pub(super) used_by_then: u128,
    /// Sleeps and wakes so often that a CPU idles under it alone: up to this cycle it does not count as awake.
    pub(super) flickers: Option<u64>,
}

impl Client {
    pub(super) fn new(share: Share, cycle: u64, tick: Nanos) -> Self {
        Self {
            share,
            width: 1,
            active: 1,
            allowance: 0,
            epoch: cycle,
            place: Place::Out,
            ticket: Ticket::default(),
            released: false,
            blocked: true,
            told_lane: None,
            told_cpus: Vec::new(),
            suspect_until: None,
            awaits: Await::Nothing,
            looked: Instant::ZERO,
            used_since_look: Nanos::ZERO,
            turn_used: Nanos::ZERO,
            lanes_since: Instant::ZERO,
            lanes_used: Nanos::ZERO,
            narrow_since: None,
            narrowed: Instant::ZERO,
            tick,
            starved: false,
            fresh: false,
            due: None,
            last_used: Instant::ZERO,
            last_used_cycle: cycle,
            cap: None,
            claims: false,
            alone: 256,
            prompt: false,
            heard: Instant::ZERO,
            owed: 0,
            used_by_then: 0,
            flickers: None,
        }
    }

    /// CPUs that it uses beside the lanes, as far as is known.
    pub(super) fn awake_beside(&self) -> u32 {
        let counts = self.place == Place::Beside && !self.blocked && self.flickers.is_none();
        if counts { self.active } else { 0 }
    }

    /// Whether it is to run beside the lanes: it may be asleep. Who is awake, and would have been told of, is not.
    pub(super) fn suspect(&self, cycle: u64) -> bool {
        self.suspect_until.is_some_and(|until| cycle <= until) && (self.blocked || !self.prompt)
    }

    /// How many CPUs it used at once since this was last known, an eighth of one being none: `None` where it used nothing,
    /// or where less than `window` has passed, in which the hand-over alone can look like a thread that sleeps.
    pub(super) fn cpus_used(&mut self, now: Instant, used: Nanos, window: Nanos) -> Option<u64> {
        self.lanes_used += used;
        let elapsed = now.since(self.lanes_since);
        if elapsed < window {
            return None;
        }
        let used = core::mem::take(&mut self.lanes_used);
        self.lanes_since = now;
        (used.0 > 0).then(|| (used.0.saturating_add(elapsed.0 - elapsed.0 / 8)).checked_div(elapsed.0))?
    }

    /// Time that its allowance takes on the CPUs that it uses at once, ns.
    pub(super) fn need(&self) -> i128 {
        self.allowance.max(0) / i128::from(self.active)
    }

    /// Whether the queue's entry with this stamp is its present one.
    pub(super) fn stands(&self, stamp: u64) -> bool {
        self.place.waits() && self.ticket.stamp == stamp
    }
}
