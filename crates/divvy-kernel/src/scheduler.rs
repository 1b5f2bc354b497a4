//! Loads the scheduler, watches it, and lets go of it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use divvy_policy::Share;
use divvy_policy::feasible::{Claim, water_fill};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};

use crate::args::RunArgs;
use crate::bpf::{DivvySkel, DivvySkelBuilder, OpenDivvySkel, types};
use crate::cgroup::{self, Processes};
use crate::clock::{Moment, sleep, tick_ns};
use crate::cpus;
use crate::failure::{ABSENT, EJECTED, Failure, OrFail as _, SYSTEM, print, say};
use crate::left::Left;
use crate::policy::{Kind, Policy};
use crate::shares::{Client, Source, Who};
use crate::status;

/// How often the loader looks: whether the kernel has let go, how many tasks of each client can run, and for new cgroups.
const PERIOD: Duration = Duration::from_millis(200);
/// Of so many clients whose tasks all sleep the cgroups are looked up each time: a thousand cost a CPU some percent.
const RENEWED: usize = 100;
/// A cgroup's weight where nobody has set it.
const WEIGHT_OF_OTHERS: u64 = 100;
/// How long the kernel may take to let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// So often at most processes are looked at until no new ones are found.
const LOOKS: usize = 16;

/// Takes over the CPUs until it is asked to end, or the kernel lets go of it.
///
/// # Errors
/// What cannot be used or had, and why the kernel let go if nobody asked for it.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    check_kernel()?;
    let source = match (&args.shares, &args.weights) {
        (Some(file), _) => Source::File(file.clone()),
        (None, Some(cgroup)) => Source::Weights(cgroup.clone()),
        (None, None) => {
            return Err(Failure::new(crate::failure::USAGE, anyhow!("give --shares or --weights")));
        }
    };
    let clients = source.read()?;
    let weight_of_all = source.weight_of_all();
    block_signals().or_fail(SYSTEM)?;
    let mut object = MaybeUninit::uninit();
    let mut scheduler = Scheduler::load(args, &clients, weight_of_all, &mut object)?;
    let link = scheduler.skel.maps.divvy_ops.attach_struct_ops().map_err(|e| scheduler.refused(&e))?;
    scheduler.name_again().or_fail(SYSTEM)?;
    say(&format!(
        "{} divides the CPUs among {} clients and the rest; Ctrl-C gives them back to the kernel",
        args.policy,
        clients.len() - 1
    ));
    let ended = scheduler.watch(&source, args);
    drop(link);
    let left = scheduler.wait_for_end();
    ended?;
    match left {
        Some(left) if left.was_asked_for() => {
            say(&format!("{left}; the kernel's own scheduler has the CPUs again"));
            Ok(())
        }
        Some(left) => {
            let words = anyhow!("{left}; the kernel's own scheduler has the CPUs again");
            Err(Failure::new(EJECTED, words))
        }
        None => Err(Failure::new(
            SYSTEM,
            anyhow!("the kernel has not let go of the scheduler within {PATIENCE:?}"),
        )),
    }
}

/// Says what is missing before anything is tried.
fn check_kernel() -> Result<(), Failure> {
    let state = status::state().ok_or_else(|| {
        let why = "this kernel has no sched_ext: it needs Linux 6.13 or later with CONFIG_SCHED_CLASS_EXT";
        Failure::new(SYSTEM, anyhow!(why))
    })?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new(SYSTEM, anyhow!("only root may give the kernel a scheduler: use sudo")));
    }
    if state != "disabled" {
        let name = status::ops().unwrap_or_else(|| "one without a name".to_owned());
        let why =
            anyhow!("another scheduler is there ({name}, {state}): end it first; there can be one at a time");
        return Err(Failure::new(SYSTEM, why));
    }
    Ok(())
}

/// SIGINT, SIGTERM and SIGHUP are waited for, not handled.
fn signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initializes the set; the signals exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn block_signals() -> anyhow::Result<()> {
    // SAFETY: the set is initialized; the old one is not asked for.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals(), std::ptr::null_mut()) };
    anyhow::ensure!(failed == 0, "block signals: {}", std::io::Error::from_raw_os_error(failed));
    Ok(())
}

/// The next signal, or `None` after `time`.
fn next_signal(time: Duration) -> Option<i32> {
    let time = libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    // SAFETY: set and time are initialized; what came is not asked for.
    let signal = unsafe { libc::sigtimedwait(&signals(), std::ptr::null_mut(), &time) };
    (signal > 0).then_some(signal)
}

