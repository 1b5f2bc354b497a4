//! Virtual-Time Round-Robin (Nieh, Vaill and Zhong 2001), complete: static algorithm and dynamic rules.
//!
//! **Problem.** Fair queueing is accurate but sorts at every choice; round-robin chooses in O(1) but is not accurate.
//! **Idea.** Go round a queue that is sorted by share, a quantum each, and go back to its head as soon as the next client
//! has had its due.
//! **Terms.** *Virtual time*, *virtual finishing time* (VFT) and *queue virtual time* (QVT) as in section 2.4 and eq. 4.
//! A *cycle* is as many quanta as the sum of shares; a client's *time counter* is what it is still due in it.
//! **Algorithm.** After the current client comes the next of the queue if its counter is larger (the time-counter
//! invariant), or if it is due something and `VFT - QVT(t + Q) < Q / share` (the VFT inequality); else the head, as at the
//! end of the queue. When all counters are used up, everybody gets share quanta more and the head is next.
//! A client that wakes is put where its share belongs: between its last neighbours while they still stand side by side
//! there, else by going along the queue ([`Insert::Traverse`]), or at the end of its share's class in constant time
//! ([`Insert::Classes`], section 3.3). Its VFT is `max(QVT + Q / share, old VFT)` (eq. 7, 8), its counter its share of
//! what is left of the cycle (eq. 9), but no more than it left with in the same cycle, and between its neighbours'.
//! **We differ or read.** Eq. 6 is applied to the *next* client, as the prose and the worked example have it. Counters are
//! in nanoseconds, so that a client that blocks early is charged what it used; use beyond the counter is a debt against
//! the next cycle (one cycle's worth at most; the VFT keeps the whole). The rules go by counters in quanta, to the nearest
//! whole one: where quanta come out a little short, whatever is left of one would be another, and large shares would begin
//! it before small ones had had their first. Where a client cannot use its share (more than a
//! CPU), at most one cycle's worth and two quanta are kept for it. On several CPUs a quantum that is being run counts as run, a client on
//! a CPU is passed over, and where only clients on CPUs are due anything, whoever has had least for its share runs.
//! **Layout.** Queue nodes of one cache line are linked by index and are laid out anew in queue order once there were
//! as many insertions as nodes, so that going round the queue reads memory forwards.
//! **Properties** (`tests/laws.rs`): `vtrr_counters_and_errors_are_zero_at_the_end_of_a_cycle`,
//! `vtrr_short_quanta_cost_nobody`, `vtrr_uneven_quanta_cost_nobody`, `vtrr_incremental_reset_decides_alike`, `vtrr_classes_decide_alike`,
//! `vtrr_keeps_the_counter_invariant`,
//! `split_charges_equal_the_whole`, `renaming_permutes`, `work_conserving`, `rejected_events_change_nothing`,
//! `flapping_earns_nothing`; every case of `golden/vtrr_static.json` and `golden/vtrr_dynamic.json`.
//! **Weak spots.** Not scale-invariant: shares 6, 4, 2 give another schedule than 3, 2, 1. No bound on the error: a large
//! share after many small ones waits for all of them (-49/2 for shares 50 and 50 x 1). As published, a client can gain
//! by blocking for a moment ([`Rejoin::Paper`]; `vtrr_as_published_rewards_flapping`); [`Rejoin::Strict`] closes that.

mod classes;
mod params;

use alloc::vec::Vec;

use self::classes::{CLASS_MAX, Classes};
pub use self::params::{Choice, Insert, InsertPath, Rejoin, Reset, VtrrParams};
use super::dispatcher::{Dispatcher, NONE, Occasion, Pick, Rule, Slot, Table, policy};
use super::vtime::{Clock, Step, VirtualTime};
use crate::{ClientId, Instant, Listed, Nanos, RangeError, Share};

/// A runnable client's place in the queue: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node {
    /// The virtual time; its divisor is the share.
    clock: Clock,
    /// What the client is still due in the cycle, in ns; never below minus one cycle's worth.
    counter: i64,
    next: u32,
    prev: u32,
    slot: Slot,
    client: ClientId,
    /// The cycle that `counter` is for, modulo 2^32.
    cycle: u32,
    busy: bool,
}

