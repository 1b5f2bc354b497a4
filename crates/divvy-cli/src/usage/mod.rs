//! `divvy usage`: who used how much, kept in a file, told as a table; and a word to whoever uses far more than its share.
//!
//! It asks divvyd as everybody can, so that divvyd keeps no history, and nothing is lost to it if this ends.

mod account;
mod report;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use divvy_api::client::{Api, ApiError, Choice};
use divvy_api::types::{Client, Happening};
use divvy_linux::clock;
use divvy_market::Resource;
use divvy_policy::Nanos;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::account::{Account, Over, Watch};
use crate::files;
use crate::remote::which::Which;
use crate::{Code, Failure, print, tell};

/// Where a machine's usage is kept.
const FILE: &str = "/var/lib/divvy/usage.jsonl";
/// Between two looks whether a signal asks for the end.
const STEP: Nanos = Nanos::from_millis(100);
/// Events in one answer at most: if there are as many, there are more.
const EVENTS_MAX: usize = 8_192;

#[derive(Debug, ClapArgs)]
pub(crate) struct UsageArgs {
    #[command(subcommand)]
    command: UsageCommand,
}

#[derive(Debug, Subcommand)]
enum UsageCommand {
    /// Write down who uses how much, until a signal ends it; and tell whoever uses far more than its share
    Record(RecordArgs),
    /// Who used how much: a table of what was written down
    Report(ReportArgs),
}

#[derive(Debug, ClapArgs)]
struct RecordArgs {
    /// The file that lines are added to
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,

    /// Between two looks at the clients
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = divvy_api::time::parse)]
    every: Duration,

    /// Between two writes: a line for each user who used something
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = divvy_api::time::parse)]
    write: Duration,

    /// A command for the shell, run when a user has used more than --over times its share of the CPUs for all of --span. It finds
    /// DIVVY_USER, DIVVY_USED and DIVVY_SHARE (both in percent of the CPUs) and DIVVY_SPAN in its environment. Where it fails, that
    /// is said, and it is run again after --span. At the system's divvyd only
    #[arg(long, value_name = "COMMAND")]
    notify: Option<String>,

    /// How many times its share is far more
    #[arg(long, value_name = "TIMES", default_value_t = 2.0, value_parser = parse_times, requires = "notify")]
    over: f64,

    /// Over how long a time
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = divvy_api::time::parse, requires = "notify")]
    span: Duration,

    /// How long a user who was told is left alone
    #[arg(long, value_name = "TIME", default_value = "6h", value_parser = divvy_api::time::parse, requires = "notify")]
    again: Duration,

    /// A user whom nobody tells (repeat for more)
    #[arg(long, value_name = "USER", requires = "notify")]
    exempt: Vec<String>,

    /// Print each line that is written, too
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    which: Which,
}

#[derive(Debug, ClapArgs)]
struct ReportArgs {
    /// The file that `divvy usage record` writes
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,

    /// Only of the last so long: 24h, 7days [default: all]
    #[arg(long, value_name = "TIME", value_parser = divvy_api::time::parse)]
    since: Option<Duration>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn parse_times(text: &str) -> Result<f64, String> {
    let times = text.parse::<f64>().ok().filter(|times| (1.0..=1000.0).contains(times));
    times.ok_or_else(|| "expected 1 to 1000".to_owned())
}

pub(crate) fn run(args: &UsageArgs) -> Result<Code, Failure> {
    match &args.command {
        UsageCommand::Record(args) => record(args),
        UsageCommand::Report(args) => report::run(args),
    }
}

/// Whom a command did not tell, and how it ended.
type Failed = (String, String);

/// What the recorder remembers from look to look.
struct Recorder<'a> {
    args: &'a RecordArgs,
    choice: Choice,
    own: String,
    /// The divvyd that was asked last: another one counts anew.
    divvyd: i32,
    account: Account,
    /// The event to ask for next.
    events: u64,
    watch: Option<Watch>,
    /// Of commands of --notify that failed: for whom, and how.
    failed: (Sender<Failed>, Receiver<Failed>),
    /// Of the lines that are to be written: when they begin, and what the CPUs could have given since.
    from: u64,
    machine_ns: u64,
    cpus: usize,
}

