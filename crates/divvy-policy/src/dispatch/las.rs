//! `las`: least attained service first, also known as foreground-background.
//!
//! **Problem.** Sizes are unknown and vary much; short jobs should not wait for long ones. **Idea.** Whoever has had
//! least so far is likeliest to be short: run it. **Terms.** *Attained service* S: CPU time since joining, or since
//! waking ([`Since`]). **Algorithm.** An ordered set by (S / share, moment of the beginning, id); S / share is compared
//! exactly, by cross-multiplying. Decisions fall on the grid of quanta, on hand-back and on waking.
//!
//! **Properties** (`tests/laws_pbs.rs`): `alpha_infinite_is_las` (this policy and PBS at infinite alpha give the
//! same runs), `las_keeps_services_together`, and the laws every dispatcher there is put to.
//!
//! **Weak spots.** A stream of short jobs starves a long one (PBS, section 3.3). The share of a client divides what it
//! has had, which no paper asks for: with shares 2:1 two jobs are even at services of 2:1.

use alloc::collections::BTreeSet;
use core::cmp::Ordering;
use core::fmt;

use super::frame::{Frame, Grid, Occasion, Rows, Rule, Standing, policy_of_frame};
use super::ring::NONE;
use crate::{ClientId, Instant, Kind, Nanos, ParamInfo, PolicyInfo, Share};

/// What `divvy policies` says of LAS.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "las",
    kind: Kind::Dispatcher,
    summary: "least attained service (per share) first",
    complexity: "O(log n)",
    source: "PBS, section 1",
    params: &[
        ParamInfo { name: "quantum", range: "1ns to 1h", default: "4ms", summary: "grid of decisions" },
        ParamInfo {
            name: "since",
            range: "join or wake",
            default: "join",
            summary: "when service starts to count: at creation, or at each waking",
        },
    ],
};

/// From when service counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// From when the client joined: PBS with infinite alpha and beta = +infinity.
    #[default]
    Join,
    /// From when it last woke after a sleep of some length: PBS with infinite alpha and beta = 0.
    Wake,
}

/// Everything that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LasParams {
    /// Grid of decisions: grants end at multiples of it.
    pub quantum: Nanos,
    /// From when service counts.
    pub since: Since,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for LasParams {
    fn default() -> Self {
        Self { quantum: Nanos::from_millis(4), since: Since::Join, cpus: 1 }
    }
}

/// Which parameter is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LasError {
    /// The quantum must be 1 ns to 1 h.
    Quantum(Nanos),
    /// There must be a CPU.
    NoCpu,
}

impl fmt::Display for LasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantum(q) => write!(f, "quantum is {} ns; must be 1 ns to 1 h", q.0),
            Self::NoCpu => f.write_str("cpus is 0; must be at least 1"),
        }
    }
}

impl core::error::Error for LasError {}

/// Least attained service first, as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Las {
    frame: Frame<LasRule>,
}

policy_of_frame!(Las);

impl Las {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`LasError`] names the first parameter that is impossible.
    pub fn new(params: LasParams) -> Result<Self, LasError> {
        if params.quantum == Nanos::ZERO || params.quantum > Nanos::from_secs(3600) {
            return Err(LasError::Quantum(params.quantum));
        }
        if params.cpus == 0 {
            return Err(LasError::NoCpu);
        }
        let rule = LasRule { grid: Grid::new(params.quantum), since: params.since, ready: BTreeSet::new() };
        Ok(Self { frame: Frame::new(rule, params.cpus) })
    }
}

/// What is kept about a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    service: Nanos,
    share: Share,
    begin: Instant,
    blocked_at: Option<Instant>,
}

/// Place in the order: least service per share, then the earliest beginning, then id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    service: u64,
    share: u64,
    begin: Instant,
    id: ClientId,
    slot: u32,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        // S/k < S'/k' as S k' < S' k, in 96 bits at the most.
        let mine = u128::from(self.service) * u128::from(other.share);
        let theirs = u128::from(other.service) * u128::from(self.share);
        mine.cmp(&theirs).then((self.begin, self.id).cmp(&(other.begin, other.id)))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Debug)]
struct LasRule {
    grid: Grid,
    since: Since,
    ready: BTreeSet<Key>,
}

fn key(slot: u32, rows: &Rows<Account>) -> Key {
    let row = &rows[slot as usize];
    let Account { service, share, begin, .. } = row.data;
    Key { service: service.0, share: share.get(), begin, id: row.id, slot }
}

impl LasRule {
    /// Changes an account without losing its place in the set.
    fn update(&mut self, slot: u32, rows: &mut Rows<Account>, change: impl FnOnce(&mut Account)) {
        let ready = rows[slot as usize].standing == Standing::Ready;
        if ready {
            self.ready.remove(&key(slot, rows));
        }
        change(&mut rows[slot as usize].data);
        if ready {
            self.ready.insert(key(slot, rows));
        }
    }
}

impl Rule for LasRule {
    type Data = Account;

    fn join(&mut self, now: Instant, _id: ClientId, share: Share) -> Account {
        Account { service: Nanos::ZERO, share, begin: now, blocked_at: None }
    }

    fn wake(&mut self, now: Instant, slot: u32, rows: &mut Rows<Account>, _current: u32) {
        let account = &mut rows[slot as usize].data;
        // Blocked and woken at one instant is no sleep.
        if self.since == Since::Wake && account.blocked_at != Some(now) {
            account.begin = now;
            account.service = Nanos::ZERO;
        }
        self.ready.insert(key(slot, rows));
    }

    fn block(&mut self, now: Instant, slot: u32, rows: &mut Rows<Account>, was: Standing) {
        if was == Standing::Ready {
            self.ready.remove(&key(slot, rows));
        }
        rows[slot as usize].data.blocked_at = Some(now);
    }

    fn reshare(&mut self, _now: Instant, slot: u32, share: Share, rows: &mut Rows<Account>) {
        self.update(slot, rows, |account| account.share = share);
    }

    fn charge(&mut self, _now: Instant, slot: u32, used: Nanos, rows: &mut Rows<Account>) {
        self.update(slot, rows, |account| account.service += used);
    }

    fn put_back(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Account>) {
        self.ready.insert(key(slot, rows));
    }

    fn take(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Account>) {
        self.ready.remove(&key(slot, rows));
    }

    fn choose(&mut self, occasion: Occasion, rows: &mut Rows<Account>) -> u32 {
        let Some(&first) = self.ready.first() else { return occasion.holder };
        if occasion.holder != NONE && key(occasion.holder, rows) < first {
            occasion.holder
        } else {
            first.slot
        }
    }

    fn slice(&mut self, now: Instant, _slot: u32, _rows: &Rows<Account>) -> Nanos {
        self.grid.until_next(now)
    }

    fn preempts(&self) -> bool {
        true
    }

    fn precedes(&self, _now: Instant, a: u32, b: u32, rows: &Rows<Account>) -> bool {
        key(a, rows) < key(b, rows)
    }
}
