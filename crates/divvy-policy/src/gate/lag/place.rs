//! Where clients run: those of one thread each on a CPU of its own, those of several beside them where the CPUs are few.

use alloc::vec::Vec;

use super::Lag;
use super::client::{Client, Told};
use super::plan::KEPT;
use crate::{ClientId, CpuId, Gate, Instant, Nanos};

/// On more CPUs than this nobody is sent anywhere who has several threads, or runs already: it costs more than it brings.
pub(super) const APART_CPUS_MAX: u32 = 8;
/// Steps of what is left, ns.
const STEP: i128 = 2_000_000;

/// How many clients of one thread were sent to a CPU. The order is that in which CPUs are preferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Singles {
    compute: u32,
    nap: u32,
}

impl Singles {
    /// How many nap, or how many compute.
    pub(super) fn those(&mut self, nap: bool) -> &mut u32 {
        if nap { &mut self.nap } else { &mut self.compute }
    }

    /// One of them naps now, or does so no more.
    fn change(&mut self, nap: bool) {
        *self.those(nap) += 1;
        *self.those(!nap) -= 1;
    }
}

impl Lag {
    /// Releases a client, where it has one thread on the CPU that fewest others have. One that has got more threads since is
    /// told that it may run anywhere.
    pub(super) fn tell_release(&mut self, now: Instant, client: ClientId) {
        let cycle = self.cycle;
        let Some(c) = self.clients.get_mut(client) else { return };
        let told = core::mem::replace(&mut c.told, Told::Release);
        if told == Told::Release && (c.is_single() || c.cpu.is_none()) {
            return;
        }
        let placed = told != Told::Release && c.is_single() && !c.is_sleeper(cycle);
        if told == Told::Hold {
            (c.looked, c.used_since_look, c.counted_at) = (now, Nanos::ZERO, now);
            c.seen = if c.blocked { 0 } else { c.width };
        }
        c.sampled = now;
        c.apart.clear();
        c.spread = false;
        let last = c.last_cpu;
        self.leave_cpu(client);
        self.crowd_changed = true;
        let cpu = placed.then(|| self.take_cpu(client, last));
        let single = cpu.is_some() || self.clients.get(client).is_some_and(Client::is_single);
        if single || !self.level.on || told == Told::Release {
            self.out.push(Gate::Release { client, cpu: cpu.map(CpuId) });
        } // Else with the CPUs that it is to keep to.
        if told == Told::Hold && self.leftovers {
            self.ask(client); // What it had of what the others left counts.
        }
    }

    /// Sends a client of one thread to the CPU that fewest others have: its last, if that is one. Where clients of several threads
    /// run, theirs may be on that, and are not on one that was just left.
    fn take_cpu(&mut self, client: ClientId, last: u32) -> u32 {
        let fewest = self.singles.iter().copied().min().unwrap_or_default();
        let is_free = |cpu: u32| self.singles.get(cpu as usize) == Some(&fewest);
        let left = self.vacated.iter().copied().find(|&cpu| is_free(cpu) && self.runs_wide());
        let cpu = match left {
            Some(left) if !is_free(last) || !self.vacated.contains(&last) => left,
            _ if is_free(last) => last,
            _ => (0..self.params.cpus).find(|&cpu| is_free(cpu)).unwrap_or(0),
        };
        if let Some(c) = self.clients.get_mut(client) {
            c.gives_way = false;
        }
        self.put_on(client, cpu);
        cpu
    }

    /// Notes that a client was sent to `cpu`.
    pub(super) fn put_on(&mut self, client: ClientId, cpu: u32) {
        let Some(c) = self.clients.get_mut(client) else { return };
        c.last_cpu = cpu;
        if let Some(before) = c.cpu.replace(cpu) {
            *self.singles[before as usize].those(c.gives_way) -= 1;
        }
        *self.singles[cpu as usize].those(c.gives_way) += 1;
        self.crowd_changed = true;
    }

    /// A client was found to nap, or to do so no more: whoever naps leaves its CPU to those who compute.
    pub(super) fn note_naps(&mut self, client: ClientId, naps: bool) {
        let Some(c) = self.clients.get_mut(client) else { return };
        if let Some(cpu) = c.cpu
            && core::mem::replace(&mut c.gives_way, naps) != naps
        {
            self.singles[cpu as usize].change(naps);
            self.crowd_changed = true;
        }
    }

