//! VTRR, section 5.3, with real programs: five encoders with shares 1 to 5, and three containers with shares 1, 2 and 3.

use anyhow::Result;
use serde::Serialize;

use super::accuracy::short;
use super::parts::{errors, worst};
use super::{By, Client, Spec, Study, Work};
use crate::paper::Setting;
use crate::paper::page::{Limit, percent};
use crate::paper::plot::{Legend, Plot, Style};

/// An instruction takes 8 ns.
const SHIFT: u32 = 3;
const WARM_MS: u64 = 1_200;
const LOOKS: u64 = 30;
const ENCODERS: [u64; 5] = [1, 2, 3, 4, 5];
const CONTAINERS: [u64; 3] = [1, 2, 3];
/// An encoder writes frame by frame; a container's processes sleep for moments.
const MAX_ERROR: f64 = 2.0;

#[derive(Serialize)]
struct Row {
    what: &'static str,
    scheduler: String,
    t_s: f64,
    client: usize,
    share: u64,
    done: u64,
}

fn study_of(
    s: &mut Setting,
    study: &Study,
    (what, unit): (&'static str, &str),
    shares: &[u64],
    work: Work,
    data: &mut Vec<Row>,
) -> Result<()> {
    // An encoder writes 4 KiB at a time, of which the smallest makes two in a second.
    let full = if work == Work::Encodes { 36_000 } else { 9_000 };
    let length = s.pick(4_000, full);
    let schedulers = [By::Scx("vtrr".to_owned()), By::Scx("stride".to_owned()), By::Own];
    let spec = |by: &By| {
        let mut spec = Spec::new(format!("{what}, {}", by.text()), by.clone(), shares, WARM_MS, length);
        spec.every_ms = length / LOOKS;
        spec.clients.iter_mut().for_each(|client: &mut Client| client.work = work);
        spec
    };
    let all = study.run(SHIFT, schedulers.iter().map(spec).collect())?;
    let sum: u64 = shares.iter().sum();
    let mut table = Vec::new();
    for (by, seen) in schedulers.iter().zip(&all) {
        let service = seen.service()?;
        let all: f64 = service.iter().sum();
        let worst = worst(&errors(&service, shares));
        let mut line = vec![short(by)];
        line.extend(service.iter().map(|service| percent(service / all)));
        line.push(percent(worst));
        table.push(line);
        if let By::Scx(policy) = by {
            let goal = format!("{what} under {policy}: largest error of a client");
            s.page.goal(goal, Limit::Most(MAX_ERROR), worst * 100.0, "%");
        }
        for look in &seen.looks {
            let row = |(client, (&done, &share)): (usize, (&u64, &u64))| {
                let t_s = look.at_ns as f64 / 1e9;
                Row { what, scheduler: short(by), t_s, client: client + 1, share, done }
            };
            data.extend(look.done.iter().zip(shares).enumerate().map(row));
        }
    }
    let due: Vec<String> = shares.iter().map(|&share| percent(share as f64 / sum as f64)).collect();
    let head: Vec<String> =
        shares.iter().zip(&due).map(|(share, due)| format!("share {share}, % of {due}")).collect();
    s.page.table(&format!("scheduler | {} | largest error, %", head.join(" | ")), &table);
    let seen = &all[0];
    let mut plot = Plot::new(format!("{what} under sched_ext vtrr"), "time, s", unit);
    plot.legend = Legend::Left;
    for (id, share) in shares.iter().enumerate() {
        let start = seen.looks.first().map_or(0, |look| look.done[id]);
        let point = |look: &super::Look| (look.at_ns as f64 / 1e9, (look.done[id] - start) as f64 / 1e6);
        plot.add(format!("share {share}"), Style::Line, seen.looks.iter().map(point).collect());
    }
    s.page.plot(&what.to_lowercase().replace(' ', "-"), &plot)
}

/// Both.
pub(super) fn programs(s: &mut Setting, study: &Study) -> Result<()> {
    let mut data = Vec::new();
    s.page.heading("Real programs (VTRR, section 5.3, Figs 7 to 12)");
    s.page.text(&format!(
        "Five encoders: `flac -8`, each of the same sound, one with each share of 1 to 5; what counts is how much each has written, \
         4 KiB at a time, of the same for all (the paper: MPEG audio, frames encoded). Three containers with shares 1, 2 and 3, where the paper \
         has virtual machines: in namespaces of processes, mounts, names and IPC of its own, a shell that forks all the time, a pipeline \
         of gzip and gunzip that is begun again and again, and one that computes; what counts is the CPU time of its cgroup. Quanta of 20 ms, {} ns an instruction.",
        1 << study.shift(SHIFT)
    ));
    study_of(s, study, ("Five encoders", "MB written"), &ENCODERS, Work::Encodes, &mut data)?;
    study_of(s, study, ("Three containers", "s of CPU time"), &CONTAINERS, Work::Container, &mut data)?;
    s.page.csv("programs", &data)
}
