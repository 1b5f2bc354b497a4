//! `divvy site sync`: the table goes to this node's divvyd, or to that of every node; once, or whenever it has changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use clap::Args as ClapArgs;
use divvy_api::client::Api;
use divvy_api::site::{SITE_TICKETS, Site, SiteTable};
use divvy_linux::clock;
use divvy_policy::{Instant, Nanos};

use super::nodes::{Directory, NodesFile, ask_newest, parse_time};
use super::{count, slurm, table, with_kept};
use crate::remote::json;
use crate::remote::which::{System, refused_by_system as refused};
use crate::{Code, Failure, mention, print, tell};

/// A table that has not changed is pushed again so often: a node that began anew, or lost it, has it then.
const REPEAT: Nanos = Nanos::from_secs(60);
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, ClapArgs)]
pub(super) struct SyncArgs {
    /// Read the table from FILE instead of asking sacctmgr. Its lines are ACCOUNT|USER|PARENT|SHARES, as `sacctmgr -nP show
    /// assoc format=account,user,parentname,fairshare` prints them; those that begin with # are passed over
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "sacctmgr"])]
    table: Option<PathBuf>,

    /// Base tickets that all of the site's jobs have together, beside the users' own
    #[arg(long, value_name = "N", default_value_t = SITE_TICKETS, value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    tickets: u64,

    /// Only the associations of this cluster of Slurm's
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// Where sacctmgr is
    #[arg(long, value_name = "PATH", default_value = "sacctmgr")]
    sacctmgr: PathBuf,

    /// Push to each of these nodes: a file in TOML, with n1 = "/run/divvy/nodes/n1.sock" in [nodes]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["system_socket", "dry_run"])]
    nodes: Option<PathBuf>,

    /// Look again each TIME, 100ms to 1h, and push what has changed at once, and all of it once a minute (runs until it is ended)
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", value_parser = every, conflicts_with_all = ["dry_run", "json"])]
    watch: Option<Duration>,

    /// Only check the table
    #[arg(long)]
    dry_run: bool,

    /// Print the answer (with --dry-run, the table; with --nodes, an answer a line) as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    system: System,
}

fn every(text: &str) -> Result<Duration, String> {
    parse_time(text, EVERY_MIN..=EVERY_MAX, "100ms to 1h")
}

pub(super) fn run(args: &SyncArgs) -> Result<Code, Failure> {
    if args.dry_run {
        let (table, source) = read(args)?;
        let text = format!("{source}: {}; nothing was changed", size(&table));
        print(if args.json { json(&table)? } else { text })?;
        return Ok(Code::Done);
    }
    match (&args.nodes, args.watch) {
        (None, None) => {
            let (table, _) = read(args)?;
            let site = push(&args.system.api()?, &table).map_err(refused)?;
            print(if args.json { json(&site)? } else { words(&table, &site) })?;
            Ok(Code::Done)
        }
        (nodes, watch) => {
            let pushers = Pushers::start(nodes.as_deref(), &args.system)?;
            match watch {
                None => once(args, &pushers),
                Some(every) => keep(args, &pushers, every),
            }
        }
    }
}

/// The table, whole and checked, and where it is from.
fn read(args: &SyncArgs) -> Result<(SiteTable, String), Failure> {
    let (text, source) = match &args.table {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|e| crate::files::failed("read", file, &e))?;
            (text, file.display().to_string())
        }
        None => (slurm::associations(&args.sacctmgr, args.cluster.as_deref())?, "sacctmgr".to_owned()),
    };
    let known = |name: &str| divvy_linux::user_id(name).or_else(|| name.parse().ok());
    let mut table = table::parse(&text, known)
        .map_err(|e| Failure::new(Code::File, format!("{source}, {e}; the table that holds stays")))?;
    table.tickets = args.tickets;
    Ok((table, source))
}

/// Gives a divvyd the table, as one newer than what it has.
fn push(api: &Api, table: &SiteTable) -> Result<Site, divvy_api::client::ApiError> {
    let version = api.site()?.version.saturating_add(1);
    api.set_site(&SiteTable { version, ..table.clone() })
}

fn size(table: &SiteTable) -> String {
    format!("{}, {}", count(table.accounts.len(), "account"), count(table.users.len(), "user"))
}

fn words(table: &SiteTable, site: &Site) -> String {
    let changes = match site.changes {
        0 => "nothing has changed".to_owned(),
        n => count(n, "change"),
    };
    with_kept(format!("table {}: {}, {changes}", site.version, size(table)), site)
}

/// What came of a push: which node, the table, and what holds there now, or why not.
type Heard = (usize, Arc<SiteTable>, Result<Site, String>);

/// A thread for each node, so that nobody waits for one that does not answer.
struct Pushers {
    /// With a name where there is more than this node.
    nodes: Vec<(Option<String>, Sender<Arc<SiteTable>>)>,
    heard: Receiver<Heard>,
}