struct Scheduler<'o> {
    skel: DivvySkel<'o>,
    clients: Vec<Client>,
    /// The kernel's numbers of the clients' cgroups; 0 of those that are none, or not there.
    cgroups: Vec<u64>,
    /// Why clients cannot be read again, if they cannot: said once.
    unread: Option<String>,
    /// Of the clients together against everybody else.
    weight_of_all: Option<u64>,
    /// What each client's tasks had wanted when this was last looked at.
    demands: Vec<u64>,
    looked_at: Moment,
    /// The first of whose cgroups none was looked at lately.
    renewed: usize,
    /// How many tasks of each could run, on average, up to the last look.
    widths: Vec<u32>,
    /// Clients that were gone at the last look, with the last of their tasks.
    idle: BTreeSet<usize>,
    /// Processes that were written down as somebody's before the kernel tells of those that end, each with the time at which it began.
    named: BTreeMap<i32, u64>,
}

impl<'o> Scheduler<'o> {
    fn load(
        args: &RunArgs,
        clients: &[Client],
        weight_of_all: Option<u64>,
        object: &'o mut MaybeUninit<OpenObject>,
    ) -> Result<Self, Failure> {
        let mut open = open(&args.policy, args.watchdog, object)?;
        let policy = &args.policy;
        let data = open.maps.data_divvy_data.as_deref_mut().ok_or_else(no_data)?;
        for (id, client) in clients.iter().enumerate() {
            set_client(data, id, client);
        }
        data.about.nr_clients = u32::try_from(clients.len()).unwrap_or(0);
        data.about.loader = rustix::process::getpid().as_raw_nonzero().get();
        data.about.since = Moment::now().0;
        put_text(&mut data.about.policy, &policy.to_string());
        open.struct_ops.divvy_ops_mut().timeout_ms =
            u32::try_from(args.watchdog.as_millis()).unwrap_or(20_000);
        let skel = open.load().map_err(not_loaded)?;
        let (demands, looked_at) = (Vec::new(), Moment::now());
        let cgroups = clients.iter().map(cgroup_of).collect();
        let (clients, unread) = (clients.to_vec(), None);
        let mut scheduler = Self {
            skel,
            clients,
            cgroups,
            unread,
            weight_of_all,
            demands,
            looked_at,
            renewed: 0,
            widths: Vec::new(),
            idle: BTreeSet::new(),
            named: BTreeMap::new(),
        };
        scheduler.spread();
        let all: Vec<usize> = (0..scheduler.clients.len()).collect();
        let (named, absent) = scheduler.name(&all).or_fail(SYSTEM)?;
        if let Some(why) = absent.into_iter().next() {
            return Err(Failure::new(ABSENT, anyhow!(why)));
        }
        scheduler.named = named;
        Ok(scheduler)
    }

    /// Writes down whose the processes and cgroups of these clients are. Those that another client names are that one's, with all below.
    /// The result is processes, each with the time at which it began, and what to say of clients whose process is not there.
    fn name(&self, ids: &[usize]) -> anyhow::Result<(BTreeMap<i32, u64>, Vec<String>)> {
        let inner = |who: &Client| if let Who::Cgroup(dir) = &who.who { Some(dir.clone()) } else { None };
        let others: BTreeSet<PathBuf> = self.clients.iter().filter_map(inner).collect();
        for &id in ids {
            let Client { name, who: Who::Cgroup(dir), .. } = &self.clients[id] else { continue };
            let value = number_of(id);
            let write = |cgroup: u64| {
                let done = self.skel.maps.cgroups.update(&cgroup.to_ne_bytes(), &value, MapFlags::ANY);
                done.with_context(|| format!("client {name}: too many cgroups"))
            };
            cgroup::walk(dir, &others, write)?;
        }
        let mut named = BTreeMap::new();
        let absent = self.name_processes(ids, &mut named)?;
        let say = |id: usize| match &self.clients[id] {
            Client { name, who: Who::Process(pid), .. } => {
                Some(format!("client {name}: there is no process {pid}"))
            }
            _ => None,
        };
        Ok((named, absent.into_iter().filter_map(say).collect()))
    }

