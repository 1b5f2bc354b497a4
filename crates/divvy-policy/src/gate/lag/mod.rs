//! The exact gate for several CPUs: clients are released in order of lag until their runnable threads cover the CPUs.
//!
//! **Problem.** A client of several threads and processes uses as many CPUs as it has threads that are awake, and these come
//! and go within a millisecond. Whoever gives it CPUs of its own has to know how many it can use before it has them: to guess
//! that from what it used on fewer confirms the guess, and a pair of threaded programs ends upside down.
//!
//! **Idea.** Give away time, not places. Where the kernel counts a client's time exactly, it does not matter on which CPUs its
//! threads ran, or beside whom. So count the threads that want to run, release clients until these are as many as there are
//! CPUs, charge each what it really used, and hold whoever has had its due. What was too much or too little is carried.
//!
//! **Terms.** `Q`, *quota*, *allowance* and *grain* are those of [`exact`](super::exact): a client's allowance is its lag at the end
//! of the cycle. Its *cover* is how many CPUs its runnable threads are thought to use: as many as were counted, smoothed
//! downwards over some 10 ms. Its *reach* is the most that it covered in the last tenths of a second; one CPU where more than one
//! thread was found for moments only, as of a shell and its child. Its *need* is the time that
//! its allowance takes at its reach, a 1024th of it where it can use all CPUs: it is through in time as long as any is left. A
//! *sleeper* is a client of one thread that was seen asleep in this cycle or the last eight, and is asleep now, or was an eighth of
//! the last 100 ms.
//!
//! **Algorithm.**
//! 1. Clients with allowance are released, the largest need first, until their covers add up to the CPUs. Of those that can use all CPUs
//!    whoever was the last to run in the cycle before comes first, which saves a hand-over a cycle
//!    (`who_comes_last_in_a_cycle_goes_on_with_the_next`). Sleepers with allowance are released beside them, so that they run when they
//!    wake.
//! 2. A client is looked at when its allowance (or slice) could be used up, and after a tick at the latest, Q/2 to 4Q. A look
//!    charges the CPU time used. Where that is less than its threads could have used, they are counted; of who is kept to some of the
//!    CPUs at most every 25 ms.
//!    Where one may be through, those who were kept to some of the CPUs beside it are looked at as well
//!    (`who_was_kept_apart_is_looked_at_with_whoever_is_through`).
//! 3. Who has at most a grain left is held until the next cycle; on up to 8 CPUs, without whole ones (9.), who computes, is not
//!    capped and has less than .3 ms on the CPUs that it uses, and less than a sixteenth of its quota: what it takes to look is as much
//!    (`who_has_little_left_is_not_looked_at_once_more`). So is, for now, whoever can wait longest, where the others cover
//!    the CPUs without it.
//! 4. A waiting client whose laxity (the time that is left on each CPU, minus its need) is gone is released in the place of
//!    whoever can wait longest. Where turns are slices those who wait are sorted by when they would be through, and only the
//!    first is looked at.
//! 5. The cycle ends when those with allowance do not cover the CPUs: all get another quota. Allowances and debts carry over;
//!    credit up to a quota or 100 ms, whichever is more. A client that sleeps forfeits it.
//! 6. Where CPUs are seen idle though the covers say that they are not, a little more is asked of the covers: an integral with a
//!    short memory.
//! 7. A client of one thread is sent to a CPU that no other such client has: the kernel leaves two of them on one CPU for
//!    milliseconds. On up to 8 CPUs those of several threads are sent to the others meanwhile, and, where they want more CPUs than
//!    there are, the neediest to CPUs of its own; whoever can use all CPUs gets what is left. Sleepers run wherever the kernel finds
//!    room: if they are in the way of the neediest client of one thread, it changes places with the one that can wait longest. So it does where
//!    a stranger is, as soon as it has no time to lose (`strangers_on_many_cpus_idle_none`). Nobody else is sent anywhere.
//!    While a client naps, and those that are capped leave two CPUs or more, its time is taken from whoever computes where it wakes:
//!    each of those keeps the last 5 ms of its part (half of it at most) until nobody waits who has more, so that all have something
//!    left that makes up for it (`who_naps_does_not_spoil_the_cycles_of_others`). What the napping one will use until the cycle's end is
//!    thought to be what it mostly uses.
//! 8. Quotas are water-filled over the reaches ([`crate::feasible`]). A client whose share asks for all that it can use runs all the
//!    time: it is first of all, is never held, and keeps neither credit nor debt. Where such clients have all CPUs, and somebody wakes
//!    that slept when that was found, it is found anew (`who_wakes_beside_capped_clients_is_let_run`). Where one is left beside them,
//!    and these have all that they can use, nobody waits for anybody: looks are a tick apart, and cycles as long
//!    (`what_nobody_waits_for_is_looked_at_a_tick_apart`).
//!    Where less than 15/16 of what their runnable threads could have used was theirs, strangers take the rest: who is capped is held when it
//!    has had its part of the cycle then, as others are (`strangers_leave_shares_as_they_are`).
//! 9. Where there are more than two CPUs, a client of several threads, and nobody who sleeps (nor, on up to 8 CPUs, strangers), all have whole CPUs of their own,
//!    as many as they need until the cycle ends, rounded down, and turns on one more for the rest. They are told to keep to these,
//!    whoever takes a CPU over is there before the other is held, and cycles are stretched to up to 160 ms. Whoever is capped, and
//!    short of some of its CPU, changes places with one that can make up for it, one client a cycle.
//! 10. Where whoever is held has what the others leave ([`set_leftovers`](Policy::set_leftovers)), that is asked for at its release, and
//!     charged up to a quota or 100 ms of debt. Cycles are twice as long then, nobody is looked at sooner than after 2 ms, and
//!     nobody of several threads is sent anywhere: whose threads are more than the CPUs that the others leave is held in its turn too, and
//!     so has these. Where strangers take three quarters of these it is released as others are, for two seconds
//!     (`whom_strangers_leave_nothing_comes_as_others_do`).
//!
//! **Bounds.** Let `l` be the lateness of one wake-up and `g` the grain.
//! - At a cycle's end clients that always use what they cover have received their quotas of all cycles so far within what
//!   the last one had left, at most one quota or 100 ms (`errors_do_not_accumulate_on_several_cpus`). Of that up to a sixteenth of
//!   a quota is what no look was worth.
//! - Inside a cycle a client is at most its quota off, and what it used beyond its cover until it was looked at.
//! - A CPU idles beside a held client for a tick, its eighth and the lateness of the look at its end, 50 ms where clients have one
//!   thread each; with several, one or two looks more, 70 ms (`a_cpu_idles_for_at_most_a_tick`,
//!   `a_cpu_of_its_own_idles_for_at_most_a_tick`). Three ticks of Q/2 where two CPUs have three who compute and two who sleep
//!   (`a_cpu_idles_for_at_most_three_ticks`). Where all have whole CPUs of their own, and there are more than 16, a tick is up to 8Q,
//!   on more than 32 up to 10Q.
//!
//! - While all clients compute, and cycles are as long as 9. says, each has what it is due within .3 ms a cycle and what the looks and
//!   the kernel's moving of threads cost it (`random_shares_and_threads_get_the_capped_optimum`: 1.5 %).
//!
//! **Properties.** (tests) the bounds above; whatever programs do, and however they are counted, nobody who is awake waits for longer
//! than some cycles (`nobody_waits_for_ever`); `whole_cpus_are_given_up_where_threads_come_and_go`,
//! `infeasible_shares_are_capped`, `scaled_shares_decide_the_same`,
//! `leaving_and_rejoining_earns_nothing`, `a_rejected_event_changes_nothing`, `nobody_shares_a_cpu_of_its_own`,
//! `debts_of_hours_are_repaid_in_one_call`, `any_sequence_of_events_is_survived`.
//!
//! **Cost.** One wake-up costs O(CPUs + clients due + clients that change state), and O(log n) for each of the last two. Where
//! all have whole CPUs of their own, it is O(CPUs^2) when somebody's number changes, twice a cycle for each that runs.
//!
//! **Weak spots.** A client whose threads rest for less than a tick is released alone where its share says so, and what rests is
//! lost or, by the integral, given to the others: a pool of tiny tasks at 3:1 uses 93 to 97 % of what the kernel's weights use.
//! On more than 8 CPUs, where somebody sleeps, whoever is due all of a CPU beside clients of more threads gets what the kernel gives
//! it there, and where threads do not fit side by side single cycles are up to 17 % off. There strangers leave whoever is
//! due a whole CPU beside clients of several threads 10 % more than the others. Who naps for a ms beside threads finds one of them on its CPU,
//! and shares that with it until the next look: a loop of compilers at 3:1 gets 85 % of a CPU. Strangers count as CPUs that are
//! used: the group competes as so many threads as there are CPUs, times the presence.

