//! Arithmetic of parts and errors.

use anyhow::Result;
use divvy_policy::dispatch::lottery::{Lottery, LotteryParams};
use divvy_policy::dispatch::stride::{Stride, StrideParams};
use divvy_policy::dispatch::vtrr::{Vtrr, VtrrParams};
use divvy_policy::{Grant, Nanos, Policy};

use serde_json::{Value, json};

use crate::paper::Setting;
use crate::paper::plot::{Axis, Plot, Style};
use crate::paper::simulated::Busy;

/// How far each part of `service` is from its share, as a fraction of the share.
pub(super) fn errors(service: &[f64], shares: &[u64]) -> Vec<f64> {
    let (all, sum) = (service.iter().sum::<f64>(), shares.iter().sum::<u64>() as f64);
    service.iter().zip(shares).map(|(s, &share)| s / all / (share as f64 / sum) - 1.0).collect()
}

/// The largest of them, whichever its sign.
pub(super) fn worst(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |most, e| f64::max(most, e.abs()))
}

/// Their root mean square.
pub(super) fn rms(errors: &[f64]) -> f64 {
    (errors.iter().map(|e| e * e).sum::<f64>() / errors.len().max(1) as f64).sqrt()
}

/// What clients with `shares` that never block get of `from..to` under a policy on one CPU without any cost, in seconds.
fn simulate<P: Policy<Decision = Grant>>(policy: P, shares: &[u64], from: u64, to: u64) -> Result<Vec<f64>> {
    let mut busy = Busy::new(policy, shares.iter().copied(), 0)?;
    let (mut at, mut got) = (0, vec![0_u64; shares.len()]);
    while at < to {
        let Grant { client, slice, .. } = busy.grant();
        let end = (at + slice.0).min(to);
        got[client.index()] += end.saturating_sub(at.max(from));
        at = end;
        busy.step();
    }
    Ok(got.into_iter().map(|ns| ns as f64 / 1e9).collect())
}

/// PBS by its alpha and beta, as the simulator's scenarios name it.
pub(super) fn simulated_pbs((alpha, beta): &(&str, &str)) -> Value {
    // Infinity is a number to Rust, but not to JSON.
    let number = |text: &str| {
        text.parse::<f64>().ok().filter(|n| n.is_finite()).map_or_else(|| json!(text), |n| json!(n))
    };
    json!({ "name": "pbs", "params": { "alpha": number(alpha), "beta": number(beta) } })
}

/// A response time over PBS's alpha, a line for each beta, beside what knows no alpha; in the machine and in the simulator. Of both, first what the
/// kernel's own scheduler came to, then round-robin, then PBS at `points`.
fn over_alpha(
    title: impl Into<String>,
    points: &[(&str, &str)],
    measured: &[f64],
    simulated: &[Option<f64>],
) -> Plot {
    let mut plot = Plot::new(title, "alpha", "response time, s");
    plot.x_axis = Axis::Log;
    let alphas: Vec<f64> = points.iter().filter_map(|(alpha, _)| alpha.parse().ok()).collect();
    let (low, high) =
        alphas.iter().fold((f64::MAX, 0.0), |(low, high), &a| (f64::min(low, a), f64::max(high, a)));
    let mut betas: Vec<&str> = points.iter().map(|&(_, beta)| beta).collect();
    betas.dedup();
    let measured: Vec<Option<f64>> = measured.iter().copied().map(Some).collect();
    for (who, style, of) in
        [("sched_ext", Style::Line, &measured[..]), ("simulated", Style::Dashed, simulated)]
    {
        for beta in &betas {
            let at = |((alpha, of), value): ((&str, &str), &Option<f64>)| {
                (of == *beta).then(|| alpha.parse().ok().zip(*value)).flatten()
            };
            let mut line: Vec<(f64, f64)> =
                points.iter().copied().zip(of.iter().skip(2)).filter_map(at).collect();
            if let (true, [(_, value)]) = (*beta == "inf", &line[..]) {
                // The same for every alpha: all came at once.
                line = vec![(low, *value), (high, *value)];
            }
            plot.add(format!("{who}, beta {beta}"), style, line);
        }
        if let Some(&Some(rr)) = of.get(1) {
            plot.add(format!("{who}, round-robin"), style, vec![(low, rr), (high, rr)]);
        }
    }
    if let Some(&Some(own)) = measured.first() {
        plot.add("the kernel's own", Style::Line, vec![(low, own), (high, own)]);
    }
    plot
}

