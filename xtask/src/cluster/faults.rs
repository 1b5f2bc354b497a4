//! What has to hold when something of a site breaks: nobody stays stopped, no job is unknown to its node's divvyd for longer than
//! ten seconds, no table is lost and no ticket made.

use anyhow::{Context as _, Result, ensure};
use divvy_linux::{Pid, clock, procfs};
use divvy_policy::Nanos;
use serde_json::Value;

use super::accounting;
use super::quick::{cancel, hog, names, passed, submit};
use super::site::{Node, Site, bounded, done, eventually};

/// Processes of the job that is suspended.
const PROCESSES: usize = 12;
/// For how long a job may be unknown to its node's divvyd.
const KNOWN_WITHIN: Nanos = Nanos::from_secs(10);
/// How long a broken part of the site stays so.
const OUTAGE: Nanos = Nanos::from_secs(5);
/// For how long nobody of a suspended job may use the CPU, once Slurm has said that it is suspended, and how long Slurm's signals
/// may take until then.
const STANDS: Nanos = Nanos::from_millis(1500);
/// Whoever has not run for so long was suspended: every job has turns more often.
const STILL: Nanos = Nanos::from_millis(600);
const SIGNALS: Nanos = Nanos::from_millis(2500);

/// All of it, each said as it passes.
///
/// # Errors
/// What does not hold.
pub(super) fn run(site: &mut Site, times: u32) -> Result<()> {
    tables(site)?;
    suspensions(site, times)?;
    without_divvyd(site)?;
    without_controller(site)?;
    without_slurmd(site)?;
    without_network(site)?;
    left_behind(site)?;
    lost_node(site)?;
    println!("cluster: all faults were survived");
    Ok(())
}

/// A process of a job: which, whether it stands, and what it has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    pid: Pid,
    stands: bool,
    used: Nanos,
}

/// The processes of `job` that compute, by name.
fn tasks(job: u32, program: &str) -> Result<Vec<Task>> {
    let mut pids: Vec<Pid> = Vec::new();
    procfs::processes(|pid| pids.push(pid))?;
    let mark = format!("SLURM_JOB_ID={job}");
    let mut found = Vec::new();
    for pid in pids {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if !environment.split(|&byte| byte == 0).any(|pair| pair == mark.as_bytes()) {
            continue;
        }
        let (Some(stat), Some(clock)) = (procfs::stat(pid)?, procfs::schedstat(pid)?) else { continue };
        if stat.comm.to_string() == program {
            found.push(Task { pid, stands: stat.state.is_suspended(), used: clock.ran });
        }
    }
    found.sort_by_key(|task| task.pid.as_raw_pid());
    Ok(found)
}

/// Waits until every process of `job` has used CPU time since now, or since it became `program`: a job is a client before its
/// shell has read the script.
fn wait_for_progress(job: u32, program: &str) -> Result<()> {
    let before = eventually(&format!("{program} in job {job}"), || {
        Ok(Some(tasks(job, program)?).filter(|tasks| !tasks.is_empty()))
    })?;
    eventually(&format!("progress of each process of job {job}"), || {
        let now = tasks(job, program)?;
        let ran = |old: &Task| now.iter().any(|new| new.pid == old.pid && new.used > old.used);
        Ok(before.iter().all(ran).then_some(()))
    })
}

/// `scontrol suspend` holds for each process of a job of many, beside another job, and `scontrol resume` ends it.
pub(super) fn suspensions(site: &mut Site, times: u32) -> Result<()> {
    let node = site.node("n1")?;
    let other = hog("bob", "n1", &[])?;
    let many = format!("for i in $(seq {PROCESSES}); do md5sum /dev/zero & done; wait");
    let job = submit("alice", "n1", &[], &many)?;
    eventually("all processes of a job", || Ok((tasks(job, "md5sum")?.len() == PROCESSES).then_some(())))?;
    let name = format!("alice/slurm-{job}.batch");
    eventually("the job's client", || Ok(names(node)?.contains(&name).then_some(())))?;
    for k in 0..times {
        // At another moment of the schedule each time.
        clock::sleep(Nanos::from_millis(400 + 37 * u64::from(k)));
        done(&mut bounded(&["scontrol", "suspend", &job.to_string()]))?;
        // The controller passes it on in its own time.
        eventually("a job that stands", || {
            let before = tasks(job, "md5sum")?;
            clock::sleep(STILL);
            Ok((tasks(job, "md5sum")? == before).then_some(()))
        })?;
        clock::sleep(SIGNALS);
        let before = tasks(job, "md5sum")?;
        clock::sleep(STANDS);
        let after = tasks(job, "md5sum")?;
        ensure!(before.len() == PROCESSES, "{} processes are left", before.len());
        let ran = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        ensure!(ran == 0, "suspension {k}: {ran} of {PROCESSES} processes ran: {after:?}");
        ensure!(after.iter().all(|task| task.stands), "suspension {k}: {after:?}");
        done(&mut bounded(&["scontrol", "resume", &job.to_string()]))?;
        wait_for_progress(job, "md5sum")?;
    }
    cancel(node, &[other, job])?;
    passed(&format!(
        "{times} times scontrol suspend of a job of {PROCESSES}: none of them ran, and all went on after it"
    ));
    Ok(())
}

