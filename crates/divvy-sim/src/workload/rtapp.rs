//! Workloads of [rt-app](https://github.com/scheduler-tools/rt-app), the kernel schedulers' workload generator.
//!
//! Understood: `tasks` with `instance`, `loop`, `phases` (each with its own `loop`), `delay`, `priority`, and the events
//! `run` and `runtime` (microseconds of CPU time), `sleep` (microseconds) and `timer` (`period` in microseconds);
//! `global` with `duration`. Keys may carry a number (`run0`, `sleep1`), comments are allowed. Passed over, because
//! they say nothing here: `policy`, `cpus`, `nodes_membership`, `taskgroup`, and the rest of `global`. Everything else
//! (locks, signals, barriers, memory and I/O) is refused by name.

use divvy_policy::{Instant, Nanos, Share};
use serde_json::{Map, Value};

use super::{Program, Step};

/// The most steps of all tasks together: instances, phases and loops multiply.
const STEPS_MAX: usize = 10_000_000;

/// The kernel's weight of each nice value from -20 to 19 (`sched_prio_to_weight`).
const NICE_WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];

const PASSED_OVER: [&str; 6] = ["policy", "cpus", "nodes_membership", "taskgroup", "dl-runtime", "dl-period"];

/// A text is not a workload of rt-app that can be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtAppError {
    /// Where: `tasks.thread0.run`, or empty for the whole.
    pub key: String,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl std::fmt::Display for RtAppError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.key.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.key, self.message)
        }
    }
}

impl std::error::Error for RtAppError {}

fn fail<T>(key: &str, message: impl Into<String>) -> Result<T, RtAppError> {
    Err(RtAppError { key: key.into(), message: message.into() })
}

/// What an rt-app file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtApp {
    /// The tasks by name, each instance one.
    pub programs: Vec<(String, Program)>,
    /// How long rt-app would run, if it says.
    pub duration: Option<Nanos>,
}

/// The programs in an rt-app JSON text, groups numbered from `first_group` in the order of `tasks`.
///
/// # Errors
/// [`RtAppError`] with the key and what was expected.
pub fn parse_rt_app(text: &str, first_group: u32) -> Result<RtApp, RtAppError> {
    let root: Value = match serde_json::from_str(&without_comments(text)) {
        Ok(root) => root,
        Err(error) => return fail("", error.to_string()),
    };
    let Some(tasks) = root.get("tasks").and_then(Value::as_object) else {
        return fail("tasks", "missing, expected a table of tasks");
    };
    let duration = match root.pointer("/global/duration") {
        None => None,
        Some(value) => match value.as_i64() {
            Some(-1) => None,
            Some(seconds) if seconds > 0 => Some(Nanos::from_secs(seconds as u64)),
            _ => return fail("global.duration", "expected whole seconds, or -1"),
        },
    };
    let (mut programs, mut nr_steps) = (Vec::new(), 0usize);
    for (index, (name, task)) in tasks.iter().enumerate() {
        let key = format!("tasks.{name}");
        let Some(task) = task.as_object() else { return fail(&key, "expected a table") };
        let program = read_task(&key, task, first_group + index as u32)?;
        let instances = count(&key, task, "instance", 1)?;
        // As much as a program's own place for each instance, however few its steps.
        nr_steps = nr_steps.saturating_add((instances as usize).saturating_mul(program.steps.len() + 1));
        if nr_steps > STEPS_MAX {
            return fail(&key, format!("more than {STEPS_MAX} steps of all instances in all"));
        }
        for instance in 0..instances {
            let name = if instances == 1 { name.clone() } else { format!("{name}-{instance}") };
            programs.push((name, program.clone()));
        }
    }
    Ok(RtApp { programs, duration })
}

fn count(key: &str, table: &Map<String, Value>, name: &str, default: u64) -> Result<u64, RtAppError> {
    match table.get(name).map(|value| value.as_u64()) {
        None => Ok(default),
        Some(Some(n)) if (1..=100_000).contains(&n) => Ok(n),
        Some(_) => fail(&format!("{key}.{name}"), "expected a whole number from 1 to 100000"),
    }
}

fn read_task(key: &str, task: &Map<String, Value>, group: u32) -> Result<Program, RtAppError> {
    let share = match task.get("priority") {
        None => NICE_WEIGHTS[20],
        Some(value) => match value.as_i64() {
            Some(nice @ -20..=19) => NICE_WEIGHTS[(nice + 20) as usize],
            _ => return fail(&format!("{key}.priority"), "expected a nice value from -20 to 19"),
        },
    };
    let Ok(share) = Share::new(share) else { return fail(key, "no share") };
    let repeat = match task.get("loop").map(Value::as_i64) {
        None | Some(Some(-1)) => None,
        Some(Some(n)) if n > 0 => Some(n as u64),
        Some(_) => return fail(&format!("{key}.loop"), "expected a whole number of at least 1, or -1"),
    };
    let start = match task.get("delay") {
        None => Instant::ZERO,
        Some(value) => Instant::ZERO + micros(&format!("{key}.delay"), value)?,
    };
    let mut steps = Vec::new();
    match task.get("phases") {
        None => read_events(key, task, &mut steps)?,
        Some(phases) => {
            let Some(phases) = phases.as_object() else {
                return fail(&format!("{key}.phases"), "expected a table of phases");
            };
            for (name, phase) in phases {
                let key = format!("{key}.phases.{name}");
                let Some(phase) = phase.as_object() else { return fail(&key, "expected a table") };
                let mut once = Vec::new();
                read_events(&key, phase, &mut once)?;
                let times = count(&key, phase, "loop", 1)?;
                if steps.len().saturating_add(once.len().saturating_mul(times as usize)) > STEPS_MAX {
                    return fail(&key, format!("more than {STEPS_MAX} steps in one task"));
                }
                for _ in 0..times {
                    steps.extend_from_slice(&once);
                }
            }
        }
    }
    let takes_time = |step: &Step| match *step {
        Step::Run(span) | Step::Sleep(span) | Step::Period(span) => span > Nanos::ZERO,
    };
    if !steps.iter().any(takes_time) {
        return fail(key, "takes no time, expected at least one run, sleep or timer");
    }
    Ok(Program { group, share, start, steps, repeat })
}

