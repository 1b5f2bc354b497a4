//! What the engine needs of a machine.

use std::collections::VecDeque;

use divvy_policy::{ClientId, CpuId, CpuLimit, Instant, Nanos};

/// A machine that can hold and release clients, and tell how far they got.
///
/// An error of one client never ends the loop: a client that is gone leaves, one that may not be signalled leaves with
/// its reason on record.
pub trait Host {
    /// The time now. Never goes back.
    fn now(&mut self) -> Instant;

    /// Waits until `until` (`None`: for ever), or until there is news.
    ///
    /// # Errors
    /// [`HostError::Broken`] where waiting itself failed.
    fn wait(&mut self, until: Option<Instant>) -> Result<(), HostError>;

    /// The next thing that happened without being asked for, if any.
    fn next_news(&mut self) -> Option<News>;

    /// Lets `client` run, if it can on `cpu` (numbered among the CPUs that the host divides).
    ///
    /// # Errors
    /// [`HostError`], by what happened to the client.
    fn release(&mut self, client: ClientId, cpu: Option<CpuId>) -> Result<(), HostError>;

    /// Keeps `client` from running. A host may put that off until the client that follows was released, so that no CPU idles
    /// in between: it is done before the next answer about any client, and before the next [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`HostError`], by what happened to the client.
    fn hold(&mut self, client: ClientId) -> Result<(), HostError>;

    /// Keeps `client` from running as long as others that are released want the CPUs: what the policy asks for. A host
    /// that can let it have what they leave does, and charges it for that; the others hold it.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    fn give_way(&mut self, client: ClientId) -> Result<(), HostError> {
        self.hold(client)
    }

    /// Lets `client` run, in its own turn, while nobody who is released wants the CPUs ([`Gate::Behind`](divvy_policy::Gate)). A
    /// host that cannot releases it.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    fn run_behind(&mut self, client: ClientId) -> Result<(), HostError> {
        self.release(client, None)
    }

    /// `client`, which gives way, is not to run at all until it is released, whatever the others leave. A host that holds
    /// whoever gives way has nothing to do.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    fn stand(&mut self, _client: ClientId) -> Result<(), HostError> {
        Ok(())
    }

    /// Whether [`give_way`](Self::give_way) leaves clients what the others do not use, at the moment.
    fn leaves(&self) -> bool {
        false
    }

    /// Whether [`wait`](Self::wait) ends when it was asked to, whoever runs, at the moment.
    fn is_punctual(&self) -> bool {
        false
    }

    /// CPU time that it takes to hold clients of many threads once, all of them together, and to release them again: zero where nobody has
    /// so many that it is worth a word. It is asked at each wake-up, and told to the policy when it changes.
    fn switch_cost(&self) -> Nanos {
        Nanos::ZERO
    }

    /// From now on these are the clients that the policy never holds, for their shares ask for all that they can use
    /// ([`Policy::capped`](divvy_policy::Policy::capped)). A host may see to it that nobody is in their way.
    fn note_capped(&mut self, _clients: &[ClientId]) {}

    /// CPU time that `client` has used since it began, all its threads and processes, those gone included.
    ///
    /// # Errors
    /// [`HostError`], by what happened to the client.
    fn measure(&mut self, client: ClientId) -> Result<Nanos, HostError>;

    /// Whether `client` can run, were it released.
    ///
    /// # Errors
    /// [`HostError`], by what happened to the client.
    fn observe(&mut self, client: ClientId) -> Result<Observed, HostError>;

    /// Takes back the news of how many CPUs `client` can use at once, if it is to be told: what a look has just counted is
    /// better known before the look's answer.
    fn take_width(&mut self, _client: ClientId) -> Option<u32> {
        None
    }

    /// Keeps `client` within `limit` from now on, or lifts that, where the machine can do so by itself; whether it can. Where
    /// it cannot, clients are held and released for it.
    ///
    /// # Errors
    /// [`HostError`], by what happened to the client.
    fn limit(&mut self, _client: ClientId, _limit: Option<CpuLimit>) -> Result<bool, HostError> {
        Ok(false)
    }

    /// Whether somebody else stopped `client`.
    fn is_stopped(&self, _client: ClientId) -> bool {
        false
    }

    /// What the host and its caller have cost so far.
    fn self_cost(&mut self) -> SelfCost;
}

/// What a look at a client's state found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// At least one thread runs or waits for a CPU.
    Runnable,
    /// All threads sleep, or the client was stopped by somebody else.
    Blocked,
}

/// Something that happened without being asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A client has ended.
    Gone(ClientId),
    /// What was asked for a client was put off, and could not be done then.
    Failed(ClientId, HostError),
    /// A held client has run: somebody else resumed it. It is held again by the engine.
    Resumed(ClientId),
    /// A client was stopped by somebody else.
    Stopped(ClientId),
    /// A released client fell asleep just now: none of its threads can run.
    Slept(ClientId),
    /// A released client that was told to sleep runs again.
    Woke(ClientId),
    /// A client can now use this many CPUs at once.
    Width(ClientId, u32),
    /// All held clients were resumed because this process had not run for too long; those the policy holds are held anew.
    AllResumed,
}

/// Takes the news of a client's width out of a queue of news, for [`Host::take_width`]: the last one counts, and none that is older
/// comes after it.
pub fn take_width(news: &mut VecDeque<News>, client: ClientId) -> Option<u32> {
    let mut last = None;
    news.retain(|one| match one {
        News::Width(c, cpus) if *c == client => {
            last = Some(*cpus);
            false
        }
        _ => true,
    });
    last
}

/// Why a host could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The client has ended.
    #[error("the client has ended")]
    Gone,
    /// The client may not be signalled or read by this user.
    #[error("not permitted: {0}")]
    NotPermitted(String),
    /// The host itself failed.
    #[error("{0}")]
    Broken(String),
}

/// What the scheduler itself has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelfCost {
    /// CPU time of this process since the host was made, all threads.
    pub cpu: Nanos,
    /// Clocks and states read.
    pub reads: u64,
    /// Signals sent.
    pub signals: u64,
}
