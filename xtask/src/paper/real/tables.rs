//! The page: goals, a verdict for each program, a table for each pair of shares, latencies, pictures.

use std::collections::BTreeMap;

use anyhow::Result;

use super::outcome::{due_part, part};
use super::picture::{Dots, Panel};
use super::programs::{self, SLEEPING_SERVER};
use super::trial::Tool;
use super::{FOUR, Results, Row, SHARES, text};
use crate::paper::Setting;
use crate::paper::page::{Limit, number, percent};
use crate::paper::stats::{median, worst};

/// The split may be off the kernel's, or on several CPUs off what is due, by so many points.
const SPLIT_POINTS: f64 = 1.0;
/// CPU used and throughput are at least this part of the kernel's.
const LEAST_OF_THEIRS: f64 = 0.98;
/// The error of a cycle is at most this part of the kernel's.
const ERROR_OF_THEIRS: f64 = 0.1;
/// `dd conv=fsync` is so many points off its fair part at the most.
const FAIR_POINTS: f64 = 1.5;
/// The program's share is contended where it is less than this part of what the program can use.
const CONTENDED: f64 = 0.95;
const DD: &str = "dd conv=fsync";

/// divvy beside the kernel's weights, for one program and one pair of shares.
#[derive(Clone, Copy)]
struct Pair<'a> {
    ours: &'a Row,
    theirs: &'a Row,
    /// What the program is due of what the two got, where the kernel's weights do not say: on several CPUs they are up to 15 points off.
    due: Option<f64>,
    /// Somebody has to wait for what the other is due: where the program has no more threads than its part has CPUs, nobody has.
    contended: bool,
}

impl<'a> Pair<'a> {
    fn new(ours: &'a Row, theirs: &'a Row) -> Self {
        Self { ours, theirs, due: None, contended: true }
    }

    /// How far the split is off what is due, in points of 100.
    fn points(&self) -> f64 {
        (self.ours.split - self.due.unwrap_or(self.theirs.split)).abs() * 100.0
    }

    fn used(&self) -> f64 {
        self.ours.used / self.theirs.used
    }

    fn rate(&self) -> f64 {
        self.ours.rate / self.theirs.rate
    }

    fn hog_rate(&self) -> f64 {
        self.ours.hog_rate / self.theirs.hog_rate
    }

    /// What divvy reports of its cycles, or what the books show of the whole run if that is more: where divvy takes
    /// somebody for asleep, its cycles leave that one out.
    fn our_error(&self) -> f64 {
        self.ours.cycles.max(self.ours.long_error)
    }

    fn error(&self) -> f64 {
        self.our_error() / self.theirs.windows
    }
}

/// The worst error of a cycle of those pairs in which somebody has to wait; `None` where all were measured and that is in none.
fn worst_error(pairs: &[Pair<'_>]) -> Option<f64> {
    let mut contended = pairs.iter().filter(|pair| pair.contended).peekable();
    let nobody_waits = pairs.len() == SHARES.len() && contended.peek().is_none();
    (!nobody_waits).then(|| worst(contended.map(Pair::error)))
}

/// What is said of a program over all pairs of shares: the worst of each.
struct Verdict {
    program: &'static str,
    points: f64,
    used: f64,
    rate: f64,
    hog_rate: f64,
    /// Not a number where that is not judged.
    error: f64,
    /// The program computes all the time, and one of the two has to wait.
    computes: bool,
    accounts: f64,
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    -worst(values.map(|v| -v))
}

/// `one` beside `other`, at each of the shares.
fn pairs<'a>(results: &'a Results, program: &str, one: Tool, other: Tool) -> Vec<Pair<'a>> {
    let alone = results.row(program, "1", Tool::Alone).filter(|_| results.cpus > 1);
    let pair = |shares: &[u64; 2]| {
        let row = |tool| results.row(program, &text(shares), tool);
        let (ours, theirs) = (row(one)?, row(other)?);
        let can_use = alone.map(|row| row.program_used);
        Some(Pair {
            due: can_use.map(|all| due_part(shares, all, ours.used)),
            contended: can_use.is_none_or(|all| all.is_nan() || part(shares) < all * CONTENDED),
            ..Pair::new(ours, theirs)
        })
    };
    SHARES.iter().filter_map(pair).collect()
}

