//! What can be set on PBS, and what is refused. Everything here is reached through [`pbs`](super::pbs).

use core::fmt;

use super::fixed::Fixed;
use crate::Nanos;

/// The exponent of attained service, the one parameter of the policy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpha {
    /// alpha = 0: earliest session first. Shares have no effect.
    Fcfs,
    /// Any other number.
    Finite(Fixed),
    /// The limit for alpha to either infinity: least `S / share` first, exactly.
    Las,
    /// The limit for alpha to 0 from below: latest session first. Shares have no effect.
    Plcfs,
}

/// Which alphas are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// [`ALPHA_SAFE_MIN`] to [`ALPHA_SAFE_MAX`]: no client can be starved by clients that stay.
    StarvationFree,
    /// Everything that can be computed: the limits, negative numbers, [`ALPHA_STUDY_MIN`] to [`ALPHA_STUDY_MAX`].
    Study,
}

/// Smallest alpha under [`Guard::StarvationFree`]: 1/16. A wait is bounded by a multiple 2^(1/alpha) of the service.
pub const ALPHA_SAFE_MIN: Fixed = Fixed(Fixed::ONE.0 >> 4);
/// Largest alpha under [`Guard::StarvationFree`]: 16. Twice the service is made good by 2^alpha times the sojourn.
pub const ALPHA_SAFE_MAX: Fixed = Fixed::int(16);
/// Smallest magnitude of a finite alpha at all: 2^-20.
pub const ALPHA_STUDY_MIN: Fixed = Fixed(Fixed::ONE.0 >> 20);
/// Largest magnitude of a finite alpha at all: 1024.
pub const ALPHA_STUDY_MAX: Fixed = Fixed::int(1024);
/// Largest gamma and epsilon.
pub const BONUS_MAX: Fixed = Fixed::int(64);
/// Largest finite beta.
pub const BETA_MAX: Fixed = Fixed::int(1 << 30);
/// Largest L and M of Algorithm 1.
pub const SAMPLE_MAX: u32 = 64;

/// When a new session begins (section 4.1): |beta|.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// On waking after an inactive period of at least this times the mean of the earlier ones; 0 is "on every waking".
    Multiple(Fixed),
    /// Never: one session a lifetime, beta = infinity.
    Never,
}

/// Whether inactive periods within a session count towards its sojourn: the sign of beta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// +beta: T is the time since the session began. With [`Threshold::Never`], since the client joined.
    Counted,
    /// -beta: only the time in which the client was runnable.
    Excluded,
}

/// How lifetimes are cut into sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// When a new one begins.
    pub threshold: Threshold,
    /// What counts within one.
    pub inactive: Inactive,
}

impl Sessions {
    /// beta = +infinity: T and S since the client joined.
    pub const LIFETIME: Self = Self { threshold: Threshold::Never, inactive: Inactive::Counted };
}

/// The second term of the combined priority (section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondTerm {
    /// epsilon, 0 to [`BONUS_MAX`].
    pub epsilon: Fixed,
    /// alpha', 0 to [`ALPHA_STUDY_MAX`].
    pub alpha: Fixed,
    /// beta' with its sign.
    pub sessions: Sessions,
}

/// How the greatest priority is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Look at every runnable client.
    Scan,
    /// Algorithm 1 (section 5.5): look at `keep` (L) clients with the greatest predicted priorities and `sample` (M)
    /// others in turn.
    Sample {
        /// L, 2 to [`SAMPLE_MAX`].
        keep: u32,
        /// M, 1 to [`SAMPLE_MAX`].
        sample: u32,
    },
}

/// Everything that can be set. [`Default`] is alpha = 1, 4 ms, one session a lifetime, scan, one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PbsParams {
    /// The policy's own knob.
    pub alpha: Alpha,
    /// Which alphas to accept.
    pub guard: Guard,
    /// Grid of decisions: grants end at multiples of it.
    pub quantum: Nanos,
    /// beta with its sign.
    pub sessions: Sessions,
    /// gamma, 0 to [`BONUS_MAX`]; `alpha * log2(1 + dT/S)` runs long tasks for about dT/S of their service (eq. 5,
    /// which is low by a factor n/(n-1) with n tasks). No effect where only order of age or service counts.
    pub gamma: Fixed,
    /// The combined priority's second term, if any.
    pub second: Option<SecondTerm>,
    /// Scan or Algorithm 1.
    pub search: Search,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for PbsParams {
    fn default() -> Self {
        Self {
            alpha: Alpha::Finite(Fixed::ONE),
            guard: Guard::StarvationFree,
            quantum: Nanos::from_millis(4),
            sessions: Sessions::LIFETIME,
            gamma: Fixed::ZERO,
            second: None,
            search: Search::Scan,
            cpus: 1,
        }
    }
}

