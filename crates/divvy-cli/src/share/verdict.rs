//! Whether each client got its share, and if not, why: one line for people.

use divvy_linux::{CpuMask, CpuTimes};

use super::report::{ClientReport, LimitReport};

/// A client is said to have got its share if what it got differs from it by less than this part.
const ENOUGH: f64 = 0.01;
/// Who slept for less than this part of the time is not said to have slept.
const SLEEPY: f64 = 0.02;
/// Strangers that took less than this part of the CPU time are not worth a word.
const CROWDED: f64 = 0.02;

/// What is known of a client beside its row in the report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Life {
    /// For which part of the run it was known to sleep.
    pub(super) slept: f64,
    /// Somebody else has stopped it.
    pub(super) stopped: bool,
    /// It ended, or left, before the run did.
    pub(super) ended: bool,
    /// It was let go, by whomever: it ran on, undivided.
    pub(super) let_go: bool,
    /// CPUs that it can use at once.
    pub(super) width: u32,
    /// What it was to get went to others while it slept.
    pub(super) gave_up: bool,
    /// Some of the CPUs only, to which somebody else has kept it, as `taskset` does.
    pub(super) kept_to: Option<CpuMask>,
}

/// The part of `wall_ns` on so many `cpus` that was others', where the kernel has `busy_ns` in its books and `ours_ns` are ours. It tells
/// whole ticks: what may be their rounding is nobody's, and others had no more than what we left.
pub(super) fn others(busy_ns: u64, ours_ns: u64, wall_ns: u64, cpus: u64) -> f64 {
    let (all, error) = (wall_ns.saturating_mul(cpus), CpuTimes::ERROR.0.saturating_mul(cpus));
    let others = busy_ns.saturating_sub(ours_ns);
    if others <= error {
        return 0.0;
    }
    others.min(all.saturating_sub(ours_ns)) as f64 / all.max(1) as f64
}

/// What a unit of shares had in a cycle, ns, where `ended` cycles came to `all_ns`, and are to be `cycle_ns` long with this quantum: as much
/// more than that as they were longer, for they are where it takes long to hold somebody.
pub(super) fn unit_ns(quantum_ns: u64, all_ns: u64, ended: u64, cycle_ns: u128) -> u64 {
    let was = u128::from(all_ns) / u128::from(ended.max(1));
    if ended == 0 || was <= 2 * cycle_ns {
        return quantum_ns;
    }
    u64::try_from(u128::from(quantum_ns) * was / cycle_ns.max(1)).unwrap_or(u64::MAX)
}

