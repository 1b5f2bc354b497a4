//! `pbs`: priority-based blind scheduling, one tunable policy from FCFS through PS to LAS.
//!
//! **Problem.** No blind policy is best everywhere: FCFS has the shortest mean response when sizes vary little, LAS
//! when they vary much, PS is the fairest. An operator wants one policy with one knob, not three schedulers.
//!
//! **Idea.** Run the client with the greatest `T / S^alpha`: T is how long it has been here, S what it has got. With
//! alpha = 0 only age counts (FCFS), with alpha = 1 it is the slowdown (close to PS), with alpha towards infinity only
//! service counts (LAS).
//!
//! **Terms.** *Sojourn* T: time since the session began, with or without inactive periods (the sign of beta).
//! *Attained service* S: CPU time received in the session. *Session* (section 4.1): begins when a client wakes after an
//! inactive period of at least *beta* times the mean of its earlier ones. *Bonus* gamma: added to whoever ran last on
//! the CPU. *Offset* delta: `|alpha| * log2(share)`, which gives kappa times the share kappa times the CPU (section
//! 5.2; the paper's `exp(delta / alpha)` is `2^(delta / alpha)`, its logarithms being base 2). *Second term*
//! (section 5.3): `epsilon * (log2 T' - alpha' * log2 S')` under sessions of its own.
//!
//! **Algorithm.** `p = log2 T - alpha * log2 S + delta`, integers in units of 2^-32, greatest first. Ties: earliest
//! session, then id. S = 0 with alpha above 0 is above everything. For alpha < 0 the paper's extension
//! `sgn(alpha) T / S^alpha` is `p = -log2 T - |alpha| log2 S`: PLCFS towards 0, LAS towards minus infinity.
//! Decisions fall on the grid of quanta, when a CPU is handed back, and when a client wakes.
//! Only log2 T changes while a client waits, so the rest of its priority is kept and the scan needs one logarithm a
//! client, and none where an upper bound from the leading zeros of T already loses. Algorithm 1 (section 5.5) looks at
//! L + M clients whatever n is, predicting priorities half a turn of its sampling ahead.
//!
//! **Properties** (tests in `tests/paper_pbs.rs` and `tests/laws_pbs.rs`)
//! - `golden_slice`: the fifteen recorded schedules come out run by run.
//! - `properties_*`: the eleven of section 3.2, on the fluid model.
//! - `a_wait_is_bounded`: with clients that never block, on one CPU, a client of share k waits for at most
//!   `A + (n - 1) (q + K/k * S * 2^(1/alpha))`, where A is the age of the oldest, K the largest share. This is why
//!   [`Guard::StarvationFree`] keeps alpha within 1/16 to 16: at the ends `2^(1/alpha)` and the sojourns that undo a
//!   doubled service, `2^alpha`, reach 65,536.
//! - `stretched_time_changes_nothing`, `one_session_ever_forgets_alpha_when_all_is_equal`,
//!   `a_split_charge_equals_the_whole`, `renaming_permutes`, `no_cpu_idles_with_work`, `a_rejected_event_changes_nothing`.
//! - `shares_come_out_in_the_long_run`, `the_bonus_lengthens_runs_in_proportion_to_service`,
//!   `algorithm_1_stays_close_to_the_scan` (50 clients, L = M = 2: service within 3%).
//! - `alpha_zero_from_below_is_plcfs`, `the_limits_are_approached_from_both_sides`.
//! - `alpha_zero_is_fcfs`, `alpha_infinite_is_las`, `equal_arrivals_share_equally`.
//!
//! **Weak spots.** With a finite beta a client that times its sleeps starts sessions at will, and each begins above
//! everything: the paper assumes a lower bound on thinking time. Algorithm 1 is a heuristic; with `|L| >= L` taken
//! literally an arrival throws out one more than it must, so L = 2 keeps one. Shares act through S only once S is well
//! above a quantum, and not at all at alpha = 0. A late charge leaves a client's priority too high meanwhile.
//! LAS and FCFS starve clients (section 3.3); they must be asked for by [`Guard::Study`].

