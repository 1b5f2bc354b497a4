//! What another process can see: the kernel's own files, and the running scheduler's map.

use std::fs;
use std::mem::MaybeUninit;
use std::time::Duration;

use anyhow::anyhow;
use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use serde::Serialize;

use crate::bpf::types;
use crate::clock::{Moment, sleep};
use crate::failure::{ABSENT, Failure, OrFail as _, SYSTEM, print};
use crate::left::Left;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
/// The map that holds the policy's state, and what is told beside it.
const MAP: &str = ".data.divvy";
/// Of the map's layout: `DV_VERSION`.
const VERSION: u32 = 6;

/// `enabled`, `disabled`, or on the way; `None` where the kernel has no such schedulers.
#[must_use]
pub fn state() -> Option<String> {
    Some(fs::read_to_string(format!("{SCHED_EXT}/state")).ok()?.trim().to_owned())
}

/// The name of the scheduler that the kernel has now.
#[must_use]
pub fn ops() -> Option<String> {
    Some(fs::read_to_string(format!("{SCHED_EXT}/root/ops")).ok()?.trim().to_owned())
}

/// A text as C has them.
pub(crate) fn text_of(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|&&b| b != 0).map(|b| b.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn left_of(about: &types::about) -> Option<Left> {
    (about.left != 0).then(|| Left {
        kind: about.left_kind,
        code: about.left_code,
        reason: text_of(&about.left_reason),
        message: text_of(&about.left_message),
    })
}

/// What is told of a scheduler.
#[derive(Debug, Serialize)]
struct Status {
    state: String,
    ops: Option<String>,
    policy: Option<String>,
    loader: Option<i32>,
    clients: Option<u32>,
    uptime_ns: Option<u64>,
}

/// One client's part.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    share: u64,
    effective_share: u64,
    runnable: u32,
    service_ns: u64,
    achieved_fraction: f64,
    picks: u64,
}

/// One of the scheduler's programs, and what it cost since the kernel began to count that (`kernel.bpf_stats_enabled`).
#[derive(Debug, Serialize)]
struct Program {
    name: String,
    runs: u64,
    run_time_ns: u64,
}

/// The programs that the kernel has counted anything of.
fn programs() -> Vec<Program> {
    ProgInfoIter::default()
        .filter(|info| info.run_cnt > 0)
        .map(|info| Program {
            name: info.name.to_string_lossy().into_owned(),
            runs: info.run_cnt,
            run_time_ns: info.run_time_ns,
        })
        .filter(|program| program.name.starts_with("divvy_"))
        .collect()
}

#[derive(Debug, Serialize)]
struct Stats {
    policy: String,
    length_ns: u64,
    decisions: u64,
    kept: u64,
    refused: u64,
    preempted: u64,
    /// Turns of those that had waited for too long.
    overdue: u64,
    programs: Vec<Program>,
    clients: Vec<Row>,
}

/// A copy of the running scheduler's map.
fn snapshot() -> Result<Box<types::data_divvy>, Failure> {
    let size = size_of::<types::data_divvy>();
    let mut other = None;
    for info in MapInfoIter::default() {
        if info.name.to_string_lossy() != MAP {
            continue;
        }
        if info.value_size as usize != size {
            other = Some("another version than this".to_owned());
            continue;
        }
        // One that has ended may be there for a moment longer, and go meanwhile.
        let Ok(map) = MapHandle::from_map_id(info.id) else { continue };
        let Ok(Some(bytes)) = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY) else { continue };
        if bytes.len() != size {
            continue;
        }
        let mut data: Box<MaybeUninit<types::data_divvy>> = Box::new_uninit();
        // SAFETY: as many bytes as the type has; it consists of integers, for which every pattern of bits is a value.
        let data = unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.as_mut_ptr().cast::<u8>(), size);
            data.assume_init()
        };
        match data.about.version {
            VERSION if data.about.left == 0 => return Ok(data),
            0 | VERSION => {}
            version => other = Some(format!("another version ({version}, this is {VERSION})")),
        }
    }
    let why = match other {
        Some(version) => format!("the divvy-scx that runs is of {version}"),
        None if rustix::process::geteuid().is_root() => "no divvy-scx runs here".to_owned(),
        None => "no divvy-scx can be seen: only root may look".to_owned(),
    };
    Err(Failure::new(ABSENT, anyhow!(why)))
}

fn print_json<T: Serialize>(what: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(what).or_fail(SYSTEM)?;
    print(&format!("{text}\n"))
}

