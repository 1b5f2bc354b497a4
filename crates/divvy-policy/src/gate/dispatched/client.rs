//! What the gate around a dispatcher knows of one client, and of one lane.

use alloc::collections::BTreeMap;

use crate::gate::roster::{Await, Awaited};
use crate::{ClientId, Instant, Nanos};

#[derive(Clone, Debug)]
pub(super) struct Client {
    /// CPUs that it can use at once, as it was told.
    pub(super) width: u32,
    /// CPUs that it was last found to use at once, 1 to `width`.
    pub(super) active: u32,
    /// The lane that it was granted.
    pub(super) lane: Option<u32>,
    /// The number of its grant, the CPUs that it then has, and whether it waits for older heads that use them all.
    pub(super) granted: u64,
    pub(super) cpus: u32,
    pub(super) waits: bool,
    /// The slice of its grant, and the CPU time used since.
    pub(super) slice: Nanos,
    pub(super) slice_used: Nanos,
    /// The last look found the slice to be used up.
    pub(super) over: bool,
    /// Whether the driver was told to release it, and the CPU that it was told.
    pub(super) released: bool,
    pub(super) told_cpu: Option<u32>,
    /// Joined, never seen awake: held until then.
    pub(super) joined: bool,
    /// What the dispatcher was told.
    pub(super) blocked: bool,
    /// Found awake since; the dispatcher will be told.
    pub(super) awake: bool,
    /// Used while it was taken to be blocked; the dispatcher has not been told.
    pub(super) withheld: Nanos,
    pub(super) awaits: Await,
    pub(super) looked: Instant,
    pub(super) used_since_look: Nanos,
    /// When it was last found to have used anything.
    pub(super) last_used: Instant,
    /// CPU time used since it was last seen asleep; no end of it before the first time.
    pub(super) used_since_sleep: Nanos,
    pub(super) tick: Nanos,
    pub(super) due: Option<Instant>,
}

impl Client {
    pub(super) fn new(now: Instant, tick: Nanos) -> Self {
        Self {
            width: 1,
            active: 1,
            lane: None,
            granted: 0,
            cpus: 1,
            waits: false,
            slice: Nanos::MAX,
            slice_used: Nanos::ZERO,
            over: false,
            released: false,
            told_cpu: None,
            joined: true,
            blocked: true,
            awake: false,
            withheld: Nanos::ZERO,
            awaits: Await::Nothing,
            looked: now,
            used_since_look: Nanos::ZERO,
            last_used: now,
            used_since_sleep: Nanos::MAX,
            tick,
            due: None,
        }
    }
}

impl Awaited for BTreeMap<ClientId, Client> {
    fn awaits(&mut self, client: ClientId) -> Option<&mut Await> {
        Some(&mut self.get_mut(&client)?.awaits)
    }
}

/// One of the dispatcher's CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// Who was granted it.
    pub(super) client: Option<ClientId>,
    /// The dispatcher was told that it is free, and has not granted it since.
    pub(super) asking: bool,
    /// The driver's CPU that it stands for.
    pub(super) cpu: u32,
}

impl Lane {
    pub(super) fn empty(cpu: u32) -> Self {
        Self { client: None, asking: false, cpu }
    }
}
