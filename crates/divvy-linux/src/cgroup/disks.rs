//! What divides a disk among cgroups: the BFQ scheduler, or iocost, which the root's `io.cost.qos` puts on disk by disk.

use std::fs;
use std::path::Path;

use super::room::{Cgroup, Device, IO_BFQ_WEIGHT, IO_COST_QOS, IO_WEIGHT};

/// A disk, and the files whose weights count on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    /// The kernel's name.
    pub name: String,
    /// Its numbers.
    pub device: Option<Device>,
    /// None: nothing divides it.
    pub by: Vec<&'static str>,
    /// The kernel's count of disks that came: another one has another, whatever its name and numbers. Nothing before Linux 5.15.
    pub seq: String,
}

/// The machine's disks by name, as `sys` (`/sys`) lists them. Those without a device behind them (loops, memory) are left
/// out: what they do is done by others. `mount` is where the cgroups are: its `io.cost.qos` says where iocost is on.
pub(super) fn survey(sys: &Path, mount: &Path) -> Vec<Disk> {
    // Only the real root has the file; a container does not see it.
    let costs = Cgroup::open_any(mount).and_then(|root| root.get(&IO_COST_QOS)).unwrap_or_default();
    let mut disks: Vec<Disk> = Vec::new();
    for entry in fs::read_dir(sys.join("block")).into_iter().flatten().flatten() {
        let dir = entry.path();
        if !dir.join("device").exists() {
            continue;
        }
        let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
        let device = read("dev").parse::<Device>().ok();
        let iocost = device.and_then(|device| costs.get(&device)).is_some_and(|qos| qos.enable);
        let bfq = read("queue/scheduler").contains("[bfq]");
        let by = iocost.then_some(IO_WEIGHT.name()).into_iter().chain(bfq.then_some(IO_BFQ_WEIGHT.name()));
        let name = entry.file_name().to_string_lossy().into_owned();
        let seq = read("diskseq").trim().to_owned();
        disks.push(Disk { name, device, by: by.collect(), seq });
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    disks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_told_by_what_divides_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let (sys, mount) = (dir.path().join("sys"), dir.path().join("cgroup"));
        fs::create_dir_all(&mount).expect("a directory");
        for (name, number, scheduler, device) in [
            ("vdb", "254:16\n", "[none] mq-deadline bfq\n", true),
            ("sda", "8:0\n", "none mq-deadline [bfq]\n", true),
            ("vda", "254:0\n", "[none] bfq\n", true),
            ("loop0", "7:0\n", "[none]\n", false),
        ] {
            let disk = sys.join("block").join(name);
            fs::create_dir_all(disk.join("queue")).expect("directories");
            fs::write(disk.join("dev"), number).expect("a file");
            fs::write(disk.join("queue/scheduler"), scheduler).expect("a file");
            fs::write(disk.join("diskseq"), "7\n").expect("a file");
            if device {
                fs::create_dir(disk.join("device")).expect("a directory");
            }
        }
        let disk = |name: &str, by: &[&'static str]| {
            let (major, minor) = match name {
                "sda" => (8, 0),
                "vda" => (254, 0),
                _ => (254, 16),
            };
            let (name, device, by) = (name.to_owned(), Some(Device { major, minor }), by.to_vec());
            Disk { name, device, by, seq: "7".to_owned() }
        };
        let bfq = "io.bfq.weight";
        assert_eq!(survey(&sys, &mount), [disk("sda", &[bfq]), disk("vda", &[]), disk("vdb", &[])]);
        let rest = "ctrl=auto rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=1.00 max=10000.00";
        fs::write(mount.join("io.cost.qos"), format!("254:0 enable=1 {rest}\n254:16 enable=0 {rest}\n"))
            .expect("a file");
        assert_eq!(
            survey(&sys, &mount),
            [disk("sda", &[bfq]), disk("vda", &["io.weight"]), disk("vdb", &[])]
        );
        assert_eq!(survey(&dir.path().join("nowhere"), &mount), []);
    }
}
