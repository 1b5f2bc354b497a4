//! Decisions a second of the machine, with policies so small that they cost next to nothing: what is left is the
//! machine's own cost for each decision (choice, charge, hand-over).

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use divvy_policy::{ClientId, CpuId, Event, EventError, Grant, Instant, Nanos, Policy, Share};
use divvy_sim::machine::quanta::{StaticErrors, run_static};
use divvy_sim::machine::{Config, Limits, Machine, Observer};
use divvy_sim::metrics::FluidErrors;
use divvy_sim::scenario::Span;
use divvy_sim::workload::{Dist, Endless, Mix, Population, Source, Users};

/// Round robin on a queue of ids.
struct Ring {
    queue: VecDeque<ClientId>,
    lanes: Vec<Option<ClientId>>,
    asking: VecDeque<u32>,
    quantum: Nanos,
}

impl Ring {
    fn new(cpus: u32, quantum: Nanos) -> Self {
        Self { queue: VecDeque::new(), lanes: vec![None; cpus as usize], asking: VecDeque::new(), quantum }
    }
}

impl Policy for Ring {
    type Decision = Grant;

    #[inline]
    fn on_event(&mut self, _: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Wake { client } => self.queue.push_back(client),
            Event::Block { client } | Event::Leave { client } => {
                for lane in &mut self.lanes {
                    if *lane == Some(client) {
                        *lane = None;
                    }
                }
                self.queue.retain(|&c| c != client);
            }
            Event::Free { cpu } => {
                self.queue.extend(self.lanes[cpu.index()].take());
                self.asking.push_back(cpu.0);
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn poll_decision(&mut self, _: Instant) -> Option<Grant> {
        let (&cpu, client) = (self.asking.front()?, self.queue.pop_front()?);
        self.asking.pop_front();
        self.lanes[cpu as usize] = Some(client);
        Some(Grant { cpu: CpuId(cpu), client, slice: self.quantum })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

const QUANTUM: Nanos = Nanos(4_000_000);
const DECISIONS: u64 = 1_000_000;

/// Group A of PBS, section 4.2.1: eight users, six stretches of half a second, 10 ms between them, 25 s of thinking.
fn group_a() -> Population {
    let users = Users {
        group: 0,
        count: 8,
        share: Share::ONE,
        think: Dist::Exponential { mean: Span(25_000_000_000) },
        segments: 6,
        work: Dist::Const(Span(500_000_000)),
        gap: Dist::Const(Span(10_000_000)),
    };
    Population { users: vec![users], resolution: Nanos(1_000), ..Population::default() }
}

fn endless(nr: u32) -> Population {
    let one = Endless { share: Share::ONE, start: Some(Instant::ZERO) };
    Population { endless: vec![one; nr as usize], resolution: Nanos(1), ..Population::default() }
}

fn open() -> Population {
    let source = Source {
        group: 0,
        share: Share::ONE,
        between: Dist::Exponential { mean: Span(10_000_000) },
        size: Dist::Exponential { mean: Span(7_000_000) },
        jobs: None,
    };
    Population { sources: vec![source], resolution: Nanos(1), ..Population::default() }
}

fn run<O: Observer>(cpus: u32, population: &Population, observer: O) -> u64 {
    let policy = Ring::new(cpus, QUANTUM);
    let workload = Mix::new(population.clone(), 1);
    let mut machine = Machine::new(Config::new(cpus), policy, workload, observer);
    let limits = Limits { until: Instant(u64::MAX), decisions: DECISIONS };
    machine.run(&limits).expect("the ring keeps its contract");
    assert_eq!(machine.stats().decisions, DECISIONS);
    machine.stats().busy.0
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decisions");
    group.throughput(Throughput::Elements(DECISIONS)).sample_size(20);
    group.bench_function("group-a", |b| b.iter(|| run(1, black_box(&group_a()), ())));
    group.bench_function("cpu-bound-8", |b| b.iter(|| run(1, black_box(&endless(8)), ())));
    group.bench_function("cpu-bound-8-service-errors", |b| {
        b.iter(|| run(1, black_box(&endless(8)), FluidErrors::new(1)));
    });
    group.bench_function("cpu-bound-8-on-4-cpus", |b| b.iter(|| run(4, black_box(&endless(8)), ())));
    group.bench_function("open-m-m-1", |b| b.iter(|| run(1, black_box(&open()), ())));
    group.bench_function("bare-quanta-8", |b| {
        b.iter(|| {
            let shares = [Share::ONE; 8];
            let mut errors = StaticErrors::new(&[1; 8]);
            let mut policy = Ring::new(1, QUANTUM);
            run_static(&mut policy, &shares, QUANTUM, DECISIONS, |client| errors.on_quantum(client.index()))
                .expect("the ring keeps its contract");
            errors.range_scaled()
        });
    });
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
