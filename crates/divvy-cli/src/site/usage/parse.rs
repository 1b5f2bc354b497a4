//! What sacctmgr, sacct and sstat print.

use std::collections::{BTreeMap, HashMap};

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

/// Lines of JOB|ACCOUNT|USER|CPUS|SECONDS|STATE|TOTALCPU|START; those of steps are passed over, and a job of which they cannot be understood
/// is one of which nothing is known.
pub(super) fn jobs(text: &str) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let [id, account, user, cpus, seconds, state, used, began] = line.split('|').collect::<Vec<_>>()[..]
        else {
            return Err(format!("'{line}' is not JOB|ACCOUNT|USER|CPUS|SECONDS|STATE|CPU TIME|START"));
        };
        let (Ok(id), Ok(began)) = (id.parse(), began.parse()) else { continue };
        let given =
            cpus.parse::<f64>().ok().zip(seconds.parse::<f64>().ok()).map(|(cpus, seconds)| cpus * seconds);
        let runs = matches!(state, "RUNNING" | "SUSPENDED" | "COMPLETING");
        // What a running job's steps have used is asked of them.
        let used = if runs { None } else { time(used) };
        let payer = Payer { account: account.into(), user: user.into() };
        jobs.push(Job {
            id,
            payer,
            given: given.unwrap_or(0.0),
            used: used.filter(|_| given.is_some()),
            runs,
            began,
        });
    }
    Ok(jobs)
}

/// Adds what running steps have used, of lines of JOB.STEP|TASKS|CPU TIME OF EACH, to their jobs. Of a job without any nothing is known.
pub(super) fn add_running(jobs: &mut [Job], text: &str) {
    let mut used: HashMap<u64, f64> = HashMap::new();
    for line in text.lines() {
        let [step, tasks, each] = line.split('|').collect::<Vec<_>>()[..] else { continue };
        let job = step.split('.').next().and_then(|job| job.parse().ok());
        let (Some(job), Ok(tasks), Some(each)) = (job, tasks.parse::<f64>(), time(each)) else { continue };
        *used.entry(job).or_default() += tasks * each;
    }
    for job in jobs.iter_mut().filter(|job| job.runs) {
        job.used = used.get(&job.id).copied();
    }
}

/// Lines of QOS|FACTOR.
pub(super) fn factors(text: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        line.split_once('|').and_then(|(qos, factor)| Some((qos.to_owned(), factor.parse().ok()?)))
    };
    text.lines().filter_map(line).collect()
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
        let text = "1|science|alice|2|45|CANCELLED by 0|00:08.871|1000\n1.batch|science||2|45|CANCELLED|00:08.871|1000\n\
                    2|science|bob|1|75|RUNNING|00:00:00|1001\n2.batch|science||1|75|RUNNING|00:00:00|1001\n\
                    3|arts|carol|1|9|RUNNING|00:00:00|1002\n4|arts|carol|1|0|PENDING|00:00:00|Unknown\n\
                    5|arts|carol|x|9|COMPLETED|00:01|1003\n6|arts|carol|1|9|COMPLETED|soon|1003\n";
        let mut jobs = jobs(text).expect("jobs");
        add_running(&mut jobs, "2.batch|1|00:00:26\n2.0|3|00:02.500\n2.extern||\n99.0|1|00:05\n");
        let seen: Vec<(u64, f64, Option<f64>, bool)> =
            jobs.iter().map(|job| (job.id, job.given, job.used, job.runs)).collect();
        let expected = [
            (1, 90.0, Some(8.871), false),
            (2, 75.0, Some(33.5), true),
            (3, 9.0, None, true),
            (5, 0.0, None, false),
            (6, 9.0, None, false),
        ];
        assert_eq!(seen, expected);
        assert_eq!((jobs[0].payer.user.as_str(), jobs[0].began), ("alice", 1000));
    }

    #[test]
    fn what_is_not_slurms_is_named() {
        assert!(payers("a|b\n").expect_err("two fields").contains("'a|b'"));
        assert!(super::jobs("1|a|b|x|1|RUNNING|00:00\n").expect_err("seven fields").contains("START"));
        let read =
            payers("root||normal\nroot|root|normal\nscience||normal\nscience|alice|divvy-science-alice\n");
        let alice = Payer { account: "science".into(), user: "alice".into() };
        assert_eq!(read, Ok(vec![(alice, "divvy-science-alice".to_owned())]));
        let factors = factors("normal|1.000000\ndivvy-a-b|0.250000\nodd\n");
        assert_eq!(
            factors.into_iter().collect::<Vec<_>>(),
            [("divvy-a-b".into(), 0.25), ("normal".into(), 1.0)]
        );
    }
}
