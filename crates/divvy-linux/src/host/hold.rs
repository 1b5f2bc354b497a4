//! Holding and releasing clients, and looking whether those that are held stand.

use divvy_engine::{HostError, News};
use divvy_policy::{ClientId, CpuId, Instant, Nanos};

use super::looks::SCAN_INTERVAL;
use super::switches::{Begun, Switch};
use super::{Condition, LinuxHost, delivered, host_error};
use crate::cgroup::is_gone;
use crate::members::Look;
use crate::procfs::Latest;
use crate::steer::Steered;
use crate::{Delivery, Error, Result, clock};

/// CPU time that a held client may show beyond what it had when it was held: the way to its stop.
const AUDIT_SLACK: Nanos = Nanos::from_micros(500);

/// We sleep for as long as we have run since we woke, and this much longer,
const REST_MORE: Nanos = Nanos::from_micros(50);
/// and no less and no more than this: whoever has run for long has waited for the disk, or for somebody else.
const REST_MIN: Nanos = Nanos::from_micros(200);
const REST_MAX: Nanos = Nanos::from_millis(1);

/// Who comes before all others sleeps no less than this,
const REST_FIRST: Nanos = Nanos::from_micros(20);
/// unless it has done so this often since it
const SHORT_MAX: u32 = 3;
/// slept for so long.
const REST_LONG: Nanos = Nanos::from_micros(500);

/// What is done a little later than it was asked for.
#[derive(Debug, Default)]
pub(super) struct PutOff {
    /// Clients to be released as the last thing before we sleep: on our own CPU they take it from us at once.
    pub(super) releasing: Vec<(ClientId, Option<CpuId>)>,
    /// Clients to be held as soon as whoever follows them has been released.
    pub(super) deferred: Vec<ClientId>,
    /// Held commands of which not every member was seen to stand: until then one may be making a child.
    unsettled: Vec<(ClientId, Instant)>,
}

impl PutOff {
    /// Nothing is done any more for `client`.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.deferred.retain(|of| *of != client);
    }
}

/// How long we sleep, having run since we `woke`: until others have run for as long. Whoever has run for more than
/// its part of the last moments preempts nobody as it wakes, and then waits for their slices to end, 3 to 4 ms.
fn rest(now: Instant, woke: Instant) -> Nanos {
    (now.since(woke) + REST_MORE).clamp(REST_MIN, REST_MAX)
}

/// How long we sleep.
#[derive(Debug, Default)]
pub(super) struct OwnSleep {
    /// When we last woke for what was due.
    woke: Instant,
    /// How often we were to sleep for less than [`REST_MIN`] since we slept for [`REST_LONG`].
    short: u32,
}

impl OwnSleep {
    /// When to wake for what is due at `until`. Who comes before all others (`first`) waits behind nobody, and may rest for short, but not time
    /// and again; whom it has released just now (`released`) begins, on our CPU, only when it sleeps.
    pub(super) fn until(&self, until: Instant, now: Instant, first: bool, released: bool) -> Instant {
        let rest = if first && self.short < SHORT_MAX { REST_FIRST } else { rest(now, self.woke) };
        if until > now || first && released { until.max(now + rest) } else { until }
    }

    /// We have slept from `slept` for what was due at `until`, and woke.
    pub(super) fn ended(&mut self, slept: Instant, until: Instant, woke: Instant) {
        if until <= slept {
            return; // What we do goes on.
        }
        self.woke = woke;
        if woke.since(slept) >= REST_LONG {
            self.short = 0;
        } else if until.since(slept) < REST_MIN {
            self.short = self.short.saturating_add(1);
        }
    }
}

impl LinuxHost {
    /// Client `i` was measured, and has used so much in `total`: what of it is new was its time since it was released or measured before.
    pub(super) fn note_known(&mut self, i: usize, total: Nanos) {
        let now = clock::now();
        let c = &mut self.clients[i];
        let width = (self.cpus.len() as u32).min(c.cpus_max);
        let more = c.seen.measured(total, now, width);
        // Who stands has not used it with our leave.
        let more = if c.condition.stands() { Nanos::ZERO } else { more };
        self.held_check.note(more, now, clock::own_process_cpu, self.cpus.len());
    }