mod behind;
mod client;
mod cover;
mod level;
mod place;
mod plan;
mod shares;

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::exact::ExactParams;
use super::observer::Looks;
pub use super::observer::{GRAIN, SLEEP_LOOK_MAX, SUSPECT_TICK as SLEEPER_TICK};
use super::roster::{Await, Outbox, Roster};
use super::{GateParamError, Scale, ShareUnit};
use crate::{ClientId, Event, EventError, Gate, Instant, Nanos, Policy, Share};
use client::{Client, Place};
pub(crate) use cover::Cpus;

/// Credit that is carried from cycle to cycle, if a quota is less: 100 ms.
pub const CREDIT: Nanos = Nanos::from_millis(100);
/// For how many cycles a client of one thread that was seen asleep is released beside the others.
pub const SLEEPER_CYCLES: u64 = 8;
/// Threads are counted this often though nothing says that they have changed.
pub const COUNT_INTERVAL: Nanos = Nanos::from_millis(100);
/// The same of a client that is kept to some of the CPUs: it uses all of these with fewer threads too.
pub const CONFINED_COUNT_INTERVAL: Nanos = Nanos::from_millis(25);
/// A client that used all but so much of the time used all of it.
const RATE_MARGIN: Nanos = Nanos::from_micros(100);

/// The gate by lag; see the module's text.
#[derive(Clone, Debug)]
pub struct Lag {
    params: ExactParams,
    unit: ShareUnit,
    clients: Roster<Client>,
    /// The cycle that is under way.
    cycle: u64,
    /// What one quantum stands for in this cycle; joins and leaves change it at the next.
    unit_now: u64,
    /// CPU time of that in this cycle.
    time_now: Nanos,
    /// How long a cycle is on each CPU that capped clients leave, ns; 0 before the first.
    length: i128,
    /// Cycles ended in which something was used.
    cycles_ended: u64,
    consumed: bool,
    /// Held, with allowance in this cycle, the largest need first; where turns are slices, whoever would be through first.
    ready: BTreeSet<(Reverse<i128>, ClientId)>,
    /// Allowances of those who are held and not capped, ns.
    ready_work: i128,
    /// Held, through with this cycle; by the need that they will have in the next.
    next: BTreeSet<(Reverse<i128>, ClientId)>,
    next_work: i128,
    /// Sleepers that are through with this cycle: released again as soon as it ends.
    next_sleepers: Vec<ClientId>,
    /// Released, but for sleepers that have not run in this cycle and the last.
    running: BTreeSet<ClientId>,
    looks: Looks,
    /// Since when all that run are looked at, before the cycle ends.
    asked_running: Option<Instant>,
    /// When a waiting client's laxity will be gone.
    laxity_gone: Option<Instant>,
    /// Clients of one thread by the CPUs that they were sent to.
    singles: Vec<place::Singles>,
    /// CPUs that such clients have left since the driver was last told all.
    vacated: Vec<u32>,
    /// Who runs has changed since clients of several threads were last sent to CPUs.
    crowd_changed: bool,
    /// They want more CPUs than there are.
    crowded: bool,
    /// Clients of one thread that were found runnable on their CPUs without having had them to themselves.
    disturbed: Vec<ClientId>,
    spare: cover::Spare,
    service: cover::Service,
    /// Who is held has what the others leave of the CPUs.
    leftovers: bool,
    /// What it takes to hold and release clients of many threads.
    switch_cost: Nanos,
    /// Nobody is left who could be released for the CPUs that are not covered.
    uncovered: bool,
    /// Nobody is held, nor will be: all but one of those who run are capped, and have all that they can use.
    lone: bool,
    /// Clients that were found with more than one runnable thread when they were counted last.
    wide: u32,
    /// Somebody who runs naps, beside others who have two CPUs or more.
    naps: bool,
    level: level::Level,
    leaving: Vec<ClientId>,
    coming: Vec<ClientId>,
    dirty: bool,
    /// Clients that take part in the water-filling, the widest claim first.
    claims: BTreeSet<(Reverse<u128>, ClientId)>,
    claimed_shares: u128,
    capped: Vec<ClientId>,
    out: Outbox,
}

