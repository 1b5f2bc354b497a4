//! What is asked of the market's thread, and what it says.
//!
//! The market has a thread of its own: the scheduler never waits for it, nor for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel as channel_of};
use std::time::Duration;

use divvy_linux::{CpuListError, CpuMask, Pid};
use divvy_market::{Presence, Resource};
use tokio::sync::oneshot;

use super::policy::Policy;
use crate::message::Refusal;
use divvy_api::market::{
    Audit, Bound, Changed, Currency, CurrencyChange, Exchange, Explained, Graph, NewCurrency, NewExchange,
    NewNice, NewOffer, NewTicket, Offer, Offered, Ticket, TicketChange,
};
use divvy_api::site::{Orders, Report, Site, SiteTable};
use divvy_api::types::{Change, ErrorCode};

/// Questions that wait for the market at most; more are refused.
const QUEUE: usize = 1024;
/// An answer that has not come by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who asks, as the kernel tells: never as a request says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// The effective user of the process at the other end of the socket.
    pub(crate) uid: u32,
    /// Its effective group first, then its other groups.
    pub(crate) gids: Vec<u32>,
    /// Its pid; 0 where the kernel does not tell.
    pub(crate) pid: i32,
    /// Root, which asks in this user's place.
    pub(crate) by_root: bool,
}

impl Who {
    /// divvyd itself, which may everything.
    pub(crate) fn divvyd() -> Self {
        Self { uid: 0, gids: vec![0], pid: 0, by_root: false }
    }

    /// The process that asks, where the kernel tells.
    pub(crate) fn process(&self) -> Option<Pid> {
        Some(self.pid).filter(|&pid| pid > 0).and_then(Pid::from_raw)
    }
}

/// A process that is to be, or is, a client: by pid and start time, so that another of the same pid is told apart.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Identity {
    /// The selector as text: `tree:123`, `user:alice`.
    pub(crate) selector: String,
    /// The pid that the selector names, if it names one, and its start time in clock ticks since the machine's start.
    pub(crate) process: Option<(i32, u64)>,
    /// The machine's start, as `/proc/sys/kernel/random/boot_id` has it: pids mean nothing after another one.
    pub(crate) boot: String,
}

/// A client that the scheduler is to divide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The market's id of it.
    pub(crate) currency: divvy_market::CurrencyId,
    /// The name that it has there and in the scheduler.
    pub(crate) name: String,
    /// The user that owns it.
    pub(crate) uid: u32,
    /// Which processes it is.
    pub(crate) identity: Identity,
    /// The tickets that its user gave it: what `divvy ls` shows as share.
    pub(crate) amount: u64,
    /// What it may not exceed.
    pub(crate) limits: Limits,
    /// Which CPUs it is kept to.
    pub(crate) cpus: Cpus,
}

/// The limits of a client, as they are to be kept over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Limits {
    /// Millionths of one CPU.
    pub(crate) cpu_ppm: Option<u64>,
    /// Bytes.
    pub(crate) memory: Option<u64>,
    /// Bytes a second of each disk.
    pub(crate) disk: Option<u64>,
}

/// The CPUs that a client is kept to; none: it may use all that are divided. Written as a list, `0,2-3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Cpus(pub(crate) CpuMask);

impl From<Cpus> for String {
    fn from(cpus: Cpus) -> Self {
        cpus.0.to_string()
    }
}

impl TryFrom<String> for Cpus {
    type Error = CpuListError;

    fn try_from(list: String) -> Result<Self, CpuListError> {
        if list.is_empty() { Ok(Self::default()) } else { list.parse().map(Self) }
    }
}

/// What a client gets together, or nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Another amount of its first cpu ticket.
    pub(crate) share: Option<u64>,
    /// Hard tickets, in millionths of all that the issuer has; those that it has of this issuer are replaced, 0 by none.
    pub(crate) reserve: Vec<(Resource, u64)>,
    /// Their issuer; the currency of the client's user where none is named.
    pub(crate) from: Option<String>,
    /// All of its limits, from now on.
    pub(crate) limits: Option<Limits>,
    /// The CPUs that it is kept to, from now on.
    pub(crate) cpus: Option<Cpus>,
}

