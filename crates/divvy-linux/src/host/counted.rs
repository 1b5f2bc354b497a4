//! Commands whose cgroup holds and counts: whoever is in it is theirs.
//!
//! Where one CPU is divided and each command has a cgroup that is frozen and thawed, and put behind others, the kernel knows all
//! that signals need to be told: who belongs to a command is born in its cgroup, what all of them have used stands in its `cpu.stat`, those that have ended
//! included, and one write holds them. No process is looked for, nor read, but when somebody asks whether a command sleeps; and
//! nothing is charged to the processes for being watched, as perf events are at each switch and fork.
//!
//! **Who leaves.** A command that may write to cgroups can move its processes elsewhere (a container's runtime, a batch system's
//! wrapper). They are neither held nor counted then. So they are looked for now and then, soon after the start and less often
//! later, and where one is found outside, its command is held by signals and read by clocks from then on. Whoever is not known yet was
//! made since: while nobody makes a process or thread, those that are known are compared with the cgroup's list, and no more.

use std::collections::HashSet;

use divvy_policy::{ClientId, Instant, Nanos};

use super::{Client, LinuxHost};
use crate::cgroup::is_gone;
use crate::members::Look;
use crate::procfs::Latest;
use crate::{Error, Pid, Result, clock};

/// After so long it is looked for the first time whether somebody has left the cgroup, and then after twice as long, up to this.
const CHECKS: [Nanos; 2] = [Nanos::from_millis(5), Nanos::from_secs(1)];

/// When a command's processes are looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeafCheck {
    due: Instant,
    interval: Nanos,
    /// The last process that had been made by the last look.
    latest: Latest,
    /// Somebody was made between the last two.
    made: bool,
}

impl LeafCheck {
    /// Whether it is time; the next is told then.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.due;
        if due {
            let [first, most] = CHECKS;
            self.interval =
                if self.interval == Nanos::ZERO { first } else { Nanos(2 * self.interval.0).min(most) };
            self.due = now + self.interval;
        }
        due
    }

    /// The one that was due then has taken so long that it is better not repeated before so much has passed.
    fn put_off(&mut self, now: Instant, rest: Nanos) {
        self.due = self.due.max(now + rest);
    }

    /// Whether there may be somebody who is not known. The look after one that found new processes is as thorough: a thread that
    /// ends meanwhile hands its children to another, which may have been looked at.
    fn may_have_missed(&mut self, made: bool) -> bool {
        made | std::mem::replace(&mut self.made, made)
    }
}

impl Client {
    /// Whether its cgroup holds it and counts what it uses.
    pub(super) fn is_counted(&self) -> bool {
        self.selector.is_none() && self.counted && self.leaf.as_ref().is_some_and(|leaf| leaf.counts())
    }

    /// What it has used, where its cgroup counts; `None` where it does not, or cannot be read.
    pub(super) fn usage(&mut self) -> Option<Nanos> {
        if !self.is_counted() {
            return None;
        }
        let usage = self.leaf.as_ref()?.usage()?;
        Some(self.members.tell(usage))
    }
}

impl LinuxHost {
    /// What client `i` has used, where its cgroup counts. Where somebody has left that, it does so no more.
    pub(super) fn usage_of(&mut self, i: usize, now: Instant) -> Option<Nanos> {
        let c = &mut self.clients[i];
        if !c.is_counted() {
            return None;
        }
        self.tally.reads += 1;
        let usage = c.usage();
        if usage.is_none() {
            self.count_no_more(i); // Somebody has removed it.
        } else if !c.condition.stands() && c.leaf_check.is_due(now) {
            let begun = self.clients[i].dear.begin(self.clients[i].members.len());
            let latest = self.latest_pid();
            let check = &mut self.clients[i].leaf_check;
            let made = latest.has_changed_since(std::mem::replace(&mut check.latest, latest));
            if check.may_have_missed(made) {
                self.adopt_strays();
                let complete = self.check_leaf(i);
                self.clients[i].leaf_check.made |= !complete;
            } else {
                let _ = self.list_members(i); // What cannot be read now is read the next time.
            }
            let c = &mut self.clients[i];
            c.dear.listed(begun.cost());
            c.leaf_check.put_off(now, c.dear.rest_of_lists());
        }
        self.settle(i);
        usage
    }

    /// Looks whether all processes of client `i` that are known are where they belong: its members, their children, and those of
    /// ours whose parents have ended, as far as these [were looked for](Self::adopt_strays). Says whether all could be read.
    pub(super) fn check_leaf(&mut self, i: usize) -> bool {
        let c = &mut self.clients[i];
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        // What cannot be read now is read the next time.
        let scanned = c.members.scan(look, true, u32::MAX).is_ok();
        self.list_members(i).is_ok() && scanned
    }

    /// What client `i` has used, if what was read of its processes comes to `total`, and its cgroup, if it has one, told of `usage` before.
    pub(super) fn by_leaf(&mut self, i: usize, now: Instant, total: Nanos, usage: Option<Nanos>) -> Nanos {
        let c = &mut self.clients[i];
        if c.selector.is_some() || !c.members.is_metered() {
            // What children used that came and went unseen the kernel has added up there.
            return usage.filter(|_| c.members.has_forked()).map_or(total, |usage| usage.max(total));
        }
        if c.leaf_time.asks() && !c.is_held() && c.leaf_check.is_due(now) {
            let left = self.has_left(i);
            self.clients[i].leaf_time.looked(left);
            if left && self.clients[i].leaf.as_ref().is_some_and(|leaf| !leaf.is_signalled()) {
                self.give_up_leaf(i);
            }
        }
        self.clients[i].leaf_time.tell(now, total, usage)
    }

