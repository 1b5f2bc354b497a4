//! Clients that sleep now and then: they get the CPU as soon as they wake, and the kernel tells when they sleep.
//!
//! Whoever computes beside a sleeper is released as well, so that no CPU idles, and has a slice of some milliseconds: a sleeper
//! that wakes would wait for its end each time. So the slices of a client that was seen asleep are the shortest that there
//! are for a while. That does not change how much it gets in the long run: who is released decides that.
//!
//! Where one CPU is divided and the kernel tells of switches, the policy hears that such a client has fallen asleep, or woken, as
//! soon as that leaves the CPU idle, and within a tick otherwise ([`Switches`]).

use std::collections::HashMap;
use std::os::fd::AsFd as _;

use divvy_engine::News;
use divvy_policy::{ClientId, Instant, Nanos};

use super::LinuxHost;
use crate::perf::{SwitchEvent, Switches, Told};
use crate::{Error, procfs};

/// A client that was not seen asleep for this long is treated like others again.
const KEEN_FOR: Nanos = Nanos::from_secs(1);
/// The slices of a client with more processes than this are left alone.
const PROCESSES_MAX: usize = 32;

/// Who flaps is not listened to for this long: to hold others for each of its bursts would cost more than it brings. It has
/// the shortest slices meanwhile, so that the kernel gives it the CPU when it wakes.
const DEAF_FOR: Nanos = Nanos::from_secs(2);

/// Whoever was found asleep by a look and was not told of within this time is asleep: what tells has missed it.
const TOLD_WITHIN: Nanos = Nanos::from_millis(1);

/// Who tells of switches, and whose events they are.
#[derive(Debug, Default)]
pub(super) struct Listener {
    switches: Option<Switches>,
    /// What the reactor calls its pipe.
    pub(super) number: Option<u64>,
    clients: HashMap<u64, ClientId>,
}

/// What is known of a client's sleep.
#[derive(Debug, Default)]
pub(super) struct Naps {
    /// Whether it is in one autogroup with others.
    in_company: bool,
    /// When it was last seen asleep, if that was lately.
    keen_since: Option<Instant>,
    event: Option<SwitchEvent>,
    /// Whether it was awake when the policy last heard of it.
    awake: bool,
    /// When a look found it asleep of which the listener had not told.
    doubted: Option<Instant>,
    deaf_until: Instant,
}

impl Naps {
    /// Of a client that is in one autogroup with others, or is not.
    pub(super) fn of(in_company: bool) -> Self {
        Self { in_company, ..Self::default() }
    }
}

impl Listener {
    /// For one CPU, where the kernel lets us.
    pub(super) fn open(cpus: &[u32]) -> Self {
        let switches = match cpus {
            &[cpu] => Switches::open(cpu).ok(),
            _ => None,
        };
        Self { switches, ..Self::default() }
    }

    /// The CPU whose switches are told.
    pub(super) fn cpu(&self) -> Option<u32> {
        self.switches.as_ref().map(Switches::cpu)
    }

    pub(super) fn switches(&self) -> Option<&Switches> {
        self.switches.as_ref()
    }
}

impl LinuxHost {
    /// The records of `event` are those of `client`.
    pub(super) fn listen_to(&mut self, client: ClientId, event: std::os::fd::OwnedFd) {
        let Some(switches) = &self.listener.switches else { return };
        // Where it cannot be had, looks do.
        if let Ok(event) = switches.adopt(event) {
            self.listener.clients.insert(event.id(), client);
            self.clients[client.index()].naps.event = Some(event);
        }
    }

    /// A client that is divided no more is not listened to.
    pub(crate) fn forget_naps(&mut self, i: usize) {
        self.rests.forget(ClientId(i as u32));
        self.switch_costs.forget(ClientId(i as u32));
        self.end_keenness(i);
        if let Some(event) = self.clients[i].naps.event.take() {
            self.listener.clients.remove(&event.id());
        }
    }

    /// Client `i` was looked at while it was released; says whether it is awake as far as the policy is concerned: a nap that
    /// the look has met by chance is the listener's to tell, if it lasts.
    pub(super) fn saw(&mut self, i: usize, awake: bool, now: Instant) -> bool {
        let naps = &mut self.clients[i].naps;
        if !awake && naps.awake && naps.event.as_ref().is_some_and(SwitchEvent::is_on) {
            let since = *naps.doubted.get_or_insert(now);
            if now.since(since) < TOLD_WITHIN {
                return true;
            }
        }
        naps.doubted = None;
        naps.awake = awake;
        if awake {
            return true;
        }
        if self.note_rest(i, now, false) {
            return false; // The kernel gives the CPU to others while it sleeps, and back when it wakes.
        }
        let naps = &mut self.clients[i].naps;
        if naps.keen_since.replace(now).is_none() && !naps.in_company {
            self.change_slices(i, true);
        }
        let naps = &mut self.clients[i].naps;
        if let Some(event) = naps.event.as_mut().filter(|event| !event.is_on() && now >= naps.deaf_until) {
            event.turn(true);
            if naps.in_company {
                self.change_slices(i, false);
            }
        }
        false
    }