/// What the splits that miss come to beside what the kernel gives where the others have only what the program leaves.
fn beneath(results: &Results) -> String {
    let is_there = |name: &&&str| {
        let floor = results.row(name, "1:1", Tool::Beneath).map_or(f64::NAN, |row| row.program_used);
        let pairs = pairs(results, name, Tool::Divvy, Tool::Weights);
        let missed: Vec<_> = pairs.iter().filter(|pair| pair.points() > SPLIT_POINTS).collect();
        !missed.is_empty() && missed.iter().all(|pair| pair.ours.program_used >= floor)
    };
    let there: Vec<&str> = measured(results).iter().filter(is_there).copied().collect();
    let names = if there.is_empty() { "none".to_owned() } else { there.join(", ").replace('|', "\\|") };
    format!(
        "What a program uses alone it may not get beside others, though they have only what it leaves (a cgroup of the idle class): its \
         threads are woken where another's runs. Of those whose split is off, these had at least what they use so: {names}."
    )
}

/// The programs that were measured, in the order of the page.
fn measured(results: &Results) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = results.rows.iter().map(|r| r.program).collect();
    names.dedup();
    names
}

/// Whether the program wants all of a CPU all the time: of one that sleeps nothing says what it is due in a cycle.
fn computes(name: &str) -> bool {
    programs::all().iter().any(|p| p.name == name && p.computes)
}

fn verdicts(results: &Results, one: Tool, other: Tool) -> Vec<Verdict> {
    let verdict = |name: &'static str| {
        let pairs = pairs(results, name, one, other);
        let error = worst_error(&pairs).filter(|_| computes(name));
        Verdict {
            program: name,
            points: worst(pairs.iter().map(Pair::points)),
            used: least(pairs.iter().map(Pair::used)),
            rate: least(pairs.iter().map(Pair::rate)),
            hog_rate: least(pairs.iter().map(Pair::hog_rate)),
            error: error.unwrap_or(f64::NAN),
            computes: error.is_some(),
            accounts: worst(pairs.iter().map(|p| p.ours.accounts)),
        }
    };
    measured(results).into_iter().map(verdict).collect()
}

/// The page's first lines.
pub(super) fn preface(cpus: usize) -> Vec<&'static str> {
    let where_ = if cpus == 1 {
        "Each program shares one CPU with a loop that computes and counts. divvy and cpulimit are pinned to that CPU too, so that \
         what they use is taken from the programs; this command watches from another CPU, and makes the load of servers there."
    } else {
        "Each program shares the CPUs with a loop that computes and counts, in as many threads as there are CPUs. divvy and \
         cpulimit are on these CPUs too."
    };
    vec![
        where_,
        "**kernel's weights**: a cgroup for each of the two with `cpu.shares` (version 1) or `cpu.weight`, as an administrator \
         would make it. **divvy**: `divvy share`, as it comes, in a session of its own. **cpulimit**: `cpulimit -m` for each, \
         with its share of the CPU as the limit: what one does not use, the other does not get; empty where \
         it fails. They take turns, a few seconds each, the kernel's weights before divvy and after it, and what is compared was measured within a minute.",
        "CPU time is the kernel's (`cpuacct.usage` or `cpu.stat`), whoever divides: each of the two is in a cgroup that counts \
         and does not weigh. The *split* is the program's part of what the two got. *Used* is what the two got of the CPU. \
         *Throughput* is counted by the programs: files, requests, pieces of work; that of divvy as a percentage of that under \
         the kernel's weights. *Accounts*: the largest difference between divvy's report of a client and the kernel's books, \
         in % of the run; the books themselves lag by a tick or so.",
        "The *error of a cycle* is the root of the mean square of the relative errors of both, the median of all cycles: as divvy \
         reports it, and, under *windows*, as counts show it for windows of a cycle's length (10 ms for each share), which divvy \
         does not know and the kernel's weights can be judged by. Only where the two used the whole CPU. Due is the program's share, or, on several CPUs, all \
         that it can use if that is less, and the other the rest; judged is where the share is the lesser: else nobody has to wait. \
         Where the error of the whole run, by the kernel's books and beyond what a cut cycle explains, is larger than what divvy \
         reports of its cycles, that is what is judged.",
    ]
}