    /// Looks at some held clients: one that has run was resumed by somebody else.
    pub(super) fn audit(&mut self, now: Instant) {
        let mut latest = None;
        for _ in 0..self.held_check.due(self.clients.len(), now) {
            let Some(i) = self.clients.in_turn(self.held_check.next) else { return };
            self.held_check.next = i + 1;
            let c = &self.clients[i];
            if !c.condition.stands() || c.is_gone() {
                continue;
            }
            let counted = c.is_counted();
            if c.selector.is_none() && !counted {
                self.catch_children(i, &mut latest);
            }
            let c = &mut self.clients[i];
            let usage = c.usage();
            let look = &mut Look::new(&mut self.table, &mut self.tally, now, c.standing());
            let total = match usage {
                Some(usage) => usage,
                None if counted => continue,
                None => match c.members.total(look) {
                    Ok(total) => total,
                    Err(_) => continue,
                },
            };
            match c.audited {
                None => c.audited = Some(total),
                Some(before) if total > before + AUDIT_SLACK => {
                    c.audited = None;
                    if c.stands(look) {
                        // Time of children that was only booked now, or of one that somebody has moved out of the cgroup that stands.
                        if c.selector.is_none() && !counted && !c.stops() && self.has_left(i) {
                            self.give_up_leaf(i);
                        }
                        continue;
                    }
                    c.condition = Condition::Resumed;
                    self.held_check.found_resumed(now);
                    self.news.push_back(News::Resumed(ClientId(i as u32)));
                }
                Some(_) => {}
            }
        }
    }

    /// Looks for children of held commands until each member was seen to stand before its children were listed: from
    /// then on there can be no more. Whoever takes longer than others is left to the audits.
    pub(super) fn settle_held(&mut self, now: Instant) {
        for (client, held_at) in std::mem::take(&mut self.put_off.unsettled) {
            let i = client.index();
            let held = self.clients.get(i).is_some_and(|c| c.stops() && !c.is_gone());
            if !held || now.since(held_at) > SCAN_INTERVAL {
                continue;
            }
            if self.is_told(i) {
                let _ = self.catch_up(i); // What cannot be had now is had at the next audit.
                self.put_off.unsettled.push((client, held_at));
                continue;
            }
            let c = &mut self.clients[i];
            let look = &mut Look::new(&mut self.table, &mut self.tally, now, true);
            let scan = c.members.scan(look, true, u32::MAX);
            let idle = c.members.nr_idle() as u32;
            if !scan.is_ok_and(|scan| scan.suspended + idle >= scan.threads) {
                self.put_off.unsettled.push((client, held_at));
            }
        }
    }

    /// Holds children of a held command that were made between the last look at it and its stop: those that the kernel
    /// tells of, or, where it does not, whoever is found if any process was made on this machine since then (`latest` is
    /// the last). A member that stands makes none, so this ends.
    fn catch_children(&mut self, i: usize, latest: &mut Option<Latest>) {
        // What cannot be had or read now is had or read at the next audit.
        if self.is_told(i) {
            let _ = self.catch_up(i);
            return;
        }
        let latest = *latest.get_or_insert_with(|| Latest::of(self.last_pid.as_ref()));
        let c = &mut self.clients[i];
        if c.selector.is_none() && latest.has_changed_since(c.scanned_pid) {
            let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
            if c.members.scan(look, true, u32::MAX).is_ok() {
                self.clients[i].scanned_pid = latest;
                self.told_anew(i);
            }
        }
    }

    pub(super) fn hold_client(&mut self, i: usize) -> std::result::Result<Delivery, (Error, HostError)> {
        let c = &self.clients[i];
        let begun = (!c.condition.stands() && c.condition != Condition::Resumed)
            .then(|| c.switches.begin(Switch::Hold));
        let done = self.hold_now(i);
        self.note_switch(i, begun.filter(|_| done.is_ok()));
        done
    }