    /// Sends those of one thread that are awake again, and hardly ever sleep, to CPUs: as sleepers they had none.
    pub(super) fn place_awake(&mut self) {
        let cycle = self.cycle;
        let unplaced = |client: &ClientId| {
            self.clients.get(*client).is_some_and(|c| {
                c.told == Told::Release
                    && c.cpu.is_none()
                    && c.is_single()
                    && !c.blocked
                    && !c.is_sleeper(cycle)
            })
        };
        let unplaced: Vec<ClientId> = self.running.iter().copied().filter(unplaced).collect();
        for client in unplaced {
            let last = self.clients.get(client).map_or(0, |c| c.last_cpu);
            let cpu = self.take_cpu(client, last);
            self.out.push(Gate::Release { client, cpu: Some(CpuId(cpu)) });
        }
    }

    /// Where a CPU was left on which nobody of one thread computes, one of those who share another is sent there: the kernel, which
    /// has seen them run side by side a moment ago, lets it be idle for some milliseconds.
    fn even_out(&mut self) {
        for _ in 0..self.params.cpus {
            let (Some(least), Some(most)) = (self.by_computing(false), self.by_computing(true)) else {
                return;
            };
            if self.singles[most as usize].compute < self.singles[least as usize].compute + 2 {
                return;
            }
            let there = |client: &ClientId| {
                self.clients.get(*client).is_some_and(|c| c.cpu == Some(most) && !c.gives_way)
            };
            let Some(client) = self.running.iter().copied().find(there) else { return };
            self.put_on(client, least);
            self.out.push(Gate::Release { client, cpu: Some(CpuId(least)) });
        }
    }

    /// The CPU with the fewest, or the most, clients of one thread that compute.
    fn by_computing(&self, most: bool) -> Option<u32> {
        let computing = |&cpu: &u32| self.singles[cpu as usize].compute;
        let mut cpus = 0..self.params.cpus;
        if most { cpus.max_by_key(computing) } else { cpus.by_ref().min_by_key(computing) }
    }

    /// Whether a client of several threads runs that is not a sleeper.
    fn runs_wide(&self) -> bool {
        let mut running = self.running.iter().filter_map(|&client| self.clients.get(client));
        running.any(|c| c.width > 1 && !c.is_sleeper(self.cycle))
    }

    /// Whether nobody of one thread computes on a CPU.
    pub(super) fn is_left(&self, cpu: u32) -> bool {
        self.singles[cpu as usize].compute == 0
    }

    pub(super) fn leave_cpu(&mut self, client: ClientId) {
        if let Some(c) = self.clients.get_mut(client)
            && let Some(cpu) = c.cpu.take()
        {
            *self.singles[cpu as usize].those(c.gives_way) -= 1;
            self.vacated.push(cpu);
            self.crowd_changed = true;
        }
    }

    /// Where clients of several threads want more CPUs than there are beside those of one thread, each is sent to CPUs of its own,
    /// the neediest to as many as it can use; and may run anywhere again when that is over.
    pub(super) fn keep_apart(&mut self, now: Instant) {
        self.place_awake();
        let few = self.params.cpus <= APART_CPUS_MAX;
        if self.crowd_changed && few {
            self.even_out();
        }
        if !few && self.crowd_changed {
            self.let_all_go();
        }
        if !core::mem::take(&mut self.crowd_changed) && !self.crowded || !few {
            return;
        }
        let cycle = self.cycle;
        let mut free: Vec<u32> =
            (0..self.params.cpus).filter(|&cpu| self.singles[cpu as usize].compute == 0).collect();
        let wide = self.running.iter().filter_map(|&client| Some((client, self.clients.get(client)?)));
        let wide = wide.filter(|(_, c)| c.told == Told::Release && !c.is_single() && !c.is_sleeper(cycle));
        // Whoever can use all CPUs can wait best: what it is short of now it makes up for on all of them, alone.
        let all = self.params.cpus as usize;
        let mut wide: Vec<(bool, i128, ClientId, usize)> = wide
            .map(|(client, c)| {
                let width = c.reach.whole_up() as usize;
                (width >= all, -self.steps_left(c, now), client, width)
            })
            .collect();
        wide.sort_unstable();
        let wanted: usize = wide.iter().map(|&(.., width)| width).sum();
        // Where others have what they leave, the kernel finds the better places.
        let crowded = wanted > free.len() && !self.leftovers;
        self.crowded = crowded;
        for (_, _, client, width) in wide {
            let mut cpus = if crowded { self.pick_cpus(client, width, &mut free) } else { Vec::new() };
            // Who is capped needs all that it can use.
            if cpus.len() < width && self.clients.get(client).is_some_and(|c| c.cap.is_some()) {
                cpus.clear();
            }
            self.send(client, cpus);
        }
    }

    /// Whoever was kept to CPUs may run anywhere.
    fn let_all_go(&mut self) {
        let kept = |client: &ClientId| self.clients.get(*client).is_some_and(|c| !c.apart.is_empty());
        for client in self.running.iter().copied().filter(kept).collect::<Vec<_>>() {
            self.send(client, Vec::new());
        }
    }