/// What a market is made of: what is in it however often something breaks.
fn books(node: &Node) -> Result<Vec<(String, u64)>> {
    let text = done(&mut node.command(&["divvy", "currency", "ls", "--json"]))?;
    let all: Vec<Value> =
        serde_json::from_str(&text).with_context(|| format!("divvy currency ls: {text}"))?;
    let of_site = |currency: &Value| {
        let name = currency["name"].as_str()?.to_owned();
        let issued = currency["standing"][0]["hard_total"].as_u64()?;
        (name.contains("/site.") || name == "base").then_some((name, issued))
    };
    Ok(all.iter().filter_map(of_site).collect())
}

/// A table of accounts for n1 and n2, which has to hold until the end.
fn tables(site: &mut Site) -> Result<()> {
    for words in [
        "add account science fairshare=3",
        "add account arts fairshare=1",
        "add user alice account=science fairshare=1",
        "add user bob account=science fairshare=2",
        "add user carol account=arts fairshare=parent",
    ] {
        accounting::sacctmgr(words)?;
    }
    for name in ["n1", "n2"] {
        let synced = done(&mut site.node(name)?.command(&["divvy", "site", "sync"]))?;
        ensure!(synced.starts_with("table 1: 2 accounts, 3 users, "), "{synced}");
    }
    Ok(())
}

/// Waits until the node's divvyd knows `client`, and says how long that took.
fn wait_until_known(node: &Node, client: &str) -> Result<()> {
    let since = clock::now();
    eventually(client, || Ok(names(node)?.iter().any(|name| name == client).then_some(())))?;
    let took = clock::now().since(since);
    ensure!(took <= KNOWN_WITHIN, "{client} was unknown for {} ms", took.0 / 1_000_000);
    println!("cluster: {client} is known after {} ms", took.0 / 1_000_000);
    Ok(())
}

/// divvyd is killed: whom it held runs on, a step that begins meanwhile is taken in by the next, and the table holds.
pub(super) fn without_divvyd(site: &mut Site) -> Result<()> {
    let node = site.node("n2")?;
    let (before, held) = (books(node)?, done(&mut node.command(&["divvy", "site", "show"]))?);
    let jobs = [hog("alice", "n2", &[])?, hog("bob", "n2", &[])?];
    for (user, job) in ["alice", "bob"].iter().zip(jobs) {
        wait_until_known(node, &format!("{user}/slurm-{job}.batch"))?;
    }
    node.kill_divvyd()?;
    jobs.iter().try_for_each(|&job| wait_for_progress(job, "sha256sum"))?;
    let began = hog("carol", "n2", &[])?;
    eventually("a job that runs undivided", || {
        Ok(node.log().contains(&format!("job {began} runs undivided")).then_some(()))
    })?;
    node.start_divvyd()?;
    for (user, job) in ["alice", "bob", "carol"].iter().zip([jobs[0], jobs[1], began]) {
        wait_until_known(node, &format!("{user}/slurm-{job}.batch"))?;
        wait_for_progress(job, "sha256sum")?;
    }
    ensure!(done(&mut node.command(&["divvy", "site", "show"]))? == held, "the table held: {held}");
    cancel(node, &[jobs[0], jobs[1], began])?;
    let after = books(node)?;
    ensure!(before == after, "the market had {before:?} and has {after:?}");
    passed(
        "divvyd killed: nobody stays stopped, and it knows every job again within ten seconds, those it missed too",
    );
    Ok(())
}