/// Writes everything but the first lines.
///
/// # Errors
/// Where a file cannot be written.
pub(super) fn write(s: &mut Setting, results: &Results, cpus: usize) -> Result<()> {
    let verdicts = verdicts(results, Tool::Divvy, Tool::Weights);
    s.page.strangers(results.rows.iter().map(|r| r.strangers));
    goals(s, results, &verdicts);
    verdict_table(s, results, &verdicts);
    floor(s, results);
    pictures(s, results)?;
    for shares in SHARES {
        share_table(s, results, &text(&shares));
    }
    latency_table(s, results);
    s.page.csv("real", &results.rows)?;
    if cpus == 1 && !results.rows.is_empty() {
        cost_picture(s, results)?;
    }
    Ok(())
}

fn goals(s: &mut Setting, results: &Results, verdicts: &[Verdict]) {
    let all = verdicts.len() + results.without.len();
    let same = self::verdicts(results, Tool::After, Tool::Before);
    let met = |of: &[Verdict], holds: &dyn Fn(&Verdict) -> bool| of.iter().filter(|v| holds(v)).count();
    let mut goal = |what: &str, holds: &dyn Fn(&Verdict) -> bool| {
        let floor = Some(("the weights' second runs beside their first", met(&same, holds)));
        s.page.goal_of_all_beside(what, all, met(verdicts, holds), "programs", floor);
    };
    let one_cpu = results.cpus == 1;
    let split = if one_cpu {
        "split within 1 point of the kernel's weights, at each of the shares"
    } else {
        "split within 1 point of what is due, at each of the shares"
    };
    goal(split, &|v| v.points <= SPLIT_POINTS);
    goal("CPU used: at least 98 % of theirs", &|v| v.used >= LEAST_OF_THEIRS);
    if one_cpu {
        goal("the program's throughput: at least 98 % of theirs", &|v| v.rate >= LEAST_OF_THEIRS);
        goal("the other's throughput: at least 98 % of theirs", &|v| v.hog_rate >= LEAST_OF_THEIRS);
    }
    let computing = verdicts.iter().filter(|v| v.computes).count();
    let error = if one_cpu {
        "error of a cycle at most a tenth of theirs, where both compute"
    } else {
        "error of a cycle at most a tenth of theirs, where both compute and one has to wait"
    };
    let exact = met(verdicts, &|v| v.computes && v.error <= ERROR_OF_THEIRS);
    s.page.goal_of_all(error, computing, exact, "programs");
    let ours = || results.rows.iter().filter(|r| r.tool == Tool::Divvy.name());
    let own: Vec<f64> = ours().map(|r| r.own * 100.0).collect();
    s.page.goal("own CPU, median of all rows", Limit::Most(0.3), median(&own).unwrap_or(f64::NAN), "%");
    s.page.goal(
        "wake-ups a second, most of all rows",
        Limit::Most(120.0),
        worst(ours().map(|r| r.wakeups)),
        "",
    );
    s.page.goal(
        "divvy's accounts off the kernel's, most",
        Limit::Most(1.0),
        worst(ours().map(|r| r.accounts)) * 100.0,
        "% of a run",
    );
    s.page.goal(
        "processes that outlived divvy",
        Limit::Most(0.0),
        ours().map(|r| r.left).sum::<usize>() as f64,
        "",
    );
    if let Some(four) = results.row(SLEEPING_SERVER.name, &text(&FOUR), Tool::Divvy) {
        s.page.goal(
            "p99 of the sleeping server, 1:1:1:1 with three that compute",
            Limit::Most(5.0),
            four.p99_ms,
            "ms",
        );
    }
    let short: Vec<f64> = SHARES.iter().filter_map(|shares| shortfall(results, DD, shares)).collect();
    if !short.is_empty() {
        s.page.goal(
            "dd conv=fsync: below its fair part, most",
            Limit::Most(FAIR_POINTS),
            worst(short),
            "points",
        );
    }
}

