//! The graph as a tree of lines, 80 columns wide. Whoever is backed by several is drawn out once and marked elsewhere.

use divvy_market::Resource;

use super::{Drawn, NOT_MEASURED, kind_word};
use crate::market::{offered, traded};

/// Columns of the tree itself; the numbers have the rest of 80.
const TREE_COLUMNS: usize = 44;
/// Deeper trees are indented by one column a level instead of three.
const WIDE_DEPTH_MAX: usize = 5;
/// Columns of indentation at most: beyond, the last of them are shown.
const INDENT_MAX: usize = 16;

/// What the lines of a tree are drawn with.
#[derive(Clone, Copy, Debug)]
pub(in crate::market) struct Lines {
    branch: char,
    last: char,
    down: char,
    across: char,
    client: &'static str,
    trade: &'static str,
    cut: char,
}

impl Lines {
    pub(in crate::market) const BOXES: Self =
        Self {
            branch: '├', last: '└', down: '│', across: '─', client: "•", trade: "⇄", cut: '…'
        };
    pub(in crate::market) const ASCII: Self =
        Self { branch: '|', last: '`', down: '|', across: '-', client: "@", trade: "<>", cut: '~' };
}

/// How the tree is drawn.
#[derive(Clone, Copy, Debug)]
pub(in crate::market) struct Look {
    pub(in crate::market) signs: Lines,
    /// Whether tickets have their ids before their amounts.
    pub(in crate::market) ids: bool,
}

/// `name`, or as much of it as fits `width` columns.
pub(in crate::market) fn cut(name: &str, width: usize) -> String {
    cut_with(name, width, Lines::BOXES.cut)
}

fn cut_with(name: &str, width: usize, sign: char) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(width.saturating_sub(1)).collect();
    short.push(sign);
    short
}

/// What the fractions in the columns are of.
pub(in crate::market) fn legend(resource: Resource) -> Vec<String> {
    let mut lines = vec![
        format!("requested: of all {resource}, were everybody active and nothing exchanged"),
        "effective: of what all who are active now have together".to_owned(),
        "achieved: of the CPU time of all clients since shares or clients last changed".to_owned(),
    ];
    if resource != Resource::Cpu {
        lines[2] = format!("achieved: {NOT_MEASURED}");
    }
    lines
}

/// The lines of the tree, under a header, with what they mean below.
pub(in crate::market) fn draw(drawn: &Drawn<'_>, &Look { signs, ids }: &Look) -> Vec<String> {
    let header = format!("{} tickets", drawn.resource);
    let mut tree = Tree {
        drawn,
        signs,
        ids,
        step: if depth(drawn) > WIDE_DEPTH_MAX { 1 } else { 3 },
        seen: vec![false; drawn.graph.currencies.len()],
        shared: false,
        lines: vec![format!(
            "{header:<TREE_COLUMNS$}{:>12}{:>12}{:>12}",
            "requested %", "effective %", "achieved %"
        )],
    };
    let (base, others): (Vec<usize>, Vec<usize>) =
        drawn.roots.iter().partition(|&&i| drawn.roots.len() == 1 || i == 0);
    base.into_iter().for_each(|i| tree.root(i));
    if !others.is_empty() {
        tree.lines.push(format!("without {} tickets:", drawn.resource));
        others.into_iter().for_each(|i| tree.root(i));
    }
    let (shared, mut lines) = (tree.shared, tree.lines);
    lines.push(String::new());
    lines.extend(drawn.exchanges().map(|x| format!("exchange {}: {}", x.id, traded(x))));
    lines.extend(drawn.graph.offers.iter().map(|o| format!("offer {}: {}, waits", o.id, offered(o))));
    lines.push(format!("{} client; (idle): does not compete now, others have its part", signs.client));
    if shared {
        lines.push("* backed by several tickets; the numbers are of all of them together".to_owned());
    }
    lines.extend(legend(drawn.resource));
    lines
}