    /// As above, for processes, but for those in `named`, which all are afterwards. A child that was forked before its parent was written down is
    /// found at the next look. The result is clients whose process is not there.
    fn name_processes(&self, ids: &[usize], named: &mut BTreeMap<i32, u64>) -> anyhow::Result<Vec<usize>> {
        let leader = |client: &Client| if let Who::Process(pid) = client.who { Some(pid) } else { None };
        let others: BTreeSet<i32> = self.clients.iter().filter_map(leader).collect();
        let of: Vec<(usize, i32)> =
            ids.iter().filter_map(|&id| Some((id, leader(&self.clients[id])?))).collect();
        let mut absent = Vec::new();
        for look in 0..LOOKS {
            if of.is_empty() {
                break;
            }
            let processes = Processes::look()?;
            let mut found = false;
            for &(id, pid) in &of {
                let name = &self.clients[id].name;
                let below = processes.below(pid, &others);
                if look == 0 && below.is_empty() {
                    absent.push(id);
                }
                for (pid, began) in below {
                    if named.insert(pid, began) == Some(began) {
                        continue;
                    }
                    found = true;
                    let done =
                        self.skel.maps.processes.update(&pid.to_ne_bytes(), &number_of(id), MapFlags::ANY);
                    done.with_context(|| format!("client {name}: too many processes"))?;
                    // One that was reaped just now has been forgotten before it was written down: its number may be another's soon.
                    if cgroup::began(pid) != Some(began) {
                        let _ = self.skel.maps.processes.delete(&pid.to_ne_bytes());
                    }
                }
            }
            if !found {
                break;
            }
        }
        Ok(absent)
    }

    /// As [`Self::name`], where it cannot be the end of it all.
    fn name_or_say(&self, ids: &[usize]) {
        match self.name(ids) {
            Ok((_, absent)) => absent.iter().for_each(|why| say(&format!("{why}; it is nobody"))),
            Err(e) => say(&format!("{e:#}; what is not known of it is among the rest")),
        }
    }

    /// From now on the kernel tells of processes that begin and end. Those that did before are looked at once more.
    fn name_again(&mut self) -> anyhow::Result<()> {
        let mut named = std::mem::take(&mut self.named);
        named.retain(|&pid, &mut at| {
            let lives = cgroup::began(pid) == Some(at);
            if !lives {
                let _ = self.skel.maps.processes.delete(&pid.to_ne_bytes());
            }
            lives
        });
        let all: Vec<usize> = (0..self.clients.len()).collect();
        self.name_processes(&all, &mut named)?;
        self.skel.maps.data_divvy_data.as_deref_mut().context("no data")?.about.generation += 1;
        Ok(())
    }

    /// Why it could not be attached.
    fn refused(&self, error: &libbpf_rs::Error) -> Failure {
        let left = self.left();
        let why = left.map_or_else(String::new, |left| format!(": {left}"));
        Failure::new(SYSTEM, anyhow!("the kernel refuses the scheduler: {error}{why}"))
    }

    fn data(&self) -> Option<*const types::data_divvy> {
        self.skel.maps.data_divvy_data.as_deref().map(std::ptr::from_ref)
    }

    /// What the kernel said when it let go.
    fn left(&self) -> Option<Left> {
        // SAFETY: the map's memory is there as long as the skeleton; the kernel writes to it, hence volatile.
        let about = unsafe { std::ptr::read_volatile(&raw const (*self.data()?).about) };
        status::left_of(&about)
    }

    fn client(&self, id: usize) -> Option<types::dv_client> {
        // SAFETY: as above; `id` is checked against the array.
        unsafe {
            let clients = &raw const (*self.data()?).dv.clients;
            (id < crate::shares::CLIENTS_MAX + 1)
                .then(|| std::ptr::read_volatile(clients.cast::<types::dv_client>().add(id)))
        }
    }

    /// Whether that is another share.
    fn set_wanted(&mut self, id: usize, share: u64) -> bool {
        let Some(data) = self.skel.maps.data_divvy_data.as_deref_mut() else { return false };
        let Some(client) = data.dv.clients.get_mut(id) else { return false };
        let is_new = client.wanted != share;
        // SAFETY: a plain integer that the programs read.
        unsafe { std::ptr::write_volatile(&raw mut client.wanted, share) };
        is_new
    }

