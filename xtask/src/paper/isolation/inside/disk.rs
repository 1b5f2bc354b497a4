//! Five tasks that read, the first with half of the disk by a hard share (Fig. 8).

use anyhow::Result;
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::{IOPS, Site, divvy, simulated_disks, sleep_until};
use crate::client::number;

/// Bytes of each task's part of the disk: the paper's file.
pub(in super::super) const FILE: u64 = 16 << 20;

/// What was seen: each task's count at each look.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Readers {
    /// Seconds since the beginning, and pages touched.
    pub(in super::super) rows: Vec<(f64, Vec<u64>)>,
}

/// `fig8 SECONDS`.
pub(super) fn run(mut args: impl Iterator<Item = String>) -> Result<Readers> {
    let seconds = number(&mut args, "SECONDS")?;
    let [disk, _] = simulated_disks()?;
    disk.divide(IOPS)?;
    let path = disk.path.to_string_lossy().into_owned();
    let mut site = Site::start(None, "")?;
    for task in 0..5_u64 {
        let (at, size) = ((task * FILE).to_string(), FILE.to_string());
        site.task(0, &format!("task{task}"), &[], &["iohog", &path, &at, &size])?;
    }
    let words = ["--resource", "disk"];
    divvy(&[&["reserve", "root/task0", "--from", "base", "500"], &words[..]].concat())?;
    divvy(&[&["unfund", "root/task0", "--from", "root"], &words[..]].concat())?;
    clock::sleep(Nanos::from_secs(1));
    let (begin, from) = (clock::now(), site.counts());
    let mut seen = Readers::default();
    for second in 0..=seconds {
        sleep_until(begin + Nanos::from_secs(second));
        let counts = site.counts().iter().zip(&from).map(|(to, from)| to - from).collect();
        seen.rows.push((clock::now().since(begin).as_secs_f64(), counts));
    }
    Ok(seen)
}