impl Lag {
    /// A gate without clients.
    ///
    /// # Errors
    /// [`GateParamError`] names the parameter that is out of its range.
    pub fn new(params: ExactParams) -> Result<Self, GateParamError> {
        params.check()?;
        let scale = if params.share_time.is_some() { Scale::AsGiven } else { params.scale };
        Ok(Self {
            unit: ShareUnit::new(scale),
            clients: Roster::default(),
            cycle: 0,
            unit_now: 1,
            time_now: params.share_time.unwrap_or(params.quantum),
            length: 0,
            cycles_ended: 0,
            consumed: false,
            ready: BTreeSet::new(),
            ready_work: 0,
            next: BTreeSet::new(),
            next_work: 0,
            next_sleepers: Vec::new(),
            running: BTreeSet::new(),
            looks: Looks::default(),
            asked_running: None,
            laxity_gone: None,
            singles: vec![place::Singles::default(); params.cpus as usize],
            vacated: Vec::new(),
            crowd_changed: false,
            crowded: false,
            disturbed: Vec::new(),
            spare: cover::Spare::new(params.cpus),
            service: cover::Service::default(),
            leftovers: false,
            switch_cost: Nanos::ZERO,
            uncovered: false,
            lone: false,
            wide: 0,
            naps: false,
            level: level::Level::default(),
            leaving: Vec::new(),
            coming: Vec::new(),
            dirty: false,
            claims: BTreeSet::new(),
            claimed_shares: 0,
            capped: Vec::new(),
            out: Outbox::default(),
            params,
        })
    }

