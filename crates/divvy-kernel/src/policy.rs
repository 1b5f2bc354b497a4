//! Which policy, with which parameters: `vtrr`, `pbs:alpha=2`, `stride:quantum=8ms`.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};
use divvy_policy::dispatch::fixed::Fixed;
use divvy_policy::dispatch::pbs::{BETA_MAX, BONUS_MAX, Inactive, Sessions, Threshold};

/// The policies, numbered as `enum dv_policy_kind` of `bpf/core.h` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Stride scheduling.
    Stride = 0,
    /// Virtual-time round-robin.
    Vtrr = 1,
    /// Lottery scheduling with compensation tickets.
    Lottery = 2,
    /// Priority-based blind scheduling.
    Pbs = 3,
    /// Least attained service.
    Las = 4,
    /// First come, first served.
    Fcfs = 5,
    /// Round-robin.
    Rr = 6,
}

const ALL: [(&str, Kind); 7] = [
    ("stride", Kind::Stride),
    ("vtrr", Kind::Vtrr),
    ("lottery", Kind::Lottery),
    ("pbs", Kind::Pbs),
    ("las", Kind::Las),
    ("fcfs", Kind::Fcfs),
    ("rr", Kind::Rr),
];

/// Bounds of a quantum in ns. The shortest is a tick at HZ=1000.
const QUANTUM: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000;
/// That of the VTRR paper's implementation, in ns.
const QUANTUM_DEFAULT: u64 = 20_000_000;
/// The largest alpha: with it, `alpha * log2(S)` stays within the arithmetic of `dv_times()`.
const ALPHA_MAX: i32 = 1024;

/// A policy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which.
    pub kind: Kind,
    /// How long a client runs once it was chosen, in ns.
    pub quantum: u64,
    /// Seed of the lottery.
    pub seed: u64,
    /// PBS's alpha, 0 to 1024.
    pub alpha: Fixed,
    /// PBS's beta: which sleeps begin a session, and whether others count.
    pub sessions: Sessions,
    /// PBS's gamma, 0 to 64: what whoever had the CPU last has more.
    pub gamma: Fixed,
}

