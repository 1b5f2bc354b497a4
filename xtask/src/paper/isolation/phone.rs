//! Fig. 11: memory for disk, between a server whose database could be in memory and one whose could not.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Serialize;

use super::super::Setting;
use super::super::page::{Limit, percent};
use super::super::plot::{Legend, Plot, Style};
use super::inside::{BIG, BOOKS, SMALL, Served};
use super::{Machine, book};

/// Entries of the small book: with what its server needs beside it, three times the paper's 8 MB.
const SMALL_ENTRIES: u64 = 80_000;
/// Bytes of an entry in the book.
const ENTRY: u64 = 292;
/// Of the big one: as many as the paper's.
const BIG_ENTRIES: u64 = 1 << 20;
const BIG_ENTRIES_QUICK: u64 = 1 << 18;
/// Operations of the disk a second, by a machine of 62 million instructions a second. With the paper's processor of 200 MHz and its disk an
/// operation of the disk took as long as a million instructions or more; here it takes 0.6 million, and 0.16 million in a quick run.
const OPERATIONS: u64 = 100;
const OPERATIONS_QUICK: u64 = 400;
/// Of the paper's amounts: memory tickets that small gets, and disk tickets that it gives.
const MEMORY: [u64; 3] = [200, 500, 800];
const DISK: [u64; 2] = [200, 800];
/// What the machine does in a second.
const INSTRUCTIONS: u64 = 62_500_000;
/// Of six with as many tickets each.
const DUE: f64 = 1.0 / 6.0;
/// What comes of counting pages in an interval.
const CLOSE: f64 = 0.01;
/// So many machines at most: each has 2 GiB.
const AT_ONCE: usize = 2;
const QUICK: [(u64, u64); 2] = [(0, 0), (200, 800)];

#[derive(Debug, Serialize)]
struct Row {
    disk: u64,
    memory: u64,
    small_queries: f64,
    big_queries: f64,
    small_bytes: u64,
    big_bytes: u64,
    least_of_readers: f64,
}

/// What is measured.
#[derive(Clone, Copy)]
struct Plan {
    entries: [u64; 2],
    /// After so many queries small makes its offer, as in the paper;
    queries: u64,
    /// so long after it, s,
    settle: u64,
    /// so long is measured, s.
    seconds: u64,
    operations: u64,
}

/// The books, on a file system in one file.
fn write_books(dir: &Path, entries: [u64; 2]) -> Result<std::path::PathBuf> {
    let books = dir.join("books");
    std::fs::create_dir_all(&books).with_context(|| format!("create {}", books.display()))?;
    let mut bytes = 0;
    for (file, entries) in [SMALL, BIG].into_iter().zip(entries) {
        let path = books.join(file);
        book::write(&path, entries)?;
        bytes += std::fs::metadata(&path)?.len();
    }
    let image = dir.join(BOOKS);
    let kib = bytes * 11 / 10 / 1024 + 4096;
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-t", "ext2", "-b", "4096", "-m", "0", "-d"]).arg(&books).arg(&image);
    // With a unit: a bare number is one of blocks, where their size is given.
    let done = make.arg(format!("{kib}k")).output().context("start mke2fs (e2fsprogs)")?;
    ensure!(done.status.success(), "mke2fs: {}", String::from_utf8_lossy(&done.stderr));
    Ok(image)
}

pub(super) fn fig11(s: &mut Setting) -> Result<()> {
    let plan = Plan {
        entries: [SMALL_ENTRIES, s.pick(BIG_ENTRIES_QUICK, BIG_ENTRIES)],
        queries: s.pick(5_000, 10_000),
        settle: s.pick(90, 240),
        seconds: s.pick(10, 100),
        operations: s.pick(OPERATIONS_QUICK, OPERATIONS),
    };
    let grid = MEMORY.into_iter().flat_map(|memory| DISK.map(|disk| (disk, memory)));
    let pairs: Vec<(u64, u64)> = s.pick(QUICK.to_vec(), std::iter::once((0, 0)).chain(grid).collect());
    let dir = tempfile::Builder::new().prefix("divvy-books-").tempdir();
    let dir = dir.context("create a directory for the books")?;
    let image = write_books(dir.path(), plan.entries)?;
    let (setting, next) = (&*s, AtomicUsize::new(0));
    // Machines of their own, which count time in instructions: what each comes to does not depend on the one beside it.
    let work = || -> Result<Vec<(usize, Served)>> {
        let mut seen = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(disk, memory)) = pairs.get(i) else { return Ok(seen) };
            let Plan { entries, queries, settle, seconds, operations } = plan;
            let numbers = [queries, settle, seconds, operations, entries[0], entries[1], disk, memory];
            let args = numbers.map(|n| n.to_string());
            let machine = Machine { two_cpus: false, shift: 4, memory_mib: 2048, add: &[image.as_path()] };
            seen.push((i, machine.run(setting, "fig11", &args)?));
        }
    };
    let at_once = std::thread::available_parallelism().map_or(1, |n| n.get().min(AT_ONCE));
    let seen = std::thread::scope(|scope| -> Result<Vec<(usize, Served)>> {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Result<Vec<_>>>| {
            worker.join().map_err(|_| anyhow!("a thread panicked"))?
        };
        workers
            .into_iter()
            .map(join)
            .collect::<Result<Vec<_>>>()
            .map(|all| all.into_iter().flatten().collect())
    });
    page(s, seen?, plan)
}