    fn join(&mut self, client: ClientId, share: Share) -> Result<(), EventError> {
        // A newcomer has nothing in this cycle, and its quota from the next: who leaves and joins anew earns nothing.
        self.clients.join(client, Client::new(share, self.cycle, self.tick_min()))?;
        self.unit.add(share);
        Ok(())
    }

    fn leave(&mut self, client: ClientId) -> Result<(), EventError> {
        self.detach(client);
        self.unclaim(client);
        self.leave_cpu(client);
        let mut gone = self.clients.leave(client)?;
        self.out.answered(&mut gone.awaits);
        self.unit.remove(gone.share);
        self.wide -= u32::from(gone.width > 1);
        self.capped.retain(|&other| other != client);
        self.dirty = true;
        Ok(())
    }

    fn reshare(&mut self, client: ClientId, share: Share) -> Result<(), EventError> {
        let slot = self.clients.slot(client)?;
        self.refresh(slot); // What it has in this cycle is by its old share.
        self.requeued(client, |gate| {
            let Some(c) = gate.clients.at_mut(slot) else { return };
            gate.unit.remove(c.share);
            gate.unit.add(share);
            c.share = share;
        });
        Ok(())
    }

    /// So many threads were counted. The sample is taken with the answer to a look; more than were known count at once.
    fn widen(&mut self, now: Instant, client: ClientId, cpus: u32) -> Result<(), EventError> {
        let slot = self.clients.slot(client)?;
        if cpus == 0 {
            return Err(EventError::ZeroWidth(client));
        }
        let width = cpus.min(self.params.cpus);
        self.requeued(client, |gate| {
            let Some(c) = gate.clients.at_mut(slot) else { return };
            gate.wide = gate.wide + u32::from(width > 1) - u32::from(c.width > 1);
            let before = Cpus::whole(core::mem::replace(&mut c.width, width));
            if Cpus::whole(width) >= c.parallel {
                c.sample_change(now, before, Cpus::whole(width));
            }
            c.seen = c.seen.min(1) * width;
        });
        if self.clients.get(client).is_some_and(|c| c.place == Place::Running) {
            self.coming.push(client); // It may be too wide for the CPU that it was sent to.
            self.crowd_changed = true;
        }
        Ok(())
    }

