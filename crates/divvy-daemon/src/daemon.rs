//! `divvyd`: its arguments, and its life from the lock to the last client.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use divvy_engine::Session;
use divvy_engine::policies::{CYCLE_LONGEST, GateSpec};
use divvy_linux::background::{self, Notice, Side, Word};
use divvy_linux::cgroup::Means;
use divvy_linux::guard::CAPACITY;
use divvy_linux::{CpuMask, HostParams, LinuxHost, clock};
use divvy_policy::Nanos;

use crate::backend::{self, BackendArg, Whose};
use crate::connection_limit::ConnectionLimit;
use crate::local::Local;
use crate::lookers::Lookers;
use crate::message::Command;
use crate::metrics::Metrics;
use crate::place::{Lock, Locked, listen_in, lock_in, log_in, remove_socket_in};
use crate::protect::Shelter;
use crate::routes::{Context, router};
use crate::rules::RulesFile;
use crate::scheduler::{End, FIRST_LINGER, Scheduler, Settings};
use crate::server::Server;
use crate::subscribers::Subscribers;
use crate::system::{self, SystemArgs};
use crate::{message, say};
use divvy_api::client::Api;
use divvy_api::place::Place;
use divvy_api::types::Status;

/// Another divvyd that has the lock is given this long to serve or to end.
const OTHER_TIME: Nanos = Nanos::from_secs(15);
/// One without clients, which other options were given to, this long to leave: longer than one that has just come stays.
const IDLE_TIME: Nanos = Nanos(FIRST_LINGER.0 + 1_000_000_000);
const OTHER_LOOK: Nanos = Nanos::from_millis(10);
/// What is answered after this long is not of before it was first asked.
const ANSWER_AGE: Nanos = Nanos::from_millis(400);

/// A user's own divvyd stays this long after its last client has left.
const LINGER: Linger = Linger::Time(Nanos::from_secs(2));

/// Options that ask for what a user's own does anyway.
const DEFAULTS: [&str; 5] =
    ["--backend signals", "--policy exact", "--presence 1", "--period 1s", "--linger 2s"];

const AFTER: &str = "\
Examples:
  divvyd --user --linger forever                   # your own, which stays though nobody is a client
  divvyd --user --background --cpus 0 --protect sshd
  divvyd --system --backend auto                   # for everybody, by the best that this machine has

Exit codes:
  0    it ended as it should: the last client left, or a signal asked for it; --background: a divvyd with these options serves
  1    another divvyd of this user, or of the system, runs already; --background: with other options
  2    the arguments cannot be used
  4    --system: the market's file is damaged, or of a version that this divvyd does not read
  5    the system refused: a directory that is not safe, a permission, a limit, a failed call";

/// Divides the CPU among running programs in proportion to shares, as `divvy` asks it to: a user's own, or everybody's.
#[derive(Debug, Parser)]
#[command(name = "divvyd", version, after_help = AFTER)]
struct Args {
    #[command(flatten)]
    mode: Mode,

    /// Go into the background; the command ends as soon as a divvyd with these options serves. One that has others and no
    /// clients is waited for, as it mostly leaves soon
    #[arg(long, conflicts_with = "system")]
    background: bool,

    #[command(flatten)]
    overrides: Overrides,

    #[command(flatten)]
    system: SystemArgs,
}

/// Whom it serves: one of them is to be said.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Mode {
    /// Serve the user who starts it, on a socket in $DIVVY_RUNTIME_DIR (else $XDG_RUNTIME_DIR/divvy, else /tmp/divvy-UID)
    #[arg(long)]
    user: bool,

    /// Serve everybody on this machine, and keep the market; as root, on a socket in /run/divvy
    #[arg(long)]
    system: bool,
}

