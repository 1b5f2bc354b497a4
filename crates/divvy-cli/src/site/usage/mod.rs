//! `divvy site usage`: Slurm's fairshare sees what jobs used, not only what they were given.
//!
//! How, and why by QOS: `charge.rs`. Here Slurm is asked and told, and what is known is kept in a file.

mod charge;
mod parse;

use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;

use self::charge::{Charges, Payer, QOS_PREFIX, VERSION};
use super::slurm::said;
use crate::remote::json;
use crate::{Code, Failure, print};

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

    /// Only this cluster of Slurm's
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// The directory of sacct, sstat and sacctmgr, where they are not on the path
    #[arg(long, value_name = "DIR")]
    slurm: Option<PathBuf>,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

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
    args: &'a UsageArgs,
}

impl Slurm<'_> {
    fn ask(&self, program: &str, words: &[&str]) -> Result<String, Failure> {
        let path = self.args.slurm.as_deref().map_or_else(|| PathBuf::from(program), |dir| dir.join(program));
        said(&path, words).map_err(|what| {
            let fix = "factors stay as they are; Slurm's programs are on the path, or in --slurm DIR, and its accounting answers";
            Failure::new(Code::System, format!("{} {}: {what}; {fix}", path.display(), words.join(" ")))
        })
    }

    fn tell(&self, words: &[&str]) -> Result<(), Failure> {
        let all: Vec<&str> = ["--immediate", "--quiet"].iter().chain(words).copied().collect();
        self.ask("sacctmgr", &all).map(drop)
    }

    /// Users of accounts, with their QOS.
    fn payers(&self) -> Result<Vec<(Payer, String)>, Failure> {
        let mut words = vec!["--noheader", "--parsable2", "show", "assoc"];
        let cluster = self.args.cluster.as_ref().map(|name| format!("cluster={name}"));
        words.extend(cluster.as_deref());
        words.push("format=account,user,qos");
        let text = self.ask("sacctmgr", &words)?;
        parse::payers(&text).map_err(|e| Failure::new(Code::System, format!("sacctmgr show assoc: {e}")))
    }

    /// The jobs that run, and those that ended lately.
    fn jobs(&self) -> Result<Vec<charge::Job>, Failure> {
        let failed = |what: &str, e: String| {
            Failure::new(Code::System, format!("{what}: {e}; factors stay as they are"))
        };
        let mut words = vec!["--noheader", "--parsable2", "--allusers", "--starttime", "now-1day"];
        words.extend(self.args.cluster.iter().flat_map(|name| ["--clusters", name.as_str()]));
        words.extend(["--format", "jobidraw,account,user,alloccpus,elapsedraw,state,totalcpu"]);
        let mut jobs = parse::jobs(&self.ask("sacct", &words)?).map_err(|e| failed("sacct", e))?;
        let running: Vec<String> = jobs.iter().filter(|job| job.runs).map(|job| job.id.to_string()).collect();
        if !running.is_empty() {
            let words =
                ["--noheader", "--parsable2", "--allsteps", "--format", "jobid,ntasks,avecpu", "--jobs"];
            let list = running.join(",");
            let words: Vec<&str> = words.into_iter().chain([list.as_str()]).collect();
            parse::add_running(&mut jobs, &self.ask("sstat", &words)?).map_err(|e| failed("sstat", e))?;
        }
        Ok(jobs)
    }
}

/// # Errors
/// [`Failure`]: Slurm does not answer, or what is remembered cannot be read or written; no factor was changed then, but those said.
pub(super) fn run(args: &UsageArgs) -> Result<Code, Failure> {
    let slurm = Slurm { args };
    if args.prepare {
        return prepare(&slurm);
    }
    if args.remove {
        return remove(&slurm);
    }
    let _lock = lock(&args.state)?;
    let mut charges = remembered(&args.state)?;
    let changed = charges.look(&slurm.jobs()?);
    let own: Vec<Payer> = slurm
        .payers()?
        .into_iter()
        .filter(|(payer, qos)| *qos == payer.qos())
        .map(|(payer, _)| payer)
        .collect();
    let mut lines = Vec::new();
    let mut without = Vec::new();
    for (payer, account) in &charges.payers {
        if !own.contains(payer) {
            without.push(format!("{}/{}", payer.account, payer.user));
            continue;
        }
        let changed = changed.iter().any(|(of, _)| of == payer);
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
        for line in lines.iter().filter(|line| line.changed) {
            let payer = Payer { account: line.account.clone(), user: line.user.clone() };
            let factor = format!("UsageFactor={:.2}", line.factor);
            slurm.tell(&["modify", "qos", &payer.qos(), "set", &factor])?;
        }
        remember(&args.state, &charges)?;
    }
    if args.json {
        print(json(&lines)?)?;
        return Ok(Code::Done);
    }
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
    print(text.join("\n"))?;
    Ok(Code::Done)
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
        Err(e) => return Err(Failure::new(Code::File, format!("read {}: {e}", file.display()))),
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

/// Written whole or not at all.
fn remember(file: &Path, charges: &Charges) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new(Code::File, format!("write {}: {e}", file.display()));
    let new = beside(file, "new");
    let text = json(charges)?;
    let write = || -> std::io::Result<()> {
        let mut out = File::create(&new)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&new, file)
    };
    write().map_err(failed)
}

/// `FILE.WORD`.
fn beside(file: &Path, word: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(word);
    name.into()
}

/// Nobody else looks while this lives.
fn lock(file: &Path) -> Result<File, Failure> {
    let path = beside(file, "lock");
    let failed = |e: std::io::Error| {
        let fix = "its directory has to be ours to write: --state FILE names another";
        Failure::new(Code::File, format!("open {}: {e}; {fix}", path.display()))
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
    let (mut made, mut left) = (0, Vec::new());
    for (payer, qos) in slurm.payers()? {
        let (own, Payer { account, user }) = (payer.qos(), &payer);
        if qos == own {
            continue;
        }
        if !matches!(qos.as_str(), "" | "normal") {
            left.push(format!("{account}/{user} ({qos})"));
            continue;
        }
        slurm.tell(&["add", "qos", &own])?;
        let (of, set) = (format!("account={account}"), [format!("qos={own}"), format!("defaultqos={own}")]);
        slurm.tell(&["modify", "user", user, "where", &of, "set", &set[0], &set[1]])?;
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
    let mut removed = 0;
    for (payer, qos) in slurm.payers()? {
        if !qos.starts_with(QOS_PREFIX) || qos != payer.qos() {
            continue;
        }
        let of = format!("account={}", payer.account);
        slurm.tell(&["modify", "user", &payer.user, "where", &of, "set", "defaultqos=-1", "qos=normal"])?;
        slurm.tell(&["delete", "qos", &qos])?;
        removed += 1;
    }
    print(format!("{removed} QOS removed; their users have `normal` again"))?;
    Ok(Code::Done)
}
