//! Who competes on the two CPUs.

use divvy_policy::Share;
use divvy_policy::feasible::{Claim, water_fill};

use crate::live::{ClientSpec, Kind, Strangers, Work};

/// CPUs that are divided live.
pub(super) const CPUS: u32 = 2;

/// One experiment.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// What kind it is of.
    pub(super) group: &'static str,
    /// Its name: who the clients are.
    pub(super) name: &'static str,
    pub(super) clients: Vec<ClientSpec>,
    pub(super) strangers: Option<Strangers>,
    /// Whether the published algorithm is run as well.
    pub(super) compared: bool,
    /// Whether a quick run has it.
    pub(super) quick: bool,
}

impl Case {
    /// What each client can have of the CPUs: its share, or as many CPUs as it has threads. As fractions of all.
    pub(super) fn targets(&self) -> Vec<f64> {
        let claim = |c: &ClientSpec| Claim {
            share: Share::new(c.share).unwrap_or(Share::ONE),
            width: c.work.width(),
        };
        let cpus = water_fill(&self.clients.iter().map(claim).collect::<Vec<_>>(), CPUS);
        let all: f64 = cpus.iter().map(|c| c.as_f64()).sum();
        cpus.iter().map(|c| c.as_f64() / all).collect()
    }

    /// Whether client `i` counts in a cycle's error: it wants the CPU all the time, and what it is due beside the others
    /// that count is the same whether the sleepers sleep or not. One that may not have more than one CPU is due more of
    /// the time, and no more of the CPUs, while a sleeper is awake.
    pub(super) fn counts(&self, i: usize) -> bool {
        let sleeps = |c: &ClientSpec| matches!(c.work, Work::Io { .. });
        let any_sleeps = self.clients.iter().any(sleeps);
        !(sleeps(&self.clients[i]) || any_sleeps && self.is_capped(i))
    }

    /// Whether its share is more than it can use while all are awake.
    fn is_capped(&self, i: usize) -> bool {
        let shares: u64 = self.clients.iter().map(|c| c.share).sum();
        self.clients[i].share * u64::from(CPUS) > shares * u64::from(self.clients[i].work.width())
    }
}

const fn spin(share: u64) -> ClientSpec {
    ClientSpec { share, work: Work::Spin }
}

const fn threads(share: u64, n: u32) -> ClientSpec {
    ClientSpec { share, work: Work::Threads(n) }
}

const fn tree(share: u64, n: u32) -> ClientSpec {
    ClientSpec { share, work: Work::Family(n) }
}

const fn sleeper(share: u64, run_ms: u64, sleep_ms: u64) -> ClientSpec {
    ClientSpec { share, work: Work::Io { run_ms, sleep_ms, log: false } }
}

fn some(kind: Kind, seed: u64) -> Option<Strangers> {
    Some(Strangers { seed, most: 3, away_ms: 900, stay_ms: 400, kind })
}

/// Every experiment.
pub(super) fn all() -> Vec<Case> {
    let case = |group, name, clients: &[ClientSpec], strangers| Case {
        group,
        name,
        clients: clients.to_vec(),
        strangers,
        compared: false,
        quick: false,
    };
    let long = |run, sleep| [spin(2), sleeper(2, run, sleep), spin(3), spin(3), spin(2)];
    let [wide, mixed, narrow] = [
        [threads(3, 3), spin(1)].to_vec(),
        [threads(1, 2), tree(2, 3), spin(3)].to_vec(),
        [threads(1, 2), spin(6), spin(1)].to_vec(),
    ];
    let eight = [spin(1), spin(2), spin(3), spin(2)];
    let slow = [spin(5), spin(10), spin(15), spin(10)];
    let infeasible = [spin(1), spin(1), spin(6)];
    let everything = [threads(2, 2), sleeper(2, 80, 240), spin(3), tree(1, 2)];
    let mut cases = vec![
        case("computing", "1, 2, 3, 2", &eight, None),
        case("computing", "1, 1, 6", &infeasible, None),
        case("threads", "2 (2 threads), 1, 1", &[threads(2, 2), spin(1), spin(1)], None),
        case("threads", "3 (3 threads), 1", &wide, None),
        case("threads", "6 (2 threads), 1, 1", &[threads(6, 2), spin(1), spin(1)], None),
        case("threads", "1 (2 threads), 2 (3 processes), 3", &mixed, None),
        case("threads", "1 (2 threads), 6, 1", &narrow, None),
        case("threads", "1 (2 threads), 1 (2 threads)", &[threads(1, 2), threads(1, 2)], None),
        case("threads", "1, 3 (2 threads)", &[spin(1), threads(3, 2)], None),
        case("sleepers", "2, 2 (80/240 ms), 3, 3, 2", &long(80, 240), None),
        case("sleepers", "2, 2 (5/45 ms), 3, 3, 2", &long(5, 45), None),
        case("sleepers", "1, 2 (80/240 ms), 3, 2", &[spin(1), sleeper(2, 80, 240), spin(3), spin(2)], None),
        case("sleepers", "1, 1 (80/240 ms), 1, 6", &[spin(1), sleeper(1, 80, 240), spin(1), spin(6)], None),
        case("strangers", "1, 2, 3, 2; unpinned", &eight, some(Kind::Free, 1)),
        case("strangers", "1, 2, 3, 2; pinned", &eight, some(Kind::Pinned, 2)),
        case("strangers", "1, 2, 3, 2; moving", &eight, some(Kind::Wander, 3)),
        case("strangers", "5, 10, 15, 10; all kinds", &slow, some(Kind::All, 4)),
        case("strangers", "1, 1, 6; all kinds", &infeasible, some(Kind::All, 5)),
        case("everything", "2 (2 threads), 2 (80/240 ms), 3, 1 (2 processes)", &everything, None),
        case("everything", "the same; all kinds of strangers", &everything, some(Kind::All, 6)),
    ];
    for (i, case) in cases.iter_mut().enumerate() {
        case.compared = [0, 1, 3, 9, 13, 17, 19].contains(&i);
        case.quick = [0, 3, 10, 15].contains(&i);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_what_threads_and_cpus_allow() {
        let all = all();
        let targets = |name: &str| all.iter().find(|c| c.name == name).expect("a case").targets();
        assert_eq!(targets("1, 2, 3, 2"), [0.125, 0.25, 0.375, 0.25]);
        assert_eq!(targets("1, 1, 6"), [0.25, 0.25, 0.5]);
        assert_eq!(targets("6 (2 threads), 1, 1"), [0.75, 0.125, 0.125]);
        assert_eq!(targets("1 (2 threads), 6, 1"), [0.25, 0.5, 0.25]);
    }

    #[test]
    fn sleepers_and_those_that_they_cap_do_not_count() {
        let all = all();
        let counts = |name: &str| {
            let case = all.iter().find(|c| c.name == name).expect("a case");
            (0..case.clients.len()).map(|i| case.counts(i)).collect::<Vec<_>>()
        };
        assert_eq!(counts("1, 1, 6"), [true; 3]);
        assert_eq!(counts("1, 1 (80/240 ms), 1, 6"), [true, false, true, false]);
        assert_eq!(counts("1, 2 (80/240 ms), 3, 2"), [true, false, true, true]);
    }
}
