//! `mlfb`: multi-level feedback, the form in which operating systems approximate LAS.
//!
//! **Problem.** Favour short jobs without knowing sizes, in constant time. **Idea.** Sink by a level whenever an
//! allotment is used up; serve the highest level that has anyone. **Terms.** *Level* 0 is the highest; its *allotment*
//! is a quantum, and each level below has twice the one above. **Algorithm.** A linked queue for each level. A charge
//! beyond the allotment carries over to the next level, so that charges may be split or lumped; the last level is round
//! robin. Who wakes at a higher level takes the CPU at once; whether waking lifts to the top is [`OnWake`].
//!
//! **Properties** (`tests/laws_pbs.rs`): `mlfb_sinks_by_service`, and the laws every dispatcher there is put to.
//!
//! **Weak spots.** Starves long jobs as LAS does (PBS, section 3.3). With [`OnWake::Top`] a client that sleeps just
//! before its allotment ends stays at the top. Shares have no effect.

use super::dispatcher::{Dispatcher, NONE, Occasion, Pick, Rule, Slot, Table, policy};
use super::ring::Queues;
use crate::{
    ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, Share, param, words,
};

const ON_WAKES: [(&str, OnWake); 2] = [("keep", OnWake::Keep), ("top", OnWake::Top)];

impl Listed for Mlfb {
    const INFO: PolicyInfo = PolicyInfo {
        name: "mlfb",
        summary: "sink by a level with each allotment used up; highest level first; shares have no effect",
        complexity: "O(levels)",
        source: "PBS, sections 1 and 5.5",
        params: &[
            param!(
                "quantum",
                Domain::Quantum(Nanos(1), Nanos::from_secs(3600)),
                "4ms",
                "allotment of the top level"
            ),
            param!("levels", Domain::Whole(1, LEVELS_MAX as u64), "8", "number of queues"),
            param!("on_wake", Domain::Word(&words(&ON_WAKES)), "keep", "level of a client that wakes"),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (levels, on_wake) = (params.whole("levels")?, params.choice("on_wake", &ON_WAKES)?);
        Ok(Self::new(MlfbParams {
            quantum: params.time("quantum")?,
            levels,
            on_wake,
            cpus: params.run().cpus,
        })?)
    }
}

/// Most levels: the last allotment is then 2^31 quanta.
pub const LEVELS_MAX: u32 = 32;

/// Where a client goes that wakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnWake {
    /// To the level that it had.
    #[default]
    Keep,
    /// To the top, with a whole allotment.
    Top,
}

/// Everything that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlfbParams {
    /// Allotment of the top level; it doubles with each level below.
    pub quantum: Nanos,
    /// Number of queues, 1 to [`LEVELS_MAX`].
    pub levels: u32,
    /// Where a client goes that wakes.
    pub on_wake: OnWake,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for MlfbParams {
    fn default() -> Self {
        Self { quantum: Nanos::from_millis(4), levels: 8, on_wake: OnWake::Keep, cpus: 1 }
    }
}

/// Multi-level feedback as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Mlfb(Dispatcher<MlfbRule>);

policy!(Mlfb);

impl Mlfb {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`RangeError`] names the first parameter that is impossible.
    pub fn new(params: MlfbParams) -> Result<Self, RangeError> {
        Self::INFO
            .check(params.cpus, &[("quantum", params.quantum.into()), ("levels", params.levels.into())])?;
        let (accounts, ready) = (Table::new(), Queues::new(params.levels as usize));
        Ok(Self(Dispatcher::new(MlfbRule { params, accounts, ready }, params.cpus)))
    }

    /// The level of `client`, 0 the highest; `None` where it is unknown.
    #[must_use]
    pub fn level(&self, client: ClientId) -> Option<u32> {
        self.0.slot(client).map(|slot| self.0.rule.accounts[slot].level)
    }
}

/// What is kept about a client.
#[derive(Clone, Copy, Debug)]
struct Account {
    client: ClientId,
    level: u32,
    /// Used of the level's allotment, always less than it.
    used: u64,
    /// In a queue: runnable and on no CPU.
    ready: bool,
}

#[derive(Clone, Debug)]
struct MlfbRule {
    params: MlfbParams,
    accounts: Table<Account>,
    ready: Queues,
}

impl MlfbRule {
    /// A quantum, doubled for each level; at most 2^31 hours, which fits.
    fn allotment(&self, level: u32) -> u64 {
        self.params.quantum.0 << level
    }
}

impl Rule for MlfbRule {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, _share: Share) {
        self.accounts.put(slot, Account { client, level: 0, used: 0, ready: false });
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        if self.params.on_wake == OnWake::Top {
            let account = &mut self.accounts[slot];
            (account.level, account.used) = (0, 0);
        }
        if !busy {
            self.put_back(slot);
        }
    }

    fn block(&mut self, _now: Instant, slot: Slot, _busy: bool) {
        let account = &mut self.accounts[slot];
        if core::mem::replace(&mut account.ready, false) {
            self.ready.remove(account.level as usize, slot);
        }
    }

    fn reshare(&mut self, _slot: Slot, _share: Share) {}

    fn charge(&mut self, slot: Slot, used: Nanos) {
        let Account { mut level, used: before, ready, .. } = self.accounts[slot];
        let old = level;
        let mut total = before.saturating_add(used.0);
        while total >= self.allotment(level) {
            if level + 1 == self.params.levels {
                // Round robin at the bottom: only the place within the allotment matters.
                total %= self.allotment(level);
                break;
            }
            total -= self.allotment(level);
            level += 1;
        }
        if ready && level != old {
            self.ready.remove(old as usize, slot);
            self.ready.push_back(level as usize, slot);
        }
        let account = &mut self.accounts[slot];
        (account.level, account.used) = (level, total);
    }

    fn put_back(&mut self, slot: Slot) {
        let account = &mut self.accounts[slot];
        account.ready = true;
        self.ready.push_back(account.level as usize, slot);
    }

    fn pick(&mut self, occasion: Occasion) -> Option<Pick> {
        let kept = match occasion.holder {
            NONE => self.params.levels,
            holder => self.accounts[holder].level,
        };
        let slot = (0..kept as usize).map(|level| self.ready.first(level)).find(|&slot| slot != NONE)?;
        let account = &mut self.accounts[slot];
        account.ready = false;
        let Account { client, level, used, .. } = *account;
        self.ready.remove(level as usize, slot);
        Some(Pick { slot, client, slice: Nanos(self.allotment(level) - used) })
    }

    fn preempts(&self) -> bool {
        true
    }

    fn precedes(&self, _now: Instant, a: Slot, b: Slot) -> bool {
        let key = |slot: Slot| (self.accounts[slot].level, self.accounts[slot].client);
        key(a) < key(b)
    }
}
