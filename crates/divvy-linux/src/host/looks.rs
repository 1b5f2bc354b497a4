//! Looks at what a client used, at the states of its threads, and at who its processes are: when they are due, and what they tell.

use divvy_engine::{HostError, News, Observed};
use divvy_policy::{ClientId, Instant, Nanos};

use super::{LinuxHost, host_error};
use crate::cgroup::Leaf;
use crate::members::{Look, Scan};
use crate::steer::steer;
use crate::{Result, clock};

/// How long a client's list of processes is good for while processes are made somewhere.
pub(super) const SCAN_INTERVAL: Nanos = Nanos::from_millis(100);
/// Members of a command whose processes the kernel tells of are looked at this often: some may have left its group.
const REGROUP_INTERVAL: Nanos = Nanos::from_secs(1);
/// Where nobody of so few processes was found to run, new ones are looked for.
const LOOK_AGAIN_MAX: usize = 32;

impl LinuxHost {
    /// Whether client `i`, which is there, can use the CPU.
    pub(super) fn look(&mut self, i: usize, now: Instant) -> Result<Observed> {
        let scan = self.look_for_runnable(i, now)?;
        let c = &mut self.clients[i];
        c.condition = c.condition.seen(scan.suspended > 0 && scan.running == 0);
        if c.is_held() {
            return Ok(Observed::Runnable);
        }
        let stopped = c.condition.is_stopped();
        let runs = self.runs(i, scan.running);
        let (asleep, awake) = (!(runs || stopped), self.saw(i, runs || stopped, now));
        Ok(if runs || asleep && awake { Observed::Runnable } else { Observed::Blocked })
    }

    /// What a client has used in all, by the best that tells it.
    pub(super) fn read_total(&mut self, client: ClientId) -> std::result::Result<Nanos, HostError> {
        let i = client.index();
        self.hold_deferred();
        self.release_if_due(client);
        if self.clients[i].is_gone() {
            let c = &self.clients[i];
            return Ok(c.leaf_time.last(c.members.last_total()));
        }
        let now = clock::now();
        if let Some(usage) = self.usage_of(i, now) {
            return Ok(usage);
        }
        self.let_keenness_fade(i, now);
        let mut measure = || -> Result<Nanos> {
            let mut read = false;
            self.catch_up(i)?;
            if !self.clients[i].is_held() && self.needs_scan(i, now) {
                read = self.bring_up_to_date(i, now)?;
            }
            let c = &mut self.clients[i];
            c.lanes.heirs.free();
            let own = c.cpu.filter(|_| self.cpus.len() > 1 && !c.is_held());
            // A clock of whoever runs elsewhere is up to a tick behind, until it is sent there; a counter is not.
            let counted = c.members.is_metered();
            if let Some(cpu) = own.filter(|_| !counted) {
                steer(&c.members, &self.table, cpu, &mut c.lanes.heirs)?;
            }
            if !c.is_held() {
                let look = &mut Look::new(&mut self.table, &mut self.tally, now, false);
                c.lanes.place_again(&c.members, look)?;
            }
            // First the cgroup: what is used while the others are read is taken for its tick then.
            let asks = c.selector.is_some() || !c.members.is_metered() || c.leaf_time.wants(now);
            let usage = c.leaf.as_ref().filter(|_| asks).and_then(Leaf::usage);
            let look = &mut Look::new(&mut self.table, &mut self.tally, now, c.standing());
            let total = if read { c.members.total_read() } else { c.members.total(look)? };
            if let Some(cpu) = own.filter(|_| counted && c.lanes.had_less(now, total)) {
                steer(&c.members, &self.table, cpu, &mut c.lanes.heirs)?;
            }
            Ok(self.by_leaf(i, now, total, usage))
        };
        let total = measure().map_err(|e| host_error(&e));
        self.settle(i);
        total
    }

    /// Whether the list of a client's processes may be out of date.
    pub(super) fn needs_scan(&mut self, i: usize, now: Instant) -> bool {
        let c = &self.clients[i];
        let told = c.selector.is_none() && self.is_told(i);
        let wide = self.cpus.len() > 1 && (c.width > 1 || c.members.only_thread().is_none());
        // Where the kernel tells who is there, a look at the states finds who has left its process group.
        let interval = if told && !wide { REGROUP_INTERVAL } else { SCAN_INTERVAL };
        if now.since(c.scanned) < interval.max(c.dear.rest_of_lists()) {
            return false;
        }
        if told {
            self.clients[i].scanned = now;
            // A wrapper may stand for a child that has ended since.
            return wide || self.clients[i].members.len() > 1 || self.clients[i].members.has_forked();
        }
        if c.selector.is_some() {
            return true; // Its list is kept elsewhere; what its members' children used has to be read all the same.
        }
        let latest = self.latest_pid();
        let made = latest.has_changed_since(c.scanned_pid);
        // Threads go to sleep and wake without a new process: how many run matters on several CPUs.
        if made {
            self.clients[i].scanned_pid = latest;
        } else if !wide {
            self.clients[i].scanned = now; // It is as good as new.
        }
        made || wide
    }