impl Policy {
    /// Every policy, with the parameters that it has where nothing is said.
    pub fn every() -> impl Iterator<Item = Self> {
        ALL.into_iter().map(|(_, kind)| Self::new(kind))
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            quantum: QUANTUM_DEFAULT,
            seed: 1,
            alpha: Fixed::ONE,
            sessions: Sessions::LIFETIME,
            gamma: Fixed::ZERO,
        }
    }

    /// PBS's beta as the programs have it, in units of 2^-32; all ones are infinity.
    #[must_use]
    pub fn beta(&self) -> u64 {
        match self.sessions.threshold {
            Threshold::Multiple(beta) => u64::try_from(beta.0).unwrap_or(0),
            Threshold::Never => u64::MAX,
        }
    }

    /// Whether sleeps within a session are left out of its length.
    #[must_use]
    pub fn excludes_sleep(&self) -> bool {
        self.sessions.inactive == Inactive::Excluded
    }

    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        ALL.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantum = humantime::format_duration(std::time::Duration::from_nanos(self.quantum));
        write!(f, "{}:quantum={}", self.name(), quantum.to_string().replace(' ', ""))?;
        match self.kind {
            Kind::Lottery => write!(f, ",seed={}", self.seed),
            // To the millionth: alpha is a whole number of 2^-32.
            Kind::Pbs => {
                let rounded = |x: Fixed| (x.as_f64() * 1e6).round() / 1e6;
                write!(f, ",alpha={}", rounded(self.alpha))?;
                if self.sessions != Sessions::LIFETIME {
                    let sign = if self.excludes_sleep() { "-" } else { "" };
                    match self.sessions.threshold {
                        Threshold::Multiple(beta) => write!(f, ",beta={sign}{}", rounded(beta))?,
                        Threshold::Never => write!(f, ",beta={sign}inf")?,
                    }
                }
                if self.gamma != Fixed::ZERO {
                    write!(f, ",gamma={}", rounded(self.gamma))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Policy {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let Some((_, kind)) = ALL.into_iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
            bail!("no policy is called {name}; there are {}", names.join(", "));
        };
        let mut policy = Self::new(kind);
        for pair in parameters.split(',').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else { bail!("{pair}: give NAME=VALUE") };
            match (key, kind) {
                ("quantum", _) => {
                    let time = humantime::parse_duration(value)
                        .map_err(|e| anyhow::anyhow!("quantum={value}: {e}"))?;
                    policy.quantum = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                    ensure!(QUANTUM.contains(&policy.quantum), "quantum={value}: must be 1ms to 1s");
                }
                ("seed", Kind::Lottery) => {
                    policy.seed = value.parse().map_err(|e| anyhow::anyhow!("seed={value}: {e}"))?;
                }
                ("alpha", Kind::Pbs) => {
                    policy.alpha = value.parse().map_err(|e| anyhow::anyhow!("alpha={value}: {e}"))?;
                    ensure!(
                        (Fixed::ZERO..=Fixed::int(ALPHA_MAX)).contains(&policy.alpha),
                        "alpha={value}: must be 0 to {ALPHA_MAX}; las is what it tends to"
                    );
                }
                ("beta", Kind::Pbs) => {
                    let sessions = Sessions::parse(value).filter(|sessions| match sessions.threshold {
                        Threshold::Multiple(beta) => (Fixed::ZERO..=BETA_MAX).contains(&beta),
                        Threshold::Never => true,
                    });
                    policy.sessions = sessions.with_context(|| {
                        format!("beta={value}: must be 0 to 2^30, or inf; - in front leaves sleeps out")
                    })?;
                }
                ("gamma", Kind::Pbs) => {
                    policy.gamma = value.parse().map_err(|e| anyhow::anyhow!("gamma={value}: {e}"))?;
                    ensure!(
                        (Fixed::ZERO..=BONUS_MAX).contains(&policy.gamma),
                        "gamma={value}: must be 0 to 64"
                    );
                }
                _ => bail!("{name} has no parameter {key}"),
            }
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_policies_are_each_others() {
        for text in [
            "stride:quantum=20ms",
            "vtrr:quantum=8ms",
            "lottery:quantum=20ms,seed=7",
            "pbs:quantum=4ms,alpha=0.4",
            "pbs:quantum=4ms,alpha=2,beta=-3,gamma=0.07",
            "pbs:quantum=4ms,alpha=1,beta=0",
            "pbs:quantum=4ms,alpha=1,beta=-inf",
        ] {
            assert_eq!(text.parse::<Policy>().map(|p| p.to_string()).ok().as_deref(), Some(text));
        }
        let short: Policy = "pbs".parse().expect("a policy");
        assert_eq!((short.quantum, short.alpha), (20_000_000, Fixed::ONE));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (text, why) in [
            ("eevdf", "no policy is called eevdf; there are stride, vtrr,"),
            ("vtrr:alpha=2", "vtrr has no parameter alpha"),
            ("pbs:alpha=-1", "alpha=-1: must be 0 to 1024"),
            ("pbs:alpha=x", "alpha=x: expected a number"),
            ("pbs:beta=x", "beta=x: must be 0 to 2^30, or inf"),
            ("pbs:beta=2e9", "beta=2e9: must be 0 to 2^30, or inf"),
            ("pbs:gamma=65", "gamma=65: must be 0 to 64"),
            ("stride:beta=3", "stride has no parameter beta"),
            ("stride:quantum=2s", "quantum=2s: must be 1ms to 1s"),
            ("stride:quantum", "quantum: give NAME=VALUE"),
            ("lottery:seed=-1", "seed=-1: "),
        ] {
            let error = text.parse::<Policy>().expect_err(text).to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }
}