/// What is known of a client wherever it is.
#[derive(Clone, Debug)]
struct Member {
    client: ClientId,
    share: u64,
    /// Its node while it is runnable.
    node: u32,
    path: Option<InsertPath>,
    /// As it left the queue: VFT (`None` before it first came), counter, cycle, neighbours.
    vft: Option<VirtualTime>,
    counter: i64,
    cycle: u64,
    before: Option<(Slot, ClientId)>,
    after: Option<(Slot, ClientId)>,
}

#[derive(Clone, Debug)]
struct Ring {
    quantum: u64,
    reset: Reset,
    rejoin: Rejoin,
    members: Table<Member>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    head: u32,
    len: u32,
    /// The current client's node.
    cursor: u32,
    classes: Option<Classes>,
    /// The last node whose share is above the classes.
    above: u32,
    /// Insertions since the nodes were last laid out.
    inserted: u32,
    qvt: Clock,
    /// `Q / S` of the queue's clock.
    step: Step,
    total: u64,
    /// Sum of the quanta that the counters come to. Where a reset is pending for a node, it has been added here.
    sum: i128,
    cycle: u64,
    nr_busy: u32,
    choice: Choice,
}

impl Ring {
    fn new(quantum: u64, reset: Reset, rejoin: Rejoin, classes: Option<Classes>) -> Self {
        Self {
            quantum,
            reset,
            rejoin,
            members: Table::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            head: NONE,
            len: 0,
            cursor: NONE,
            classes,
            above: NONE,
            inserted: 0,
            qvt: Clock::new(VirtualTime::ZERO, 1),
            step: Step::default(),
            total: 0,
            sum: 0,
            cycle: 0,
            nr_busy: 0,
            choice: Choice::Start,
        }
    }

    /// A client's node, or [`NONE`]. Mostly it is the current client's: no look into the members, which are many lines.
    #[inline]
    fn node_of(&self, slot: Slot) -> u32 {
        match self.nodes.get(self.cursor as usize) {
            Some(node) if node.slot == slot => self.cursor,
            _ => self.members[slot].node,
        }
    }

    /// A share's counter for a whole cycle. At most 2^32 x 10^9 < 2^62.
    #[inline]
    fn allowance(&self, share: u64) -> i64 {
        (share * self.quantum) as i64
    }

    fn set_total(&mut self, total: u64) {
        self.total = total;
        if total > 0 {
            self.qvt = Clock::new(self.qvt.now(), total);
            self.step = self.qvt.step(self.quantum);
        }
    }

    /// The quanta that a counter comes to, to the nearest whole one, halves up.
    #[inline]
    fn quanta(&self, counter: i64) -> i64 {
        // A quantum is below 2^62, by the range of the parameters.
        let quantum = self.quantum as i64;
        counter.saturating_add(quantum / 2).div_euclid(quantum)
    }

    /// Whether a counter comes to a quantum or more.
    #[inline]
    fn is_positive(&self, counter: i64) -> bool {
        counter >= (self.quantum - self.quantum / 2) as i64
    }

    /// A node's counter with the resets that are pending for it, and what it is short of the sum's idea of it.
    fn due(&self, node: &Node) -> (i64, i128) {
        let pending = (self.cycle as u32).wrapping_sub(node.cycle);
        let allowance = self.allowance(node.clock.divisor());
        let mut counter = node.counter;
        // At most one cycle's worth is carried, and two quanta besides: quanta that come out short or long end a cycle early now and
        // then, and sometimes two in a row, before the smallest share had its own. The fifth reset in a row changes nothing any more.
        let most = allowance.saturating_add(2 * self.quantum as i64);
        for _ in 0..pending.min(4) {
            counter = counter.min(most) + allowance;
        }
        let full = i128::from(node.counter) + i128::from(pending) * i128::from(allowance);
        if full == i128::from(counter) {
            return (counter, 0);
        }
        let share = i128::from(node.clock.divisor());
        let expected = i128::from(self.quanta(node.counter)) + i128::from(pending) * share;
        (counter, expected - i128::from(self.quanta(counter)))
    }

    /// Brings a node's counter up to date.
    #[inline]
    fn refresh(&mut self, at: u32) -> i64 {
        let node = &self.nodes[at as usize];
        if node.cycle != self.cycle as u32 {
            let (counter, forgone) = self.due(node);
            self.sum -= forgone;
            let node = &mut self.nodes[at as usize];
            node.counter = counter;
            node.cycle = self.cycle as u32;
        }
        self.nodes[at as usize].counter
    }