use alloc::vec::Vec;

use super::dispatcher::{Dispatcher, Grid, NONE, Occasion, Pick, Rule, Slot, Table, policy};
use super::fixed::{FIXED_BITS, Fixed, log2};
use super::ring::Queues;

pub use super::pbs_params::{
    ALPHA_SAFE_MAX, ALPHA_SAFE_MIN, ALPHA_STUDY_MAX, ALPHA_STUDY_MIN, Alpha, BETA_MAX, BONUS_MAX, Guard,
    Inactive, PbsParams, SAMPLE_MAX, Search, SecondTerm, Sessions, Threshold,
};
use crate::{
    ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, Share, param, words,
};

const GUARDS: [(&str, Guard); 2] = [("safe", Guard::StarvationFree), ("study", Guard::Study)];

impl Listed for Pbs {
    const INFO: PolicyInfo = PolicyInfo {
        name: "pbs",
        summary: "greatest sojourn / service^alpha first: FCFS at 0, close to PS at 1, LAS at infinity",
        complexity: "O(n) scan, or O(L + M) by Algorithm 1",
        source: "PBS, sections 2, 4.1 and 5",
        params: &[
            param!(
                "alpha",
                Domain::Form("1/16 to 16; with guard=study 0, -0, inf, and 2^-20 to 1024 of either sign",),
                "1",
                "weight of attained service against age"
            ),
            param!("guard", Domain::Word(&words(&GUARDS)), "safe", "whether alpha may starve clients"),
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(3600)), "4ms", "grid of decisions"),
            param!(
                "beta",
                Domain::Form("0 to 2^30, or inf; - in front leaves inactive periods out of the sojourn",),
                "inf",
                "a sleep of beta times the mean begins a new session"
            ),
            param!("gamma", Domain::Number(Fixed::ZERO, BONUS_MAX), "0", "bonus of the client that ran last"),
            param!(
                "epsilon",
                Domain::Number(Fixed::ZERO, BONUS_MAX),
                "0",
                "weight of a second priority term, for interactive clients"
            ),
            param!("alpha2", Domain::Number(Fixed::ZERO, ALPHA_STUDY_MAX), "1", "alpha of the second term"),
            param!("beta2", Domain::Form("as beta"), "inf", "beta of the second term"),
            param!("keep", Domain::Whole(2, SAMPLE_MAX as u64), "off: scan all", "L of Algorithm 1"),
            param!("sample", Domain::Whole(1, SAMPLE_MAX as u64), "2", "M of Algorithm 1"),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let epsilon = params.number("epsilon")?;
        let (alpha, sessions) = (params.number("alpha2")?, params.form("beta2", Sessions::parse)?);
        let second = (epsilon != Fixed::ZERO).then_some(SecondTerm { epsilon, alpha, sessions });
        let search = match (params.is_given("keep"), params.is_given("sample")) {
            (false, false) => Search::Scan,
            (true, _) => Search::Sample { keep: params.whole("keep")?, sample: params.whole("sample")? },
            (false, true) => Search::Sample { keep: 2, sample: params.whole("sample")? },
        };
        Ok(Self::new(PbsParams {
            alpha: params.form("alpha", Alpha::parse)?,
            guard: params.choice("guard", &GUARDS)?,
            quantum: params.time("quantum")?,
            sessions: params.form("beta", Sessions::parse)?,
            gamma: params.number("gamma")?,
            second,
            search,
            cpus: params.run().cpus,
        })?)
    }
}