/// One such plot of a page's rows.
pub(super) struct OverAlpha<R> {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) measured: fn(&R) -> f64,
    pub(super) simulated: fn(&R) -> Option<f64>,
}

impl<R> OverAlpha<R> {
    pub(super) fn draw(&self, s: &mut Setting, points: &[(&str, &str)], rows: &[R]) -> Result<()> {
        let measured: Vec<f64> = rows.iter().map(self.measured).collect();
        let simulated: Vec<Option<f64>> = rows.iter().map(self.simulated).collect();
        s.page.plot(self.name, &over_alpha(self.title, points, &measured, &simulated))
    }
}

/// The simulator's word on a policy by its name: between two moments in ms, in seconds of service.
pub(super) fn simulated(
    name: &str,
    quantum_ms: u64,
    shares: &[u64],
    from_ms: u64,
    to_ms: u64,
) -> Result<Vec<f64>> {
    let (quantum, from, to) = (Nanos::from_millis(quantum_ms), from_ms * 1_000_000, to_ms * 1_000_000);
    let refused = |e: &dyn std::fmt::Display| anyhow::anyhow!("{name}: {e}");
    match name {
        "stride" => {
            let policy = Stride::new(StrideParams { quantum, ..StrideParams::default() });
            simulate(policy.map_err(|e| refused(&e))?, shares, from, to)
        }
        "vtrr" => {
            let policy = Vtrr::new(VtrrParams { quantum, ..VtrrParams::default() });
            simulate(policy.map_err(|e| refused(&e))?, shares, from, to)
        }
        "lottery" => {
            let policy = Lottery::new(LotteryParams { quantum, seed: 7, ..LotteryParams::default() });
            simulate(policy.map_err(|e| refused(&e))?, shares, from, to)
        }
        _ => anyhow::bail!("{name} is not simulated here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_fractions_of_the_share() {
        let errors = errors(&[1.1, 1.9, 3.0], &[1, 2, 3]);
        assert!((errors[0] - 0.1).abs() < 1e-9 && (errors[1] + 0.05).abs() < 1e-9, "{errors:?}");
        assert!((worst(&errors) - 0.1).abs() < 1e-9);
        assert!((rms(&[0.3, -0.4]) - 0.125_f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn a_line_for_each_beta() {
        let points = [("1", "inf"), ("0.1", "0"), ("2", "0")];
        let simulated = [None, Some(5.0), Some(6.0), None, Some(8.0)];
        let plot = over_alpha("Answers", &points, &[1.0, 2.0, 3.0, 4.0, 5.0], &simulated);
        let series: Vec<(&str, Vec<(f64, f64)>)> =
            plot.series.iter().map(|s| (s.label.as_str(), s.points.clone())).collect();
        let level = |value| vec![(0.1, value), (2.0, value)];
        let expected = vec![
            ("sched_ext, beta inf", level(3.0)),
            ("sched_ext, beta 0", vec![(0.1, 4.0), (2.0, 5.0)]),
            ("sched_ext, round-robin", level(2.0)),
            ("simulated, beta inf", level(6.0)),
            ("simulated, beta 0", vec![(2.0, 8.0)]),
            ("simulated, round-robin", level(5.0)),
            ("the kernel's own", level(1.0)),
        ];
        assert_eq!(series, expected);
    }

    #[test]
    fn whole_cycles_are_exact() {
        for policy in ["stride", "vtrr"] {
            let got = simulated(policy, 20, &[1, 2, 3], 1_200, 2_400).expect("parameters in range");
            assert_eq!(
                got.iter().map(|s| (s * 1e3).round() as u64).collect::<Vec<_>>(),
                [200, 400, 600],
                "{policy}"
            );
        }
    }
}
