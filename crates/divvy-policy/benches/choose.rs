//! VTRR, Figure 3: what one scheduling decision costs, by number of clients. One decision is: the CPU comes free, a
//! client is chosen, and is charged for its quantum.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::dispatch::{lottery, stride, vtrr, wfq};
use divvy_policy::{ClientId, CpuId, Event, Grant, Instant, Policy, Share};

/// Clients that are always runnable, shares uniform in 1 to 100, joined in random order of share.
fn populate<P: Policy>(mut policy: P, clients: u32) -> P {
    let mut rng = SplitMix64::new(1);
    for id in 0..clients {
        let client = ClientId(id);
        let share = Share::new(1 + rng.below(100)).expect("1 to 100");
        policy.on_event(Instant::ZERO, Event::Join { client, share }).expect("a new client");
        policy.on_event(Instant::ZERO, Event::Wake { client }).expect("a client that joined");
    }
    policy
}

#[inline]
fn decide<P: Policy<Decision = Grant>>(policy: &mut P) -> ClientId {
    policy.on_event(Instant::ZERO, Event::Free { cpu: CpuId(0) }).expect("CPU 0");
    let Some(Grant { client, slice, .. }) = policy.poll_decision(Instant::ZERO) else {
        unreachable!("clients are runnable")
    };
    policy.on_event(Instant::ZERO, Event::Charge { client, used: slice }).expect("a client that was granted");
    client
}

fn measure<P: Policy<Decision = Grant>>(c: &mut Criterion, name: &str, sizes: &[u32], make: impl Fn() -> P) {
    let mut group = c.benchmark_group("choose");
    for &clients in sizes {
        let mut policy = populate(make(), clients);
        // Past the start, where all virtual times are equal.
        for _ in 0..3 * clients {
            decide(&mut policy);
        }
        group.bench_with_input(BenchmarkId::new(name, clients), &clients, |b, _| {
            b.iter(|| decide(&mut policy))
        });
    }
    group.finish();
}

fn choose(c: &mut Criterion) {
    let all = [1, 10, 50, 100, 200, 1_000, 10_000, 100_000];
    let few = &all[..6];
    measure(c, "vtrr", &all, || {
        let insert = vtrr::Insert::Classes { max_share: 1_000 };
        vtrr::Vtrr::new(vtrr::VtrrParams { insert, ..Default::default() }).expect("parameters in range")
    });
    measure(c, "vtrr-whole-reset", &all, || {
        let (insert, reset) = (vtrr::Insert::Classes { max_share: 1_000 }, vtrr::Reset::Whole);
        vtrr::Vtrr::new(vtrr::VtrrParams { insert, reset, ..Default::default() })
            .expect("parameters in range")
    });
    measure(c, "wfq-heap", &all, || wfq::Wfq::new(wfq::WfqParams::default()).expect("parameters in range"));
    measure(c, "wfq-list", few, || {
        let params = wfq::WfqParams { queue: wfq::Queue::List, ..Default::default() };
        wfq::Wfq::new(params).expect("parameters in range")
    });
    measure(c, "stride-heap", &all, || {
        stride::Stride::new(stride::StrideParams::default()).expect("parameters in range")
    });
    measure(c, "lottery-tree", &all, || {
        lottery::Lottery::new(lottery::LotteryParams::default()).expect("parameters in range")
    });
    measure(c, "lottery-list", few, || {
        let params = lottery::LotteryParams { search: lottery::Search::List, ..Default::default() };
        lottery::Lottery::new(params).expect("parameters in range")
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600));
    targets = choose
}
criterion_main!(benches);