fn record(args: &RecordArgs) -> Result<Code, Failure> {
    let choice = args.which.choice()?;
    for (name, time) in [("--every", args.every), ("--write", args.write), ("--span", args.span)] {
        if time < Duration::from_millis(100) {
            return Err(Failure::new(Code::Usage, format!("{name} {time:?}: give 100ms or more")));
        }
    }
    if args.notify.is_some() && choice == Choice::Own {
        let why = "--notify needs the system's divvyd, which knows whose share is what; leave it away, or say --system";
        return Err(Failure::new(Code::Usage, why));
    }
    // What cannot be written at all is told at once.
    append(&args.file, "")?;
    let _alone = alone(&args.file)?;
    let ended = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, Arc::clone(&ended), signal as usize)
            .map_err(|e| Failure::new(Code::System, format!("wait for signals: {e}")))?;
    }
    let api = choice.api()?;
    args.notify.as_deref().into_iter().for_each(warn_of_missing);
    let mut recorder = Recorder::begin(args, choice, &api)?;
    let (mut looked, mut written) = (clock::now(), clock::now());
    let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    loop {
        clock::sleep(STEP);
        let signal = ended.load(Ordering::Relaxed);
        let now = clock::now();
        if let Err(e) = recorder.forget_failed() {
            tell(format_args!("divvy usage: {}", e.text));
        }
        let since = now.since(looked);
        if signal != 0 || since >= nanos(args.every) {
            looked = now;
            // A divvyd that is started anew is waited for.
            if let Err(e) = recorder.look(since) {
                tell(format_args!("divvy usage: {}", e.text));
            }
        }
        if signal != 0 || now.since(written) >= nanos(args.write) {
            written = now;
            recorder.write()?;
        }
        if signal != 0 {
            return Ok(Code::Signalled(signal as i32));
        }
    }
}

impl<'a> Recorder<'a> {
    fn begin(args: &'a RecordArgs, choice: Choice, api: &Api) -> Result<Self, Failure> {
        let status = api.status()?;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let watch = |told| Watch::new(args.over, nanos(args.span), nanos(args.again), told);
        let told = args.notify.as_ref().map(|_| told(&args.file)).transpose()?;
        let uid = rustix::process::geteuid().as_raw();
        let mut recorder = Self {
            args,
            choice,
            own: divvy_linux::user_name(uid).unwrap_or_else(|| uid.to_string()),
            divvyd: status.pid,
            account: Account::from(&api.clients()?.clients),
            events: 0,
            watch: told.map(watch),
            failed: channel(),
            from: unix_seconds(),
            machine_ns: 0,
            cpus: status.cpus.len(),
        };
        // Those who left before have been counted by nobody.
        recorder.left_since(api)?;
        Ok(recorder)
    }

    /// Clients that left since the last look.
    fn left_since(&mut self, api: &Api) -> Result<Vec<u32>, ApiError> {
        let mut left = Vec::new();
        loop {
            let events = api.events(self.events)?;
            self.events = events.next;
            let gone = events.events.iter().filter(|event| event.what == Happening::Left);
            left.extend(gone.map(|event| event.client));
            if events.events.len() < EVENTS_MAX {
                return Ok(left);
            }
        }
    }

    /// Counts what was used in the `since` before now, and tells whoever is far over.
    fn look(&mut self, since: Nanos) -> Result<(), Failure> {
        let api = self.choice.api()?;
        let status = api.status()?;
        if status.pid != self.divvyd {
            // All that it says, it has counted from its own beginning on.
            (self.divvyd, self.events, self.account) = (status.pid, 0, self.account.anew());
        }
        self.cpus = status.cpus.len();
        let there = api.clients()?.clients;
        let mut gone: Vec<u32> = self.left_since(&api)?;
        gone.extend(self.account.gone(&there));
        gone.retain(|id| there.iter().all(|client| client.id != *id));
        gone.sort_unstable();
        gone.dedup();
        // The last 64 that left can be asked about.
        let left: Vec<Client> = gone.iter().filter_map(|id| api.client(&id.to_string()).ok()).collect();
        let used = self.account.look(&there, &left, &self.own);
        self.machine_ns += since.0 * self.cpus as u64;
        if let Some(watch) = &mut self.watch {
            let shares = shares(&api)?;
            let (now, exempt) = (clock::unix().0, &self.args.exempt);
            let over = watch.look(now, since.0, &used, self.cpus, &shares, exempt);
            if !over.is_empty() {
                // Before anybody is told: a restart repeats nothing.
                remember_told(&self.args.file, &watch.told)?;
            }
            over.iter().for_each(|over| notify(self.args, over, &self.failed.0));
        }
        Ok(())
    }

    /// Says which commands have failed since the last time, and forgets that their users were told.
    fn forget_failed(&mut self) -> Result<(), Failure> {
        let failed: Vec<Failed> = self.failed.1.try_iter().collect();
        let Some(watch) = self.watch.as_mut().filter(|_| !failed.is_empty()) else { return Ok(()) };
        let again = humantime::format_duration(self.args.span);
        for (user, how) in failed {
            let user_shown = crate::strip::plain(&user);
            tell(format_args!("divvy usage: --notify for {user_shown}: {how}; it is tried again in {again}"));
            watch.not_told(&user, clock::unix().0);
        }
        remember_told(&self.args.file, &watch.told)
    }

    fn write(&mut self) -> Result<(), Failure> {
        let to = unix_seconds();
        let lines = self.account.take(self.from, to, self.machine_ns);
        (self.from, self.machine_ns) = (to, 0);
        let mut text = String::new();
        for line in lines {
            let line = serde_json::to_string(&line).map_err(|e| Failure::new(Code::System, e))?;
            if self.args.json {
                print(&line)?;
            }
            text.push_str(&line);
            text.push('\n');
        }
        append(&self.args.file, &text)
    }
}

/// Where is kept who was told when: beside the file of usage.
fn told_file(file: &Path) -> PathBuf {
    files::beside(file, "told")
}

