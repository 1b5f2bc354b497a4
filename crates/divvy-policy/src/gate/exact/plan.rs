//! Looking at those who are due, and deciding who runs.

use alloc::vec::Vec;

use super::client::{Client, Place, Told};
use super::queue::Ticket;
use super::wake;
use super::{Exact, GRAIN, HAND_OVER_MAX, STARVED_LOOK, SUSPECT_CYCLES, SUSPECT_TICK};
use crate::gate::observer::{CYCLES_MAX, nanos, ran_on, sleep_look, together};
use crate::gate::roster::Roster;
use crate::{ClientId, Gate, Instant, Nanos};

/// The kernel puts whoever is held behind others at its next tick only: where that is how clients are held, nobody is looked at sooner.
const LEFTOVERS_LOOK: Nanos = Nanos::from_millis(1);
/// A turn is let come closer to its end than a [`GRAIN`] where the driver comes in time: 20 us.
const PUNCTUAL_GRAIN: Nanos = Nanos::from_micros(20);

/// Of what the others left no more is charged than this, if a quota is less: 100 ms.
const LEFTOVERS_DEBT: i128 = 100_000_000;

/// Whoever uses less than this part of a CPU that it has to itself, in units of 1/256, flickers.
const FLICKER: u32 = 192;

/// Whether a queue's entry, a client with its stamp, is that client's present one.
pub(super) fn stands(clients: &Roster<Client>) -> impl Fn(ClientId, u64) -> bool + '_ {
    move |client, stamp| clients.get(client).is_some_and(|c| c.stands(stamp))
}

impl Exact {
    pub(super) fn grain() -> i128 {
        i128::from(GRAIN.0)
    }

    /// What is left of a turn that is over: a head that is looked at in time, and runs all the time, is let come close to its end. Where others
    /// have what it leaves looks are far apart.
    fn end(&self, c: &super::Client) -> Nanos {
        let looked_at = self.punctual && !self.leftovers && c.place == Place::Head && !c.blocked;
        // How the last turn ended tells nothing of one that begins.
        let close = looked_at && (c.fresh || c.ran_on);
        if close { PUNCTUAL_GRAIN } else { GRAIN }
    }

    pub(super) fn tick_min(&self) -> Nanos {
        Nanos(self.params.quantum.0 / 2)
    }

    fn tick_max(&self) -> Nanos {
        Nanos(self.params.quantum.0.saturating_mul(4))
    }

    /// What `c` gets for a cycle, ns.
    pub(super) fn quota(&self, c: &super::Client) -> i128 {
        i128::from(c.share.get() / self.unit_now) * i128::from(self.time_now.0)
    }

    /// Brings an allowance up to the present cycle: sleepers forfeit credit, the others keep at most one quota of it.
    pub(super) fn refresh(&mut self, slot: usize) {
        let cycle = self.cycle;
        let Some(c) = self.clients.at(slot) else { return };
        if c.epoch == cycle {
            return;
        }
        let (quota, leftovers) = (self.quota(c), self.leftovers);
        let Some(c) = self.clients.at_mut(slot) else { return };
        let cycles = i128::from(cycle - c.epoch);
        // What is less than a grain is never run: it is collected, by everybody, until it is more.
        let spare = (2 * Self::grain() - quota).max(0);
        let most = quota.max(spare);
        // Who sleeps at a cycle's end after it ran in it may be awake again at once: it keeps what it had left.
        let naps = c.blocked && c.last_used_cycle == c.epoch && cycles == 1;
        let most = if c.blocked && !naps { spare } else { most };
        // A debt is repaid cycle by cycle; credit is never saved up for longer than one.
        c.allowance = (c.allowance.min(most) + quota * (cycles - 1)).min(most) + quota;
        if leftovers {
            // What the others left for long is a gift.
            c.allowance = c.allowance.max(-quota.max(LEFTOVERS_DEBT));
        }
        (c.epoch, c.granted) = (cycle, quota);
    }

    /// Virtual finishing time of the next turn: the fraction of the quota that is used by then, in units of 2^-32.
    fn finish_time(&self, c: &super::Client) -> i128 {
        let quota = self.quota(c).max(1);
        let turn = self.params.slice.map_or(c.allowance, |s| c.allowance.min(i128::from(s.0)));
        ((quota - c.allowance + turn.max(0)) << 32) / quota
    }