/// Waits until the controller has written down that `job` runs: it does so every few seconds, and forgets the rest where it is
/// killed.
fn wait_until_saved(job: u32) -> Result<()> {
    let mark = format!("job-{job}-runs");
    done(&mut bounded(&["scontrol", "update", &format!("JobId={job}"), &format!("Comment={mark}")]))?;
    eventually("the controller's state on disk", || {
        let state = std::fs::read("/var/lib/slurm/slurmctld/job_state").unwrap_or_default();
        Ok(state.windows(mark.len()).any(|part| part == mark.as_bytes()).then_some(()))
    })
}

/// Controller and accounting are killed: jobs are divided as before, a table cannot be had, and the one that holds stays.
fn without_controller(site: &mut Site) -> Result<()> {
    let job = hog("alice", "n1", &[])?;
    let client = format!("alice/slurm-{job}.batch");
    wait_until_known(site.node("n1")?, &client)?;
    wait_until_saved(job)?;
    site.kill("slurmctld")?;
    site.kill("slurmdbd")?;
    clock::sleep(OUTAGE);
    let node = site.node("n1")?;
    ensure!(names(node)?.contains(&client), "{client} is divided without a controller");
    wait_for_progress(job, "sha256sum")?;
    let sync = node.command(&["divvy", "site", "sync"]).output().context("start divvy")?;
    let told = String::from_utf8_lossy(&sync.stderr).into_owned();
    ensure!(sync.status.code() == Some(5) && told.contains("the table that holds stays"), "{told}");
    let held = done(&mut node.command(&["divvy", "site", "show"]))?;
    ensure!(held.starts_with("table 1 holds\n") && held.contains("bob/site.science"), "{held}");
    site.start_slurmdbd()?;
    eventually("an answer of slurmdbd", || Ok(accounting::sacctmgr("show cluster").is_ok().then_some(())))?;
    site.start_slurmctld()?;
    wait_for_nodes()?;
    let node = site.node("n1")?;
    let synced = done(&mut node.command(&["divvy", "site", "sync"]))?;
    ensure!(synced == "table 2: 2 accounts, 3 users, nothing has changed", "{synced}");
    let state = done(&mut bounded(&["squeue", "-h", "-o", "%T", "-j", &job.to_string()]))?;
    ensure!(state == "RUNNING", "job {job} is {state:?} to the controller that came back");
    cancel(node, &[job])?;
    passed("controller and accounting killed: jobs are divided as before, and the table that holds stays");
    Ok(())
}

/// Every node takes jobs.
fn wait_for_nodes() -> Result<()> {
    eventually("three nodes that take jobs", || {
        let said = bounded(&["sinfo", "-h", "-N", "-o", "%t"]).output().context("start sinfo")?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let takes = |state: &&str| matches!(*state, "idle" | "mix" | "alloc");
        Ok((said.lines().filter(takes).count() == 3).then_some(()))
    })
}

/// slurmd is killed and started again: its steps, and their shares, are none of its business.
fn without_slurmd(site: &mut Site) -> Result<()> {
    let node = site.node("n1")?;
    let job = hog("alice", "n1", &[])?;
    let client = format!("alice/slurm-{job}.batch");
    wait_until_known(node, &client)?;
    node.kill_slurmd()?;
    clock::sleep(OUTAGE);
    wait_for_progress(job, "sha256sum")?;
    node.start_slurmd()?;
    wait_for_nodes()?;
    ensure!(names(node)?.contains(&client), "{client} is divided");
    wait_for_progress(job, "sha256sum")?;
    cancel(node, &[job])?;
    passed("slurmd killed and started again: its jobs run on, divided");
    Ok(())
}

/// Nobody reaches anybody: what runs is divided as before.
fn without_network(site: &mut Site) -> Result<()> {
    let node = site.node("n1")?;
    let job = hog("alice", "n1", &[])?;
    let client = format!("alice/slurm-{job}.batch");
    wait_until_known(node, &client)?;
    done(&mut bounded(&["ip", "link", "set", "lo", "down"]))?;
    clock::sleep(OUTAGE);
    let during = names(node).and_then(|names| Ok((names, wait_for_progress(job, "sha256sum")?)));
    done(&mut bounded(&["ip", "link", "set", "lo", "up"]))?;
    // The address goes with the link.
    let _ = bounded(&["ip", "address", "add", "10.0.0.1/32", "dev", "lo"]).output();
    let (during, ()) = during?;
    ensure!(during.contains(&client), "{client} is divided");
    wait_for_nodes()?;
    cancel(node, &[job])?;
    passed("a partition: what runs is divided as before");
    Ok(())
}

