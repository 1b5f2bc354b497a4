//! Cost of one wake-up of a gate: the time it waits for, the question, its answer, and all decisions until there are none.
//!
//! Clients compute and have 5 shares each. The cost of `exact` must be flat from 10 to 100,000 clients, within 2x.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use divvy_policy::gate::{Alps, AlpsParams, AlpsVariant, Exact, ExactParams, Lag, Scale};
use divvy_policy::{ClientId, Event, Gate, Instant, Nanos, Policy, Share};

/// A machine on which released clients run, one on each CPU, and wake-ups come when they were asked for.
struct Machine<P> {
    policy: P,
    now: Instant,
    /// When a client was released or last measured, while it is released.
    running: Vec<Option<Instant>>,
}

impl<P: Policy<Decision = Gate>> Machine<P> {
    fn new(policy: P, clients: u32) -> Self {
        let mut machine = Self { policy, now: Instant::ZERO, running: vec![None; clients as usize] };
        for client in (0..clients).map(ClientId) {
            let share = Share::new(5).expect("5 is a share");
            machine.event(Event::Join { client, share });
            machine.event(Event::Wake { client });
        }
        machine.decide();
        machine
    }

    fn event(&mut self, event: Event) {
        self.policy.on_event(self.now, event).expect("the policy knows the client");
    }

    fn decide(&mut self) -> u32 {
        let mut decisions = 0;
        while let Some(decision) = self.policy.poll_decision(self.now) {
            decisions += 1;
            match decision {
                Gate::Release { client, .. } => self.running[client.index()] = Some(self.now),
                Gate::Hold { client } => self.running[client.index()] = None,
                Gate::Behind { .. } => {}
                Gate::Measure { client } => {
                    let since = self.running[client.index()].replace(self.now).unwrap_or(self.now);
                    self.event(Event::Charge { client, used: self.now - since });
                }
                Gate::Observe { client } => self.event(Event::Wake { client }),
                Gate::CycleEnd { .. } => {}
            }
        }
        decisions
    }

    fn wake_up(&mut self) -> u32 {
        self.now = self.policy.poll_timeout().expect("somebody runs");
        self.decide()
    }
}

fn exact(c: &mut Criterion) {
    let params = |cpus| ExactParams { cpus, ..ExactParams::default() };
    wake_ups(c, "exact_wakeup_1_cpu", || Exact::new(params(1)).expect("valid parameters"));
    wake_ups(c, "exact_wakeup_2_cpu", || Lag::new(params(2)).expect("valid parameters"));
}

fn wake_ups<P: Policy<Decision = Gate>>(c: &mut Criterion, name: &str, policy: impl Fn() -> P) {
    let mut group = c.benchmark_group(name);
    for clients in [10u32, 100, 1_000, 10_000, 100_000] {
        let mut machine = Machine::new(policy(), clients);
        // Everybody has run before it is measured: a cycle is that many wake-ups and looks in between.
        for _ in 0..clients * 4 {
            machine.wake_up();
        }
        group.bench_function(BenchmarkId::from_parameter(clients), |b| b.iter(|| machine.wake_up()));
    }
}

fn published(c: &mut Criterion) {
    let mut group = c.benchmark_group("alps_wakeup");
    for clients in [10u32, 100, 1_000, 10_000] {
        let params = AlpsParams {
            quantum: Nanos::from_millis(10),
            variant: AlpsVariant::OptimizedIo,
            scale: Scale::AsGiven,
        };
        let mut machine = Machine::new(Alps::new(params).expect("valid parameters"), clients);
        group.bench_function(BenchmarkId::from_parameter(clients), |b| b.iter(|| machine.wake_up()));
    }
}

criterion_group!(benches, exact, published);
criterion_main!(benches);