fn read_events(key: &str, table: &Map<String, Value>, steps: &mut Vec<Step>) -> Result<(), RtAppError> {
    for (name, value) in table {
        let key = format!("{key}.{name}");
        match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "run" | "runtime" => steps.push(Step::Run(micros(&key, value)?)),
            "sleep" => steps.push(Step::Sleep(micros(&key, value)?)),
            "timer" => match value.get("period") {
                Some(period) => steps.push(Step::Period(micros(&format!("{key}.period"), period)?)),
                None => return fail(&key, "expected a table with a period"),
            },
            "loop" | "phases" | "instance" | "delay" | "priority" => {}
            plain if PASSED_OVER.contains(&plain) => {}
            other => {
                return fail(
                    &key,
                    format!("event \"{other}\" is not simulated, expected run, runtime, sleep or timer"),
                );
            }
        }
    }
    Ok(())
}

fn micros(key: &str, value: &Value) -> Result<Nanos, RtAppError> {
    match value.as_u64() {
        Some(us) => Ok(Nanos::from_micros(us)),
        None => fail(key, "expected whole microseconds, at least 0"),
    }
}

/// `text` with `/* */` and `//` comments outside of strings blanked out, line breaks kept.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut chars, mut in_string) = (text.chars().peekable(), false);
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => in_string = !in_string,
            ('\\', Some(_)) if in_string => {
                out.push(c);
                out.extend(chars.next());
                continue;
            }
            ('/', Some('*')) if !in_string => {
                let mut last = ' ';
                for c in chars.by_ref().skip(1) {
                    if c == '\n' {
                        out.push(c);
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
                continue;
            }
            ('/', Some('/')) if !in_string => {
                for c in chars.by_ref() {
                    if c == '\n' {
                        out.push(c);
                        break;
                    }
                }
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_events_in_their_order() {
        let text = r#"{
            /* two kinds of task */
            "tasks": {
                "periodic": { "loop": 10, "instance": 2, "run": 3000, "timer": { "ref": "t0", "period": 10000 } },
                "phased": { "priority": -5, "delay": 500, "phases": {
                    "a": { "loop": 2, "run0": 100, "sleep0": 200, "run1": 300 }, // as rt-app numbers them
                    "b": { "sleep": 1 } } }
            },
            "global": { "duration": 2, "calibration": "CPU0", "logdir": "//not a comment" }
        }"#;
        let RtApp { programs, duration } = parse_rt_app(text, 3).unwrap();
        assert_eq!(duration, Some(Nanos::from_secs(2)));
        let names: Vec<&str> = programs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["periodic-0", "periodic-1", "phased"]);
        let us = Nanos::from_micros;
        let (periodic, phased) = (&programs[0].1, &programs[2].1);
        assert_eq!(periodic.steps, [Step::Run(us(3000)), Step::Period(us(10_000))]);
        assert_eq!((periodic.repeat, periodic.group, periodic.share.get()), (Some(10), 3, 1024));
        let once = [Step::Run(us(100)), Step::Sleep(us(200)), Step::Run(us(300))];
        assert_eq!(phased.steps, [&once[..], &once[..], &[Step::Sleep(us(1))]].concat());
        assert_eq!((phased.repeat, phased.start, phased.share.get()), (None, Instant(500_000), 3121));
    }

    #[test]
    fn what_multiplies_beyond_memory_is_refused() {
        let error = |text: &str| parse_rt_app(text, 0).unwrap_err().to_string();
        let phases = r#""phases": {"p": {"loop": 100000, "run": 1}}"#;
        assert_eq!(
            error(&format!(r#"{{"tasks": {{"a": {{"instance": 100000, {phases}}}}}}}"#)),
            "tasks.a: more than 10000000 steps of all instances in all"
        );
        let runs: Vec<String> = (0..101).map(|i| format!(r#""run{i}": 1"#)).collect();
        let text = format!(
            r#"{{"tasks": {{"a": {{"phases": {{"p": {{"loop": 100000, {}}}}}}}}}}}"#,
            runs.join(", ")
        );
        assert_eq!(error(&text), "tasks.a.phases.p: more than 10000000 steps in one task");
    }

    #[test]
    fn refuses_by_name() {
        let error = |text: &str| parse_rt_app(text, 0).unwrap_err().to_string();
        assert_eq!(error("{}"), "tasks: missing, expected a table of tasks");
        assert_eq!(
            error(r#"{"tasks": {"a": {"run": 1, "lock": "m"}}}"#),
            "tasks.a.lock: event \"lock\" is not simulated, expected run, runtime, sleep or timer"
        );
        assert_eq!(
            error(r#"{"tasks": {"a": {"run": -1}}}"#),
            "tasks.a.run: expected whole microseconds, at least 0"
        );
        assert!(error(r#"{"tasks": {"a": {"loop": -1}}}"#).starts_with("tasks.a: takes no time"));
    }
}