    /// Looks after it until a signal, the end of its time, or the kernel's end of it.
    fn watch(&mut self, source: &Source, args: &RunArgs) -> Result<(), Failure> {
        let end = args.length.map(|length| Moment::now().after(length));
        let mut fault = args.fault_after.map(|time| Moment::now().after(time));
        loop {
            if fault.take_if(|at| Moment::now() >= *at).is_some() {
                self.break_state().or_fail(SYSTEM)?;
            }
            let left = end.map_or(PERIOD, |end| end.since(Moment::now()));
            match next_signal(left.min(PERIOD)) {
                Some(libc::SIGHUP) => match source.read() {
                    Ok(clients) => self.follow(clients),
                    Err(failure) => say(&format!("shares stay as they were: {failure}")),
                },
                Some(_) => return Ok(()),
                None => {}
            }
            if self.left().is_some() || end.is_some_and(|end| Moment::now() >= end) {
                return Ok(());
            }
            if let Source::Weights(_) = source {
                self.weight_of_all = source.weight_of_all();
                match source.read() {
                    Ok(clients) => {
                        self.unread = None;
                        self.follow(clients);
                        continue;
                    }
                    Err(failure) => self.say_unread(failure.to_string()),
                }
            }
            self.renew();
            self.spread();
        }
    }

    /// Names a client for this process that there is none of.
    fn break_state(&mut self) -> anyhow::Result<()> {
        let (own, nobody) = (std::process::id().to_ne_bytes(), u32::MAX.to_ne_bytes());
        self.skel.maps.processes.update(&own, &nobody, MapFlags::ANY).context("name a client")?;
        self.skel.maps.data_divvy_data.as_deref_mut().context("no data")?.about.generation += 1;
        Ok(())
    }

    /// Weights that cannot be read: as long as it is for the same reason, that is said once.
    fn say_unread(&mut self, why: String) {
        if self.unread.as_ref() != Some(&why) {
            say(&format!("shares stay as they were: {why}"));
            self.unread = Some(why);
        }
    }

    /// A client whose cgroup was removed and made again has the new one, which the kernel knows for another.
    ///
    /// Who has a task that can run has its cgroup still. Of the others [`RENEWED`] are looked at, in turn.
    fn renew(&mut self) {
        let all = self.clients.len();
        let sleeps = |&id: &usize| self.client(id).is_none_or(|client| client.nr_runnable == 0);
        let looked: Vec<usize> =
            (0..all).map(|at| (self.renewed + at) % all).filter(sleeps).take(RENEWED).collect();
        self.renewed = looked.last().map_or(0, |last| (last + 1) % all);
        let mut changed = false;
        for id in looked {
            let is = cgroup_of(&self.clients[id]);
            if is == 0 || is == self.cgroups[id] {
                continue;
            }
            self.cgroups[id] = is;
            changed = true;
            self.name_or_say(&[id]);
        }
        if changed && let Some(data) = self.skel.maps.data_divvy_data.as_deref_mut() {
            data.about.generation += 1;
        }
    }

    /// Takes over other shares, new clients, and that the cgroup of one is gone.
    fn follow(&mut self, clients: Vec<Client>) {
        let mut added = Vec::new();
        for (id, known) in self.clients.iter_mut().enumerate().skip(1) {
            let is_there = clients.iter().any(|client| client.who == known.who);
            if matches!(&known.who, Who::Cgroup(dir) if !is_there && !dir.exists()) {
                *known = Client { name: String::new(), share: 1, who: Who::Gone };
                if let Some(data) = self.skel.maps.data_divvy_data.as_deref_mut() {
                    put_text(&mut data.about.names[id], "");
                }
            }
        }
        for client in clients {
            match self.clients.iter().position(|known| known.who == client.who) {
                Some(id) => {
                    self.clients[id].share = client.share;
                    if let Some(data) = self.skel.maps.data_divvy_data.as_deref_mut() {
                        data.about.shares[id] = client.share;
                    }
                }
                None => added.extend(self.add(client)),
            }
        }
        self.name_or_say(&added);
        self.renew();
        if !added.is_empty()
            && let Some(data) = self.skel.maps.data_divvy_data.as_deref_mut()
        {
            data.about.generation += 1;
        }
        self.spread();
    }

    /// A number for a new client: one whose client is gone, with the last of its tasks, or the next. `None`: there is none.
    fn number(&self) -> Option<usize> {
        let is_free = |&id: &usize| {
            // At the last look, too: a CPU may have been about to choose among its last tasks.
            let is_idle = self.client(id).is_some_and(|client| client.nr_runnable == 0);
            self.clients[id].who == Who::Gone && is_idle && self.idle.contains(&id)
        };
        let next = Some(self.clients.len()).filter(|&id| id <= crate::shares::CLIENTS_MAX);
        (1..self.clients.len()).find(is_free).or(next)
    }

