//! Against directories that look like cgroups. What the kernel itself does: `xtask/tests/machine/inside/room.rs`.

use std::fs;

use divvy_policy::Nanos;

use super::*;

/// A directory with files, as a cgroup of its own.
fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        fs::write(dir.path().join(name), text).expect("a file");
    }
    let cgroup = Cgroup::open_any(dir.path()).expect("a directory");
    (dir, cgroup)
}

#[track_caller]
fn check_read<R: Parse + PartialEq + fmt::Debug, W>(file: &Attribute<R, W>, text: &str, value: R) {
    let (_dir, cgroup) = fixture(&[(file.name(), text)]);
    assert_eq!(cgroup.get(file).expect("readable"), value, "{text:?}");
}

#[track_caller]
fn check_malformed<R: Parse + fmt::Debug, W>(file: &Attribute<R, W>, text: &str, what: &str) {
    let (_dir, cgroup) = fixture(&[(file.name(), text)]);
    let said = cgroup.get(file).expect_err("malformed").to_string();
    assert!(said.ends_with(&format!("{}: {what} is missing or malformed", file.name())), "{said}");
}

#[track_caller]
fn check_written<R, W: Spell>(file: &Attribute<R, W>, value: &W, text: &str) {
    let (dir, cgroup) = fixture(&[(file.name(), "something longer than what is written here, by far")]);
    cgroup.set(file, value).expect("writable");
    assert_eq!(fs::read_to_string(dir.path().join(file.name())).expect("readable"), text);
}

const SDB: Device = Device { major: 8, minor: 16 };

#[test]
fn files_of_cpu_read_as_they_are_documented() {
    check_read(&CPU_WEIGHT, "100\n", 100);
    check_read(&CPU_MAX, "max 100000\n", CpuMax::NONE);
    check_read(&CPU_MAX, "20000 50000\n", CpuMax { quota: Limit::At(20_000), period: 50_000 });
    let usage =
        CpuStat { usage: Nanos(7_000), user: Nanos(4_000), system: Nanos(3_000), ..CpuStat::default() };
    let text = "usage_usec 7\nuser_usec 4\nsystem_usec 3\n";
    check_read(&CPU_STAT, text, usage);
    let throttled = CpuStat { nr_periods: 5, nr_throttled: 2, throttled: Nanos(9_000), ..usage };
    let text = format!("{text}nice_usec 0\nnr_periods 5\nnr_throttled 2\nthrottled_usec 9\nnr_bursts 0\n");
    check_read(&CPU_STAT, &text, throttled);
    check_malformed(&CPU_WEIGHT, "-1\n", "the number");
    check_malformed(&CPU_MAX, "100\n", "the period");
    check_malformed(&CPU_MAX, "most 100\n", "the quota");
    check_malformed(&CPU_STAT, "user_usec 4\n", "usage_usec");
}

