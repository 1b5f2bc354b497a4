//! What came of a run: plain numbers, from what was watched.

use divvy_policy::{Instant, Nanos};
use serde::Deserialize;

use super::trial::{QUANTUM, Spec, inside};
use crate::paper::stats::{median, rms};

/// Counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) program: u64,
    pub(super) hogs: u64,
}

/// All that was watched.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) begun: Instant,
    pub(super) ended: Instant,
    pub(super) cpus: usize,
    /// At equal distances.
    pub(super) samples: Vec<Sample>,
    /// How many of them make a window of a cycle's length.
    pub(super) of_cycle: usize,
    /// CPU time of each client by the kernel's books.
    pub(super) used: Vec<Nanos>,
    pub(super) own: Nanos,
    pub(super) switches: u64,
    /// The fraction of the CPUs' time that anybody used.
    pub(super) busy: Option<f64>,
}

/// What is read of divvy's report.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Report {
    wall_ns: u64,
    clients: Vec<ReportClient>,
    cycles: ReportCycles,
}

#[derive(Clone, Debug, Deserialize)]
struct ReportClient {
    service_ns: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct ReportCycles {
    rms_relative_error: Option<ReportErrors>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct ReportErrors {
    median: f64,
}

/// What came of it. Fractions are of the divided CPUs' time unless they say otherwise; not a number where nothing is known.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// CPU time of each client.
    pub(super) used: Vec<f64>,
    /// Units that the program did a second.
    pub(super) rate: f64,
    /// The same of those that compute, together.
    pub(super) hog_rate: f64,
    /// CPU time of the tool, as a fraction of one CPU.
    pub(super) own: f64,
    /// How often the tool woke, a second.
    pub(super) wakeups: f64,
    /// RMS relative error of cycles, the median, as divvy reports it.
    pub(super) cycles: f64,
    /// The same, of windows of a cycle's length wherever they fall, by counts; where all of the CPUs was used.
    pub(super) windows: f64,
    /// RMS relative error of the clients over the whole run, beyond what a window that begins and ends within a cycle explains.
    pub(super) long_error: f64,
    /// The largest difference between divvy's account of a client and the kernel's, as a fraction of the whole run.
    pub(super) accounts: f64,
    /// Processes of clients that outlived divvy.
    pub(super) left: usize,
    pub(super) strangers: Option<f64>,
    /// Time of each request, ms.
    pub(super) latencies: Vec<f64>,
}

/// Windows count only where no more than this part of the CPUs idled or went to others.
const MOST_UNUSED: f64 = 0.03;

impl Outcome {
    pub(super) fn new(
        spec: &Spec<'_>,
        watch: &Watch,
        totals: &[Nanos],
        report: Option<&Report>,
        left: usize,
        requests: &[(Instant, Nanos)],
    ) -> Self {
        let wall = watch.ended.since(watch.begun).0 as f64;
        let all = wall * watch.cpus as f64;
        let used: Vec<f64> = watch.used.iter().map(|ns| ns.0 as f64 / all).collect();
        let known = used.iter().sum::<f64>() + watch.own.0 as f64 / all;
        let accounts = report.map_or(f64::NAN, |report| {
            let off = report.clients.iter().zip(totals).map(|(client, ns)| client.service_ns.abs_diff(ns.0));
            off.max().unwrap_or(0) as f64 / report.wall_ns.max(1) as f64
        });
        let due = due(watch, spec);
        let latencies = requests.iter().filter(|(end, _)| inside(watch, *end));
        Self {
            rate: rate(watch.samples.iter().map(|s| (s.at, s.program))),
            hog_rate: rate(watch.samples.iter().map(|s| (s.at, s.hogs))),
            own: watch.own.0 as f64 / wall,
            wakeups: watch.switches as f64 / (wall / 1e9),
            cycles: report.and_then(|r| r.cycles.rms_relative_error).map_or(f64::NAN, |e| e.median),
            windows: due.map_or(f64::NAN, |due| windows(watch, due)),
            long_error: due.map_or(f64::NAN, |due| long_error(&watch.used, spec.shares, due)),
            accounts,
            left,
            strangers: watch.busy.map(|busy| (busy - known).max(0.0)),
            latencies: latencies.map(|(_, took)| took.0 as f64 / 1e6).collect(),
            used,
        }
    }

