//! The exact gate: event-driven proportional share, one client released for each CPU. Ours, and the default on one CPU; on several
//! [`Lag`](super::Lag) takes its place, and what is said here of several CPUs is what that is held against.
//!
//! **Problem.** ALPS looks at its clients once a quantum, so its error is whatever the kernel's slices did inside the
//! quantum: 1 to 20 % of a cycle. And it lets everybody run at once, so nothing bounds who does.
//!
//! **Idea.** A client that runs alone on its CPU uses exactly the time that passes. So release one client for each CPU,
//! set the timer for the moment its allowance will run out, charge what it really used, hold it, release the next.
//! Only a client that blocks breaks the rule; one that was seen asleep is released beside the others from then on,
//! so that it can run whenever it wakes, and is looked at when it could be through.
//!
//! **Terms.** `Q` is the quantum, `q_i` the *quota* of client i for a cycle (its effective share in quanta, times Q; or, with
//! `share_time`, its share times that time: a client of less than a grain runs once it has collected two),
//! `allowance_i` what is left of it (ns; negative when more was used than was due), a *lane* a place to run (one for
//! each CPU, or several: *presence*), a *head* the client of a lane, a *suspect* one seen asleep in this cycle or the
//! last eight, the *grain* (100 us) the least allowance that is worth a hand-over, and *need* the time that a client's
//! allowance takes at full width.
//!
//! **Algorithm.**
//! 1. A head is looked at when its allowance (or slice) could be used up, and after a tick at the latest. The tick
//!    starts at Q/2 and doubles to 4Q while the client is found to have run all the time.
//! 2. A look charges the CPU time used. If it is less than the time that passed, the client's state is read: asleep
//!    makes it a suspect, which gives its lane away but may go on when it wakes.
//! 3. A client with at most a grain left is held; the empty lane takes the next: in fixed order on one CPU, by
//!    virtual time with slices, and the one with the largest need on several CPUs, where a waiting client whose
//!    laxity (remaining cycle on each lane, minus its need) is gone takes the lane of the smallest need.
//! 4. The cycle ends when fewer clients can run than there are CPUs. Sleepers forfeit what they did not use, all get
//!    another quota, debts and remainders carry over (at most one quota of credit). Replenishing is lazy, by cycle
//!    number; shares and units that change, and newcomers, count from the next cycle on.
//! 5. On several CPUs the quotas are water-filled: a client can use no more CPUs than its width (fewer, if it was found
//!    to use fewer), and what it cannot use is divided among the others ([`crate::feasible`]). Capped clients keep no
//!    credit, and the quotas of the others are cut by the sum of theirs: what hand-overs cost is lost to all alike.
//! 6. A client of several threads has as many lanes as it can use and nobody needs more: one that waits, or a head that
//!    could use more lanes, takes them one by one as its laxity is gone. It is told each of its CPUs. Who needs all of its
//!    CPUs keeps no credit, capped or not.
//! 7. On several CPUs a suspect runs wherever the kernel finds room. A head of the largest need that does not get its
//!    CPU to itself sends the suspects to the head of the smallest.
//! 8. On one CPU a driver may tell that a client fell asleep, or woke. Who woke takes the lane at once, and takes turns with
//!    whoever had it while both want the CPU; what the others used meanwhile it forfeits in proportion (`wake.rs`). A sleeper
//!    of which nobody tells, and under which alone the CPU idles for a quarter of the time, does not keep a cycle from
//!    ending: whoever computes goes on beside it.
//!
//! **Bounds.** Let `l` be the lateness of one wake-up plus hand-over, and `g` the grain.
//! - On one CPU, at a cycle's end a client that always wanted the CPU has received its quotas of all cycles so far
//!   within `[-g, +l]`, however many they were (`errors_do_not_accumulate`).
//! - At any instant, on one CPU and without slices, its service error is at most `q_i * (1 - s_i / S) + l`, either way:
//!   the whole allowance runs in one go, as in weighted round robin (`error_at_any_instant_is_bounded`). With slices the
//!   others run in between (`slices_are_smoother`).
//! - A CPU idles beside a held client for at most the longest tick, 4Q, and an eighth of it that a look may not see,
//!   plus `l` (`a_cpu_idles_for_at_most_a_tick`; two more ticks of Q/2 where one thread of several falls asleep); and for
//!   clients that were seen asleep in the last eight cycles for at most two looks, 1 ms each for every one awake
//!   (`a_known_sleeper_idles_a_cpu_for_at_most_two_looks`).
//! - On several CPUs errors of a cycle are repaid as far as the next has room: none is where a client needs all of a CPU.
//!
//! **Cost.** One wake-up costs O(lanes + clients due + clients that change state): none of it depends on how many
//! clients are held. With slices the queue is sorted, on several CPUs too, but there in steps of a tenth of the grain,
//! so that its depth is that of the different needs: O(log n) an operation at the most. It is sorted anew, O(n log n),
//! when the greatest common divisor of the shares changes. A cycle's end visits the suspects that ran lately.
//!
//! **Properties.** (tests) the bounds above; `the_account_depends_only_on_the_total`, `a_rejected_event_changes_nothing`,
//! `scaled_shares_decide_the_same`, `leaving_and_rejoining_earns_nothing`, `infeasible_shares_are_capped`,
//! `debts_of_hours_are_repaid_in_one_call`, `any_sequence_of_events_is_survived`.
//!
//! **Weak spots.** Against strangers the group competes as one process per lane: raise the presence for more. On several
//! CPUs, a stranger that slows one lane only makes that lane's client end the cycle early, with credit that the next
//! repays if it has room. Beside sleepers that nearly fill what the others leave ({1,2,3,2} on 2 CPUs, the second asleep
//! half the time), single cycles are 2 to 7 % off, the long run is not. A client that has spent its allowance waits for
//! the next cycle; slices shorten the wait for about four times the signals. Debts of a client that leaves are forgotten.
//! Strangers that fill the CPUs slow a client of one thread more than one of several: the long run is off then.
//! Hundreds of clients that wake for a ms or so cost a few per cent of a CPU once they want all of one.

