//! Children of ours that end, and those whose parents have ended: whose they are.

use std::collections::HashMap;

use divvy_engine::News;
use divvy_policy::{ClientId, Instant, Nanos};

use super::looks::SCAN_INTERVAL;
use super::{Client, LinuxHost};
use crate::cgroup::Leaf;
use crate::members::Look;
use crate::procfs::Latest;
use crate::spawn::{next_ended, wait_for};
use crate::{Pid, clock};

/// At the end those of our children that are about to end are waited for so long.
const LAST_WAIT: Nanos = Nanos::from_millis(50);
/// So many clients that all of our children can be looked at whenever one ends.
const FEW_CLIENTS: usize = 64;

/// Our own children, and whose they are.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// Clients by their leaders, which their process groups are named after.
    pub(super) by_leader: HashMap<Pid, ClientId>,
    /// Processes of clients that are our own children, their parents having ended.
    orphans: HashMap<Pid, ClientId>,
    /// Commands whose leaders have ended, and which may have others left.
    ending: Vec<ClientId>,
    /// When orphans were last looked for, and the last process that had been made by then.
    looked: (Instant, Latest),
}

impl LinuxHost {
    /// Waits for every child that has ended, and finds whose it was.
    pub(super) fn reap(&mut self) {
        // What they used their cgroups tell, and who is left in these.
        let by_cgroups = self.counted && self.clients.iter().all(|c| c.is_gone() || c.is_counted());
        while let Some((pid, exit)) = next_ended() {
            if self.guardian.pid() == Some(pid) {
                let _ = wait_for(pid); // Its pidfd tells us as well, and it is replaced there.
                continue;
            }
            let adopted = self.family.orphans.remove(&pid).filter(|c| self.clients.get(c.index()).is_some());
            // While it is a zombie it can still be read: whose group was it in?
            let group = || crate::procfs::stat(pid).ok().flatten().and_then(|s| s.pgrp);
            let by_group = || group().and_then(|g| self.led_by(g));
            let found = || self.descends_from(pid).or_else(by_group).or_else(|| self.clients_of(pid));
            let known = self.led_by(pid).or(adopted);
            let owner = if by_cgroups { known } else { known.or_else(found) };
            if let Some(client) = owner {
                let c = &mut self.clients[client.index()];
                let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
                c.members.close_account(pid, look);
            }
            let usage = wait_for(pid);
            if let Some(detached) = self.family.by_leader.get(&pid).filter(|_| owner.is_none()) {
                // Of one that is gone it is known: its leader's number is another's by now.
                self.clients[detached.index()].exit.get_or_insert(exit);
            }
            let Some(client) = owner else { continue };
            let c = &mut self.clients[client.index()];
            c.members.reap(pid, usage, &mut self.table);
            if Some(pid) == c.members.leader() {
                c.exit = Some(exit);
                self.family.ending.push(client);
            }
            self.settle(client.index());
        }
        self.look_at_ending();
    }

    /// Waits for children of ours that are about to end, a moment at most. A cgroup is empty, and its client gone, shortly before
    /// the last process that was in it can be waited for. If we ended first, the first process of the machine would wait for it,
    /// and its CPU time would be missing in what whoever has started us is told of us.
    pub fn reap_the_last(&mut self) {
        let until = clock::now() + LAST_WAIT;
        loop {
            self.reap();
            let own = rustix::process::getpid();
            let mut children = Vec::new();
            let _ = crate::procfs::children(own, own, &mut children);
            let guardian = self.guardian();
            let some = children.into_iter().any(|pid| Some(pid) != guardian && is_about_to_end(pid));
            if !some || clock::now() >= until {
                return;
            }
            clock::sleep(Nanos::from_micros(200));
        }
    }

    /// Commands whose leaders have ended are gone when nobody of them is left.
    fn look_at_ending(&mut self) {
        for client in std::mem::take(&mut self.family.ending) {
            let lives = |host: &Self| host.clients.get(client.index()).is_some_and(|c| !c.is_gone());
            if lives(self) {
                self.check_gone(client);
            }
            if lives(self) {
                self.family.ending.push(client);
            }
        }
    }

    /// A client is gone when its last process is.
    fn check_gone(&mut self, client: ClientId) {
        let c = &self.clients[client.index()];
        if c.exit.is_none() {
            return;
        }
        // An empty group tells with one call that nobody is left in it, but not whether somebody left it. Where
        // thousands end at once, not all of our children are looked at for each of them.
        let mut none_left = self.none_left(client.index());
        if none_left == Some(false) {
            return; // Others of it live, and the kernel tells of their ends.
        }
        if self.clients[client.index()].is_counted() {
            // Who has left its cgroup before the last of it ended there may live on, however lately strays were looked for.
            self.adopt_strays();
            self.check_leaf(client.index());
            none_left = self.none_left(client.index());
        }
        let _ = self.catch_up(client.index());
        let _ = self.clients[client.index()].usage();
        let c = &self.clients[client.index()];
        let few = self.clients.len() <= FEW_CLIENTS;
        if few || !c.members.all_ended() || self.adopt_is_due() {
            self.adopt_orphans();
        }
        let c = &mut self.clients[client.index()];
        // Members that their own parents waited for are found to be gone when their clocks are read.
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        let usage = c.leaf.as_ref().and_then(Leaf::usage);
        let total = c.members.total(look);
        if let Ok(total) = total {
            self.by_leaf(client.index(), clock::now(), total, usage);
        }
        let c = &mut self.clients[client.index()];
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        if (c.members.is_empty() || none_left == Some(true)) && !c.is_gone() {
            c.condition = c.condition.gone();
            c.members.leave_table(look);
            if let (Some(tree), Some(leaf)) = (&mut self.tree, c.leaf.take()) {
                tree.remove(leaf);
            }
            self.forget_naps(client.index());
            self.news.push_back(News::Gone(client));
        }
    }