/// Prints which scheduler the kernel has.
///
/// # Errors
/// That the kernel has no such schedulers.
pub fn status(json: bool) -> Result<(), Failure> {
    let why = "this kernel has no sched_ext: it needs Linux 6.13 or later with CONFIG_SCHED_CLASS_EXT";
    let state = state().ok_or_else(|| Failure::new(SYSTEM, anyhow!(why)))?;
    let mut status = Status { state, ops: ops(), policy: None, loader: None, clients: None, uptime_ns: None };
    if let Ok(data) = snapshot() {
        status.policy = Some(text_of(&data.about.policy));
        status.loader = Some(data.about.loader);
        status.clients = Some(data.about.nr_clients);
        status.uptime_ns = Some(Moment::now().0.saturating_sub(data.about.since));
    }
    if json {
        return print_json(&status);
    }
    let mut text = match &status.ops {
        None => format!("sched_ext {}: the kernel's own scheduler has the CPUs\n", status.state),
        Some(ops) => format!("sched_ext {}: {ops} has the CPUs\n", status.state),
    };
    if let (Some(policy), Some(loader), Some(uptime)) = (&status.policy, status.loader, status.uptime_ns) {
        let uptime = humantime::format_duration(Duration::from_secs(uptime / 1_000_000_000));
        let clients = status.clients.unwrap_or(0);
        text += &format!("divvy-scx {loader}: {policy}, {clients} clients, for {uptime}\n");
    }
    print(&text)
}

/// Prints what each client got, over `interval` or since the start.
///
/// # Errors
/// That no divvy-scx runs, or that only root may look.
pub fn stats(interval: Option<Duration>, json: bool) -> Result<(), Failure> {
    let before = match interval {
        None => None,
        Some(interval) => {
            let before = snapshot()?;
            let from = Moment::now().0;
            sleep(interval);
            Some((before, from))
        }
    };
    let data = snapshot()?;
    // Another that began meanwhile is told of since then.
    let before = before.filter(|(before, _)| before.about.since == data.about.since);
    let from = before.as_ref().map_or(data.about.since, |(_, from)| *from);
    let length_ns = Moment::now().0.saturating_sub(from);
    let stats = stats_of(&data, before.as_ref().map(|(before, _)| &**before), length_ns);
    if json { print_json(&stats) } else { print(&stats.text()) }
}

impl Stats {
    fn text(&self) -> String {
        let mut text = format!(
            "{} over {:.1} s, {} decisions\n",
            self.policy,
            self.length_ns as f64 / 1e9,
            self.decisions
        );
        if self.overdue > 0 {
            let turns = self.overdue;
            text +=
                &format!("{turns} turns out of the policy's order, of tasks that had waited for too long\n");
        }
        text += &format!(
            "{:<31} {:>8} {:>9} {:>8} {:>12} {:>10}\n",
            "client", "share", "effective", "runnable", "CPU s", "achieved %"
        );
        for row in &self.clients {
            text += &format!(
                "{:<31} {:>8} {:>9} {:>8} {:>12.3} {:>10.2}\n",
                row.name,
                row.share,
                row.effective_share,
                row.runnable,
                row.service_ns as f64 / 1e9,
                row.achieved_fraction * 100.0
            );
        }
        if !self.programs.is_empty() {
            text += &format!("\n{:<20} {:>12} {:>10}\n", "program", "runs", "ns a run");
            for program in &self.programs {
                let each = program.run_time_ns / program.runs;
                text += &format!("{:<20} {:>12} {each:>10}\n", program.name, program.runs);
            }
            text += "ns a run: since kernel.bpf_stats_enabled was set to 1\n";
        }
        text + "achieved %: of the CPU time of all clients; the kernel's own threads are nobody's\n"
    }
}

fn stats_of(data: &types::data_divvy, before: Option<&types::data_divvy>, length_ns: u64) -> Stats {
    let nr = (data.about.nr_clients as usize).min(data.dv.clients.len());
    let used: Vec<u64> = (0..nr)
        .map(|id| {
            let earlier = before.map_or(0, |before| before.dv.clients[id].used);
            data.dv.clients[id].used.saturating_sub(earlier)
        })
        .collect();
    let all: u64 = used.iter().sum();
    let clients = (0..nr).filter(|&id| data.about.names[id][0] != 0).map(|id| {
        let client = &data.dv.clients[id];
        Row {
            name: text_of(&data.about.names[id]),
            share: data.about.shares[id],
            effective_share: client.share,
            runnable: client.nr_runnable,
            service_ns: used[id],
            achieved_fraction: if all == 0 { 0.0 } else { used[id] as f64 / all as f64 },
            // Its number may have been another's.
            picks: client.picks.saturating_sub(before.map_or(0, |before| before.dv.clients[id].picks)),
        }
    });
    let clients = clients.collect();
    let since = |of: fn(&types::about) -> u64| of(&data.about) - before.map_or(0, |before| of(&before.about));
    Stats {
        policy: text_of(&data.about.policy),
        length_ns,
        decisions: since(|about| about.nr_decisions),
        kept: since(|about| about.nr_kept),
        refused: since(|about| about.nr_refused),
        preempted: since(|about| about.nr_preempted),
        overdue: since(|about| about.nr_overdue),
        programs: programs(),
        clients,
    }
}