fn page(s: &mut Setting, mut seen: Vec<(usize, Served)>, plan: Plan) -> Result<()> {
    seen.sort_by_key(|(i, _)| *i);
    let seen: Vec<Served> = seen.into_iter().map(|(_, served)| served).collect();
    let (base, rest) = seen.split_first().context("nothing was seen")?;
    ensure!(base.disk == 0 && rest.iter().all(|of| of.disk > 0), "not what was asked for");
    let Plan { entries, queries, settle, seconds, operations } = plan;
    s.page.heading("Memory for disk, between two servers (section 5.6, Fig. 11)");
    s.page.text(&format!(
        "Two servers of phone numbers answer queries for names at random from SQLite databases: *small* has {} entries in {} MiB, *big* \
         {} in {} MiB. Both have 1000 base tickets of CPU and disk, and 1375 of 2842 hard tickets of memory, which are {:.1} MiB; \
         65 MiB are all there is, 33 of which can be kept for clients: three times the paper's sizes. Four readers of 64 MiB each \
         compete for both. iocost drives the disk at {operations} operations a second.",
        entries[0],
        (entries[0] * ENTRY) >> 20,
        entries[1],
        (entries[1] * ENTRY) >> 20,
        base.guaranteed[0] as f64 / (1 << 20) as f64,
    ));
    s.page.text(&format!(
        "Each row is a run by itself, in a machine that was just started. As in the paper, big offers memory for disk at once, and small \
         disk for memory when it has answered {queries} queries, {:.0} s after its start; then the dealer matches them. {settle} s later \
         {seconds} s are measured, and what both gain is against the same interval of the run without an exchange, `0 : 0`.",
        base.waited
    ));
    rows(s, base, &seen, plan);
    goals(s, base, &seen);
    let data: Vec<Row> = seen
        .iter()
        .map(|of| Row {
            disk: of.disk,
            memory: of.memory,
            small_queries: of.queries[0],
            big_queries: of.queries[1],
            small_bytes: of.owned[0],
            big_bytes: of.owned[1],
            least_of_readers: of.least_of_others(),
        })
        .collect();
    s.page.csv("fig11", &data)?;
    plots(s, base, rest)
}

fn rows(s: &mut Setting, base: &Served, seen: &[Served], plan: Plan) {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / (1 << 20) as f64);
    let rows: Vec<Vec<String>> = seen
        .iter()
        .map(|of| {
            vec![
                format!("{} : {}", of.disk, of.memory),
                format!("{:.0}", of.queries[0]),
                percent(of.gain(base, 0)),
                format!("{:.1}", of.queries[1]),
                percent(of.gain(base, 1)),
                mib(of.guaranteed[0]),
                mib(of.owned[0]),
                format!("{:.1}", of.read[0]),
                format!("{:.1}", of.read[1]),
                format!("{:.4}", of.least_of_others()),
            ]
        })
        .collect();
    s.page.table(
        "disk : memory | small, queries/s | + % | big, queries/s | + % | small is guaranteed, MiB | has, MiB | small reads, pages/s \
         | big reads, pages/s | least part of the disk of the four readers",
        &rows,
    );
    s.page.text(&format!(
        "How much small gains depends on how many instructions the processor does while the disk reads once: {} here, and for the \
         paper's processor of 200 MHz and its disk a million or more.",
        INSTRUCTIONS / plan.operations,
    ));
}

fn goals(s: &mut Setting, base: &Served, seen: &[Served]) {
    let gain = |of: &Served, which: usize| of.gain(base, which);
    let both = |of: &&Served| gain(of, 0) > 0.0 && gain(of, 1) > 0.0;
    let papers = |of: &&Served| of.memory >= 400 && of.disk >= 600;
    let wanted: Vec<&Served> = seen.iter().filter(papers).collect();
    let met = wanted.iter().copied().filter(both).count();
    s.page.goal_of_all(
        "Fig. 11: exchanges of 400 memory or more for 600 disk or more, by which both gain in the paper: both gain",
        wanted.len(),
        met,
        "exchanges",
    );
    if let Some(most) = seen.iter().filter(|of| of.memory == 800).map(|of| gain(of, 0)).reduce(f64::max) {
        s.page.goal(
            "Fig. 11: what small gains with 800 memory at best (over 1000 % in the paper)",
            Limit::Least(1000.0),
            most * 100.0,
            "%",
        );
    }
    let kept = seen.iter().filter(|of| of.least_of_others() >= DUE * (1.0 - CLOSE)).count();
    s.page.goal_of_all(
        "Fig. 11: runs in which each of the four readers, which take no part, has a sixth of the disk at least (to within 1 %)",
        seen.len(),
        kept,
        "runs",
    );
}

fn plots(s: &mut Setting, base: &Served, rest: &[Served]) -> Result<()> {
    // One exchange alone is no curve.
    let drawn = if rest.len() > 1 { &[(0, "small"), (1, "big")][..] } else { &[] };
    for &(which, name) in drawn {
        let mut plot = Plot::new(
            format!("Fig. 11: what {name} gains by memory for disk"),
            "disk tickets that big gets",
            "queries, + %",
        );
        plot.legend = Legend::Left;
        for memory in MEMORY {
            let of: Vec<(f64, f64)> = rest
                .iter()
                .filter(|of| of.memory == memory)
                .map(|of| (of.disk as f64, of.gain(base, which) * 100.0))
                .collect();
            plot.add(format!("{memory} memory"), Style::Line, of);
        }
        s.page.plot(&format!("fig11-{name}"), &plot)?;
    }
    Ok(())
}
