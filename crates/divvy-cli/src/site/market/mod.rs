//! `divvy site market`: the site's dealer, which users' offers come to and which asks the divvyd of each node.
//!
//! The protocol is [`divvy_site`]'s. Here are its clock, its log, its messages and its users. Whatever ends this program, nodes end
//! what is not renewed; started again, it goes on by its log.

mod log;
mod spool;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use clap::Args as ClapArgs;
use divvy_api::client::Api;
use divvy_linux::clock;
use divvy_market::Moment;
use divvy_site::{
    Dealer, Lapse, Lease, NodeId, Offer, Orders, Phase, PlaceId, Record, Report, Side, UserId, Why,
};

use super::nodes::{Directory, NodesFile, ask_newest, parse_time};
use crate::{Code, Failure, mention, tell};
use log::{Line, Log};
use spool::Wish;

/// Messages to each node in a lease.
const BEATS: u32 = 16;
/// An offer that a node refused is tried again after so long.
const AGAIN: Duration = Duration::from_secs(60);
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, ClapArgs)]
pub(super) struct MarketArgs {
    /// Where each node's divvyd is reached, and which classes of nodes there are: a file in TOML, with n1 =
    /// "/run/divvy/nodes/n1.sock" in [nodes] and fast = ["n1", "n2"] in [classes]
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,

    /// Where users put files with their offers, such as `cpu:500@n1 for memory:200@n2`: a directory that all can write to, with
    /// the sticky bit. A file that goes takes its offers back, and what became of them
    #[arg(long, value_name = "DIR", default_value = "/var/spool/divvy")]
    offers: PathBuf,

    /// What the dealer did, to go on with after a restart
    #[arg(long, value_name = "FILE", default_value = "/var/lib/divvy/site-market.log")]
    log: PathBuf,

    /// For how long one side of an exchange may have to give alone, where a node is lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease)]
    lease: Duration,

    /// Print what happens as JSON, a line each
    #[arg(long)]
    json: bool,
}

fn lease(text: &str) -> Result<Duration, String> {
    parse_time(text, LEASE_MIN..=LEASE_MAX, "1s to 1h")
}

/// What a node's thread brings: a report, or why there is none.
type Heard = (NodeId, Result<Report, String>);

/// The dealer with all that it needs.
struct Site {
    dealer: Dealer,
    log: Log,
    /// By number.
    nodes: Vec<String>,
    places: Vec<String>,
    /// Where each node's orders go.
    queues: BTreeMap<NodeId, Sender<Orders>>,
    last: Moment,
    json: bool,
    /// Nodes that cannot be asked, and why.
    silent: BTreeMap<NodeId, String>,
    /// What was refused of late, and until when.
    refused: BTreeMap<Wish, Moment>,
    /// What was said of the offers' directory.
    wrong: BTreeSet<String>,
}

pub(super) fn run(args: &MarketArgs) -> Result<Code, Failure> {
    let file = NodesFile::read(&args.nodes)?;
    let mut site = Site::open(args)?;
    let (reports, inbox) = channel();
    site.set_places(&file, &reports)?;
    let lease = humantime::format_duration(args.lease);
    site.say(&format!("{} nodes, a lease of {lease}", file.nodes.len()), None)?;
    site.serve(args, &inbox)
}

/// How a node is asked.
struct Link {
    node: NodeId,
    name: String,
    socket: PathBuf,
    directory: Arc<Directory>,
}

/// Asks one node, always by the newest orders.
fn ask_node(link: &Link, orders: &Receiver<Orders>, reports: &Sender<Heard>) {
    let open = || link.directory.open(&link.name, &link.socket);
    ask_newest(orders, open, Api::order, |_, asked| {
        if asked.is_err() {
            link.directory.forget(&link.name);
        }
        // Whoever it says it is: we know whom we asked.
        let heard = asked.map(|report| Report { node: link.node, ..report });
        reports.send((link.node, heard)).is_ok()
    });
}