/// A program's fair part of the CPU is its share, or what it uses alone if that is less; how far it is below, in points.
fn shortfall(results: &Results, program: &str, shares: &[u64; 2]) -> Option<f64> {
    let alone = results.row(program, "1", Tool::Alone)?.program_used;
    let ours = results.row(program, &text(shares), Tool::Divvy)?.program_used;
    Some((part(shares).min(alone) - ours) * 100.0)
}

fn verdict_table(s: &mut Setting, results: &Results, verdicts: &[Verdict]) {
    s.page.heading("Each program: the worst of 3:1, 1:1 and 1:3");
    // What others got under a split that is not due says nothing of ours.
    let one_cpu = results.cpus == 1;
    let off = if one_cpu {
        "Points by which the split is off the kernel's;"
    } else {
        "Points by which the split is off what is due: the program's share, or all that it can use, which is what it uses alone, if that \
         is less;"
    };
    s.page.text(&format!(
        "{off} used, and both throughputs, in % of what they are under the kernel's weights; error of a cycle as a multiple of theirs; \
         accounts in % of the run. What misses its goal is bold.",
    ));
    let mark = |met: bool, text: String| if met { text } else { format!("**{text}**") };
    let table: Vec<Vec<String>> = verdicts
        .iter()
        .map(|v| {
            let is_enough = |value: f64| value >= LEAST_OF_THEIRS;
            let part = |met: bool, value: f64| mark(met, format!("{:.1}", value * 100.0));
            let met = v.points <= SPLIT_POINTS
                && is_enough(v.used)
                && (!one_cpu || is_enough(v.rate) && is_enough(v.hog_rate))
                && (!v.computes || v.error <= ERROR_OF_THEIRS);
            vec![
                v.program.replace('|', "\\|"),
                mark(v.points <= SPLIT_POINTS, format!("{:.2}", v.points)),
                part(is_enough(v.used), v.used),
                part(!one_cpu || is_enough(v.rate), v.rate),
                part(!one_cpu || is_enough(v.hog_rate), v.hog_rate),
                if v.computes { mark(v.error <= ERROR_OF_THEIRS, number(v.error)) } else { String::new() },
                percent(v.accounts),
                if met { "yes".to_owned() } else { "**no**".to_owned() },
            ]
        })
        .collect();
    let head =
        "program | split off | used | throughput | the other's | error of a cycle | accounts off | all met";
    s.page.table(head, &table);
    if !one_cpu {
        s.page.text(&beneath(results));
    }
    for (program, why) in &results.without {
        s.page.text(&format!("**Without {program}**: {why}."));
    }
    let mut failures: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (why, what) in &results.failures {
        failures.entry(why).or_default().push(what);
    }
    for (why, what) in failures {
        s.page.text(&format!("**cpulimit failed** ({why}) with {}.", what.join(", ").replace('|', "\\|")));
    }
}

/// How far two measurements of the same are apart: what the day allows.
fn floor(s: &mut Setting, results: &Results) {
    let same = verdicts(results, Tool::After, Tool::Before);
    let met = |holds: &dyn Fn(&Verdict) -> bool| same.iter().filter(|v| holds(v)).count();
    let of_theirs = |value: &dyn Fn(&Verdict) -> f64| met(&|v| value(v) >= LEAST_OF_THEIRS);
    let middle = |value: &dyn Fn(&Verdict) -> f64| {
        let known: Vec<f64> = same.iter().map(value).filter(|v| v.is_finite()).collect();
        median(&known).map_or_else(String::new, |v| format!("{:.1}", v * 100.0))
    };
    s.page.heading("What the day allows");
    s.page.text(&format!(
        "The kernel's weights are measured before divvy and after it. Judged against their own first runs as divvy is against both, their \
         second runs meet, of {} programs: split {}, used {}, the program's throughput {}, the other's {}. The worst throughput of the three \
         pairs of shares is then, in the median program, {} % of itself, and the other's {} %: what is less far off below says nothing.",
        same.len(),
        met(&|v| v.points <= SPLIT_POINTS),
        of_theirs(&|v| v.used),
        of_theirs(&|v| v.rate),
        of_theirs(&|v| v.hog_rate),
        middle(&|v| v.rate),
        middle(&|v| v.hog_rate),
    ));
}

