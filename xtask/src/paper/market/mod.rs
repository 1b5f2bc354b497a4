//! Isolation with Flexibility: Fig. 6 and section 3.2 over live processes of real users, and the library's own speed.

mod accounts;
mod library;
mod server;

use std::time::Duration;

use anyhow::{Result, anyhow};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::Serialize;

use super::machine::busy;
use super::page::{Limit, percent};
use super::plot::{Legend, Plot, Style};
use super::{Experiment, Part};
use crate::PaperArgs;
use accounts::Account;
use server::{Server, Task, pause};

/// A client that sleeps for so long is idle.
const POLICY: &str = "[presence]\nidle_after = \"500ms\"\n";
/// What changed counts this long after the change, s: one cycle, and the time that a sleeper takes to be idle.
const SETTLE: u64 = 3;

/// Runs the experiments and writes `OUT/market.md`.
///
/// # Errors
/// The first run or file that fails; everything that was started has ended, and the accounts are removed then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut experiment: Experiment = Experiment::new(args, "market")?;
    let live: [(&str, Part); 2] = [("fig6", fig6), ("isolation", isolation)];
    let mut skipped = 0;
    for (name, part) in live.into_iter().filter(|(name, _)| experiment.wants(name)).collect::<Vec<_>>() {
        if let Some(why) = accounts::missing() {
            skipped += 1;
            eprintln!("SKIP {name}: {why}");
            experiment.page.text(&format!("Not run here: {name}, for {why}."));
            continue;
        }
        accounts::remove_left();
        part(&mut experiment)?;
    }
    if experiment.wants("library") {
        library::run(&mut experiment)?;
    }
    if skipped > 0 {
        eprintln!("{skipped} parts were skipped");
    }
    experiment.finish(
        "The market, in numbers",
        &[
            "Written by `cargo xtask paper market`, as root: `divvyd --system` on directories of its own, three users that are \
             made for the experiment and removed after it, and tasks that each starts with `divvy run`. CPU time is read from \
             the kernel's clocks of the tasks, not from divvyd. What the numbers mean is in [market.md](../market.md).",
        ],
    )
}

/// CPU time of every task, second by second.
#[derive(Debug, Default)]
struct Samples {
    names: Vec<String>,
    /// Seconds since the beginning, and what each had used, ns.
    rows: Vec<(f64, Vec<u64>)>,
    strangers: Option<f64>,
    own: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    run: &'a str,
    t_s: f64,
    task: &'a str,
    used_ms: f64,
}

impl Samples {
    /// Looks at the tasks once a second until `seconds` have passed; at each of the moments in `events`, s, does what there
    /// is to be done.
    fn take(
        experiment: &Experiment,
        server: &Server,
        cpus: &[u32],
        tasks: &[Task],
        seconds: u64,
        mut at: impl FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let begin = clock::now();
        let (busy_before, own_before) = (busy(cpus), server.own_cpu());
        let mut samples =
            Self { names: tasks.iter().map(|task| task.name.clone()).collect(), ..Self::default() };
        for second in 0..=seconds {
            let due = begin + Nanos::from_secs(second);
            pause(Duration::from_nanos(due.0.saturating_sub(clock::now().0)));
            experiment.bench.check()?;
            let used: Result<Vec<u64>> = tasks.iter().map(|task| Ok(task.used()?.0)).collect();
            samples.rows.push((clock::now().since(begin).0 as f64 / 1e9, used?));
            at(second)?;
        }
        let wall = clock::now().since(begin).0 as f64;
        let used: u64 = samples.between(0, seconds).iter().sum();
        let ours = used as f64 / (wall * cpus.len() as f64);
        samples.strangers =
            busy_before.zip(busy(cpus)).map(|(before, now)| (now.fraction_since(before) - ours).max(0.0));
        samples.own = own_before.zip(server.own_cpu()).map(|(a, b)| b.saturating_sub(a).0 as f64 / wall);
        Ok(samples)
    }

    /// What each used from one second to another, ns.
    fn between(&self, from: u64, to: u64) -> Vec<u64> {
        let (a, b) = (&self.rows[from as usize].1, &self.rows[to as usize].1);
        a.iter().zip(b).map(|(a, b)| b.saturating_sub(*a)).collect()
    }

    /// As fractions of what all used.
    fn fractions(&self, from: u64, to: u64) -> Vec<f64> {
        let used = self.between(from, to);
        let sum: u64 = used.iter().sum();
        used.iter().map(|&used| used as f64 / sum.max(1) as f64).collect()
    }

    fn rows<'a>(&'a self, run: &'a str) -> impl Iterator<Item = Row<'a>> {
        self.rows.iter().flat_map(move |(t_s, used)| {
            let each = self.names.iter().zip(used);
            each.map(move |(task, used)| Row { run, t_s: *t_s, task, used_ms: *used as f64 / 1e6 })
        })
    }