    fn clients_of(&self, pid: Pid) -> Option<ClientId> {
        let has =
            |c: &Client| !c.is_gone() && c.selector.is_none() && c.members.pids().any(|(p, _)| p == pid);
        self.clients.with_ids().find(|(_, c)| has(c)).map(|(client, _)| client)
    }

    /// Whoever leads or descends from a client that is forgotten is nobody's.
    pub(crate) fn forget_leader(&mut self, client: ClientId) {
        self.family.by_leader.retain(|_, of| *of != client);
        self.family.orphans.retain(|_, of| *of != client);
        self.put_off.forget(client);
        self.rests.forget(client);
        self.unplaced.retain(|of| *of != client);
    }

    /// The client that `pid` leads or led.
    fn led_by(&self, pid: Pid) -> Option<ClientId> {
        self.family.by_leader.get(&pid).copied().filter(|c| !self.clients[c.index()].is_gone())
    }

    /// Takes in our own children whose client is not known: their parents ended before anybody looked. They are told by
    /// their process group, or, where they have left it, by the mark in their environment. The cost is that of the
    /// clients' number, so it is done when processes have been made, and the less often the more clients there are.
    pub(super) fn adopt_orphans(&mut self) {
        self.family.looked.0 = clock::now();
        if !self.all_are_told() {
            self.adopt_strays();
        }
    }

    /// As [`adopt_orphans`](Self::adopt_orphans), also where somebody else tells of them.
    pub(super) fn adopt_strays(&mut self) {
        let own = rustix::process::getpid();
        let guardian = self.guardian();
        let mut children = Vec::new();
        // What cannot be read now is read the next time.
        let _ = crate::procfs::children(own, own, &mut children);
        for pid in children {
            let known = self.family.by_leader.contains_key(&pid) || self.family.orphans.contains_key(&pid);
            if known || Some(pid) == guardian {
                continue;
            }
            let Ok(Some(stat)) = crate::procfs::stat(pid) else { continue };
            if stat.state.is_ended() {
                continue;
            }
            let by_group = || stat.pgrp.and_then(|g| self.led_by(g));
            let by_mark =
                || mark_of(pid, own).filter(|c| self.clients.get(c.index()).is_some_and(|c| !c.is_gone()));
            let Some(client) = self.clients_of(pid).or_else(by_group).or_else(by_mark) else { continue };
            let c = &mut self.clients[client.index()];
            let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
            if c.members.add(pid, look).is_ok() {
                self.family.orphans.insert(pid, client);
            }
        }
    }

    fn adopt_interval(&self) -> Nanos {
        SCAN_INTERVAL + Nanos::from_micros(200 * self.clients.len() as u64)
    }

    /// Whether it is worth while to look for orphans where it matters just now.
    pub(super) fn adopt_is_due(&self) -> bool {
        clock::now().since(self.family.looked.0) > Nanos(self.adopt_interval().0 / 10)
    }

    pub(super) fn adopt_orphans_if_due(&mut self) {
        if self.beaten.since(self.family.looked.0) < self.adopt_interval() {
            return;
        }
        let latest = self.latest_pid();
        let made = latest.has_changed_since(self.family.looked.1);
        self.family.looked = (self.beaten, latest);
        if made {
            self.adopt_orphans();
        }
        // A cgroup may be empty some moments after its last process was waited for, or without that being our child.
        if self.counted {
            self.look_at_ending();
        }
    }
}

/// Whether a process has no memory any more: it gives that back before it leaves its cgroup.
fn is_about_to_end(pid: Pid) -> bool {
    let memory = std::fs::read_to_string(format!("/proc/{pid}/statm"));
    memory.is_ok_and(|pages| pages.split_whitespace().all(|n| n == "0"))
}

/// The variable in a command's environment that says whose its processes are, whatever session they go to.
pub(super) const MARK: &str = "DIVVY_CLIENT";

pub(super) fn mark(divvy: Pid, client: ClientId) -> String {
    format!("{divvy}.{}", client.0)
}

/// The client that a process descends from, by the environment that it was started with.
fn mark_of(pid: Pid, divvy: Pid) -> Option<ClientId> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|&b| b == 0).filter_map(|v| std::str::from_utf8(v).ok());
    let value = variables.find_map(|v| v.strip_prefix(MARK)?.strip_prefix('='))?;
    let (owner, client) = value.split_once('.')?;
    (owner == divvy.to_string()).then(|| client.parse().ok().map(ClientId))?
}
