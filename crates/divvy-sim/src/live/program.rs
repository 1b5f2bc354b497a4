//! What a simulated thread does.

use divvy_policy::Nanos;

/// One thing that a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Uses this much CPU time.
    Run(Nanos),
    /// Sleeps for this long.
    Sleep(Nanos),
    /// Starts another thread of the same client.
    Spawn(Program),
    /// Puts a unit into the client's store of this number: whoever waits for one goes on.
    Give(usize),
    /// Takes a unit out of the client's store of this number, and sleeps until there is one: a pipe, a job that is
    /// waited for, a task of a pool.
    Take(usize),
    /// Ends the thread; the client has ended when all of its threads have.
    Exit,
}

/// The steps of a thread, which begins anew at step `again` when it is through with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) again: usize,
}

impl Program {
    /// `steps`, over and over.
    ///
    /// # Panics
    /// Panics if a round neither runs, sleeps nor ends: it would take no time.
    #[must_use]
    pub fn repeat(steps: Vec<Step>) -> Self {
        Self::once_then(Vec::new(), steps)
    }

    /// `first`, then `round` over and over.
    ///
    /// # Panics
    /// As [`Program::repeat`].
    #[must_use]
    pub fn once_then(first: Vec<Step>, round: Vec<Step>) -> Self {
        let takes_time = |s: &Step| match s {
            Step::Run(t) | Step::Sleep(t) => t.0 > 0,
            Step::Spawn(_) | Step::Give(_) | Step::Take(_) => false,
            Step::Exit => true,
        };
        assert!(round.iter().any(takes_time), "a round of a program must take time");
        let again = first.len();
        Self { steps: first.into_iter().chain(round).collect(), again }
    }

    /// Computes for ever.
    #[must_use]
    pub fn compute() -> Self {
        Self::repeat(vec![Step::Run(Nanos::from_secs(3600))])
    }

    /// Uses `run` of CPU time, sleeps for `sleep`, and so on.
    #[must_use]
    pub fn on_off(run: Nanos, sleep: Nanos) -> Self {
        Self::repeat(vec![Step::Run(run), Step::Sleep(sleep)])
    }

    /// Uses `run` of CPU time and ends.
    #[must_use]
    pub fn finite(run: Nanos) -> Self {
        Self::repeat(vec![Step::Run(run), Step::Exit])
    }
}
