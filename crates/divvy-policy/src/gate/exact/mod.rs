//! The exact gate: event-driven proportional share of one CPU, one client released at a time. Ours, and the default; on several
//! CPUs [`Lag`](super::Lag) takes its place.
//!
//! **Problem.** ALPS looks at its clients once a quantum, so its error is whatever the kernel's slices did inside the
//! quantum: 1 to 20 % of a cycle. And it lets everybody run at once, so nothing bounds who does.
//!
//! **Idea.** A client that runs alone on its CPU uses exactly the time that passes. So release one client,
//! set the timer for the moment its allowance will run out, charge what it really used, hold it, release the next.
//! Only a client that blocks breaks the rule; one that was seen asleep is released beside the others from then on,
//! so that it can run whenever it wakes, and is looked at when it could be through.
//!
//! **Terms.** `Q` is the quantum, `q_i` the *quota* of client i for a cycle (its share in quanta, times Q; or, with
//! `share_time`, its share times that time: a client of less than a grain runs once it has collected two),
//! `allowance_i` what is left of it (ns; negative when more was used than was due), a *head* a client whose turn it is (one, or
//! several: *presence*), a *suspect* one seen asleep in this cycle or the last eight, and the *grain* (100 us) the least
//! allowance that is worth a hand-over.
//!
//! **Algorithm.**
//! 1. A head is looked at when its allowance (or slice) could be used up, and after a tick at the latest. The tick
//!    starts at Q/2 and doubles to 4Q while the client is found to have run all the time.
//! 2. A look charges the CPU time used. If it is less than the time that passed, the client's state is read: asleep
//!    makes it a suspect, whose turn ends but which may go on when it wakes.
//! 3. A client with at most a grain left is held, and the next runs: in fixed order, with slices by virtual time. Where the driver wakes when
//!    it asked for ([`set_punctual`](Policy::set_punctual)), a head that runs all the time is held with some 20 us left: it is looked at
//!    once more, shortly before the end, and nobody has what it leaves.
//! 4. The cycle ends when nobody can run. Sleepers forfeit what they did not use, all get another quota, debts and remainders
//!    carry over (at most one quota of credit). Replenishing is lazy, by cycle number; shares and units that change, and
//!    newcomers, count from the next cycle on.
//! 5. A driver may tell that a client fell asleep, or woke. Who woke runs at once, alone until it has caught up with the others
//!    in this cycle, and takes turns with whoever ran before while both want the CPU (`wake.rs`). A sleeper of which nobody
//!    tells, and under which alone the CPU idles for a quarter of the time, does not keep a cycle from ending: whoever
//!    computes goes on beside it.
//! 6. Where whoever is held has what the others leave ([`set_leftovers`](Policy::set_leftovers)), that is asked for when its turn comes, and
//!    charged up to a quota or 100 ms of debt; heads are looked at when they could be through, and not sooner than after 1 ms.
//!    While a suspect has some of its quota left, it has the CPU as soon as it wakes then: a head has what it leaves
//!    ([`Gate::Behind`]).
//!
//! **Bounds.** Let `l` be the lateness of one wake-up plus hand-over, and `g` the grain.
//! - At a cycle's end a client that always wanted the CPU has received its quotas of all cycles so far
//!   within `[-g, +l]`, however many they were (`errors_do_not_accumulate`).
//! - At any instant, without slices, its service error is at most `q_i * (1 - s_i / S) + l`, either way:
//!   the whole allowance runs in one go, as in weighted round robin (`error_at_any_instant_is_bounded`). With slices the
//!   others run in between (`slices_are_smoother`).
//! - The CPU idles beside a held client for at most the longest tick, 4Q, and an eighth of it that a look may not see,
//!   plus `l` (`a_cpu_idles_for_at_most_a_tick`); and for clients that were seen asleep in the last eight cycles for at most
//!   two looks, 1 ms each for every one awake (`a_known_sleeper_idles_a_cpu_for_at_most_two_looks`).
//!
//! **Cost.** One wake-up costs O(clients due + clients that change state): none of it depends on how many
//! clients are held. With slices the queue is sorted: O(log n) an operation. It is sorted anew, O(n log n),
//! when the greatest common divisor of the shares changes. A cycle's end visits the suspects that ran lately.
//!
//! **Properties.** (tests) the bounds above; `the_account_depends_only_on_the_total`, `a_rejected_event_changes_nothing`,
//! `scaled_shares_decide_the_same`, `leaving_and_rejoining_earns_nothing`, `debts_of_hours_are_repaid_in_one_call`,
//! `any_sequence_of_events_is_survived`.
//!
//! **Weak spots.** Against strangers the group competes as one process: raise the presence for more. A client that has spent
//! its allowance waits for the next cycle; slices shorten the wait for about four times the signals. Debts of a client that
//! leaves are forgotten. Hundreds of clients that wake for a ms or so cost a few per cent of a CPU once they want all of one.

