//! `divvy currency tree`: the graph of who is backed by whom, as text, for Graphviz, or as a picture.

pub(super) mod dot;
mod layout;
pub(super) mod svg;
pub(super) mod text;

use std::collections::BTreeMap;

use divvy_api::market::{Currency, Exchange, Give, Graph, Standing, Ticket};
use divvy_market::{Kind, Resource};

use super::args::TreeArgs;
use super::{refused, what};
use crate::remote::json;
use crate::{Code, Failure, files, print};

pub(super) use text::{Lines, cut, legend};

/// What is said about memory and disk, of which nobody adds up who got how much.
pub(super) const NOT_MEASURED: &str = "not measured; `divvy doctor` says whether it is enforced";

/// A picture of the rights to one resource, as SVG.
pub(crate) fn picture(graph: &Graph, resource: Resource) -> String {
    svg::draw(&Drawn::new(graph, resource, None))
}

pub(super) fn run(args: &TreeArgs) -> Result<Code, Failure> {
    let api = args.ask.of.api()?;
    files::check_outputs(&[("--output", &args.output)], [])?;
    let graph = api.market().map_err(refused)?;
    // Whoever asks for one names it as the daemon understands it; the graph has its best name.
    let root = match &args.currency {
        Some(key) => Some(api.currency(key).map_err(refused)?.name),
        None => None,
    };
    let drawn = Drawn::new(&graph, args.resource, root.as_deref());
    let signs = if args.ascii { Lines::ASCII } else { Lines::BOXES };
    let text = match (args.ask.json, args.dot, args.svg) {
        (true, _, _) => json(&graph)?,
        (_, true, _) => dot::draw(&drawn),
        (_, _, true) => svg::draw(&drawn),
        _ => text::draw(&drawn, &text::Look { signs, ids: args.ids }).join("\n"),
    };
    match &args.output {
        None => print(text)?,
        Some(path) => {
            std::fs::write(path, text + "\n").map_err(|e| crate::files::failed("write", path, &e))?
        }
    }
    Ok(Code::Done)
}

/// What is drawn: the currencies that are reached, and one resource's tickets between them.
pub(super) struct Drawn<'a> {
    graph: &'a Graph,
    resource: Resource,
    /// Indices of currencies, in the order of the graph.
    by_name: BTreeMap<&'a str, usize>,
    /// For each currency, the tickets that it issued and whom they back.
    issued: Vec<Vec<(&'a Ticket, usize)>>,
    /// For each currency, how many tickets back it.
    nr_backing: Vec<usize>,
    /// Where drawing begins: the one that was asked for, else the base and then whoever nothing backs.
    roots: Vec<usize>,
    /// Whether a currency is reached from the roots.
    reached: Vec<bool>,
}

impl<'a> Drawn<'a> {
    pub(super) fn new(graph: &'a Graph, resource: Resource, root: Option<&str>) -> Self {
        let by_name: BTreeMap<&str, usize> =
            graph.currencies.iter().enumerate().map(|(i, c)| (c.name.as_str(), i)).collect();
        let n = graph.currencies.len();
        let mut drawn = Self {
            graph,
            resource,
            by_name,
            issued: vec![Vec::new(); n],
            nr_backing: vec![0; n],
            roots: Vec::new(),
            reached: vec![false; n],
        };
        for ticket in graph.tickets.iter().filter(|t| t.resource == resource) {
            let ends = (drawn.index(&ticket.issuer), drawn.index(&ticket.holder));
            let (Some(issuer), Some(holder)) = ends else { continue };
            drawn.issued[issuer].push((ticket, holder));
            drawn.nr_backing[holder] += 1;
        }
        drawn.roots = match root.and_then(|name| drawn.index(name)) {
            Some(root) => vec![root],
            None => (0..n).filter(|&i| drawn.nr_backing[i] == 0).collect(),
        };
        let mut ahead = drawn.roots.clone();
        while let Some(i) = ahead.pop() {
            if !std::mem::replace(&mut drawn.reached[i], true) {
                ahead.extend(drawn.issued[i].iter().map(|&(_, holder)| holder));
            }
        }
        drawn
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn currency(&self, i: usize) -> &'a Currency {
        &self.graph.currencies[i]
    }

    fn standing(&self, i: usize) -> Option<&'a Standing> {
        self.currency(i).standing.iter().find(|s| s.resource == self.resource)
    }

    fn is_active(&self, i: usize) -> bool {
        self.standing(i).is_some_and(|s| s.active)
    }

    /// Exchanges with a party that is drawn.
    fn exchanges(&self) -> impl Iterator<Item = &'a Exchange> {
        let drawn = |name: &str| self.index(name).is_some_and(|i| self.reached[i]);
        self.graph.exchanges.iter().filter(move |x| drawn(&x.a) || drawn(&x.b))
    }

    /// Exchanges of that currency, with what it gives, what it gets, and from whom.
    fn trades(&self, i: usize) -> impl Iterator<Item = Trade<'a>> {
        let name = &self.currency(i).name;
        self.graph.exchanges.iter().filter_map(move |x| {
            if x.a == *name {
                Some(Trade { id: x.id, gives: x.a_gives, gets: x.b_gives, with: &x.b })
            } else if x.b == *name {
                Some(Trade { id: x.id, gives: x.b_gives, gets: x.a_gives, with: &x.a })
            } else {
                None
            }
        })
    }
}

/// An exchange as one party sees it.
struct Trade<'a> {
    id: u64,
    gives: Give,
    gets: Give,
    with: &'a str,
}

impl Trade<'_> {
    /// `+20 memory for 50 disk`, or `-50 disk for 20 memory`: as it changes what the party has of `resource`.
    fn words(&self, resource: Resource) -> String {
        if self.gives.resource == resource {
            format!("-{} for {}", what(&self.gives), what(&self.gets))
        } else {
            format!("+{} for {}", what(&self.gets), what(&self.gives))
        }
    }
}

/// A soft ticket has no word of its own.
fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Soft => "",
        Kind::Hard => " hard",
        Kind::Transfer => " lent",
    }
}
