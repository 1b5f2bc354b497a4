//! What can be set on PBS, and what is refused. Everything here is reached through [`pbs`](super::pbs).

use super::fixed::Fixed;
use crate::params::number;
use crate::{Nanos, PolicyInfo, RangeError};

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

impl Alpha {
    /// Reads a number, `inf`, or `-0`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "inf" | "-inf" => Some(Self::Las),
            "-0" => Some(Self::Plcfs),
            text => number(text).map(|x| if x == Fixed::ZERO { Self::Fcfs } else { Self::Finite(x) }),
        }
    }
}

impl Sessions {
    /// Reads beta: a number or `inf`, with `-` in front where inactive periods are left out. `None`: it is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (inactive, size) =
            text.strip_prefix('-').map_or((Inactive::Counted, text), |rest| (Inactive::Excluded, rest));
        let threshold = match size {
            "inf" => Threshold::Never,
            size => Threshold::Multiple(number(size)?),
        };
        Some(Self { threshold, inactive })
    }
}

impl PbsParams {
    /// The first impossible parameter, if there is one.
    pub(super) fn check(&self, info: &PolicyInfo) -> Result<(), RangeError> {
        let beta = |name, sessions: Sessions| match sessions.threshold {
            Threshold::Multiple(beta) if !(Fixed::ZERO..=BETA_MAX).contains(&beta) => {
                Err(info.outside(name, beta.into()))
            }
            _ => Ok(()),
        };
        match (self.alpha, self.guard) {
            (Alpha::Finite(alpha), guard) => {
                let fits = match guard {
                    Guard::StarvationFree => (ALPHA_SAFE_MIN..=ALPHA_SAFE_MAX).contains(&alpha),
                    Guard::Study => {
                        (ALPHA_STUDY_MIN.0..=ALPHA_STUDY_MAX.0).contains(&alpha.0.saturating_abs())
                    }
                };
                if !fits {
                    return Err(info.outside("alpha", alpha.into()));
                }
            }
            (_, Guard::Study) => {}
            (_, Guard::StarvationFree) => {
                let why = "the limits (0, -0, inf) can starve clients; ask for guard=study";
                return Err(RangeError::Clash { name: "alpha", why });
            }
        }
        info.check(self.cpus, &[("quantum", self.quantum.into()), ("gamma", self.gamma.into())])?;
        beta("beta", self.sessions)?;
        if let Some(second) = self.second {
            info.check(self.cpus, &[("epsilon", second.epsilon.into()), ("alpha2", second.alpha.into())])?;
            beta("beta2", second.sessions)?;
            if matches!(self.alpha, Alpha::Las | Alpha::Plcfs) {
                let why = "beside a limit of alpha (-0, inf) no second term weighs anything";
                return Err(RangeError::Clash { name: "epsilon", why });
            }
        }
        if let Search::Sample { keep, sample } = self.search {
            info.check(self.cpus, &[("keep", keep.into()), ("sample", sample.into())])?;
        }
        Ok(())
    }
}