    /// Whether any of the processes that client `i` is known to have is in another cgroup than its.
    pub(super) fn has_left(&self, i: usize) -> bool {
        let c = &self.clients[i];
        let (Some(tree), Some(leaf)) = (&self.tree, &c.leaf) else { return false };
        let there: HashSet<Pid> = leaf.pids().into_iter().flatten().collect();
        // Asked before whether it lives: its number may be another's by now.
        let elsewhere = |pid: Pid| tree.freezers_cgroup_of(pid).is_some_and(|cgroup| !leaf.contains(&cgroup));
        let known = c.members.pids().map(|(pid, _)| pid);
        known.filter(|pid| !there.contains(pid)).any(|pid| elsewhere(pid) && c.members.lives(pid))
    }

    /// Client `i` is held by signals and read by clocks from now on.
    fn count_no_more(&mut self, i: usize) {
        let c = &mut self.clients[i];
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        let _ = c.members.scan(look, true, u32::MAX);
        if c.members.count_from(look).is_err() {
            return; // It is found to be so again.
        }
        c.counted = false;
        self.give_up_leaf(i);
    }

    /// Somebody has moved a process of command `i` out of its cgroup: signals hold all of it from now on.
    pub(super) fn give_up_leaf(&mut self, i: usize) {
        if let Some(leaf) = &mut self.clients[i].leaf {
            // Who is still in it and cannot be thawed is let go when it is taken apart.
            let _ = leaf.give_up_freezing();
        }
        if self.clients[i].is_held() {
            // One that cannot be held now is found running at the next look.
            let _ = self.hold_client(i);
        }
    }

    /// The cgroup of client `i` cannot be frozen or thawed: where it is gone, and made anew with the next weights
    /// ([`give_dues`](Self::give_dues)), that is soon. Says whether that is so.
    pub(super) fn awaits_leaf(&mut self, i: usize, why: &Error) -> bool {
        let tree = self.tree.as_mut().filter(|tree| tree.follows() && is_gone(why.errno()));
        let (Some(tree), Some(leaf)) = (tree, &self.clients[i].leaf) else { return false };
        tree.note_lost(leaf);
        true
    }

    /// The same where it is not made anew: its processes are elsewhere, and are held by signals from now on.
    pub(super) fn has_lost_leaf(&mut self, i: usize, why: &Error) -> bool {
        if !is_gone(why.errno()) {
            return false;
        }
        if self.clients[i].is_counted() {
            self.count_no_more(i);
            return !self.clients[i].is_counted();
        }
        let Some(leaf) = self.clients[i].leaf.as_mut() else { return false };
        // There is nothing to thaw.
        let _ = leaf.give_up_freezing();
        true
    }

    /// The members of client `i` are whoever is in its cgroup, or below it.
    ///
    /// # Errors
    /// As [`Members::add`](crate::members::Members::add).
    pub(super) fn list_members(&mut self, i: usize) -> Result<()> {
        let c = &mut self.clients[i];
        let Some(there) = c.leaf.as_ref().and_then(|leaf| leaf.pids()) else { return Ok(()) };
        self.tally.reads += 1;
        if c.members.are(&there) {
            return Ok(());
        }
        let there: HashSet<Pid> = there.into_iter().collect();
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        let known: HashSet<Pid> = c.members.pids().map(|(pid, _)| pid).collect();
        let (tree, leaf) = (&self.tree, &c.leaf);
        let is_below = |pid: Pid| {
            let cgroup = tree.as_ref().and_then(|tree| tree.freezers_cgroup_of(pid));
            cgroup.is_some_and(|cgroup| leaf.as_ref().is_some_and(|leaf| leaf.contains(&cgroup)))
        };
        let mut left = false;
        for &pid in known.difference(&there) {
            // Asked before whether it lives: its number may be another's by now.
            let below = is_below(pid);
            if !c.members.lives(pid) {
                c.members.end(pid, look);
            } else if !below {
                left = true;
            }
        }
        let mut done = Ok(());
        for &pid in there.difference(&known) {
            done = c.members.add(pid, look).and(done);
        }
        if left {
            self.count_no_more(i);
        }
        done
    }

    /// The client in whose cgroup `pid` is, one of ours that has ended.
    pub(super) fn counted_with(&self, pid: Pid) -> Option<ClientId> {
        let cgroup = self.tree.as_ref()?.freezers_cgroup_of(pid)?;
        let is_in = |c: &Client| {
            !c.is_gone() && c.is_counted() && c.leaf.as_ref().is_some_and(|l| l.contains(&cgroup))
        };
        self.clients.with_ids().find(|(_, c)| is_in(c)).map(|(client, _)| client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_is_looked_for_soon_and_then_seldom() {
        let at = |ms: u64| Instant(Nanos::from_millis(1_000_000 + ms).0);
        let mut check = LeafCheck::default();
        let due: Vec<u64> = (0..4_000).filter(|&ms| check.is_due(at(ms))).collect();
        assert_eq!(due, [0, 5, 15, 35, 75, 155, 315, 635, 1_275, 2_275, 3_275]);
    }

    #[test]
    fn while_nobody_is_made_nobody_is_looked_for() {
        let mut check = LeafCheck::default();
        let thorough = [true, false, false, true, true, false, false].map(|made| check.may_have_missed(made));
        assert_eq!(thorough, [true, true, false, true, true, true, false]);
    }
}