/// Priority-based blind scheduling as a [`crate::Policy`]. See the module for the idea and its properties.
///
/// ```
/// use divvy_policy::dispatch::pbs::{Pbs, PbsParams, Alpha};
/// use divvy_policy::dispatch::fixed::Fixed;
/// use divvy_policy::{ClientId, CpuId, Event, Instant, Nanos, Policy, RangeError, Share};
///
/// let mut pbs = Pbs::new(PbsParams::default())?;
/// let client = ClientId(0);
/// pbs.on_event(Instant(0), Event::Join { client, share: Share::ONE }).unwrap();
/// pbs.on_event(Instant(0), Event::Wake { client }).unwrap();
/// pbs.on_event(Instant(0), Event::Free { cpu: CpuId(0) }).unwrap();
/// let grant = pbs.poll_decision(Instant(0)).unwrap();
/// assert_eq!((grant.client, grant.slice), (client, Nanos::from_millis(4)));
///
/// let wild = PbsParams { alpha: Alpha::Finite(Fixed::int(17)), ..PbsParams::default() };
/// assert!(matches!(Pbs::new(wild), Err(RangeError::Outside { name: "alpha", .. })));
/// # Ok::<(), RangeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pbs(Dispatcher<PbsRule>);

policy!(Pbs);

impl Pbs {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`RangeError`] names the first parameter that is impossible.
    pub fn new(params: PbsParams) -> Result<Self, RangeError> {
        params.check(&Self::INFO)?;
        Ok(Self(Dispatcher::new(PbsRule::new(params), params.cpus)))
    }

    /// What `client` is worth at `now` (p of eq. 2 with its offset, without the bonus), in units of 2^-32 of a binary
    /// logarithm; `None` where it is unknown or blocked. [`Fixed`]`(i64::MAX)` is "above everything": S = 0. For the
    /// limits of alpha it is the sojourn, or minus the service per share, in whole nanoseconds instead.
    #[must_use]
    pub fn priority(&self, now: Instant, client: ClientId) -> Option<Fixed> {
        let place = self.runnable(client)?.place;
        Some(Fixed(self.0.rule.value(place as usize, now, Nanos::ZERO)))
    }

    /// T and S of the client's session at `now`; `None` where it is unknown or blocked.
    #[must_use]
    pub fn session(&self, now: Instant, client: ClientId) -> Option<(Nanos, Nanos)> {
        let main = self.runnable(client)?.main;
        Some((now.since(main.origin), main.service))
    }

    fn runnable(&self, client: ClientId) -> Option<&Account> {
        let account = &self.0.rule.accounts[self.0.slot(client)?];
        (account.place != NONE).then_some(account)
    }
}

/// T and S of one session, under one beta.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// When the session began.
    begin: Instant,
    /// T = now - origin while runnable: the beginning, moved on by the periods that are left out.
    origin: Instant,
    /// S.
    service: Nanos,
}

/// What is kept about a client.
#[derive(Clone, Debug)]
struct Account {
    client: ClientId,
    main: Clock,
    second: Clock,
    /// Start of the present inactive period; `None` before the first activation.
    blocked_at: Option<Instant>,
    ever_active: bool,
    /// Inactive periods that ended, and their total length.
    nr_inactive: u64,
    inactive: u128,
    share: Share,
    /// delta.
    offset: i64,
    /// Index in `active`, while runnable.
    place: u32,
}

impl Account {
    /// Brings T and S up to an activation at `now`.
    fn activate(&mut self, now: Instant, sessions: Sessions, second: Option<Sessions>) {
        if !self.ever_active {
            self.ever_active = true;
            let clocks = [(&mut self.main, Some(sessions)), (&mut self.second, second)];
            for (clock, sessions) in clocks {
                // Sleep before the first activation is no inactive period; only beta = +inf counts it in T.
                if sessions != Some(Sessions::LIFETIME) {
                    (clock.begin, clock.origin) = (now, now);
                }
            }
            return;
        }
        let Some(since) = self.blocked_at else { return };
        let last = now.since(since);
        // Blocked and woken at one instant: no inactive period at all.
        if last == Nanos::ZERO {
            return;
        }
        let (nr, total) = (self.nr_inactive, self.inactive);
        let resume = |clock: &mut Clock, sessions: Sessions| {
            if PbsRule::begins_session(sessions, last, nr, total) {
                *clock = Clock { begin: now, origin: now, service: Nanos::ZERO };
            } else if sessions.inactive == Inactive::Excluded {
                clock.origin = clock.origin + last;
            }
        };
        resume(&mut self.main, sessions);
        if let Some(sessions) = second {
            resume(&mut self.second, sessions);
        }
        self.nr_inactive += 1;
        self.inactive += u128::from(last.0);
    }
}

