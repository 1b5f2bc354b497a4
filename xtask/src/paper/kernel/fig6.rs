//! Fig. 6 of Isolation with Flexibility by the kernel's lottery: two currencies of equal worth, and a task that sleeps for the
//! first half.

use anyhow::Result;
use serde::Serialize;

use super::accuracy::sigma;
use super::{By, Look, Spec, Study};
use crate::paper::Setting;
use crate::paper::page::{Limit, number, percent};
use crate::paper::plot::{Legend, Plot, Style};

const TASKS: [&str; 5] = ["A1", "A2", "B1", "B2", "B3"];
/// What their tickets are worth in the base currency while B3 sleeps, and while it does not: of 1000 for each of A and B, A's
/// tasks have 100 and 200 tickets, B's 100, 200 and 300. In units that make all of them whole.
const ASLEEP: [u64; 5] = [2, 4, 2, 4, 6];
const AWAKE: [u64; 5] = [4, 8, 2, 4, 6];
/// An instruction takes 16 ns.
const SHIFT: u32 = 4;
const QUANTUM_MS: u64 = 8;

#[derive(Serialize)]
struct Row {
    policy: String,
    t_s: f64,
    task: &'static str,
    seconds_of_work: f64,
}

/// Parts that are due in a half.
fn due(values: [u64; 5], present: usize) -> Vec<f64> {
    let sum: u64 = values[..present].iter().sum();
    values[..present].iter().map(|&v| v as f64 / sum as f64).collect()
}

fn done(from: &Look, to: &Look) -> Vec<f64> {
    to.done.iter().zip(&from.done).map(|(to, from)| (to - from) as f64).collect()
}

/// Fig. 6 by the lottery and by stride.
pub(super) fn lottery(s: &mut Setting, study: &Study) -> Result<()> {
    let half = s.pick(10_000, 30_000);
    let schedulers = ["lottery:seed=7", "stride"].map(|p| By::Scx(joined(p)));
    let spec = |by: &By| {
        let mut spec = Spec::new(by.text(), by.clone(), &ASLEEP, 0, 2 * half);
        spec.every_ms = half / 40;
        spec.clients[4].arrival_ms = half;
        spec.change = Some((half, AWAKE.to_vec()));
        spec
    };
    let all = study.run(SHIFT, schedulers.iter().map(spec).collect())?;
    s.page.heading("Five tasks in two currencies (Isolation with Flexibility, Fig. 6)");
    s.page.text(&format!(
        "Currencies A and B are worth the same. A1 and A2 have 100 and 200 tickets of A, B1, B2 and B3 100, 200 and 300 of B; B3 sleeps \
         for the first {} s. `divvy-scx` is told base values, by its file of shares: when B3 wakes, the file that says what \
         B's tickets are worth from then on is read again. Quanta of {QUANTUM_MS} ms, {} ns an instruction. Deviations are in standard deviations of \
         what so many draws win; stride draws nothing, and its column is for comparison.",
        half / 1_000,
        1 << study.shift(SHIFT)
    ));
    let (mut table, mut data, mut most) = (Vec::new(), Vec::new(), 0.0_f64);
    for (at, (by, seen)) in schedulers.iter().zip(&all).enumerate() {
        let middle = seen.looks.iter().find(|look| look.at_ns >= half * 1_000_000);
        let ((start, end), Some(middle)) = (seen.ends()?, middle) else { anyhow::bail!("nothing was seen") };
        let draws = half as f64 / QUANTUM_MS as f64;
        for (name, from, to, due) in
            [("B3 asleep", start, middle, due(ASLEEP, 4)), ("B3 awake", middle, end, due(AWAKE, 5))]
        {
            let work = done(from, to);
            let sum: f64 = work.iter().sum();
            for (task, &due) in due.iter().enumerate() {
                let got = work[task] / sum;
                let sigmas = (got - due) / sigma(due, draws);
                if at == 0 {
                    most = most.max(sigmas.abs());
                }
                table.push(vec![
                    super::accuracy::short(by),
                    name.to_owned(),
                    TASKS[task].to_owned(),
                    percent(due),
                    percent(got),
                    percent(got / due - 1.0),
                    number(sigmas),
                ]);
            }
        }
        let mut plot =
            Plot::new(format!("Fig. 6 by {}", super::accuracy::short(by)), "time, s", "seconds of work");
        plot.legend = Legend::Left;
        let course = seen.course()?;
        for (task, name) in TASKS.into_iter().enumerate() {
            plot.add(name, Style::Line, course.iter().map(|(t, work)| (*t, work[task])).collect());
            data.extend(course.iter().map(|(t, work)| Row {
                policy: super::accuracy::short(by),
                t_s: *t,
                task: name,
                seconds_of_work: work[task],
            }));
        }
        s.page.plot(&format!("fig6-{}", if at == 0 { "lottery" } else { "stride" }), &plot)?;
    }
    s.page.table("scheduler | half | task | due, % | got, % | error, % | deviations", &table);
    s.page.goal(
        "Fig. 6 by lottery: the largest deviation of a task in a half",
        Limit::Most(3.0),
        most,
        "sigma",
    );
    s.page.csv("fig6", &data)
}

fn joined(policy: &str) -> String {
    let mark = if policy.contains(':') { ',' } else { ':' };
    format!("{policy}{mark}quantum={QUANTUM_MS}ms")
}