mod client;
mod entry;
mod plan;
mod queue;
mod wake;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::observer::Looks;
pub use super::observer::{GRAIN, SLEEP_LOOK_MAX, SUSPECT_TICK};
use super::roster::{Await, Outbox, Roster};
use super::{GateParamError, Scale, ShareUnit, check_quantum};
use crate::{ClientId, Event, EventError, Gate, Instant, Nanos, Policy, Share};
use client::{Client, Place};
pub use entry::EXACT;
use queue::Waiting;

/// A client that wants the CPU and got nothing of it, for a stranger has it, is not looked at sooner than after this: 200 us.
const STARVED_LOOK: Nanos = Nanos::from_micros(200);
/// A way from one client to the next is not thought to take longer: 300 us.
const HAND_OVER_MAX: Nanos = Nanos::from_micros(300);
/// To hold and release clients of many threads takes at most one part in so many of a cycle, if the cycle can be so long.
const SWITCH_PARTS: u128 = 64;
/// No cycle is made longer for that than 250 ms: whoever is held waits for as long, and a machine that is slow for a while comes to its senses.
const SWITCH_CYCLE: Nanos = Nanos::from_millis(250);
/// For how many cycles a client that was seen asleep is released beside the heads.
pub const SUSPECT_CYCLES: u64 = 8;

/// How an [`Exact`] is made, or, for more than one CPU, a [`Lag`](super::Lag).
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

    /// CPU time of one unit of shares in one cycle, where these are so many clients and quanta, and to hold and release them takes `switch`.
    pub(super) fn share_time(&self, clients: usize, quanta: u128, switch: Nanos) -> Nanos {
        let (time, longest) = match (self.share_time, self.cycle_max) {
            (Some(time), _) => return time,
            (None, None) => return self.quantum,
            (None, Some(longest)) => (self.quantum, longest),
        };
        // Turns of slices are no longer in longer cycles.
        let switch = if self.slice.is_some() { Nanos::ZERO } else { switch };
        let (cpus, quanta) = (u128::from(self.cpus), quanta.max(1));
        let longest = (u128::from(longest.0) * cpus).max(clients as u128 * u128::from(self.quantum.0));
        let worth_it = (SWITCH_PARTS * u128::from(switch.0)).min(SWITCH_CYCLE.0.into()) * cpus / quanta;
        let time = u128::from(time.0).max(worth_it).min(longest / quanta);
        Nanos(u64::try_from(time).unwrap_or(u64::MAX).max(1))
    }
}

/// The exact gate; see the module's text.
#[derive(Clone, Debug)]
pub struct Exact {
    params: ExactParams,
    unit: ShareUnit,
    clients: Roster<Client>,
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
    /// Those whose turn it is: one, or as many as the presence says.
    heads: Vec<ClientId>,
    /// Suspects that ran in one of the last two cycles: looked at before a cycle ends.
    light: BTreeSet<ClientId>,
    /// How many suspects may run beside the heads, asleep or not.
    beside: u32,
    /// Heads have what suspects leave, as of the last plan.
    heads_give_way: bool,
    /// How many suspects use the CPU beside the heads, as far as is known: see [`Client::awake_beside`].
    awake_beside: u32,
    /// All light sleepers are not looked at before.
    next_ask: Instant,
    looks: Looks,
    /// How long it took lately until a client that was released ran.
    hand_over: Nanos,
    /// How many heads were missing after the last plan: suspects are looked at more often then.
    vacant_heads: usize,
    /// Who is held has what the others leave of the CPU.
    leftovers: bool,
    /// The driver wakes when it asked for.
    punctual: bool,
    /// What it takes to hold and release clients of many threads.
    switch_cost: Nanos,
    /// Since when one client has the CPU to itself, a suspect.
    alone_since: Option<Instant>,
    /// Told, or found, to have woken, and waiting until it is known how far the others are.
    waking: Vec<ClientId>,
    /// When it was last told who runs: heads that were looked at since need not be again.
    told: Instant,
    /// Who woke last, and in how many turns a quota is used while it competes; 1 for whole allowances.
    turns: Option<(ClientId, u64)>,
    /// Clients whose place changed to one where they are held; told once it is known that they are not released anew.
    leaving: Vec<ClientId>,
    /// Clients whose place changed to one where they run.
    coming: Vec<ClientId>,
    dirty: bool,
    end_checked: bool,
    out: Outbox,
}

