//! What has to hold on a site: shares on an oversubscribed node, and no job that fails because of divvy.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::{Pid, clock, procfs};
use divvy_policy::Nanos;
use serde_json::Value;

use super::accounting;
use super::site::{Node, Site, as_user, done, eventually, write};

/// How far a job may be from its part of the CPU time of all jobs of a node, as a fraction of all of it, where the machine is
/// busy with other things too.
const MAX_FRACTION_ERROR: f64 = 0.015;
/// Whoever began first ran alone, and what it had too much is taken back first. CPU time of all jobs.
const SETTLE: Nanos = Nanos::from_secs(4);
/// Of how much CPU time of all jobs the parts are counted.
const WINDOW: Nanos = Nanos::from_secs(10);
/// How many times as long as on a CPU that is the jobs' alone they may take to have it.
const BUSY: u64 = 60;
/// What the plugin waits for its divvyd, unless its line says otherwise, and how much longer a job may take that it waits for.
const TIMEOUT: Nanos = Nanos::from_secs(2);
const SLACK: Nanos = Nanos::from_secs(10);
/// In the place of `divvy`: says as whom it runs, with what open, and what it was asked for.
const STAND_IN: &str = "\
#!/bin/sh
open= n=0
while [ $n -lt 300 ]; do [ -L /proc/$$/fd/$n ] && open=\"$open $n\"; n=$((n + 1)); done
exec > /tmp/stand-in
id -u
id -g
id -G
grep -E '^(CapEff|NoNewPrivs)' /proc/self/status
echo \"$open\"
env | tr '\\n' ' '
echo
echo \"$@\"
";