    #[cold]
    #[inline(never)]
    fn new_cycle(&mut self) {
        self.cycle += 1;
        self.sum += i128::from(self.total);
        if self.reset == Reset::Whole {
            let mut at = self.head;
            while at != NONE {
                self.refresh(at);
                at = self.nodes[at as usize].next;
            }
        }
    }

    #[inline]
    fn is_due_a_quantum(&mut self, at: u32) -> bool {
        let counter = self.refresh(at);
        self.is_positive(counter)
    }

    /// Whether a counter comes to more quanta than another.
    #[inline]
    fn is_larger(&self, counter: i64, other: i64) -> bool {
        // Mostly whole quanta lie between them, or nothing: no division.
        counter > other
            && (counter.saturating_sub(other) >= self.quantum as i64
                || self.quanta(counter) > self.quanta(other))
    }

    /// Whether `VFT - QVT(t + Q) < Q / share` for a node, which is: whether its virtual time is before `QVT(t + Q)`.
    #[inline]
    fn is_due(&self, at: u32) -> bool {
        let mut then = self.qvt;
        then.advance_step(self.step);
        for _ in 0..self.nr_busy {
            // Quanta that are being run on other CPUs.
            then.advance_step(self.step);
        }
        self.nodes[at as usize].clock.now() < then.now()
    }

    #[inline]
    fn choose(&mut self) -> (u32, Choice) {
        if self.sum <= 0 {
            self.new_cycle();
            return (self.head, Choice::Reset);
        }
        if self.cursor == NONE {
            return (self.head, Choice::Start);
        }
        let next = self.nodes[self.cursor as usize].next;
        if next == NONE {
            return (self.head, Choice::End);
        }
        let mut current = self.refresh(self.cursor);
        if self.nodes[self.cursor as usize].busy {
            current -= self.quantum as i64;
        }
        let counter = self.refresh(next);
        // Debts can make 0 the larger counter; nothing is due all the same.
        if !self.is_positive(counter) {
            (self.head, Choice::Back)
        } else if self.is_larger(counter, current) {
            (next, Choice::Counter)
        } else if self.is_due(next) {
            (next, Choice::Vft)
        } else {
            (self.head, Choice::Back)
        }
    }

    /// The first client from a node on that is on no CPU and due something.
    fn first_due(&mut self, mut at: u32) -> Option<u32> {
        while at != NONE {
            if !self.nodes[at as usize].busy && self.is_due_a_quantum(at) {
                return Some(at);
            }
            at = self.nodes[at as usize].next;
        }
        None
    }

    /// Of those on no CPU, the one with the least virtual time; the first in the queue among equals. O(n).
    fn furthest_behind(&self) -> Option<u32> {
        let mut found: Option<u32> = None;
        let mut at = self.head;
        while at != NONE {
            let node = &self.nodes[at as usize];
            let time = |at: u32| self.nodes[at as usize].clock.now();
            if !node.busy && found.is_none_or(|first| node.clock.now() < time(first)) {
                found = Some(at);
            }
            at = node.next;
        }
        found
    }

    /// Who runs where the rules chose a client that is on a CPU, or a head that is due nothing (it owes, or came back
    /// with what it had left): the first after it that is due something, else the first of all. Where only clients on
    /// CPUs are due anything, because their shares are more than a CPU, whoever has had least for its share. O(n).
    #[cold]
    #[inline(never)]
    fn pass_over(&mut self, at: u32) -> Option<u32> {
        let due = self.first_due(at).or_else(|| self.first_due(self.head));
        if due.is_some() || self.sum > 0 {
            return due.or_else(|| self.furthest_behind());
        }
        // Everybody owed a whole cycle's worth.
        self.new_cycle();
        self.first_due(self.head).or_else(|| self.furthest_behind())
    }

    fn key(&self, at: u32) -> (u64, ClientId) {
        let node = &self.nodes[at as usize];
        (u64::MAX - node.clock.divisor(), node.client)
    }

    /// The node of a neighbour that was noted, if it is still there and runnable.
    fn neighbour(&self, noted: Option<(Slot, ClientId)>) -> Option<u32> {
        let (slot, client) = noted?;
        let member = &self.members[slot];
        (member.client == client && member.node != NONE).then_some(member.node)
    }