/// What the search looks at; kept together, 24 bytes a runnable client.
#[derive(Clone, Copy, Debug)]
struct Contender {
    origin: u64,
    /// What is subtracted from log2 T (or from T, see [`Order`]); [`FIRST`] where S = 0.
    cost: i64,
    slot: u32,
    held: bool,
}

/// The cost of a client that goes before all others.
const FIRST: i64 = i64::MIN / 4;

/// Which integers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// log2 T - cost.
    Priority,
    /// log2 T - cost + epsilon log2 T'.
    Combined,
    /// -log2 T - cost, alpha < 0; with the second term if there is one.
    Negative,
    /// T.
    Eldest,
    /// -T.
    Youngest,
    /// -S / share.
    LeastServed,
}

/// A candidate with its priority.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    value: i64,
    place: u32,
}

#[derive(Clone, Debug)]
struct PbsRule {
    order: Order,
    alpha: Fixed,
    gamma: i64,
    grid: Grid,
    sessions: Sessions,
    second: Option<SecondTerm>,
    search: Search,
    accounts: Table<Account>,
    active: Vec<Contender>,
    /// Origins of the second term, by place; empty without one.
    second_origin: Vec<u64>,
    /// Algorithm 1: the kept set by slot, the ring of runnable clients, who is sampled next, and room to rank.
    kept: Vec<Slot>,
    ring: Queues,
    cursor: u32,
    ranked: Vec<Ranked>,
}

impl PbsRule {
    fn new(params: PbsParams) -> Self {
        let second = params.second.filter(|second| second.epsilon != Fixed::ZERO);
        let (order, alpha) = match params.alpha {
            Alpha::Finite(alpha) if alpha < Fixed::ZERO => (Order::Negative, Fixed(-alpha.0)),
            Alpha::Finite(alpha) => (Order::Priority, alpha),
            // Age alone needs no logarithm, unless something is to be added to it.
            Alpha::Fcfs if second.is_none() && params.gamma == Fixed::ZERO => (Order::Eldest, Fixed::ZERO),
            Alpha::Fcfs => (Order::Priority, Fixed::ZERO),
            Alpha::Las => (Order::LeastServed, Fixed::ZERO),
            Alpha::Plcfs => (Order::Youngest, Fixed::ZERO),
        };
        let order = if order == Order::Priority && second.is_some() { Order::Combined } else { order };
        // In the limits of alpha a finite bonus weighs nothing.
        let gamma = if matches!(order, Order::Youngest | Order::LeastServed | Order::Eldest) {
            0
        } else {
            params.gamma.0
        };
        Self {
            order,
            alpha,
            gamma,
            grid: Grid::new(params.quantum),
            sessions: params.sessions,
            second,
            search: params.search,
            accounts: Table::new(),
            active: Vec::new(),
            second_origin: Vec::new(),
            kept: Vec::new(),
            ring: Queues::new(1),
            cursor: NONE,
            ranked: Vec::new(),
        }
    }

    /// delta of a share: `|alpha| * log2(share)`.
    fn offset(&self, share: Share) -> i64 {
        self.alpha.times(log2(share.get())).0
    }

