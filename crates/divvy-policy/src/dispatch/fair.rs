//! The account and the ready set that WFQ, WF2Q and stride share: virtual times, and who is next by them.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::dispatcher::{NONE, Occasion, Pick, Rule, Slot, Table};
use super::vtime::{Clock, VirtualTime};
use crate::{ClientId, Instant, Nanos, Share};

/// Who goes first among equal virtual times. Every rule ends in the client's id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tie {
    /// The larger share: with it WFQ's service error is the VTRR paper's printed -5/6 to 1.
    #[default]
    LargerShare,
    /// The smaller share.
    SmallerShare,
    /// The smaller id.
    Id,
    /// Who has been waiting with that virtual time for longer.
    Fifo,
    /// Who came to that virtual time last.
    Lifo,
    /// The next id after the client that ran last, and round again.
    RoundRobin,
}

/// How the ready set finds the next client. The decisions are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// A linear list: O(n) to choose, as most implementations had it (VTRR, section 2.4).
    List,
    /// A binary heap: O(log n) to choose.
    #[default]
    Heap,
}

/// The words for [`Tie`].
pub(super) const TIES: [(&str, Tie); 6] = [
    ("share", Tie::LargerShare),
    ("small", Tie::SmallerShare),
    ("id", Tie::Id),
    ("fifo", Tie::Fifo),
    ("lifo", Tie::Lifo),
    ("rr", Tie::RoundRobin),
];
/// The words for [`Queue`].
pub(super) const QUEUES: [(&str, Queue); 2] = [("list", Queue::List), ("heap", Queue::Heap)];

/// Which virtual time orders the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Start,
    Finish,
    /// By finish, among those that have started in the fluid model.
    EligibleFinish,
}

/// What a client finds when it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Return {
    /// It stands where it stood, but not before the queue's virtual time.
    Clamp,
    /// It is as far ahead of or behind the queue as it was.
    KeepLag,
}

#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) quantum: u64,
    pub(super) tie: Tie,
    pub(super) queue: Queue,
    pub(super) key: Key,
    pub(super) comeback: Return,
    /// Fixed-point strides of `stride1 / share`, rounded down; exact if `None`.
    pub(super) stride1: Option<u64>,
}

#[derive(Clone, Debug)]
struct Member {
    client: ClientId,
    share: u64,
    /// Runs by the share, or by `stride1` with `mul` steps a nanosecond.
    clock: Clock,
    mul: u64,
    /// The queue's virtual time when the client blocked; `None` before it first ran.
    parked: Option<VirtualTime>,
    runnable: bool,
    /// Where it stands in the ready set.
    at: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: VirtualTime,
    rank: u64,
    client: u32,
    slot: Slot,
}

impl Entry {
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then_with(|| (self.rank, self.client).cmp(&(other.rank, other.client)))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Fair {
    setup: Setup,
    members: Table<Member>,
    ready: Vec<Entry>,
    /// The queue's virtual time: advances by `1 / total` of all service.
    queue: Clock,
    queue_mul: u64,
    total: u64,
    stamps: u64,
    last: u32,
}

impl Fair {
    pub(super) fn new(setup: Setup) -> Self {
        let queue = Clock::new(VirtualTime::ZERO, 1);
        Self {
            setup,
            members: Table::new(),
            ready: Vec::new(),
            queue,
            queue_mul: 1,
            total: 0,
            stamps: 0,
            last: u32::MAX,
        }
    }

    /// The queue's virtual time.
    pub(super) fn queue_time(&self) -> VirtualTime {
        self.queue.now()
    }

    /// A client's virtual time.
    pub(super) fn client_time(&self, slot: Slot) -> VirtualTime {
        self.members[slot].clock.now()
    }

    /// A clock at `at` for a share, and its steps a nanosecond.
    fn clock(&self, at: VirtualTime, share: u64) -> (Clock, u64) {
        match self.setup.stride1 {
            None => (Clock::new(at, share), 1),
            Some(one) => (Clock::new(at, one), (one / share).max(1)),
        }
    }

    #[inline]
    fn advance(&self, clock: &mut Clock, mul: u64, used: u64) {
        if self.setup.stride1.is_none() {
            clock.advance(used);
        } else {
            clock.advance_by(used, mul);
        }
    }

