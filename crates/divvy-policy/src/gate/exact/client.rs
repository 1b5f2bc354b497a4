//! What the exact gate knows of one client.

use super::queue::Ticket;
use crate::gate::roster::{Await, Awaited, Roster};
use crate::{ClientId, Instant, Nanos, Share};

/// Where a client is. Only heads and those beside them may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Joined, never seen awake.
    Out,
    /// Held: waits for its turn in this cycle, or, where the number is a later one, for that cycle. Since the number
    /// says which, nobody has to be touched when a cycle ends.
    Waiting(u64),
    /// It is its turn.
    Head,
    /// A suspect: runs beside the heads whenever it is awake.
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
        matches!(self, Self::Head | Self::Beside)
    }
}

/// What is to become of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Hold,
    Release,
    /// To run while nobody who is released wants the CPU.
    Behind,
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) share: Share,
    /// CPU time left in this cycle, ns, as of `epoch`.
    pub(super) allowance: i128,
    /// The cycle up to which the allowance has been replenished.
    pub(super) epoch: u64,
    /// What it was given for that cycle, ns: a newcomer nothing.
    pub(super) granted: i128,
    pub(super) place: Place,
    pub(super) ticket: Ticket,
    /// What the driver was told last.
    pub(super) told: Told,
    pub(super) blocked: bool,
    /// The last cycle in which it counts as a suspect, if it is one at all.
    pub(super) suspect_until: Option<u64>,
    pub(super) awaits: Await,
    pub(super) looked: Instant,
    pub(super) used_since_look: Nanos,
    /// CPU time used since its turn began, or since its last slice ended.
    pub(super) turn_used: Nanos,
    pub(super) tick: Nanos,
    /// Got nothing since the last look but one, though it wanted the CPU.
    pub(super) starved: bool,
    /// Ran all the time until it was last looked at, and half of it for certain.
    pub(super) ran_on: bool,
    /// Released, and not looked at since.
    pub(super) fresh: bool,
    pub(super) due: Option<Instant>,
    /// When it was last found to have used anything.
    pub(super) last_used: Instant,
    pub(super) last_used_cycle: u64,
    /// The part of the CPU that it used when it had that to itself lately, in units of 1/256, smoothed.
    pub(super) alone: u32,
    /// The driver tells when it falls asleep and when it wakes, as it happens.
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
            allowance: 0,
            epoch: cycle,
            granted: 0,
            place: Place::Out,
            ticket: Ticket::default(),
            told: Told::Hold,
            blocked: true,
            suspect_until: None,
            awaits: Await::Nothing,
            looked: Instant::ZERO,
            used_since_look: Nanos::ZERO,
            turn_used: Nanos::ZERO,
            tick,
            starved: false,
            ran_on: true,
            fresh: false,
            due: None,
            last_used: Instant::ZERO,
            last_used_cycle: cycle,
            alone: 256,
            prompt: false,
            heard: Instant::ZERO,
            owed: 0,
            used_by_then: 0,
            flickers: None,
        }
    }

    /// Whether it uses the CPU beside the heads, as far as is known.
    pub(super) fn awake_beside(&self) -> bool {
        self.place == Place::Beside && !self.blocked && self.flickers.is_none()
    }

    /// Whether it is to run beside the heads: it may be asleep. Who is awake, and would have been told of, is not.
    pub(super) fn suspect(&self, cycle: u64) -> bool {
        self.rests(cycle) && (self.blocked || !self.prompt)
    }

    /// Whether it was seen asleep in one of the last cycles.
    pub(super) fn rests(&self, cycle: u64) -> bool {
        self.suspect_until.is_some_and(|until| cycle <= until)
    }

    /// Whether the queue's entry with this stamp is its present one.
    pub(super) fn stands(&self, stamp: u64) -> bool {
        self.place.waits() && self.ticket.stamp == stamp
    }
}

impl Awaited for Roster<Client> {
    fn awaits(&mut self, client: ClientId) -> Option<&mut Await> {
        Some(&mut self.get_mut(client)?.awaits)
    }
}