    /// The node after which a client belongs ([`NONE`]: it becomes the head).
    fn place(&self, slot: Slot) -> (u32, InsertPath) {
        let member = &self.members[slot];
        let (share, client) = (member.share, member.client);
        if let Some(classes) = &self.classes {
            if share <= classes.max() {
                let tail = classes.tail_from(share);
                return (if tail == NONE { self.above } else { tail }, InsertPath::Class);
            }
        } else if let (Some(before), Some(after)) =
            (self.neighbour(member.before), self.neighbour(member.after))
            && self.nodes[before as usize].next == after
            && share <= self.nodes[before as usize].clock.divisor()
            && share >= self.nodes[after as usize].clock.divisor()
        {
            return (before, InsertPath::Refs);
        }
        let by_id = self.classes.is_none();
        let key = (u64::MAX - share, if by_id { client } else { ClientId(u32::MAX) });
        let (mut before, mut at) = (NONE, self.head);
        while at != NONE && self.key(at) < key {
            before = at;
            at = self.nodes[at as usize].next;
        }
        (before, InsertPath::Traverse)
    }

    /// The counter of a client that comes in between two nodes (eq. 9 and what follows it).
    fn first_counter(&mut self, slot: Slot, before: u32, after: u32) -> i64 {
        let (share, kept, left) = {
            let m = &self.members[slot];
            (m.share, m.counter, m.cycle)
        };
        let quanta = i128::from(share) * self.sum.max(0) / i128::from(self.total);
        let mut counter = i64::try_from(quanta * i128::from(self.quantum)).unwrap_or(i64::MAX);
        if left == self.cycle {
            counter = counter.min(kept);
        }
        if before != NONE {
            counter = counter.min(self.refresh(before));
        }
        if after != NONE {
            counter = counter.max(self.refresh(after));
        }
        if left == self.cycle && self.rejoin == Rejoin::Strict {
            counter = counter.min(kept);
        }
        counter
    }