/// How it schedules, of what there is a default or a policy for.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Overrides {
    /// By what clients are held, or weighed; for freezer and cgroup they are moved into cgroups of divvyd's while they are
    /// clients (docs/backends.md) [default: signals]
    #[arg(long, value_enum)]
    pub(crate) backend: Option<BackendArg>,

    /// The policy, as for `divvy share`; `exact`, or what the administrator's policy says, if not given. With --backend kernel one of
    /// divvy-scx: stride, vtrr, lottery, pbs, las, fcfs or rr, with its parameters (docs/kernel.md)
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// CPU time of one share in one cycle, 1ms to 10s; 10ms, or as the administrator's policy says, if not given
    #[arg(long, value_name = "TIME", value_parser = divvy_api::time::parse)]
    pub(crate) quantum: Option<Duration>,

    /// Longest run in one go (exact): even inside the cycle, for more signals
    #[arg(long, value_name = "TIME", value_parser = divvy_api::time::parse)]
    pub(crate) slice: Option<Duration>,

    /// Clients released for each CPU at a time (exact): how many strangers compete with [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) presence: Option<u32>,

    /// Time after which the past is forgotten (rate) [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = divvy_api::time::parse)]
    pub(crate) period: Option<Duration>,

    /// CPUs to divide: 0,2-3. All that divvyd itself may use if not given
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuMask>,

    /// Stay this long after the last client has left; `forever` stays until it is told to end. 2s if not given, with
    /// --system forever
    #[arg(long, value_name = "TIME", value_parser = parse_linger)]
    pub(crate) linger: Option<Linger>,

    /// Never touch processes of this name (repeat for more), beside those that are never touched anyway
    #[arg(long, value_name = "NAME", value_parser = crate::protect::checked)]
    pub(crate) protect: Vec<String>,
}

/// How long it stays without a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linger {
    Time(Nanos),
    Forever,
}

impl Linger {
    /// `None` for ever.
    pub(crate) const fn time(self) -> Option<Nanos> {
        match self {
            Self::Time(time) => Some(time),
            Self::Forever => None,
        }
    }
}

fn parse_linger(text: &str) -> Result<Linger, String> {
    if text == "forever" {
        return Ok(Linger::Forever);
    }
    let time = divvy_api::time::parse(text).map_err(|why| format!("{why}, or forever"))?;
    Ok(Linger::Time(nanos(time)))
}

pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The command line as clap knows it, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    use clap::CommandFactory as _;
    Args::command()
}

/// Why divvyd cannot go on, and the code that it ends with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn usage(e: impl ToString) -> Self {
        Self { code: 2, text: e.to_string() }
    }

    pub(crate) fn system(e: impl ToString) -> Self {
        Self { code: 5, text: e.to_string() }
    }
}

/// Does what the command line of this process says; the code is for the shell. To be called first in `main`: nothing
/// may be open and no thread running beside the first.
#[must_use]
pub fn main() -> ExitCode {
    // A file that reaches `ulimit -f` is a file that cannot be written, and not the end of whoever holds others. A handler
    // that does nothing, because clients do not inherit it.
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: there is one thread, and the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t) };
    let args = match Args::try_parse() {
        Ok(args) => args,
        // Help and version are no errors, if they can be read.
        Err(e) if !e.use_stderr() => {
            let Err(e) = divvy_linux::stdio::print_by(|| e.print()) else { return ExitCode::SUCCESS };
            say(format_args!("write to standard output: {e}"));
            return ExitCode::from(4);
        }
        Err(e) => {
            let text = e.render().to_string();
            let cause: Vec<&str> = text.split("\n\n").next().unwrap_or(&text).split_whitespace().collect();
            let cause = cause.join(" ");
            say(format_args!("{}; see --help", cause.strip_prefix("error: ").unwrap_or(&cause)));
            return ExitCode::from(2);
        }
    };
    let done = if args.mode.system {
        // SAFETY: nothing has been opened since the process began, and there is one thread.
        unsafe { system::run(&args.system, &args.overrides) }
    } else if args.background {
        in_background(&args.overrides)
    } else {
        prepare(&args.overrides).and_then(|p| p.serve(None))
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            if !failure.text.is_empty() {
                say(&failure.text);
            }
            ExitCode::from(failure.code)
        }
    }
}

