//! divvy beside what people use instead: cpulimit, nice, and the kernel's CPU weights by hand, on the same work.

mod leftovers;
mod pack;
mod tools;

use anyhow::Result;
use divvy_linux::cgroup::Survey;
use divvy_linux::{Pid, clock};
use divvy_policy::Nanos;
use serde::Serialize;

use super::Experiment;
use super::machine::busy;
use super::page::{Limit, percent};
use super::plot::{Axis, Plot, Style};
use super::stats::{median, relative_errors, rms, worst};
use crate::PaperArgs;
use leftovers::{Killed, Left, Times, look};
use pack::Pack;
pub(crate) use pack::{CLIENT, DIVVY, client};
use tools::{TOOLS, Tool};

/// The shares where it does not matter which.
const SHARES: [u64; 3] = [1, 2, 3];

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientWork {
    /// Computes all the time.
    Spin,
    /// Computes for 100 ms of wall time, sleeps for 100 ms, and so on.
    Half,
}

impl ClientWork {
    const fn word(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Half => "half",
        }
    }
}

/// The same work for every tool.
struct Case {
    name: &'static str,
    shares: &'static [u64],
    /// Whether the first client sleeps half of the time. It does not count in the errors: nothing says what it is due.
    sleeper: bool,
    quick: bool,
}

const CASES: [Case; 4] = [
    Case { name: "1:2:3", shares: &SHARES, sleeper: false, quick: true },
    Case { name: "1:1:4", shares: &[1, 1, 4], sleeper: false, quick: false },
    Case { name: "1:10", shares: &[1, 10], sleeper: false, quick: false },
    Case { name: "sleeper + 1:2", shares: &[1, 1, 2], sleeper: true, quick: true },
];

#[derive(Clone, Debug, Serialize)]
struct Row {
    case: &'static str,
    tool: &'static str,
    /// CPU time of each client as a fraction of all.
    fractions: String,
    /// Largest relative error of a client over the whole run.
    error_long: f64,
    /// Median of the RMS relative errors of windows of a second.
    error_window: f64,
    /// CPU time of all clients as a fraction of the wall time.
    used: f64,
    /// CPU time of the tool as a fraction of the wall time.
    overhead: f64,
    /// What nobody used, as a fraction of the wall time.
    idle: Option<f64>,
    strangers: Option<f64>,
}

/// A run: clocks of the clients at the ends of windows.
struct Samples {
    t_ns: Vec<u64>,
    service: Vec<Vec<u64>>,
    tool_ns: u64,
    /// What nobody used, and what others used.
    idle: Option<f64>,
    strangers: Option<f64>,
}

fn used_by(processes: &[Pid]) -> u64 {
    processes.iter().map(|&pid| clock::process_cpu(pid).ok().flatten().map_or(0, |cpu| cpu.0)).sum()
}

fn measure(s: &Experiment, tool: Tool, case: &Case, survey: &Survey) -> Result<Samples> {
    let (settle, window, windows) = s.pick((300, 300, 4), (1_000, 1_000, 10));
    let cpu = s.cpu();
    let mut pack = Pack::new(cpu)?;
    let half = |i| if case.sleeper && i == 0 { ClientWork::Half } else { ClientWork::Spin };
    let works: Vec<ClientWork> = (0..case.shares.len()).map(half).collect();
    let processes = tool.start(&mut pack, case.shares, &works, survey)?;
    clock::sleep(Nanos::from_millis(settle));
    let own = || used_by(&[rustix::process::getpid()]);
    let (mut t_ns, mut service) = (Vec::new(), Vec::new());
    let (tool_before, busy_before, own_before) = (used_by(&processes), busy(&[cpu]), own());
    for i in 0..=windows {
        if i > 0 {
            clock::sleep(Nanos::from_millis(window));
        }
        s.bench.check()?;
        t_ns.push(clock::now().0);
        service.push(pack.clients.iter().map(|&pid| used_by(&[pid])).collect::<Vec<u64>>());
    }
    let tool_ns = used_by(&processes).saturating_sub(tool_before);
    let ours: u64 = (0..case.shares.len()).map(|i| service[windows][i] - service[0][i]).sum();
    let wall = (t_ns[windows] - t_ns[0]) as f64;
    let busy = busy_before.zip(busy(&[cpu])).map(|(before, now)| now.fraction_since(before));
    let known = (ours + tool_ns + own().saturating_sub(own_before)) as f64 / wall;
    pack.end()?;
    let (idle, strangers) = (busy.map(|busy| 1.0 - busy), busy.map(|busy| (busy - known).max(0.0)));
    Ok(Samples { t_ns, service, tool_ns, idle, strangers })
}

impl Samples {
    fn between(&self, from: usize, to: usize) -> Vec<f64> {
        let pairs = self.service[from].iter().zip(&self.service[to]);
        pairs.map(|(a, b)| b.saturating_sub(*a) as f64).collect()
    }

    fn last(&self) -> usize {
        self.service.len() - 1
    }

