//! A site of Slurm, measured: shares on an oversubscribed node, what a start costs, how long a change takes to be everywhere.

use anyhow::{Context as _, Result, ensure};

use super::experiment::{Experiment, Live};
use super::page::{Limit, number, percent};
use super::stats::{median, quantile, worst};
use crate::PaperArgs;
use crate::cluster::{ROW, Row, measured};

/// Measures a site of three nodes and writes `OUT/cluster.md`.
///
/// # Errors
/// What is missing here, or cannot be measured.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    // One site, and all of a node's jobs on its one CPU.
    let mut e = Experiment::<Live>::new(&PaperArgs { lanes: 1, ..args.clone() }, "cluster")?;
    let cpus = e.bench.cpus().to_vec();
    let before = super::machine::busy(&cpus);
    let said = measured(args.programs.as_deref(), args.quick, &e.bench.starter())?;
    let rows = said.lines().filter_map(|line| line.strip_prefix(ROW));
    let rows: Vec<Row> =
        rows.map(|row| serde_json::from_str(row).context("understand a row")).collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "cluster: nothing was measured: {said}");
    let busy = before.zip(super::machine::busy(&cpus)).map(|(then, now)| now.fraction_since(then));
    e.page.heading("Shares on a node of one CPU");
    e.page.text(
        "*shares*: a job of alice and one of bob, at 1:3 by the policy. *fairshare*: accounts science, law and arts at 3:2:1, with a user and a \
         job each (`divvy site sync`, `accounts=yes`). *exchange*: alice gives bob 300 tickets of this node for as many of another (`divvy site \
         market`), and carol takes no part; by the policy they have 1000, 3000 and 1000 here. CPU time is the kernel's of the jobs' processes; their first 6 s are left out, and a \
         run is 30 s of theirs (quick: 5 s), however long others make them wait.",
    );
    for (part, limit, what) in [
        ("shares", 0.5, "two jobs of two users at 1:3: farthest from its part"),
        ("fairshare", 1.0, "three accounts by fairshare: farthest from its part"),
        ("exchange", 1.0, "an exchange over two nodes, and who takes no part: farthest from its part"),
    ] {
        let of: Vec<&Row> = rows.iter().filter(|row| row.part == part).collect();
        let lines = of.iter().map(|row| {
            vec![
                part.to_owned(),
                row.run.to_string(),
                row.who.clone(),
                percent(row.value),
                percent(row.due.unwrap_or(f64::NAN)),
            ]
        });
        e.page.table("part | run | user | of the jobs' CPU time, % | due, %", &lines.collect::<Vec<_>>());
        e.page.goal(what, Limit::Most(limit), points(&of), "points");
    }
    starts(&mut e, &rows);
    pushes(&mut e, &rows);
    if !args.quick {
        scale(&mut e, &rows);
    }
    e.page.csv("rows", &rows)?;
    let busy = format!(
        "This machine's CPUs were busy for {} % of the time, with all that ran on it: jobs keep one of them so.",
        percent(busy.unwrap_or(f64::NAN))
    );
    e.finish("divvy beside Slurm, in numbers", &[PREFACE, &busy])
}

const PREFACE: &str = "Written by `cargo xtask paper cluster`, as root: a site of Slurm on this machine (`cargo xtask cluster`), a controller, \
                       accounting, and three nodes with a divvyd each. What the numbers mean is in [slurm.md](../slurm.md).";

fn points(rows: &[&Row]) -> f64 {
    if rows.is_empty() {
        return f64::NAN;
    }
    100.0 * worst(rows.iter().map(|row| (row.value - row.due.unwrap_or(f64::NAN)).abs()))
}

fn values(rows: &[Row], part: &str, who: Option<&str>) -> Vec<f64> {
    let of = rows.iter().filter(|row| row.part == part && who.is_none_or(|who| row.who == who));
    of.map(|row| row.value).collect()
}

fn starts(e: &mut Experiment<Live>, rows: &[Row]) {
    e.page.heading("`srun true`");
    let sides = ["with the plugin", "without"].map(|who| values(rows, "start", Some(who)));
    let ms = |values: &[f64], q: f64| 1e3 * quantile(values, q).unwrap_or(f64::NAN);
    let line = |who: &str, values: &[f64]| {
        let mut line = vec![who.to_owned(), values.len().to_string()];
        line.extend([0.25, 0.5, 0.75].map(|q| number(ms(values, q))));
        line
    };
    let lines = [line("with the plugin", &sides[0]), line("without", &sides[1])];
    e.page.table("srun | runs | quarter, ms | median, ms | three quarters, ms", &lines);
    let slower: Vec<f64> = sides[0].iter().zip(&sides[1]).map(|(with, without)| with - without).collect();
    let slower = 1e3 * median(&slower).unwrap_or(f64::NAN);
    e.page.goal("srun true: slower with the plugin, median of pairs", Limit::Most(15.0), slower, "ms");
}

fn scale(e: &mut Experiment<Live>, rows: &[Row]) {
    let nodes = values(rows, "cost", None).len();
    e.page.heading(&format!("{nodes} nodes"));
    e.page.text(
        "A site of so many nodes on this one machine, each with a slurmd, a divvyd and a job that sleeps (`cargo xtask cluster scale`). A \
         change of fairshare is timed as above, on each node; what a divvyd uses, while nothing happens.",
    );
    let lines = [
        ("a change of fairshare on a node, s", "scale", 1.0),
        ("a divvyd: CPU, % of one", "cost", 100.0),
        ("a divvyd: memory, MB", "memory", 1.0),
    ]
    .map(|(what, part, times)| {
        let all = values(rows, part, None);
        let of = |q: f64| number(times * quantile(&all, q).unwrap_or(f64::NAN));
        vec![what.to_owned(), all.len().to_string(), of(0.5), of(0.99), of(1.0)]
    });
    e.page.table("what | times | median | 99 % | most", &lines);
    let all = values(rows, "scale", None);
    let longest = if all.is_empty() { f64::NAN } else { worst(all) };
    e.page.goal("a change of fairshare on each of many nodes, longest", Limit::Most(5.0), longest, "s");
}

fn pushes(e: &mut Experiment<Live>, rows: &[Row]) {
    e.page.heading("A change of fairshare");
    e.page.text("From sacctmgr's end until a node's market has it, with `divvy site sync --watch --nodes` beside the controller.");
    let all = values(rows, "push", None);
    let of = |q: f64| number(quantile(&all, q).unwrap_or(f64::NAN));
    let line = vec![all.len().to_string(), of(0.5), of(0.99), of(1.0)];
    e.page.table("nodes and changes | median, s | 99 %, s | longest, s", &[line]);
    let longest = if all.is_empty() { f64::NAN } else { worst(all) };
    e.page.goal("a change of fairshare on every node, longest", Limit::Most(5.0), longest, "s");
}