    /// If somebody is in the way of the client that can wait least, it changes places with the one that can best wait: only what it
    /// gets tells where sleepers run, and strangers. What sleepers do is over soon; a stranger stays, and whoever has one on its CPU all
    /// the time is short for ever: it moves as soon as it has no time to lose.
    pub(super) fn make_room(&mut self, now: Instant) {
        let disturbed = core::mem::take(&mut self.disturbed);
        if disturbed.is_empty() {
            return;
        }
        let cycle = self.cycle;
        let running = || self.running.iter().filter_map(|&client| Some((client, self.clients.get(client)?)));
        let sleepers = running().any(|(_, c)| c.is_let_run() && c.is_sleeper(cycle));
        let others = running().filter(|(_, c)| !c.is_sleeper(cycle));
        let placed: Vec<(i128, ClientId, u32)> =
            others.filter_map(|(client, c)| Some((self.steps_left(c, now), client, c.cpu?))).collect();
        let (Some(&least), Some(&most)) = (placed.iter().min(), placed.iter().max()) else { return };
        // A little more is made up for by what all keep for the end, and nobody is moved for that little.
        let kept = if self.naps { i128::from(KEPT.0) / STEP } else { 0 };
        if !disturbed.contains(&most.1) || least.0 + kept >= most.0 || self.naps && least.0 <= kept {
            return;
        }
        if !sleepers && (self.level.on || most.0 <= self.time_left(now) / STEP) {
            return;
        }
        for (client, cpu) in [(most.1, least.2), (least.1, most.2)] {
            self.put_on(client, cpu);
            self.out.push(Gate::Release { client, cpu: Some(CpuId(cpu)) });
        }
    }

    /// What a client that runs still needs, in steps: less is not worth sending anybody.
    fn steps_left(&self, c: &super::Client, now: Instant) -> i128 {
        let need = self.need(c, self.left(c, now));
        need / STEP
    }

    /// As many of the free CPUs as a client can use, those that it has first. None where that is all, or there are none.
    fn pick_cpus(&self, client: ClientId, width: usize, free: &mut Vec<u32>) -> Vec<u32> {
        let had = self.clients.get(client).map_or(&[][..], |c| &c.apart);
        let (mut kept, mut others): (Vec<u32>, Vec<u32>) = free.iter().partition(|cpu| had.contains(cpu));
        let more = width.saturating_sub(kept.len()).min(others.len());
        kept.extend(others.drain(..more));
        others.extend(kept.drain(width.min(kept.len())..));
        kept.sort_unstable();
        *free = others;
        if kept.len() == self.params.cpus as usize { Vec::new() } else { kept }
    }

    /// Where others have what is left, the kernel takes its time to move threads of whoever is released to CPUs on which only those
    /// run: they are sent there, and then left alone.
    pub(super) fn spread_out(&mut self, client: ClientId) {
        let free: Vec<u32> =
            (0..self.params.cpus).filter(|&cpu| self.singles[cpu as usize].compute == 0).collect();
        let Some(c) = self.clients.get_mut(client) else { return };
        c.spread = true;
        self.crowd_changed = true;
        let width = c.reach.whole_up() as usize;
        let sent = free.into_iter().take(width).map(|cpu| Gate::Release { client, cpu: Some(CpuId(cpu)) });
        sent.into_iter().for_each(|release| self.out.push(release));
    }

    /// Tells a client of several threads which CPUs to keep to; none for all.
    pub(super) fn send(&mut self, client: ClientId, cpus: Vec<u32>) {
        let all = self.params.cpus;
        let Some(c) = self.clients.get_mut(client) else { return };
        let before = core::mem::replace(&mut c.apart, cpus.clone());
        if before == cpus && !c.spread {
            return;
        }
        // On the CPUs that it gets back nobody runs until the kernel balances load: it is sent there, and then left alone.
        let spread = cpus.is_empty() && !before.is_empty() && c.reach.whole_up() >= all;
        let told = core::mem::replace(&mut c.spread, spread) || !before.is_empty();
        if told || cpus.is_empty() && !spread {
            self.out.push(Gate::Release { client, cpu: None });
        }
        let everywhere: Vec<u32> = if spread { (0..all).collect() } else { Vec::new() };
        let sent = cpus.iter().chain(&everywhere).map(|&cpu| Gate::Release { client, cpu: Some(CpuId(cpu)) });
        sent.into_iter().for_each(|release| self.out.push(release));
        self.crowd_changed |= spread;
        self.arm_sooner(client); // On more of them it may be.
    }
}