fn in_background(args: &Overrides) -> Result<ExitCode, Failure> {
    // SAFETY: nothing has been opened since the process began, but what whoever started it left open.
    unsafe { background::close_inherited() };
    let prepared = prepare(args)?;
    // SAFETY: no thread has been started.
    match unsafe { background::split(&log_in(prepared.place.dir())) }.map_err(Failure::system)? {
        Side::Background(notice) => prepared.serve(Some(notice)),
        Side::Foreground(waiting) => match waiting.wait() {
            Word::Ready => Ok(ExitCode::SUCCESS),
            Word::Failed(code, text) => Err(Failure { code, text }),
            Word::Silent => {
                let log = log_in(prepared.place.dir());
                Err(Failure::system(format!("divvyd ended before it was ready; see {}", log.display())))
            }
        },
    }
}

/// What was asked for, checked, and where.
struct Prepared {
    place: Place,
    settings: Settings,
    means: Means,
    cpus: Option<CpuMask>,
    protect: Vec<String>,
}

impl Overrides {
    /// Sets in `spec` what was asked for. An option that the policy knows nothing of was meant for another.
    pub(crate) fn apply(&self, spec: &mut GateSpec) -> Result<(), Failure> {
        if let Some(policy) = &self.policy {
            spec.policy.clone_from(policy);
        }
        let times = [(self.quantum, &mut spec.quantum_ns), (self.period, &mut spec.period_ns)];
        for (time, to) in times.into_iter().filter_map(|(time, to)| Some((time?, to))) {
            *to = nanos(time).0;
        }
        spec.cycle_ns_max = if self.quantum.is_none() { Some(CYCLE_LONGEST.0) } else { None };
        spec.slice_ns = self.slice.map(|time| nanos(time).0).or(spec.slice_ns);
        spec.presence = self.presence.unwrap_or(spec.presence);
        let options = [
            ("slice", self.slice.is_some()),
            ("presence", self.presence.is_some()),
            ("period", self.period.is_some()),
        ];
        spec.parse().and_then(|policy| policy.check_options(&options)).map_err(Failure::usage)
    }

    /// The options that were given, each spelt one way and always in this order.
    pub(crate) fn told(&self) -> Vec<String> {
        let spelt = |time| humantime::format_duration(time).to_string().replace(' ', "");
        let time = |name: &str, time: Option<Duration>| Some(format!("--{name} {}", spelt(time?)));
        let backend = self.backend.and_then(|backend| backend.to_possible_value());
        let linger = self.linger.map(|linger| match linger.time() {
            Some(time) => format!("--linger {}", spelt(Duration::from_nanos(time.0))),
            None => "--linger forever".to_owned(),
        });
        let mut protect = self.protect.clone();
        protect.sort();
        protect.dedup();
        let of_one = [
            backend.map(|backend| format!("--backend {}", backend.get_name())),
            self.policy.as_ref().map(|policy| format!("--policy {policy}")),
            time("quantum", self.quantum),
            time("slice", self.slice),
            self.presence.map(|presence| format!("--presence {presence}")),
            time("period", self.period),
            self.cpus.as_ref().map(|cpus| format!("--cpus {cpus}")),
            linger,
        ];
        of_one.into_iter().flatten().chain(protect.iter().map(|name| format!("--protect {name}"))).collect()
    }
}

fn prepare(args: &Overrides) -> Result<Prepared, Failure> {
    let mut spec = GateSpec::default();
    args.apply(&mut spec)?;
    // The policy's parameters are checked before anything is touched: for one CPU, as for any number.
    spec.make().map_err(Failure::usage)?;
    if let Some(cpus) = &args.cpus {
        divvy_linux::check_cpus(cpus).map_err(Failure::usage)?;
    }
    if args.backend == Some(BackendArg::Kernel) {
        let text = "--backend kernel: it is the whole machine's scheduler, and takes root: divvyd --system --backend kernel";
        return Err(Failure::usage(text));
    }
    let (means, told) = backend::pick(args, Whose::User, None, &mut spec)?;
    let linger = args.linger.unwrap_or(LINGER).time();
    let place = Place::open_or_create().map_err(Failure::system)?;
    Ok(Prepared {
        place,
        settings: Settings { spec, linger, reload: None, market: None, backend: told, options: args.told() },
        means,
        cpus: args.cpus,
        protect: args.protect.clone(),
    })
}