    /// Changes what a client is sorted and capped by.
    fn requeued(&mut self, client: ClientId, change: impl FnOnce(&mut Self)) {
        let claims = self.unclaim(client);
        self.dequeue(client);
        change(self);
        self.enqueue(client);
        if claims {
            self.claim(client);
        }
        self.dirty = true;
    }

    /// Charges `used`, and, if this answers a look, judges from it whether the client used all that it could.
    fn charge(&mut self, now: Instant, client: ClientId, used: Nanos) -> Result<(), EventError> {
        let slot = self.clients.slot(client)?;
        self.refresh(slot);
        let rekey = self.clients.at(slot).is_some_and(|c| matches!(c.place, Place::Waiting(_))) && used.0 > 0;
        if rekey {
            self.dequeue(client);
        }
        let Some(c) = self.clients.at_mut(slot) else { return Err(EventError::UnknownClient(client)) };
        c.allowance -= i128::from(used.0);
        c.turn_used += used;
        c.used_since_look += used;
        self.consumed |= used.0 > 0;
        self.service.charge(used);
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
        let (tick_min, tick_max, lone) = (self.tick_min(), self.tick_max(), self.lone);
        let Some(c) = self.clients.at_mut(slot) else { return Err(EventError::UnknownClient(client)) };
        if c.awaits == Await::State {
            self.out.answered(&mut c.awaits);
            c.counted = Some(now);
            c.seen = if blocked { 0 } else { c.width };
            let seen = Cpus::whole(c.seen);
            if !blocked && c.slowed && c.cpu.is_some() {
                self.disturbed.push(client);
            }
            // Fewer than it was thought to have: it is looked at soon again. As many, and only others are in its way: later.
            if seen < c.parallel {
                c.tick = tick_min;
            } else if c.slowed && lone {
                c.tick = Nanos(c.tick.0.saturating_mul(2)).min(tick_max);
            }
            self.resample(client, |c| c.sample_count(now, seen));
        } else if c.place != Place::Out && c.blocked == blocked {
            return Ok(());
        }
        self.settle(now, client, blocked);
        self.dirty = true;
        Ok(())
    }
}

impl Policy for Lag {
    type Decision = Gate;

    fn set_leftovers(&mut self, used: bool) {
        (self.leftovers, self.crowd_changed, self.dirty) = (used, true, true);
    }

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => self.join(client, share),
            Event::Leave { client } => self.leave(client),
            Event::Reshare { client, share } => self.reshare(client, share),
            Event::Width { client, cpus } => self.widen(now, client, cpus),
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
        let due = self.looks.next();
        match (due, self.laxity_gone) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn set_switch_cost(&mut self, cost: Nanos) {
        self.switch_cost = cost;
    }

    fn capped(&self) -> &[ClientId] {
        // With whole CPUs of their own nobody is in their way, and where strangers are they are held like others.
        if self.level.on || self.service.robbed { &[] } else { &self.capped }
    }
}