mod claims;
mod client;
mod lanes;
mod plan;
mod queue;
mod wake;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::{GateParamError, Scale, ShareUnit, SlotMap, check_quantum};
use crate::registry::{Kind, ParamInfo, PolicyInfo};
use crate::{ClientId, Event, EventError, Gate, Instant, Nanos, Policy, Share};
use client::{Await, Client, Place};
use queue::Waiting;

/// `exact` for the list of policies.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "exact",
    kind: Kind::Gate,
    summary: "Event-driven proportional share: one client released for each CPU, charged to the nanosecond",
    complexity: "O(due clients) a wake-up; O(log n) with slices or several CPUs",
    source: "divvy; after ALPS, sections 3 and 4",
    params: &[
        ParamInfo {
            name: "quantum",
            range: "1ms to 10s",
            default: "10ms",
            summary: "CPU time of one share in one cycle",
        },
        ParamInfo {
            name: "slice",
            range: "1ms or more",
            default: "none",
            summary: "longest run in one go; none runs a whole allowance, short slices even it out for more signals",
        },
        ParamInfo {
            name: "presence",
            range: "1 to 64",
            default: "1",
            summary: "clients released for each CPU: how many processes strangers compete with",
        },
    ],
};

/// A client that uses fewer CPUs than it has threads for is believed to have no more after this long: three ticks of a kernel
/// at 250 Hz, within which threads find an empty CPU.
const NARROW_TIME: Nanos = Nanos::from_millis(12);
/// And is tried with all of them again after this long.
const WIDE_AGAIN: Nanos = Nanos::from_millis(500);

/// The least allowance that is worth a hand-over: 100 us. Less is carried into the next cycle.
pub const GRAIN: Nanos = Nanos::from_micros(100);
/// A client that wants the CPU and got nothing of it, for a stranger has it, is not looked at sooner than after this: 200 us.
const STARVED_LOOK: Nanos = Nanos::from_micros(200);
/// A way from one client to the next is not thought to take longer: 300 us.
const HAND_OVER_MAX: Nanos = Nanos::from_micros(300);
/// For how many cycles a client that was seen asleep is released beside the lanes.
pub const SUSPECT_CYCLES: u64 = 8;
/// How often running suspects are looked at while a CPU would idle if they blocked.
pub const SUSPECT_TICK: Nanos = Nanos::from_millis(1);
/// The longest time for which a sleeping client is not looked at, unless its allowance is longer.
pub const SLEEP_LOOK_MAX: Nanos = Nanos::from_millis(100);