impl Pushers {
    fn start(file: Option<&Path>, system: &System) -> Result<Self, Failure> {
        let (told, heard) = channel();
        let mut nodes = Vec::new();
        let Some(file) = file else {
            let system = system.clone();
            let open = move || system.api().map_err(|failure| failure.text.to_string());
            return Ok(Self { nodes: vec![(None, start(0, open, told)?)], heard });
        };
        let file = NodesFile::read(file)?;
        let directory = Arc::new(Directory::new(&file));
        for (name, socket) in file.nodes {
            let (directory, of) = (Arc::clone(&directory), name.clone());
            let open = move || directory.open(&of, &socket).inspect_err(|_| directory.forget(&of));
            nodes.push((Some(name), start(nodes.len(), open, told.clone())?));
        }
        Ok(Self { nodes, heard })
    }

    /// Before what is said of a node.
    fn of(&self, node: usize) -> String {
        self.nodes[node].0.as_ref().map_or_else(String::new, |name| format!("{name}: "))
    }

    fn send(&self, node: usize, table: &Arc<SiteTable>) {
        // A thread ends only after this.
        let _ = self.nodes[node].1.send(Arc::clone(table));
    }
}

/// Pushes to one node whatever is the newest, as long as somebody sends.
fn start(
    node: usize,
    open: impl Fn() -> Result<Api, String> + Send + 'static,
    told: Sender<Heard>,
) -> Result<Sender<Arc<SiteTable>>, Failure> {
    let (queue, tables) = channel::<Arc<SiteTable>>();
    let work = move || {
        ask_newest(
            &tables,
            open,
            |api, table| push(api, table),
            |table, pushed| told.send((node, table, pushed)).is_ok(),
        );
    };
    let named = std::thread::Builder::new().name(format!("node {node}"));
    named.spawn(work).map_err(|e| Failure::new(Code::System, format!("start a thread for a node: {e}")))?;
    Ok(queue)
}

/// To every node, and what each says of it.
fn once(args: &SyncArgs, pushers: &Pushers) -> Result<Code, Failure> {
    let table = Arc::new(read(args)?.0);
    (0..pushers.nodes.len()).for_each(|node| pushers.send(node, &table));
    let mut failed = 0;
    for (node, table, pushed) in pushers.heard.iter().take(pushers.nodes.len()) {
        let of = pushers.of(node);
        match pushed {
            Ok(site) if args.json => {
                print(serde_json::json!({ "node": pushers.nodes[node].0, "site": site }))?;
            }
            Ok(site) => print(format!("{of}{}", words(&table, &site)))?,
            Err(e) => {
                tell(format_args!("divvy: {of}{e}; the table that it holds stays"));
                failed += 1;
            }
        }
    }
    if failed == 0 {
        return Ok(Code::Done);
    }
    let text = format!("{} did not take the table", count(failed, "node"));
    Err(Failure::new(Code::Scheduler, text))
}

/// What a node has, as far as it is known here.
#[derive(Clone, Default)]
struct Held {
    sent: Option<(Arc<SiteTable>, Instant)>,
    /// It has not answered yet.
    waits: bool,
    /// The last push failed, and why.
    trouble: Option<String>,
}

/// Looks every so often, until this is ended.
fn keep(args: &SyncArgs, pushers: &Pushers, every: Duration) -> Result<Code, Failure> {
    let every = Nanos(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
    let mut held = vec![Held::default(); pushers.nodes.len()];
    let mut complaint = None;
    let mut next = clock::now();
    loop {
        match read(args) {
            Ok((table, _)) => {
                if complaint.take().is_some() {
                    print("the table can be read again")?;
                }
                let table = Arc::new(table);
                for (node, held) in held.iter_mut().enumerate() {
                    let due = held.trouble.is_some()
                        || held
                            .sent
                            .as_ref()
                            .is_none_or(|(sent, at)| *sent != table || clock::now().since(*at) >= REPEAT);
                    if due && !held.waits {
                        pushers.send(node, &table);
                        (held.sent, held.waits) = (Some((Arc::clone(&table), clock::now())), true);
                    }
                }
            }
            // Said once, however long it stays so.
            Err(failure) => {
                let text = failure.text.to_string();
                if complaint.as_ref() != Some(&text) {
                    tell(format_args!("divvy: {text}"));
                    complaint = Some(text);
                }
            }
        }
        next = next.max(clock::now()) + every;
        loop {
            let patience = Duration::from_nanos(next.since(clock::now()).0);
            match pushers.heard.recv_timeout(patience) {
                Ok((node, table, pushed)) => settle(pushers, node, &mut held[node], &table, pushed)?,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(Code::System, "the threads of all nodes have ended"));
                }
            }
        }
    }
}

/// Says what is new of a node.
fn settle(
    pushers: &Pushers,
    node: usize,
    held: &mut Held,
    table: &SiteTable,
    pushed: Result<Site, String>,
) -> Result<(), Failure> {
    held.waits = false;
    let of = pushers.of(node);
    match pushed {
        Ok(site) => {
            if held.trouble.take().is_some() || site.changes > 0 {
                mention(format!("{of}{}", words(table, &site)))?;
            }
        }
        Err(e) => {
            if held.trouble.as_ref() != Some(&e) {
                tell(format_args!("divvy: {of}{e}; the table that it holds stays"));
            }
            held.trouble = Some(e);
        }
    }
    Ok(())
}