#[test]
fn files_of_memory_read_as_they_are_documented() {
    for file in [MEMORY_MIN, MEMORY_LOW, MEMORY_HIGH, MEMORY_MAX] {
        check_read(&file, "max\n", Limit::Max);
        check_read(&file, "4096\n", Limit::At(4096));
        check_malformed(&file, "-1\n", "the number, or max,");
    }
    check_read(&MEMORY_CURRENT, "12288\n", 12_288);
    let text = "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 0\n";
    check_read(&MEMORY_EVENTS, text, MemoryEvents { low: 1, high: 2, max: 3, oom: 4, oom_kill: 5 });
    let some = Stall {
        avg10: Hundredths(1234),
        avg60: Hundredths(5),
        avg300: Hundredths(10_000),
        total: Nanos(77_000),
    };
    let text = "some avg10=12.34 avg60=0.05 avg300=100.00 total=77\n";
    check_read(&MEMORY_PRESSURE, text, Pressure { some, full: None });
    let text = format!("{text}full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    check_read(&MEMORY_PRESSURE, &text, Pressure { some, full: Some(Stall::default()) });
    check_malformed(&MEMORY_PRESSURE, "some avg10=0.00 avg60=0.00 total=0\n", "the line `some`");
}

#[test]
fn files_of_io_read_as_they_are_documented() {
    let weights =
        |devices: &[(Device, u64)]| IoWeights { default: 100, devices: devices.iter().copied().collect() };
    check_read(&IO_WEIGHT, "default 100\n", weights(&[]));
    check_read(&IO_BFQ_WEIGHT, "default 100\n8:16 250\n", weights(&[(SDB, 250)]));
    check_malformed(&IO_WEIGHT, "8:16 250\n", "the default");
    check_malformed(&IO_WEIGHT, "default 100\nsdb 250\n", "a disk");
    let max = IoMax { rbps: Limit::At(2_097_152), wiops: Limit::At(120), ..IoMax::NONE };
    check_read(&IO_MAX, "", PerDevice::new());
    let text = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n";
    check_read(&IO_MAX, text, PerDevice::from([(SDB, max)]));
    check_malformed(&IO_MAX, "8:16 rbps=2097152 wbps=max\n", "a bound of a disk");
    let stat = IoStat { rbytes: 1, wbytes: 2, rios: 3, wios: 4, dbytes: 5, dios: 6 };
    // A disk of which nothing is said may share its line with the next.
    let text = "7:1 7:0 8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.usage=9\n8:0 \n";
    check_read(&IO_STAT, text, PerDevice::from([(SDB, stat)]));
    let text = "8:16 enable=1 ctrl=auto rpct=95.00 rlat=75000 wpct=95.5 wlat=150000 min=50.00 max=150.00\n";
    let qos = CostQos {
        enable: true,
        ctrl: Cost::Auto,
        rpct: Hundredths(9500),
        rlat: 75_000,
        wpct: Hundredths(9550),
        wlat: 150_000,
        min: Hundredths(5000),
        max: Hundredths(15_000),
    };
    check_read(&IO_COST_QOS, text, PerDevice::from([(SDB, qos)]));
    check_malformed(&IO_COST_QOS, "8:16 enable=1 ctrl=auto rpct=95.001\n", "a setting of a disk");
    let text = "8:16 ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6\n";
    let model = CostModel {
        ctrl: Cost::User,
        rbps: 1,
        rseqiops: 2,
        rrandiops: 3,
        wbps: 4,
        wseqiops: 5,
        wrandiops: 6,
    };
    check_read(&IO_COST_MODEL, text, PerDevice::from([(SDB, model)]));
}

#[test]
fn values_are_spelt_as_the_kernel_takes_them() {
    check_written(&CPU_WEIGHT, &250, "250");
    check_written(&CPU_MAX, &CpuMax::NONE, "max 100000");
    check_written(&MEMORY_MIN, &Limit::At(4096), "4096");
    check_written(&MEMORY_MAX, &Limit::Max, "max");
    check_written(&IO_WEIGHT, &DeviceWeight::Default(200), "default 200");
    check_written(&IO_WEIGHT, &DeviceWeight::Of(SDB, 200), "8:16 200");
    check_written(&IO_BFQ_WEIGHT, &DeviceWeight::Unset(SDB), "8:16 default");
    let max = IoMax { rbps: Limit::At(1), ..IoMax::NONE };
    check_written(&IO_MAX, &DeviceIoMax(SDB, max), "8:16 rbps=1 wbps=max riops=max wiops=max");
    let off = CostQos::default();
    check_written(&IO_COST_QOS, &CostSettings::Qos(SDB, off), "8:16 enable=0 ctrl=auto");
    let user = CostQos { enable: true, ctrl: Cost::User, rpct: Hundredths(9500), ..off };
    let text = "8:16 enable=1 ctrl=user rpct=95.00 rlat=0 wpct=0.00 wlat=0 min=0.00 max=0.00";
    check_written(&IO_COST_QOS, &CostSettings::Qos(SDB, user), text);
    let model = CostModel { ctrl: Cost::User, rbps: 9, ..CostModel::default() };
    let text = "8:16 ctrl=user model=linear rbps=9 rseqiops=0 rrandiops=0 wbps=0 wseqiops=0 wrandiops=0";
    check_written(&IO_COST_MODEL, &CostSettings::Model(SDB, model), text);
    check_written(&IO_COST_MODEL, &CostSettings::Model(SDB, CostModel::default()), "8:16 ctrl=auto");
}

/// What is read was written so, for every value.
#[test]
fn bounds_survive_being_written() {
    for limit in [Limit::Max, Limit::At(0), Limit::At(u64::MAX)] {
        assert_eq!(Limit::parse(&limit.spell()), Ok(limit));
        let max = CpuMax { quota: limit, period: 1_000 };
        assert_eq!(CpuMax::parse(&max.spell()), Ok(max));
    }
    for n in [0, 5, 50, 99, 100, 1234, 1_000_001] {
        assert_eq!(Hundredths::word(&Hundredths(n).to_string()), Some(Hundredths(n)));
    }
    assert!(Limit::At(u64::MAX) < Limit::Max, "no bound is above every bound");
}

#[test]
fn controllers_and_processes_are_lists() {
    let files = [
        ("cgroup.controllers", "cpuset cpu io memory pids\n"),
        ("cgroup.subtree_control", "memory\n"),
        ("cgroup.procs", "12\n0\n7\n"),
    ];
    let (dir, cgroup) = fixture(&files);
    assert_eq!(cgroup.controllers().expect("readable"), Controller::ALL);
    assert_eq!(cgroup.enabled().expect("readable"), [Controller::Memory]);
    let pids: Vec<i32> =
        cgroup.processes().expect("readable").iter().map(|p| p.as_raw_nonzero().get()).collect();
    // Process 0 is one that our namespace does not have.
    assert_eq!(pids, [12, 7]);
    // The root has no type, and may have processes.
    let control = || fs::read_to_string(dir.path().join("cgroup.subtree_control")).expect("readable");
    cgroup.enable(Controller::Io, true).expect("writable");
    assert_eq!(control(), "+io");
    fs::write(dir.path().join("cgroup.type"), "domain\n").expect("a file");
    cgroup.enable(Controller::Io, false).expect("writable");
    let text = cgroup.enable(Controller::Cpu, true).expect_err("processes").to_string();
    assert!(text.contains("processes are in it"), "{text}");
    assert_eq!(control(), "-io", "nothing is written");
}

#[test]
fn a_refusal_names_file_value_cgroup_and_what_helps() {
    let (dir, cgroup) = fixture(&[]);
    let path = dir.path().display().to_string();
    let text = cgroup.set(&MEMORY_MIN, &Limit::At(5)).expect_err("no such file").to_string();
    assert!(text.starts_with(&format!("write memory.min=5 in {path}: No such file")), "{text}");
    assert!(text.contains("+memory in cgroup.subtree_control"), "{text}");
    let text = cgroup.get(&CPU_WEIGHT).expect_err("no such file").to_string();
    assert!(text.starts_with(&format!("read cpu.weight in {path}: ")) && text.contains("+cpu"), "{text}");
    for (cause, takes) in [(Errno::RANGE, "it takes 1 to 1000, for"), (Errno::NODEV, "there is no such disk")]
    {
        let of = Some((Controller::Io, "1 to 1000, for a disk"));
        let text = cgroup.refused("write", "io.bfq.weight", Some("8:0 5"), cause, of).to_string();
        assert!(text.contains("io.bfq.weight=8:0 5") && text.contains(takes), "{text}");
    }
    let text = cgroup.refused("write", PROCS, Some("5"), Errno::ACCESS, None).to_string();
    assert!(text.contains(FIX), "{text}");
    let text = Cgroup::open(dir.path()).expect_err("no cgroup").to_string();
    assert!(text.contains("no cgroup of version 2") && text.contains("cgroup_no_v1=all"), "{text}");
    let text = Cgroup::open(&dir.path().join("none")).expect_err("nothing").to_string();
    assert!(text.contains("there is no such cgroup"), "{text}");
}

#[test]
fn another_under_the_same_name_is_not_the_first() {
    let (dir, around) = fixture(&[]);
    let first = around.make("a").expect("made");
    let text = around.make("a").expect_err("there already").to_string();
    assert!(text.contains("make a in") && text.contains("there already"), "{text}");
    assert!(first.exists());
    // Kept open, so that the file system cannot give its number to the next.
    let kept = fs::File::open(dir.path().join("a")).expect("a directory");
    around.remove("a").expect("empty");
    around.remove("a").expect("gone already");
    assert!(!first.exists());
    fs::create_dir(dir.path().join("a")).expect("made by somebody else");
    fs::write(dir.path().join("a/cpu.weight"), "100").expect("a file");
    assert!(!first.exists());
    let text = first.get(&CPU_WEIGHT).expect_err("removed").to_string();
    assert!(text.contains("was removed by somebody else"), "{text}");
    assert_eq!(around.child("a").expect("there").get(&CPU_WEIGHT).expect("readable"), 100);
    drop(kept);
}
