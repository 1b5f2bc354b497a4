//! `divvy rescue`: resume what a divvy that died together with its guardian left suspended.

use divvy_linux::guard::{Environment, Report, rescue};
use divvy_linux::{Error, Pid};
use serde_json::json;

use crate::args::RescueArgs;
use crate::{Code, Failure, print, tell};

/// Where no divvyd runs: resumes what an earlier divvy of this user has left suspended, and says so, as every divvy does that begins. How many these were.
pub(crate) fn left_behind() -> usize {
    let all = Environment::read().open_all().into_iter().flatten();
    let reports: Vec<Report> = all.filter_map(|dir| rescue(&dir).ok()).collect();
    let sum = |of: fn(&Report) -> usize| reports.iter().map(of).sum::<usize>();
    let (resumed, thawed) = (sum(|r| r.resumed.len()), sum(|r| r.thawed as usize));
    let counted =
        |n: usize, one: &str, many: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {many}") };
    if resumed > 0 {
        let what = counted(resumed, "process", "processes");
        tell(format_args!("divvy: resumed {what} that an earlier divvy had left suspended"));
    }
    if thawed > 0 {
        let what = counted(thawed, "cgroup", "cgroups");
        tell(format_args!("divvy: thawed {what} that an earlier divvy had left frozen"));
    }
    if sum(|r| r.failed.len() + r.errors.len()) > 0 {
        tell("divvy: not all that an earlier divvy had left suspended could be resumed: see divvy rescue");
    }
    resumed + thawed
}

pub(crate) fn run(args: &RescueArgs) -> Result<Code, Failure> {
    // A table may have been left by a divvy that saw another environment: every place is looked at.
    let mut reports = Vec::new();
    let mut errors: Vec<Error> = Vec::new();
    for dir in Environment::read().open_all() {
        match dir.and_then(|dir| rescue(&dir)) {
            Ok(report) => reports.push(report),
            Err(e) => errors.push(e),
        }
    }
    let pids = |of: fn(&Report) -> &Vec<Pid>| -> Vec<i32> {
        reports.iter().flat_map(of).map(|pid| pid.as_raw_nonzero().get()).collect()
    };
    let (resumed, gone, foreign) = (pids(|r| &r.resumed), pids(|r| &r.gone), pids(|r| &r.foreign));
    let stopped = pids(|r| &r.stopped_owners);
    let (thawed, removed) =
        reports.iter().fold((0, 0), |(thawed, removed), r| (thawed + r.thawed, removed + r.cgroups));
    let failed: Vec<String> = reports
        .iter()
        .flat_map(|r| &r.failed)
        .map(|f| format!("resume process {}: {}", f.pid, f.cause))
        .chain(reports.iter().flat_map(|r| &r.errors).map(Error::to_string))
        .chain(errors.iter().map(Error::to_string))
        .collect();
    if args.json {
        print(json!({
            "version": 1, "resumed": resumed, "gone": gone, "foreign": foreign, "stopped_owners": stopped,
            "thawed": thawed, "cgroups_removed": removed, "errors": failed
        }))?;
    } else {
        print(format_args!(
            "resumed {}, ended meanwhile {}, recycled pids left alone {}",
            resumed.len(),
            gone.len(),
            foreign.len()
        ))?;
        if thawed + removed > 0 {
            print(format_args!("cgroups: thawed {thawed}, removed {removed}"))?;
        }
        for pid in &stopped {
            tell(format_args!(
                "divvy {pid} is itself stopped: what it held was resumed; kill -CONT {pid} lets it go on"
            ));
        }
        for line in &failed {
            tell(format_args!("divvy: {line}"));
        }
    }
    Ok(if failed.is_empty() { Code::Done } else { Code::Failed })
}
