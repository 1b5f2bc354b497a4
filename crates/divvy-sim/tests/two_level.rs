//! Scenarios with a gate above a simulated kernel.

mod common;

use common::toml;
use divvy_sim::output::Report;
use divvy_sim::scenario::Scenario;
use divvy_sim::simulate::SimError;
use divvy_sim::study::Study;

/// Without latency and cost: what a gate decides is what happens.
const IDEAL: &str = "[kernel]\ntick = \"10us\"\nlatency = { low = \"0\", high = \"0\", late-one-in = 0 }\n\
                     costs = { wake = \"0\", read = \"0\", state = \"0\", resume = \"0\", suspend = \"0\" }\n";

fn run(scenario: &Scenario) -> Report {
    divvy_sim::policies::run(scenario, scenario.seed, &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn of(text: &str) -> Report {
    run(&toml(text))
}

/// What each client received, in ns.
fn services(report: &Report) -> Vec<u64> {
    report.per_client.iter().map(|row| row.service_ns).collect()
}

#[test]
fn an_ideal_kernel_serves_as_a_machine_of_the_dispatchers_own() {
    /// Slices under way.
    const MAX_APART: u64 = 2 * 10_000_000;
    for policy in ["vtrr", "stride", "las", "pbs:alpha=2"] {
        let own = of(&format!("policy = \"{policy}\"\nshares = [3, 2, 1]\nrun.until = \"6s\""));
        let above = of(&format!("gate = \"{policy}\"\nshares = [3, 2, 1]\nrun.until = \"6s\"\n{IDEAL}"));
        for (own, above) in services(&own).into_iter().zip(services(&above)) {
            assert!(own.abs_diff(above) <= MAX_APART, "{policy}: {own} and {above} ns");
        }
        assert_eq!((above.time_ns, above.ended), (6_000_000_000, "until"));
        assert!((above.utilization - 1.0).abs() < 1e-9, "{policy}: {}", above.utilization);
        let gate = above.gate.unwrap();
        assert_eq!((gate.cycles, gate.own_cpu, gate.idle_ns), (0, 0.0, 0), "{policy}");
    }
}

#[test]
fn an_open_queue_is_the_same_queue() {
    /// Of each response time: jobs that never block are released one after another.
    const MAX_APART: u64 = 1_000;
    let queue = "run.until = \"100s\"\nmeasure.responses = 1000\n[[arrivals]]\nbetween = { exponential = { mean = \"500ms\" } \
                 }\nsize = { uniform = { low = \"100ms\", high = \"500ms\" } }\n";
    let own = of(&format!("policy = \"fcfs\"\n{queue}")).responses.unwrap();
    let above = of(&format!("gate = \"fcfs\"\n{queue}{IDEAL}")).responses.unwrap();
    assert!(own.count > 100);
    assert_eq!(own.first_ns.len(), above.first_ns.len());
    for (own, above) in own.first_ns.iter().zip(&above.first_ns) {
        assert!(own.abs_diff(*above) <= MAX_APART, "{own} and {above} ns");
    }
}

#[test]
fn what_is_measured_is_what_truly_happened() {
    let report = of("gate = \"exact\"\nshares = [1, 2, 3]\nrun.until = \"30s\"\nmeasure.runs = 100000");
    let all: u64 = services(&report).iter().sum();
    // What the clients did not get, the gate took or left idle.
    let gate = report.gate.unwrap();
    let own = (gate.own_cpu * report.time_ns as f64).round() as u64;
    assert_eq!(all + own + gate.idle_ns, report.time_ns);
    let runs = &report.timeline.as_ref().unwrap().runs;
    for (client, service) in services(&report).into_iter().enumerate() {
        let ran: u64 = runs.iter().filter(|run| run.2 as usize == client).map(|run| run.1 - run.0).sum();
        assert_eq!(ran, service);
    }
    assert!(gate.cycles > 400 && gate.cycle_error.unwrap().median < 0.01, "{gate:?}");
    // Each has its fraction, to within a cycle of 60 ms and what the gate cost.
    for (row, share) in report.per_client.iter().zip(1..) {
        let due = all * share / 6;
        assert!(row.service_ns.abs_diff(due) <= 60_000_000, "{row:?}");
    }
    assert!(report.schedule.is_none() && report.service_error.is_some());
}

#[test]
fn scripts_make_stop_and_reshare_clients() {
    let report = of(&format!(
        "gate = \"stride\"\nrun.until = \"4s\"\nevents = [\n\
         {{ at = \"0\", op = \"new\", client = 0, share = 1 }},\n{{ at = \"0\", op = \"new\", client = 1, share = 1 }},\n\
         {{ at = \"1s\", op = \"block\", client = 0 }},\n{{ at = \"2s\", op = \"wake\", client = 0 }},\n\
         {{ at = \"2s\", op = \"share\", client = 1, share = 3 }},\n{{ at = \"3s\", op = \"exit\", client = 1 }}]\n{IDEAL}"
    ));
    // 500 + 0 + 250 + 1000 ms and 500 + 1000 + 750 ms; a wake is seen within 100 ms, and nothing before.
    let used = services(&report);
    let due = [1_750_000_000u64, 2_250_000_000];
    for (used, due) in used.iter().zip(due) {
        assert!(used.abs_diff(due) <= 110_000_000, "{used} of {due}");
    }
    let left = report.per_client[1].finished_ns.unwrap();
    assert_eq!((left, report.per_client[0].finished_ns), (3_000_000_000, None));
    let create = of(&format!(
        "gate = \"exact\"\nrun.until = \"1s\"\nshares = [1]\nevents = [\n{{ at = \"100ms\", op = \"create\", client = 1, \
         share = 1 }}]\n{IDEAL}"
    ));
    // Who was created asleep gets nothing, and a look is what it costs the other to find that out.
    let used = services(&create);
    assert!(used[0] >= 990_000_000 && used[1] == 0, "{used:?}");
}

#[test]
fn runs_end_as_they_should() {
    let jobs =
        of("gate = \"las\"\njobs = [{ at = \"1s\", size = \"100ms\" }, { at = \"5s\", size = \"1ms\" }]");
    assert_eq!((jobs.ended, jobs.responses.unwrap().count), ("finished", 2));
    assert!((5_001_000_000..5_100_000_000).contains(&jobs.time_ns), "{}", jobs.time_ns);
    let cut = of("gate = \"exact\"\nshares = [1, 1]\nrun = { until = \"60s\", decisions = 50 }");
    assert_eq!(cut.ended, "decision-limit");
    for endless in
        ["shares = [1]", "[[clients]]\nshare = 2", "[[clients]]\nprogram = [{ run = \"1ms\" }]\nrepeat = 0"]
    {
        let refused = divvy_sim::policies::run(&toml(&format!("gate = \"exact\"\n{endless}")), 1, &[]);
        let Err(SimError::Scenario(error)) = refused else { panic!("{refused:?}") };
        assert_eq!((error.key(), error.message.contains("somebody never leaves")), ("run".into(), true));
    }
}

#[test]
fn wrong_gates_are_named() {
    for (gate, key, message) in [
        ("exakt", "gate.name", "unknown policy 'exakt': the policies are exact, alps"),
        ("gps", "gate.name", "gps is a model, which only simulations take"),
        (
            "pbs:alpha=20",
            "gate.params.alpha",
            "20 is out of range, expected 1/16 to 16; with guard=study 0, -0, inf, and 2^-20 to 1024 of either sign",
        ),
        ("exact:slice=1us", "gate.params", "a slice of 1 us is shorter than 1 ms"),
    ] {
        let scenario = toml(&format!("gate = \"{gate}\"\nshares = [1]\nrun.until = \"1s\""));
        let Err(SimError::Scenario(error)) = divvy_sim::policies::run(&scenario, 1, &[]) else {
            panic!("{gate} was taken");
        };
        assert_eq!(error.key(), key, "{gate}");
        assert!(error.message.starts_with(message), "{gate}: {}", error.message);
    }
    let short = toml("gate = \"exact\"\nquantum = \"1us\"\nshares = [1]\nrun.until = \"1s\"");
    let Err(SimError::Scenario(error)) = divvy_sim::policies::run(&short, 1, &[]) else { panic!("taken") };
    assert_eq!(error.key(), "quantum");
}

#[test]
fn equal_scenarios_give_equal_bytes_and_grids_set_the_gate() {
    let text = "gate = \"pbs:beta=1\"\nrun.until = \"20s\"\nmeasure.runs = 1000\nmachine.cpus = 2\n[kernel]\nstrangers = 1\n\
                steal = { every = \"300ms\", longest = \"20ms\" }\n[[users]]\ncount = 4\nthink = { exponential = { mean = \"1s\" \
                } }\nwork = { exponential = { mean = \"300ms\" } }\n[sweep]\n\"gate.params.alpha\" = [0.5, 2]\n";
    let study = Study::new(&toml(text)).unwrap();
    let reports: Vec<Report> = study.items().map(|item| run(&item.scenario)).collect();
    assert_eq!(reports.len(), 2);
    assert_ne!(reports[0].to_json(), reports[1].to_json());
    let again: Vec<Report> = study.items().map(|item| run(&item.scenario)).collect();
    for (one, two) in reports.iter().zip(&again) {
        assert_eq!(one.to_json(), two.to_json());
        assert!(one.gate.unwrap().stolen_ns > 0 && one.responses.as_ref().unwrap().count > 10);
    }
    let summary = study.merge(reports.into_iter().enumerate().collect());
    assert!(summary.points.iter().all(|row| row.policy == "pbs" && row.measures.contains_key("own_cpu")));
}