    fn insert(&mut self, slot: Slot, busy: bool) {
        let (before, path) = self.place(slot);
        let after = if before == NONE { self.head } else { self.nodes[before as usize].next };
        let share = self.members[slot].share;
        let counter = if self.len == 0 {
            self.cycle += 1;
            self.allowance(share) + self.members[slot].counter.min(0)
        } else {
            self.first_counter(slot, before, after)
        };
        let qvt = self.qvt.now();
        let clock = match self.members[slot].vft {
            None => Clock::new(qvt, share),
            Some(vft) => {
                // VT = max(QVT + Q / share, VFT) - Q / share.
                let mut quantum = Clock::new(VirtualTime::ZERO, share);
                quantum.advance(self.quantum);
                Clock::new(qvt.max(vft.minus(quantum.now())), share)
            }
        };
        let (client, cycle) = (self.members[slot].client, self.cycle as u32);
        let node = Node { clock, counter, next: after, prev: before, slot, client, cycle, busy };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        };
        if before == NONE {
            self.head = at;
        } else {
            self.nodes[before as usize].next = at;
        }
        if after != NONE {
            self.nodes[after as usize].prev = at;
        }
        self.note_class(share, at, before);
        let member = &mut self.members[slot];
        member.node = at;
        member.path = Some(path);
        self.sum += i128::from(self.quanta(counter));
        self.nr_busy += u32::from(busy);
        self.len += 1;
        self.inserted += 1;
        self.set_total(self.total + share);
    }

    /// A node came in after `before`.
    fn note_class(&mut self, share: u64, at: u32, before: u32) {
        if let Some(classes) = &mut self.classes {
            if share <= classes.max() {
                classes.set_tail(share, at);
            } else if before == self.above {
                self.above = at;
            }
        }
    }

    /// The node `at` of `share` goes; `before` stands in front of it.
    fn forget_class(&mut self, share: u64, at: u32, before: u32) {
        if let Some(classes) = &mut self.classes {
            if share > classes.max() {
                if self.above == at {
                    self.above = before;
                }
            } else if classes.tail(share) == at {
                let same = before != NONE && self.nodes[before as usize].clock.divisor() == share;
                classes.set_tail(share, if same { before } else { NONE });
            }
        }
    }

    /// Takes a client out of the queue and notes how it left. Answers whether it was on a CPU.
    fn remove(&mut self, slot: Slot) -> bool {
        let at = self.members[slot].node;
        let counter = self.refresh(at);
        let node = self.nodes[at as usize];
        let name = |at: u32| {
            let node = self.nodes.get(at as usize)?;
            Some((node.slot, node.client))
        };
        let (before, after) = (name(node.prev), name(node.next));
        let mut finish = node.clock;
        finish.advance(self.quantum);
        let member = &mut self.members[slot];
        member.node = NONE;
        member.vft = Some(finish.now());
        member.counter = counter;
        member.cycle = self.cycle;
        member.before = before;
        member.after = after;
        let share = member.share;
        self.forget_class(share, at, node.prev);
        if node.prev == NONE {
            self.head = node.next;
        } else {
            self.nodes[node.prev as usize].next = node.next;
        }
        if node.next != NONE {
            self.nodes[node.next as usize].prev = node.prev;
        }
        if self.cursor == at {
            self.cursor = node.prev;
        }
        self.free.push(at);
        self.sum -= i128::from(self.quanta(counter));
        self.nr_busy -= u32::from(node.busy);
        self.len -= 1;
        self.set_total(self.total - share);
        node.busy
    }

    /// Lays the nodes out in queue order: O(n), paid for by n insertions.
    #[cold]
    #[inline(never)]
    fn lay_out(&mut self) {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let (mut at, mut cursor) = (self.head, NONE);
        let mut above = NONE;
        while at != NONE {
            let mut node = self.nodes[at as usize];
            let place = nodes.len() as u32;
            if self.cursor == at {
                cursor = place;
            }
            if self.above == at {
                above = place;
            }
            self.members[node.slot].node = place;
            if let Some(classes) = &mut self.classes {
                let share = node.clock.divisor();
                if share <= classes.max() && classes.tail(share) == at {
                    // Marked beyond every index until all are moved, so that an old index is never taken for a new one.
                    classes.set_tail(share, place | MOVED);
                }
            }
            at = node.next;
            node.prev = if place == 0 { NONE } else { place - 1 };
            node.next = if at == NONE { NONE } else { place + 1 };
            nodes.push(node);
        }
        if let Some(classes) = &mut self.classes {
            for node in &nodes {
                let share = node.clock.divisor();
                if share <= classes.max() && classes.tail(share) & MOVED != 0 {
                    classes.set_tail(share, classes.tail(share) & !MOVED);
                }
            }
        }
        self.head = if nodes.is_empty() { NONE } else { 0 };
        self.nodes = nodes;
        self.free.clear();
        self.cursor = cursor;
        self.above = above;
        self.inserted = 0;
    }
}

/// Marks a class's tail as an index into the new layout. There are fewer than 2^31 clients.
const MOVED: u32 = 1 << 31;

impl Rule for Ring {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, share: Share) {
        let (share, path, vft, before, after) = (share.get(), None, None, None, None);
        let member = Member { client, share, node: NONE, path, vft, counter: 0, cycle: 0, before, after };
        self.members.put(slot, member);
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        self.insert(slot, busy);
    }

    fn block(&mut self, _now: Instant, slot: Slot, _busy: bool) {
        self.remove(slot);
    }

    fn reshare(&mut self, slot: Slot, share: Share) {
        let share = share.get();
        if self.members[slot].node == NONE {
            self.members[slot].share = share;
        } else {
            let busy = self.remove(slot);
            self.members[slot].share = share;
            self.insert(slot, busy);
        }
    }

    #[inline]
    fn charge(&mut self, slot: Slot, Nanos(used): Nanos) {
        if used == self.quantum && self.total > 0 {
            self.qvt.advance_step(self.step);
        } else if self.total > 0 {
            self.qvt.advance(used);
        }
        let at = self.node_of(slot);
        let spent = i64::try_from(used).unwrap_or(i64::MAX);
        if at == NONE {
            // A late charge, to one that has blocked since.
            let allowance = self.allowance(self.members[slot].share);
            let member = &mut self.members[slot];
            member.counter = member.counter.saturating_sub(spent).max(-allowance);
            if let Some(vft) = &mut member.vft {
                let mut clock = Clock::new(*vft, member.share);
                clock.advance(used);
                *vft = clock.now();
            }
            return;
        }
        let counter = self.refresh(at);
        let floor = -self.allowance(self.nodes[at as usize].clock.divisor());
        let left = counter.saturating_sub(spent).max(floor);
        self.sum -= if counter.saturating_sub(left) == self.quantum as i64 {
            1
        } else {
            i128::from(self.quanta(counter) - self.quanta(left))
        };
        let node = &mut self.nodes[at as usize];
        node.clock.advance(used);
        node.counter = left;
    }

    #[inline]
    fn put_back(&mut self, slot: Slot) {
        let at = self.node_of(slot);
        self.nodes[at as usize].busy = false;
        self.nr_busy -= 1;
    }

    #[inline]
    fn pick(&mut self, _occasion: Occasion) -> Option<Pick> {
        if self.inserted >= self.len {
            self.lay_out();
        }
        let (mut at, mut choice) = self.choose();
        if self.nodes[at as usize].busy || !self.is_due_a_quantum(at) {
            at = self.pass_over(at)?;
            choice = Choice::Passed;
        }
        self.choice = choice;
        self.cursor = at;
        self.nr_busy += 1;
        let node = &mut self.nodes[at as usize];
        node.busy = true;
        Some(Pick { slot: node.slot, client: node.client, slice: Nanos(self.quantum) })
    }
}