fn share_table(s: &mut Setting, results: &Results, shares: &str) {
    s.page.heading(&format!("{shares}, the program's share first"));
    s.page.text(
        "In %, but for wake-ups and points. *Alone* is what the program uses of the CPU with nobody beside it, and on several CPUs beside others of the idle class. The error of a \
         cycle: the kernel's windows / divvy's windows / divvy's report / divvy's whole run by the kernel's books.",
    );
    let mut table = Vec::new();
    for name in measured(results) {
        let row = |tool| results.row(name, shares, tool);
        let (Some(ours), Some(theirs)) = (row(Tool::Divvy), row(Tool::Weights)) else { continue };
        let pair = Pair::new(ours, theirs);
        let one =
            |value: f64| if value.is_finite() { format!("{:.1}", value * 100.0) } else { "-".to_owned() };
        let alone = [("1", Tool::Alone), ("1:1", Tool::Beneath)]
            .map(|(shares, tool)| results.row(name, shares, tool));
        let alone: Vec<String> = alone.into_iter().flatten().map(|r| one(r.program_used)).collect();
        let errors = [theirs.windows, ours.windows, ours.cycles, ours.long_error]
            .map(|v| if v.is_finite() && computes(name) { percent(v) } else { "-".to_owned() });
        table.push(vec![
            name.replace('|', "\\|"),
            alone.join(" / "),
            one(theirs.split),
            one(ours.split),
            row(Tool::Cpulimit).map_or_else(String::new, |r| format!("{} of {}", one(r.split), one(r.used))),
            one(theirs.used),
            one(ours.used),
            one(pair.rate()),
            one(pair.hog_rate()),
            errors.join(" / "),
            percent(ours.own),
            number(ours.wakeups),
        ]);
    }
    let head = "program | alone | split: kernel | divvy | cpulimit, of used | used: kernel | divvy | throughput | the other's | \
                error of a cycle | own CPU | wake-ups/s";
    s.page.table(head, &table);
}

fn latency_table(s: &mut Setting, results: &Results) {
    // Before and after are in the weights' own rows.
    let twice = [Tool::Before, Tool::After].map(Tool::name);
    let rows = results.rows.iter().filter(|r| r.p99_ms.is_finite() && !twice.contains(&r.tool));
    let rows: Vec<&Row> = rows.collect();
    if rows.is_empty() {
        return;
    }
    s.page.heading("Servers: time of a request");
    s.page.text(
        "ms. The load of a server is four connections that ask, wait for the answer and ask again. The sleeping server's requests \
         come every 20 ms and need 1 ms of CPU time each; a request's time is from when it was due to when it is done.",
    );
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let numbers = [r.rate, r.p50_ms, r.p99_ms].map(number);
            let cells = [r.program.to_owned(), r.shares.clone(), r.tool.to_owned()];
            cells.into_iter().chain(numbers).collect()
        })
        .collect();
    s.page.table("server | shares | tool | requests/s | median | 99th percentile", &table);
}

/// The dots of a program at some shares: the series and the value of each.
type Dotted<'a> = &'a dyn Fn(&str, &str) -> Vec<(usize, f64)>;