/// What the market is asked.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Graph,
    Currency(String),
    CreateCurrency(NewCurrency),
    ChangeCurrency(String, CurrencyChange),
    DestroyCurrency(String),
    Ticket(String),
    CreateTicket(NewTicket),
    ChangeTicket(String, TicketChange),
    DestroyTicket(String),
    CreateExchange(NewExchange),
    CancelExchange(u64),
    CreateOffer(NewOffer),
    WithdrawOffer(u64),
    Nice(NewNice),
    SetBound(String, Bound),
    /// What holds of a site's table.
    Site,
    /// Another table; superusers only.
    SetSite(SiteTable),
    /// What the site's dealer orders of exchanges over nodes; superusers only.
    Orders(Orders),
    Explain(String, Resource),
    Audit {
        since: u64,
    },
    /// Makes a market client, funded by the caller's own currency (made on first use) with `amount` soft tickets of each
    /// resource; one whose process descends from a client of the same user is funded by the issuer of that client's first
    /// ticket.
    Admit {
        name: String,
        amount: u64,
        identity: Identity,
        parent: Option<divvy_market::CurrencyId>,
        /// The currency that funds it instead of these.
        from: Option<String>,
        /// The job through whose currency it is funded; `amount` is that currency's then, and made with it.
        job: Option<String>,
    },
    /// Changes the amount of a client's first cpu ticket: `divvy set`.
    SetShare {
        client: divvy_market::CurrencyId,
        amount: u64,
    },
    /// Changes several things of a client: `divvy set` with reservations or limits.
    SetTerms {
        client: divvy_market::CurrencyId,
        terms: Box<Terms>,
    },
    /// Whether the caller may let go a client of its own: not what the policy wants divided.
    MayLeave {
        client: divvy_market::CurrencyId,
    },
    /// The client has left the scheduler, or could not be scheduled after all.
    Leave {
        client: divvy_market::CurrencyId,
    },
    /// Nothing: the scheduler has carried out `change` of a client, or let it go; or has refused that, because it is another user's. The
    /// audit log tells of it.
    Noted {
        /// As it was asked for.
        client: String,
        change: Option<Box<Change>>,
        /// Why it was refused.
        refused: Option<String>,
    },
    /// Another policy; superusers only. What it grants and bounds holds from then on.
    Reload(Box<Policy>),
}

/// What the market says.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Graph(Graph),
    Currency(Currency),
    ChangedCurrency(Changed<Currency>),
    Ticket(Ticket),
    ChangedTicket(Changed<Ticket>),
    Exchange(Changed<Exchange>),
    Offer(Changed<Offer>),
    Offered(Changed<Offered>),
    Explained(Explained),
    Audit(Audit),
    Site(Site),
    Report(Report),
    Admitted(Admitted),
    Done,
}

/// A question and where the answer goes.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) who: Who,
    pub(crate) ask: Ask,
    pub(crate) reply: oneshot::Sender<Result<Said, Refusal>>,
}

/// What comes to the market's thread.
#[derive(Debug)]
pub(crate) enum Message {
    Question(Box<Question>),
    /// A client began or ceased to compete for the CPU.
    Presence(divvy_market::CurrencyId, Presence),
    /// Come to an end.
    Stop,
}

/// The asking end.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    queue: Sender<Message>,
    /// Questions that were sent and not yet taken.
    waiting: Arc<AtomicUsize>,
}

/// The answering end.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Receiver<Message>,
    waiting: Arc<AtomicUsize>,
}

/// Both ends.
pub(crate) fn channel() -> (Handle, Inbox) {
    let (sender, queue) = channel_of();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Handle { queue: sender, waiting: Arc::clone(&waiting) }, Inbox { queue, waiting })
}

impl Inbox {
    /// The next message, waited for no longer than `patience`.
    ///
    /// # Errors
    /// That none came, or that nobody is left who could send one.
    pub(crate) fn take(&self, patience: Duration) -> Result<Message, RecvTimeoutError> {
        self.queue.recv_timeout(patience).inspect(|message| self.taken(message))
    }

    /// The next message, if there is one.
    pub(crate) fn try_take(&self) -> Option<Message> {
        self.queue.try_recv().ok().inspect(|message| self.taken(message))
    }

    fn taken(&self, message: &Message) {
        if let Message::Question(_) = message {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Handle {
    /// Asks the market's thread, and waits for its answer: what it says is done is on disk.
    ///
    /// # Errors
    /// The market's refusal; `busy` where too many wait; `leaving` where divvyd is ending.
    pub(crate) async fn ask(&self, who: Who, ask: Ask) -> Result<Said, Refusal> {
        let (reply, answer) = oneshot::channel();
        let leaving = || Refusal::new(ErrorCode::Leaving, "divvyd is ending", "ask again later");
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUE {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let text = format!("{QUEUE} requests wait for the market already");
            return Err(Refusal::new(ErrorCode::Busy, text, "ask again later"));
        }
        if self.queue.send(Message::Question(Box::new(Question { who, ask, reply }))).is_err() {
            return Err(leaving());
        }
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(said)) => said,
            Ok(Err(_)) => Err(leaving()),
            Err(_) => {
                let text = format!("the market gave no answer within {} s", PATIENCE.as_secs());
                Err(Refusal::new(ErrorCode::Busy, text, "ask again; what was asked for may have been done"))
            }
        }
    }

    /// Says that a client began or ceased to compete for the CPU. Never waits, and cannot fail: news of a client that has
    /// left is passed over. What is said counts at once, and is on disk a second later at the latest.
    pub(crate) fn presence(&self, client: divvy_market::CurrencyId, presence: Presence) {
        // Where the market's thread has ended, nobody needs to know.
        let _ = self.queue.send(Message::Presence(client, presence));
    }

    /// Asks the thread to come to an end, after what it was asked before.
    pub(crate) fn stop(&self) {
        let _ = self.queue.send(Message::Stop);
    }
}
