//! The typed files of cgroups on the kernel itself: what is written reads back, and does what it is for.

use divvy_linux::cgroup::room::{
    CPU_MAX, CPU_PRESSURE, CPU_STAT, CPU_WEIGHT, Controller, Cost, CostModel, CostQos, CostSettings, CpuMax,
    DeviceIoMax, DeviceWeight, IO_BFQ_WEIGHT, IO_COST_MODEL, IO_COST_QOS, IO_MAX, IO_PRESSURE, IO_WEIGHT,
    IoMax, Limit, MEMORY_CURRENT, MEMORY_EVENTS, MEMORY_HIGH, MEMORY_LOW, MEMORY_MAX, MEMORY_MIN,
    MEMORY_PRESSURE,
};
use divvy_linux::{Pid, clock};
use divvy_policy::Nanos;

use super::{Child, Group, SPIN, scratch_disk, sleep};

const MIB: u64 = 1 << 20;
/// `cpu.max` and `io.max` are kept to within this fraction.
pub(super) const MAX_BOUND_ERROR: f64 = 0.05;

#[track_caller]
pub(super) fn check_near(what: &str, got: f64, due: f64, error: f64) {
    assert!((got - due).abs() <= due * error, "{what}: {got} for {due}");
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn values_read_back_as_they_were_set() {
    let group = Group::new("values");
    let cgroup = &group.cgroup;
    // The machine puts no cpusets on for the children of its root.
    let on = [Controller::Cpu, Controller::Memory, Controller::Io];
    assert_eq!(cgroup.controllers().expect("readable"), on);
    assert_eq!(cgroup.enabled().expect("readable"), []);
    assert_eq!(cgroup.get(&CPU_WEIGHT).expect("readable"), 100);
    cgroup.set(&CPU_WEIGHT, &10_000).expect("in range");
    assert_eq!(cgroup.get(&CPU_WEIGHT).expect("readable"), 10_000);
    assert_eq!(cgroup.get(&CPU_MAX).expect("readable"), CpuMax::NONE);
    for (file, value) in
        [(MEMORY_MIN, 4 * MIB), (MEMORY_LOW, 8 * MIB), (MEMORY_HIGH, 64 * MIB), (MEMORY_MAX, 128 * MIB)]
    {
        let none = if [MEMORY_MIN.name(), MEMORY_LOW.name()].contains(&file.name()) {
            Limit::At(0)
        } else {
            Limit::Max
        };
        assert_eq!(cgroup.get(&file).expect("readable"), none, "{}", file.name());
        // Whole pages.
        cgroup.set(&file, &Limit::At(value + 5)).expect("in range");
        assert_eq!(cgroup.get(&file).expect("readable"), Limit::At(value), "{}", file.name());
        cgroup.set(&file, &Limit::Max).expect("in range");
        assert_eq!(cgroup.get(&file).expect("readable"), Limit::Max, "{}", file.name());
    }
    assert_eq!(cgroup.get(&MEMORY_CURRENT).expect("readable"), 0);
    assert_eq!(cgroup.get(&MEMORY_EVENTS).expect("readable"), Default::default());
    assert_eq!(cgroup.get(&IO_WEIGHT).expect("readable").default, 100);
    assert!(cgroup.get(&IO_MAX).expect("readable").is_empty());
    for pressure in [cgroup.get(&CPU_PRESSURE), cgroup.get(&MEMORY_PRESSURE), cgroup.get(&IO_PRESSURE)] {
        assert!(pressure.expect("readable").full.is_some());
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_the_kernel_refuses_is_told_with_its_range() {
    let group = Group::new("refused");
    let cgroup = &group.cgroup;
    let text = cgroup.set(&CPU_WEIGHT, &10_001).expect_err("out of range").to_string();
    assert!(text.starts_with("write cpu.weight=10001 in /sys/fs/cgroup/refused: "), "{text}");
    assert!(text.ends_with("it takes 1 to 10000"), "{text}");
    let quota = CpuMax { quota: Limit::At(1), period: 100_000 };
    let text = cgroup.set(&CPU_MAX, &quota).expect_err("too little").to_string();
    assert!(text.contains("cpu.max=1 100000") && text.contains("at least 1000"), "{text}");
    let nowhere = divvy_linux::cgroup::room::Device { major: 250, minor: 99 };
    let text = cgroup.set(&IO_MAX, &DeviceIoMax(nowhere, IoMax::NONE)).expect_err("no disk").to_string();
    assert!(text.contains("io.max=250:99 rbps=max") && text.contains("there is no such disk"), "{text}");
    // A child of a cgroup that has nothing on for its children.
    let bare = cgroup.make("bare").expect("made");
    let text = bare.set(&MEMORY_MIN, &Limit::At(0)).expect_err("no controller").to_string();
    assert!(text.contains("memory.min=0") && text.contains("+memory in cgroup.subtree_control"), "{text}");
    let text = bare.enable(Controller::Cpu, true).expect_err("no controller").to_string();
    assert!(
        text.contains("cgroup.subtree_control=+cpu") && text.contains("put it on in the cgroup around"),
        "{text}"
    );
    let mut child = Child::start(&bare, "sleep 1000");
    let text = cgroup.remove("bare").expect_err("not empty").to_string();
    assert!(text.contains("remove bare in") && text.contains("processes or cgroups are in it"), "{text}");
    child.end();
    cgroup.remove("bare").expect("empty");
    let text = bare.get(&CPU_STAT).expect_err("removed").to_string();
    assert!(text.contains("removed by somebody else"), "{text}");
    let _child = Child::start(cgroup, "sleep 1000");
    let text = cgroup.enable(Controller::Cpu, true).expect_err("processes").to_string();
    assert!(text.contains("processes are in it") && text.contains("move them into a child"), "{text}");
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn processes_are_moved_and_counted() {
    let group = Group::new("moved");
    let child = Child::start(&group.cgroup, "sleep 1000");
    assert_eq!(group.cgroup.processes().expect("readable"), [child.pid]);
    let other = Group::new("moved-too");
    assert!(other.cgroup.take(child.pid).expect("root may"));
    assert_eq!(group.cgroup.processes().expect("readable"), []);
    let nobody = Pid::from_raw(4_000_000).expect("positive");
    assert!(!other.cgroup.take(nobody).expect("no error"));
    other.cgroup.make("child").expect("made");
    drop(child);
    other.cgroup.enable(Controller::Memory, true).expect("empty");
    let child = Child::start(&group.cgroup, "sleep 1000");
    let text = other.cgroup.take(child.pid).expect_err("not a leaf").to_string();
    assert!(text.contains("controllers are on for its children"), "{text}");
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_quota_is_kept_and_counted() {
    let group = Group::new("quota");
    group.cgroup.set(&CPU_MAX, &CpuMax { quota: Limit::At(20_000), period: 100_000 }).expect("in range");
    let _child = Child::start(&group.cgroup, SPIN);
    let stat = || group.cgroup.get(&CPU_STAT).expect("readable");
    sleep(500);
    let (from, began) = (stat(), clock::now());
    sleep(10_000);
    let (to, time) = (stat(), clock::now().since(began));
    let fraction = (to.usage.0 - from.usage.0) as f64 / time.0 as f64;
    check_near("20 % of a CPU", fraction, 0.2, MAX_BOUND_ERROR);
    assert!(to.nr_throttled > from.nr_throttled && to.throttled > Nanos::ZERO, "{to:?}");
    assert!(to.nr_periods >= to.nr_throttled);
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn memory_beyond_its_bound_is_refused() {
    let group = Group::new("bounded");
    group.cgroup.set(&MEMORY_MAX, &Limit::At(16 * MIB)).expect("in range");
    // A shell's variable is memory of its own.
    let mut child = Child::start(&group.cgroup, "x=0123456789abcdef; while :; do x=$x$x; done");
    let status = child.child.wait().expect("our child");
    assert!(!status.success(), "{status}");
    let events = group.cgroup.get(&MEMORY_EVENTS).expect("readable");
    assert!(events.oom_kill == 1 && events.max > 0, "{events:?}");
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn weights_of_disks_are_those_of_their_scheduler() {
    let (_, disk) = scratch_disk();
    let group = Group::new("weights");
    let cgroup = &group.cgroup;
    super::set_scheduler(disk, "bfq");
    assert_eq!(cgroup.get(&IO_BFQ_WEIGHT).expect("readable").default, 100);
    cgroup.set(&IO_BFQ_WEIGHT, &DeviceWeight::Default(250)).expect("in range");
    cgroup.set(&IO_BFQ_WEIGHT, &DeviceWeight::Of(disk, 500)).expect("in range");
    let weights = cgroup.get(&IO_BFQ_WEIGHT).expect("readable");
    assert_eq!((weights.default, weights.devices[&disk]), (250, 500));
    let text =
        cgroup.set(&IO_BFQ_WEIGHT, &DeviceWeight::Default(1001)).expect_err("out of range").to_string();
    assert!(text.contains("io.bfq.weight=default 1001") && text.contains("it takes 1 to 1000"), "{text}");
    super::set_scheduler(disk, "none");
    // iocost is put on in the root, for each disk.
    let root = divvy_linux::cgroup::room::Cgroup::open(super::ROOT.as_ref()).expect("mounted");
    let model = CostModel {
        ctrl: Cost::User,
        rbps: 10 * MIB,
        rseqiops: 2_000,
        rrandiops: 1_000,
        wbps: 10 * MIB,
        wseqiops: 2_000,
        wrandiops: 1_000,
    };
    root.set(&IO_COST_MODEL, &CostSettings::Model(disk, model)).expect("root may");
    assert_eq!(root.get(&IO_COST_MODEL).expect("readable")[&disk], model);
    let qos = CostQos::as_modelled(5_000);
    root.set(&IO_COST_QOS, &CostSettings::Qos(disk, qos)).expect("root may");
    assert_eq!(root.get(&IO_COST_QOS).expect("readable")[&disk], qos);
    cgroup.set(&IO_WEIGHT, &DeviceWeight::Of(disk, 400)).expect("in range");
    assert_eq!(cgroup.get(&IO_WEIGHT).expect("readable").devices[&disk], 400);
    cgroup.set(&IO_WEIGHT, &DeviceWeight::Unset(disk)).expect("in range");
    assert!(cgroup.get(&IO_WEIGHT).expect("readable").devices.is_empty());
    root.set(&IO_COST_QOS, &CostSettings::Qos(disk, CostQos::default())).expect("root may");
}