    /// Puts a client that waits (its place says for which cycle) into its queue.
    pub(super) fn enqueue(&mut self, client: ClientId) {
        let Some(slot) = self.clients.find(client) else { return };
        let Some(c) = self.clients.at(slot) else { return };
        let mut ahead = c.clone();
        let Place::Waiting(cycle) = c.place else { return };
        let next = cycle > self.cycle;
        if next {
            ahead.allowance += self.quota(c); // It waits with what it will have.
        }
        let time = self.finish_time(&ahead);
        let work = ahead.allowance.max(0);
        self.stamp += 1;
        let ticket = Ticket { stamp: self.stamp, time, work, quota: self.quota(&ahead) };
        let queue = if next { &mut self.next } else { &mut self.ready };
        queue.push(client, ticket);
        if let Some(c) = self.clients.at_mut(slot) {
            c.ticket = ticket;
        }
    }

    /// Takes a client that waits out of its queue.
    pub(super) fn dequeue(&mut self, client: ClientId) {
        let Some(c) = self.clients.get(client) else { return };
        let (place, ticket) = (c.place, c.ticket);
        match place {
            Place::Waiting(cycle) if cycle > self.cycle => self.next.remove(client, ticket),
            Place::Waiting(_) => self.ready.remove(client, ticket),
            _ => {}
        }
    }

    /// Takes a client out of wherever it is, heads, queues and timers; its place is [`Place::Out`] then.
    pub(super) fn detach(&mut self, client: ClientId) {
        self.dequeue(client);
        self.disarm(client);
        self.light.remove(&client);
        let Some(c) = self.clients.get_mut(client) else { return };
        self.awake_beside -= u32::from(c.awake_beside());
        match core::mem::replace(&mut c.place, Place::Out) {
            Place::Head => self.heads.retain(|&head| head != client),
            Place::Beside => self.beside -= 1,
            _ => {}
        }
    }

    /// The place of a client that has used its allowance up.
    pub(super) fn spent_place(&self, suspect: bool) -> Place {
        if suspect { Place::SpentSuspect } else { Place::Waiting(self.cycle + 1) }
    }

    /// Moves a client to a place where it waits, or does not run until the next cycle.
    pub(super) fn hold_at(&mut self, client: ClientId, place: Place) {
        self.detach(client);
        let Some(c) = self.clients.get_mut(client) else { return };
        c.place = place;
        c.turn_used = Nanos::ZERO;
        if place == Place::SpentSuspect {
            self.next_suspects.push(client);
        } else {
            self.enqueue(client);
        }
        self.leaving.push(client);
    }

    pub(super) fn run_beside(&mut self, client: ClientId) {
        self.detach(client);
        let Some(c) = self.clients.get_mut(client) else { return };
        c.place = Place::Beside;
        self.beside += 1;
        self.awake_beside += u32::from(c.awake_beside());
        self.light.insert(client);
        self.coming.push(client);
    }

    pub(super) fn run_as_head(&mut self, client: ClientId) {
        self.detach(client);
        let Some(c) = self.clients.get_mut(client) else { return };
        (c.place, c.turn_used) = (Place::Head, Nanos::ZERO);
        self.heads.push(client);
        self.coming.push(client);
    }

    pub(super) fn disarm(&mut self, client: ClientId) {
        if let Some(c) = self.clients.get_mut(client) {
            self.looks.disarm(client, &mut c.due);
        }
    }

