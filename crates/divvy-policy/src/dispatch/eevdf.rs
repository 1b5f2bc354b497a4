//! `eevdf`: earliest eligible virtual deadline first, the rule of present Linux kernels.
//!
//! **Problem.** Proportional shares with a bounded lag for everybody, and short latency for who asks for short slices.
//! **Idea.** Give each client a virtual runtime that advances by service / share. Who has had no more than the average
//! is *eligible*; of those, run the one whose present request is due first.
//! **Terms.** *Virtual runtime* v; *virtual time* V, the average of v over the runnable, weighted by shares; *lag* =
//! share (V - v), in nanoseconds of service; *deadline* = v at which the request of one slice is served, so a slice
//! further for every slice / share of v.
//! **Algorithm.** An ordered set by (deadline, id); the first eligible one is chosen for the rest of its request.
//! Who blocks takes its lag along, at most two slices of it; on waking, v is set so that it has this lag again, the average
//! having moved by its coming. Who blocks with a negative lag stays in the average until it would be chosen
//! ("delayed dequeue"), and then leaves with none, so that a short sleep does not forgive it. A newcomer's first deadline
//! is half a slice away. A waking client waits for the end of the running request unless [`Preempt::OnWake`] is asked for.
//!
//! **Properties** (`tests/laws_pbs.rs`): `eevdf_lag_is_bounded` (between -slice and slice on one CPU while nobody blocks),
//! `eevdf_sleep_keeps_lag`, and the laws every dispatcher there is put to.
//!
//! **Weak spots.** Finding the first eligible one walks past those that are not, O(n) at the worst (the kernel keeps a
//! tree of minima). Deadlines move on in whole slices, the kernel's from where the charge ended: ours do not depend on
//! how a charge is split. One average for all CPUs, the kernel has one a CPU; where all that could run are ineligible, the
//! one with the least v does. One slice for all.

use alloc::collections::BTreeSet;
use core::fmt;

use super::frame::{Frame, Occasion, Rows, Rule, Standing, policy_of_frame};
use super::ring::NONE;
use crate::{ClientId, Instant, Kind, Nanos, ParamInfo, PolicyInfo, Share};

/// What `divvy policies` says of EEVDF.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "eevdf",
    kind: Kind::Dispatcher,
    summary: "earliest virtual deadline of those that are behind the average",
    complexity: "O(log n), and one step for each ineligible client with an earlier deadline",
    source: "Stoica and Abdel-Wahab 1995, and Linux since 6.6",
    params: &[
        ParamInfo { name: "slice", range: "1ns to 1h", default: "3ms", summary: "length of a request" },
        ParamInfo {
            name: "preempt",
            range: "slice or wake",
            default: "slice",
            summary: "whether a waking client waits for the end of the running request",
        },
    ],
};

/// Bits behind the point of a virtual runtime in nanoseconds. v stays below 2^84 in 584 years, share * v summed over
/// all clients below 2^127 for sums of shares up to 2^42.
const VIRTUAL_BITS: u32 = 20;

/// When a running client may lose its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preempt {
    /// At the end of its request only.
    #[default]
    AtSlice,
    /// Also when a client wakes that is eligible and due earlier.
    OnWake,
}

/// Everything that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EevdfParams {
    /// Length of a request.
    pub slice: Nanos,
    /// When a running client may lose its CPU.
    pub preempt: Preempt,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for EevdfParams {
    fn default() -> Self {
        Self { slice: Nanos::from_millis(3), preempt: Preempt::AtSlice, cpus: 1 }
    }
}

/// Which parameter is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EevdfError {
    /// The slice must be 1 ns to 1 h.
    Slice(Nanos),
    /// There must be a CPU.
    NoCpu,
}

impl fmt::Display for EevdfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slice(slice) => write!(f, "slice is {} ns; must be 1 ns to 1 h", slice.0),
            Self::NoCpu => f.write_str("cpus is 0; must be at least 1"),
        }
    }
}

impl core::error::Error for EevdfError {}

/// Earliest eligible virtual deadline first, as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Eevdf {
    frame: Frame<EevdfRule>,
}

policy_of_frame!(Eevdf);

impl Eevdf {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`EevdfError`] names the first parameter that is impossible.
    pub fn new(params: EevdfParams) -> Result<Self, EevdfError> {
        if params.slice == Nanos::ZERO || params.slice > Nanos::from_secs(3600) {
            return Err(EevdfError::Slice(params.slice));
        }
        if params.cpus == 0 {
            return Err(EevdfError::NoCpu);
        }
        let rule = EevdfRule { params, queue: BTreeSet::new(), shares: 0, weighted: 0, floor: 0 };
        Ok(Self { frame: Frame::new(rule, params.cpus) })
    }

    /// Service owed to `client` in nanoseconds, rounded down; negative where it had too much, and as it was at blocking
    /// where it is blocked. `None` where it is unknown.
    #[must_use]
    pub fn lag(&self, client: ClientId) -> Option<i64> {
        let slot = self.frame.slot(client).ok()?;
        let account = &self.frame.rows[slot as usize].data;
        let lag = if account.counted { self.frame.rule.lag(account) } else { account.lag };
        Some((lag >> VIRTUAL_BITS) as i64)
    }
}

