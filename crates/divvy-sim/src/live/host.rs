//! The simulated machine as a host.

use divvy_engine::{Host, HostError, News, Observed, SelfCost, take_width};
use divvy_policy::{ClientId, CpuId, Instant, Nanos, Share};

use super::kernel::{Kernel, MachineStats, Seen, Until};
use super::program::Program;
use super::spec::{Fault, FaultAt, MachineSpec};
use crate::rng::{SplitMix64, of_machine};
use crate::workload::Mix;

/// A simulated machine, as the engine sees it.
#[derive(Clone, Debug)]
pub struct SimHost {
    kernel: Kernel,
    spec: MachineSpec,
    lateness: SplitMix64,
    cost: SelfCost,
    horizon: u64,
    /// Clients that the engine knows of; nobody else is news. All, unless the machine is driven by a workload.
    joined: usize,
    /// How many threads of each client were last found to run or to want to, as far as they can run at once, and when.
    counted: Vec<(u32, Instant)>,
}

/// Threads that run are counted this often where a client has several, though nobody asks for their states: as live.
const COUNT_INTERVAL: Nanos = Nanos::from_millis(100);

impl SimHost {
    /// A machine on which nobody runs, at time zero.
    #[must_use]
    pub fn new(spec: MachineSpec) -> Self {
        Self {
            kernel: Kernel::new(spec.clone()),
            lateness: of_machine(spec.seed, 2),
            cost: SelfCost::default(),
            horizon: u64::MAX,
            joined: usize::MAX,
            counted: Vec::new(),
            spec,
        }
    }

    /// Lets `workload` say who joins, sleeps and leaves, from time zero on. Clients get numbers as they join; the caller
    /// tells the engine of each (`take_joins`), held as they are.
    pub(crate) fn drive(&mut self, workload: Mix) {
        self.joined = 0;
        self.kernel.drive(workload);
    }

    /// Shares of the clients that have joined since this was last asked, in order.
    pub(crate) fn take_joins(&mut self) -> Vec<Share> {
        let joins = self.kernel.take_joins();
        self.joined += joins.len();
        joins
    }

    /// Clients whose share has changed since this was last asked.
    pub(crate) fn take_reshares(&mut self) -> Vec<(ClientId, Share)> {
        self.kernel.take_reshares()
    }

    /// What has truly happened since this was last asked.
    pub(crate) fn take_seen(&mut self) -> Vec<Seen> {
        self.kernel.take_seen()
    }

    /// Whether the workload has somebody to come.
    pub(crate) fn expects_somebody(&self) -> bool {
        self.kernel.expects_somebody()
    }

    /// CPU time of each client that ever was, by the workload's numbers; and how often CPUs turned to another.
    pub(crate) fn services(&self) -> (Vec<(ClientId, Nanos)>, u64) {
        self.kernel.services()
    }

    /// Adds a client with one thread for each program, held. Ids count up from 0, as the engine's do.
    pub fn add_client(&mut self, threads: Vec<Program>) -> ClientId {
        ClientId(self.kernel.add_client(threads) as u32)
    }

    /// Adds a thread that is nobody's client and is never held.
    pub fn add_stranger(&mut self, program: Program) {
        let cpu = 0;
        self.kernel.add_thread(None, program, cpu);
    }

    /// Lets `fault` happen at `at`, or now if that has passed.
    pub fn schedule(&mut self, at: Instant, fault: Fault) {
        self.kernel.add_fault(FaultAt { at, fault });
    }

    /// CPU time that `client` has really used, whatever its clock shows.
    #[must_use]
    pub fn used(&self, client: ClientId) -> Nanos {
        self.kernel.used(client.index(), false)
    }

    /// Whether `client` is suspended by the scheduler at the moment.
    #[must_use]
    pub fn is_held(&self, client: ClientId) -> bool {
        self.kernel.clients[client.index()].held
    }

    /// Whether `client` sleeps, was stopped by somebody else, or has ended.
    #[must_use]
    pub fn is_blocked(&self, client: ClientId) -> bool {
        !self.kernel.wants_cpu(client.index())
    }

    /// How the machine's time was spent so far.
    #[must_use]
    pub fn stats(&self) -> MachineStats {
        self.kernel.stats
    }

    /// Begins to count anew how the machine's time is spent.
    pub fn forget_stats(&mut self) {
        self.kernel.stats = MachineStats::default();
    }

    /// The simulated time.
    #[must_use]
    pub fn time(&self) -> Instant {
        Instant(self.kernel.now)
    }

    /// A wait without end ends here, so that a simulation does.
    pub fn set_horizon(&mut self, at: Instant) {
        self.horizon = at.0;
    }

    /// After so many steps of the machine its time stands still.
    pub(crate) fn set_steps_max(&mut self, steps: u64) {
        self.kernel.steps_max = steps;
    }

    /// Whether that has happened.
    pub(crate) fn stands_still(&self) -> bool {
        self.kernel.nr_steps >= self.kernel.steps_max
    }

    fn spend(&mut self, time: Nanos) {
        self.cost.cpu += time;
        self.kernel.run_to(self.kernel.now + time.0, true, Until::Time);
    }