    fn hold_now(&mut self, i: usize) -> std::result::Result<Delivery, (Error, HostError)> {
        let failed = |e: Error| {
            let host = host_error(&e);
            (e, host)
        };
        let c = &mut self.clients[i];
        let now = clock::now();
        c.stood_since = now;
        if self.cpus.len() > 1 && !c.is_held() {
            self.own_cpu.note_held(c.cpus_held_on(&self.cpus), now);
        }
        let look = &mut Look::new(&mut self.table, &mut self.tally, now, true);
        if let Some(leaf) = c.leaf.as_ref().filter(|leaf| !leaf.is_signalled()) {
            let behind = c.condition.is_behind();
            look.tally.signals += 1 + u64::from(behind);
            let done = leaf.freeze();
            match done {
                Err(e) if self.awaits_leaf(i, &e) => {}
                Err(e) if self.has_lost_leaf(i, &e) => return self.hold_now(i),
                done => done.map_err(failed)?,
            }
            let c = &mut self.clients[i];
            // Of one whose cgroup does not count, this much: whoever was moved out of it runs on.
            let told = c.selector.is_none() && !c.is_counted();
            (c.condition, c.audited) = (Condition::Held, told.then(|| c.members.last_total()));
            if let Some(leaf) = c.leaf.as_ref().filter(|_| behind) {
                match leaf.put_behind(false) {
                    // Removed in this moment: the next hold finds that out.
                    Err(e) if is_gone(e.errno()) => {}
                    done => done.map_err(failed)?,
                }
            }
            return Ok(Delivery::Sent);
        }
        if c.condition.is_behind()
            && let Some(leaf) = &c.leaf
        {
            let done = leaf.put_behind(false);
            c.condition = Condition::Released;
            match done {
                Err(e) if self.has_lost_leaf(i, &e) => return self.hold_now(i),
                done => done.map_err(failed)?,
            }
        }
        let c = &mut self.clients[i];
        let look = &mut Look::new(&mut self.table, &mut self.tally, now, true);
        // More than this and the way to its stop it shall not show. Where a clock lagged behind, its state is looked at in vain.
        c.audited = Some(c.members.last_total());
        // Whoever was held before may stand in part: somebody else has resumed one of its processes, or the guardian all.
        let again = c.is_held() || c.condition == Condition::Resumed;
        c.condition = Condition::Held;
        let done = if again { c.members.suspend_the_others(look) } else { c.members.suspend(look) };
        c.condition = Condition::held(c.members.are_elsewhere());
        // Whoever makes children may have made one since the last look, and may be making another on the way to its stop.
        let held_at = look.now;
        if self.clients[i].selector.is_none() && (self.clients[i].members.has_forked() || self.is_told(i)) {
            self.catch_children(i, &mut None);
            if self.clients[i].members.has_forked() {
                let client = ClientId(i as u32);
                self.put_off.unsettled.retain(|(other, _)| *other != client);
                self.put_off.unsettled.push((client, held_at));
            }
        }
        done.map_err(failed)
    }

    pub(super) fn release_client(&mut self, i: usize, cpu: Option<CpuId>) -> Result<Delivery> {
        let cpu = cpu.and_then(|cpu| self.cpus.get(cpu.index()).copied());
        if self.gives_lane(i, cpu) {
            return Ok(Delivery::Sent);
        }
        let c = &self.clients[i];
        let begun = c.condition.stands().then(|| c.switches.begin(Switch::Release));
        let done = self.release_now(i, cpu);
        self.note_switch(i, begun.filter(|_| done.is_ok()));
        done
    }

    /// Client `i` stands or runs, and did not before where that has `begun`.
    pub(super) fn note_switch(&mut self, i: usize, begun: Option<Begun>) {
        let switches = &mut self.clients[i].switches;
        if begun.is_some_and(|begun| switches.end(begun)) {
            self.switch_costs.note(self.beaten, ClientId(i as u32), switches);
        }
    }

    fn release_now(&mut self, i: usize, cpu: Option<u32>) -> Result<Delivery> {
        let c = &mut self.clients[i];
        let cpu = cpu.filter(|_| c.lanes.cpus.is_empty());
        c.cpu = cpu;
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        if c.is_held() {
            c.lanes.begin(look.now, c.members.last_total());
            c.doze.begin();
            c.seen.released(look.now);
        }
        if self.cpus.len() > 1 && c.is_held() && cpu.is_none() && c.lanes.cpus.is_empty() {
            self.wakened.push(ClientId(i as u32));
        }
        // It shall wake up on its CPU and nowhere else: on ours it would take our place.
        let steered = match cpu {
            Some(cpu) => Steered::begin(&c.members, look.table, cpu).ok().flatten(),
            None => None,
        };
        let delivery = match &c.leaf {
            Some(leaf) if c.condition.is_behind() => {
                look.tally.signals += 1;
                leaf.put_behind(false).map(|()| Delivery::Sent)
            }
            Some(leaf) if !leaf.is_signalled() => {
                look.tally.signals += 1;
                leaf.thaw().map(|()| Delivery::Sent)
            }
            _ => c.members.resume(look),
        };
        // Whom somebody else has stopped stays as it is; a look at its state tells when it goes on.
        let (was, is) = (c.condition.is_stopped(), c.members.are_elsewhere());
        c.condition = Condition::released(was || is);
        if is && !was {
            self.news.push_back(News::Stopped(ClientId(i as u32)));
        }
        if let Some(steered) = steered {
            steered.end(&c.members, &self.table, &mut c.lanes.heirs)?;
        }
        match delivery {
            Err(e) if self.awaits_leaf(i, &e) => Ok(Delivery::Sent),
            // In what is gone nobody is frozen.
            Err(e) if self.clients[i].leaf.is_some() && is_gone(e.errno()) => Ok(Delivery::Sent),
            delivery => delivery,
        }
    }

