//! Any dispatcher as a gate: whoever it grants a CPU is released, everybody else is held.
//!
//! **Problem.** Dispatchers (VTRR, PBS, FCFS, lottery, ...) say who runs next on a CPU and for how long. A gate above a
//! kernel is never asked for the next client: it sees only how far clients got, and whether they sleep, by looking.
//!
//! **Idea.** A client that runs alone on its CPU uses the time that passes. So its grant is over, or it blocked: when the
//! slice could be used up, and after a *tick* at the latest, read its clock; where it got less than what passed, its state.
//! What was seen becomes the dispatcher's events, and what the dispatcher answers becomes holds and releases.
//!
//! **Terms.** A *lane* is one of the dispatcher's CPUs, a *head* the client that was granted one. A *sleeper* is a client
//! that the dispatcher was told is blocked. `Q` is the quantum, the *grain* (100 us) what is not worth a hand-over.
//!
//! **Algorithm.**
//! 1. A head is looked at when its slice could be used up by the CPU time that it gets, and after its tick: Q/2 at first,
//!    doubled to 4Q while it is found to have run all the time; 1 ms once it was seen asleep, until it has used Q since.
//!    `Charge` is what was measured.
//! 2. A head that has at most a grain of its slice left, or is seen asleep, loses its lane: the dispatcher is told `Free`
//!    (and `Block`) and grants it anew, to the same client or another. All heads are charged before.
//! 3. A sleeper stays released, so that it can wake at all. Its clock is read when an eighth of the time that it has slept
//!    has passed again, between 1 ms and 100 ms. If it has run, its state is read: awake, it is told of as `Wake`, and
//!    held unless the dispatcher grants it a lane; asleep again after more than a grain, as `Wake`, `Charge`, `Block`: that
//!    is how the sessions of PBS begin.
//! 4. Where a head of several threads was found to use several CPUs, the heads that were granted theirs last wait, held,
//!    until there is a CPU for them. What it uses is charged to it, so that its slice ends sooner.
//!
//! **Properties.** (tests) `whoever_is_granted_a_cpu_is_released_and_nobody_else`, `a_slice_is_cpu_time`,
//! `the_account_depends_only_on_the_total`, `a_rejected_event_changes_nothing`, `any_sequence_of_events_is_survived`,
//! `a_sleepers_cpu_goes_to_the_next`, `a_blip_of_a_sleeper_is_a_session`; in simulation
//! `every_dispatcher_serves_as_on_a_machine_of_its_own`, `a_cpu_idles_for_at_most_a_tick_under_any_dispatcher`.
//!
//! **Weak spots.** What blocks for less than an eighth of a look, or between two looks, is not seen: the dispatcher takes
//! it to have run. A sleeper that wakes competes with the heads until it is looked at. A slice is CPU time: a stranger
//! makes it longer, not smaller. Where a dispatcher never takes a CPU away, a client that was asleep waits for the end of
//! somebody's slice. One released for each CPU competes with strangers as one process for each CPU.

mod client;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use self::client::{Client, Lane};
use super::observer::{GRAIN, Looks, SLEEP_GRID, SUSPECT_TICK, ran_on, sleep_look};
use super::roster::{Await, Outbox};
use super::{GateParamError, check_quantum};
use crate::{ClientId, CpuId, Event, EventError, Gate, Grant, Instant, Nanos, Policy};

/// How a [`Dispatched`] is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchedParams {
    /// Q: what the ticks are made of, 1 ms to 10 s. The slices are the dispatcher's own.
    pub quantum: Nanos,
    /// CPUs that are divided, 1 to 4096: as many as the dispatcher was made for.
    pub cpus: u32,
}

/// The gate that a dispatcher makes; see the module's text.
#[derive(Clone, Debug)]
pub struct Dispatched<D> {
    dispatcher: D,
    params: DispatchedParams,
    clients: BTreeMap<ClientId, Client>,
    lanes: Vec<Lane>,
    /// The lane that stands for each CPU.
    lane_of_cpu: Vec<u32>,
    looks: Looks,
    /// Clients that can use several CPUs.
    nr_wide: usize,
    /// Some head may wait for another that uses several CPUs.
    shared_out: bool,
    /// Grants so far.
    grants: u64,
    /// Sleepers that were found awake, or to have been; the dispatcher has not been told.
    woken: Vec<ClientId>,
    /// All heads have been asked for since the dispatcher was last told anything.
    heads_asked: bool,
    /// Clients that lost their lane, or blocked while they were held.
    leaving: Vec<ClientId>,
    /// Clients that were granted one.
    coming: Vec<ClientId>,
    dirty: bool,
    out: Outbox,
}