/// How an [`Exact`] is made.
#[derive(Clone, Copy, Debug)]
pub struct ExactParams {
    /// Q: CPU time of one share in one cycle, 1 ms to 10 s.
    pub quantum: Nanos,
    /// CPUs that the clients may use, 1 to 4096.
    pub cpus: u32,
    /// Whether shares are scaled by their greatest common divisor.
    pub scale: Scale,
    /// The longest run in one go; `None` runs a whole allowance.
    pub slice: Option<Nanos>,
    /// Clients released for each CPU, 1 to 64.
    pub presence: u32,
    /// CPU time of one share in one cycle, 1 ns to 10 s, where that is not Q: shares are taken as they are given then, and
    /// Q only says how often clients are looked at. For whoever knows quotas to the microsecond, as fractions of a cycle.
    pub share_time: Option<Nanos>,
    /// The longest cycle, 1 ms or more, where a quantum for each client is less than that: with shares such as 997 and 1009 each
    /// share gets less than Q then, in the same proportion. `None` for cycles as long as the shares make them.
    pub cycle_max: Option<Nanos>,
}

impl Default for ExactParams {
    fn default() -> Self {
        Self {
            quantum: Nanos::from_millis(10),
            cpus: 1,
            scale: Scale::ByGcd,
            slice: None,
            presence: 1,
            share_time: None,
            cycle_max: None,
        }
    }
}

impl ExactParams {
    pub(super) fn check(&self) -> Result<(), GateParamError> {
        check_quantum(self.quantum)?;
        if self.cpus == 0 || self.cpus > 4096 {
            return Err(GateParamError::Cpus(self.cpus));
        }
        if self.presence == 0 || self.presence > 64 {
            return Err(GateParamError::Presence(self.presence));
        }
        if let Some(slice) = self.slice
            && slice < super::QUANTUM_MIN
        {
            return Err(GateParamError::Slice(slice));
        }
        if let Some(longest) = self.cycle_max
            && longest < super::QUANTUM_MIN
        {
            return Err(GateParamError::Cycle(longest));
        }
        if let Some(time) = self.share_time
            && (time == Nanos::ZERO || time > super::QUANTUM_MAX)
        {
            return Err(GateParamError::ShareTime(time));
        }
        Ok(())
    }

    /// CPU time of one unit of shares in one cycle, where these are so many clients and quanta.
    pub(super) fn share_time(&self, clients: usize, quanta: u128) -> Nanos {
        let (time, longest) = match (self.share_time, self.cycle_max) {
            (Some(time), _) => return time,
            (None, None) => return self.quantum,
            (None, Some(longest)) => (self.quantum, longest),
        };
        let longest = u128::from(longest.0) * u128::from(self.cpus);
        let longest = longest.max(clients as u128 * u128::from(self.quantum.0));
        let most = longest / quanta.max(1);
        Nanos(u64::try_from(most).unwrap_or(u64::MAX).clamp(1, time.0))
    }
}