    /// Sets the time of the next look at a client that runs.
    pub(super) fn arm(&mut self, client: ClientId) {
        self.disarm(client);
        let idle = self.vacant_heads > 0;
        let slice = self.turn(client);
        // Of several that are awake all must fall asleep before the CPU idles: one look a ms is enough.
        let many = u64::from(self.awake_beside).max(1);
        let steady = self.clients.get(client).is_some_and(|c| c.tick > self.tick_min());
        let suspect_tick = Nanos(SUSPECT_TICK.0 * many * if steady { 2 } else { 1 });
        // Where others have what it leaves, nothing is lost by seeing later that it sleeps.
        let suspect_tick = if self.leftovers { suspect_tick.max(self.tick_max()) } else { suspect_tick };
        // And each waits its turn in the kernel's queue: whoever has little left is not through with it at once.
        let turn_min = Nanos(if many > 1 { 2 * GRAIN.0 * many } else { 0 });
        let (way, leftovers, cycle) = (self.hand_over, self.leftovers, self.cycle);
        // Who gives way runs when the others sleep: looks at what is left, as if it were alone, would follow each other ever faster.
        // What it gets beyond its quota meanwhile, it owes.
        let behind = self.clients.get(client).filter(|c| c.told == Told::Behind);
        let give_way = behind.map(|c| nanos(self.quota(c)).min(self.params.quantum).max(LEFTOVERS_LOOK));
        let grain = self.clients.get(client).map_or(GRAIN, |c| self.end(c));
        let Some(c) = self.clients.get_mut(client) else { return };
        let leaves = leftovers && (c.rests(cycle) || give_way.is_some());
        // What was charged since the last look was still to come then.
        let since_look = c.used_since_look;
        let left = (c.allowance + i128::from(since_look.0)).max(0);
        let floor = give_way.unwrap_or(if leaves { LEFTOVERS_LOOK } else { grain });
        // Whoever got nothing though it wants the CPU waits for a stranger's slice to end: to look sooner brings nothing.
        let least = if c.starved { STARVED_LOOK.max(floor) } else { floor };
        // Who is let come close to its end is looked at once more, shortly before: that is closer than what ways took lately.
        let waits = c.fresh && !(grain < GRAIN && nanos(left) > way + GRAIN);
        let through = nanos(left).max(least) + if waits { way } else { Nanos::ZERO };
        let span = match c.place {
            Place::Head => {
                let turn = slice.map_or(Nanos::MAX, |s| {
                    s.saturating_sub(c.turn_used.saturating_sub(since_look)).max(GRAIN)
                });
                let tick = if leaves { Nanos::MAX } else { c.tick };
                through.min(tick).min(turn)
            }
            Place::Beside if c.blocked => {
                let asleep = c.looked.since(c.last_used);
                let soon = wake::next_look(c.prompt && !leftovers, asleep);
                together(c.looked, soon.unwrap_or_else(|| through.max(sleep_look(asleep))))
            }
            Place::Beside if idle => through.max(turn_min).min(suspect_tick),
            Place::Beside => through.max(turn_min),
            _ => return,
        };
        self.looks.arm(client, &mut c.due, c.looked + span);
    }

    pub(super) fn ask(&mut self, client: ClientId) {
        if let Some(c) = self.clients.get_mut(client) {
            self.out.measure(client, &mut c.awaits);
        }
    }