    /// The part of a priority that does not change while the client waits.
    #[inline]
    fn cost(&self, account: &Account) -> i64 {
        match self.order {
            Order::Eldest | Order::Youngest => return 0,
            Order::LeastServed => {
                return (account.main.service.0 / account.share.get()).min(i64::MAX as u64) as i64;
            }
            Order::Priority | Order::Combined | Order::Negative => {}
        }
        let mut cost = -account.offset;
        if self.alpha != Fixed::ZERO {
            if account.main.service == Nanos::ZERO {
                return FIRST;
            }
            cost += self.alpha.times(log2(account.main.service.0)).0;
        }
        if let Some(second) = self.second
            && second.alpha != Fixed::ZERO
        {
            if account.second.service == Nanos::ZERO {
                return FIRST;
            }
            cost += second.epsilon.times(second.alpha.times(log2(account.second.service.0))).0;
        }
        cost
    }

    /// Brings the cost of a runnable client up to date.
    #[inline]
    fn refresh(&mut self, slot: Slot) {
        let account = &self.accounts[slot];
        if account.place != NONE {
            self.active[account.place as usize].cost = self.cost(account);
        }
    }

    /// The priority of the client at `place`, if its sojourn were longer by `ahead`.
    #[inline]
    fn value(&self, place: usize, now: Instant, ahead: Nanos) -> i64 {
        let contender = &self.active[place];
        let t = (now.0.saturating_sub(contender.origin)).saturating_add(ahead.0);
        match self.order {
            Order::Eldest => t.min(i64::MAX as u64) as i64,
            Order::Youngest => -(t.min(i64::MAX as u64) as i64),
            Order::LeastServed => -contender.cost,
            Order::Priority | Order::Combined | Order::Negative => {
                if contender.cost == FIRST {
                    return i64::MAX;
                }
                let age = log2(t).0;
                let sum = if self.order == Order::Negative { -age } else { age } - contender.cost;
                match self.second {
                    None => sum,
                    Some(second) => {
                        let t2 = now.0.saturating_sub(self.second_origin[place]).saturating_add(ahead.0);
                        sum + second.epsilon.times(log2(t2)).0
                    }
                }
            }
        }
    }

    /// Whether the client at `a` comes before the one at `b`, by value, then earliest session, then id.
    #[inline]
    fn before(&self, a: Ranked, b: Ranked) -> bool {
        if a.value != b.value {
            return a.value > b.value;
        }
        let account = |r: Ranked| &self.accounts[self.active[r.place as usize].slot];
        let (a, b) = (account(a), account(b));
        if self.order == Order::LeastServed {
            // Equal in whole nanoseconds of S / share: cross-multiply, 96 bits at the most.
            let mine = u128::from(a.main.service.0) * u128::from(b.share.get());
            let theirs = u128::from(b.main.service.0) * u128::from(a.share.get());
            if mine != theirs {
                return mine < theirs;
            }
        }
        (a.main.begin, a.client) < (b.main.begin, b.client)
    }

    /// The value of the client at `place` with the bonus of whoever ran last.
    #[inline]
    fn rank(&self, place: usize, now: Instant, ahead: Nanos, current: u32) -> Ranked {
        let value = self.value(place, now, ahead);
        let bonus = if self.active[place].slot == current { self.gamma } else { 0 };
        Ranked { value: value.saturating_add(bonus), place: place as u32 }
    }

    /// The best of all.
    fn scan(&self, occasion: Occasion) -> Slot {
        if self.order == Order::Priority {
            return self.scan_priorities(occasion);
        }
        let mut best: Option<Ranked> = None;
        for (place, contender) in self.active.iter().enumerate() {
            if contender.held && contender.slot != occasion.holder {
                continue;
            }
            let ranked = self.rank(place, occasion.now, Nanos::ZERO, occasion.current);
            if best.is_none_or(|best| self.before(ranked, best)) {
                best = Some(ranked);
            }
        }
        best.map_or(NONE, |best| self.active[best.place as usize].slot)
    }