/// The process that looks after a step, as it calls itself.
fn step_daemon(job: u32) -> Result<Pid> {
    let wanted = format!("slurmstepd: [{job}.batch]");
    let mut found = None;
    procfs::processes(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).starts_with(&wanted) {
            found = Some(pid);
        }
    })?;
    found.with_context(|| format!("no {wanted}"))
}

/// A step's own daemon is killed, so that what it started is nobody's, and the job is queued anew: the copy that was left
/// behind is paused, and has nothing of what is the job's.
fn left_behind(site: &mut Site) -> Result<()> {
    let node = site.node("n1")?;
    let job = hog("alice", "n1", &["--requeue"])?;
    let first = format!("alice/slurm-{job}.batch");
    wait_until_known(node, &first)?;
    // Until then what is to be the task has the daemon's name.
    wait_for_progress(job, "sha256sum")?;
    let old = tasks(job, "sha256sum")?;
    let daemon = divvy_linux::ProcessRef::open(step_daemon(job)?)?.context("the step's daemon has ended")?;
    node.kill_slurmd()?;
    daemon.signal(divvy_linux::Signal::KILL)?;
    clock::sleep(Nanos::from_secs(1));
    ensure!(
        tasks(job, "sha256sum")?.len() == old.len(),
        "its task has ended with it: nothing is left behind"
    );
    let _ = bounded(&["scontrol", "requeue", &job.to_string()]).output();
    node.start_slurmd()?;
    let second = format!("alice/slurm-{job}.batch-r1");
    eventually(&second, || Ok(names(node)?.contains(&second).then_some(())))?;
    let (before, first_pid) = (tasks(job, "sha256sum")?, old[0].pid);
    clock::sleep(STANDS);
    let after = tasks(job, "sha256sum")?;
    let used = |tasks: &[Task], is_old: bool| -> u64 {
        tasks.iter().filter(|task| (task.pid == first_pid) == is_old).map(|task| task.used.0).sum()
    };
    ensure!(
        used(&before, true) == used(&after, true),
        "the copy that was left behind ran: {before:?} {after:?}"
    );
    ensure!(used(&before, false) < used(&after, false), "the new one did not: {before:?} {after:?}");
    let left = divvy_linux::ProcessRef::open(first_pid)?.context("the copy has ended")?;
    left.signal(divvy_linux::Signal::KILL)?;
    cancel(node, &[job])?;
    passed("a step's daemon killed, and the job queued anew: what was left behind is paused");
    Ok(())
}

/// A node is lost with its jobs, and comes back empty.
fn lost_node(site: &mut Site) -> Result<()> {
    let node = site.node("n2")?;
    let before = books(node)?;
    let job = hog("carol", "n2", &["--no-requeue"])?;
    wait_until_known(node, &format!("carol/slurm-{job}.batch"))?;
    wait_for_progress(job, "sha256sum")?;
    let mut all = tasks(job, "sha256sum")?.iter().map(|task| task.pid).collect::<Vec<_>>();
    all.push(step_daemon(job)?);
    node.kill_slurmd()?;
    node.kill_divvyd()?;
    for pid in all {
        if let Some(process) = divvy_linux::ProcessRef::open(pid)? {
            process.signal(divvy_linux::Signal::KILL)?;
        }
    }
    clock::sleep(OUTAGE);
    node.start_divvyd()?;
    node.start_slurmd()?;
    wait_for_nodes()?;
    eventually("a node that nobody is a client of", || Ok(names(node)?.is_empty().then_some(())))?;
    let after = books(node)?;
    ensure!(before == after, "the market had {before:?} and has {after:?}");
    let next = hog("carol", "n2", &[])?;
    wait_until_known(node, &format!("carol/slurm-{next}.batch"))?;
    cancel(node, &[job, next])?;
    passed("a node lost with its jobs: none of them is left in its market, and the next is divided");
    Ok(())
}
