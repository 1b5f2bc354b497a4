//! Values that read well and cannot be.

use divvy_policy::Share;

use super::{EventOp, Scenario, ScenarioError, Shares, StepSpec};
use crate::workload::Dist;

/// The most clients that a scenario may have from the start.
const CLIENTS_MAX: u64 = 10_000_000;

type Checked = Result<(), ScenarioError>;

fn fail(key: impl AsRef<str>, message: impl Into<String>) -> Checked {
    Err(ScenarioError::new(key.as_ref(), message))
}

/// Finds the first impossible value of a scenario.
///
/// # Errors
/// [`ScenarioError`] with its key and what was expected; the line is not known here.
pub fn check(scenario: &Scenario) -> Checked {
    check_machine(scenario)?;
    check_shares(scenario)?;
    check_clients(scenario)?;
    check_totals(scenario)?;
    check_events(scenario)?;
    check_run(scenario)?;
    check_resolution(scenario)?;
    if scenario.replications == 0 {
        return fail("replications", "0, expected at least 1");
    }
    for (key, values) in &scenario.sweep {
        if values.is_empty() {
            return fail(format!("sweep.{key}"), "no values, expected at least one");
        }
    }
    Ok(())
}

fn check_machine(scenario: &Scenario) -> Checked {
    let machine = &scenario.machine;
    if !(1..=4096).contains(&machine.cpus) {
        return fail("machine.cpus", format!("{}, expected a whole number from 1 to 4096", machine.cpus));
    }
    if machine.tick.is_some_and(|tick| tick.0 == 0) {
        return fail("machine.tick", "0, expected more than 0");
    }
    if scenario.quantum.is_some_and(|quantum| quantum.0 == 0) {
        return fail("quantum", "0, expected more than 0");
    }
    check_decider(scenario)
}

fn check_decider(scenario: &Scenario) -> Checked {
    let Some(gate) = &scenario.gate else {
        if scenario.policy.name.is_empty() {
            return fail("policy", "missing, expected a policy's name, or a gate's as gate");
        }
        if scenario.kernel.is_some() {
            return fail("kernel", "has no meaning without gate: the policy is the kernel");
        }
        return Ok(());
    };
    if gate.name.is_empty() {
        return fail("gate.name", "empty, expected a gate's or dispatcher's name");
    }
    if !scenario.policy.name.is_empty() {
        return fail("policy", "both policy and gate, expected one of them");
    }
    let machine = &scenario.machine;
    let plain = super::MachineSpec { cpus: machine.cpus, ..super::MachineSpec::default() };
    if *machine != plain {
        return fail("machine", "with a gate only cpus has a meaning; see kernel");
    }
    let kernel = scenario.kernel.unwrap_or_default();
    if kernel.tick.0 == 0 {
        return fail("kernel.tick", "0, expected more than 0");
    }
    if kernel.latency.low > kernel.latency.high {
        return fail("kernel.latency.low", "more than high");
    }
    match kernel.steal {
        Some(steal) if steal.every.0 == 0 => fail("kernel.steal.every", "0, expected more than 0"),
        _ => Ok(()),
    }
}

fn check_share(key: impl Fn() -> String, share: u64) -> Checked {
    Share::new(share).map(|_| ()).or_else(|error| fail(key(), format!("{share}: {error}")))
}

fn check_shares(scenario: &Scenario) -> Checked {
    match &scenario.shares {
        None => Ok(()),
        Some(Shares::List(list)) => {
            if list.is_empty() {
                return fail("shares", "empty, expected at least one share");
            }
            list.iter().enumerate().try_for_each(|(i, &share)| check_share(|| format!("shares[{i}]"), share))
        }
        Some(Shares::Random(spec)) => {
            let (clients, total) = (spec.random.clients, spec.random.total);
            if clients == 0 {
                return fail("shares.random.clients", "0, expected at least 1");
            }
            if total < u64::from(clients) {
                let message =
                    format!("S = {total} is less than N = {clients}, expected a share of at least 1 each");
                return fail("shares.random.total", message);
            }
            check_count("shares.random.clients".into(), clients)?;
            check_share(|| "shares.random.total".into(), total)
        }
    }
}