    /// The number of a new client, of which nobody knows yet whose it is.
    fn add(&mut self, client: Client) -> Option<usize> {
        let Some(id) = self.number() else {
            say(&format!("client {}: there are too many; it is among the rest", client.name));
            return None;
        };
        let nr_clients = self.clients.len().max(id + 1);
        let data = self.skel.maps.data_divvy_data.as_deref_mut()?;
        // Nobody is in it, so that no program looks at it before it is assigned.
        data.dv.clients[id] = types::dv_client::default();
        set_client(data, id, &client);
        data.about.nr_clients = u32::try_from(nr_clients).unwrap_or(0);
        let cgroup = cgroup_of(&client);
        if id < self.clients.len() {
            (self.clients[id], self.cgroups[id]) = (client, cgroup);
        } else {
            self.clients.push(client);
            self.cgroups.push(cgroup);
        }
        self.demands.resize(self.clients.len().max(self.demands.len()), 0);
        self.demands[id] = 0;
        Some(id)
    }

    /// Sets effective shares: on several CPUs a client cannot use more of them than it has tasks that can run.
    fn spread(&mut self) {
        self.look_at_demand();
        let mut shares: Vec<u64> = self.clients.iter().map(|client| client.share).collect();
        if let Some(weight) = self.weight_of_all {
            shares[0] = share_of_rest(&shares, &self.widths, weight);
        }
        let mut changed = false;
        for (id, share) in effective(&shares, &self.widths, cpus::online()).into_iter().enumerate() {
            changed |= self.set_wanted(id, share);
        }
        if changed && let Some(data) = self.skel.maps.data_divvy_data.as_deref_mut() {
            fence(Ordering::Release);
            data.about.share_generation = data.about.share_generation.wrapping_add(1);
        }
    }

    /// How many tasks of each client could run since the last look, if that was not just now.
    fn look_at_demand(&mut self) {
        let now = Moment::now();
        let time = now.since(self.looked_at).as_nanos().max(1);
        self.widths.resize(self.clients.len(), 0);
        if time < PERIOD.as_nanos() / 2 {
            return;
        }
        let demand = |id| {
            // What its tasks that can run have added since they last changed.
            let of =
                |c: types::dv_client| c.demand + u64::from(c.nr_runnable) * now.0.saturating_sub(c.demand_at);
            self.client(id).map_or(0, of)
        };
        let demands: Vec<u64> = (0..self.clients.len()).map(demand).collect();
        let width = |(id, &demand): (usize, &u64)| {
            let earlier = self.demands.get(id).copied().unwrap_or(demand);
            // To the nearest whole task: one that runs now and then, as this program does, is none.
            let tasks = (u128::from(demand.saturating_sub(earlier)) + time / 2) / time;
            u32::try_from(tasks).unwrap_or(u32::MAX)
        };
        self.widths = demands.iter().enumerate().map(width).collect();
        let is_idle = |id: &usize| self.client(*id).is_some_and(|client| client.nr_runnable == 0);
        let gone = (1..self.clients.len()).filter(|&id| self.clients[id].who == Who::Gone);
        self.idle = gone.filter(is_idle).collect();
        self.demands = demands;
        self.looked_at = now;
    }

    /// Waits until the kernel has let go.
    fn wait_for_end(&self) -> Option<Left> {
        let end = Moment::now().after(PATIENCE);
        while Moment::now() < end {
            if let Some(left) = self.left() {
                return Some(left);
            }
            sleep(Duration::from_millis(5));
        }
        None
    }
}

/// What everybody else has where all clients that can run have `weight` together, as the kernel has it, and others one of 100.
fn share_of_rest(shares: &[u64], widths: &[u32], weight: u64) -> u64 {
    let present = shares.iter().zip(widths).skip(1).filter(|(_, width)| **width > 0);
    let mut all: u64 = present.map(|(share, _)| share).sum();
    if all == 0 {
        // Before the first look, and where all sleep: as for those that may wake before the next.
        all = shares.iter().skip(1).sum();
    }
    if all == 0 {
        return shares[0];
    }
    (all * WEIGHT_OF_OTHERS / weight.max(1)).clamp(1, crate::shares::SHARE_MAX)
}