    /// The same for the usual priority: one logarithm for each client that its bound does not rule out.
    #[inline]
    fn scan_priorities(&self, occasion: Occasion) -> Slot {
        let mut best = Ranked { value: i64::MIN, place: NONE };
        for (place, contender) in self.active.iter().enumerate() {
            let bonus = if contender.slot == occasion.current { self.gamma } else { 0 };
            let t = occasion.now.0.saturating_sub(contender.origin);
            // log2 T < 64 - zeros(T), so below this a client cannot even tie; one with a cost of FIRST can, with others of that.
            let bound = (i64::from(64 - t.leading_zeros()) << FIXED_BITS) - contender.cost + bonus;
            let loses = bound <= best.value && contender.cost != FIRST;
            if loses || (contender.held && contender.slot != occasion.holder) {
                continue;
            }
            let value = match contender.cost {
                FIRST => i64::MAX,
                cost => log2(t).0 - cost + bonus,
            };
            let ranked = Ranked { value, place: place as u32 };
            if value > best.value || (value == best.value && self.before(ranked, best)) {
                best = ranked;
            }
        }
        if best.place == NONE { NONE } else { self.active[best.place as usize].slot }
    }

    /// Algorithm 1: ranks L and M by predicted priority, keeps the best L, answers the best that may run.
    fn sample(&mut self, keep: u32, sample: u32, occasion: Occasion) -> Slot {
        // A sampled client comes round again after |A|/M decisions: predict for half of that time.
        let nr_active = self.active.len() as u64;
        let ahead = Nanos(nr_active.saturating_mul(self.grid.quantum().0) / (2 * u64::from(sample)));
        let mut ranked = core::mem::take(&mut self.ranked);
        ranked.clear();
        for &slot in &self.kept {
            let place = self.accounts[slot].place as usize;
            ranked.push(self.rank(place, occasion.now, ahead, occasion.current));
        }
        let wanted = (sample + keep) as usize;
        let mut steps = 0;
        let mut runnable = ranked.iter().any(|r| self.may_run(*r, occasion));
        // Where other CPUs hold all of L and M, sampling goes on: at most one step more for each of those.
        while steps < nr_active && (ranked.len() < wanted || !runnable) {
            steps += 1;
            let slot = if self.cursor == NONE { self.ring.first(0) } else { self.cursor };
            self.cursor = self.ring.next(slot);
            if !self.kept.contains(&slot) {
                let place = self.accounts[slot].place as usize;
                let entry = self.rank(place, occasion.now, ahead, occasion.current);
                runnable |= self.may_run(entry, occasion);
                ranked.push(entry);
            }
        }
        // Best first; at most L + M and the CPUs, so insertion sort it is.
        for i in 1..ranked.len() {
            let mut j = i;
            while j > 0 && self.before(ranked[j], ranked[j - 1]) {
                ranked.swap(j, j - 1);
                j -= 1;
            }
        }
        self.kept.clear();
        self.kept.extend(ranked.iter().take(keep as usize).map(|r| self.active[r.place as usize].slot));
        let best = ranked.iter().find(|r| self.may_run(**r, occasion));
        let slot = best.map_or(NONE, |r| self.active[r.place as usize].slot);
        self.ranked = ranked;
        slot
    }

    fn may_run(&self, ranked: Ranked, occasion: Occasion) -> bool {
        let contender = &self.active[ranked.place as usize];
        !contender.held || contender.slot == occasion.holder
    }

    /// "At the arrival of task j": into L, and out with the least if L is full then, the paper's `>=` taken literally.
    fn arrive(&mut self, now: Instant, slot: Slot, current: Slot) {
        let Search::Sample { keep, .. } = self.search else { return };
        self.ring.push_back(0, slot);
        self.kept.push(slot);
        if self.kept.len() < keep as usize {
            return;
        }
        let mut least: Option<(usize, Ranked)> = None;
        for (i, &slot) in self.kept.iter().enumerate() {
            let place = self.accounts[slot].place as usize;
            let ranked = self.rank(place, now, Nanos::ZERO, current);
            if least.is_none_or(|(_, least)| self.before(least, ranked)) {
                least = Some((i, ranked));
            }
        }
        if let Some((i, _)) = least {
            self.kept.swap_remove(i);
        }
    }