fn check_dist(key: String, dist: &Dist) -> Checked {
    let Some((name, message)) = dist.defect() else { return Ok(()) };
    let variant = match dist {
        Dist::Const(_) => "const",
        Dist::Uniform { .. } => "uniform",
        Dist::Exponential { .. } => "exponential",
        Dist::Hyperexponential { .. } => "hyperexponential",
        Dist::BoundedPareto { .. } => "bounded-pareto",
    };
    fail(format!("{key}.{variant}.{name}"), message)
}

/// A distribution of CPU time or of times between arrivals: zero for ever would be without end.
fn check_takes_time(key: String, dist: &Dist) -> Checked {
    if *dist == Dist::Const(super::Span(0)) {
        return fail(format!("{key}.const"), "0, expected more than 0");
    }
    check_dist(key, dist)
}

fn check_count(key: String, count: u32) -> Checked {
    if count == 0 || u64::from(count) > CLIENTS_MAX {
        return fail(key, format!("{count}, expected a whole number from 1 to {CLIENTS_MAX}"));
    }
    Ok(())
}

fn check_clients(scenario: &Scenario) -> Checked {
    for (i, client) in scenario.clients.iter().enumerate() {
        check_count(format!("clients[{i}].count"), client.count)?;
        check_share(|| format!("clients[{i}].share"), client.share)?;
        let length = |step: &StepSpec| match *step {
            StepSpec::Run(span) | StepSpec::Sleep(span) | StepSpec::Period(span) => span.0,
        };
        if !client.program.is_empty() && client.program.iter().all(|step| length(step) == 0) {
            return fail(format!("clients[{i}].program"), "takes no time, expected a step longer than 0");
        }
    }
    for (i, users) in scenario.users.iter().enumerate() {
        check_count(format!("users[{i}].count"), users.count)?;
        check_share(|| format!("users[{i}].share"), users.share)?;
        check_count(format!("users[{i}].segments"), users.segments)?;
        check_dist(format!("users[{i}].think"), &users.think)?;
        check_takes_time(format!("users[{i}].work"), &users.work)?;
        check_dist(format!("users[{i}].gap"), &users.gap)?;
    }
    for (i, source) in scenario.arrivals.iter().enumerate() {
        check_share(|| format!("arrivals[{i}].share"), source.share)?;
        check_takes_time(format!("arrivals[{i}].between"), &source.between)?;
        check_takes_time(format!("arrivals[{i}].size"), &source.size)?;
        if source.jobs == Some(0) {
            return fail(format!("arrivals[{i}].jobs"), "0, expected at least 1");
        }
    }
    for (i, job) in scenario.jobs.iter().enumerate() {
        check_share(|| format!("jobs[{i}].share"), job.share)?;
        if job.size.0 == 0 {
            return fail(format!("jobs[{i}].size"), "0, expected more than 0");
        }
    }
    let nobody = scenario.shares.is_none()
        && scenario.clients.is_empty()
        && scenario.users.is_empty()
        && scenario.arrivals.is_empty()
        && scenario.jobs.is_empty()
        && scenario.traces.is_empty()
        && scenario.events.is_empty();
    if nobody {
        return fail(
            "",
            "nobody wants the CPU, expected shares, clients, users, arrivals, jobs, traces or events",
        );
    }
    Ok(())
}

/// What fits one by one may be too much together.
fn check_totals(scenario: &Scenario) -> Checked {
    let mut clients = u64::from(nr_share_clients(scenario));
    let mut steps = 0u64;
    let too_many = |key: String, what: &str| fail(key, format!("more than {CLIENTS_MAX} {what} in all"));
    for (i, spec) in scenario.clients.iter().enumerate() {
        clients += u64::from(spec.count);
        steps = steps.saturating_add(u64::from(spec.count) * spec.program.len() as u64);
        if clients > CLIENTS_MAX {
            return too_many(format!("clients[{i}].count"), "clients");
        }
        if steps > CLIENTS_MAX {
            return too_many(format!("clients[{i}].count"), "steps of programs");
        }
    }
    for (i, users) in scenario.users.iter().enumerate() {
        clients += u64::from(users.count);
        if clients > CLIENTS_MAX {
            return too_many(format!("users[{i}].count"), "clients");
        }
    }
    Ok(())
}

