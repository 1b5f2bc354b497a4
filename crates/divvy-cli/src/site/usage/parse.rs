//! What sacctmgr, sacct and sstat print.

use std::collections::HashMap;

use super::charge::{Job, Payer};

/// Lines of ACCOUNT|USER|QOS; those of accounts have no user.
pub(super) fn payers(text: &str) -> Result<Vec<(Payer, String)>, String> {
    let mut payers = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let [account, user, qos] = line.split('|').collect::<Vec<_>>()[..] else {
            return Err(format!("'{line}' is not ACCOUNT|USER|QOS"));
        };
        if !user.is_empty() && user != "root" {
            payers.push((Payer { account: account.into(), user: user.into() }, qos.to_owned()));
        }
    }
    Ok(payers)
}

/// Lines of JOB|ACCOUNT|USER|CPUS|SECONDS|STATE|TOTALCPU; those of steps are passed over.
pub(super) fn jobs(text: &str) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let [id, account, user, cpus, seconds, state, used] = line.split('|').collect::<Vec<_>>()[..] else {
            return Err(format!("'{line}' is not JOB|ACCOUNT|USER|CPUS|SECONDS|STATE|CPU TIME"));
        };
        let Ok(id) = id.parse() else { continue };
        let number = |word: &str| word.parse::<f64>().map_err(|_| format!("'{line}': '{word}' is no number"));
        jobs.push(Job {
            id,
            payer: Payer { account: account.into(), user: user.into() },
            given: number(cpus)? * number(seconds)?,
            used: time(used).ok_or_else(|| format!("'{line}': '{used}' is no time"))?,
            runs: matches!(state, "RUNNING" | "SUSPENDED" | "COMPLETING"),
        });
    }
    Ok(jobs)
}

/// Adds what running steps have used, of lines of JOB.STEP|TASKS|CPU TIME OF EACH, to their jobs.
pub(super) fn add_running(jobs: &mut [Job], text: &str) -> Result<(), String> {
    let mut used: HashMap<u64, f64> = HashMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let [step, tasks, each] = line.split('|').collect::<Vec<_>>()[..] else {
            return Err(format!("'{line}' is not STEP|TASKS|CPU TIME"));
        };
        let Some(Ok(job)) = step.split('.').next().map(str::parse) else { continue };
        let tasks: f64 = tasks.parse().map_err(|_| format!("'{line}': '{tasks}' is no number"))?;
        // A step that has just begun has none yet.
        *used.entry(job).or_default() += tasks * time(each).unwrap_or(0.0);
    }
    for job in jobs.iter_mut().filter(|job| job.runs) {
        job.used += used.get(&job.id).copied().unwrap_or(0.0);
    }
    Ok(())
}

/// `[DAYS-[HOURS:]]MINUTES:SECONDS[.FRACTION]`, in seconds.
fn time(text: &str) -> Option<f64> {
    let (days, rest) = text
        .split_once('-')
        .map_or(Some((0, text)), |(days, rest)| Some((days.parse::<u32>().ok()?, rest)))?;
    let mut seconds = 0.0;
    let parts: Vec<&str> = rest.split(':').collect();
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    for part in parts {
        seconds = seconds * 60.0 + part.parse::<f64>().ok().filter(|part| (0.0..1e6).contains(part))?;
    }
    Some(f64::from(days) * 86_400.0 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_slurm_prints_them() {
        for (text, seconds) in
            [("00:08.871", 8.871), ("00:00:26", 26.0), ("01:02:03", 3723.0), ("2-03:00:00", 183_600.0)]
        {
            assert!(time(text).is_some_and(|read| (read - seconds).abs() < 1e-9), "{text}");
        }
        for text in ["", "5", "a:b", "-1:00", "1:2:3:4", "x-00:00"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn jobs_have_what_they_were_given_and_used() {
        let text = "1|science|alice|2|45|CANCELLED by 0|00:08.871\n1.batch|science||2|45|CANCELLED|00:08.871\n\
                    2|science|bob|1|75|RUNNING|00:00:00\n2.batch|science||1|75|RUNNING|00:00:00\n";
        let mut jobs = jobs(text).expect("jobs");
        add_running(&mut jobs, "2.batch|1|00:00:26\n2.0|3|00:02.500\n2.extern||\n99.0|1|00:05\n")
            .expect_err("no tasks");
        add_running(&mut jobs, "2.batch|1|00:00:26\n2.0|3|00:02.500\n99.0|1|00:05\n").expect("steps");
        let seen: Vec<(u64, &str, f64, bool)> =
            jobs.iter().map(|job| (job.id, job.payer.user.as_str(), job.given, job.runs)).collect();
        assert_eq!(seen, [(1, "alice", 90.0, false), (2, "bob", 75.0, true)]);
        assert!((jobs[0].used - 8.871).abs() < 1e-9 && (jobs[1].used - 33.5).abs() < 1e-9, "{jobs:?}");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(payers("a|b\n").expect_err("two fields").contains("'a|b'"));
        assert!(super::jobs("1|a|b|x|1|RUNNING|00:00\n").expect_err("no number").contains("'x'"));
        assert!(super::jobs("1|a|b|1|1|RUNNING|soon\n").expect_err("no time").contains("'soon'"));
        let read =
            payers("root||normal\nroot|root|normal\nscience||normal\nscience|alice|divvy-science-alice\n");
        let alice = Payer { account: "science".into(), user: "alice".into() };
        assert_eq!(read, Ok(vec![(alice, "divvy-science-alice".to_owned())]));
    }
}