/// Who was told when, ns of the clock on the wall; nobody where nothing is kept. What does not read is said, and forgotten.
fn told(file: &Path) -> Result<BTreeMap<String, u64>, Failure> {
    let path = told_file(file);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(serde_json::from_str(&text).unwrap_or_else(|e| {
            tell(format_args!("divvy usage: {}: {e}; whoever is far over is told anew", path.display()));
            BTreeMap::new()
        })),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(e) => Err(files::failed("read", &path, &e)),
    }
}

fn remember_told(file: &Path, told: &BTreeMap<String, u64>) -> Result<(), Failure> {
    let text = serde_json::to_string(told).map_err(|e| Failure::new(Code::System, e))?;
    files::replace(&told_file(file), &text)
}

fn unix_seconds() -> u64 {
    clock::unix().0 / 1_000_000_000
}

/// Keeps others from writing to the same file, by a lock that ends with this: two would count everybody twice.
///
/// # Errors
/// Another does so already.
fn alone(file: &Path) -> Result<Option<File>, Failure> {
    // As it is written: a pipe is not waited for, and a lock over a network needs it.
    let opened = File::options().read(true).append(true).open(file).ok();
    let opened = opened.filter(|opened| opened.metadata().is_ok_and(|known| known.is_file()));
    let Some(opened) = opened else { return Ok(None) };
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            let text = format!(
                "{}: another `divvy usage record` adds to it, and each user would be counted twice; end that one (fuser {0}), or name \
                 another file",
                file.display()
            );
            Err(Failure::new(Code::File, text))
        }
        // A file system without locks keeps nobody away.
        _ => Ok(Some(opened)),
    }
}

/// Adds lines to the file, in one piece. What a crash has left there of a line is one that cannot be read, and spoils no other.
fn append(file: &Path, text: &str) -> Result<(), Failure> {
    files::check_dir(file).map_err(|e| match file == Path::new(FILE) {
        true => {
            Failure { text: format!("{}; or name a file of yours: divvy usage record FILE", e.text), ..e }
        }
        false => e,
    })?;
    let added =
        std::fs::OpenOptions::new().read(true).append(true).create(true).open(file).and_then(|mut file| {
            let length = file.metadata().map(|known| if known.is_file() { known.len() } else { 0 })?;
            let mut last = *b"\n";
            if length > 0 && !text.is_empty() {
                file.read_at(&mut last, length - 1)?; // Nothing, where it was cut meanwhile.
            }
            let text = if last == *b"\n" { text.to_owned() } else { format!("\n{text}") };
            file.write_all(text.as_bytes())
        });
    added.map_err(|e| files::failed("write", file, &e))
}

/// Each user's part of the CPUs, were everybody active who ever was here.
fn shares(api: &Api) -> Result<BTreeMap<String, f64>, ApiError> {
    let currencies = api.currencies()?;
    // The rest are clients, and what users divide among themselves.
    let of_user = currencies.into_iter().filter(|c| !c.client && owns(&c.name, &c.owner));
    Ok(of_user
        .filter_map(|currency| {
            let cpu = currency.standing.iter().find(|standing| standing.resource == Resource::Cpu)?;
            Some((currency.owner, cpu.requested))
        })
        .collect())
}

/// Whether a currency of that name is the own one of its owner: of a user without a name it is called `uid:NUMBER`.
fn owns(name: &str, owner: &str) -> bool {
    name == owner || name.strip_prefix("uid:") == Some(owner)
}

/// Says so where the shell will not find what a command of `--notify` begins with: else that would be told when somebody is over.
fn warn_of_missing(command: &str) {
    let word = command.split_whitespace().next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    let mut shell = Command::new("sh");
    shell.args(["-c", "command -v -- \"$1\"", "sh", word]).stdin(Stdio::null()).stdout(Stdio::null());
    if word.chars().all(is_plain) && shell.status().is_ok_and(|status| !status.success()) {
        tell(format_args!(
            "divvy usage: --notify: there is no '{word}' that sh can run; nobody will be told until there is"
        ));
    }
}

/// Runs the command that tells a user. Nobody waits for it; where it fails, that is sent.
fn notify(args: &RecordArgs, over: &Over, failed: &Sender<Failed>) {
    let Some(command) = &args.notify else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    shell.env("DIVVY_USER", &over.user);
    shell.env("DIVVY_USED", format!("{:.0}", over.used * 100.0));
    shell.env("DIVVY_SHARE", format!("{:.0}", over.share * 100.0));
    shell.env("DIVVY_SPAN", humantime::format_duration(args.span).to_string());
    let (user, failed) = (over.user.clone(), failed.clone());
    match shell.spawn() {
        Ok(mut child) => {
            std::thread::spawn(move || {
                let how = match child.wait() {
                    Ok(status) if status.success() => return,
                    Ok(status) => status.to_string(),
                    Err(e) => format!("wait for sh: {e}"),
                };
                // Nobody asks any more where divvy ends just now.
                let _ = failed.send((user, how));
            });
        }
        Err(e) => drop(failed.send((user, format!("run sh: {e}")))),
    }
}