impl Prepared {
    /// Takes the lock and serves until the end. Whoever waits in the foreground is told how that begins.
    fn serve(self, notice: Option<Notice>) -> Result<ExitCode, Failure> {
        let begun = match self.take_lock(notice.is_some()) {
            Ok(Some(lock)) => self.begin(lock),
            Ok(None) => {
                notice.into_iter().for_each(Notice::ready); // Another one serves.
                return Ok(ExitCode::SUCCESS);
            }
            Err(failure) => Err(failure),
        };
        match begun {
            Ok(running) => {
                notice.into_iter().for_each(Notice::ready);
                running.run()
            }
            Err(failure) => {
                if let Some(notice) = notice {
                    notice.failed(failure.code, &failure.text);
                }
                Err(failure)
            }
        }
    }

    /// The lock of the one who serves; `None` where another one does and that is as good.
    fn take_lock(&self, another_will_do: bool) -> Result<Option<Lock>, Failure> {
        let begun = clock::now();
        let (give_up, idle, told) = (begun + OTHER_TIME, begun + IDLE_TIME, begun + ANSWER_AGE);
        loop {
            let theirs = match lock_in(self.place.dir()).map_err(Failure::system)? {
                Locked::Ours(lock) => return Ok(Some(lock)),
                Locked::Theirs(pid) => pid.map_or_else(String::new, |pid| format!(" (pid {pid})")),
            };
            if !another_will_do {
                let text = format!("another divvyd of this user runs already{theirs}");
                return Err(Failure { code: 1, text });
            }
            // It serves, or is about to, or is about to end.
            let served = Api::connect(&self.place.socket());
            if served.is_ok() && self.settings.options.is_empty() {
                return Ok(None); // Any will do.
            }
            match served.and_then(|api| api.status()) {
                Ok(other) if self.is_served_by(&other) => return Ok(None),
                // One that nobody needs leaves soon, where it was not told to stay. Clients may have ended since it looked.
                Ok(other) if stays(&other) || other.clients > 0 && clock::now() >= told => {
                    return Err(self.differs_from(&other));
                }
                Ok(other) if clock::now() >= idle => return Err(self.differs_from(&other)),
                _ => {}
            }
            if clock::now() >= give_up {
                let text = format!("another divvyd of this user{theirs} neither serves nor ends; kill it");
                return Err(Failure { code: 1, text });
            }
            clock::sleep(OTHER_LOOK);
        }
    }

    /// Whether whatever was asked of this one is what that one does.
    fn is_served_by(&self, other: &Status) -> bool {
        let chosen = |options: &[String]| -> Vec<String> {
            options.iter().filter(|option| !DEFAULTS.contains(&option.as_str())).cloned().collect()
        };
        other.options.as_deref().is_some_and(|theirs| chosen(theirs) == chosen(&self.settings.options))
    }

    fn differs_from(&self, other: &Status) -> Failure {
        let ours = self.settings.options.join(" ");
        let theirs = match other.options.as_deref() {
            Some([]) => "no options".to_owned(),
            Some(options) => options.join(" "),
            None => "options that it does not tell, as it is of an older version".to_owned(),
        };
        let text = format!(
            "another divvyd of this user (pid {pid}) runs already, with {theirs}: {ours} would change nothing; end it first (kill {pid}; \
             its clients run on, undivided)",
            pid = other.pid
        );
        Failure { code: 1, text }
    }

