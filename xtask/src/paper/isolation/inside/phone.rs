//! Two servers of phone numbers, on a database that fits into memory and one that does not, exchange memory for disk
//! (Fig. 11).

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use divvy_linux::cgroup::room::{Limit, MEMORY_CURRENT, MEMORY_MIN};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::{PAGE, Site, divvy, eventually, read_count, simulated_disks};
use crate::client::number;

const MIB: u64 = 1 << 20;
/// All memory of the experiment; 33 MiB of it can be kept for clients: three times the paper's 11.1 MB.
const MEMORY: u64 = 65 * MIB;
/// All hard tickets of memory: as many as the paper's machine had pages that could be reserved.
const HARD_TOTAL: u64 = 2842;
/// Hard tickets of each server: the paper's pages.
const HARD: u64 = 1375;
/// So many others, each of which
const READERS: usize = 4;
/// reads so much, beginning behind the databases.
const FILE: u64 = 64 * MIB;
const BEHIND: u64 = 512 * MIB;
/// The small one has asked so often within this, in looks of a second.
const PATIENCE: u32 = 3_600;
/// The image of the file system with the databases.
pub(in super::super) const BOOKS: &str = "books.img";
/// The databases in it.
pub(in super::super) const SMALL: &str = "small.db";
pub(in super::super) const BIG: &str = "big.db";

/// What came of one exchange.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Served {
    /// Disk tickets that the small one gave.
    pub(in super::super) disk: u64,
    /// Memory tickets that it got.
    pub(in super::super) memory: u64,
    /// How long the small one took, from its start, for the queries after which it made its offer, s.
    pub(in super::super) waited: f64,
    /// Queries a second of the small one and the big one.
    pub(in super::super) queries: [f64; 2],
    /// Bytes that are charged to each in the end.
    pub(in super::super) owned: [u64; 2],
    /// Bytes that each is guaranteed.
    pub(in super::super) guaranteed: [u64; 2],
    /// Pages a second that each of all six read: the two, then the four others.
    pub(in super::super) read: Vec<f64>,
}

impl Served {
    /// By how much more queries it served than `base`, as a fraction: `0` the small one, `1` the big one.
    pub(in super::super) fn gain(&self, base: &Self, which: usize) -> f64 {
        self.queries[which] / base.queries[which].max(f64::MIN_POSITIVE) - 1.0
    }

    /// The least part that one of the four others had of what all six read.
    pub(in super::super) fn least_of_others(&self) -> f64 {
        let all = self.read.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        self.read[2..].iter().map(|read| read / all).fold(f64::INFINITY, f64::min)
    }
}

fn check(program: &str, args: &[&str]) -> Result<()> {
    let done = Command::new(program).args(args).output().with_context(|| format!("start {program}"))?;
    ensure!(done.status.success(), "{program} {}: {}", args.join(" "), String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// The disk, and its path, with the databases in front.
fn disk_with_books(operations: u64) -> Result<String> {
    let [disk, _] = simulated_disks()?;
    let path = disk.path.to_string_lossy().into_owned();
    let image = format!("/bin/{BOOKS}");
    check("dd", &[&format!("if={image}"), &format!("of={path}"), "bs=1M", "conv=fsync"])?;
    std::fs::remove_file(&image).context("remove the image")?;
    std::fs::create_dir_all("/books").context("create /books")?;
    check("mount", &["-t", "ext4", "-o", "ro,noatime", &path, "/books"])?;
    // Who reads a page first is who it is charged to.
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("forget what was read")?;
    disk.divide(operations)?;
    Ok(path)
}

/// The two servers, and the four others.
fn site(path: &str, entries: [u64; 2]) -> Result<Site> {
    let mut site = Site::start(Some(MEMORY), "")?;
    divvy(&["currency", "hard-total", "base", &format!("memory:{HARD_TOTAL}")])?;
    let funding = ["--from", "base", "--share", "1000"];
    let memory = ["--resource", "memory"];
    for (i, (name, file)) in [("small", SMALL), ("big", BIG)].into_iter().enumerate() {
        let (file, entries, seed) = (format!("/books/{file}"), entries[i].to_string(), (i + 1).to_string());
        site.task(0, name, &funding, &["phone", &file, &entries, &seed])?;
        let client = format!("root/{name}");
        divvy(&[&["unfund", &client, "--from", "base"], &memory[..]].concat())?;
        divvy(&[&["reserve", &client, "--from", "base", &HARD.to_string()], &memory[..]].concat())?;
    }
    for i in 0..READERS as u64 {
        let (at, size) = ((BEHIND + i * FILE).to_string(), FILE.to_string());
        site.task(0, &format!("read{i}"), &funding, &["iohog", path, &at, &size])?;
        divvy(&[&["unfund", &format!("root/read{i}"), "--from", "base"], &memory[..]].concat())?;
    }
    Ok(site)
}

/// `fig11 QUERIES SETTLE SECONDS OPERATIONS ENTRIES_SMALL ENTRIES_BIG DISK MEMORY`: one exchange, or none where both are 0, in a
/// machine of its own, so that every one begins alike. The small one offers after so many queries; so many operations of the disk a
/// second.
pub(super) fn run(mut args: impl Iterator<Item = String>) -> Result<Served> {
    let (queries, settle) = (number(&mut args, "QUERIES")?, number(&mut args, "SETTLE")?);
    let (seconds, operations) = (number(&mut args, "SECONDS")?, number(&mut args, "OPERATIONS")?);
    let entries = [number(&mut args, "ENTRIES_SMALL")?, number(&mut args, "ENTRIES_BIG")?];
    let (disk, memory) = (number(&mut args, "DISK")?, number(&mut args, "MEMORY")?);
    let path = disk_with_books(operations)?;
    let begun = clock::now();
    let site = site(&path, entries)?;
    let min = |i: usize| match site.tasks[i].leaf.get(&MEMORY_MIN) {
        Ok(Limit::At(bytes)) => bytes,
        _ => 0,
    };
    eventually("what is guaranteed", || min(0) > 0 && min(0) == min(1) && min(2) == 0)?;
    let (give, want) = (format!("disk:{disk}"), format!("memory:{memory}"));
    if disk > 0 {
        divvy(&["exchange", "offer", "--party", "root/big", "--give", &want, "--want", &give])?;
    }
    for look in 0.. {
        if read_count(&site.tasks[0].count) >= queries {
            break;
        }
        ensure!(look < PATIENCE, "small did not ask {queries} times within {PATIENCE} s");
        clock::sleep(Nanos::from_secs(1));
    }
    let waited = clock::now().since(begun).as_secs_f64();
    if disk > 0 {
        let before = min(0);
        divvy(&["exchange", "offer", "--party", "root/small", "--give", &give, "--want", &want])?;
        eventually("the exchange", || min(0) > before)?;
    }
    clock::sleep(Nanos::from_secs(settle));
    let used = site.measure_readers(seconds, 2..2 + READERS)?;
    let a_second = |n: u64| n as f64 / seconds.max(1) as f64;
    let owned = |i: usize| site.tasks[i].leaf.get(&MEMORY_CURRENT);
    Ok(Served {
        disk,
        memory,
        waited,
        queries: [a_second(used[0].count), a_second(used[1].count)],
        owned: [owned(0)?, owned(1)?],
        guaranteed: [min(0), min(1)],
        read: used.iter().map(|used| a_second(used.read / PAGE)).collect(),
    })
}