/// Shares in whole numbers by which clients get what they can have of `cpus` CPUs when so many of their tasks can run: whoever
/// cannot use its share has one, rounded up, that is worth what it can use, in the measure of the others, which keep theirs.
/// Nothing changes on one CPU, or where all can have all that they could use.
fn effective(shares: &[u64], widths: &[u32], cpus: u32) -> Vec<u64> {
    let mut result = shares.to_vec();
    let present = (0..shares.len()).filter(|&id| widths[id] > 0);
    let claims: Vec<(usize, Claim)> = present
        .filter_map(|id| Some((id, Claim { share: Share::new(shares[id]).ok()?, width: widths[id] })))
        .collect();
    let got = water_fill(&claims.iter().map(|(_, claim)| *claim).collect::<Vec<_>>(), cpus);
    // CPU time that a unit of share is worth to those that keep theirs: the same for all of them.
    let kept = claims
        .iter()
        .zip(&got)
        .find(|((_, claim), got)| got.numerator < u128::from(claim.width) * got.denominator);
    let Some(((_, claim), unit)) = kept else { return result };
    let share = u128::from(claim.share.get());
    for ((id, claim), got) in claims.iter().zip(&got) {
        if got.numerator == u128::from(claim.width) * got.denominator {
            // got / (unit / share)
            let worth = (got.numerator * unit.denominator * share).div_ceil(got.denominator * unit.numerator);
            result[*id] = u64::try_from(worth).unwrap_or(shares[*id]).clamp(1, shares[*id]);
        }
    }
    result
}

/// The programs with the constants of a policy.
fn open<'o>(
    policy: &Policy,
    watchdog: Duration,
    object: &'o mut MaybeUninit<OpenObject>,
) -> Result<OpenDivvySkel<'o>, Failure> {
    let mut open =
        DivvySkelBuilder::default().open(object).context("open the BPF programs").or_fail(SYSTEM)?;
    let constants = open.maps.rodata_data.as_deref_mut().ok_or_else(no_data)?;
    constants.dv_policy = policy.kind as u32;
    constants.dv_quantum = policy.quantum;
    // First come, first served means what it says.
    let patient = policy.kind == Kind::Fcfs;
    constants.patience_ns = if patient { 0 } else { u64::try_from(watchdog.as_nanos() / 2).unwrap_or(0) };
    // Nobody waits for longer than 28 steps, each a power of two.
    constants.age_shift = (watchdog.as_nanos() / 28).max(1).next_power_of_two().trailing_zeros();
    constants.dv_alpha = u64::try_from(policy.alpha.0).unwrap_or(0);
    constants.dv_beta = policy.beta();
    constants.dv_excluded = policy.excludes_sleep();
    constants.dv_gamma = policy.gamma.0;
    constants.seed = policy.seed;
    constants.nr_cpus_possible = cpus::possible();
    // A slice ends on the first tick after it is over.
    let shorter = |time: u64| time - (tick_ns() / 4).min(time / 4);
    constants.slice_ns = shorter(policy.quantum);
    constants.slice_ns_min = shorter(policy.quantum.min(tick_ns()));
    for (row, (log, reciprocal)) in constants.dv_log_rows.iter_mut().zip(crate::log_rows()) {
        *row = types::dv_log_row { log, reciprocal };
    }
    put_text(&mut open.struct_ops.divvy_ops_mut().name, &format!("divvy_{}", policy.name()));
    Ok(open)
}

/// A client's number as the maps have it.
fn number_of(id: usize) -> [u8; 4] {
    u32::try_from(id).unwrap_or(u32::MAX).to_ne_bytes()
}

/// The kernel's number of a client's cgroup; 0 where it has none, or that is not there.
fn cgroup_of(client: &Client) -> u64 {
    match &client.who {
        Who::Cgroup(dir) => cgroup::id(dir).unwrap_or(0),
        Who::Rest | Who::Process(_) | Who::Gone => 0,
    }
}

fn not_loaded(error: libbpf_rs::Error) -> Failure {
    let why = "give the kernel the BPF programs; its verifier's complaint is above, if it had one";
    Failure::new(SYSTEM, anyhow::Error::new(error).context(why))
}