    fn set_total(&mut self, total: u64) {
        self.total = total;
        if total > 0 {
            (self.queue, self.queue_mul) = self.clock(self.queue.now(), total);
        }
    }

    fn entry(&self, slot: Slot, stamp: u64) -> Entry {
        let m = &self.members[slot];
        let mut clock = m.clock;
        if self.setup.key != Key::Start {
            self.advance(&mut clock, m.mul, self.setup.quantum);
        }
        let key = clock.now();
        let rank = match self.setup.tie {
            Tie::LargerShare => u64::MAX - m.share,
            Tie::SmallerShare => m.share,
            Tie::Id | Tie::RoundRobin => 0,
            Tie::Fifo => stamp,
            Tie::Lifo => u64::MAX - stamp,
        };
        Entry { key, rank, client: m.client.0, slot }
    }

    fn insert(&mut self, slot: Slot) {
        let entry = self.entry(slot, self.stamps);
        self.stamps += 1;
        let at = self.ready.len();
        self.ready.push(entry);
        self.members[slot].at = at as u32;
        if self.setup.queue == Queue::Heap {
            self.sift_up(at);
        }
    }

    fn remove(&mut self, at: usize) -> Slot {
        let slot = self.ready.swap_remove(at).slot;
        self.members[slot].at = NONE;
        if at < self.ready.len() {
            self.members[self.ready[at].slot].at = at as u32;
            if self.setup.queue == Queue::Heap {
                self.sift_down(at);
                self.sift_up(at);
            }
        }
        slot
    }

    fn place(&mut self, at: usize, entry: Entry) {
        self.ready[at] = entry;
        self.members[entry.slot].at = at as u32;
    }

    fn sift_up(&mut self, mut at: usize) {
        let entry = self.ready[at];
        let from = at;
        while at > 0 {
            let above = (at - 1) / 2;
            if self.ready[above].order(&entry) != Ordering::Greater {
                break;
            }
            self.place(at, self.ready[above]);
            at = above;
        }
        if at != from {
            self.place(at, entry);
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        let entry = self.ready[at];
        let from = at;
        loop {
            let mut below = 2 * at + 1;
            if below >= self.ready.len() {
                break;
            }
            if below + 1 < self.ready.len()
                && self.ready[below + 1].order(&self.ready[below]) == Ordering::Less
            {
                below += 1;
            }
            if entry.order(&self.ready[below]) != Ordering::Greater {
                break;
            }
            self.place(at, self.ready[below]);
            at = below;
        }
        if at != from {
            self.place(at, entry);
        }
    }

    /// How far after the client that ran last this one comes, going round by id.
    fn turn(&self, entry: &Entry) -> u32 {
        entry.client.wrapping_sub(self.last).wrapping_sub(1)
    }

    fn compare(&self, a: &Entry, b: &Entry) -> Ordering {
        if self.setup.tie == Tie::RoundRobin {
            a.key.cmp(&b.key).then_with(|| self.turn(a).cmp(&self.turn(b)))
        } else {
            a.order(b)
        }
    }

    /// The first of the ready set by a look at everybody.
    fn first_of_list(&self) -> Option<usize> {
        let now = self.queue.now();
        let eligible =
            |entry: &Entry| self.setup.key != Key::EligibleFinish || self.client_time(entry.slot) <= now;
        let all = || (0..self.ready.len()).map(|at| (at, &self.ready[at]));
        let first = all().filter(|(_, e)| eligible(e)).min_by(|a, b| self.compare(a.1, b.1));
        // With several CPUs all who have started may be running: then whoever starts first.
        let first = first.or_else(|| {
            all().min_by(|a, b| {
                let starts = self.client_time(a.1.slot).cmp(&self.client_time(b.1.slot));
                starts.then_with(|| self.compare(a.1, b.1))
            })
        });
        first.map(|(at, _)| at)
    }

    /// The first of the heap. Round-robin ties depend on who ran last, which no fixed order of the heap can know: the
    /// entries equal to the root hang together below it and are looked through.
    fn first_of_heap(&self) -> Option<usize> {
        let root = self.ready.first()?;
        if self.setup.tie != Tie::RoundRobin {
            return Some(0);
        }
        let (mut best, mut at) = (0, 0);
        let mut todo = Vec::new();
        loop {
            for below in [2 * at + 1, 2 * at + 2] {
                if self.ready.get(below).is_some_and(|e| e.key == root.key) {
                    todo.push(below);
                }
            }
            let Some(next) = todo.pop() else { return Some(best) };
            at = next;
            if self.turn(&self.ready[at]) < self.turn(&self.ready[best]) {
                best = at;
            }
        }
    }

    /// The clock of a client that was `clock` against a queue at `queue`, with another share: its lead or lag stays
    /// the same amount of service, within 2 ns, and no virtual time goes below zero.
    fn reshared(&self, clock: &Clock, queue: VirtualTime, old: u64, new: u64) -> (Clock, u64) {
        let now = clock.now();
        let service = |span: VirtualTime| u64::try_from(span.service(old)).unwrap_or(u64::MAX);
        if now >= queue {
            let (mut clock, mul) = self.clock(queue, new);
            self.advance(&mut clock, mul, service(now.minus(queue)));
            (clock, mul)
        } else {
            let (mut lag, mul) = self.clock(VirtualTime::ZERO, new);
            self.advance(&mut lag, mul, service(queue.minus(now)));
            self.clock(queue.minus(lag.now()), new)
        }
    }
}

impl Rule for Fair {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, share: Share) {
        let share = share.get();
        let (clock, mul) = self.clock(VirtualTime::ZERO, share);
        let member = Member { client, share, clock, mul, parked: None, runnable: false, at: NONE };
        self.members.put(slot, member);
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        let queue = self.queue.now();
        let m = &self.members[slot];
        let (now, share) = (m.clock.now(), m.share);
        let at = match (m.parked, self.setup.comeback) {
            (None, _) => queue,
            (Some(_), Return::Clamp) => now.max(queue),
            (Some(parked), Return::KeepLag) => now.plus(queue.minus(parked)),
        };
        let (clock, _) = self.clock(at, share);
        let m = &mut self.members[slot];
        m.clock = clock;
        m.runnable = true;
        self.set_total(self.total + share);
        if !busy {
            self.insert(slot);
        }
    }