    /// Asks for the clocks of those who are due; says whether answers are to come.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        while let Some(client) = self.looks.due(now) {
            self.disarm(client);
            self.ask(client);
        }
        self.out.is_owed()
    }

    /// A look was answered with a charge: did the client run all the time, or must its state be read?
    pub(super) fn judge(&mut self, now: Instant, client: ClientId) {
        let (cycle, tick_min) = (self.cycle, self.tick_min());
        let (alone_since, tick_max, leftovers) = (self.alone_since, self.tick_max(), self.leftovers);
        let Some(c) = self.clients.get_mut(client) else { return };
        let tick_max = if c.prompt { tick_max.min(Nanos(2 * tick_min.0)) } else { tick_max };
        let elapsed = now.since(c.looked);
        let used = core::mem::take(&mut c.used_since_look);
        if c.place == Place::Beside && alone_since.is_some_and(|since| c.looked >= since) && elapsed.0 > 0 {
            let part = (u128::from(used.0.min(elapsed.0)) * 256 / u128::from(elapsed.0)) as u32;
            c.alone = (c.alone * 3 + part) / 4;
        }
        c.looked = now;
        if used.0 > 0 {
            c.last_used = now;
            c.last_used_cycle = cycle;
        }
        let all = used.0 > 0 && ran_on(used, elapsed);
        if all {
            c.tick = Nanos(c.tick.0.saturating_mul(2)).min(tick_max);
        } else if c.prompt || c.suspect(cycle) {
            c.tick = tick_min;
        }
        // In a moment of 100 us whoever used anything ran all the time, as far as `all` knows.
        c.ran_on = all && used.0 >= elapsed.0 / 2;
        c.starved = used.0 == 0 && !c.blocked;
        let fresh = core::mem::take(&mut c.fresh);
        if fresh && all {
            // What the way from one client to the next took, be it smoothed: the next one's timer waits for it.
            let way = elapsed.saturating_sub(used).min(HAND_OVER_MAX);
            self.hand_over = Nanos((self.hand_over.0 * 7 + way.0) / 8);
        }
        let Some(c) = self.clients.get_mut(client) else { return };
        // A sleeper that used nothing sleeps on: its state need not be read.
        let sleeps_on = c.blocked && used.0 == 0;
        // Where others have what it leaves, how much that is need not be known at once.
        let runs_on = !c.blocked && (all || leftovers && used.0 >= elapsed.0 / 2);
        if !(runs_on || sleeps_on) {
            self.out.observe(client, &mut c.awaits);
            return;
        }
        self.out.answered(&mut c.awaits);
        self.settle(now, client, sleeps_on);
    }

    /// A client's state is known: moves it to where it belongs now.
    pub(super) fn settle(&mut self, now: Instant, client: ClientId, blocked: bool) {
        if self.place(now, client, blocked) {
            self.wake(client);
        }
    }

    /// Moves a client whose state is known to where it belongs now; says whether it has woken, and is to take the CPU.
    fn place(&mut self, now: Instant, client: ClientId, blocked: bool) -> bool {
        let Some(slot) = self.clients.find(client) else { return false };
        self.refresh(slot);
        let (cycle, tick_min) = (self.cycle, self.tick_min());
        let Some(c) = self.clients.at_mut(slot) else { return false };
        let before = c.awake_beside();
        c.blocked = blocked;
        if c.flickers.is_some_and(|until| until < cycle) {
            (c.flickers, c.alone) = (None, 256);
        } else if c.alone < FLICKER && c.flickers.is_none() {
            c.flickers = Some(cycle + SUSPECT_CYCLES);
        }
        if blocked {
            (c.tick, c.starved) = (tick_min, false);
        }
        let after = c.awake_beside();
        if blocked {
            c.suspect_until = Some(cycle + SUSPECT_CYCLES);
        }
        let (place, left) = (c.place, c.allowance);
        let suspect = c.suspect(cycle);
        let deep = blocked && cycle > c.last_used_cycle + 1;
        self.awake_beside = self.awake_beside - u32::from(before) + u32::from(after);
        let (turn_used, prompt) = (c.turn_used, c.prompt);
        let spent = self.clients.at(slot).is_some_and(|c| left <= i128::from(self.end(c).0));
        let slice_over = self.turn(client).is_some_and(|turn| turn_used + GRAIN >= turn);
        let Some(c) = self.clients.at_mut(slot) else { return false };
        match place {
            Place::Out if blocked => {}
            Place::Out => {
                c.looked = now;
                c.last_used = now;
                c.last_used_cycle = cycle;
                c.place = Place::Waiting(if spent { cycle + 1 } else { cycle });
                self.enqueue(client);
            }
            Place::Head | Place::Beside if spent => {
                self.hold_at(client, self.spent_place(suspect));
            }
            Place::Head if blocked => {
                self.note_owed(client);
                self.run_beside(client);
            }
            Place::Head if slice_over => self.end_slice(client),
            Place::Beside if prompt && !blocked => return true,
            Place::Beside if !suspect => self.hold_at(client, Place::Waiting(cycle)),
            Place::Beside if deep => {
                self.light.remove(&client);
                self.arm(client);
            }
            Place::Beside => {
                self.light.insert(client);
                self.arm(client);
            }
            Place::Head => self.arm(client),
            Place::Waiting(k) if blocked && k <= cycle && !spent => self.run_beside(client),
            Place::Waiting(_) | Place::SpentSuspect => {}
        }
        false
    }

    /// A head has had its slice: it goes on only if nobody who waits is ahead of it in virtual time.
    fn end_slice(&mut self, client: ClientId) {
        let Some(c) = self.clients.get(client) else { return };
        let own = (self.finish_time(c), client);
        let others_turn = match self.params.slice {
            Some(_) => self.ready.first_time().is_some_and(|best| best < own),
            None => self.ready.len > 0,
        };
        self.lengthen_turns(client);
        if others_turn {
            self.hold_at(client, Place::Waiting(self.cycle));
        } else {
            if let Some(c) = self.clients.get_mut(client) {
                c.turn_used = Nanos::ZERO;
            }
            self.arm(client);
        }
    }

    /// Fills the heads up, ends the cycle where it is over, and says whether there is anything to tell.
    pub(super) fn plan(&mut self, now: Instant) -> bool {
        if !core::mem::take(&mut self.dirty) {
            return false;
        }
        for client in core::mem::take(&mut self.waking) {
            if self.place(now, client, false) {
                self.promote(now, client);
            }
        }
        self.fill();
        let mut barren = false;
        while self.cycle_is_over() {
            if !self.end_checked && self.ask_suspects(now) {
                self.end_checked = true;
                self.dirty = true;
                return true;
            }
            // Where a new cycle brought nobody who can run, all that wait are in debt: pass the cycles that the least
            // of them takes to repay at once, however many.
            let cycles = if barren { self.cycles_until_credit() } else { 1 };
            let left = CYCLES_MAX - self.cycle;
            if left == 0 {
                break; // Debts of centuries, at a nanosecond a cycle: nobody lives to see them repaid.
            }
            let cycles = cycles.min(left);
            self.end_cycle(cycles);
            self.fill();
            barren = true;
        }
        self.end_checked = false;
        debug_assert_eq!(
            self.awake_beside,
            self.light.iter().filter_map(|&c| self.clients.get(c)).filter(|c| c.awake_beside()).count()
                as u32
        );
        self.watch_suspects(now);
        self.tell(now);
        !self.out.is_empty()
    }

    /// Whether nobody can run while somebody waits for the next cycle.
    fn cycle_is_over(&self) -> bool {
        let waited_for = self.next.len > 0 || !self.next_suspects.is_empty();
        waited_for && self.ready.len == 0 && self.heads.is_empty() && self.awake_beside == 0
    }

    /// Before a cycle ends, light sleepers are looked at: one may have woken since. Says whether there were any.
    ///
    /// So that hundreds of sleepers do not cost a CPU, they are looked at all together at most every grain for each.
    /// If that was lately, the cycle ends by what is known.
    fn ask_suspects(&mut self, now: Instant) -> bool {
        if now < self.next_ask {
            return false;
        }
        let mut asked = 0;
        for client in self.light.iter().copied().collect::<Vec<_>>() {
            if self
                .clients
                .get(client)
                .is_some_and(|c| c.told == Told::Release && now.since(c.looked) > GRAIN)
            {
                self.disarm(client);
                self.ask(client);
                asked += 1;
            }
        }
        self.next_ask = now + Nanos(GRAIN.0 * asked);
        self.out.is_owed()
    }

    /// Looks at suspects more often as soon as the CPU would idle if they blocked.
    fn watch_suspects(&mut self, now: Instant) {
        let vacant = self.heads_max() - self.heads.len();
        if vacant == 0 || self.light.len() > 1 {
            self.alone_since = None;
        } else {
            self.alone_since.get_or_insert(now);
        }
        if vacant > 0 && self.vacant_heads == 0 {
            self.coming.extend(self.light.iter().copied());
        }
        self.vacant_heads = vacant;
    }

    /// Cycles until the first of those who wait for the next one has allowance again, at least 1.
    fn cycles_until_credit(&self) -> u64 {
        let waiting = self.next.all(stands(&self.clients));
        let all = waiting.iter().chain(&self.next_suspects).filter_map(|&client| self.clients.get(client));
        let cycles = all.map(|c| {
            let missing = Self::grain() + 1 - c.allowance;
            let quota = self.quota(c).max(1);
            (missing.max(1) - 1) / quota + 1
        });
        cycles.min().map_or(1, |n| u64::try_from(n.max(1)).unwrap_or(u64::MAX))
    }

    fn end_cycle(&mut self, cycles: u64) {
        // Those that waited for the next cycle wait for this one now: their places say for which, so that nobody has
        // to be touched. Those that run are brought up to date at once, the others when their turn comes.
        self.cycle = self.cycle.saturating_add(cycles);
        if core::mem::take(&mut self.consumed) {
            self.cycles_ended += 1;
            self.out.push(Gate::CycleEnd { cycles: self.cycles_ended });
        }
        self.ready.drop_old();
        core::mem::swap(&mut self.ready, &mut self.next);
        let unit = self.unit.unit();
        let time = self.share_time();
        let before =
            (core::mem::replace(&mut self.unit_now, unit), core::mem::replace(&mut self.time_now, time));
        let rescaled = before != (unit, time);
        if rescaled && self.ready.sorted() {
            for client in self.ready.all(stands(&self.clients)) {
                self.requeue(client);
            }
        }
        for client in self.heads.iter().chain(&self.light).copied().collect::<Vec<_>>() {
            if let Some(slot) = self.clients.find(client) {
                self.refresh(slot);
                self.coming.push(client);
            }
        }
        for client in core::mem::take(&mut self.next_suspects) {
            self.resume_suspect(client);
        }
    }

    /// Sorts a client of the new cycle anew: its quota is another than when it was sorted.
    fn requeue(&mut self, client: ClientId) {
        if let Some(slot) = self.clients.find(client)
            && self.clients.at(slot).is_some_and(|c| c.place.waits())
        {
            self.dequeue(client);
            self.refresh(slot);
            self.enqueue(client);
        }
    }

    fn resume_suspect(&mut self, client: ClientId) {
        let Some(slot) = self.clients.find(client) else { return };
        self.refresh(slot);
        let cycle = self.cycle;
        let Some(c) = self.clients.at_mut(slot) else { return };
        if c.place != Place::SpentSuspect {
            return;
        }
        if c.allowance <= Self::grain() {
            self.next_suspects.push(client);
        } else if c.suspect(cycle) {
            self.run_beside(client);
        } else {
            c.place = Place::Waiting(cycle);
            self.enqueue(client);
        }
    }

    /// Has the best of those who wait run until there are as many heads as there may be.
    fn fill(&mut self) {
        while self.heads.len() < self.heads_max() {
            let Some(client) = self.ready.best(stands(&self.clients)) else { return };
            self.take_turn(client);
        }
    }

    fn take_turn(&mut self, client: ClientId) {
        let Some(slot) = self.clients.find(client) else { return };
        self.refresh(slot);
        let cycle = self.cycle;
        let Some(c) = self.clients.at(slot) else { return };
        let suspect = c.suspect(cycle);
        if c.allowance <= Self::grain() {
            self.hold_at(client, self.spent_place(suspect));
        } else if suspect {
            self.run_beside(client);
        } else {
            self.run_as_head(client);
        }
    }

    /// Tells the driver what changed: first who is held, then who is released, then when to look.
    fn tell(&mut self, now: Instant) {
        self.told = now;
        // Who sleeps now and then, and has some of its quota left, comes first whenever it wakes: a head has what it leaves.
        let give_way = self.leftovers && self.beside > 0;
        if core::mem::replace(&mut self.heads_give_way, give_way) != give_way {
            self.coming.extend(self.heads.iter().copied());
        }
        for client in core::mem::take(&mut self.leaving) {
            let Some(c) = self.clients.get_mut(client) else { continue };
            if !c.place.runs() && core::mem::replace(&mut c.told, Told::Hold) != Told::Hold {
                self.out.push(Gate::Hold { client });
            }
        }
        for client in core::mem::take(&mut self.coming) {
            let Some(c) = self.clients.get_mut(client) else { continue };
            if !c.place.runs() {
                continue;
            }
            let behind = give_way && c.place == Place::Head;
            let told = if behind { Told::Behind } else { Told::Release };
            let before = core::mem::replace(&mut c.told, told);
            if before == Told::Hold {
                (c.looked, c.used_since_look, c.fresh) = (now, Nanos::ZERO, !self.leftovers);
            }
            if before != told {
                self.out.push(if behind {
                    Gate::Behind { client }
                } else {
                    Gate::Release { client, cpu: None }
                });
            }
            if before == Told::Hold && self.leftovers {
                self.ask(client); // What it had of what the others left counts.
            }
            self.arm(client);
        }
    }
}
