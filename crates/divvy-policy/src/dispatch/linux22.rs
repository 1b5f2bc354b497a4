//! `linux-2.2`: the goodness scheduler of Linux 2.2, against which VTRR was measured.
//!
//! **Problem.** A comparator that everybody knew: what a stock kernel did before constant-time schedulers.
//! **Idea.** Each client has a counter of ticks left; the most goodness, counter + priority, runs; when all runnable
//! counters are used up, everyone's becomes half of what is left plus its priority, so that sleepers gain up to twice.
//! **Terms.** *Tick*: 10 ms. *Priority*: ticks handed out at a reset, here share times a constant (20 by default).
//! **Algorithm.** A walk over the runnable clients at every decision. A tick that finds a counter at 0 takes the CPU, so
//! priority 20 runs for 21 ticks or 210 ms (VTRR, section 4). Goodness is 0 where the counter is 0. A client gets 15
//! more on the CPU where it ran last, if there are several. Who wakes with more goodness than the running one takes
//! its CPU. Partial ticks are carried, so charges may be split.
//!
//! **Properties** (`tests/laws_pbs.rs`): `linux22_runs_a_quantum_of_priority_plus_one_ticks`,
//! `linux22_sleepers_gain_at_most_twice`, and the laws every dispatcher there is put to.
//!
//! **Weak spots.** O(n) for every choice and every reset. (priority + 1) ticks are not in proportion to shares. Ties go
//! to the client that ran last, then by id; the kernel took the first of its list, which had the latest waker in front.

use alloc::vec::Vec;

use super::dispatcher::{Dispatcher, NONE, Occasion, Pick, Rule, Slot, Table, policy};
use crate::{
    ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, Share, param,
};

impl Listed for Linux22 {
    const INFO: PolicyInfo = PolicyInfo {
        name: "linux-2.2",
        summary: "goodness: ticks left plus priority, all counters renewed when the runnable have used theirs",
        complexity: "O(n)",
        source: "VTRR, section 4",
        params: &[
            param!("tick", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms", "length of a timer tick"),
            param!(
                "ticks_per_share",
                Domain::Whole(1, 1000),
                "20",
                "priority of a client with share 1, in ticks"
            ),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (tick, ticks_per_share) = (params.time("tick")?, params.whole("ticks_per_share")?);
        Ok(Self::new(Linux22Params { tick, ticks_per_share, cpus: params.run().cpus })?)
    }
}

/// Goodness added on the CPU where a client ran last, if there are several.
const SAME_CPU_BONUS: u64 = 15;

/// Everything that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linux22Params {
    /// Length of a timer tick.
    pub tick: Nanos,
    /// Priority of a client with share 1, in ticks, 1 to 1000.
    pub ticks_per_share: u32,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for Linux22Params {
    fn default() -> Self {
        Self { tick: Nanos::from_millis(10), ticks_per_share: 20, cpus: 1 }
    }
}

/// The goodness scheduler as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Linux22(Dispatcher<Linux22Rule>);

policy!(Linux22);

impl Linux22 {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`RangeError`] names the first parameter that is impossible.
    pub fn new(params: Linux22Params) -> Result<Self, RangeError> {
        Self::INFO.check(
            params.cpus,
            &[("tick", params.tick.into()), ("ticks_per_share", params.ticks_per_share.into())],
        )?;
        let (accounts, active) = (Table::new(), Vec::new());
        Ok(Self(Dispatcher::new(Linux22Rule { params, accounts, active, resets: 0 }, params.cpus)))
    }

    /// Ticks left to `client`; `None` where it is unknown.
    #[must_use]
    pub fn counter(&self, client: ClientId) -> Option<u64> {
        self.0.slot(client).map(|slot| self.0.rule.accounts[slot].counter)
    }

    /// How often all counters have been renewed.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.0.rule.resets
    }
}

/// What is kept about a client.
#[derive(Clone, Copy, Debug)]
struct Account {
    client: ClientId,
    /// On a CPU.
    held: bool,
    counter: u64,
    priority: u64,
    /// Used of the present tick.
    partial: u64,
    last_cpu: u32,
    /// Index in `active`, while runnable.
    place: u32,
}