    /// Whether a session ends with an inactive period of `last` that came after `nr` others, of length `total`.
    fn begins_session(sessions: Sessions, last: Nanos, nr: u64, total: u128) -> bool {
        match sessions.threshold {
            Threshold::Never => false,
            Threshold::Multiple(Fixed::ZERO) => true,
            // last >= beta * total / nr, with beta in units of 2^-32. A beta below 2^62 times a total of years fits;
            // saturation means "longer than any sleep".
            Threshold::Multiple(beta) => {
                let bar = total.saturating_mul(beta.0 as u128);
                nr > 0 && (u128::from(last.0) * u128::from(nr)).saturating_mul(1 << FIXED_BITS) >= bar
            }
        }
    }
}

impl Rule for PbsRule {
    fn join(&mut self, now: Instant, slot: Slot, client: ClientId, share: Share) {
        let clock = Clock { begin: now, origin: now, service: Nanos::ZERO };
        let account = Account {
            client,
            main: clock,
            second: clock,
            blocked_at: None,
            ever_active: false,
            nr_inactive: 0,
            inactive: 0,
            share,
            offset: self.offset(share),
            place: NONE,
        };
        self.accounts.put(slot, account);
    }

    fn wake(&mut self, now: Instant, slot: Slot, busy: bool, current: Slot) {
        let account = &mut self.accounts[slot];
        account.activate(now, self.sessions, self.second.map(|second| second.sessions));
        account.place = self.active.len() as u32;
        let account = &self.accounts[slot];
        let (origin, cost) = (account.main.origin.0, self.cost(account));
        self.active.push(Contender { origin, cost, slot, held: busy });
        if self.second.is_some() {
            self.second_origin.push(account.second.origin.0);
        }
        self.arrive(now, slot, current);
    }

    fn block(&mut self, now: Instant, slot: Slot, _busy: bool) {
        let account = &mut self.accounts[slot];
        account.blocked_at = Some(now);
        let place = core::mem::replace(&mut account.place, NONE);
        self.active.swap_remove(place as usize);
        if self.second.is_some() {
            self.second_origin.swap_remove(place as usize);
        }
        if let Some(moved) = self.active.get(place as usize) {
            self.accounts[moved.slot].place = place;
        }
        if matches!(self.search, Search::Sample { .. }) {
            if self.cursor == slot {
                self.cursor = self.ring.next(slot);
            }
            self.ring.remove(0, slot);
            if let Some(i) = self.kept.iter().position(|&kept| kept == slot) {
                self.kept.swap_remove(i);
            }
        }
    }

    fn reshare(&mut self, slot: Slot, share: Share) {
        let offset = self.offset(share);
        let account = &mut self.accounts[slot];
        (account.share, account.offset) = (share, offset);
        self.refresh(slot);
    }

    #[inline]
    fn charge(&mut self, slot: Slot, used: Nanos) {
        let account = &mut self.accounts[slot];
        account.main.service += used;
        account.second.service += used;
        self.refresh(slot);
    }

    #[inline]
    fn put_back(&mut self, slot: Slot) {
        self.active[self.accounts[slot].place as usize].held = false;
    }

    #[inline]
    fn pick(&mut self, occasion: Occasion) -> Option<Pick> {
        let slot = match self.search {
            Search::Scan if self.active.len() == 1 => self.active[0].slot,
            Search::Scan => self.scan(occasion),
            Search::Sample { keep, sample } => self.sample(keep, sample, occasion),
        };
        if slot == occasion.holder {
            return None;
        }
        let account = &self.accounts[slot];
        self.active[account.place as usize].held = true;
        Some(Pick { slot, client: account.client, slice: self.grid.until_next(occasion.now) })
    }

    fn preempts(&self) -> bool {
        true
    }

    fn precedes(&self, now: Instant, a: Slot, b: Slot) -> bool {
        let rank = |slot: Slot| self.rank(self.accounts[slot].place as usize, now, Nanos::ZERO, NONE);
        self.before(rank(a), rank(b))
    }
}