    fn check(&self, client: ClientId) -> Result<usize, HostError> {
        match self.kernel.clients.get(client.index()) {
            Some(c) if !c.vanished => Ok(client.index()),
            _ => Err(HostError::Gone),
        }
    }

    /// Counts a client's threads that run or want to. A number that is another than the last is news.
    fn count(&mut self, i: usize) {
        let now = self.time();
        if self.counted.len() <= i {
            self.counted.resize(i + 1, (1, Instant::ZERO));
        }
        self.counted[i].1 = now;
        let running = self.kernel.nr_runnable(i);
        let width = running.clamp(1, self.spec.cpus.max(1));
        if running > 0 && width != self.counted[i].0 {
            self.counted[i].0 = width;
            self.kernel.news.push_back(News::Width(ClientId(i as u32), width));
        }
    }

    fn check_signal(&self, client: ClientId) -> Result<usize, HostError> {
        let i = self.check(client)?;
        if self.kernel.clients[i].ended() {
            return Err(HostError::Gone);
        }
        if self.kernel.clients[i].refused {
            return Err(HostError::NotPermitted(format!("signal client {}", client.0)));
        }
        Ok(i)
    }
}

impl Host for SimHost {
    fn now(&mut self) -> Instant {
        self.time()
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), HostError> {
        let sent = self.kernel.send_all();
        self.spend(Nanos(self.spec.costs.steer.0 * sent as u64));
        let until = until.map_or(self.horizon, |t| t.0.min(self.horizon));
        self.kernel.run_to(until.max(self.kernel.now), false, Until::TimeOrNews);
        if self.kernel.broken {
            return Err(HostError::Broken("the simulated host was told to fail".into()));
        }
        let latency = self.spec.latency;
        let mut late = self.lateness.between(latency.low.0, latency.high.0);
        if latency.late_one_in > 0 && self.lateness.between(1, latency.late_one_in) == 1 {
            late = self.lateness.between(2_000_000, 4_000_000);
        }
        late += std::mem::take(&mut self.kernel.late_by);
        self.kernel.run_to(self.kernel.now + late, false, Until::Time);
        self.spend(self.spec.costs.wake);
        Ok(())
    }

    fn next_news(&mut self) -> Option<News> {
        let about = |news: &News| match news {
            News::Gone(c)
            | News::Resumed(c)
            | News::Stopped(c)
            | News::Slept(c)
            | News::Woke(c)
            | News::Width(c, _)
            | News::Failed(c, _) => Some(*c),
            News::AllResumed => None,
        };
        let known = |news: &News| about(news).is_none_or(|c| c.index() < self.joined);
        let first = self.kernel.news.iter().position(known)?;
        self.kernel.news.remove(first)
    }

    fn release(&mut self, client: ClientId, cpu: Option<CpuId>) -> Result<(), HostError> {
        self.cost.signals += 1;
        self.spend(self.spec.costs.resume);
        let i = self.check_signal(client)?;
        let hint = cpu.map(|c| c.index() % self.spec.cpus.max(1) as usize);
        self.kernel.release(i, hint);
        Ok(())
    }

    fn hold(&mut self, client: ClientId) -> Result<(), HostError> {
        // Who takes its CPUs is there first.
        let sent = self.kernel.send_all();
        self.cost.signals += 1;
        self.spend(Nanos(self.spec.costs.steer.0 * sent as u64));
        self.spend(self.spec.costs.suspend);
        let i = self.check_signal(client)?;
        self.kernel.change(i, None, |c| c.held = true);
        Ok(())
    }

    fn measure(&mut self, client: ClientId) -> Result<Nanos, HostError> {
        self.cost.reads += 1;
        self.spend(self.spec.costs.read);
        let i = self.check(client)?;
        let sent = self.kernel.send_all() + self.kernel.send_again(i);
        self.spend(Nanos(self.spec.costs.steer.0 * sent as u64));
        let counted = self.counted.get(i).map_or(Instant::ZERO, |c| c.1);
        if self.kernel.nr_threads(i) > 1
            && !self.kernel.clients[i].held
            && self.time().since(counted) >= COUNT_INTERVAL
        {
            self.spend(Nanos(self.spec.costs.state.0 * u64::from(self.kernel.nr_threads(i))));
            self.count(i);
        }
        Ok(self.kernel.used(i, true))
    }

    fn observe(&mut self, client: ClientId) -> Result<Observed, HostError> {
        let i = self.check(client)?;
        let threads = u64::from(self.kernel.nr_threads(i).max(1));
        self.cost.reads += threads;
        self.spend(Nanos(self.spec.costs.state.0 * threads));
        if self.kernel.clients[i].ended() {
            return Err(HostError::Gone);
        }
        self.count(i);
        Ok(if self.kernel.wants_cpu(i) { Observed::Runnable } else { Observed::Blocked })
    }

    fn take_width(&mut self, client: ClientId) -> Option<u32> {
        take_width(&mut self.kernel.news, client)
    }

    fn self_cost(&mut self) -> SelfCost {
        self.cost
    }
}