impl Site {
    /// The dealer as its log says. Where nothing goes on it begins anew, and the log with it.
    fn open(args: &MarketArgs) -> Result<Self, Failure> {
        let (mut log, lines) = Log::open(&args.log)?;
        let (mut term, mut nodes, mut places, mut records) = (0, Vec::new(), Vec::new(), Vec::new());
        let mut line_of_record = Vec::new();
        for (line, k) in lines.into_iter().zip(1..) {
            match line {
                Line::Term(n) => term = n,
                Line::Node(name) => nodes.push(name),
                Line::Place(name) => places.push(name),
                Line::Did(record) => {
                    records.push(record);
                    line_of_record.push(k);
                }
            }
        }
        let lease = Lease::new(u64::try_from(args.lease.as_nanos()).unwrap_or(u64::MAX));
        let now = Moment(clock::unix().0);
        let mut dealer = Dealer::replay(term, lease, &records, now)
            .map_err(|wrong| wrong_line(&args.log, line_of_record[wrong.index]))?;
        if dealer.exchanges().next().is_none() {
            log.clear()?;
            term = (now.0 / 1_000_000_000).max(term.saturating_add(1));
            log.append(&[Line::Term(term)])?;
            dealer = Dealer::new(term, lease, now);
            (nodes, places) = (Vec::new(), Vec::new());
        }
        Ok(Self {
            dealer,
            log,
            nodes,
            places,
            queues: BTreeMap::new(),
            last: now,
            json: args.json,
            silent: BTreeMap::new(),
            refused: BTreeMap::new(),
            wrong: BTreeSet::new(),
        })
    }

    /// A clock that does not go back.
    fn now(&mut self) -> Moment {
        self.last = self.last.max(Moment(clock::unix().0));
        self.last
    }

    fn set_places(&mut self, file: &NodesFile, reports: &Sender<Heard>) -> Result<(), Failure> {
        let now = self.now();
        let directory = Arc::new(Directory::new(file));
        for (name, socket) in &file.nodes {
            let node = NodeId(number(&mut self.nodes, name, Line::Node, &mut self.log)?);
            let (queue, orders) = channel();
            let (socket, reports) = (socket.clone(), reports.clone());
            let link = Link { node, name: name.clone(), socket, directory: Arc::clone(&directory) };
            let named = std::thread::Builder::new().name(format!("node {name}"));
            let started = named.spawn(move || ask_node(&link, &orders, &reports));
            started
                .map_err(|e| Failure::new(Code::System, format!("start a thread for node {name}: {e}")))?;
            self.queues.insert(node, queue);
        }
        let single = file.nodes.keys().map(|name| (name, vec![name.clone()]));
        let classes = file.classes.iter().map(|(name, nodes)| (name, nodes.clone()));
        for (name, members) in single.chain(classes) {
            let place = PlaceId(number(&mut self.places, name, Line::Place, &mut self.log)?);
            let of = |member: &String| self.nodes.iter().position(|name| name == member);
            let members = members.iter().filter_map(of).map(|node| NodeId(node as u32)).collect();
            self.dealer.set_place(now, place, members);
        }
        Ok(())
    }