/// VTRR; see the module.
#[derive(Clone, Debug)]
pub struct Vtrr(Dispatcher<Ring>);

impl Vtrr {
    /// A dispatcher without clients.
    ///
    /// # Errors
    /// [`RangeError`] where a parameter is out of range.
    pub fn new(params: VtrrParams) -> Result<Self, RangeError> {
        let VtrrParams { cpus, quantum, reset, insert, rejoin } = params;
        Self::INFO.check(cpus, &[("quantum", quantum.into())])?;
        let classes = match insert {
            Insert::Traverse => None,
            Insert::Classes { max_share } if (1..=CLASS_MAX).contains(&max_share) => {
                Some(Classes::new(max_share))
            }
            Insert::Classes { max_share } => return Err(Self::INFO.outside("classes", max_share.into())),
        };
        Ok(Self(Dispatcher::new(Ring::new(quantum.0, reset, rejoin, classes), cpus)))
    }

    fn member(&self, client: ClientId) -> Option<&Member> {
        self.0.slot(client).map(|slot| &self.0.rule.members[slot])
    }

    /// Runnable clients in the order of the run queue. O(n).
    #[must_use]
    pub fn queue(&self) -> Vec<ClientId> {
        let ring = &self.0.rule;
        let mut queue = Vec::with_capacity(ring.len as usize);
        let mut at = ring.head;
        while at != NONE {
            let node = &ring.nodes[at as usize];
            queue.push(node.client);
            at = node.next;
        }
        queue
    }

    /// A client's time counter in ns: what it is due in this cycle, or was when it blocked; negative for a debt.
    #[must_use]
    pub fn counter(&self, client: ClientId) -> Option<i64> {
        let member = self.member(client)?;
        let node = self.0.rule.nodes.get(member.node as usize);
        Some(node.map_or(member.counter, |node| self.0.rule.due(node).0))
    }

    /// A client's virtual finishing time, or the one that it blocked with; `None` if it was never runnable.
    #[must_use]
    pub fn finishing_time(&self, client: ClientId) -> Option<VirtualTime> {
        let member = self.member(client)?;
        self.0.rule.nodes.get(member.node as usize).map_or(member.vft, |node| {
            let mut clock = node.clock;
            clock.advance(self.0.rule.quantum);
            Some(clock.now())
        })
    }

    /// The queue virtual time.
    #[must_use]
    pub fn queue_virtual_time(&self) -> VirtualTime {
        self.0.rule.qvt.now()
    }

    /// Cycles begun so far.
    #[must_use]
    pub fn cycle(&self) -> u64 {
        self.0.rule.cycle
    }

    /// Sum of the time counters of the run queue, each in whole quanta, to the nearest.
    #[must_use]
    pub fn counters_sum(&self) -> i128 {
        self.0.rule.sum
    }

    /// Why the last client was chosen.
    #[must_use]
    pub fn last_choice(&self) -> Choice {
        self.0.rule.choice
    }

    /// How a client last found its place in the queue; `None` if it was never runnable.
    #[must_use]
    pub fn insert_path(&self, client: ClientId) -> Option<InsertPath> {
        self.member(client)?.path
    }
}

policy!(Vtrr);