    /// Whether a client is better held after the next one was released: its CPU would be idle in between. Where we run
    /// on that CPU ourselves it runs us, and whoever is released there could take our place before we are through.
    pub(super) fn defers_hold(&self, i: usize) -> bool {
        self.cpus.len() > 1
            && self.clients[i].cpu.is_some_and(|cpu| cpu as usize != rustix::thread::sched_getcpu())
    }

    /// Releases whoever waits for it.
    pub(crate) fn release_last(&mut self) {
        for (client, cpu) in std::mem::take(&mut self.put_off.releasing) {
            let i = client.index();
            if self.clients[i].is_gone() {
                continue;
            }
            if let Err(e) = delivered(self.release_client(i, cpu)) {
                self.news.push_back(News::Failed(client, e));
            }
        }
    }

    /// Before anything else is done with `client` it is released, if it waits for that.
    pub(super) fn release_if_due(&mut self, client: ClientId) {
        if self.put_off.releasing.iter().any(|&(due, _)| due == client) {
            self.release_last();
        }
    }

    pub(super) fn hold_deferred(&mut self) {
        if self.rests.has_open() {
            self.settle_ways();
        }
        self.place_threads();
        self.even_out_released();
        for client in std::mem::take(&mut self.put_off.deferred) {
            if self.clients[client.index()].is_gone() {
                continue;
            }
            if let Err((_, e)) = self.hold_client(client.index()) {
                self.news.push_back(News::Failed(client, e));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_rest_for_as_long_as_we_ran_and_nothing_that_is_due_waits() {
        let at = |us: u64| Instant::ZERO + Nanos::from_micros(us);
        for (until, now, woke, wakes) in [
            (10_000, 1_000, 900, 10_000),
            (1_100, 1_000, 900, 1_200),
            (1_100, 1_000, 500, 1_550),
            (1_600, 1_000, 500, 1_600),
            // However long that was: whoever waits for a disk has not run.
            (9_100, 9_000, 0, 10_000),
            (1_000, 1_000, 900, 1_000),
            (500, 1_000, 900, 500),
        ] {
            let sleep = OwnSleep { woke: at(woke), short: 0 };
            let until = sleep.until(at(until), at(now), false, false);
            assert_eq!(until, at(wakes), "at {now}, woken at {woke}");
        }
    }

    #[test]
    fn whoever_comes_first_rests_for_short_but_not_time_and_again() {
        let at = |us: u64| Instant::ZERO + Nanos::from_micros(us);
        let mut sleep = OwnSleep::default();
        sleep.ended(at(0), at(5_000), at(5_000));
        for (until, now, first, released, wakes) in [
            (9_000, 5_100, true, false, 9_000),
            (5_105, 5_100, true, false, 5_120),
            (5_105, 5_100, false, false, 5_300),
            // What is due by now is done now, but whom we have released has to run first.
            (5_090, 5_100, true, false, 5_090),
            (5_090, 5_100, true, true, 5_120),
        ] {
            let until = sleep.until(at(until), at(now), first, released);
            assert_eq!(until, at(wakes), "at {now}, first: {first}, released: {released}");
        }
        for i in 0..SHORT_MAX {
            assert_eq!(sleep.until(at(5_105), at(5_100), true, false), at(5_120), "{i} short ones");
            sleep.ended(at(5_060), at(5_080), at(5_080));
        }
        // We have run for 20 us since then.
        assert_eq!(sleep.until(at(5_105), at(5_100), true, false), at(5_300));
        assert_eq!(sleep.until(at(5_090), at(5_100), true, true), at(5_300), "it is released all the same");
        // Neither short nor long.
        sleep.ended(at(5_100), at(5_400), at(5_400));
        assert_eq!(sleep.until(at(5_405), at(5_400), true, false), at(5_600));
        // What goes on is no sleep.
        sleep.ended(at(7_000), at(6_000), at(9_000));
        assert_eq!(sleep.until(at(5_405), at(5_400), true, false), at(5_600));
        sleep.ended(at(5_600), at(6_100), at(6_100));
        assert_eq!(sleep.until(at(6_105), at(6_100), true, false), at(6_120));
        // Somebody woke us early: that was no short rest.
        for _ in 0..=SHORT_MAX {
            sleep.ended(at(6_100), at(8_000), at(6_200));
        }
        assert_eq!(sleep.until(at(6_205), at(6_200), true, false), at(6_220));
    }
}