    /// The program's part of what all clients used.
    pub(super) fn split(&self) -> f64 {
        self.used.first().copied().unwrap_or(f64::NAN) / self.total()
    }

    /// What all clients used.
    pub(super) fn total(&self) -> f64 {
        self.used.iter().sum()
    }
}

/// Units a second, from the first to the last moment at which the count was seen to have grown, so that half a unit at
/// either end does not count; 0 where it grew less than twice.
fn rate(counts: impl Iterator<Item = (Instant, u64)>) -> f64 {
    let mut grown: Vec<(Instant, u64)> = Vec::new();
    let mut last = None;
    for (at, count) in counts {
        if last.is_some_and(|last| count > last) {
            grown.push((at, count));
        }
        last = Some(count);
    }
    match (grown.first(), grown.last()) {
        (Some(first), Some(last)) if last.0 > first.0 => {
            (last.1 - first.1) as f64 / (last.0.since(first.0).0 as f64 / 1e9)
        }
        _ => 0.0,
    }
}

/// What a program and the one that computes beside it are due of what both got: their shares, or, where the program cannot use so
/// much, all that it can use, and the other the rest.
fn due(watch: &Watch, spec: &Spec<'_>) -> Option<[f64; 2]> {
    let &[program, hog] = spec.shares else { return None };
    let shares = [program, hog];
    let (got, wall) = (watch.used.iter().map(|ns| ns.0).sum::<u64>(), watch.ended.since(watch.begun));
    let used = got as f64 / (wall.0 as f64 * watch.cpus as f64);
    let part = spec.can_use.map_or_else(|| part(&shares), |all| due_part(&shares, all, used));
    Some([part, 1.0 - part])
}

/// What a program is due of what it and the other got: its share, or, where that is less, all that it can use.
pub(super) fn due_part(shares: &[u64; 2], can_use: f64, used: f64) -> f64 {
    part(shares).min(can_use / used)
}

/// The program's share of the sum.
pub(super) fn part(shares: &[u64; 2]) -> f64 {
    shares[0] as f64 / (shares[0] + shares[1]) as f64
}

/// The root of the mean square of the clients' relative errors: what they got, over what they were due of what all got, less
/// one. Where the window cuts a cycle, a client has run for its quanta of that cycle while it was due only its part of that time:
/// that much is no error.
fn long_error(used: &[Nanos], shares: &[u64], due: [f64; 2]) -> f64 {
    let got = used.iter().map(|ns| ns.0).sum::<u64>() as f64;
    let error = |((used, &share), part): ((&Nanos, &u64), f64)| {
        let cut = (QUANTUM.0 * share) as f64 * (1.0 - part);
        ((used.0 as f64 - part * got).abs() - cut).max(0.0) / (part * got)
    };
    rms(&used.iter().zip(shares).zip(due).map(error).collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// Median of the RMS relative errors of windows, for a program and one that computes, who use all there is: what the latter
/// used in a window follows from its counts, and the former had the rest. Not a number where that cannot be said.
fn windows(watch: &Watch, [_, due]: [f64; 2]) -> f64 {
    let (Some(first), Some(last)) = (watch.samples.first(), watch.samples.last()) else { return f64::NAN };
    let all = last.at.since(first.at).0 as f64 * watch.cpus as f64;
    let used: u64 = watch.used.iter().map(|ns| ns.0).sum();
    let counted = last.hogs.saturating_sub(first.hogs) as f64;
    if counted == 0.0 || (used as f64) < (1.0 - MOST_UNUSED) * all {
        return f64::NAN;
    }
    let of_each = watch.used[1].0 as f64 / counted;
    let ends: Vec<Sample> = watch.samples.iter().step_by(watch.of_cycle).copied().collect();
    let errors: Vec<f64> = ends
        .windows(2)
        .filter_map(|pair| {
            let there = pair[1].at.since(pair[0].at).0 as f64 * watch.cpus as f64 * (used as f64 / all);
            let got = ((pair[1].hogs - pair[0].hogs) as f64 * of_each / there).clamp(0.0, 1.0);
            rms(&[got / due - 1.0, (1.0 - got) / (1.0 - due) - 1.0])
        })
        .collect();
    median(&errors).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3:1.
    const BY_SHARE: [f64; 2] = [0.75, 0.25];

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn watch(counts: &[(u64, u64)], used_ms: [u64; 2]) -> Watch {
        let samples: Vec<Sample> =
            counts.iter().map(|&(ms, hogs)| Sample { at: at(ms), program: 0, hogs }).collect();
        let (begun, ended) = (samples[0].at, samples[samples.len() - 1].at);
        let used = used_ms.map(Nanos::from_millis).to_vec();
        Watch { begun, ended, cpus: 1, samples, of_cycle: 1, used, own: Nanos::ZERO, switches: 0, busy: None }
    }

    #[test]
    fn a_rate_is_between_the_first_and_the_last_growth() {
        let counts = [(0, 5), (100, 5), (200, 7), (300, 7), (400, 13), (500, 13)];
        let rate_of = |counts: &[(u64, u64)]| rate(counts.iter().map(|&(ms, n)| (at(ms), n)));
        // From 7 at 200 ms to 13 at 400 ms.
        assert!((rate_of(&counts) - 30.0).abs() < 1e-9);
        assert_eq!(rate_of(&counts[..4]), 0.0, "one growth is no rate");
        assert_eq!(rate_of(&[]), 0.0);
    }

    #[test]
    fn the_error_of_a_run_is_beyond_a_cut_cycle() {
        let error = |program, hog| {
            long_error(&[Nanos::from_millis(program), Nanos::from_millis(hog)], &[3, 1], BY_SHARE)
        };
        // Due 1500 and 500 of 2000. A cut explains 30 * 1/4 = 10 * 3/4 = 7.5 ms.
        assert!(error(1507, 493).abs() < 1e-9, "{}", error(1507, 493));
        // 500 less: 492.5 of 1500 and of 500 are errors.
        let expected = ((492.5_f64 / 1500.0).powi(2) + (492.5_f64 / 500.0).powi(2)) / 2.0;
        assert!((error(1000, 1000) - expected.sqrt()).abs() < 1e-9);
        assert!(error(0, 0).is_nan(), "nothing was divided");
    }

    #[test]
    fn windows_are_judged_by_counts() {
        // 3:1: of 40 ms the one that computes is due 10. Its 100 counts are 20 ms of CPU time, .2 ms each.
        let two = watch(&[(0, 0), (40, 75), (80, 100)], [60, 20]);
        // 15 of 40 and 5 of 40: errors +.5 and -1/6, then -.5 and +1/6.
        let expected = ((0.25_f64 + 1.0 / 36.0) / 2.0).sqrt();
        assert!((windows(&two, BY_SHARE) - expected).abs() < 1e-9, "{}", windows(&two, BY_SHARE));
        let exact = watch(&[(0, 0), (40, 50), (80, 100)], [60, 20]);
        assert!(windows(&exact, BY_SHARE).abs() < 1e-9);
        let fine = [(0, 0), (20, 49), (40, 50), (60, 51), (80, 100)];
        let fine = Watch { of_cycle: 2, ..watch(&fine, [60, 20]) };
        assert!(windows(&fine, BY_SHARE).abs() < 1e-9, "what is within a cycle does not count");
        let idle = watch(&[(0, 0), (40, 50), (80, 100)], [50, 20]);
        assert!(windows(&idle, BY_SHARE).is_nan(), "an eighth of the CPU idled");
    }
}