/// What is kept about a client. Virtual numbers are in units of 2^-[`VIRTUAL_BITS`] ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    share: i128,
    v: i128,
    /// Remainder of the division by the share, carried from charge to charge.
    rest: i128,
    deadline: i128,
    /// share (V - v) at blocking.
    lag: i128,
    /// Part of the average: runnable, or blocked with a debt.
    counted: bool,
    /// In the ordered set.
    queued: bool,
    ever_active: bool,
}

#[derive(Clone, Debug)]
struct EevdfRule {
    params: EevdfParams,
    /// (deadline, id, slot) of the ready, and of the blocked that are still counted.
    queue: BTreeSet<(i128, ClientId, u32)>,
    /// Sum of shares, and of share * v, over the counted.
    shares: i128,
    weighted: i128,
    /// V when nobody was counted any more.
    floor: i128,
}

impl EevdfRule {
    /// V, rounded down.
    fn average(&self) -> i128 {
        if self.shares == 0 { self.floor } else { self.weighted.div_euclid(self.shares) }
    }

    /// share (V - v), from the exact average.
    fn lag(&self, account: &Account) -> i128 {
        let (whole, part) = (self.average(), self.weighted - self.average() * self.shares);
        (whole - account.v) * account.share + part * account.share / self.shares.max(1)
    }

    fn is_eligible(&self, account: &Account) -> bool {
        account.v * self.shares <= self.weighted
    }

    /// A slice in virtual time, rounded up so that it is never nothing.
    fn virtual_slice(&self, share: i128) -> i128 {
        let slice = i128::from(self.params.slice.0) << VIRTUAL_BITS;
        (slice + share - 1) / share
    }

    fn enqueue(&mut self, slot: u32, rows: &mut Rows<Account>) {
        let row = &mut rows[slot as usize];
        row.data.queued = true;
        self.queue.insert((row.data.deadline, row.id, slot));
    }

    fn dequeue(&mut self, slot: u32, rows: &mut Rows<Account>) {
        let row = &mut rows[slot as usize];
        if core::mem::replace(&mut row.data.queued, false) {
            self.queue.remove(&(row.data.deadline, row.id, slot));
        }
    }

    fn count(&mut self, account: &mut Account) {
        self.shares += account.share;
        self.weighted += account.share * account.v;
        account.counted = true;
    }

    fn discount(&mut self, account: &mut Account) {
        self.floor = self.average();
        self.shares -= account.share;
        self.weighted -= account.share * account.v;
        account.counted = false;
    }

    /// Changes v, share or deadline of an account without losing its place in the set or the sums.
    fn update(&mut self, slot: u32, rows: &mut Rows<Account>, change: impl FnOnce(&mut Self, &mut Account)) {
        let Account { queued, counted, .. } = rows[slot as usize].data;
        if queued {
            self.dequeue(slot, rows);
        }
        let account = &mut rows[slot as usize].data;
        if counted {
            let floor = self.floor;
            self.discount(account);
            // Nobody left, only changed.
            self.floor = floor;
        }
        change(self, account);
        if counted {
            self.count(account);
        }
        if queued {
            self.enqueue(slot, rows);
        }
    }

    /// Sets v so that the account, once counted, has `lag`; the deadline keeps its distance from v, `ahead`.
    fn place(&mut self, account: &mut Account, lag: i128, ahead: i128) {
        // Counting it moves V by -share/(shares + share) of the distance V - v, so the distance must be larger by
        // (shares + share)/shares.
        let total = self.shares + account.share;
        let distance = if self.shares == 0 { 0 } else { lag * total / (self.shares * account.share) };
        account.v = self.average() - distance;
        account.deadline = account.v + ahead;
    }

    /// Takes a blocked client out of the average that has worked off its debt.
    fn settle(&mut self, slot: u32, rows: &mut Rows<Account>) {
        self.dequeue(slot, rows);
        let account = &mut rows[slot as usize].data;
        self.discount(account);
        account.lag = 0;
    }
}

impl Rule for EevdfRule {
    type Data = Account;

    fn join(&mut self, _now: Instant, _id: ClientId, share: Share) -> Account {
        let share = i128::from(share.get());
        Account {
            share,
            v: 0,
            rest: 0,
            deadline: 0,
            lag: 0,
            counted: false,
            queued: false,
            ever_active: false,
        }
    }

