//! The machine by hand: exact times of runs and sleeps, ticks, switches, several CPUs, limits.

mod common;

use common::{Rule, Small, Smalls, run, toml};
use divvy_policy::{ClientId, CpuId, Event, EventError, Grant, Instant, Nanos, Policy};
use divvy_sim::machine::{Config, End, Limits, Machine, MachineError};
use divvy_sim::scenario::{
    Format, PolicyContext, PolicyError, PolicyFactory, PolicySpec, PolicyVisitor, Scenario,
};
use divvy_sim::simulate::{SimError, simulate};
use divvy_sim::workload::{Endless, Mix, Population};

/// Runs of a scenario as (from ms, to ms, client, cpu).
fn runs(text: &str) -> Vec<(u64, u64, u32, u32)> {
    let report = run(&toml(&format!("measure.runs = 1000\n{text}")));
    let timeline = report.timeline.unwrap();
    assert_eq!(timeline.nr_runs as usize, timeline.runs.len());
    let ms = |ns: u64| {
        assert_eq!(ns % 1_000_000, 0, "{ns}");
        ns / 1_000_000
    };
    timeline.runs.iter().map(|&(from, to, client, cpu)| (ms(from), ms(to), client, cpu)).collect()
}

const SLEEPER: &str = "
    [[clients]]
    program = [{ run = \"3ms\" }, { sleep = \"5ms\" }, { run = \"4ms\" }]
    [[clients]]
    program = [{ run = \"20ms\" }]
";

#[test]
fn runs_and_sleeps_are_exact() {
    // Client 0 runs 0-3, sleeps to 8; FCFS lets client 1 finish at 23; then 4 ms more.
    assert_eq!(runs(&format!("policy = \"fcfs\"\n{SLEEPER}")), [(0, 3, 0, 0), (3, 23, 1, 0), (23, 27, 0, 0)]);
    // With a quantum of 4 ms: 1 runs 3-7 and 7-11 (0 woke at 8), 0 runs 11-15 and ends, 1 has 12 ms left.
    assert_eq!(
        runs(&format!("policy = \"rr\"\nquantum = \"4ms\"\n{SLEEPER}")),
        [(0, 3, 0, 0), (3, 11, 1, 0), (11, 15, 0, 0), (15, 27, 1, 0)]
    );
    // Decided anew at 8: round robin turns to 0, whose wake came before 1 went to the end of the line.
    assert_eq!(
        runs(&format!("policy = \"rr\"\nquantum = \"4ms\"\nmachine.on-wake = \"redecide\"\n{SLEEPER}")),
        [(0, 3, 0, 0), (3, 8, 1, 0), (8, 12, 0, 0), (12, 27, 1, 0)]
    );
}

#[test]
fn ticks_hold_decisions_to_the_grid() {
    // Slices of 4 ms become 10 ms. Slotted: 0 blocks at 3 and the CPU idles to 10; woken at 8, it is seen at 10.
    assert_eq!(
        runs(&format!(
            "policy = \"rr\"\nquantum = \"4ms\"\nmachine = {{ tick = \"10ms\", on-block = \"next-tick\" }}\n{SLEEPER}"
        )),
        [(0, 3, 0, 0), (10, 20, 1, 0), (20, 24, 0, 0), (30, 40, 1, 0)]
    );
    // As in a kernel: 1 takes over at 3, until the tick at 10; 0 ends at 14 and 1 goes on at once.
    assert_eq!(
        runs(&format!("policy = \"rr\"\nquantum = \"4ms\"\nmachine = {{ tick = \"10ms\" }}\n{SLEEPER}")),
        [(0, 3, 0, 0), (3, 10, 1, 0), (10, 14, 0, 0), (14, 27, 1, 0)]
    );
}

#[test]
fn switches_cost_time_that_nobody_is_charged() {
    let scenario = toml(
        "policy = \"rr\"
         quantum = \"4ms\"
         machine.switch-cost = \"1ms\"
         measure.runs = 100
         clients = [{ count = 2, program = [{ run = \"6ms\" }] }]",
    );
    let report = run(&scenario);
    // 1 + 4, 1 + 4, 1 + 2, 1 + 2 = 16 ms.
    let starts: Vec<u64> = report.timeline.unwrap().runs.iter().map(|run| run.0 / 1_000_000).collect();
    assert_eq!(starts, [1, 6, 11, 14]);
    assert_eq!(report.time_ns, 16_000_000);
    assert_eq!((report.operations.switches, report.operations.overhead_ns), (4, 4_000_000));
    assert_eq!(report.utilization, 0.75);
    assert!(report.per_client.iter().all(|row| row.service_ns == 6_000_000));
    // Idle entries are real idleness only, not switches.
    assert_eq!(report.schedule, Some(vec![Some(0), Some(1), Some(0), Some(1)]));
}

#[test]
fn a_client_runs_on_one_cpu_at_a_time() {
    let text =
        "policy = \"rr\"\nquantum = \"10ms\"\nmachine.cpus = 2\nshares = [1, 1, 1]\nrun.until = \"60ms\"";
    let report = run(&toml(text));
    assert_eq!(report.utilization, 1.0);
    let services: Vec<u64> = report.per_client.iter().map(|row| row.service_ns / 1_000_000).collect();
    assert_eq!(services, [40, 40, 40]);
    // Two thirds of a CPU each; who waits for a whole quantum falls 2/3 behind.
    let error = report.service_error.unwrap();
    assert_eq!((error.min.to_string(), error.max.to_string()), ("-2/3".into(), "2/3".into()));
    // More CPUs than clients: each has one, and the rest idles.
    let report = run(&toml(&text.replace("cpus = 2", "cpus = 4")));
    assert_eq!(report.utilization, 0.75);
    assert_eq!(report.operations.idle_with_work_ns, 0);
    assert_eq!(report.service_error.unwrap().max.to_string(), "0");
}

#[test]
fn periods_skip_what_is_past() {
    // Period 10 ms: runs begin at 0, 10, 20. The other client delays the second by 15 ms, so the third follows at once.
    let text = "
        policy = \"fcfs\"
        [[clients]]
        program = [{ run = \"2ms\" }, { period = \"10ms\" }]
        repeat = 3
        [[jobs]]
        at = \"9ms\"
        size = \"16ms\"
    ";
    assert_eq!(runs(text), [(0, 2, 0, 0), (9, 25, 1, 0), (25, 29, 0, 0)]);
}

#[test]
fn a_run_that_cannot_end_says_so() {
    let text = "policy = \"rr\"\nshares = [1, 2]\nrun.decisions = 1000";
    let report = run(&toml(text));
    assert_eq!((report.ended, report.operations.decisions), ("decision-limit", 1000));
    // 999 quanta of 10 ms have run; the thousandth was just granted.
    assert_eq!(report.time_ns, 9_990_000_000);
    let report = run(&toml("policy = \"rr\"\nshares = [1, 2]\nrun.until = \"1s\""));
    assert_eq!((report.ended, report.time_ns), ("until", 1_000_000_000));
    let report = run(&toml("policy = \"rr\"\njobs = [{ at = \"1s\", size = \"1s\" }]"));
    assert_eq!((report.ended, report.time_ns), ("finished", 2_000_000_000));
    // FCFS never asks again once an endless client runs.
    let forever = "policy = \"fcfs\"\nshares = [1, 2]\n";
    let report = run(&toml(forever));
    assert_eq!((report.ended, report.time_ns), ("endless", 0));
    let report = run(&toml(&format!("{forever}run.until = \"3s\"")));
    assert_eq!((report.ended, report.time_ns, report.utilization), ("until", 3_000_000_000, 1.0));
    let stopped = "policy = \"rr\"\nshares = [1]\nevents = [{ at = \"25ms\", op = \"block\", client = 0 }]";
    let report = run(&toml(stopped));
    assert_eq!((report.ended, report.time_ns), ("quiet", 25_000_000));
    let report = run(&toml(&format!("run.quanta = 5\n{stopped}")));
    assert_eq!((report.ended, report.time_ns), ("until", 50_000_000));
    assert_eq!(report.schedule, Some(vec![Some(0), Some(0), Some(0), None, None, None]));
}

/// Grants whatever it is told to, once.
#[derive(Clone, Debug)]
struct Scripted(Vec<Grant>);

impl Policy for Scripted {
    type Decision = Grant;
    fn on_event(&mut self, _: Instant, event: Event) -> Result<(), EventError> {
        if let Event::Leave { client } = event { Err(EventError::UnknownClient(client)) } else { Ok(()) }
    }
    fn poll_decision(&mut self, _: Instant) -> Option<Grant> {
        self.0.pop()
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

fn run_scripted(grants: Vec<Grant>) -> Result<End, MachineError> {
    let population = Population {
        endless: vec![Endless { share: divvy_policy::Share::ONE, start: Some(Instant::ZERO) }],
        ..Population::default()
    };
    let mut machine = Machine::new(Config::new(2), Scripted(grants), Mix::new(population, 1), ());
    machine.run(&Limits { until: Instant(1_000), decisions: 100 })
}

#[test]
fn a_policy_that_breaks_its_contract_is_stopped() {
    let grant = |cpu, client, slice| Grant { cpu: CpuId(cpu), client: ClientId(client), slice: Nanos(slice) };
    let at = Instant::ZERO;
    let (zero, five) = (ClientId(0), ClientId(5));
    assert_eq!(run_scripted(vec![grant(7, 0, 1)]), Err(MachineError::NoSuchCpu { at, cpu: CpuId(7) }));
    assert_eq!(run_scripted(vec![grant(0, 5, 1)]), Err(MachineError::CannotRun { at, client: five }));
    assert_eq!(run_scripted(vec![grant(0, 0, 0)]), Err(MachineError::EmptySlice { at, client: zero }));
    // One client on two CPUs at once.
    let both = vec![grant(1, 0, 1), grant(0, 0, 1)];
    assert_eq!(run_scripted(both), Err(MachineError::CannotRun { at, client: zero }));
    assert_eq!(run_scripted(vec![grant(0, 0, 1); 20_000]), Err(MachineError::Livelock { at }));
    assert_eq!(run_scripted(vec![]), Ok(End::Stalled));
    assert_eq!(run_scripted(vec![grant(0, 0, 2_000)]), Ok(End::Until));
}

struct Refuser;

impl PolicyFactory for Refuser {
    fn with_policy<V: PolicyVisitor>(
        &self,
        _: &PolicySpec,
        _: &PolicyContext,
        visitor: V,
    ) -> Result<V::Output, PolicyError> {
        Ok(visitor.visit(Scripted(vec![Grant {
            cpu: CpuId(0),
            client: ClientId(0),
            slice: Nanos::from_secs(1),
        }])))
    }
}

#[test]
fn a_refused_event_ends_the_run_with_its_reason() {
    let scenario = toml("policy = \"x\"\njobs = [{ at = \"0\", size = \"5ns\" }]");
    let error = simulate(&scenario, 1, &[], &Refuser).unwrap_err();
    assert!(matches!(error, SimError::Machine(MachineError::Refused { at: Instant(5), .. })), "{error}");
    assert_eq!(
        error.to_string(),
        "at 5 ns the policy refused Leave { client: ClientId(0) }: client 0 never joined or has left"
    );
}

#[test]
fn memory_does_not_grow_with_time() {
    // A hundred times the jobs leave the tables of the machine as they were: ids are looked up in a moving window.
    let scenario = |until| {
        toml(&format!(
            "policy = \"fcfs\"
             run.until = \"{until}s\"
             [[arrivals]]
             between = {{ const = \"1s\" }}
             size = {{ const = \"500ms\" }}"
        ))
    };
    let plan = |scenario| divvy_sim::scenario::build(&scenario, 1, &[]).unwrap();
    let size = |until: u64| {
        let plan = plan(scenario(until));
        let policy = Small::new(Rule::Fcfs, 1, Nanos(1));
        let mut machine = Machine::new(plan.config, policy, Mix::new(plan.population, 1), ());
        machine.run(&plan.limits).unwrap();
        machine.nr_client_entries()
    };
    assert_eq!(size(100), size(10_000));
    // And the report's size neither.
    let json = |until| simulate(&scenario(until), 1, &[], &Smalls).unwrap().to_json().lines().count();
    assert_eq!(json(100), json(10_000));
}

/// Instants without decisions count too: none of these ends by itself, and `run.decisions` never bites.
#[test]
fn runs_that_do_much_and_decide_little_are_cut_off() {
    let naps = "[[clients]]\nprogram = [{ sleep = \"1ns\" }]\nrepeat = 0\n";
    let bursts = "[[users]]\ncount = 1\nthink = { const = \"0\" }\nwork = { uniform = { low = \"1ns\", high = \"3ns\" } }\n";
    for decider in ["policy = \"vtrr\"", "gate = \"exact\""] {
        for workload in [naps, bursts] {
            let text = format!("{decider}\n{workload}\n[run]\nuntil = \"100h\"\ndecisions = 1000\n");
            let scenario = Scenario::parse(&text, Format::Toml).unwrap();
            let report = divvy_sim::policies::run(&scenario, 1, &[]).unwrap();
            assert_eq!(report.ended, "event-limit", "{text}");
        }
    }
}