    fn begin(self, lock: Lock) -> Result<Running, Failure> {
        let params = HostParams { cpus: self.cpus, capacity: CAPACITY };
        let host = LinuxHost::with_means(&params, self.means).map_err(Failure::system)?;
        let rescued = host.rescued().resumed.len();
        if rescued > 0 {
            say(format_args!("resumed {rescued} processes that an earlier divvy had left suspended"));
        }
        let thawed = host.rescued().thawed;
        if thawed > 0 {
            say(format_args!("thawed {thawed} cgroups that an earlier divvy had left frozen"));
        }
        let mut settings = self.settings;
        if settings.backend.asked != settings.backend.used {
            say(format_args!("backend {}: {}", settings.backend.used, settings.backend.why));
        }
        settings.spec.cpus = host.cpus().len() as u32;
        let session = Session::new(&settings.spec, host).map_err(Failure::usage)?;
        let shelter = Shelter::own(self.protect);
        let (handle, requests) = message::channel(session.host().waker());
        // The directory is private, so nobody could connect in the moment before the mode is set either.
        let listener = listen_in(self.place.dir(), 0o600).map_err(Failure::system)?;
        let owner = rustix::process::geteuid().as_raw();
        let rules = divvy_api::rules::path().map(|path| {
            let to = handle.clone();
            RulesFile::watch(path, move |loaded| to.post(Command::TakeRules(Box::new(loaded))))
        });
        let context = Context {
            scheduler: handle,
            local: Local::new(shelter.clone(), None),
            market: None,
            rules,
            metrics: Metrics::new(None),
            ready: None,
            limiter: None,
            lookers: Lookers::new(false),
            subscribers: Subscribers::default(),
        };
        let server = Server::start(listener, router(context), ConnectionLimit::of_user(owner), async {});
        let server = server.map_err(|e| {
            Failure::system(format!("start the thread of the API: {e}{}", divvy_linux::limit_fix(&e)))
        })?;
        let scheduler = Scheduler::new(session, settings, shelter, requests);
        Ok(Running { scheduler, server, place: self.place, lock })
    }
}

/// Whether it was told how long to stay without a client.
fn stays(other: &Status) -> bool {
    other.options.iter().flatten().any(|option| option.starts_with("--linger"))
}

/// A divvyd that serves.
struct Running {
    scheduler: Scheduler,
    server: Server,
    place: Place,
    lock: Lock,
}