    fn plot(&self, title: String) -> Plot {
        let mut plot = Plot::new(title, "time, s", "CPU time, s");
        plot.legend = Legend::Left;
        for (i, name) in self.names.iter().enumerate() {
            let points = self.rows.iter().map(|(t, used)| (*t, used[i] as f64 / 1e9)).collect();
            plot.add(name, Style::Line, points);
        }
        plot
    }
}

/// The largest relative distance between what was got and what was due.
fn worst(got: &[f64], due: &[f64]) -> f64 {
    let pairs = got.iter().zip(due).filter(|(_, due)| **due > 0.0);
    pairs.map(|(got, due)| (got / due - 1.0).abs()).fold(0.0, f64::max)
}

/// `1/3` in words, for tables.
fn fraction((above, below): (u32, u32)) -> String {
    if above == 0 { "0".to_owned() } else { format!("{above}/{below}") }
}

fn value((above, below): (u32, u32)) -> f64 {
    f64::from(above) / f64::from(below)
}

/// A task of Fig. 6: whose, its name, its tickets, and its parts of all while B3 sleeps and while it is awake.
type Fig6Task = (usize, &'static str, u64, (u32, u32), (u32, u32));

const FIG6: [Fig6Task; 5] = [
    (0, "A1", 100, (1, 6), (1, 6)),
    (0, "A2", 200, (1, 3), (1, 3)),
    (1, "B1", 100, (1, 6), (1, 12)),
    (1, "B2", 200, (1, 3), (1, 6)),
    (1, "B3", 300, (0, 1), (1, 4)),
];

/// Section 5.3, Fig. 6: five tasks in two currencies, one of which sleeps for the first half.
fn fig6(s: &mut Experiment) -> Result<()> {
    s.page.heading("Five CPU tasks in two currencies (section 5.3, Fig. 6)");
    s.page.text(
        "Users A and B have 1000 base tickets each, by the policy's default. A runs A1 and A2 with 100 and 200 tickets of \
         its own currency, B runs B1, B2 and B3 with 100, 200 and 300. B3 sleeps for the first half; B1 and B2 share what \
         is B's until it wakes. User C's only task sleeps all the time: its currency is idle, and worth nothing meanwhile. \
         Fractions are of what the five received; the paper's Fig. 6 has lines whose slopes have these proportions.",
    );
    let all = s.bench.cpus().to_vec();
    let mut rows: Vec<(String, Samples)> = Vec::new();
    for cpus in [1_usize, 2] {
        if all.len() < cpus {
            s.page.text(&format!("Not run on {cpus} CPUs: this machine has fewer."));
            continue;
        }
        let samples = fig6_on(s, &all[..cpus])?;
        rows.push((format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" }), samples));
    }
    let data: Vec<Row<'_>> = rows.iter().flat_map(|(name, samples)| samples.rows(name)).collect();
    s.page.csv("fig6", &data)?;
    for (name, samples) in &rows {
        let file = format!("fig6-{}", if name.starts_with('1') { "1cpu" } else { "2cpus" });
        s.page.plot(&file, &samples.plot(format!("Fig. 6: five tasks in two currencies, {name}")))?;
    }
    Ok(())
}

fn fig6_on(s: &mut Experiment, cpus: &[u32]) -> Result<Samples> {
    let half = s.pick(8, 60);
    let users: Vec<Account> = (0..3).map(Account::new).collect::<Result<_>>()?;
    let server = Server::start(s.programs.as_deref(), cpus, POLICY)?;
    let mut tasks = Vec::new();
    let bystander = server.task(&users[2], "C1", 100, 24 * 3600)?;
    for (user, name, tickets, asleep, _) in FIG6 {
        // The last one begins to sleep when it is started, which is when the first half begins.
        let sleeps = if asleep.0 == 0 { half } else { 0 };
        tasks.push(server.task(&users[user], name, tickets, sleeps)?);
    }
    let samples = Samples::take(s, &server, cpus, &tasks, 2 * half, |_| Ok(()))?;
    drop((tasks, bystander));
    let (before, after) = (samples.fractions(SETTLE, half - 1), samples.fractions(half + SETTLE, 2 * half));
    let due = |which: fn(&Fig6Task) -> (u32, u32)| FIG6.iter().map(|t| value(which(t))).collect::<Vec<_>>();
    let (due_before, due_after) = (due(|t| t.3), due(|t| t.4));
    let words = if cpus.len() == 1 { "One CPU".to_owned() } else { format!("{} CPUs", cpus.len()) };
    s.page.text(&format!(
        "**{words}**, {half} s with B3 asleep and {half} s with it awake; the first {SETTLE} s of each are left out. Strangers \
         took {} % of the CPUs, divvyd {} % of one.",
        samples.strangers.map_or_else(|| "?".to_owned(), percent),
        samples.own.map_or_else(|| "?".to_owned(), percent),
    ));
    let table: Vec<Vec<String>> = FIG6
        .iter()
        .enumerate()
        .map(|(i, (_, name, tickets, asleep, awake))| {
            let error = |got: f64, due: f64| {
                if due > 0.0 { percent(got / due - 1.0) } else { "-".to_owned() }
            };
            vec![
                (*name).to_owned(),
                tickets.to_string(),
                fraction(*asleep),
                format!("{:.4}", before[i]),
                error(before[i], value(*asleep)),
                fraction(*awake),
                format!("{:.4}", after[i]),
                error(after[i], value(*awake)),
            ]
        })
        .collect();
    s.page.table(
        "task | tickets | B3 asleep: due | achieved | error, % | B3 awake: due | achieved | error, %",
        &table,
    );
    let largest = worst(&before, &due_before).max(worst(&after, &due_after));
    s.page.goal(
        format!("Fig. 6 on {}: largest error of any task, either half", words.to_lowercase()),
        Limit::Most(2.0),
        largest * 100.0,
        "%",
    );
    let of_a = |got: &[f64]| got[0] + got[1];
    let moved = (of_a(&after) / of_a(&before) - 1.0).abs();
    s.page.goal(
        format!("Fig. 6 on {}: how far B3's waking moves A's part", words.to_lowercase()),
        Limit::Most(1.0),
        moved * 100.0,
        "%",
    );
    s.page.strangers([samples.strangers]);
    Ok(samples)
}

/// Section 3.2: an exchange of two is nobody else's business.
fn isolation(s: &mut Experiment) -> Result<()> {
    let span = s.pick(8, 40);
    let cpus = vec![s.cpu()];
    let users: Vec<Account> = (0..3).map(Account::new).collect::<Result<_>>()?;
    let server = Server::start(s.programs.as_deref(), &cpus, POLICY)?;
    let names = ["A", "B", "C"];
    let tasks: Vec<Task> =
        users.iter().zip(names).map(|(user, name)| server.task(user, name, 100, 0)).collect::<Result<_>>()?;
    let samples = Samples::take(s, &server, &cpus, &tasks, 3 * span, |second| {
        if second == span {
            server.tell(&users[0], &["exchange", "offer", "--give", "cpu:200", "--want", "disk:200"])?;
            return server.tell(&users[1], &["exchange", "offer", "--give", "disk:200", "--want", "cpu:200"]);
        }
        if second == 2 * span {
            let graph = server.api.market().map_err(|e| anyhow!("{e}"))?;
            let id = graph.exchanges.first().map(|exchange| exchange.id.to_string());
            let id = id.ok_or_else(|| anyhow!("the exchange is not there any more"))?;
            return server.tell(&users[1], &["exchange", "cancel", &id]);
        }
        Ok(())
    })?;
    drop(tasks);
    let due = [[(1, 3); 3], [(4, 15), (2, 5), (1, 3)], [(1, 3); 3]];
    let got: Vec<Vec<f64>> =
        (0..3_u64).map(|i| samples.fractions(i * span + SETTLE, (i + 1) * span)).collect();
    s.page.heading("An exchange, and somebody who takes no part (section 3.2)");
    s.page.text(&format!(
        "Users A, B and C have 1000 base tickets of each resource and a task that computes, on one CPU. After {span} s A \
         offers 200 cpu for 200 disk and B the complement; {span} s later B ends the exchange. The first {SETTLE} s after each \
         change are left out. Strangers took {} % of the CPU.",
        samples.strangers.map_or_else(|| "?".to_owned(), percent),
    ));
    let table: Vec<Vec<String>> = (0..3)
        .map(|i| {
            let cells = (0..3).flat_map(|w| [fraction(due[w][i]), format!("{:.4}", got[w][i])]);
            std::iter::once(names[i].to_owned()).chain(cells).collect()
        })
        .collect();
    s.page.table("user | before: due | achieved | exchange: due | achieved | ended: due | achieved", &table);
    let moved = [got[1][2] / got[0][2] - 1.0, got[2][2] / got[0][2] - 1.0];
    s.page.goal(
        "an exchange between A and B: how far it moves C's part, live",
        Limit::Most(1.0),
        moved.iter().fold(0.0, |most: f64, m| most.max(m.abs())) * 100.0,
        "%",
    );
    let errors = (0..3).map(|w| worst(&got[w], &due[w].map(value)));
    s.page.goal(
        "an exchange between A and B: largest error of any user, live",
        Limit::Most(2.0),
        errors.fold(0.0, f64::max) * 100.0,
        "%",
    );
    s.page.strangers([samples.strangers]);
    let data: Vec<Row<'_>> = samples.rows("exchange").collect();
    s.page.csv("isolation", &data)?;
    s.page.plot(
        "isolation",
        &samples.plot("A gives B 200 of its 1000 cpu tickets for a third of the time".into()),
    )
}