    fn serve(&mut self, args: &MarketArgs, inbox: &Receiver<Heard>) -> Result<Code, Failure> {
        let beat_ns = u64::try_from((args.lease / BEATS).as_nanos()).unwrap_or(u64::MAX);
        let mut next_beat = self.now();
        loop {
            let now = self.now();
            if now >= next_beat {
                next_beat = Moment(now.0.saturating_add(beat_ns));
                self.dealer.on_time(now);
                self.read_offers(args, now);
                self.follow(now)?;
                for node in self.queues.keys().copied().collect::<Vec<_>>() {
                    self.send(now, node);
                }
            }
            let patience = Duration::from_nanos(next_beat.0.saturating_sub(now.0));
            let heard = inbox.recv_timeout(patience);
            let now = self.now();
            match heard {
                Ok((node, Ok(report))) => {
                    if self.silent.remove(&node).is_some() {
                        self.say(&format!("node {}: answers again", self.node(node)), None)?;
                    }
                    self.dealer.on_report(now, &report);
                }
                Ok((node, Err(e))) => {
                    let text = format!("node {}: {e}", self.node(node));
                    if self.silent.insert(node, e.clone()) != Some(e) {
                        self.say(&text, None)?;
                    }
                }
                // The threads end after this one.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.follow(now)?;
        }
    }

    /// Tells whoever reads along; `record` for programs.
    fn say(&self, words: &str, record: Option<&Record>) -> Result<(), Failure> {
        if self.json {
            mention(serde_json::json!({ "says": words, "record": record }))
        } else {
            mention(words)
        }
    }

    /// Puts on disk what was done, says it, and tells whom it concerns.
    fn follow(&mut self, now: Moment) -> Result<(), Failure> {
        let records = self.dealer.take_records();
        let lines: Vec<Line> = records.iter().cloned().map(Line::Did).collect();
        self.log.append(&lines)?;
        for record in &records {
            if let Record::Lapsed { offer, why: Lapse::Refused(..) } = record {
                let again = Moment(now.0.saturating_add(AGAIN.as_nanos() as u64));
                let of = self.dealer.exchanges().flat_map(|(_, exchange)| exchange.offers);
                let mut theirs = of.filter(|(id, _)| id == offer).map(|(_, offer)| wish(&offer));
                self.refused.extend(theirs.next().map(|wish| (wish, again)));
            }
            if let Some(words) = self.words(record) {
                self.say(&words, Some(record))?;
            }
        }
        for node in self.dealer.take_to_tell() {
            self.send(now, node);
        }
        Ok(())
    }

    fn send(&self, now: Moment, node: NodeId) {
        if let Some(queue) = self.queues.get(&node) {
            // A node's thread ends with this program.
            let _ = queue.send(self.dealer.orders(now, node));
        }
    }

    /// Makes the dealer's offers and exchanges what the files say.
    fn read_offers(&mut self, args: &MarketArgs, now: Moment) {
        let places = &self.places;
        let place = |name: &str| places.iter().position(|place| place == name).map(|at| PlaceId(at as u32));
        let spool = match spool::read(&args.offers, place) {
            Ok(spool) => spool,
            // What holds stays: nobody took anything back.
            Err(e) => return self.complain([crate::files::failed("read", &args.offers, &e).text].into()),
        };
        let mut wrong: BTreeSet<String> = spool.wrong.into_iter().collect();
        let mut missing = spool.wishes;
        let mut has = |offer: &Offer| match missing.get_mut(&wish(offer)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        };
        let (mut to_cancel, mut to_withdraw) = (Vec::new(), Vec::new());
        for (number, exchange) in
            self.dealer.exchanges().filter(|(_, exchange)| exchange.phase != Phase::Ending)
        {
            let unwanted = exchange.offers.map(|(_, offer)| (!has(&offer)).then_some(offer.user));
            to_cancel.extend(unwanted.into_iter().flatten().map(|user| (user, number)));
        }
        for (id, offer) in self.dealer.offers() {
            if !has(offer) {
                to_withdraw.push((offer.user, id));
            }
        }
        for (user, number) in to_cancel {
            // The second party may want it as little as the first.
            let _ = self.dealer.cancel(now, user, number);
        }
        for (user, offer) in to_withdraw {
            let _ = self.dealer.withdraw(now, user, offer);
        }
        self.refused.retain(|_, until| *until > now);
        for ((user, gives, wants), count) in missing {
            if self.refused.contains_key(&(user, gives, wants)) {
                continue;
            }
            for _ in 0..count {
                if let Err(e) = self.dealer.offer(now, user, gives, wants, None) {
                    wrong.insert(format!("{}: {e}", self.offer_words(user, gives, wants)));
                }
            }
        }
        self.complain(wrong);
    }

    /// Says once what is wrong, as long as it is.
    fn complain(&mut self, wrong: BTreeSet<String>) {
        for new in wrong.difference(&self.wrong) {
            tell(format_args!("divvy: {new}"));
        }
        self.wrong = wrong;
    }

    /// What a record means, where somebody wants to know.
    fn words(&mut self, record: &Record) -> Option<String> {
        let side = |site: &Self, number: &u64, which: usize| {
            let exchange = site.dealer.exchanges().find(|(n, _)| n == number)?.1;
            let offer = exchange.offers[which].1;
            Some(format!("{} gives {}", user(offer.user), site.side(offer.gives)))
        };
        Some(match record {
            Record::Matched { exchange, .. } => {
                format!("exchange {exchange}: {}, {}", side(self, exchange, 0)?, side(self, exchange, 1)?)
            }
            Record::Began { exchange } => format!("exchange {exchange}: in effect"),
            Record::Ending { exchange, why, .. } => format!("exchange {exchange}: ends: {}", self.why(*why)),
            Record::Over { exchange } => format!("exchange {exchange}: has ended"),
            Record::Offered { offer, user, gives, wants, .. } => {
                let waits = self.dealer.offers().find(|(id, _)| id == offer)?.1;
                let conflicts = self.dealer.conflicts(waits).len();
                let at = if conflicts == 0 { String::new() } else { format!("; {conflicts} at other rates") };
                format!("{}: waits{at}", self.offer_words(*user, *gives, *wants))
            }
            Record::Lapsed { offer: _, why: Lapse::Refused(node, refusal) } => {
                format!("node {}: {refusal}; tried again in {} s", self.node(*node), AGAIN.as_secs())
            }
            Record::Place { .. } | Record::Lapsed { .. } | Record::Committed { .. } => return None,
        })
    }

    fn why(&self, why: Why) -> String {
        match why {
            Why::Refused(node, refusal) => format!("node {}: {refusal}", self.node(node)),
            Why::NotHeld => "not every node has answered in time".to_owned(),
            Why::Away(node) => format!("node {} was not heard of for half a lease", self.node(node)),
            Why::EndedOn(node) => format!("it has ended on node {}", self.node(node)),
            Why::Cancelled(party) => format!("{} has taken the offer back", user(party)),
        }
    }

    fn offer_words(&self, of: UserId, gives: Side, wants: Side) -> String {
        format!("{}'s {} for {}", user(of), self.side(gives), self.side(wants))
    }

    fn side(&self, Side { place, resource, amount }: Side) -> String {
        format!("{resource}:{amount}@{}", self.places.get(place.0 as usize).map_or("?", String::as_str))
    }

    fn node(&self, node: NodeId) -> &str {
        self.nodes.get(node.0 as usize).map_or("?", String::as_str)
    }
}

fn wrong_line(log: &Path, line: usize) -> Failure {
    let text = format!(
        "{}, line {line}: it does not follow from the lines before it. Move the file away to begin anew: exchanges that are in \
         effect end within a lease, and are made again by the offers",
        log.display()
    );
    Failure::new(Code::File, text)
}

fn wish(offer: &Offer) -> Wish {
    (offer.user, offer.gives, offer.wants)
}

fn user(user: UserId) -> String {
    divvy_linux::user_name(user.0).unwrap_or_else(|| format!("uid:{}", user.0))
}

/// The number that a name has, or gets and keeps.
fn number(
    names: &mut Vec<String>,
    name: &String,
    line: impl Fn(String) -> Line,
    log: &mut Log,
) -> Result<u32, Failure> {
    let at = match names.iter().position(|known| known == name) {
        Some(at) => at,
        None => {
            log.append(&[line(name.clone())])?;
            names.push(name.clone());
            names.len() - 1
        }
    };
    Ok(at as u32)
}