impl<D: Policy<Decision = Grant>> Dispatched<D> {
    /// A gate without clients around `dispatcher`, which must not have had any event, and was made for as many CPUs.
    ///
    /// # Errors
    /// [`GateParamError::Quantum`], [`GateParamError::Cpus`].
    pub fn new(dispatcher: D, params: DispatchedParams) -> Result<Self, GateParamError> {
        check_quantum(params.quantum)?;
        if params.cpus == 0 || params.cpus > 4096 {
            return Err(GateParamError::Cpus(params.cpus));
        }
        Ok(Self {
            dispatcher,
            params,
            clients: BTreeMap::new(),
            lanes: (0..params.cpus).map(Lane::empty).collect(),
            lane_of_cpu: (0..params.cpus).collect(),
            looks: Looks::default(),
            nr_wide: 0,
            shared_out: false,
            grants: 0,
            woken: Vec::new(),
            heads_asked: false,
            leaving: Vec::new(),
            coming: Vec::new(),
            dirty: false,
            out: Outbox::default(),
        })
    }

    /// The dispatcher, for whoever wants to look at it.
    pub fn dispatcher(&self) -> &D {
        &self.dispatcher
    }

    fn tick_min(&self) -> Nanos {
        Nanos(self.params.quantum.0 / 2)
    }

    fn tick_max(&self) -> Nanos {
        Nanos(self.params.quantum.0.saturating_mul(4))
    }

    fn known(&self, client: ClientId) -> Result<&Client, EventError> {
        self.clients.get(&client).ok_or(EventError::UnknownClient(client))
    }

    /// Tells the dispatcher of something that it must accept, since it knows the same clients and CPUs.
    fn pass_on(&mut self, now: Instant, event: Event) {
        let told = self.dispatcher.on_event(now, event);
        debug_assert_eq!(told, Ok(()), "{event:?}");
    }

    fn leave(&mut self, now: Instant, client: ClientId) -> Result<(), EventError> {
        self.dispatcher.on_event(now, Event::Leave { client })?;
        self.disarm(client);
        self.take_off(client);
        if let Some(mut c) = self.clients.remove(&client) {
            self.out.answered(&mut c.awaits);
            self.nr_wide -= usize::from(c.width > 1);
        }
        Ok(())
    }

    fn widen(&mut self, now: Instant, client: ClientId, cpus: u32) -> Result<(), EventError> {
        self.dispatcher.on_event(now, Event::Width { client, cpus })?;
        if let Some(c) = self.clients.get_mut(&client) {
            self.nr_wide -= usize::from(c.width > 1);
            c.width = cpus.min(self.params.cpus);
            c.active = c.width;
            self.nr_wide += usize::from(c.width > 1);
        }
        Ok(())
    }

    fn charge(&mut self, now: Instant, client: ClientId, used: Nanos) -> Result<(), EventError> {
        self.known(client)?;
        let Some(c) = self.clients.get_mut(&client) else { return Ok(()) };
        c.used_since_look += used;
        if c.lane.is_some() {
            c.slice_used += used;
        }
        c.used_since_sleep += used;
        let answers = c.awaits == Await::Charge;
        if c.blocked {
            c.withheld += used; // Whether it woke for that, its state tells.
        } else {
            self.pass_on(now, Event::Charge { client, used });
        }
        if answers {
            self.judge(now, client);
        }
        Ok(())
    }