/// Random times that are cut down to 0 move no time on.
fn check_resolution(scenario: &Scenario) -> Checked {
    let resolution = scenario.run.resolution;
    let users = scenario.users.iter().enumerate().map(|(i, u)| (format!("users[{i}].work"), u.work));
    let sources = scenario.arrivals.iter().enumerate().flat_map(|(i, s)| {
        [(format!("arrivals[{i}].between"), s.between), (format!("arrivals[{i}].size"), s.size)]
    });
    for (key, dist) in users.chain(sources) {
        if !matches!(dist, Dist::Const(_)) && resolution.secs() > dist.mean() {
            let message = format!(
                "{resolution}, expected at most the mean of {key}, {} s: most of its times would be cut down to 0",
                dist.mean()
            );
            return fail("run.resolution", message);
        }
    }
    Ok(())
}

/// How many clients `shares` makes.
pub(super) fn nr_share_clients(scenario: &Scenario) -> u32 {
    match &scenario.shares {
        None => 0,
        Some(Shares::List(list)) => list.len() as u32,
        Some(Shares::Random(spec)) => spec.random.clients,
    }
}

fn check_events(scenario: &Scenario) -> Checked {
    // Nobody is made twice, acted on before it is there or after it is gone.
    let mut order: Vec<usize> = (0..scenario.events.len()).collect();
    order.sort_by_key(|&i| (scenario.events[i].at, i));
    let made = nr_share_clients(scenario);
    let nr_made =
        scenario.events.iter().filter(|e| matches!(e.op, EventOp::Create | EventOp::New)).count() as u32;
    let rest: u64 = scenario.clients.iter().map(|c| u64::from(c.count)).sum::<u64>()
        + scenario.users.iter().map(|u| u64::from(u.count)).sum::<u64>();
    let total = u64::from(made) + u64::from(nr_made) + rest;
    let mut next = made;
    let mut gone = std::collections::BTreeSet::new();
    for i in order {
        let event = &scenario.events[i];
        let key = |name: &str| format!("events[{i}].{name}");
        let makes = matches!(event.op, EventOp::Create | EventOp::New);
        if makes && event.client != next {
            return fail(key("client"), format!("{}, expected the next new client, {next}", event.client));
        }
        next += u32::from(makes);
        if u64::from(event.client) >= total {
            let message =
                format!("{}, expected a client's index, 0 to {}", event.client, total.saturating_sub(1));
            return fail(key("client"), message);
        }
        if (next..made + nr_made).contains(&event.client) {
            return fail(key("client"), format!("{} does not exist yet at {}", event.client, event.at));
        }
        if gone.contains(&event.client) {
            return fail(key("client"), format!("{} has left by {}", event.client, event.at));
        }
        let wants_share = makes || event.op == EventOp::Share;
        match event.share {
            None if wants_share => return fail(key("share"), "missing, expected a share of at least 1"),
            Some(_) if !wants_share => return fail(key("share"), "has no meaning with this op"),
            Some(share) => check_share(|| key("share"), share)?,
            None => {}
        }
        if event.op == EventOp::Exit {
            gone.insert(event.client);
        }
    }
    Ok(())
}

fn check_run(scenario: &Scenario) -> Checked {
    let run = &scenario.run;
    if run.until.is_some() && run.quanta.is_some() {
        return fail("run.quanta", "both until and quanta, expected one of them");
    }
    if run.decisions == 0 {
        return fail("run.decisions", "0, expected at least 1");
    }
    if run.resolution.0 == 0 {
        return fail("run.resolution", "0, expected more than 0");
    }
    let end = run.until.map_or(u64::MAX, |until| until.0);
    if run.warmup.0.saturating_add(run.cooldown.0) > end {
        return fail("run.warmup", "warmup and cooldown leave nothing of the run");
    }
    if run.cooldown.0 > 0 && run.until.is_none() {
        return fail("run.cooldown", "needs run.until");
    }
    Ok(())
}
