//! `divvy site usage`: Slurm's fairshare sees what jobs used, not only what they were given.
//!
//! How, and why by QOS: `charge.rs`. Here Slurm is asked and told, and what is known is kept in a file.

mod charge;
mod parse;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use divvy_linux::clock;

use self::charge::{Charges, Payer, VERSION};
use super::slurm::said;
use crate::files;
use crate::remote::json;
use crate::{Code, Failure, print, tell};

#[derive(Debug, ClapArgs)]
pub(crate) struct UsageArgs {
    /// Give each user of an account a QOS that is theirs alone, as the only and default one: whose factor is set later. Users who have
    /// others than `normal` are named and left alone. Holds for jobs that are submitted from then on
    #[arg(long, conflicts_with = "remove")]
    prepare: bool,

    /// Take these QOS away again, once none of their jobs is left
    #[arg(long)]
    remove: bool,

    /// Say what would be set, and set and remember nothing
    #[arg(long, conflicts_with_all = ["prepare", "remove"])]
    dry_run: bool,

    /// Where is remembered how far each job was at the last look
    #[arg(long, value_name = "FILE", default_value = "/var/lib/divvy/site-usage.json")]
    state: PathBuf,

    /// The directory of sacct, sstat and sacctmgr, where they are not on the path
    #[arg(long, value_name = "DIR")]
    slurm: Option<PathBuf>,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Of a step that has just begun Slurm has nothing to tell: after so many CPU seconds it should.
const SETTLED_S: f64 = 60.0;

/// A line of the answer.
#[derive(Debug, serde::Serialize)]
struct Line {
    account: String,
    user: String,
    /// CPU seconds, since the first look.
    given_s: f64,
    used_s: f64,
    /// The part of what is given that Slurm charges from now on.
    factor: f64,
    changed: bool,
}

/// Slurm's programs.
struct Slurm<'a> {
    dir: Option<&'a Path>,
}

impl Slurm<'_> {
    fn ask(&self, program: &str, words: &[&str]) -> Result<String, Failure> {
        let path = self.dir.map_or_else(|| PathBuf::from(program), |dir| dir.join(program));
        said(&path, words, &[("SLURM_TIME_FORMAT", "%s")]).map_err(|what| {
            let fix = "factors stay as they are; Slurm's programs are on the path, or in --slurm DIR, and its accounting answers";
            Failure::new(Code::System, format!("{} {}: {what}; {fix}", path.display(), words.join(" ")))
        })
    }

    fn tell(&self, words: &[&str]) -> Result<(), Failure> {
        let all: Vec<&str> = ["--immediate", "--quiet"].iter().chain(words).copied().collect();
        self.ask("sacctmgr", &all).map(drop)
    }

    fn show(&self, what: &[&str]) -> Result<String, Failure> {
        let words: Vec<&str> = ["--noheader", "--parsable2", "show"].iter().chain(what).copied().collect();
        self.ask("sacctmgr", &words)
    }

    /// Users of accounts, each once, with their QOS. Two who would have the same one are an error.
    fn payers(&self) -> Result<BTreeMap<Payer, String>, Failure> {
        let failed = |e: String| Failure::new(Code::System, format!("sacctmgr show assoc: {e}"));
        let text = self.show(&["assoc", "format=account,user,qos"])?;
        let payers: BTreeMap<Payer, String> = parse::payers(&text).map_err(failed)?.into_iter().collect();
        let mut names: BTreeMap<String, &Payer> = BTreeMap::new();
        for payer in payers.keys() {
            if let Some(other) = names.insert(payer.qos(), payer) {
                let text = format!(
                    "{other} and {payer} would both have the QOS {}; rename one of the accounts",
                    payer.qos()
                );
                return Err(failed(text));
            }
        }
        Ok(payers)
    }

    /// The factor of each QOS.
    fn factors(&self) -> Result<BTreeMap<String, f64>, Failure> {
        Ok(parse::factors(&self.show(&["qos", "format=name,usagefactor"])?))
    }

    /// The jobs that run, and those that ended lately.
    fn jobs(&self) -> Result<Vec<charge::Job>, Failure> {
        let mut words = vec!["--noheader", "--parsable2", "--allusers", "--starttime", "now-1day"];
        words.extend(["--format", "jobidraw,account,user,alloccpus,elapsedraw,state,totalcpu,start"]);
        let mut jobs = parse::jobs(&self.ask("sacct", &words)?)
            .map_err(|e| Failure::new(Code::System, format!("sacct: {e}; factors stay as they are")))?;
        let running: Vec<String> = jobs.iter().filter(|job| job.runs).map(|job| job.id.to_string()).collect();
        if !running.is_empty() {
            let words =
                ["--noheader", "--parsable2", "--allsteps", "--format", "jobid,ntasks,avecpu", "--jobs"];
            let list = running.join(",");
            let words: Vec<&str> = words.into_iter().chain([list.as_str()]).collect();
            parse::add_running(&mut jobs, &self.ask("sstat", &words)?);
        }
        Ok(jobs)
    }
}

/// # Errors
/// [`Failure`]: Slurm does not answer, or what is remembered cannot be read or written; no factor was changed then, but those said.
pub(super) fn run(args: &UsageArgs) -> Result<Code, Failure> {
    let slurm = Slurm { dir: args.slurm.as_deref() };
    let _lock = lock(&args.state)?;
    if args.prepare {
        return prepare(&slurm);
    }
    if args.remove {
        return remove(&slurm);
    }
    look(args, &slurm)
}