    /// Takes from client `i` what it has not needed for a while.
    pub(super) fn let_keenness_fade(&mut self, i: usize, now: Instant) {
        if self.clients[i].naps.keen_since.is_some_and(|at| now.since(at) >= KEEN_FOR) {
            self.end_keenness(i);
        }
    }

    /// Gives client `i` the slices back that it had.
    pub(super) fn end_keenness(&mut self, i: usize) {
        let naps = &mut self.clients[i].naps;
        if let Some(event) = naps.event.as_mut().filter(|event| event.is_on()) {
            event.turn(false);
        }
        if naps.keen_since.take().is_some() {
            self.change_slices(i, false);
        }
    }

    /// Processes that are made later have their parents' slices.
    fn change_slices(&mut self, i: usize, keen: bool) {
        let Some(slice) = self.inherit.slice else { return };
        let c = &self.clients[i];
        if c.members.len() > PROCESSES_MAX {
            return;
        }
        let change = |tid| if keen { slice.shorten(tid) } else { slice.lengthen(tid) };
        for (pid, threads) in c.members.pids_and_threads() {
            // Whoever has ended, or is not ours to change, is left as it is.
            if threads > 1 {
                let _ = procfs::threads(pid, |thread| {
                    change(thread.pid);
                });
            } else {
                change(pid);
            }
        }
    }

    /// Passes on who has fallen asleep, or woken, since the last time.
    pub(super) fn hear_switches(&mut self, now: Instant) {
        let Some(switches) = &self.listener.switches else { return };
        let mut heard = Vec::new();
        let listens = switches.take(|id, told| heard.push((id, told)));
        for (id, told) in heard {
            match (self.listener.clients.get(&id), told) {
                (None, _) => {}
                (Some(&client), Told::Flaps) => self.turn_deaf(client.index(), now),
                (Some(&client), Told::Computes) => self.end_keenness(client.index()),
                (Some(&client), _) => self.hear(client, told == Told::Runs, now),
            }
        }
        if !listens && let Some(switches) = self.listener.switches.take() {
            self.reactor.unwatch(switches.as_fd()); // Somebody has killed it: looks do without.
        }
    }

    fn hear(&mut self, client: ClientId, runs: bool, now: Instant) {
        let i = client.index();
        // Whoever stands by our doing does not sleep.
        if self.clients.get(i).is_none_or(|c| c.is_held() || c.is_gone()) {
            return;
        }
        // Others of it may run, and it may have woken since; who mostly sleeps wakes all the time.
        let awake = (runs || !self.sleeps(i, now).unwrap_or(false)) && !self.clients[i].doze.is_on(now);
        let naps = &mut self.clients[i].naps;
        naps.doubted = None;
        if !awake {
            naps.keen_since = Some(now);
            self.note_rest(i, now, false);
        }
        let naps = &mut self.clients[i].naps;
        if std::mem::replace(&mut naps.awake, awake) != awake {
            self.news.push_back(if awake { News::Woke(client) } else { News::Slept(client) });
        }
    }

    /// Listens to client `i` no more for a while.
    fn turn_deaf(&mut self, i: usize, now: Instant) {
        let naps = &mut self.clients[i].naps;
        let Some(event) = naps.event.as_mut().filter(|event| event.is_on()) else { return };
        event.turn(false);
        naps.deaf_until = now + DEAF_FOR;
        if naps.in_company {
            self.change_slices(i, true);
        }
    }

    /// Whether nobody of released client `i` can run.
    fn sleeps(&mut self, i: usize, now: Instant) -> Result<bool, Error> {
        let c = &mut self.clients[i];
        if c.dear.rests(now) {
            return Ok(false); // Who asks for its state soon finds out.
        }
        let begun = c.dear.begin(c.members.len());
        self.catch_up(i)?;
        let scan = self.scan(i, now, false)?;
        let c = &mut self.clients[i];
        c.dear.looked(now, begun.cost(), scan);
        c.condition = c.condition.seen(scan.suspended > 0 && scan.running == 0);
        Ok(scan.running == 0)
    }
}