#[derive(Clone, Debug)]
struct Linux22Rule {
    params: Linux22Params,
    accounts: Table<Account>,
    /// Slots of the runnable.
    active: Vec<Slot>,
    resets: u64,
}

impl Linux22Rule {
    fn priority(&self, share: Share) -> u64 {
        share.get() * u64::from(self.params.ticks_per_share)
    }

    fn goodness(&self, account: &Account, cpu: u32) -> u64 {
        if account.counter == 0 {
            return 0;
        }
        let bonus = if self.params.cpus > 1 && account.last_cpu == cpu { SAME_CPU_BONUS } else { 0 };
        account.counter + account.priority + bonus
    }

    /// The best of the ready clients and the holder, with its goodness.
    fn best(&self, occasion: Occasion) -> (u64, Slot) {
        let mut best = (0, NONE);
        for &slot in &self.active {
            let account = &self.accounts[slot];
            if account.held && slot != occasion.holder {
                continue;
            }
            let goodness = self.goodness(account, occasion.cpu);
            let wins_tie = || {
                slot == occasion.current
                    || (best.1 != occasion.current && account.client < self.accounts[best.1].client)
            };
            if best.1 == NONE || goodness > best.0 || (goodness == best.0 && wins_tie()) {
                best = (goodness, slot);
            }
        }
        best
    }
}

impl Rule for Linux22Rule {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, share: Share) {
        let priority = self.priority(share);
        let (last_cpu, place) = (NONE, NONE);
        let account =
            Account { client, held: false, counter: priority, priority, partial: 0, last_cpu, place };
        self.accounts.put(slot, account);
    }

    fn leave(&mut self, slot: Slot) {
        // The account stays in the table until its slot is used again; a reset must not overflow it meanwhile.
        self.accounts[slot].priority = 0;
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        let account = &mut self.accounts[slot];
        (account.held, account.place) = (busy, self.active.len() as u32);
        self.active.push(slot);
    }

    fn block(&mut self, _now: Instant, slot: Slot, _busy: bool) {
        let place = core::mem::replace(&mut self.accounts[slot].place, NONE);
        self.active.swap_remove(place as usize);
        if let Some(&moved) = self.active.get(place as usize) {
            self.accounts[moved].place = place;
        }
    }

    fn reshare(&mut self, slot: Slot, share: Share) {
        self.accounts[slot].priority = self.priority(share);
    }

    fn charge(&mut self, slot: Slot, used: Nanos) {
        let account = &mut self.accounts[slot];
        let total = account.partial.saturating_add(used.0);
        // A counter does not fall below 0, whatever a late charge brings.
        account.counter = account.counter.saturating_sub(total / self.params.tick.0);
        account.partial = total % self.params.tick.0;
    }

    fn put_back(&mut self, slot: Slot) {
        self.accounts[slot].held = false;
    }

    fn pick(&mut self, occasion: Occasion) -> Option<Pick> {
        let (goodness, mut slot) = self.best(occasion);
        if goodness == 0 {
            self.resets += 1;
            for account in self.accounts.iter_mut() {
                account.counter = account.counter / 2 + account.priority;
            }
            slot = self.best(occasion).1;
        }
        if slot == occasion.holder {
            return None;
        }
        let account = &mut self.accounts[slot];
        (account.held, account.last_cpu) = (true, occasion.cpu);
        // The tick that finds 0 takes the CPU: counter + 1 ticks, less what of the first is gone.
        let slice = Nanos((account.counter + 1).saturating_mul(self.params.tick.0) - account.partial);
        Some(Pick { slot, client: account.client, slice })
    }

    fn preempts(&self) -> bool {
        true
    }

    fn precedes(&self, _now: Instant, a: Slot, b: Slot) -> bool {
        let key = |slot: Slot| {
            let account = &self.accounts[slot];
            (core::cmp::Reverse(self.goodness(account, NONE)), account.client)
        };
        key(a) < key(b)
    }
}