/// Tickets on the longest path that is drawn.
fn depth(drawn: &Drawn<'_>) -> usize {
    let mut deepest = vec![None; drawn.graph.currencies.len()];
    // Depth first, each once its holders are known. The market has no cycles; what a faulty one had would count as 0.
    let mut stack: Vec<(usize, bool)> = drawn.roots.iter().map(|&i| (i, false)).collect();
    while let Some((i, below_known)) = stack.pop() {
        if below_known {
            let below = drawn.issued[i].iter().map(|&(_, holder)| deepest[holder].unwrap_or(0) + 1);
            deepest[i] = Some(below.max().unwrap_or(0));
        } else if deepest[i].is_none() {
            deepest[i] = Some(0);
            stack.push((i, true));
            stack.extend(drawn.issued[i].iter().map(|&(_, holder)| (holder, false)));
        }
    }
    drawn.roots.iter().filter_map(|&i| deepest[i]).max().unwrap_or(0)
}

struct Tree<'a, 'b> {
    drawn: &'b Drawn<'a>,
    signs: Lines,
    ids: bool,
    /// Columns a level.
    step: usize,
    /// Who is drawn out already.
    seen: Vec<bool>,
    /// Whether anybody is backed by several.
    shared: bool,
    lines: Vec<String>,
}

impl Tree<'_, '_> {
    fn root(&mut self, i: usize) {
        self.node("", "", i, true);
        self.below(i, &[]);
    }

    /// What a currency's tickets back, and its exchanges. `last` says for each level above whether that was the last there.
    fn below(&mut self, i: usize, last: &[bool]) {
        if std::mem::replace(&mut self.seen[i], true) {
            return;
        }
        let drawn = self.drawn;
        let trades: Vec<_> = drawn.trades(i).collect();
        let nr_parts = trades.len() + drawn.issued[i].len();
        let here = |k: usize| [last, &[k + 1 == nr_parts]].concat();
        for (k, trade) in trades.iter().enumerate() {
            let indent = self.indent(&here(k));
            let words = format!(
                "{} {}, exchange {} with {}",
                self.signs.trade,
                trade.words(drawn.resource),
                trade.id,
                trade.with
            );
            self.lines.push(cut_with(&format!("{indent}{words}"), 80, self.signs.cut));
        }
        for (k, &(ticket, holder)) in drawn.issued[i].iter().enumerate() {
            let here = here(trades.len() + k);
            let indent = self.indent(&here);
            let first = !self.seen[holder];
            let id = if self.ids { format!("#{} ", ticket.id) } else { String::new() };
            let amount = format!("{id}{}{} ", ticket.amount, kind_word(ticket.kind));
            self.node(&indent, &amount, holder, first);
            self.below(holder, &here);
        }
    }

    fn indent(&self, last: &[bool]) -> String {
        let mut text = String::new();
        let Some((&own, above)) = last.split_last() else { return text };
        for &ended in above {
            text.push(if ended { ' ' } else { self.signs.down });
            text.extend(std::iter::repeat_n(' ', self.step - 1));
        }
        text.push(if own { self.signs.last } else { self.signs.branch });
        if self.step > 1 {
            text.extend(std::iter::repeat_n(self.signs.across, self.step - 2));
        }
        text.push(' ');
        let over = text.chars().count().saturating_sub(INDENT_MAX);
        if over == 0 {
            return text;
        }
        std::iter::once(self.signs.cut).chain(text.chars().skip(over + 1)).collect()
    }

    /// One currency's line; without numbers where it stands above already.
    fn node(&mut self, indent: &str, amount: &str, i: usize, first: bool) {
        let drawn = self.drawn;
        let currency = drawn.currency(i);
        let mut marks = String::new();
        if currency.client {
            marks.push_str(&format!(" {}", self.signs.client));
        }
        if drawn.nr_backing[i] > 1 {
            marks.push('*');
            self.shared = true;
        }
        if !first {
            marks.push_str(" (above)");
        } else if !drawn.is_active(i) {
            marks.push_str(" (idle)");
        }
        let taken = indent.chars().count() + amount.chars().count() + marks.chars().count();
        let name = cut_with(&currency.name, TREE_COLUMNS.saturating_sub(taken), self.signs.cut);
        let text = format!("{indent}{amount}{name}{marks}");
        let standing = drawn.standing(i).filter(|_| first);
        let Some(s) = standing else { return self.lines.push(text) };
        let percent = |part: f64| format!("{:.2}", part * 100.0);
        let achieved = s.achieved.map_or_else(|| "-".to_owned(), percent);
        self.lines.push(format!(
            "{text:<TREE_COLUMNS$}{:>12}{:>12}{achieved:>12}",
            percent(s.requested),
            percent(s.effective)
        ));
    }
}
