//! Parameters of PBS.

use divvy_policy::dispatch::fixed::{FIXED_BITS, Fixed};
use divvy_policy::dispatch::pbs::{
    Alpha, Guard, Inactive, Pbs, PbsParams, Search, SecondTerm, Sessions, Threshold,
};

use super::factory::Maker;
use super::{ParamError, Params};

/// A number as written, or one that a computation left with more digits than people write.
fn fixed(text: &str) -> Option<Fixed> {
    text.parse().ok().or_else(|| {
        let scaled = text.parse::<f64>().ok()? * (1u64 << FIXED_BITS) as f64;
        let fits = scaled.is_finite() && scaled.abs() < i64::MAX as f64;
        fits.then(|| Fixed(scaled.round() as i64))
    })
}

fn alpha(text: &str) -> Option<Alpha> {
    match text {
        "inf" | "-inf" => Some(Alpha::Las),
        "-0" => Some(Alpha::Plcfs),
        text => fixed(text).map(|x| if x == Fixed::ZERO { Alpha::Fcfs } else { Alpha::Finite(x) }),
    }
}

fn sessions(text: &str) -> Option<Sessions> {
    let (inactive, size) =
        text.strip_prefix('-').map_or((Inactive::Counted, text), |rest| (Inactive::Excluded, rest));
    let threshold = match size {
        "inf" => Threshold::Never,
        size => Threshold::Multiple(fixed(size)?),
    };
    Some(Sessions { threshold, inactive })
}

fn beta(params: &mut Params<'_>, name: &'static str) -> Result<Sessions, ParamError> {
    let parsed =
        params.parse(name, "a number or inf, with - in front to leave inactive periods out", sessions)?;
    Ok(parsed.unwrap_or(Sessions::LIFETIME))
}

impl Maker<'_> {
    fn fixed(&mut self, name: &'static str) -> Result<Option<Fixed>, ParamError> {
        self.params.parse(name, "a number such as 3, -0.4 or 2/5", fixed)
    }

    pub(super) fn pbs(mut self) -> Result<Pbs, ParamError> {
        let defaults = PbsParams::default();
        let alpha = self.params.parse("alpha", "a number such as 0.3, -2 or 2/5, or inf", alpha)?;
        let guard =
            self.params.choice("guard", &[("safe", Guard::StarvationFree), ("study", Guard::Study)])?;
        let quantum = self.time("quantum")?;
        let sessions = beta(&mut self.params, "beta")?;
        let gamma = self.fixed("gamma")?.unwrap_or(Fixed::ZERO);
        let second = {
            let epsilon = self.fixed("epsilon")?;
            let alpha = self.fixed("alpha2")?;
            let sessions = beta(&mut self.params, "beta2")?;
            let alpha = alpha.unwrap_or(Fixed::ONE);
            epsilon.filter(|&epsilon| epsilon != Fixed::ZERO).map(|epsilon| SecondTerm {
                epsilon,
                alpha,
                sessions,
            })
        };
        let whole = |text: &str| text.parse::<u32>().ok();
        let keep = self.params.parse("keep", "a whole number from 2 to 64", whole)?;
        let sample = self.params.parse("sample", "a whole number from 1 to 64", whole)?;
        let search = match (keep, sample) {
            (None, None) => Search::Scan,
            (keep, sample) => Search::Sample { keep: keep.unwrap_or(2), sample: sample.unwrap_or(2) },
        };
        let alpha = alpha.unwrap_or(defaults.alpha);
        let cpus = self.context.cpus;
        self.made(Pbs::new(PbsParams { alpha, guard, quantum, sessions, gamma, second, search, cpus }))
    }
}