/// The exact gate; see the module's text.
#[derive(Clone, Debug)]
pub struct Exact {
    params: ExactParams,
    unit: ShareUnit,
    slots: SlotMap,
    clients: Vec<Option<Client>>,
    vacant: Vec<usize>,
    next_id: u32,
    /// The cycle that is under way.
    cycle: u64,
    /// What one quantum stands for in this cycle; joins and leaves change it at the next.
    unit_now: u64,
    /// CPU time of that in this cycle.
    time_now: Nanos,
    /// Cycles ended in which something was used.
    cycles_ended: u64,
    consumed: bool,
    /// CPU time used by all so far, ns.
    used_by_all: u128,
    /// Held, with allowance in this cycle.
    ready: Waiting,
    /// Held, through with this cycle.
    next: Waiting,
    /// Entries that the queues have had.
    stamp: u64,
    /// Suspects that are through with this cycle: released again as soon as it ends.
    next_suspects: Vec<ClientId>,
    lanes: Vec<Option<ClientId>>,
    /// Suspects that ran in one of the last two cycles: looked at before a cycle ends.
    light: BTreeSet<ClientId>,
    /// CPUs that suspects use beside the lanes, as far as is known: the sum of [`Client::awake_beside`].
    awake_beside: u32,
    /// All light sleepers are not looked at before.
    next_ask: Instant,
    due: BTreeSet<(Instant, ClientId)>,
    /// How long it took lately until a client that was released ran; one CPU only.
    hand_over: Nanos,
    /// Lanes that were empty after the last plan: suspects are looked at more often then.
    empty_lanes: usize,
    /// Since when one client has the CPU to itself, a suspect; one CPU only.
    alone_since: Option<Instant>,
    /// Told to have woken, and waiting until it is known how far the others are; one CPU only.
    waking: Vec<ClientId>,
    /// Who woke last, and in how many turns a quota is used while it competes; 1 for whole allowances.
    turns: Option<(ClientId, u64)>,
    /// Heads that were found runnable without having run all the time: somebody shares their CPUs; several CPUs only.
    disturbed: Vec<ClientId>,
    /// When a waiting client's laxity will be gone.
    laxity_gone: Option<Instant>,
    /// Clients whose place changed to one where they are held; told once it is known that they are not released anew.
    leaving: Vec<ClientId>,
    /// Clients whose place changed to one where they run.
    coming: Vec<ClientId>,
    /// Answers that the driver owes.
    owed: usize,
    dirty: bool,
    end_checked: bool,
    /// Clients that take part in the water-filling, the widest claim first; several CPUs only.
    claims: BTreeSet<(core::cmp::Reverse<u128>, ClientId)>,
    claimed_shares: u128,
    capped: Vec<ClientId>,
    /// Allowances that those who are through with this cycle carry into the next, ns; several CPUs only.
    carried: i128,
    /// What all uncapped quotas of this cycle are less by, in units of 2^-32; several CPUs only.
    cut: i128,
    out: VecDeque<Gate>,
}

impl Exact {
    /// A gate without clients.
    ///
    /// # Errors
    /// [`GateParamError`] names the parameter that is out of its range.
    pub fn new(params: ExactParams) -> Result<Self, GateParamError> {
        params.check()?;
        let waiting = Waiting::new(params.cpus > 1, params.slice.is_some());
        let scale = if params.share_time.is_some() { Scale::AsGiven } else { params.scale };
        Ok(Self {
            unit: ShareUnit::new(scale),
            slots: SlotMap::default(),
            clients: Vec::new(),
            vacant: Vec::new(),
            next_id: 0,
            cycle: 0,
            unit_now: 1,
            time_now: params.share_time.unwrap_or(params.quantum),
            cycles_ended: 0,
            consumed: false,
            used_by_all: 0,
            ready: waiting.clone(),
            next: waiting,
            stamp: 0,
            next_suspects: Vec::new(),
            lanes: vec![None; (params.cpus * params.presence) as usize],
            light: BTreeSet::new(),
            awake_beside: 0,
            next_ask: Instant::ZERO,
            due: BTreeSet::new(),
            hand_over: Nanos::ZERO,
            empty_lanes: 0,
            alone_since: None,
            waking: Vec::new(),
            turns: None,
            disturbed: Vec::new(),
            laxity_gone: None,
            leaving: Vec::new(),
            coming: Vec::new(),
            owed: 0,
            dirty: false,
            end_checked: false,
            claims: BTreeSet::new(),
            claimed_shares: 0,
            capped: Vec::new(),
            carried: 0,
            cut: 0,
            out: VecDeque::new(),
            params,
        })
    }

    /// CPU time of one unit of shares in one cycle, with the clients that there are now.
    fn share_time(&self) -> Nanos {
        self.params.share_time(self.clients.len() - self.vacant.len(), self.unit.total_quanta())
    }

    fn slot(&self, client: ClientId) -> Result<usize, EventError> {
        self.slots.get(client).ok_or(EventError::UnknownClient(client))
    }