    /// A look was answered with a charge: did a head run all the time, did a sleeper run at all?
    fn judge(&mut self, now: Instant, client: ClientId) {
        let (tick_min, tick_max, quantum) = (self.tick_min(), self.tick_max(), self.params.quantum);
        let Some(c) = self.clients.get_mut(&client) else { return };
        let elapsed = now.since(c.looked);
        let used = core::mem::take(&mut c.used_since_look);
        c.looked = now;
        if used.0 > 0 {
            c.last_used = now;
        }
        if c.blocked {
            // A sleeper that used nothing sleeps on: its state need not be read.
            return self.answered(client, used.0 > 0);
        }
        c.over = c.slice_used + GRAIN >= c.slice;
        let all = ran_on(used, elapsed);
        // Runs of several threads: an eighth of a CPU is none.
        let cpus = used.0.saturating_add(elapsed.0 - elapsed.0 / 8).checked_div(elapsed.0);
        let cpus = cpus.map_or(c.active, |cpus| u32::try_from(cpus).unwrap_or(u32::MAX).clamp(1, c.width));
        let steady = all && (c.width == 1 || cpus >= c.active);
        if !steady {
            c.tick = c.tick.min(tick_min);
        } else if elapsed >= c.tick && c.used_since_sleep >= quantum {
            c.tick = Nanos(c.tick.0.saturating_mul(2)).min(tick_max);
        }
        // Fewer CPUs than it is thought to use count only if it had as many for itself.
        if c.width > 1 && (cpus > c.active || cpus < c.active && c.cpus >= c.active) {
            c.active = cpus;
        }
        self.answered(client, !all);
    }

    /// The clock was read; the state is to be read too, or nothing more.
    fn answered(&mut self, client: ClientId, observe: bool) {
        let Some(c) = self.clients.get_mut(&client) else { return };
        if observe {
            self.out.observe(client, &mut c.awaits);
        } else {
            self.out.answered(&mut c.awaits);
            self.arm(client);
        }
    }

    fn on_state(&mut self, now: Instant, client: ClientId, blocked: bool) -> Result<(), EventError> {
        self.known(client)?;
        let Some(c) = self.clients.get_mut(&client) else { return Ok(()) };
        if c.awaits == Await::State {
            self.out.answered(&mut c.awaits);
        }
        match (c.blocked, blocked) {
            (false, true) => self.block(now, client),
            (true, false) => {
                if !core::mem::replace(&mut c.awake, true) {
                    self.woken.push(client);
                }
            }
            (true, true) => {
                c.awake = false;
                if c.withheld > GRAIN {
                    self.woken.push(client); // It was awake in between.
                } else if c.withheld > Nanos::ZERO {
                    // The way to its sleep.
                    let used = core::mem::take(&mut c.withheld);
                    self.pass_on(now, Event::Charge { client, used });
                }
            }
            (false, false) => {}
        }
        self.arm(client);
        Ok(())
    }

    fn block(&mut self, now: Instant, client: ClientId) {
        self.pass_on(now, Event::Block { client });
        self.take_off(client);
        if let Some(c) = self.clients.get_mut(&client) {
            c.blocked = true;
            (c.tick, c.used_since_sleep) = (SUSPECT_TICK, Nanos::ZERO);
            (c.looked, c.last_used) = (now, now);
        }
        self.leaving.push(client);
    }

    /// Tells the dispatcher who woke, and what they used; and who woke and sleeps again.
    fn wake(&mut self, now: Instant) {
        for client in core::mem::take(&mut self.woken) {
            let Some(c) = self.clients.get_mut(&client) else { continue };
            if !c.blocked || !c.awake && c.withheld.0 == 0 {
                continue;
            }
            let (awake, used) = (core::mem::take(&mut c.awake), core::mem::take(&mut c.withheld));
            c.blocked = !awake;
            c.joined = false;
            self.pass_on(now, Event::Wake { client });
            if used.0 > 0 {
                self.pass_on(now, Event::Charge { client, used });
            }
            if !awake {
                self.pass_on(now, Event::Block { client });
            }
            // Held, unless it is granted a lane.
            self.leaving.push(client);
        }
    }

    fn ask(&mut self, client: ClientId) {
        self.disarm(client);
        if let Some(c) = self.clients.get_mut(&client) {
            self.out.measure(client, &mut c.awaits);
        }
    }

    /// Asks for the clocks of those who are due; and of all heads, before anything is decided. Says whether answers are
    /// owed.
    fn look(&mut self, now: Instant) -> bool {
        let mut any = !self.woken.is_empty();
        while let Some(client) = self.looks.due(now) {
            self.ask(client);
            self.dirty = true;
            any = true;
        }
        if any && !core::mem::replace(&mut self.heads_asked, true) {
            for lane in 0..self.lanes.len() {
                if let Some(client) = self.lanes[lane].client
                    && self.clients.get(&client).is_some_and(|c| c.released)
                {
                    self.ask(client);
                }
            }
        }
        self.out.is_owed()
    }