/// All of it. Each check says itself when it has passed.
///
/// # Errors
/// What does not hold.
pub(super) fn run(site: &mut Site) -> Result<()> {
    options()?;
    shares(site)?;
    tasks(site)?;
    super::faults::suspensions(site, 1)?;
    accounts(site)?;
    super::push::check(site)?;
    super::faults::without_divvyd(site)?;
    identity(site)?;
    misfits(site)?;
    absent(site)?;
    silent(site)?;
    broken(site)?;
    required(site)?;
    println!("cluster: all checks passed");
    Ok(())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

pub(super) fn passed(what: &str) {
    println!("cluster: ok: {what}");
}

/// The option is in the help of both, and a share that is none is refused with what would be one.
fn options() -> Result<()> {
    for program in ["srun", "sbatch"] {
        let help = as_user("alice", &[program, "--help"])?;
        ensure!(said(&help).contains("--divvy-share=N"), "{program} --help: {}", said(&help));
        for share in ["0", "1000001", "-1", "+1", "1x", " 1", ""] {
            let option = format!("--divvy-share={share}");
            let command: &[&str] = match program {
                "srun" => &["srun", "-w", "n1", &option, "true"],
                _ => &["sbatch", "-w", "n1", &option, "--wrap", "true"],
            };
            let refused = as_user("alice", command)?;
            let fix = format!("divvy: {option}: give a whole number from 1 to 1000000");
            ensure!(
                !refused.status.success() && said(&refused).contains(&fix),
                "{program} {option}: {}: {}",
                refused.status,
                said(&refused)
            );
        }
    }
    passed("--divvy-share is in the help of srun and sbatch, and what is no share is refused");
    Ok(())
}

/// A job of `user` on `node` that runs `script`; its number.
pub(super) fn submit(user: &str, node: &str, options: &[&str], script: &str) -> Result<u32> {
    let mut argv = vec!["sbatch", "--parsable", "-w", node, "--output=/dev/null"];
    argv.extend(options);
    argv.extend(["--wrap", script]);
    let output = as_user(user, &argv)?;
    ensure!(output.status.success(), "{argv:?}: {}", said(&output));
    let number = String::from_utf8_lossy(&output.stdout);
    number.trim().parse().with_context(|| format!("sbatch printed {number:?}"))
}

/// A job of `user` on `node` that computes until it is cancelled; its number.
pub(super) fn hog(user: &str, node: &str, options: &[&str]) -> Result<u32> {
    submit(user, node, options, "exec sha256sum /dev/zero")
}

/// CPU time of the processes of each job, as the kernel has it.
pub(super) fn books(jobs: &[u32]) -> Result<BTreeMap<u32, u64>> {
    let mut used: BTreeMap<u32, u64> = BTreeMap::new();
    let mut pids: Vec<Pid> = Vec::new();
    procfs::processes(|pid| pids.push(pid))?;
    for pid in pids {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let of = |job: &&u32| {
            let mark = format!("SLURM_JOB_ID={job}");
            environment.split(|&byte| byte == 0).any(|pair| pair == mark.as_bytes())
        };
        if let (Some(job), Some(clock)) = (jobs.iter().find(of), procfs::schedstat(pid)?) {
            *used.entry(*job).or_default() += clock.ran.0;
        }
    }
    Ok(used)
}

/// What a node's divvyd shows.
fn clients(node: &Node) -> Result<Vec<Value>> {
    let text = done(&mut node.command(&["divvy", "ls", "--system", "--json"]))?;
    let listed: Value = serde_json::from_str(&text).with_context(|| format!("divvy ls --json: {text}"))?;
    Ok(listed["clients"].as_array().with_context(|| format!("no clients in {text}"))?.clone())
}

/// A node's clients, by user and name.
pub(super) fn names(node: &Node) -> Result<Vec<String>> {
    Ok(clients(node)?.iter().filter_map(|client| client["name"].as_str().map(str::to_owned)).collect())
}

pub(super) fn cancel(node: &Node, jobs: &[u32]) -> Result<()> {
    for job in jobs {
        done(&mut super::site::bounded(&["scancel", &job.to_string()]))?;
    }
    eventually("a node that nobody is a client of", || Ok(names(node)?.is_empty().then_some(())))
}

/// Two users at 1:3, one of them with two jobs at 1:3, on a node of one CPU.
fn shares(site: &mut Site) -> Result<()> {
    let node = site.node("n1")?;
    let wanted =
        [("alice", Some("1"), 1.0 / 16.0), ("alice", Some("3"), 3.0 / 16.0), ("bob", None, 3.0 / 4.0)];
    let mut jobs: Vec<(String, u32)> = Vec::new();
    for (user, share, _) in &wanted {
        let option = share.map(|share| format!("--divvy-share={share}"));
        let options: Vec<&str> = option.as_deref().into_iter().collect();
        jobs.push(((*user).to_owned(), hog(user, "n1", &options)?));
    }
    wait_for(node, &jobs)?;
    let due = wanted.iter().zip(&jobs).map(|((user, share, part), (_, job))| {
        (format!("{user}'s job, share {}", share.unwrap_or("by default")), *job, *part)
    });
    measure(&due.collect::<Vec<_>>())?;
    cancel(node, &jobs.iter().map(|(_, job)| *job).collect::<Vec<_>>())?;
    passed("two users at 1:3, and two jobs of one of them at 1:3, on a node with one CPU");
    Ok(())
}

/// What each of the jobs used, in ns, once they had `settle` together and while they had `window`, and how long that took. By
/// their CPU time, not by the clock: on a busy machine ten seconds were a quarter of one of theirs, which was one job's turn.
///
/// # Errors
/// Where a job has ended, or they have next to nothing of a CPU.
pub(super) fn used(jobs: &[u32], settle: Nanos, window: Nanos) -> Result<(Vec<f64>, Nanos)> {
    let later = |begin: &BTreeMap<u32, u64>, wanted: Nanos| {
        let until = clock::now() + Nanos(wanted.0 * BUSY);
        loop {
            let now = books(jobs)?;
            let had = now.values().sum::<u64>().saturating_sub(begin.values().sum());
            if had >= wanted.0 {
                return Ok(now);
            }
            let left = Nanos(wanted.0 - had);
            ensure!(
                clock::now() < until,
                "the jobs had {had} ns of a CPU within {BUSY} times {} ns: give them a quieter machine",
                wanted.0
            );
            clock::sleep(left.max(Nanos::from_millis(20)));
        }
    };
    let begin = later(&books(jobs)?, settle)?;
    let since = clock::now();
    let end = later(&begin, window)?;
    let took = clock::now().since(since);
    let of = |job: &u32| {
        let end = end.get(job).with_context(|| format!("job {job} has ended"))?;
        Ok(end.saturating_sub(*begin.get(job).unwrap_or(&0)) as f64)
    };
    Ok((jobs.iter().map(of).collect::<Result<_>>()?, took))
}

/// What each of the jobs, which compute, gets of the CPU time of all of them in a window, beside what is due to it.
///
/// # Errors
/// Where one is farther off than [`MAX_FRACTION_ERROR`].
fn measure(jobs: &[(String, u32, f64)]) -> Result<()> {
    let numbers: Vec<u32> = jobs.iter().map(|(_, job, _)| *job).collect();
    let (used, window) = used(&numbers, SETTLE, WINDOW)?;
    let all: f64 = used.iter().sum();
    let mut off: f64 = 0.0;
    for ((what, _, part), used) in jobs.iter().zip(&used) {
        println!(
            "cluster: {what}: {:.2} % of the jobs' CPU time, {:.2} % due",
            100.0 * used / all,
            100.0 * part
        );
        off = off.max((used / all - part).abs());
    }
    println!(
        "cluster: together {:.1} % of one CPU in {:.1} s",
        100.0 * all / window.0 as f64,
        window.0 as f64 / 1e9
    );
    ensure!(off <= MAX_FRACTION_ERROR, "a job is {:.2} points off its part", 100.0 * off);
    Ok(())
}

/// Waits until each is a client of the node, by this name, and its processes run.
pub(super) fn wait_for(node: &Node, jobs: &[(String, u32)]) -> Result<()> {
    let numbers: Vec<u32> = jobs.iter().map(|(_, job)| *job).collect();
    eventually("a client for each job", || {
        let (names, used) = (names(node)?, books(&numbers)?);
        let all = jobs.iter().all(|(user, job)| names.contains(&format!("{user}/slurm-{job}.batch")));
        Ok((all && numbers.iter().all(|job| used.contains_key(job))).then_some(()))
    })
}

/// Slurm's accounts become currencies: two accounts at 3:1, two users of one at 1:2; a table that cannot be changes nothing.
fn accounts(site: &mut Site) -> Result<()> {
    let node = site.node("n3")?;
    node.set_plugin("accounts=yes")?;
    let table = |lines: &str| -> Result<Output> {
        std::fs::write("/tmp/table", lines).context("write the table")?;
        let mut sync = node.command(&["divvy", "site", "sync", "--table", "/tmp/table"]);
        sync.output().context("start divvy")
    };
    let good = "science||root|3\nscience|alice||1\nscience|bob||2\narts||root|1\narts|carol||5\n";
    for words in [
        "add account science fairshare=3",
        "add account arts fairshare=2",
        "add user alice account=science fairshare=1",
        "add user bob account=science fairshare=2",
        "add user carol account=arts fairshare=5",
    ] {
        accounting::sacctmgr(words)?;
    }
    let sync = ["divvy", "site", "sync"];
    let synced = done(&mut node.command(&sync))?;
    ensure!(synced.starts_with("table 1: 2 accounts, 3 users, "), "{synced}");
    accounting::sacctmgr("modify account arts set fairshare=1")?;
    let synced = done(&mut node.command(&sync))?;
    ensure!(synced == "table 2: 2 accounts, 3 users, 3 changes", "{synced}");
    let synced = table(good)?;
    ensure!(said(&synced) == "table 3: 2 accounts, 3 users, nothing has changed\n", "{}", said(&synced));
    for (line, why) in [
        ("science||root|2", "line 6: account science is in line 1 already"),
        ("arts|mallory||2", "line 6: there is no user 'mallory'"),
        ("law||root|-1", "line 6: '-1' shares: give a whole number from 0 to 4294967295, or parent"),
        ("law||root|4294967296", "line 6: '4294967296' shares"),
    ] {
        let refused = table(&format!("{good}{line}\n"))?;
        let told = said(&refused);
        ensure!(
            refused.status.code() == Some(4) && told.contains(why) && told.contains("stays"),
            "{line}: {told}"
        );
    }
    let unanswered =
        node.command(&["divvy", "site", "sync", "--sacctmgr", "false"]).output().context("start divvy")?;
    ensure!(
        unanswered.status.code() == Some(5) && said(&unanswered).contains("the table that holds stays"),
        "{}",
        said(&unanswered)
    );
    let held = done(&mut node.command(&["divvy", "site", "show"]))?;
    ensure!(held.starts_with("table 3 holds\n") && held.contains("\n  bob/site.science"), "{held}");

    let jobs: Vec<(String, u32)> = [("alice", "science"), ("bob", "science"), ("carol", "arts")]
        .into_iter()
        .map(|(user, account)| Ok((user.to_owned(), hog(user, "n3", &["-A", account])?)))
        .collect::<Result<_>>()?;
    wait_for(node, &jobs)?;
    let due = [1.0 / 4.0, 1.0 / 2.0, 1.0 / 4.0];
    let due = jobs.iter().zip(due).map(|((user, job), part)| (format!("{user}'s job"), *job, part));
    measure(&due.collect::<Vec<_>>())?;
    // Carol is in no other account: there her own currency pays.
    let other = hog("carol", "n3", &["-A", "science"])?;
    wait_for(node, &[("carol".to_owned(), other)])?;
    let tree =
        done(&mut node.command(&["divvy", "market", "explain", &format!("carol/slurm-{other}.batch")]))?;
    ensure!(tree.contains("of carol"), "{tree}");
    let mut all: Vec<u32> = jobs.iter().map(|(_, job)| *job).collect();
    all.push(other);
    cancel(node, &all)?;
    let emptied = table("")?;
    ensure!(said(&emptied).contains("table 4: 0 accounts, 0 users"), "{}", said(&emptied));
    let held = done(&mut node.command(&["divvy", "site", "show"]))?;
    ensure!(held == "table 4 holds\n  root/site.root", "{held}");
    node.set_plugin("")?;
    passed("two accounts at 3:1, two users of one of them at 1:2, and bad tables that change nothing");
    Ok(())
}

/// Every task of a step is taken in, on every node of it.
fn tasks(site: &mut Site) -> Result<()> {
    let argv = [
        "sbatch",
        "--parsable",
        "-w",
        "n1,n3",
        "-N2",
        "--output=/dev/null",
        "--wrap",
        "srun -n4 -O sleep 60",
    ];
    let output = as_user("carol", &argv)?;
    ensure!(output.status.success(), "{argv:?}: {}", said(&output));
    let job: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().context("a job's number")?;
    for (name, steps) in [("n1", &["batch", "0.0", "0.1"][..]), ("n3", &["0.0", "0.1"])] {
        let node = site.node(name)?;
        let mut expected: Vec<String> =
            steps.iter().map(|step| format!("carol/slurm-{job}.{step}")).collect();
        expected.sort();
        eventually(&format!("{expected:?} on {name}"), || {
            let mut names = names(node)?;
            names.sort();
            Ok((names == expected).then_some(()))
        })?;
    }
    // What they have together is one currency's, with the job's share, on each node.
    let jobs = |node: &Node| -> Result<Vec<String>> {
        let text = done(&mut node.command(&["divvy", "currency", "ls", "--json"]))?;
        let all: Vec<Value> =
            serde_json::from_str(&text).with_context(|| format!("divvy currency ls: {text}"))?;
        let names = all.iter().filter_map(|currency| currency["name"].as_str());
        Ok(names.filter(|name| name.contains("/job.")).map(str::to_owned).collect())
    };
    for name in ["n1", "n3"] {
        let there = jobs(site.node(name)?)?;
        ensure!(there == [format!("carol/job.{job}")], "jobs on {name}: {there:?}");
    }
    cancel(site.node("n1")?, &[job])?;
    cancel(site.node("n3")?, &[])?;
    for name in ["n1", "n3"] {
        let left = jobs(site.node(name)?)?;
        ensure!(left.is_empty(), "left on {name}: {left:?}");
    }
    passed("every task of a step on two nodes is a client of its node, and none is when the job is over");
    Ok(())
}

/// divvy is run as the job's user, with that user's groups, no privilege, and nothing open or set that is slurmstepd's.
fn identity(site: &mut Site) -> Result<()> {
    let node = site.node("n2")?;
    let stand_in = "/usr/local/bin/stand-in";
    std::fs::write(stand_in, STAND_IN).context("write the stand-in")?;
    std::fs::set_permissions(stand_in, std::fs::Permissions::from_mode(0o755))
        .context("make it a program")?;
    node.set_plugin(&format!("divvy={stand_in}"))?;
    let ran = as_user(
        "alice",
        &["srun", "-w", "n2", "--divvy-share=7", "sh", "-c", "id -u; id -g; id -G; echo $SLURM_JOB_ID"],
    )?;
    ensure!(ran.status.success(), "{}", said(&ran));
    let seen = std::fs::read_to_string("/tmp/stand-in").context("read what the stand-in saw")?;
    let (seen, own) = (seen.lines().collect::<Vec<_>>(), String::from_utf8_lossy(&ran.stdout).into_owned());
    let own: Vec<&str> = own.lines().collect();
    let [uid, gid, groups, caps, privs, open, env, asked] = seen[..] else {
        bail!("the stand-in saw {seen:?}")
    };
    ensure!(own[..3] == [uid, gid, groups], "the task has {own:?}, divvy had {seen:?}");
    ensure!(groups.split(' ').count() == 2 && uid != "0", "alice's two groups, and not root's: {groups}");
    let zero = caps.trim_start_matches("CapEff:").trim().trim_matches('0').is_empty();
    ensure!(zero && privs.ends_with('1'), "privileges are left: {caps}, {privs}");
    // The shell of the stand-in has its script open as 10 or 255, beside what it was given.
    let inherited: Vec<&str> =
        open.split(' ').filter(|fd| !["", "0", "1", "2", "10", "255"].contains(fd)).collect();
    ensure!(inherited.is_empty(), "open in divvy: {open}");
    ensure!(!env.contains("SLURM"), "set in divvy: {env}");
    let wanted = format!("--share 7 --as slurm-{}.0 --job {}", own[3], own[3]);
    ensure!(
        asked.starts_with("attach --system --system-socket /run/divvy/api.sock --plugin 1 --tree ")
            && asked.ends_with(&wanted),
        "{asked}"
    );
    node.set_plugin("")?;
    passed("divvy is run as the job's user, with that user's groups and no privilege");
    Ok(())
}

/// A plugin of another interface than its divvyd's, and one that is newer than a divvy without any, are named; their jobs run undivided.
fn misfits(site: &mut Site) -> Result<()> {
    let node = site.node("n2")?;
    let old = "/usr/local/bin/old-divvy";
    write(old, "#!/bin/sh\necho \"error: unexpected argument '--plugin' found\" >&2\nexit 2\n")?;
    std::fs::set_permissions(old, std::fs::Permissions::from_mode(0o755)).context("make it a program")?;
    for (interface, divvy, why) in [
        ("0", "/usr/local/bin/divvy", "the plugin is older than divvyd: it has interface 0, divvyd "),
        ("2", "/usr/local/bin/divvy", "the plugin is newer than divvyd: it has interface 2, divvyd "),
        ("2", old, "divvy or divvyd is older than the plugin, which has interface 2"),
    ] {
        let out = format!("/tmp/interface-{interface}");
        std::fs::create_dir_all(&out).context("create a directory")?;
        let sources = format!("{}/contrib/slurm", super::machine::SOURCES);
        let define = format!("CPPFLAGS=-DINTERFACE={interface}");
        done(std::process::Command::new("make").args([
            "-s",
            "-C",
            &sources,
            &format!("OUT={out}"),
            &define,
        ]))?;
        let line = format!("required {out}/spank_divvy.so divvy={divvy}\n");
        write("/mnt/nodes/n2/slurm/plugstack.conf", &line)?;
        let ran = as_user("alice", &["srun", "-w", "n2", "--divvy-share=2", "echo", "ran"])?;
        let (told, log) = (said(&ran), node.log());
        ensure!(ran.status.success() && told.contains("ran\n"), "{interface}: {}: {told}", ran.status);
        ensure!(
            told.contains("runs undivided") && told.contains(why) && told.contains("of one release"),
            "{told}"
        );
        ensure!(log.contains(why), "slurmd's log: {log}");
    }
    node.set_plugin("")?;
    passed("a plugin older or newer than its divvyd is named, and jobs run");
    Ok(())
}

/// Without a divvyd a job runs, and its user is told if a share was asked for; one that comes back divides the next job.
fn absent(site: &mut Site) -> Result<()> {
    let node = site.node("n2")?;
    node.stop_divvyd()?;
    let plain = as_user("alice", &["srun", "-w", "n2", "echo", "ran"])?;
    ensure!(plain.status.success() && said(&plain) == "ran\n", "{}: {}", plain.status, said(&plain));
    ensure!(node.log().contains("runs undivided"), "slurmd's log: {}", node.log());
    let asked = as_user("alice", &["srun", "-w", "n2", "--divvy-share=2", "echo", "ran"])?;
    ensure!(
        asked.status.success() && said(&asked).contains("nobody listens at /run/divvy/api.sock"),
        "{}: {}",
        asked.status,
        said(&asked)
    );
    node.start_divvyd()?;
    let job = hog("alice", "n2", &[])?;
    let name = format!("alice/slurm-{job}.batch");
    eventually(&name, || Ok(names(node)?.contains(&name).then_some(())))?;
    cancel(node, &[job])?;
    passed("without a divvyd jobs run, and their users are told where they asked for a share");
    Ok(())
}

/// A divvyd that does not answer keeps a job for as long as the time-out says, and no longer.
fn silent(site: &mut Site) -> Result<()> {
    let node = site.node("n2")?;
    node.stop_divvyd()?;
    let socket = node.path("/run/divvy/api.sock");
    let _ = std::fs::remove_file(&socket);
    let listener = std::os::unix::net::UnixListener::bind(&socket).context("listen on the node")?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).context("let all ask")?;
    let since = clock::now();
    let ran = as_user("alice", &["srun", "-w", "n2", "--divvy-share=2", "echo", "ran"])?;
    let took = clock::now().since(since);
    ensure!(
        ran.status.success() && said(&ran).contains("no answer within 2000 ms"),
        "{}: {}",
        ran.status,
        said(&ran)
    );
    ensure!(took >= TIMEOUT && took < TIMEOUT + SLACK, "the job took {} ms", took.0 / 1_000_000);
    drop(listener);
    std::fs::remove_file(&socket).context("remove the socket")?;
    passed("a divvyd that does not answer delays a job by two seconds, and no longer");
    Ok(())
}