fn look(args: &UsageArgs, slurm: &Slurm<'_>) -> Result<Code, Failure> {
    let mut charges = remembered(&args.state)?;
    let jobs = slurm.jobs()?;
    let is_silent = |job: &&charge::Job| job.runs && job.used.is_none() && job.given >= SETTLED_S;
    let silent = jobs.iter().filter(is_silent).count();
    charges.look(clock::unix().0 / 1_000_000_000, &jobs);
    let (payers, factors) = (slurm.payers()?, slurm.factors()?);
    let (mut lines, mut without, mut failed) = (Vec::new(), Vec::new(), None);
    for (payer, account) in &charges.payers {
        let own = payer.qos();
        let there = factors.get(&own).filter(|_| payers.get(payer) == Some(&own));
        let Some(&there) = there else {
            without.push(payer.to_string());
            continue;
        };
        let changed = account.differs(there);
        if changed && !args.dry_run {
            let factor = format!("UsageFactor={:.2}", account.factor());
            // The others are not to wait for this one; the next look sets it again.
            if let Err(e) = slurm.tell(&["modify", "qos", &own, "set", &factor]) {
                failed = Some(e);
                continue;
            }
        }
        lines.push(Line {
            account: payer.account.clone(),
            user: payer.user.clone(),
            given_s: account.given,
            used_s: account.used,
            factor: account.factor(),
            changed,
        });
    }
    if !args.dry_run {
        files::replace(&args.state, &json(&charges)?)?;
    }
    if silent > 0 {
        let text =
            "not told what it uses, and left out (its node does not answer, or JobAcctGatherType is none)";
        tell(format_args!("divvy site usage: {}: {text}", super::count(silent, "running job")));
    }
    print(if args.json { json(&lines)? } else { in_words(&lines, &without) })?;
    failed.map_or(Ok(Code::Done), Err)
}

fn in_words(lines: &[Line], without: &[String]) -> String {
    let mut text: Vec<String> = lines.iter().map(told).collect();
    if !without.is_empty() {
        text.push(format!(
            "charged in full, without a QOS of their own (divvy site usage --prepare): {}",
            without.join(", ")
        ));
    }
    if text.is_empty() {
        text.push("no job has run since the last look".to_owned());
    }
    text.join("\n")
}

fn told(line: &Line) -> String {
    let changed = if line.changed { "" } else { ", as before" };
    format!(
        "{}/{}: used {:.0} of {:.0} CPU seconds; charged {:.2} of what is given from now on{changed}",
        line.account, line.user, line.used_s, line.given_s, line.factor
    )
}

/// What the last look has left; nothing before the first.
fn remembered(file: &Path) -> Result<Charges, Failure> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Charges::default()),
        Err(e) => return Err(crate::files::failed("read", file, &e)),
    };
    let fix = "give another --state, or remove it: the next look begins anew, with what runs then";
    let charges: Charges = serde_json::from_str(&text)
        .map_err(|e| Failure::new(Code::File, format!("{}: {e}; {fix}", file.display())))?;
    if charges.version > VERSION {
        let text =
            format!("{}: version {}, this divvy knows {VERSION}; {fix}", file.display(), charges.version);
        return Err(Failure::new(Code::File, text));
    }
    Ok(charges)
}

/// Nobody else looks while this lives.
fn lock(file: &Path) -> Result<File, Failure> {
    let path = files::beside(file, "lock");
    let failed = |e: std::io::Error| {
        let fix = "its directory has to be ours to write: --state FILE names another";
        Failure::new(Code::File, format!("open {}: {}; {fix}", path.display(), files::cause(&e)))
    };
    // Where no divvyd runs nobody has made it; one that comes takes it from nobody who lets others in.
    if let Some(dir) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    }
    let lock = File::create(&path).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => {
            let text = format!("{}: another look is under way; it is enough", path.display());
            Err(Failure::new(Code::File, text))
        }
        Err(std::fs::TryLockError::Error(e)) => Err(failed(e)),
    }
}

fn prepare(slurm: &Slurm<'_>) -> Result<Code, Failure> {
    let there: BTreeSet<String> = slurm.factors()?.into_keys().collect();
    let (mut made, mut left) = (0, Vec::new());
    for (payer, qos) in slurm.payers()? {
        let own = payer.qos();
        if qos == own {
            continue;
        }
        if !matches!(qos.as_str(), "" | "normal") {
            left.push(format!("{payer} ({qos})"));
            continue;
        }
        if !there.contains(&own) {
            slurm.tell(&["add", "qos", &own])?;
        }
        let (of, set) =
            (format!("account={}", payer.account), [format!("qos={own}"), format!("defaultqos={own}")]);
        slurm.tell(&["modify", "user", &payer.user, "where", &of, "set", &set[0], &set[1]])?;
        made += 1;
    }
    let mut text =
        format!("{made} QOS made, each for one user of an account; they hold for jobs submitted from now on");
    if !left.is_empty() {
        text.push_str(&format!("\nleft alone, with QOS of their own: {}", left.join(", ")));
    }
    print(text)?;
    Ok(Code::Done)
}

fn remove(slurm: &Slurm<'_>) -> Result<Code, Failure> {
    let there = slurm.factors()?;
    let mut removed = 0;
    for (payer, qos) in slurm.payers()? {
        let own = payer.qos();
        if qos == own {
            let of = format!("account={}", payer.account);
            slurm.tell(&[
                "modify",
                "user",
                &payer.user,
                "where",
                &of,
                "set",
                "defaultqos=-1",
                "qos=normal",
            ])?;
        }
        if there.contains_key(&own) {
            slurm.tell(&["delete", "qos", &own])?;
            removed += 1;
        }
    }
    print(format!("{removed} QOS removed; their users have `normal` again"))?;
    Ok(Code::Done)
}
