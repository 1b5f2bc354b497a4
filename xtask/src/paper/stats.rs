//! The statistics of the papers' evaluations.

use crate::live::{Errors, RunResult, Snapshot};

/// Cycles left out at the start of a run, as in ALPS, section 3.3.
pub(crate) const START_UP_CYCLES: usize = 4;

/// Arithmetic mean; `None` of nothing.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Root of the mean square; `None` of nothing.
pub(crate) fn rms(values: &[f64]) -> Option<f64> {
    mean(&values.iter().map(|v| v * v).collect::<Vec<_>>()).map(f64::sqrt)
}

/// The value below which the fraction `q` (0 to 1) of the values lies, interpolated between neighbours; `None` of nothing.
pub(crate) fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// Median; `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Slope of the line of least squares through `(x, y)`; `None` unless there are two different x.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let (sx, sy) = points.iter().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
    let (mx, my) = (sx / n, sy / n);
    let sxx: f64 = points.iter().map(|(x, _)| (x - mx) * (x - mx)).sum();
    let sxy: f64 = points.iter().map(|(x, y)| (x - mx) * (y - my)).sum();
    (sxx > 0.0).then(|| sxy / sxx)
}

/// The largest value; not a number if any is not, or if there is none: what was not measured is not good.
pub(crate) fn worst(values: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    values.into_iter().reduce(larger).unwrap_or(f64::NAN)
}

/// Median, mean and maximum; not numbers if there are no values.
pub(crate) fn errors(values: &[f64]) -> Errors {
    Errors {
        count: values.len() as u64,
        median: median(values).unwrap_or(f64::NAN),
        mean: mean(values).unwrap_or(f64::NAN),
        max: worst(values.iter().copied()),
    }
}

/// What each client received between two snapshots, ns.
pub(crate) fn received(from: &Snapshot, to: &Snapshot) -> Vec<f64> {
    let pairs = from.service_ns.iter().zip(&to.service_ns);
    pairs.map(|(a, b)| b.saturating_sub(*a) as f64).collect()
}

/// Relative errors of those clients that `count`: `received / due - 1`, where `due` is the client's target as a fraction
/// of the targets that count, of what all that count received. `None` if they received nothing.
pub(crate) fn relative_errors(
    received: &[f64],
    targets: &[f64],
    count: impl Fn(usize) -> bool,
) -> Option<Vec<f64>> {
    let who: Vec<usize> = (0..received.len()).filter(|&i| count(i)).collect();
    let total: f64 = who.iter().map(|&i| received[i]).sum();
    let shares: f64 = who.iter().map(|&i| targets[i]).sum();
    (total > 0.0).then(|| who.iter().map(|&i| received[i] * shares / (targets[i] * total) - 1.0).collect())
}

/// The RMS relative error of each cycle (ALPS, section 3.3), over the clients that `count`.
pub(crate) fn cycle_errors(
    snapshots: &[Snapshot],
    targets: &[f64],
    count: impl Fn(usize) -> bool,
) -> Vec<f64> {
    let cycles = snapshots.windows(2).map(|pair| received(&pair[0], &pair[1]));
    cycles.filter_map(|got| relative_errors(&got, targets, &count)).filter_map(|e| rms(&e)).collect()
}

/// How many cycles to leave out at the start: four as in the paper, or one where that would leave fewer than five.
pub(crate) fn start_up(cycles: usize) -> usize {
    if cycles >= START_UP_CYCLES + 5 { START_UP_CYCLES } else { 1.min(cycles) }
}

/// The errors of a run's cycles, those at the start left out ([`start_up`]).
pub(crate) fn run_errors(run: &RunResult) -> Errors {
    let all = cycle_errors(&run.snapshots, &run.targets, |_| true);
    errors(&all[start_up(all.len())..])
}

/// The largest relative error of any client over a whole run, from the end of the start-up cycles to the end of the last
/// cycle; `None` without two cycles.
pub(crate) fn long_run_error(run: &RunResult) -> Option<f64> {
    long_run_error_of(run, &run.targets, |_| true)
}