    fn row(&self, tool: Tool, case: &Case) -> Row {
        let targets: Vec<f64> = case.shares.iter().map(|&share| share as f64).collect();
        let counts = |i: usize| !(case.sleeper && i == 0);
        let errors = |from, to| relative_errors(&self.between(from, to), &targets, counts);
        let long = errors(0, self.last()).unwrap_or_default();
        let windows: Vec<f64> =
            (0..self.last()).filter_map(|i| errors(i, i + 1)).filter_map(|e| rms(&e)).collect();
        let all = self.between(0, self.last());
        let (sum, wall) = (all.iter().sum::<f64>(), (self.t_ns[self.last()] - self.t_ns[0]) as f64);
        let fractions: Vec<String> = all.iter().map(|got| format!("{:.1}", got / sum * 100.0)).collect();
        Row {
            case: case.name,
            tool: tool.name(),
            fractions: fractions.join(" : "),
            error_long: worst(long.iter().map(|e| e.abs())),
            error_window: median(&windows).unwrap_or(f64::NAN),
            used: sum / wall,
            overhead: self.tool_ns as f64 / wall,
            idle: self.idle,
            strangers: self.strangers,
        }
    }
}

/// Runs the tools and writes `OUT/peers.md`.
///
/// # Errors
/// The first run or file that fails; everything that was started has ended then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut experiment: Experiment = Experiment::new(&PaperArgs { lanes: 1, ..args.clone() }, "peers")?;
    experiment.parts(&[("shares", shares), ("leftovers", left_behind)])?;
    experiment.finish(
        "divvy beside cpulimit, nice and kernel weights",
        &[
            "One CPU; clients and tools are pinned to it, so that a tool's own CPU time is taken from its clients. Every tool \
             gets the same programs, which compute all the time (one case has one that computes for 100 ms and sleeps for \
             100 ms), and every client's CPU time is read from the kernel's clocks by a program that is none of the tools.",
            "**cpulimit**: one for each client, with its share of a CPU as the limit in whole percents. It knows no shares, \
             only limits: beside strangers who keep a client below its limit, nothing is divided. **nice**: the values whose weights in the kernel come closest; where sessions have autogroups, as \
             here, they count within one session only. **weights by hand**: a cgroup for each client, as an administrator \
             would make it (`cpu.weight`, or `cpu.shares` where version 1 has the cpu controller). **divvy cgroup** is the \
             same weights, made and removed by divvy. **minimal loop** lets one client after the other run until its clock shows what it \
             is due, while the others are stopped, and does nothing else. **signals** and **freezer** run the policy `exact` at a quantum of 10 ms.",
        ],
    )
}

/// The tools that can be had; the page says which cannot, and why.
fn tools(s: &mut Experiment, survey: &Survey) -> Vec<Tool> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for tool in TOOLS {
        match tool.missing(survey) {
            None => found.push(tool),
            Some(why) => missing.push(format!("**Without {}**: {why}.", tool.name())),
        }
    }
    missing.iter().for_each(|line| s.page.text(line));
    found
}

fn shares(s: &mut Experiment) -> Result<()> {
    let survey = Survey::new();
    s.page.heading("Shares");
    let tools = tools(s, &survey);
    s.page.text(
        "The error over the run is the largest of a client: what it got over what its share is of all that was got, less one. \
         The error of a second (of .3 s in a quick run) is the root of the mean square over the clients, the median of all \
         windows. The sleeper counts in neither: a proportional tool gives its time to the others as 1:2. CPU used is of all \
         clients; whatever is missing went to the tool, to strangers, or, as idle time, to nobody. Idle time and strangers are by \
         `/proc/stat`, in its ticks. In %.",
    );
    let mut rows = Vec::new();
    let mut seconds: Vec<(Tool, Samples)> = Vec::new();
    for case in CASES.iter().filter(|case| case.quick || !s.quick) {
        for &tool in &tools {
            eprintln!("peers: {}, {}", case.name, tool.name());
            let samples = measure(s, tool, case, &survey)?;
            rows.push(samples.row(tool, case));
            if case.name == CASES[0].name {
                seconds.push((tool, samples));
            }
        }
    }
    s.page.strangers(rows.iter().map(|r| r.strangers));
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let part =
                |f: Option<f64>| f.map_or_else(|| "unknown".to_owned(), |f| format!("{:.1}", f * 100.0));
            vec![
                r.case.to_owned(),
                r.tool.to_owned(),
                r.fractions.clone(),
                percent(r.error_long),
                percent(r.error_window),
                format!("{:.2}", r.used * 100.0),
                part(r.idle),
                percent(r.overhead),
                part(r.strangers),
            ]
        })
        .collect();
    let head = "shares | tool | got | error over the run | error of a second | CPU used | idle | tool's own CPU | \
                strangers";
    s.page.table(head, &table);
    s.page.csv("shares", &rows)?;
    share_goals(s, &rows);
    share_plots(s, &rows, &seconds)
}