    /// Everybody is charged: the dispatcher is told who woke and which CPUs are free, and asked whom it grants them.
    fn decide(&mut self, now: Instant) -> bool {
        if !core::mem::take(&mut self.dirty) {
            return false;
        }
        self.heads_asked = false;
        self.wake(now);
        for lane in 0..self.lanes.len() {
            if let Some(client) = self.lanes[lane].client
                && self.clients.get(&client).is_some_and(|c| c.over)
            {
                self.take_off(client);
                self.leaving.push(client);
            }
        }
        self.free_lanes(now);
        while let Some(grant) = self.dispatcher.poll_decision(now) {
            self.grant(&grant);
        }
        self.share_out();
        self.tell(now);
        !self.out.is_empty()
    }

    /// Sets the time of the next look at a client that is released.
    fn arm(&mut self, client: ClientId) {
        self.disarm(client);
        let Some(c) = self.clients.get_mut(&client) else { return };
        if !c.released {
            return;
        }
        let span = if c.lane.is_some() {
            // What was charged since the last look was still to come then.
            let before = c.slice_used.saturating_sub(c.used_since_look);
            let left = c.slice.saturating_sub(before).0 / u64::from(c.active);
            Nanos(left).max(GRAIN).min(c.tick)
        } else if c.blocked {
            let asleep = c.looked.since(c.last_used);
            let span = sleep_look(asleep).max(SUSPECT_TICK);
            // Sleepers are looked at together: one wake-up for many of them.
            let grid = if span < SLEEP_GRID { SUSPECT_TICK } else { SLEEP_GRID };
            let at = c.looked + span;
            let beyond = at.0 % grid.0;
            if beyond == 0 { span } else { span + Nanos(grid.0 - beyond) }
        } else {
            return;
        };
        self.looks.arm(client, &mut c.due, c.looked + span);
    }

    fn disarm(&mut self, client: ClientId) {
        if let Some(c) = self.clients.get_mut(&client) {
            self.looks.disarm(client, &mut c.due);
        }
    }

    /// Tells the driver what changed: first who is held, then who is released, then when to look.
    fn tell(&mut self, now: Instant) {
        for client in core::mem::take(&mut self.leaving) {
            let Some(c) = self.clients.get_mut(&client) else { continue };
            if c.lane.is_some() {
                continue;
            }
            // Sleepers are released, the others held.
            let release = c.blocked && !c.joined;
            c.told_cpu = None;
            if c.released != release {
                c.released = release;
                let cpu = None;
                self.out.push(if release { Gate::Release { client, cpu } } else { Gate::Hold { client } });
            }
            self.arm(client);
        }
        let mut coming = core::mem::take(&mut self.coming);
        let steer = self.params.cpus > 1;
        if steer {
            for &client in &coming {
                self.stay(client);
            }
            coming.append(&mut self.coming);
        }
        for &client in &coming {
            let Some(c) = self.clients.get_mut(&client).filter(|c| c.lane.is_some() && c.waits) else {
                continue;
            };
            c.told_cpu = None;
            if core::mem::take(&mut c.released) {
                self.out.push(Gate::Hold { client });
            }
            self.disarm(client);
        }
        for client in coming {
            let Some(c) = self.clients.get_mut(&client).filter(|c| !c.waits) else { continue };
            let Some(lane) = c.lane else { continue };
            let cpu = (steer && c.width == 1).then(|| self.lanes[lane as usize].cpu);
            let released = core::mem::replace(&mut c.released, true);
            if !released {
                c.looked = now;
                c.used_since_look = Nanos::ZERO;
            }
            if !released || cpu.is_some() && c.told_cpu != cpu {
                c.told_cpu = cpu;
                self.out.push(Gate::Release { client, cpu: cpu.map(CpuId) });
            }
            self.arm(client);
        }
    }
}