    fn block(&mut self, _now: Instant, slot: Slot, busy: bool) {
        let queue = self.queue.now();
        let m = &mut self.members[slot];
        m.runnable = false;
        m.parked = Some(queue);
        let (share, at) = (m.share, m.at as usize);
        self.set_total(self.total - share);
        if !busy {
            self.remove(at);
        }
    }

    fn reshare(&mut self, slot: Slot, share: Share) {
        let share = share.get();
        let m = &self.members[slot];
        let (old, at, runnable) = (m.share, m.at, m.runnable);
        if share == old {
            return;
        }
        let against = if runnable { Some(self.queue.now()) } else { m.parked };
        let (clock, mul) = match against {
            Some(queue) => self.reshared(&m.clock, queue, old, share),
            None => self.clock(VirtualTime::ZERO, share),
        };
        let m = &mut self.members[slot];
        m.clock = clock;
        m.mul = mul;
        m.share = share;
        if runnable {
            self.set_total(self.total - old + share);
        }
        if at != NONE {
            self.remove(at as usize);
            self.insert(slot);
        }
    }

    #[inline]
    fn charge(&mut self, slot: Slot, Nanos(used): Nanos) {
        if self.total > 0 {
            let mut queue = self.queue;
            self.advance(&mut queue, self.queue_mul, used);
            self.queue = queue;
        }
        let m = &self.members[slot];
        let mut clock = m.clock;
        self.advance(&mut clock, m.mul, used);
        let m = &mut self.members[slot];
        m.clock = clock;
        let at = m.at as usize;
        if m.at != NONE {
            // A late charge: the client waits already, and its virtual time has only grown.
            let Entry { rank, .. } = self.ready[at];
            self.ready[at] = Entry { rank, ..self.entry(slot, 0) };
            if self.setup.queue == Queue::Heap {
                self.sift_down(at);
            }
        }
    }

    #[inline]
    fn put_back(&mut self, slot: Slot) {
        self.insert(slot);
    }

    #[inline]
    fn pick(&mut self, _occasion: Occasion) -> Option<Pick> {
        let heap = self.setup.queue == Queue::Heap && self.setup.key != Key::EligibleFinish;
        let at = if heap { self.first_of_heap()? } else { self.first_of_list()? };
        self.last = self.ready[at].client;
        let slice = Nanos(self.setup.quantum);
        Some(Pick { slot: self.remove(at), client: ClientId(self.last), slice })
    }
}