/// Lets the kernel's verifier look at the programs of `policy`, or of every one, and schedules nothing.
///
/// # Errors
/// What is missing, or that the verifier refuses one.
pub fn check(policy: Option<Policy>) -> Result<(), Failure> {
    check_kernel()?;
    print(&format!("{:<8} {:<20} {:>12}\n", "policy", "program", "steps"))?;
    // With its own parameters PBS is another program: the verifier leaves out what constants switch off.
    let with_sessions = "pbs:beta=-3,gamma=0.07".parse().map_err(|e| Failure::new(SYSTEM, e))?;
    let all = policy.map_or_else(|| Policy::every().chain([with_sessions]).collect(), |one| vec![one]);
    for policy in all {
        let mut object = MaybeUninit::uninit();
        let skel = open(&policy, Duration::from_secs(20), &mut object)?.load().map_err(not_loaded)?;
        for info in ProgInfoIter::default() {
            let name = info.name.to_string_lossy();
            if name.starts_with("divvy_") {
                print(&format!("{:<8} {name:<20} {:>12}\n", policy.name(), info.verified_insns))?;
            }
        }
        drop(skel);
    }
    print("the kernel's verifier takes all of them; steps are its own measure of the work\n")
}

fn no_data() -> Failure {
    Failure::new(SYSTEM, anyhow!("libbpf did not map the programs' data"))
}

fn set_client(data: &mut types::data_divvy, id: usize, client: &Client) {
    let record = &mut data.dv.clients[id];
    record.share = client.share;
    record.wanted = client.share;
    data.about.shares[id] = client.share;
    put_text(&mut data.about.names[id], &client.name);
}

/// A text as C has them: cut where it is too long, and ended by 0.
fn put_text(to: &mut [i8], text: &str) {
    to.fill(0);
    let room = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().zip(text.bytes().take(room)) {
        *to = i8::from_ne_bytes([from]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::text_of;

    #[test]
    fn feasible_shares_stay_as_they_are() {
        assert_eq!(effective(&[100, 1, 2, 3], &[0, 1, 1, 1], 1), [100, 1, 2, 3]);
        assert_eq!(effective(&[100, 1, 2, 3, 2], &[0, 1, 1, 1, 1], 2), [100, 1, 2, 3, 2]);
        assert_eq!(effective(&[100, 5], &[0, 0], 2), [100, 5]);
        // Two tasks for two CPUs: there is nothing to divide.
        assert_eq!(effective(&[100, 5, 1], &[0, 1, 1], 2), [100, 5, 1]);
    }

    #[test]
    fn whoever_cannot_use_its_share_has_what_it_can_use() {
        // 1:1:6 with one task each on two CPUs is 25:25:50.
        assert_eq!(effective(&[100, 1, 1, 6], &[0, 1, 1, 1], 2), [100, 1, 1, 2]);
        // With two tasks it can have its 1.5 CPUs.
        assert_eq!(effective(&[100, 1, 1, 6], &[0, 1, 1, 2], 2), [100, 1, 1, 6]);
        // 9 can use one CPU of four, and so can 7; 4 units have the other two: half a CPU each, so that one is worth 2.
        assert_eq!(effective(&[9, 7, 1, 1, 2], &[1, 1, 1, 1, 1], 4), [2, 2, 1, 1, 2]);
        // Never more than was asked for.
        assert_eq!(effective(&[50, 1], &[1, 3], 2), [1, 1]);
    }

    #[test]
    fn everybody_else_has_what_the_weight_around_the_clients_leaves() {
        // 600 shares of clients are worth a weight of 200, so that one of 100 is worth 300; who sleeps does not count.
        assert_eq!(share_of_rest(&[100, 100, 200, 300, 9_000], &[0, 1, 1, 4, 0], 200), 300);
        assert_eq!(share_of_rest(&[100, 10_000], &[1, 1], 100), 10_000);
        // Before anybody could run, too: the loader is among everybody else.
        assert_eq!(share_of_rest(&[100, 10_000], &[1, 0], 100), 10_000);
        assert_eq!(share_of_rest(&[100], &[1], 100), 100);
        assert_eq!(share_of_rest(&[100, 1], &[1, 1], 10_000), 1);
    }

    #[test]
    fn texts_are_cut_and_ended() {
        let mut to = [1_i8; 4];
        put_text(&mut to, "abcdef");
        assert_eq!(text_of(&to), "abc");
        put_text(&mut to, "a");
        assert_eq!(text_of(&to), "a");
    }
}