impl Running {
    fn run(mut self) -> Result<ExitCode, Failure> {
        let ended = self.scheduler.run();
        // Nobody new finds us; whoever has found us is told that we are ending, and starts another.
        remove_socket_in(self.place.dir());
        self.server.leave();
        drop(self.scheduler); // Everybody is released.
        self.server.stop();
        drop(self.lock);
        match ended {
            Ok(End::Idle) => Ok(ExitCode::SUCCESS),
            Ok(End::Asked(signal)) => {
                say(format_args!("ended by {signal}; all clients run on, undivided"));
                Ok(ExitCode::SUCCESS)
            }
            Ok(End::ApiGone) => Err(Failure::system("the thread of the API has ended")),
            Err(e) => Err(Failure::system(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
        assert_eq!(parse_linger("2s").unwrap(), Linger::Time(Nanos::from_secs(2)));
        assert_eq!(parse_linger("forever").unwrap(), Linger::Forever);
        let said = parse_linger("soon").unwrap_err();
        assert_eq!(said, "that is no time; write a number and its unit, as in 30s, 2m or 500ms, or forever");
        let refused = |args: &[&str]| {
            let all = ["divvyd"].iter().chain(args).copied();
            assert!(Args::try_parse_from(all).is_err(), "{args:?}");
        };
        refused(&[]);
        refused(&["--user", "--system"]);
        refused(&["--system", "--background"]);
        refused(&["--user", "--run-dir", "/run/divvy"]);
        refused(&["--user", "--log-format", "json"]);
        let args = ["divvyd", "--system", "--policy-file", "/a", "--log-format", "json"];
        assert!(Args::try_parse_from(args).unwrap().mode.system);
        let args = Args::try_parse_from(["divvyd", "--user", "--cpus", "0,2-3", "--protect", "a"]).unwrap();
        assert_eq!(args.overrides.cpus.unwrap().iter().collect::<Vec<_>>(), [0, 2, 3]);
    }

    #[test]
    fn where_the_users_own_serves_is_said_whole() {
        let help = command().render_long_help().to_string();
        let help: Vec<&str> = help.split_whitespace().collect();
        let place = "in $DIVVY_RUNTIME_DIR (else $XDG_RUNTIME_DIR/divvy, else /tmp/divvy-UID)";
        assert!(help.join(" ").contains(place));
    }

    #[test]
    fn every_example_can_be_given() {
        let examples: Vec<&str> = AFTER.lines().filter_map(|line| line.strip_prefix("  divvyd ")).collect();
        assert!(!examples.is_empty());
        for example in examples {
            let words = example.split('#').next().unwrap_or_default().split_whitespace();
            let args = Args::try_parse_from(std::iter::once("divvyd").chain(words));
            assert!(args.is_ok(), "{example}: {}", args.unwrap_err());
        }
    }

    #[test]
    fn options_are_told_as_they_can_be_given() {
        let told = |line: &str| {
            let words = ["divvyd", "--user"].into_iter().chain(line.split_whitespace());
            Args::try_parse_from(words).expect("a command line").overrides.told()
        };
        assert_eq!((told(""), told("--backend signals")), (vec![], vec!["--backend signals".to_owned()]));
        let all = "--backend auto --policy las --quantum 1500us --slice 4ms --presence 2 --period 2s --cpus 0,2-3 --linger 1h \
                   --protect a --protect b";
        assert_eq!(
            told(all),
            told(
                "--protect b --protect a --protect b --linger 60m --cpus 2,3,0 --period 2000ms --presence 2 \
                                    --slice 4ms --quantum 1ms500us --policy las --backend auto"
            )
        );
        assert_eq!(told(&told(all).join(" ")), told(all));
        assert_eq!(told("--linger forever"), ["--linger forever"]);
        assert_eq!(told("--linger 90m"), ["--linger 1h30m"]);
        // None is left out.
        let options = Overrides::augment_args(clap::Command::new("all"));
        for option in options.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(told(all).iter().any(|told| told.starts_with(&format!("--{option} "))), "{option}");
        }
    }

    /// What is asked for and done anyway is no difference between two.
    #[test]
    fn the_defaults_are_what_is_done_without_them() {
        let of = |option: &str| {
            let words = ["divvyd", "--user"].into_iter().chain(option.split_whitespace());
            let overrides = Args::try_parse_from(words).expect("a command line").overrides;
            // The period is a matter of its own policy.
            let mut spec = GateSpec::default();
            let spare = Overrides { period: None, ..overrides.clone() };
            spare.apply(&mut spec).expect("options of the default policy");
            spec.period_ns = overrides.period.map_or(spec.period_ns, |period| nanos(period).0);
            let linger = overrides.linger.unwrap_or(LINGER);
            (spec, linger, overrides.backend.unwrap_or_default())
        };
        for option in DEFAULTS {
            assert_eq!(of(option), of(""), "{option}");
        }
        assert_ne!(of("--presence 2"), of(""));
    }

    #[test]
    fn options_of_policies_go_to_their_own() {
        let spec = |words: &[&str]| {
            let args =
                Args::try_parse_from(["divvyd", "--user"].iter().chain(words)).expect("a command line");
            let mut spec = GateSpec::default();
            let applied = args.overrides.apply(&mut spec);
            applied.map(|()| spec).map_err(|failure| (failure.code, failure.text))
        };
        let exact = spec(&["--slice", "4ms", "--presence", "2"]).unwrap();
        assert_eq!((exact.slice_ns, exact.presence), (Some(4_000_000), 2));
        assert_eq!(spec(&["--policy", "rate", "--period", "2s"]).unwrap().period_ns, 2_000_000_000);
        let bounded = GateSpec { cycle_ns_max: Some(CYCLE_LONGEST.0), ..GateSpec::default() };
        assert_eq!(spec(&[]).unwrap(), bounded);
        assert_eq!(
            spec(&["--quantum", "20ms"]).unwrap().cycle_ns_max,
            None,
            "who asks for a quantum means it"
        );
        let text = "--slice is an option of --policy exact, not of las; leave it out".to_owned();
        assert_eq!(spec(&["--policy", "las", "--slice", "4ms"]), Err((2, text)));
    }
}
