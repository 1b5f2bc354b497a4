//! What is to be exact: shares of the CPU, limits and shares of a disk.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result};
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::checks::{ALICE, BOB, MIB, SETTLE};
use super::{Checks, IOPS, Site, by_hand, divvy, parts, simulated_disks};
use crate::client::number;

/// Shares of those who compute.
const CPU: [u64; 3] = [1, 2, 3];
/// Of two users: the parts of a disk that are measured, and those of which 48:52 is known of others.
const DISK: [[u64; 2]; 2] = [[1, 4], [40, 60]];
/// A disk is used for so many times as long as parts of it are measured before BFQ knows it.
const WARM_UP: u64 = 3;
/// A disk that is more than memory.
const SCRATCH: &str = "/dev/disk/scratch";
/// Limits of a disk, MiB a second.
const LIMITS: [u64; 2] = [1, 2];

/// `figexact SECONDS`: on one CPU.
pub(super) fn run(mut args: impl Iterator<Item = String>) -> Result<Checks> {
    let seconds = number(&mut args, "SECONDS")?;
    let mut seen = Checks::default();
    cpu("cpu 1:2:3, one CPU", seconds, &mut seen)?;
    let [disk, _] = simulated_disks()?;
    disk.divide(IOPS)?;
    shares_of_disk("disk by iocost", seconds, &readable(&disk.path)?, &mut seen)?;
    Ok(seen)
}

/// `figbfq SECONDS`: a disk that BFQ divides, which waits for the next request of who is due more.
pub(super) fn by_bfq(mut args: impl Iterator<Item = String>) -> Result<Checks> {
    let seconds = number(&mut args, "SECONDS")?;
    let mut seen = Checks::default();
    let [disk, _] = simulated_disks()?;
    for (file, value) in
        [("scheduler", "bfq"), ("iosched/strict_guarantees", "1"), ("iosched/low_latency", "0")]
    {
        let file = format!("/sys/dev/block/{}/queue/{file}", disk.device);
        fs::write(&file, value).with_context(|| format!("write {value} to {file}"))?;
    }
    let path = readable(&disk.path)?;
    // BFQ learns how fast a disk is as it is used, and divides it by guesses until then.
    by_hand::shares_of_disk("two who read from the start, ", WARM_UP * seconds, &path, &DISK[0], &mut seen)?;
    for weights in &DISK {
        by_hand::shares_of_disk("", seconds, &path, weights, &mut seen)?;
    }
    shares_of_disk("disk by BFQ", seconds, &path, &mut seen)?;
    Ok(seen)
}

/// A disk that everybody may read.
fn readable(path: &std::path::Path) -> Result<String> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).context("let all use the disk")?;
    Ok(path.to_string_lossy().into_owned())
}

/// Three that compute, with shares of 1, 2 and 3.
pub(super) fn cpu(what: &str, seconds: u64, seen: &mut Checks) -> Result<()> {
    let mut site = Site::start(None, "")?;
    for share in CPU {
        let share = share.to_string();
        site.task(0, &format!("share{share}"), &["--share", &share], &["compute"])?;
    }
    clock::sleep(Nanos::from_secs(SETTLE));
    let got = parts(&site.measure(seconds)?, |used| used.cpu_ns);
    let all: u64 = CPU.iter().sum();
    for (share, got) in CPU.into_iter().zip(got) {
        seen.note(format!("{what}: the share of {share}"), share as f64 / all as f64, got);
    }
    Ok(())
}

/// A reader that wants more than its limit of the disk, which is changed. Disks of a machine's memory are none to divvyd.
pub(super) fn limits(seconds: u64, seen: &mut Checks) -> Result<()> {
    let mut site = Site::start(None, "")?;
    let limit = |mib: u64| format!("disk:{mib}M");
    let size = (4 * MIB).to_string();
    site.task(0, "reader", &["--limit", &limit(LIMITS[0])], &["crowd", "4", SCRATCH, "0", &size])?;
    for mib in LIMITS {
        divvy(&["set", "root/reader", "--limit", &limit(mib)])?;
        clock::sleep(Nanos::from_secs(SETTLE));
        let used = site.measure(seconds)?;
        let a_second = used[0].read as f64 / (seconds * MIB) as f64;
        seen.note(format!("io.max: a limit of {mib} MiB a second"), mib as f64, a_second);
    }
    Ok(())
}

/// Two users read, each with four requests at the disk.
fn shares_of_disk(what: &str, seconds: u64, path: &str, seen: &mut Checks) -> Result<()> {
    let size = (4 * MIB).to_string();
    for [a, b] in DISK {
        let policy = format!("[users.alice]\ndisk = {}\n[users.bob]\ndisk = {}\n", a * 100, b * 100);
        let mut site = Site::start(None, &policy)?;
        for (uid, at) in [(ALICE, 0), (BOB, 16 * MIB)] {
            site.task(uid, "reader", &[], &["crowd", "4", path, &at.to_string(), &size])?;
        }
        clock::sleep(Nanos::from_secs(SETTLE));
        let got = parts(&site.measure(seconds)?, |used| used.read);
        for (who, share, got) in [("alice", a, got[0]), ("bob", b, got[1])] {
            seen.note(format!("{what}, {a}:{b}: {who}'s part"), share as f64 / (a + b) as f64, got);
        }
    }
    Ok(())
}