/// As [`long_run_error`], of those clients that `count`, which are due these `targets`.
pub(crate) fn long_run_error_of(
    run: &RunResult,
    targets: &[f64],
    count: impl Fn(usize) -> bool,
) -> Option<f64> {
    let first = run.snapshots.get(start_up(run.snapshots.len().saturating_sub(1)))?;
    let got = received(first, run.snapshots.last()?);
    let errors = relative_errors(&got, targets, count)?;
    Some(worst(errors.iter().map(|e| e.abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn averages() {
        close(mean(&[1.0, 2.0, 6.0]).unwrap(), 3.0);
        close(rms(&[3.0, -4.0]).unwrap(), 12.5_f64.sqrt());
        close(median(&[9.0, 1.0, 2.0]).unwrap(), 2.0);
        close(median(&[9.0, 1.0, 2.0, 4.0]).unwrap(), 3.0);
        close(quantile(&[10.0, 20.0, 30.0], 0.75).unwrap(), 25.0);
        assert_eq!((mean(&[]), rms(&[]), median(&[])), (None, None, None));
        let e = errors(&[0.1, 0.5, 0.2]);
        assert_eq!((e.count, e.median, e.max), (3, 0.2, 0.5));
        let none = errors(&[]);
        assert!(none.count == 0 && none.median.is_nan() && none.mean.is_nan() && none.max.is_nan());
    }

    #[test]
    fn what_is_missing_is_the_worst() {
        assert_eq!(worst([0.1, 0.3, 0.2]), 0.3);
        assert!(
            worst([0.1, f64::NAN, 0.2]).is_nan() && worst([0.1, f64::NAN]).is_nan() && worst([]).is_nan()
        );
    }

    #[test]
    fn the_line_of_least_squares() {
        close(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap(), 2.0);
        // x = 0, 1, 2 and y = 0, 2, 1: Sxy = 1, Sxx = 2.
        close(slope(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0)]).unwrap(), 0.5);
        assert_eq!(slope(&[(1.0, 1.0)]), None);
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    fn at(t_ns: u64, service: &[u64]) -> Snapshot {
        Snapshot { t_ns, service_ns: service.to_vec() }
    }

    #[test]
    fn the_error_is_the_papers() {
        let targets = [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0];
        let cycles = [at(0, &[5, 5, 5]), at(1, &[105, 205, 305]), at(2, &[215, 395, 605])];
        let e = cycle_errors(&cycles, &targets, |_| true);
        // The second cycle: due 100, 200, 300 of 600; errors .1, -.05, 0: sqrt((.01 + .0025) / 3).
        assert_eq!(e.len(), 2);
        close(e[0], 0.0);
        close(e[1], (0.0125_f64 / 3.0).sqrt());
        // Without the second client the others are due 1/4 and 3/4 of 410: errors 110/102.5 - 1, 300/307.5 - 1.
        let e = cycle_errors(&cycles[1..], &targets, |i| i != 1);
        let (a, c) = (110.0 / 102.5 - 1.0, 300.0 / 307.5 - 1.0);
        close(e[0], ((a * a + c * c) / 2.0_f64).sqrt());
        // A cycle in which nobody ran has no error.
        assert!(cycle_errors(&[at(0, &[7, 7]), at(1, &[7, 7])], &[0.5, 0.5], |_| true).is_empty());
    }

    #[test]
    fn start_up_is_left_out() {
        assert_eq!([0, 1, 2, 8, 9, 34].map(start_up), [0, 1, 1, 1, 4, 4]);
    }

    #[test]
    fn the_long_run_is_measured_after_the_start_up() {
        let snapshots = vec![at(0, &[0, 0]), at(1, &[90, 10]), at(2, &[140, 60]), at(3, &[195, 105])];
        let mut run = RunResult { targets: vec![0.5, 0.5], snapshots, ..RunResult::default() };
        // After the first cycle: 105 and 95 of 200.
        close(long_run_error(&run).unwrap(), 0.05);
        run.snapshots.truncate(1);
        assert_eq!(long_run_error(&run), None);
    }
}
