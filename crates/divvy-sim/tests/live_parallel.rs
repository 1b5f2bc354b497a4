//! Programs of several threads and processes, as people run them, on several CPUs: each beside one of two threads that
//! computes, with shares of 3:1, 1:1 and 1:3, on a kernel that spreads threads and on one that stacks them.

mod live_common;

use divvy_policy::Nanos;
use divvy_sim::live::{MachineSpec, Placement, Program, Step};
use divvy_sim::rng::SplitMix64;
use live_common::{Load, Outcome, gate, run_for};

const CPUS: u32 = 2;
/// Points between what the program got, of what both got, and what it was to get.
const MAX_SPLIT_ERROR: f64 = 2.0;
/// Of what the machine uses with everybody released.
const MIN_USED: f64 = 0.98;
/// The same on a kernel that leaves threads where they are for milliseconds, though CPUs idle: a pipeline lives of being moved.
const MAX_SPLIT_ERROR_STACKED: f64 = 10.0;
const MIN_USED_STACKED: f64 = 0.88;
/// The loop of commands: whoever takes its CPU in a nap keeps half of it until the next look.
const MAX_SPLIT_ERROR_NAPS: f64 = 5.0;
const MIN_USED_NAPS: f64 = 0.96;
const COMMANDS: &str = "a loop of commands";

const fn us(n: u64) -> Nanos {
    Nanos::from_micros(n)
}

/// `jobs` at a time, each a process that computes for some milliseconds, waits for its input once, and ends: `make -jN`.
fn make(jobs: usize) -> Vec<Program> {
    let mut rng = SplitMix64::new(7);
    let mut job = || {
        let first = us(500 + rng.below(4_000));
        let second = us(2_000 + rng.below(40_000));
        let steps =
            vec![Step::Run(first), Step::Sleep(us(300)), Step::Run(second), Step::Give(0), Step::Exit];
        Step::Spawn(Program::repeat(steps))
    };
    let first = (1..jobs).map(|_| job()).collect();
    let round = (0..24).flat_map(|_| [Step::Run(us(400)), job(), Step::Take(0)]).collect();
    vec![Program::once_then(first, round)]
}

/// A master that hands out tasks of 200 us each to so many workers, two for each in advance: a pool of processes.
fn pool(workers: usize) -> Vec<Program> {
    let worker = Program::repeat(vec![Step::Take(0), Step::Run(us(200)), Step::Give(1)]);
    let ahead = vec![Step::Give(0); workers * 2];
    let master = Program::once_then(ahead, vec![Step::Take(1), Step::Run(us(30)), Step::Give(0)]);
    [vec![master], vec![worker; workers]].concat()
}

/// One reads, two compress, in blocks: `xz -T2`.
fn compressor() -> Vec<Program> {
    let reader = vec![Step::Take(1), Step::Run(us(300)), Step::Give(0)];
    let worker = Program::repeat(vec![Step::Take(0), Step::Run(us(9_000)), Step::Give(1)]);
    vec![Program::once_then(vec![Step::Give(1); 4], reader), worker.clone(), worker]
}

/// Three programs in a row with room for 16 pieces between two of them.
fn pipeline() -> Vec<Program> {
    let stage = |from: usize, work: u64| {
        let steps = vec![Step::Take(from), Step::Run(us(work)), Step::Give(from + 1)];
        let steps = if from == 0 { [vec![Step::Take(9)], steps[1..].to_vec()].concat() } else { steps };
        Program::repeat(steps)
    };
    // The last one gives its place back to the first.
    let last = Program::repeat(vec![Step::Take(2), Step::Run(us(150)), Step::Give(9)]);
    let source =
        Program::once_then(vec![Step::Give(9); 32], vec![Step::Take(9), Step::Run(us(250)), Step::Give(1)]);
    vec![source, stage(1, 300), last]
}

/// A shell that compiles one file after another: each command waits for its file once, makes others and waits for them. Two of them
/// are awake for moments only, and seldom none.
fn commands() -> Vec<Program> {
    let child = |work: u64, done: usize| {
        Step::Spawn(Program::repeat(vec![Step::Run(us(work)), Step::Give(done), Step::Exit]))
    };
    let steps = |work: u64, child: Step, done: usize| {
        vec![Step::Run(us(work)), child, Step::Run(us(200)), Step::Take(done)]
    };
    let file = vec![Step::Run(us(400)), Step::Sleep(us(600))];
    let driver = [file, steps(400, child(9_000, 1), 1), steps(100, child(3_000, 2), 2)].concat();
    let driver = Program::repeat([driver, vec![Step::Run(us(200)), Step::Give(0), Step::Exit]].concat());
    vec![Program::repeat(steps(300, Step::Spawn(driver), 0))]
}

/// A script that reads its modules for a while, and then starts threads that compute.
fn late(threads: usize) -> Vec<Program> {
    let start = vec![Step::Spawn(Program::compute()); threads];
    let first = [vec![Step::Run(us(150_000))], start].concat();
    vec![Program::once_then(first, vec![Step::Sleep(Nanos::from_secs(3600))])]
}