/// Lanes: which client has which.
impl<D: Policy<Decision = Grant>> Dispatched<D> {
    /// Takes a client off its lane, if it has one.
    fn take_off(&mut self, client: ClientId) {
        let Some(c) = self.clients.get_mut(&client) else { return };
        if let Some(lane) = c.lane.take() {
            self.lanes[lane as usize].client = None;
        }
    }

    /// Tells the dispatcher of every lane that has become empty.
    fn free_lanes(&mut self, now: Instant) {
        for lane in 0..self.lanes.len() {
            let Lane { client, asking, .. } = self.lanes[lane];
            if client.is_none() && !asking {
                self.lanes[lane].asking = true;
                self.pass_on(now, Event::Free { cpu: CpuId(lane as u32) });
            }
        }
    }

    fn grant(&mut self, grant: &Grant) {
        let Grant { cpu, client, slice } = *grant;
        let lane = cpu.index();
        if let Some(other) = self.lanes[lane].client.filter(|&other| other != client) {
            self.take_off(other);
            self.leaving.push(other);
        }
        self.lanes[lane].client = Some(client);
        self.lanes[lane].asking = false;
        self.grants += 1;
        if let Some(c) = self.clients.get_mut(&client) {
            c.lane = Some(cpu.0);
            (c.slice, c.slice_used, c.over) = (slice, Nanos::ZERO, false);
            (c.granted, c.cpus, c.waits) = (self.grants, 1, false);
        }
        self.coming.push(client);
    }

    /// Where a head uses several CPUs, the heads that were granted theirs last wait until it is done with them.
    fn share_out(&mut self) {
        if self.nr_wide == 0 && !self.shared_out {
            return;
        }
        self.shared_out = self.nr_wide > 0;
        let heads = self.lanes.iter().filter_map(|lane| lane.client);
        let mut heads: Vec<(u64, ClientId)> =
            heads.filter_map(|head| Some((self.clients.get(&head)?.granted, head))).collect();
        heads.sort_unstable();
        let mut left = self.params.cpus;
        for (_, client) in heads {
            let Some(c) = self.clients.get_mut(&client) else { continue };
            c.cpus = c.active.min(left);
            c.waits = left == 0;
            left -= c.cpus;
            self.coming.push(client);
        }
    }

    /// A client that was never held and got another lane stays on its CPU: the lanes exchange theirs, unless the other
    /// lane's client stays there too.
    fn stay(&mut self, client: ClientId) {
        let Some(c) = self.clients.get(&client) else { return };
        let (Some(lane), Some(told), 1, true) = (c.lane, c.told_cpu, c.width, c.released) else { return };
        let (lane, cpu) = (lane as usize, self.lanes[lane as usize].cpu);
        if told == cpu {
            return;
        }
        let other = self.lane_of_cpu[told as usize] as usize;
        let stays = |head: ClientId| self.clients.get(&head).is_some_and(|c| c.told_cpu == Some(told));
        if self.lanes[other].client.is_some_and(stays) {
            return;
        }
        self.lanes[lane].cpu = told;
        self.lanes[other].cpu = cpu;
        self.lane_of_cpu[told as usize] = lane as u32;
        self.lane_of_cpu[cpu as usize] = other as u32;
        // Whoever is on the other lane now belongs on another CPU.
        self.coming.extend(self.lanes[other].client);
    }
}

impl<D: Policy<Decision = Grant>> Policy for Dispatched<D> {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, .. } => {
                self.dispatcher.on_event(now, event)?;
                self.clients.insert(client, Client::new(now, self.tick_min()));
            }
            Event::Leave { client } => self.leave(now, client)?,
            Event::Reshare { .. } => self.dispatcher.on_event(now, event)?,
            Event::Width { client, cpus } => self.widen(now, client, cpus)?,
            Event::Charge { client, used } => self.charge(now, client, used)?,
            Event::Block { client } => self.on_state(now, client, true)?,
            Event::Wake { client } => self.on_state(now, client, false)?,
            Event::Free { cpu } => return Err(EventError::UnknownCpu(cpu)),
        }
        self.dirty = true;
        Ok(())
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        loop {
            if let Some(decision) = self.out.next(&mut self.clients) {
                return Some(decision);
            }
            if self.out.is_owed() {
                return None;
            }
            if !self.look(now) && !self.decide(now) {
                return None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.looks.next();
        match (due, self.dispatcher.poll_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