fn pictures(s: &mut Setting, results: &Results) -> Result<()> {
    let names = measured(results);
    if names.is_empty() {
        return Ok(());
    }
    let panels = |axis: &str, range, value: Dotted<'_>, target: &dyn Fn(&[u64; 2]) -> f64| -> Vec<Panel> {
        let panel = |shares: &[u64; 2]| Panel {
            title: text(shares),
            axis: axis.to_owned(),
            range,
            target: Some(target(shares)),
            dots: names.iter().map(|name| value(name, &text(shares))).collect(),
        };
        SHARES.iter().map(panel).collect()
    };
    let names_text: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
    let tools = [Tool::Cpulimit, Tool::Weights, Tool::Divvy];
    let split = |name: &str, shares: &str| {
        let of = |(i, &tool): (usize, &Tool)| Some((i, results.row(name, shares, tool)?.split * 100.0));
        tools.iter().enumerate().filter_map(of).collect()
    };
    let dots = Dots {
        title: "The program's part of what the two got, %".to_owned(),
        rows: names_text.clone(),
        series: tools.map(|t| t.name().to_owned()).to_vec(),
        panels: panels("part of the CPU time of both, %", (0.0, 100.0), &split, &|shares| {
            100.0 * part(shares)
        }),
    };
    s.page.picture("split", &dots.title, |dir| dots.write(dir, "split"))?;
    let throughput = |name: &str, shares: &str| {
        let row = |tool| results.row(name, shares, tool);
        let pair = row(Tool::Divvy).zip(row(Tool::Weights)).map(|(ours, theirs)| Pair::new(ours, theirs));
        pair.map_or_else(Vec::new, |p| vec![(0, p.hog_rate() * 100.0), (1, p.rate() * 100.0)])
    };
    let dots = Dots {
        title: "Throughput under divvy, % of that under the kernel's weights".to_owned(),
        rows: names_text,
        series: vec!["the one that computes".to_owned(), "the program".to_owned()],
        panels: panels("throughput, % of the weights'", (50.0, 150.0), &throughput, &|_| 100.0),
    };
    s.page.picture("throughput", &dots.title, |dir| dots.write(dir, "throughput"))
}

fn cost_picture(s: &mut Setting, results: &Results) -> Result<()> {
    let names = measured(results);
    let panel = |title: &str, axis: &str, high: f64, most: f64, value: &dyn Fn(&Row) -> f64| Panel {
        title: title.to_owned(),
        axis: axis.to_owned(),
        range: (0.0, high),
        target: Some(most),
        dots: names
            .iter()
            .map(|name| {
                let of = |(i, shares): (usize, &[u64; 2])| {
                    Some((i, value(results.row(name, &text(shares), Tool::Divvy)?)))
                };
                SHARES.iter().enumerate().filter_map(of).collect()
            })
            .collect(),
    };
    let dots = Dots {
        title: "What divvy itself costs".to_owned(),
        rows: names.iter().map(|&n| n.to_owned()).collect(),
        series: SHARES.map(|shares| text(&shares)).to_vec(),
        panels: vec![
            panel("CPU time of its own", "% of one CPU", 4.0, 0.3, &|r| r.own * 100.0),
            panel("wake-ups", "in a second", 480.0, 120.0, &|r| r.wakeups),
        ],
    };
    s.page.picture("cost", &dots.title, |dir| dots.write(dir, "cost"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::real::programs::all;

    /// What is not judged spoils nothing that is.
    #[test]
    fn who_never_waits_has_no_error_to_be_judged() {
        let row = |cycles, windows| Row {
            cycles,
            windows,
            long_error: 0.0,
            ..Row::new(&all()[0], &[1, 1], Tool::Divvy, &[])
        };
        let (ours, theirs) = (row(0.125, f64::NAN), row(f64::NAN, 0.5));
        let pair = |contended| Pair { contended, ..Pair::new(&ours, &theirs) };
        assert_eq!(worst_error(&[pair(false), pair(true)]), Some(0.25));
        assert_eq!(worst_error(&SHARES.map(|_| pair(false))), None);
        for pairs in [&[][..], &[pair(false)]] {
            assert!(worst_error(pairs).is_some_and(f64::is_nan), "what was not measured is not good");
        }
        let unknown = Pair::new(&ours, &ours);
        assert!(
            worst_error(&[unknown, pair(true)]).is_some_and(f64::is_nan),
            "what was not measured is not good"
        );
    }

    #[test]
    fn a_program_is_due_its_share_or_all_that_it_can_use() {
        // Two CPUs of which both got 98 %: a program of one thread can use half of them, one of two threads all.
        let rows = [([3, 1], 0.5, 0.5 / 0.98), ([3, 1], 1.0, 0.75), ([1, 1], 0.5, 0.5), ([1, 3], 0.5, 0.25)];
        for (shares, alone, expected) in rows {
            assert!((due_part(&shares, alone, 0.98) - expected).abs() < 1e-9, "{shares:?}, alone {alone}");
        }
    }
}
