//! What can be watched on a machine.

use divvy_policy::{ClientId, CpuId, Grant, Instant, Nanos, Share};

/// A change of who wants the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A client joined, blocked.
    Join {
        /// Its share.
        share: Share,
    },
    /// It became runnable.
    Wake,
    /// It became blocked.
    Block,
    /// Its share is another.
    Reshare {
        /// The new one.
        share: Share,
    },
    /// It left, having received `service`.
    Leave {
        /// CPU time over its whole life.
        service: Nanos,
    },
}

/// A request that was answered, or a job or program that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Who asked.
    pub client: ClientId,
    /// The workload's group: a user group, a source, or a client group.
    pub group: u32,
    /// When it was asked.
    pub arrived: Instant,
    /// When it was answered.
    pub finished: Instant,
    /// CPU time that it took.
    pub work: Nanos,
}

impl Response {
    /// Time from question to answer.
    #[must_use]
    pub const fn time(&self) -> Nanos {
        self.finished.since(self.arrived)
    }
}

/// Watches a run. Every method does nothing unless written; observers compose as pairs.
pub trait Observer {
    /// `client` ran on `cpu` from `from` to `to`. One slice may be told in several pieces that join.
    #[inline]
    fn on_run(&mut self, cpu: CpuId, client: ClientId, from: Instant, to: Instant) {
        let _ = (cpu, client, from, to);
    }

    /// A grant was carried out.
    #[inline]
    fn on_decision(&mut self, now: Instant, grant: &Grant) {
        let _ = (now, grant);
    }

    /// A client changed.
    #[inline]
    fn on_change(&mut self, now: Instant, client: ClientId, change: Change) {
        let _ = (now, client, change);
    }

    /// A request was answered.
    #[inline]
    fn on_response(&mut self, response: &Response) {
        let _ = response;
    }

    /// The run is over.
    #[inline]
    fn on_end(&mut self, now: Instant) {
        let _ = now;
    }
}

/// Watches nothing.
impl Observer for () {}

impl<A: Observer, B: Observer> Observer for (A, B) {
    #[inline]
    fn on_run(&mut self, cpu: CpuId, client: ClientId, from: Instant, to: Instant) {
        self.0.on_run(cpu, client, from, to);
        self.1.on_run(cpu, client, from, to);
    }

    #[inline]
    fn on_decision(&mut self, now: Instant, grant: &Grant) {
        self.0.on_decision(now, grant);
        self.1.on_decision(now, grant);
    }

    #[inline]
    fn on_change(&mut self, now: Instant, client: ClientId, change: Change) {
        self.0.on_change(now, client, change);
        self.1.on_change(now, client, change);
    }

    #[inline]
    fn on_response(&mut self, response: &Response) {
        self.0.on_response(response);
        self.1.on_response(response);
    }

    #[inline]
    fn on_end(&mut self, now: Instant) {
        self.0.on_end(now);
        self.1.on_end(now);
    }
}

/// Watches if it is there.
impl<A: Observer> Observer for Option<A> {
    #[inline]
    fn on_run(&mut self, cpu: CpuId, client: ClientId, from: Instant, to: Instant) {
        if let Some(observer) = self {
            observer.on_run(cpu, client, from, to);
        }
    }

    #[inline]
    fn on_decision(&mut self, now: Instant, grant: &Grant) {
        if let Some(observer) = self {
            observer.on_decision(now, grant);
        }
    }

    #[inline]
    fn on_change(&mut self, now: Instant, client: ClientId, change: Change) {
        if let Some(observer) = self {
            observer.on_change(now, client, change);
        }
    }

    #[inline]
    fn on_response(&mut self, response: &Response) {
        if let Some(observer) = self {
            observer.on_response(response);
        }
    }

    #[inline]
    fn on_end(&mut self, now: Instant) {
        if let Some(observer) = self {
            observer.on_end(now);
        }
    }
}