fn programs() -> Vec<(&'static str, Vec<Program>)> {
    vec![
        ("3 hashing threads", vec![Program::compute(); 3]),
        ("make -j2", make(2)),
        ("make -j4", make(4)),
        ("xz -T2", compressor()),
        ("pool of 4", pool(4)),
        ("one thread", vec![Program::compute()]),
        (COMMANDS, commands()),
        ("pipeline", pipeline()),
    ]
}

fn machine(placement: Placement, seed: u64) -> MachineSpec {
    MachineSpec { placement, ..MachineSpec::typical(CPUS, seed) }
}

fn pair(program: &[Program], shares: [u64; 2]) -> [Load; 2] {
    let beside = Load { share: shares[1], threads: vec![Program::compute(); 2] };
    [Load { share: shares[0], threads: program.to_vec() }, beside]
}

/// CPUs that a program uses when nobody is beside it, and, of two that are never held, how many both use.
fn ungated(program: &[Program], placement: Placement) -> (f64, f64) {
    let spec = gate("kernel", CPUS);
    let alone = run_for(machine(placement, 1), &spec, &pair(program, [1, 1])[..1], 1, 5);
    let both = run_for(machine(placement, 1), &spec, &pair(program, [1, 1]), 1, 5);
    (alone.utilization() * f64::from(CPUS), both.utilization())
}

/// What the program is to get of what both get: its share, or, where it cannot use that much, all that it can.
fn ideal(shares: [u64; 2], alone: f64) -> f64 {
    let part = shares[0] as f64 / (shares[0] + shares[1]) as f64;
    part.min(alone / f64::from(CPUS)) * 100.0
}

struct Row {
    name: String,
    split: f64,
    ideal: f64,
    used: f64,
    placement: Placement,
    outcome: Outcome,
}

impl Row {
    fn is_good(&self) -> bool {
        let (split, used) = match self.placement {
            Placement::Spread if self.name.starts_with(COMMANDS) => (MAX_SPLIT_ERROR_NAPS, MIN_USED_NAPS),
            Placement::Spread => (MAX_SPLIT_ERROR, MIN_USED),
            Placement::Stack => (MAX_SPLIT_ERROR_STACKED, MIN_USED_STACKED),
        };
        (self.split - self.ideal).abs() <= split && self.used >= used
    }
}

/// Runs every program with every pair of shares under `policy`.
fn rows(policy: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, program) in programs() {
        for placement in [Placement::Spread, Placement::Stack] {
            let (alone, both) = ungated(&program, placement);
            for shares in [[3, 1], [1, 1], [1, 3]] {
                let outcome =
                    run_for(machine(placement, 3), &gate(policy, CPUS), &pair(&program, shares), 2, 10);
                let row = Row {
                    name: format!("{name}, {}:{}, {placement:?}", shares[0], shares[1]),
                    split: outcome.fractions()[0] * 100.0,
                    ideal: ideal(shares, alone),
                    used: outcome.utilization() / both,
                    placement,
                    outcome,
                };
                println!(
                    "{:<32} {:5.1} of {:5.1}  used {:5.1} %  cycles {:6.2} %  own {:.2} %  {} wake-ups/s {}",
                    row.name,
                    row.split,
                    row.ideal,
                    row.used * 100.0,
                    row.outcome.median * 100.0,
                    row.outcome.own_cpu * 100.0,
                    row.outcome.wakeups / 10,
                    if row.is_good() { "" } else { "*" }
                );
                rows.push(row);
            }
        }
    }
    rows
}

#[test]
fn programs_of_several_threads_get_what_their_shares_say() {
    let bad: Vec<String> =
        rows("exact").into_iter().filter(|row| !row.is_good()).map(|row| row.name).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Two scripts of three and two threads, 1:3: the first had 72 to 87 % instead of 25 in one run of three, live.
#[test]
fn threads_that_start_late_are_not_taken_for_one() {
    for placement in [Placement::Spread, Placement::Stack] {
        for seed in 1..=50 {
            let loads = [Load { share: 1, threads: late(3) }, Load { share: 3, threads: late(2) }];
            let outcome = run_for(machine(placement, seed), &gate("exact", CPUS), &loads, 1, 4);
            let split = outcome.fractions()[0] * 100.0;
            assert!((split - 25.0).abs() <= MAX_SPLIT_ERROR, "seed {seed}, {placement:?}: {split}");
        }
    }
}

/// The programs do what their names say, or nothing above means anything.
#[test]
fn the_programs_use_several_cpus() {
    for (name, program) in programs() {
        let (alone, _) = ungated(&program, Placement::Spread);
        let expected = match name {
            "one thread" | COMMANDS => 0.99..=1.05,
            "pool of 4" | "pipeline" => 1.2..=2.0,
            _ => 1.6..=2.0,
        };
        assert!(expected.contains(&alone), "{name} uses {alone} CPUs");
    }
}