    /// Before a client is measured: its list of processes, how many CPUs it can use, and its children's time, as far as
    /// these may have changed. Says whether all clocks were read for it.
    pub(super) fn bring_up_to_date(&mut self, i: usize, now: Instant) -> Result<bool> {
        let c = &mut self.clients[i];
        if c.selector.is_none() || self.cpus.len() > 1 {
            self.scan(i, now, true)?;
            return Ok(self.clients[i].selector.is_some());
        }
        // Who belongs to an attached client is found elsewhere, and on one CPU nobody can use more.
        c.scanned = now;
        let look = &mut Look::new(&mut self.table, &mut self.tally, now, c.is_held());
        c.members.account_children(look, 0)?;
        Ok(false)
    }

    /// Whether anybody of a client wants the CPU. A shell that waits for a child sleeps, and the child may be younger than
    /// the list of its processes: where nobody was found to run, new ones are looked for, if any were made.
    pub(super) fn look_for_runnable(&mut self, i: usize, now: Instant) -> Result<Scan> {
        let c = &mut self.clients[i];
        if let Some(scan) = c.dear.spares(now, c.members.last_total()) {
            return Ok(scan);
        }
        let begun = c.dear.begin(c.members.len());
        let scan = self.look_at_all(i, now)?;
        let c = &mut self.clients[i];
        if !c.condition.stands() {
            c.dear.looked(now, begun.cost(), scan);
        }
        Ok(scan)
    }

    fn look_at_all(&mut self, i: usize, now: Instant) -> Result<Scan> {
        self.catch_up(i)?;
        let children = self.needs_scan(i, now);
        let scan = self.scan(i, now, children)?;
        let c = &self.clients[i];
        let complete = children || c.selector.is_some() || c.is_held() || self.is_told(i);
        if scan.running > 0 || complete || c.members.len() > LOOK_AGAIN_MAX {
            return Ok(scan);
        }
        let latest = self.latest_pid();
        if !latest.has_changed_since(self.clients[i].scanned_pid) {
            return Ok(scan);
        }
        self.clients[i].scanned_pid = latest;
        self.scan(i, now, true)
    }

    /// Reads the states of a client's threads, and, where its list of processes may be out of date, brings that up to
    /// date first.
    pub(super) fn scan(&mut self, i: usize, now: Instant, children: bool) -> Result<Scan> {
        let told = self.is_told(i);
        let c = &mut self.clients[i];
        if children {
            c.scanned = now;
        }
        let most = (self.cpus.len() as u32).min(c.cpus_max);
        // Now and then everybody is looked at: who has left the group, or stands because a child of its did.
        let enough = if children { u32::MAX } else { most };
        let children = children && !told;
        let begun = c.dear.begin(c.members.len());
        let look = &mut Look::new(&mut self.table, &mut self.tally, now, c.standing());
        let mut scan = c.members.scan(look, children, enough)?;
        if enough == u32::MAX {
            c.dear.listed(begun.cost());
        }
        if children {
            c.members.account_children(look, 0)?;
            self.told_anew(i);
        }
        if scan.running == 0 && self.is_one_dying(i, now) {
            scan.running = 1;
        }
        // Where several could run, fewer leave a CPU idle as one that sleeps does.
        let few = self.cpus.len() > 1 && scan.running < most && scan.threads > 1;
        if few && !self.clients[i].is_held() && self.clients[i].rest.seen_few(now) {
            self.note_rest(i, now, true);
        }
        // What stands suspended says nothing of how many would run.
        let width = scan.running.clamp(1, most);
        let tells = scan.running > 0 && !self.clients[i].condition.stands();
        if tells {
            self.note_width(i, width);
        }
        let c = &mut self.clients[i];
        if tells && width != c.width {
            c.width = width;
            self.news.push_back(News::Width(ClientId(i as u32), width));
        }
        Ok(scan)
    }
}