impl Exact {
    /// A gate without clients.
    ///
    /// # Errors
    /// [`GateParamError`] names the parameter that is out of its range.
    pub fn new(params: ExactParams) -> Result<Self, GateParamError> {
        params.check()?;
        if params.cpus > 1 {
            return Err(GateParamError::SeveralCpus(params.cpus));
        }
        let waiting = Waiting::new(params.slice.is_some());
        let scale = if params.share_time.is_some() { Scale::AsGiven } else { params.scale };
        Ok(Self {
            unit: ShareUnit::new(scale),
            clients: Roster::default(),
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
            heads: Vec::new(),
            light: BTreeSet::new(),
            beside: 0,
            heads_give_way: false,
            awake_beside: 0,
            next_ask: Instant::ZERO,
            looks: Looks::default(),
            hand_over: Nanos::ZERO,
            vacant_heads: 0,
            leftovers: false,
            punctual: false,
            switch_cost: Nanos::ZERO,
            alone_since: None,
            waking: Vec::new(),
            told: Instant::ZERO,
            turns: None,
            leaving: Vec::new(),
            coming: Vec::new(),
            dirty: false,
            end_checked: false,
            out: Outbox::default(),
            params,
        })
    }

    fn heads_max(&self) -> usize {
        self.params.presence as usize
    }

    /// CPU time of one unit of shares in one cycle, with the clients that there are now.
    fn share_time(&self) -> Nanos {
        self.params.share_time(self.clients.len(), self.unit.total_quanta(), self.switch_cost)
    }

    fn join(&mut self, client: ClientId, share: Share) -> Result<(), EventError> {
        // A newcomer has nothing in this cycle, and its quota from the next: who leaves and joins anew earns nothing.
        self.clients.join(client, Client::new(share, self.cycle, self.tick_min()))?;
        self.unit.add(share);
        Ok(())
    }

    fn leave(&mut self, client: ClientId) -> Result<(), EventError> {
        self.detach(client);
        let mut gone = self.clients.leave(client)?;
        self.out.answered(&mut gone.awaits);
        self.unit.remove(gone.share);
        self.dirty = true;
        Ok(())
    }

    fn reshare(&mut self, client: ClientId, share: Share) -> Result<(), EventError> {
        let slot = self.clients.slot(client)?;
        self.refresh(slot); // What it has in this cycle is by its old share.
        self.dequeue(client);
        if let Some(c) = self.clients.at_mut(slot) {
            self.unit.remove(c.share);
            self.unit.add(share);
            c.share = share;
        }
        self.enqueue(client);
        self.dirty = true;
        Ok(())
    }

    /// Charges `used`, and, if this answers a look, judges from it whether the client ran all the time.
    fn charge(&mut self, now: Instant, client: ClientId, used: Nanos) -> Result<(), EventError> {
        let slot = self.clients.slot(client)?;
        self.refresh(slot);
        let rekey = self.clients.at(slot).is_some_and(|c| c.place.waits()) && used.0 > 0;
        if rekey {
            self.dequeue(client);
        }
        let Some(c) = self.clients.at_mut(slot) else { return Err(EventError::UnknownClient(client)) };
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
        let slot = self.clients.slot(client)?;
        if blocked {
            self.waking.retain(|&waking| waking != client); // It sleeps again.
        }
        let Some(c) = self.clients.at_mut(slot) else { return Err(EventError::UnknownClient(client)) };
        if c.awaits == Await::State {
            self.out.answered(&mut c.awaits);
            // A change that a look finds was not told of: whoever told before may not any more.
            c.prompt &= c.blocked == blocked || now.since(c.heard) < wake::HEARD_FOR;
        } else if c.place != Place::Out && c.blocked == blocked {
            return Ok(());
        } else if c.place != Place::Out {
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
}

impl Policy for Exact {
    type Decision = Gate;

    fn set_leftovers(&mut self, used: bool) {
        self.dirty |= self.leftovers != used;
        self.leftovers = used;
    }

    fn set_switch_cost(&mut self, cost: Nanos) {
        self.switch_cost = cost;
    }

    fn set_punctual(&mut self, punctual: bool) {
        self.punctual = punctual;
    }

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => self.join(client, share),
            Event::Leave { client } => self.leave(client),
            Event::Reshare { client, share } => self.reshare(client, share),
            Event::Width { client, cpus: 0 } => Err(EventError::ZeroWidth(client)),
            // On one CPU however many threads count as one.
            Event::Width { client, .. } => self.clients.slot(client).map(|_| ()),
            Event::Charge { client, used } => self.charge(now, client, used),
            Event::Block { client } => self.on_state(now, client, true),
            Event::Wake { client } => self.on_state(now, client, false),
            Event::Free { cpu } => Err(EventError::UnknownCpu(cpu)),
        }
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        loop {
            if let Some(decision) = self.out.next(&mut self.clients) {
                return Some(decision);
            }
            if self.out.is_owed() {
                return None;
            }
            if !self.look(now) && !self.plan(now) {
                return None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.looks.next()
    }

    fn balance(&self, client: ClientId) -> Option<i128> {
        let c = self.clients.get(client)?;
        // Replenishing is lazy, and a share that changed since counts from the next cycle on.
        let passed = i128::from(self.cycle - c.epoch);
        Some(if passed == 0 { c.allowance - c.granted } else { c.allowance + self.quota(c) * (passed - 1) })
    }
}
