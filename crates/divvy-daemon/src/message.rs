//! What the API's thread and the scheduling thread say to each other.
//!
//! The API's thread asks through a bounded queue and wakes the other, which never waits for it: an answer that nobody
//! wants any more is dropped.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use divvy_linux::{Selector, Waker};
use divvy_market::CurrencyId;
use tokio::sync::oneshot;

use crate::market::message::{Admitted, Cpus, Limits, Who};
use crate::rules::Loaded;
use crate::scheduler::{Owner, Publisher, View, Views, views};
use crate::server::divvyd_leaves;
use divvy_api::rules::RulesState;
use divvy_api::types::{
    Change, Client, ErrorBody, ErrorCode, ErrorInfo, Events, Group, GroupChange, NewClient, Plan, Status,
};

/// Requests that wait for the scheduler at most; more are refused.
const QUEUE: usize = 256;
/// An answer that has not come by then is not waited for: the machine is busier than any promise.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the scheduler is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    Status,
    /// Where there is a market: what a client would be called, and whose child it is.
    Prepare {
        new: NewClient,
        who: Who,
    },
    Add {
        new: NewClient,
        who: Who,
        admitted: Option<Box<Admitted>>,
    },
    /// How a client stands; only for who was let change it.
    Show {
        key: String,
    },
    /// Whose a client is; refused to whom may not change it, or not pause it, if it is to be paused.
    Owned {
        key: String,
        who: Who,
        pauses: bool,
    },
    Change {
        key: String,
        change: Change,
        who: Who,
    },
    Detach {
        key: String,
        who: Who,
    },
    ChangeGroup {
        key: String,
        change: GroupChange,
        who: Who,
    },
    DetachGroup {
        key: String,
        who: Who,
    },
    /// The user's rules, as their file says by now.
    TakeRules(Box<Loaded>),
    /// What became of them.
    Rules,
    Events {
        since: u64,
        who: Who,
    },
}

impl Command {
    /// The user who wants something changed by it.
    fn changes(&self) -> Option<u32> {
        match self {
            Self::Add { who, .. }
            | Self::Change { who, .. }
            | Self::Detach { who, .. }
            | Self::ChangeGroup { who, .. }
            | Self::DetachGroup { who, .. } => Some(who.uid),
            Self::Status
            | Self::Show { .. }
            | Self::Prepare { .. }
            | Self::Owned { .. }
            | Self::TakeRules(_)
            | Self::Rules
            | Self::Events { .. } => None,
        }
    }

    /// Whose the time is that it takes, and whether it may be refused for that: events, a plan and a newcomer may. What
    /// was begun is brought to its end, and whoever wants to let go can. Root's time and divvyd's own is nobody's.
    pub(crate) fn charged(&self) -> Option<(u32, bool)> {
        let (who, dear) = match self {
            Self::Prepare { who, .. } | Self::Events { who, .. } => (who, true),
            Self::Add { who, admitted, .. } => (who, admitted.is_none()),
            Self::Owned { who, .. } | Self::Change { who, .. } | Self::Detach { who, .. } => (who, false),
            // A user's own divvyd has these, and nobody else's time.
            Self::Status
            | Self::Show { .. }
            | Self::ChangeGroup { .. }
            | Self::DetachGroup { .. }
            | Self::TakeRules(_)
            | Self::Rules => return None,
        };
        (who.uid != 0 && who.pid != 0).then_some((who.uid, dear))
    }
}

/// What it says.
#[derive(Debug)]
pub(crate) enum Answer {
    Status(Box<Status>),
    Client(Box<Client>),
    Group(Box<Group>),
    Rules(RulesState),
    /// A client that is there since this request.
    Added(Box<Client>),
    Plan(Plan),
    Prepared(Prepared),
    /// Whose the client of that number is, what it may not exceed, and which CPUs it is kept to.
    Owned(u32, Owner, Limits, Cpus),
    Events(Events),
}

/// What a client is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// Its name among its owner's clients.
    pub(crate) name: String,
    /// Which processes it is.
    pub(crate) selector: Selector,
    /// The client of the same user that its process descends from.
    pub(crate) parent: Option<CurrencyId>,
}

/// Why it does not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    pub(crate) fix: String,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl ToString, fix: impl ToString) -> Self {
        Self { code, message: message.to_string(), fix: fix.to_string() }
    }

    pub(crate) fn body(self) -> ErrorBody {
        ErrorBody { error: ErrorInfo { code: self.code, message: self.message, fix: self.fix } }
    }
}

/// A command and where its answer goes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) reply: oneshot::Sender<Result<Answer, Refusal>>,
}

/// The API's end.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    queue: SyncSender<Request>,
    views: Views,
    waker: Waker,
}

/// Both ends.
pub(crate) fn channel(waker: Waker) -> (Handle, (Receiver<Request>, Publisher)) {
    let (queue, requests) = sync_channel(QUEUE);
    let (views, publisher) = views({
        let waker = waker.clone();
        move || waker.wake()
    });
    (Handle { queue, views, waker }, (requests, publisher))
}

impl Handle {
    /// How everybody stands, for user `uid`, with so many members of each client at least. The scheduler is not waited for
    /// but where nobody has wanted to know for a while, or that user has just changed something.
    pub(crate) async fn view(&self, uid: u32, members: usize) -> Result<Arc<View>, Refusal> {
        self.views.get(uid, members).await
    }

    /// User `uid` was told that something is other than before: the next [`view`](Self::view) for it shows that.
    pub(crate) fn note_change(&self, uid: u32) {
        self.views.note_change(uid);
    }

    /// Has the scheduler do something of which nobody waits for what comes of it. Only for few: a full queue is waited for.
    pub(crate) fn post(&self, command: Command) {
        let (reply, _) = oneshot::channel();
        // A scheduler that has ended needs nothing any more.
        let _ = self.queue.send(Request { command, reply });
        self.waker.wake();
    }

    /// Asks the scheduler, and waits for its answer. What it has changed shows in the asker's next view.
    pub(crate) async fn ask(&self, command: Command) -> Result<Answer, Refusal> {
        let changes = command.changes();
        let answer = self.wait_for(command).await;
        // What was refused may have been done in part.
        changes.into_iter().for_each(|uid| self.note_change(uid));
        answer
    }

    async fn wait_for(&self, command: Command) -> Result<Answer, Refusal> {
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Request { command, reply }) {
            Ok(()) => self.waker.wake(),
            Err(TrySendError::Full(_)) => {
                let text = format!("{QUEUE} requests wait already");
                return Err(Refusal::new(ErrorCode::Busy, text, "ask again later"));
            }
            Err(TrySendError::Disconnected(_)) => return Err(divvyd_leaves()),
        }
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(divvyd_leaves()),
            Err(_) => {
                let text = format!("the scheduler gave no answer within {} s", PATIENCE.as_secs());
                Err(Refusal::new(ErrorCode::Busy, text, "ask again; what was asked for may have been done"))
            }
        }
    }
}
