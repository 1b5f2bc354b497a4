//! What a workload is, and what it can do to the machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use divvy_policy::{ClientId, Instant, Nanos, Share};

use super::Response;

/// A workload's own mark on a timer, handed back when the timer fires.
pub type Token = u64;

/// What a client does now that its burst is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It goes on with another burst of this length; it did not block.
    Run(Nanos),
    /// It blocks until a timer of the workload starts its next burst.
    Sleep,
    /// It leaves for good.
    Exit,
}

/// Who wants the CPU, when, and for how long. The machine asks; the workload answers and sets timers.
pub trait Workload {
    /// Called once, at time zero: set the first timers and add the clients that are there from the start.
    fn on_start(&mut self, control: &mut Control);

    /// A timer set with [`Control::timer`] fires.
    fn on_timer(&mut self, now: Instant, token: Token, control: &mut Control);

    /// `client`, added with `tag`, has received all of its burst.
    fn on_burst_end(&mut self, now: Instant, client: ClientId, tag: u32, control: &mut Control) -> Next;
}

/// One thing that a workload did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Join { client: ClientId, share: Share, tag: u32 },
    Start { client: ClientId, burst: Nanos },
    Resume { client: ClientId },
    Stop { client: ClientId },
    Leave { client: ClientId },
    Reshare { client: ClientId, share: Share },
    Respond(Response),
}

/// The handle through which a workload acts. Actions take effect at the present instant, in the order given.
#[derive(Clone, Debug, Default)]
pub struct Control {
    next_client: u32,
    next_timer: u64,
    timers: BinaryHeap<Reverse<(Instant, u64, Token)>>,
    pub(crate) ops: Vec<Op>,
}

impl Control {
    /// A new client id: the next one never handed out. The client is not there until [`Control::join`].
    pub fn reserve(&mut self) -> ClientId {
        let id = ClientId(self.next_client);
        self.next_client += 1;
        id
    }

    /// Client `client` joins, blocked, with `share`; `tag` comes back in [`Workload::on_burst_end`].
    pub fn join(&mut self, client: ClientId, share: Share, tag: u32) {
        self.ops.push(Op::Join { client, share, tag });
    }

    /// Gives a client a burst of CPU time to ask for, and wakes it. [`Nanos::MAX`] is for ever.
    pub fn start(&mut self, client: ClientId, burst: Nanos) {
        self.ops.push(Op::Start { client, burst });
    }

    /// Stops a client from outside: it counts as blocked, whatever it wants, until [`Control::resume`].
    pub fn stop(&mut self, client: ClientId) {
        self.ops.push(Op::Stop { client });
    }

    /// Lets a stopped client go on with what is left of its burst.
    pub fn resume(&mut self, client: ClientId) {
        self.ops.push(Op::Resume { client });
    }

    /// Ends a client from outside. Timers still set for it must be ignored by the workload.
    pub fn leave(&mut self, client: ClientId) {
        self.ops.push(Op::Leave { client });
    }

    /// Changes a client's share.
    pub fn reshare(&mut self, client: ClientId, share: Share) {
        self.ops.push(Op::Reshare { client, share });
    }

    /// Reports that a request was answered.
    pub fn respond(&mut self, response: Response) {
        self.ops.push(Op::Respond(response));
    }

    /// Calls [`Workload::on_timer`] at `at` (now, if that is past). Timers of one instant fire in the order set.
    pub fn timer(&mut self, at: Instant, token: Token) {
        self.timers.push(Reverse((at, self.next_timer, token)));
        self.next_timer += 1;
    }

    pub(crate) fn next_timer_at(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop_timer(&mut self, now: Instant) -> Option<Token> {
        if self.next_timer_at()? > now {
            return None;
        }
        self.timers.pop().map(|Reverse((.., token))| token)
    }
}
