//! Cost of one decision (hand the CPU back, charge, choose) over the number of runnable clients.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use divvy_policy::dispatch::fixed::Fixed;
use divvy_policy::dispatch::linux22::{Linux22, Linux22Params};
use divvy_policy::dispatch::pbs::{Alpha, Guard, Pbs, PbsParams, Search};
use divvy_policy::{ClientId, CpuId, Event, Grant, Instant, Nanos, Policy, Share};

const SIZES: [u32; 10] = [1, 2, 7, 10, 50, 100, 200, 1_000, 10_000, 100_000];

/// Clients that joined 1 ms apart, each charged once, and a CPU that runs the first of them.
fn machine<P: Policy<Decision = Grant>>(mut policy: P, n: u32) -> (P, Instant, Grant) {
    let mut now = Instant(0);
    for id in 0..n {
        now = now + Nanos::from_millis(1);
        let client = ClientId(id);
        policy.on_event(now, Event::Join { client, share: Share::ONE }).expect("a new id");
        policy.on_event(now, Event::Wake { client }).expect("joined");
        // Any spread of services will do.
        let used = Nanos(1_000 + u64::from(id).wrapping_mul(0x9e37_79b9) % 1_000_000);
        policy.on_event(now, Event::Charge { client, used }).expect("joined");
    }
    policy.on_event(now, Event::Free { cpu: CpuId(0) }).expect("CPU 0 exists");
    let grant = policy.poll_decision(now).expect("somebody is runnable");
    (policy, now, grant)
}

fn one_decision<P: Policy<Decision = Grant>>(state: &mut (P, Instant, Grant)) {
    let (policy, now, grant) = state;
    *now = *now + grant.slice;
    let charge = Event::Charge { client: grant.client, used: grant.slice };
    policy.on_event(*now, black_box(charge)).expect("it runs");
    policy.on_event(*now, Event::Free { cpu: grant.cpu }).expect("it is granted");
    *grant = policy.poll_decision(*now).expect("somebody is runnable");
}

fn measure<P: Policy<Decision = Grant>>(c: &mut Criterion, name: &str, make: impl Fn() -> P) {
    let mut group = c.benchmark_group(name);
    for n in SIZES {
        let mut state = machine(make(), n);
        group.bench_function(BenchmarkId::from_parameter(n), |b| b.iter(|| one_decision(&mut state)));
    }
    group.finish();
}

fn choose(c: &mut Criterion) {
    let params = PbsParams { guard: Guard::Study, ..PbsParams::default() };
    let alpha = Alpha::Finite(Fixed(3 << 30));
    let pbs = |params| move || Pbs::new(params).expect("possible parameters");
    measure(c, "pbs_scan", pbs(PbsParams { alpha, ..params }));
    let search = Search::Sample { keep: 2, sample: 2 };
    measure(c, "pbs_o1", pbs(PbsParams { alpha, search, ..params }));
    measure(c, "linux-2.2", || Linux22::new(Linux22Params::default()).expect("possible parameters"));
}

criterion_group!(benches, choose);
criterion_main!(benches);