/// Which parameter is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PbsError {
    /// alpha is finite and outside the guard's bounds.
    AlphaOutOfBounds {
        /// What was asked for.
        alpha: Fixed,
        /// The smallest magnitude allowed.
        min: Fixed,
        /// The largest.
        max: Fixed,
    },
    /// alpha is a limit that starves clients, and the guard forbids it.
    AlphaStarves(Alpha),
    /// The quantum must be 1 ns to 1 h.
    Quantum(Nanos),
    /// beta must be 0 to [`BETA_MAX`].
    Beta(Fixed),
    /// gamma must be 0 to [`BONUS_MAX`].
    Gamma(Fixed),
    /// epsilon must be 0 to [`BONUS_MAX`].
    Epsilon(Fixed),
    /// alpha' must be 0 to [`ALPHA_STUDY_MAX`].
    SecondAlpha(Fixed),
    /// A second term needs a finite alpha or alpha = 0: the limits outweigh any other term.
    SecondTermWithLimit(Alpha),
    /// L must be 2 to [`SAMPLE_MAX`].
    Keep(u32),
    /// M must be 1 to [`SAMPLE_MAX`].
    Sample(u32),
    /// There must be a CPU.
    NoCpu,
}

impl fmt::Display for PbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlphaOutOfBounds { alpha, min, max } => {
                write!(f, "alpha is {alpha}; must be {min} to {max}")
            }
            Self::AlphaStarves(alpha) => {
                write!(f, "alpha is {alpha:?}, which can starve clients; ask for guard=study")
            }
            Self::Quantum(q) => write!(f, "quantum is {} ns; must be 1 ns to 1 h", q.0),
            Self::Beta(beta) => write!(f, "beta is {beta}; must be 0 to {BETA_MAX}, or inf"),
            Self::Gamma(gamma) => write!(f, "gamma is {gamma}; must be 0 to {BONUS_MAX}"),
            Self::Epsilon(epsilon) => write!(f, "epsilon is {epsilon}; must be 0 to {BONUS_MAX}"),
            Self::SecondAlpha(alpha) => write!(f, "alpha2 is {alpha}; must be 0 to {ALPHA_STUDY_MAX}"),
            Self::SecondTermWithLimit(alpha) => write!(f, "epsilon has no meaning with alpha {alpha:?}"),
            Self::Keep(n) => write!(f, "keep is {n}; must be 2 to {SAMPLE_MAX}"),
            Self::Sample(n) => write!(f, "sample is {n}; must be 1 to {SAMPLE_MAX}"),
            Self::NoCpu => f.write_str("cpus is 0; must be at least 1"),
        }
    }
}

impl core::error::Error for PbsError {}

impl PbsParams {
    /// The first impossible parameter, if there is one.
    pub(super) fn check(&self) -> Result<(), PbsError> {
        let within = |x: Fixed, max: Fixed| (Fixed::ZERO..=max).contains(&x);
        let beta = |sessions: Sessions| match sessions.threshold {
            Threshold::Multiple(beta) if !within(beta, BETA_MAX) => Err(PbsError::Beta(beta)),
            _ => Ok(()),
        };
        match (self.alpha, self.guard) {
            (Alpha::Finite(alpha), Guard::StarvationFree)
                if !(ALPHA_SAFE_MIN..=ALPHA_SAFE_MAX).contains(&alpha) =>
            {
                return Err(PbsError::AlphaOutOfBounds { alpha, min: ALPHA_SAFE_MIN, max: ALPHA_SAFE_MAX });
            }
            (Alpha::Finite(alpha), Guard::Study)
                if !(ALPHA_STUDY_MIN.0..=ALPHA_STUDY_MAX.0).contains(&alpha.0.saturating_abs()) =>
            {
                return Err(PbsError::AlphaOutOfBounds { alpha, min: ALPHA_STUDY_MIN, max: ALPHA_STUDY_MAX });
            }
            (Alpha::Finite(_), _) | (_, Guard::Study) => {}
            (limit, Guard::StarvationFree) => return Err(PbsError::AlphaStarves(limit)),
        }
        if self.quantum == Nanos::ZERO || self.quantum > Nanos::from_secs(3600) {
            return Err(PbsError::Quantum(self.quantum));
        }
        beta(self.sessions)?;
        if !within(self.gamma, BONUS_MAX) {
            return Err(PbsError::Gamma(self.gamma));
        }
        if let Some(second) = self.second {
            if !within(second.epsilon, BONUS_MAX) {
                return Err(PbsError::Epsilon(second.epsilon));
            }
            if !within(second.alpha, ALPHA_STUDY_MAX) {
                return Err(PbsError::SecondAlpha(second.alpha));
            }
            beta(second.sessions)?;
            if matches!(self.alpha, Alpha::Las | Alpha::Plcfs) {
                return Err(PbsError::SecondTermWithLimit(self.alpha));
            }
        }
        if let Search::Sample { keep, sample } = self.search {
            if !(2..=SAMPLE_MAX).contains(&keep) {
                return Err(PbsError::Keep(keep));
            }
            if !(1..=SAMPLE_MAX).contains(&sample) {
                return Err(PbsError::Sample(sample));
            }
        }
        if self.cpus == 0 { Err(PbsError::NoCpu) } else { Ok(()) }
    }
}