    fn wake(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Account>, _current: u32) {
        let account = &mut rows[slot as usize].data;
        if account.counted {
            // Still in the average; whatever it gained beyond its debt by sleeping is forfeited.
            if self.lag(account) > 0 {
                let ahead = account.deadline - account.v;
                self.dequeue(slot, rows);
                let account = &mut rows[slot as usize].data;
                self.discount(account);
                self.place(account, 0, ahead);
                self.count(account);
                self.enqueue(slot, rows);
            }
            return;
        }
        let mut ahead = self.virtual_slice(account.share);
        if !account.ever_active {
            account.ever_active = true;
            ahead = (ahead + 1) / 2;
        }
        let lag = account.lag;
        self.place(account, lag, ahead);
        self.count(account);
        self.enqueue(slot, rows);
    }

    fn block(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Account>, _was: Standing) {
        let account = &rows[slot as usize].data;
        if !self.is_eligible(account) {
            if !account.queued {
                self.enqueue(slot, rows);
            }
            return;
        }
        let bound = i128::from(self.params.slice.0) << (VIRTUAL_BITS + 1);
        let lag = self.lag(account).clamp(-bound, bound);
        self.dequeue(slot, rows);
        let account = &mut rows[slot as usize].data;
        account.lag = lag;
        self.discount(account);
    }

    fn leave(&mut self, slot: u32, rows: &mut Rows<Account>) {
        if rows[slot as usize].data.counted {
            self.settle(slot, rows);
        }
    }

    fn reshare(&mut self, _now: Instant, slot: u32, share: Share, rows: &mut Rows<Account>) {
        let new = i128::from(share.get());
        let Account { counted, share: old, .. } = rows[slot as usize].data;
        if !counted {
            rows[slot as usize].data.share = new;
            return;
        }
        let lag = self.lag(&rows[slot as usize].data);
        // Lag and the service left of the request stay what they are.
        self.update(slot, rows, |rule, account| {
            let ahead = (account.deadline - account.v) * old;
            (account.share, account.rest) = (new, 0);
            rule.place(account, lag, (ahead + new - 1) / new);
        });
    }

    fn charge(&mut self, _now: Instant, slot: u32, used: Nanos, rows: &mut Rows<Account>) {
        let slice = self.virtual_slice(rows[slot as usize].data.share);
        if !rows[slot as usize].data.counted {
            // A late charge of a blocked client lowers what it takes along.
            rows[slot as usize].data.lag -= i128::from(used.0) << VIRTUAL_BITS;
            return;
        }
        self.update(slot, rows, |_, account| {
            let total = (i128::from(used.0) << VIRTUAL_BITS) + account.rest;
            account.v += total / account.share;
            account.rest = total % account.share;
            if account.v >= account.deadline {
                account.deadline += ((account.v - account.deadline) / slice + 1) * slice;
            }
        });
    }

    fn put_back(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Account>) {
        self.enqueue(slot, rows);
    }

    fn take(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Account>) {
        self.dequeue(slot, rows);
    }

    fn choose(&mut self, occasion: Occasion, rows: &mut Rows<Account>) -> u32 {
        loop {
            let eligible =
                |&&(_, _, slot): &&(i128, ClientId, u32)| self.is_eligible(&rows[slot as usize].data);
            let Some(&(deadline, id, slot)) = self.queue.iter().find(eligible) else { break };
            if rows[slot as usize].standing == Standing::Blocked {
                self.settle(slot, rows);
                continue;
            }
            if occasion.holder != NONE {
                let holder = &rows[occasion.holder as usize];
                let first =
                    self.is_eligible(&holder.data) && (holder.data.deadline, holder.id) < (deadline, id);
                return if first { occasion.holder } else { slot };
            }
            return slot;
        }
        if occasion.holder != NONE {
            return occasion.holder;
        }
        let ready =
            self.queue.iter().filter(|&&(_, _, slot)| rows[slot as usize].standing == Standing::Ready);
        ready
            .min_by_key(|&&(_, id, slot)| (rows[slot as usize].data.v, id))
            .map_or(NONE, |&(_, _, slot)| slot)
    }

    fn slice(&mut self, _now: Instant, slot: u32, rows: &Rows<Account>) -> Nanos {
        let account = &rows[slot as usize].data;
        let left = (account.deadline - account.v) * account.share - account.rest;
        // Rounded up to a whole nanosecond, so that the request is over when it has been used.
        Nanos(((left + (1 << VIRTUAL_BITS) - 1) >> VIRTUAL_BITS).max(1) as u64)
    }

    fn preempts(&self) -> bool {
        self.params.preempt == Preempt::OnWake
    }

    fn precedes(&self, _now: Instant, a: u32, b: u32, rows: &Rows<Account>) -> bool {
        let key = |slot: u32| (rows[slot as usize].data.deadline, rows[slot as usize].id);
        key(a) < key(b)
    }
}