fn share_goals(s: &mut Experiment, rows: &[Row]) {
    let worst_of = |tool: Tool, value: fn(&Row) -> f64| {
        worst(rows.iter().filter(|r| r.tool == tool.name()).map(value)) * 100.0
    };
    for tool in [Tool::Signals, Tool::Freezer] {
        if !rows.iter().any(|r| r.tool == tool.name()) {
            continue;
        }
        let mut goal = |what: &str, most: f64, value: fn(&Row) -> f64| {
            let floor = (Tool::Minimal.name(), worst_of(Tool::Minimal, value));
            let what = format!("{}: {what}", tool.name());
            s.page.goal_beside(what, Limit::Most(most), worst_of(tool, value), "%", Some(floor));
        };
        goal("worst error over a run", 0.5, |r| r.error_long);
        goal("most CPU left idle while clients want it", 2.0, |r| r.idle.unwrap_or(f64::NAN));
        goal("most CPU of its own", 0.5, |r| r.overhead);
    }
}

fn share_plots(s: &mut Experiment, rows: &[Row], seconds: &[(Tool, Samples)]) -> Result<()> {
    let mut cases: Vec<&str> = rows.iter().map(|r| r.case).collect();
    cases.dedup();
    let by_case = |title: &str, y: &str, value: fn(&Row) -> f64, axis| {
        let mut plot = Plot::new(title, "shares", y);
        (plot.y_axis, plot.x_names) = (axis, cases.iter().map(|&c| c.to_owned()).collect());
        for (i, tool) in TOOLS.into_iter().enumerate() {
            let of = rows.iter().filter(|r| r.tool == tool.name());
            // Side by side: equal values would hide each other.
            let aside = (i as f64 - (TOOLS.len() - 1) as f64 / 2.0) * 0.06;
            let at = |case| cases.iter().position(|&c| c == case).unwrap_or(0) as f64 + aside;
            let points: Vec<(f64, f64)> = of.map(|r| (at(r.case), value(r) * 100.0)).collect();
            if !points.is_empty() {
                plot.add(tool.name(), Style::Points, points);
            }
        }
        plot
    };
    let plot = by_case("Largest error of a client over a run", "error, %", |r| r.error_long, Axis::Log);
    s.page.plot("error", &plot)?;
    let plot = by_case("CPU time used by the clients", "of one CPU, %", |r| r.used, Axis::Linear);
    s.page.plot("used", &plot)?;
    let plot = by_case("CPU time used by the tool", "of one CPU, %", |r| r.overhead, Axis::Log);
    s.page.plot("overhead", &plot)?;
    let mut plot =
        Plot::new("Shares 1:2:3: the third client's part of each window", "time, s", "of what all got, %");
    for (tool, samples) in seconds {
        let points = (0..samples.last()).map(|i| {
            let got = samples.between(i, i + 1);
            let part = got.last().copied().unwrap_or(0.0) / got.iter().sum::<f64>() * 100.0;
            ((samples.t_ns[i + 1] - samples.t_ns[0]) as f64 / 1e9, part)
        });
        plot.add(tool.name(), Style::Line, points.collect());
    }
    s.page.plot("windows", &plot)
}

fn left_behind(s: &mut Experiment) -> Result<()> {
    let survey = Survey::new();
    s.page.heading("What is left behind after kill -9");
    let tools = tools(s, &survey);
    s.page.text(
        "Three clients that compute, with shares 1:2:3; by cpulimit with limits of 1, 1 and 98 %, so that it holds somebody however busy \
         the CPU is. The tool is killed (SIGKILL) while clients are held; a second later, and once no guardian is left, the clients \
         are watched for 1.5 s (quick: .3 and .7 s). One that gets no CPU in that time stands, suspended or frozen.",
    );
    let (settle, watch) = s.pick((300, 700), (1_000, 1_500));
    let times = Times { settle: Nanos::from_millis(settle), look: Nanos::from_millis(watch) };
    let mut rows: Vec<Left> = Vec::new();
    for &tool in &tools {
        let ways: &[Killed] = match tool.backend() {
            Some(_) => &[Killed::Tool, Killed::Both, Killed::BothThenRescue],
            None => &[Killed::Tool],
        };
        for &killed in ways {
            s.bench.check()?;
            eprintln!("peers: kill -9, {}", tool.name());
            rows.push(look(tool, killed, s.cpu(), &survey, times)?);
        }
    }
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let numbers = [r.standing, r.reniced, r.cgroups, r.moved].map(|n| n.to_string());
            let mut cells = vec![r.tool.to_owned(), r.killed.to_owned(), format!("{} of 3", r.clients)];
            cells.extend(numbers);
            cells
        })
        .collect();
    let head = "tool | killed | clients alive | of them standing | with another nice value | cgroups left | in another cgroup";
    s.page.table(head, &table);
    s.page.csv("leftovers", &rows)?;
    let ours = || rows.iter().filter(|r| r.tool.starts_with("divvy") && !r.killed.ends_with("guardian"));
    let standing = ours().map(|r| r.standing + 3 - r.clients).sum::<usize>() as f64;
    s.page.goal("divvy killed: clients that stand, or are gone", Limit::Most(0.0), standing, "");
    let cgroups = ours().map(|r| r.cgroups + r.moved).sum::<usize>() as f64;
    s.page.goal("divvy killed: cgroups left, and clients in another one", Limit::Most(0.0), cgroups, "");
    Ok(())
}