    fn client(&self, client: ClientId) -> Option<&Client> {
        self.clients[self.slots.get(client)?].as_ref()
    }

    fn client_mut(&mut self, client: ClientId) -> Option<&mut Client> {
        let slot = self.slots.get(client)?;
        self.clients[slot].as_mut()
    }

    fn join(&mut self, client: ClientId, share: Share) -> Result<(), EventError> {
        if client.0 < self.next_id {
            return Err(EventError::DuplicateClient(client));
        }
        self.next_id = client.0 + 1;
        self.unit.add(share);
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        self.slots.set(client, slot);
        // A newcomer has nothing in this cycle, and its quota from the next: who leaves and joins anew earns nothing.
        self.clients[slot] = Some(Client::new(share, self.cycle, self.tick_min()));
        Ok(())
    }

    fn leave(&mut self, client: ClientId) -> Result<(), EventError> {
        let slot = self.slot(client)?;
        self.detach(client);
        self.unclaim(client);
        let Some(gone) = self.clients[slot].take() else { return Err(EventError::UnknownClient(client)) };
        if gone.awaits != Await::Nothing {
            self.owed -= 1;
        }
        self.unit.remove(gone.share);
        self.slots.clear(client);
        self.vacant.push(slot);
        self.dirty = true;
        Ok(())
    }

    fn reshare(&mut self, client: ClientId, share: Share) -> Result<(), EventError> {
        let slot = self.slot(client)?;
        self.refresh(slot); // What it has in this cycle is by its old share.
        self.requeued(client, |gate| {
            let Some(c) = gate.clients[slot].as_mut() else { return };
            gate.unit.remove(c.share);
            gate.unit.add(share);
            c.share = share;
        });
        Ok(())
    }

    fn widen(&mut self, client: ClientId, cpus: u32) -> Result<(), EventError> {
        let slot = self.slot(client)?;
        if cpus == 0 {
            return Err(EventError::ZeroWidth(client));
        }
        let width = cpus.min(self.params.cpus);
        self.requeued(client, |gate| {
            if let Some(c) = gate.clients[slot].as_mut() {
                (c.width, c.active) = (width, width);
            }
        });
        self.give_up_lanes(client, width);
        if self.clients[slot].as_ref().is_some_and(|c| c.place.runs()) {
            self.coming.push(client); // Where it is to run has changed.
        }
        Ok(())
    }

    /// A client was found to use so many CPUs at once. Fewer than it is thought to use count only if it had as many for
    /// itself, else others may have been in its way; and only if that lasts: threads take some milliseconds to find a CPU
    /// that has just become theirs. Who was thought to use fewer than it has threads for is tried with all of them again
    /// after a while: on fewer lanes nobody can be seen to use more.
    fn set_active(&mut self, now: Instant, client: ClientId, active: u32) {
        let Some(slot) = self.slots.get(client) else { return };
        let own = self.lanes.iter().filter(|&&head| head == Some(client)).count();
        let lanes = own + self.empty_lanes;
        let Some(c) = self.clients[slot].as_mut() else { return };
        let mut active = active.clamp(1, c.width);
        let narrower = active < c.active && lanes >= c.active as usize;
        if !narrower {
            c.narrow_since = None;
        }
        let lasts = narrower && now.since(*c.narrow_since.get_or_insert(now)) >= NARROW_TIME;
        if !narrower && c.active < c.width && now.since(c.narrowed) >= WIDE_AGAIN {
            active = c.width;
        }
        if active > c.active || lasts {
            (c.narrow_since, c.narrowed) = (None, now);
            self.requeued(client, |gate| {
                if let Some(c) = gate.clients[slot].as_mut() {
                    c.active = active;
                }
            });
            self.give_up_lanes(client, active);
        }
    }

    /// A head that has become narrower gives up the lanes that it cannot use, but not its first.
    fn give_up_lanes(&mut self, client: ClientId, lanes: u32) {
        let Some(Place::Head(first)) = self.client(client).map(|c| c.place) else { return };
        self.coming.push(client);
        let mut kept = 1;
        for (lane, head) in self.lanes.iter_mut().enumerate() {
            if *head == Some(client) && lane != first as usize {
                kept += 1;
                if kept > lanes {
                    *head = None;
                }
            }
        }
    }