/// The line. `strangers` had this fraction of the CPU time; so many `cycles` have ended that count. Who lacks less than a quantum got its
/// share: the run ended in the middle of a cycle.
pub(super) fn line(
    clients: &[ClientReport],
    lives: &[Life],
    strangers: f64,
    (cycles, quantum_ns): (u64, u64),
) -> String {
    let shares: u64 = clients.iter().map(|c| c.share).sum();
    let all_ns: u64 = clients.iter().map(|c| c.service_ns).sum();
    let lacks_ns = |c: &ClientReport| (c.target_fraction - c.achieved_fraction) * all_ns as f64;
    let is_quantum = |c: &ClientReport| all_ns > 0 && lacks_ns(c) < quantum_ns as f64;
    // Strangers had no less than that part of what is not theirs: where CPUs idled it is more than what all had.
    let explains = |c: &ClientReport| lacks_ns(c) * (1.0 - strangers) <= strangers * all_ns as f64;
    let crowds = crowds(lives);
    let is_crowded = |life: &Life| crowds.iter().any(|&crowd| life.kept_to == Some(crowd));
    let mut reasons: Vec<String> = crowds.iter().map(|&crowd| of_crowd(crowd, clients, lives)).collect();
    for (client, life) in clients.iter().zip(lives).filter(|(_, life)| !is_crowded(life)) {
        let asked = client.share as f64 / shares.max(1) as f64;
        let capped = client.target_fraction < asked * (1.0 - ENOUGH);
        if capped && !life.ended && !life.let_go && !life.gave_up {
            reasons.push(
                match client.limit.map(|l| l.limit).filter(|l| l.as_cpus() < f64::from(life.width)) {
                    Some(limit) => format!("{} is limited to {limit}", client.name),
                    None => format!("{} can use {} only", client.name, cpus(life.width)),
                },
            );
        }
        if client.relative_error > -ENOUGH || is_quantum(client) {
            continue;
        }
        let (got, due) = (client.achieved_fraction * 100.0, client.target_fraction * 100.0);
        let why = if life.stopped {
            "somebody else stopped it".to_owned()
        } else if life.let_go {
            "it was let go before the end".to_owned()
        } else if life.ended {
            "it ended before the others".to_owned()
        } else if life.slept > SLEEPY {
            format!("it slept {:.0} % of the time", life.slept * 100.0)
        } else if client.limit.as_ref().is_some_and(LimitReport::is_reached) {
            "it was held at its limit when it was its turn".to_owned()
        } else if cycles == 0 {
            "the run was shorter than five cycles".to_owned()
        } else if strangers > CROWDED && explains(client) {
            "strangers were in its way".to_owned()
        } else if life.width > 1 {
            // How many of its threads run is told of now and then only.
            "neither sleep nor strangers explain it; perhaps too few of its threads had work".to_owned()
        } else {
            "neither sleep nor strangers explain it".to_owned()
        };
        reasons.push(format!("{} got {got:.1} % instead of {due:.1} %: {why}", client.name));
    }
    let mut text = match reasons.as_slice() {
        [] if cycles == 0 && clients.iter().any(|c| c.relative_error < -ENOUGH) => {
            "the run was shorter than five cycles: too short to say".to_owned()
        }
        [] if clients.len() > 1 => "each client got its share".to_owned(),
        [] => "one client: nothing to divide".to_owned(),
        _ => reasons.join("; "),
    };
    if strangers > CROWDED {
        text += &format!(". Others took {:.0} % of the CPU time", strangers * 100.0);
    }
    text
}

/// CPUs to which more clients are kept than these are.
fn crowds(lives: &[Life]) -> Vec<CpuMask> {
    let mut crowds: Vec<CpuMask> = Vec::new();
    for mask in lives.iter().filter_map(|life| life.kept_to) {
        let there = lives.iter().filter(|life| life.kept_to == Some(mask)).count();
        if there > mask.iter().count() && !crowds.contains(&mask) {
            crowds.push(mask);
        }
    }
    crowds
}

/// That the kernel divides these CPUs among those who are kept there, and how to have it otherwise.
fn of_crowd(crowd: CpuMask, clients: &[ClientReport], lives: &[Life]) -> String {
    let there = clients.iter().zip(lives).filter(|(_, life)| life.kept_to == Some(crowd));
    let names: Vec<&str> = there.map(|(client, _)| client.name.as_str()).collect();
    let what = if crowd.iter().count() == 1 { "CPU" } else { "CPUs" };
    format!(
        "{} are kept to {what} {crowd} (taskset), where shares of all CPUs come to nothing: --cpus {crowd} divides it among them",
        names.join(" and ")
    )
}

