//! What changed since somebody looked last: the weights of those clients only whose weights may be others by now.
//!
//! *Problem*: whoever gives effect to weights has to follow them, and with 100,000 clients may not look at all of them for each that
//! comes or sleeps. *Idea*: every input of a value that changes marks its node; from there the change goes down as far as prices
//! change with it. *Algorithm*: each marked node is brought up to date; where its price is another than it was at the last look,
//! those who hold its active tickets are looked at, too, each node once. *Properties*: whoever applies all changes knows what
//! [`Market::weights_in_parts`] and [`Market::rights_in_parts`] say (`changes_lead_to_what_a_look_at_all_says`). *Cost*: a look at each
//! node that was marked, and at each active ticket of those whose price changed. *Weak spots*: where the base issued hard tickets, the
//! price of its soft ones moves with every change of these, and everybody is looked at. There is one place for marks: two who
//! follow the same resource take each other's, and see all clients each time.

use super::{BASE, Market, NodeKind};
use crate::op::CurrencyId;
use crate::ratio::Ratio;
use crate::resource::Resource;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;

/// How far somebody has followed the weights of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision(u64);

/// What a client weighs, in parts of a base ticket, rounded down; one that weighs anything has one part at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// All that it weighs: see [`Market::weights_in_parts`].
    pub all: u64,
    /// What of its value comes on paths of hard tickets from the base: see [`Market::rights_in_parts`].
    pub reserved: u64,
}

/// What changed between two looks at the weights of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// To be handed in at the next look.
    pub revision: Revision,
    /// Whether these are all clients that compete, and any other is to be forgotten.
    pub all: bool,
    /// Clients by slot, those that ended first; `None` for one that competes no more. Some may weigh what they weighed before.
    pub weights: Vec<(CurrencyId, Option<Weight>)>,
    /// The base's hard tickets, where it issued any: the whole that rights are parts of is not less.
    pub hard_total: Option<u64>,
}

/// What is to be looked at for one resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// The market's clock at the last look; `None` while nobody follows.
    seen: Option<u64>,
    nodes: BTreeSet<u32>,
    ended: Vec<CurrencyId>,
}

impl Market {
    /// Notes that what `node` weighs may be another from now on.
    pub(super) fn mark(&mut self, node: u32, resource: Resource) {
        let marks = &mut self.marks[resource.index()];
        if marks.seen.is_some() {
            marks.nodes.insert(node);
        }
    }

    /// Notes that `node` is about to end.
    pub(super) fn mark_end(&mut self, node: u32) {
        let (id, is_client) = (self.currency_id(node), self.nodes[node].kind == NodeKind::Client);
        for marks in self.marks.iter_mut().filter(|marks| marks.seen.is_some()) {
            marks.nodes.remove(&node);
            if is_client {
                marks.ended.push(id);
            }
        }
    }

    /// The clients whose weights for `resource` may have changed since the look that returned `since`, with what they weigh now in
    /// `parts` of a base ticket; all that compete where `since` is none, or another look came between.
    pub fn changed_weights(&mut self, resource: Resource, parts: u64, since: Option<Revision>) -> Changed {
        let marks = mem::take(&mut self.marks[resource.index()]);
        let known = marks.seen.filter(|&seen| since == Some(Revision(seen)));
        let (nodes, mut weights) = match known {
            Some(seen) => {
                let ended = marks.ended.into_iter().map(|id| (id, None)).collect::<Vec<_>>();
                (self.reached(resource, marks.nodes, seen), ended)
            }
            None => (self.competitors(resource).into_iter().collect(), Vec::new()),
        };
        for node in nodes {
            if self.nodes[node].kind == NodeKind::Client {
                let competes = self.nodes[node].competes.contains(resource);
                let weight = competes.then(|| self.weigh_in_parts(node, resource, parts));
                weights.push((self.currency_id(node), weight));
            }
        }
        let (issued, total) = self.hard(BASE, resource);
        self.marks[resource.index()].seen = Some(self.clock);
        Changed {
            revision: Revision(self.clock),
            all: known.is_none(),
            weights,
            hard_total: (issued > 0).then_some(total.into()),
        }
    }

    /// Those of `marked`, and whom their prices reach, as far as these changed since the clock said `seen`.
    fn reached(&mut self, resource: Resource, marked: BTreeSet<u32>, seen: u64) -> BTreeSet<u32> {
        let mut below: Vec<u32> = marked.iter().copied().collect();
        let mut reached = marked;
        while let Some(node) = below.pop() {
            if self.first_issued(node, resource).is_none() {
                continue;
            }
            self.refresh(node, resource);
            if !self.changed_since(node, resource, seen) {
                continue;
            }
            let mut ticket = self.first_issued(node, resource);
            while let Some(here) = ticket {
                let holder = self.tickets[here].holder;
                if self.tickets[here].active && reached.insert(holder) {
                    below.push(holder);
                }
                ticket = self.next_issued(here);
            }
        }
        reached
    }

    fn weigh_in_parts(&mut self, node: u32, resource: Resource, parts: u64) -> Weight {
        let id = self.currency_id(node);
        let weight = self.weight(id, resource).unwrap_or(Ratio::ZERO);
        let value = self.node_value(node, resource);
        let reserved = self.reserved_of(node, resource, &value);
        let whole = |ratio: &Ratio| {
            ratio.mul_div(parts, 1).floor().map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(u64::MAX))
        };
        let all = if weight.is_zero() { 0 } else { whole(&weight).max(1) };
        Weight { all, reserved: whole(&reserved) }
    }
}
