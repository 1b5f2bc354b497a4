//! Disks, in real time: where time is counted in instructions, a disk's answer comes when the clock has gone on already.

mod rights;

use divvy_linux::cgroup::room::{DeviceIoMax, IO_MAX, IO_STAT, IoMax, Limit};
use divvy_linux::clock;

use super::room::{MAX_BOUND_ERROR, check_near};
use super::{Child, Group, scratch_disk, sleep};

const MIB: u64 = 1 << 20;

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_disk_keeps_to_its_bound() {
    let (path, disk) = scratch_disk();
    let group = Group::new("disk");
    let rate = 2 * MIB;
    let max = IoMax { wbps: Limit::At(rate), ..IoMax::NONE };
    group.cgroup.set(&IO_MAX, &DeviceIoMax(disk, max)).expect("there is the disk");
    assert_eq!(group.cgroup.get(&IO_MAX).expect("readable")[&disk], max);
    let wbytes =
        || group.cgroup.get(&IO_STAT).expect("readable").get(&disk).copied().unwrap_or_default().wbytes;
    let line =
        format!("while :; do dd if=/dev/zero of={path} bs=64k count=64 oflag=direct 2>/dev/null; done");
    let _child = Child::start(&group.cgroup, &line);
    sleep(1_000);
    let (from, began) = (wbytes(), clock::now());
    sleep(6_000);
    let (bytes, time) = (wbytes() - from, clock::now().since(began));
    check_near("bytes a second", bytes as f64 / time.as_secs_f64(), rate as f64, MAX_BOUND_ERROR);
}