fn cpus(width: u32) -> String {
    if width == 1 { "one CPU".to_owned() } else { format!("{width} CPUs") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, share: u64, target: f64, achieved: f64) -> ClientReport {
        ClientReport {
            name: name.into(),
            share,
            limit: None,
            effective_share: share as f64,
            service_ns: 0,
            target_fraction: target,
            achieved_fraction: achieved,
            relative_error: achieved / target - 1.0,
            selector: None,
            exit: None,
            ended_by_us: None,
        }
    }

    const AWAKE: Life = Life {
        slept: 0.0,
        stopped: false,
        ended: false,
        let_go: false,
        width: 1,
        gave_up: false,
        kept_to: None,
    };
    const NOBODY: f64 = 0.0;
    const QUANTUM: u64 = 10_000_000;

    /// Of a run of 12 ms the kernel's books have four ticks of 10 ms on two CPUs: 164 %, which nobody can have had.
    #[test]
    fn what_ticks_cannot_tell_is_nobodys() {
        const MS: u64 = 1_000_000;
        assert_eq!(others(40 * MS, MS / 2, 12 * MS, 2), NOBODY);
        assert_eq!(others(30 * MS, 0, 500 * MS, 1), NOBODY);
        assert_eq!(others(500 * MS, 300 * MS, 500 * MS, 1), 0.4);
        assert_eq!(others(520 * MS, 300 * MS, 500 * MS, 1), 0.4, "no more than was left");
        assert_eq!(others(300 * MS, 400 * MS, 500 * MS, 1), NOBODY);
        assert_eq!(others(60 * MS, 0, 0, 1), NOBODY);
    }

    #[test]
    fn all_is_well_or_it_is_said_why_not() {
        let well = [client("a", 1, 0.25, 0.2495), client("b", 3, 0.75, 0.7505)];
        assert_eq!(line(&well, &[AWAKE; 2], NOBODY, (9, QUANTUM)), "each client got its share");
        let crowd = 0.4;
        let text = "each client got its share. Others took 40 % of the CPU time";
        assert_eq!(line(&well, &[AWAKE; 2], crowd, (9, QUANTUM)), text);
        let alone = [client("a", 5, 1.0, 1.0)];
        assert_eq!(line(&alone, &[AWAKE], NOBODY, (9, QUANTUM)), "one client: nothing to divide");

        let less = [client("a", 3, 0.75, 0.61), client("b", 1, 0.25, 0.39)];
        let said = |life: Life, strangers, cycles| line(&less, &[life, AWAKE], strangers, (cycles, QUANTUM));
        let rows = [
            (Life { slept: 0.345, ..AWAKE }, NOBODY, 9, "it slept 34 % of the time"),
            (Life { stopped: true, slept: 1.0, ..AWAKE }, NOBODY, 9, "somebody else stopped it"),
            (Life { ended: true, ..AWAKE }, NOBODY, 9, "it ended before the others"),
            (Life { ended: true, let_go: true, ..AWAKE }, NOBODY, 9, "it was let go before the end"),
            (AWAKE, NOBODY, 0, "the run was shorter than five cycles"),
            (AWAKE, NOBODY, 9, "neither sleep nor strangers explain it"),
        ];
        for (life, strangers, cycles, why) in rows {
            assert_eq!(said(life, strangers, cycles), format!("a got 61.0 % instead of 75.0 %: {why}"));
        }
        let crowded = said(AWAKE, crowd, 9);
        assert!(crowded.contains("strangers were in its way. Others took 40 %"), "{crowded}");
    }

    /// Two threads that wait for children now and then, beside two that compute, on two CPUs.
    #[test]
    fn strangers_that_had_less_than_is_missing_are_no_reason() {
        let of = |name, share, ms: u64, due| ClientReport {
            service_ns: ms * 1_000_000,
            ..client(name, share, due, ms as f64 / 15_000.0)
        };
        let clients = [of("a", 3, 10_500, 0.75), of("b", 1, 4_500, 0.25)];
        let wide = Life { width: 2, ..AWAKE };
        let said = |strangers| line(&clients, &[wide; 2], strangers, (200, QUANTUM));
        // Of 15 s it lacks 750 ms.
        let few = "a got 70.0 % instead of 75.0 %: neither sleep nor strangers explain it; perhaps too few of its threads had work";
        assert_eq!(said(0.025), format!("{few}. Others took 2 % of the CPU time"));
        assert_eq!(
            said(0.05),
            "a got 70.0 % instead of 75.0 %: strangers were in its way. Others took 5 % of the CPU time"
        );
    }

    #[test]
    fn where_cycles_are_longer_a_unit_of_shares_has_more() {
        const MS: u64 = 1_000_000;
        let unit = |all_s: u64, ended, cycle_ms: u64| {
            unit_ns(QUANTUM, all_s * 1_000 * MS, ended, u128::from(cycle_ms * MS))
        };
        // 34 of 353 ms for 20; a few that are longer, or shorter, as somebody slept; one of 6.5 s in which 6 have ended.
        assert_eq!(unit(12, 34, 20), 176 * MS + 470_588);
        assert_eq!(
            [unit(12, 300, 20), unit(12, 2_000, 20), unit(6, 6, 1_000), unit(12, 0, 20)],
            [QUANTUM; 4]
        );
    }

    #[test]
    fn less_than_a_quantum_is_where_the_run_ended() {
        let of = |lacks_ms: u64| {
            let got = 500 - lacks_ms;
            let one = |name: &str, share, ms: u64| ClientReport {
                service_ns: ms * 1_000_000,
                ..client(name, share, share as f64 / 4.0, ms as f64 / 2000.0)
            };
            line(&[one("a", 1, got), one("b", 3, 2000 - got)], &[AWAKE; 2], NOBODY, (45, 10_000_000))
        };
        assert_eq!(of(7), "each client got its share");
        let short = [client("a", 1, 0.5, 0.36), client("b", 1, 0.5, 0.64)]
            .map(|c| ClientReport { service_ns: 3_000_000, ..c });
        let text = line(&short, &[AWAKE; 2], NOBODY, (0, 10_000_000));
        assert_eq!(text, "the run was shorter than five cycles: too short to say");
        assert_eq!(of(11), "a got 24.4 % instead of 25.0 %: neither sleep nor strangers explain it");
    }

    #[test]
    fn who_can_use_less_than_its_share_is_named() {
        // Two CPUs, shares 3 and 1, one thread each: half and half is all that there is.
        let capped = [client("a", 3, 0.5, 0.5), client("b", 1, 0.5, 0.5)];
        assert_eq!(line(&capped, &[AWAKE; 2], NOBODY, (9, QUANTUM)), "a can use one CPU only");
        // In a group it is due less because it slept, and had that.
        let lives = [Life { slept: 0.4, gave_up: true, ..AWAKE }, AWAKE];
        assert_eq!(line(&capped, &lives, NOBODY, (9, QUANTUM)), "each client got its share");
    }

    #[test]
    fn who_is_kept_to_the_same_cpu_by_others_is_named_with_the_way_out() {
        let clients = [client("a", 9, 0.5, 0.5), client("b", 1, 0.4, 0.3), client("c", 1, 0.1, 0.2)];
        let kept = |cpu| Life { kept_to: Some(CpuMask::only(cpu)), ..AWAKE };
        let said = |lives: [Life; 3]| line(&clients, &lives, NOBODY, (9, QUANTUM));
        let text = "a and b are kept to CPU 1 (taskset), where shares of all CPUs come to nothing: --cpus 1 divides it among them";
        assert_eq!(said([kept(1), kept(1), AWAKE]), text);
        // Each on one of its own: what is off has another reason.
        let other = said([kept(0), kept(1), AWAKE]);
        assert!(other.starts_with("a can use one CPU only; b got 30.0 % instead of 40.0 %"), "{other}");
    }

    #[test]
    fn limits_are_named() {
        let limited = |limit: &str, target, achieved| ClientReport {
            limit: Some(LimitReport::new(limit.parse().unwrap(), 0, 1)),
            ..client("a", 3, target, achieved)
        };
        let others = client("b", 1, 0.7, 0.7);
        let text = line(&[limited("30%", 0.3, 0.3), others.clone()], &[AWAKE; 2], NOBODY, (9, QUANTUM));
        assert_eq!(text, "a is limited to 30%");
        // On two CPUs one thread is less than this limit.
        let text = line(&[limited("1.5", 0.5, 0.5), others.clone()], &[AWAKE; 2], NOBODY, (9, QUANTUM));
        assert_eq!(text, "a can use one CPU only");
        // Whoever had less than its limit was not held at that.
        for (had, why) in
            [(795, "it was held at its limit when it was its turn"), (503, "strangers were in its way")]
        {
            let limit = Some(LimitReport::new("80%".parse().unwrap(), had, 1000));
            let clients = [ClientReport { limit, ..client("a", 3, 0.75, 0.7) }, others.clone()];
            let text = line(&clients, &[AWAKE; 2], 0.4, (9, QUANTUM));
            assert!(text.starts_with(&format!("a got 70.0 % instead of 75.0 %: {why}. Others")), "{text}");
        }
    }
}