/// A line of plugstack.conf that cannot be used is named, and the job runs; so it does where there is no divvy.
fn broken(site: &mut Site) -> Result<()> {
    let node = site.node("n2")?;
    for (line, why) in [
        ("timeout_ms=never", "divvy: plugstack.conf: timeout_ms=never: known are"),
        ("share=0", "divvy: plugstack.conf: share=0: known are"),
        ("required=perhaps", "divvy: plugstack.conf: required=perhaps: known are"),
        ("divvy=/no/such", "say where it is with divvy=/PATH"),
    ] {
        node.set_plugin(line)?;
        let ran = as_user("alice", &["srun", "-w", "n2", "--divvy-share=2", "echo", "ran"])?;
        let log = node.log();
        ensure!(
            ran.status.success() && String::from_utf8_lossy(&ran.stdout) == "ran\n",
            "{line}: {}: {}",
            ran.status,
            said(&ran)
        );
        ensure!(said(&ran).contains("runs undivided") && log.contains(why), "{line}: {}\n{log}", said(&ran));
    }
    node.set_plugin("")?;
    passed("a line of plugstack.conf that cannot be used is named, and jobs run");
    Ok(())
}

/// Where the site says that nothing runs undivided, a step without a divvyd fails, and says why.
fn required(site: &mut Site) -> Result<()> {
    let node = site.node("n2")?;
    node.set_plugin("required=yes")?;
    let refused = as_user("alice", &["srun", "-w", "n2", "echo", "ran"])?;
    ensure!(
        !refused.status.success() && !said(&refused).contains("ran\n"),
        "it ran: {}: {}",
        refused.status,
        said(&refused)
    );
    let why = "may not run undivided here (required=yes)";
    ensure!(said(&refused).contains(why), "{}", said(&refused));
    node.start_divvyd()?;
    let ran = as_user("alice", &["srun", "-w", "n2", "echo", "ran"])?;
    // Slurm may still be at the end of the step before, and say so.
    let printed = String::from_utf8_lossy(&ran.stdout) == "ran\n";
    ensure!(ran.status.success() && printed, "{}: {}", ran.status, said(&ran));
    node.set_plugin("")?;
    passed("with required=yes a step without a divvyd fails, and says why");
    Ok(())
}