    /// Changes a client's share or width, by which it is sorted and capped.
    fn requeued(&mut self, client: ClientId, change: impl FnOnce(&mut Self)) {
        self.awake_beside -= self.client(client).map_or(0, Client::awake_beside);
        let claims = self.unclaim(client);
        self.dequeue(client);
        change(self);
        self.awake_beside += self.client(client).map_or(0, Client::awake_beside);
        self.enqueue(client);
        if claims {
            self.claim(client);
        }
        self.dirty = true;
    }

    /// Charges `used`, and, if this answers a look, judges from it whether the client ran all the time.
    fn charge(&mut self, now: Instant, client: ClientId, used: Nanos) -> Result<(), EventError> {
        let slot = self.slot(client)?;
        self.refresh(slot);
        let rekey = self.clients[slot].as_ref().is_some_and(|c| c.place.waits()) && used.0 > 0;
        if rekey {
            self.dequeue(client);
        }
        let Some(c) = self.clients[slot].as_mut() else { return Err(EventError::UnknownClient(client)) };
        c.allowance -= i128::from(used.0);
        c.turn_used += used;
        c.used_since_look += used;
        self.consumed |= used.0 > 0;
        self.used_by_all += u128::from(used.0);
        let answers = c.awaits == Await::Charge;
        if rekey {
            self.enqueue(client);
        }
        if answers {
            self.judge(now, client);
        }
        self.dirty = true;
        Ok(())
    }

    /// A state was seen: the answer to [`Gate::Observe`], or news that the driver had anyway.
    fn on_state(&mut self, now: Instant, client: ClientId, blocked: bool) -> Result<(), EventError> {
        let slot = self.slot(client)?;
        let Some(c) = self.clients[slot].as_mut() else { return Err(EventError::UnknownClient(client)) };
        if c.awaits == Await::State {
            c.awaits = Await::Nothing;
            self.owed -= 1;
            if self.params.cpus > 1 && !blocked && matches!(c.place, Place::Head(_)) {
                self.disturbed.push(client);
            }
            // A change that a look finds was not told of: whoever told before may not any more.
            c.prompt &= c.blocked == blocked || now.since(c.heard) < wake::HEARD_FOR;
        } else if c.place != Place::Out && c.blocked == blocked {
            return Ok(());
        } else if self.params.cpus == 1 && c.place != Place::Out {
            (c.prompt, c.heard) = (true, now);
            self.dirty = true;
            if !blocked {
                self.wake(client);
                return Ok(());
            }
            (c.looked, c.last_used, c.used_since_look) = (now, now, Nanos::ZERO);
        }
        self.settle(now, client, blocked);
        self.dirty = true;
        Ok(())
    }

    /// Whether a decision is still about somebody; a measurement counts as asked for from now on.
    fn still_holds(&mut self, decision: Gate) -> bool {
        let (Gate::Release { client, .. }
        | Gate::Hold { client }
        | Gate::Measure { client }
        | Gate::Observe { client }) = decision
        else {
            return true;
        };
        let Some(c) = self.client_mut(client) else { return false };
        if let (Gate::Measure { .. }, Await::ToBeAsked) = (decision, c.awaits) {
            c.awaits = Await::Charge;
        }
        true
    }
}

impl Policy for Exact {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => self.join(client, share),
            Event::Leave { client } => self.leave(client),
            Event::Reshare { client, share } => self.reshare(client, share),
            Event::Width { client, cpus } => self.widen(client, cpus),
            Event::Charge { client, used } => self.charge(now, client, used),
            Event::Block { client } => self.on_state(now, client, true),
            Event::Wake { client } => self.on_state(now, client, false),
            Event::Free { cpu } => Err(EventError::UnknownCpu(cpu)),
        }
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        loop {
            while let Some(decision) = self.out.pop_front() {
                if self.still_holds(decision) {
                    return Some(decision);
                }
            }
            if self.owed > 0 {
                return None;
            }
            if !self.look(now) && !self.plan(now) {
                return None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.due.first().map(|&(at, _)| at);
        match (due, self.laxity_gone) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
