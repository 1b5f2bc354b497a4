//! The graph as a picture: a card for each currency, right of all that back it, with its three shares as bars.

use std::fmt::Write as _;

use divvy_api::market::Ticket;
use divvy_market::{Kind, Resource};

use super::layout::{Layout, layout};
use super::{Drawn, NOT_MEASURED, cut, kind_word};
use crate::market::{offered, traded};

/// Width, and the least height.
const CARD: (f64, f64) = (232.0, 80.0);
/// Between the tickets of one holder: a line of letters.
const PORT: f64 = 15.0;
/// Between columns: lines, and the amounts of tickets.
const GAP: f64 = 166.0;
/// The straight end of a ticket's line, below its amount.
const LABEL: f64 = 66.0;
/// Between cards of a column.
const SPACE: f64 = 16.0;
const MARGIN: f64 = 24.0;
/// Above the cards: title and legend.
const HEAD: f64 = 64.0;
/// A line of text below them.
const LINE: f64 = 18.0;
/// Letters of a name that fit a card.
const NAME_MAX: usize = 24;
/// Letters that are read, in points, and how wide one is.
const SIZE: f64 = 12.0;
const LETTER: f64 = 7.2;
/// Letters that fit the picture, at least: it is made wide enough for them.
const WIDTH_MIN: f64 = 640.0;
/// The colours of requested, effective and achieved; of tickets, and of exchanges.
const BARS: [(&str, &str); 3] = [("requested", "#8d99a6"), ("effective", "#2f6fde"), ("achieved", "#1b9e5a")];
const INK: &str = "#1f2933";
const FAINT: &str = "#9aa5b1";
const TRADE: &str = "#8e44ad";

pub(in crate::market) fn draw(drawn: &Drawn<'_>) -> String {
    Picture::new(drawn).draw()
}

struct Picture<'a, 'b> {
    drawn: &'b Drawn<'a>,
    /// The currencies on it, and where each stands among them.
    cards: Vec<usize>,
    place: Vec<usize>,
    edges: Vec<Edge<'a>>,
    /// How high each card is: there is room beside it for the amounts of all that back it.
    heights: Vec<f64>,
    laid: Layout,
    out: String,
}

struct Edge<'a> {
    ticket: &'a Ticket,
    from: usize,
    to: usize,
}

impl<'a, 'b> Picture<'a, 'b> {
    fn new(drawn: &'b Drawn<'a>) -> Self {
        let cards: Vec<usize> = (0..drawn.reached.len()).filter(|&i| drawn.reached[i]).collect();
        let mut place = vec![0; drawn.reached.len()];
        cards.iter().enumerate().for_each(|(at, &i)| place[i] = at);
        let mut edges = Vec::new();
        for &i in &cards {
            let issued = drawn.issued[i].iter();
            edges.extend(issued.map(|&(ticket, to)| Edge { ticket, from: place[i], to: place[to] }));
        }
        let ends: Vec<(usize, usize)> = edges.iter().map(|e| (e.from, e.to)).collect();
        let mut backing = vec![0.0; cards.len()];
        ends.iter().for_each(|&(_, to)| backing[to] += PORT);
        let heights: Vec<f64> = backing.iter().map(|ports| CARD.1.max(ports + PORT / 2.0)).collect();
        let rooms: Vec<f64> = heights.iter().map(|height| height + SPACE).collect();
        let laid = layout(&rooms, &ends, SPACE);
        Self { drawn, cards, place, edges, heights, laid, out: String::new() }
    }

    /// Left edge and middle of a card.
    fn at(&self, card: usize) -> (f64, f64) {
        (self.left(self.laid.column[card]), HEAD + self.laid.y[card])
    }

    fn left(&self, column: usize) -> f64 {
        MARGIN + column as f64 * (CARD.0 + GAP)
    }

    fn draw(mut self) -> String {
        let notes = self.notes();
        let columns = self.laid.nr_columns.max(1) as f64;
        let widest = notes.iter().map(|note| note.chars().count()).max().unwrap_or(0) as f64 * LETTER;
        let width =
            (columns * CARD.0 + (columns - 1.0) * GAP + GAP / 2.0).max(WIDTH_MIN).max(widest) + 2.0 * MARGIN;
        let height = HEAD + self.laid.height + MARGIN + (notes.len() + 1) as f64 * LINE;
        let _ = writeln!(
            self.out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="{SIZE}" fill="{INK}">
<rect width="100%" height="100%" fill="white"/>"#
        );
        self.head();
        let ports = self.ports();
        (0..self.edges.len()).for_each(|e| self.edge(e, ports[e]));
        // On top of the lines, whosever they are.
        (0..self.edges.len()).for_each(|e| self.label(e, ports[e]));
        (0..self.cards.len()).for_each(|card| self.card(card));
        self.trades();
        let mut y = HEAD + self.laid.height + MARGIN;
        for note in notes {
            self.text(MARGIN, y, "", &note);
            y += LINE;
        }
        self.out.push_str("</svg>");
        self.out
    }

    fn text(&mut self, x: f64, y: f64, style: &str, text: &str) {
        let _ = writeln!(self.out, r#"<text x="{x:.1}" y="{y:.1}"{style}>{}</text>"#, escaped(text));
    }

    fn head(&mut self) {
        let title = format!("{}: who has a right to how much", self.drawn.resource);
        self.text(MARGIN, 26.0, r#" font-size="15" font-weight="bold""#, &title);
        let mut x = MARGIN;
        let resource = self.drawn.resource;
        let meanings = [
            format!("requested: of all {resource}, all active, nothing exchanged"),
            "effective: of what the active have".to_owned(),
            if resource == Resource::Cpu {
                "achieved: of the CPU time of all clients".to_owned()
            } else {
                NOT_MEASURED.to_owned()
            },
        ];
        for (k, ((_, colour), meaning)) in BARS.iter().zip(&meanings).enumerate() {
            if k < self.nr_bars() {
                let _ =
                    writeln!(self.out, r#"<rect x="{x:.1}" y="38" width="10" height="10" fill="{colour}"/>"#);
            }
            self.text(x + 14.0, 47.0, "", meaning);
            x += 28.0 + meaning.chars().count() as f64 * LETTER;
        }
    }

    /// At which height each ticket's line reaches its holder: from top to bottom as the issuers stand.
    fn ports(&self) -> Vec<f64> {
        let mut ports = vec![0.0; self.edges.len()];
        let mut into: Vec<Vec<usize>> = vec![Vec::new(); self.cards.len()];
        self.edges.iter().enumerate().for_each(|(e, edge)| into[edge.to].push(e));
        for (card, mut edges) in into.into_iter().enumerate() {
            let from = |e: usize| {
                let last = self.laid.through[e].last().copied();
                last.unwrap_or(self.laid.y[self.edges[e].from])
            };
            edges.sort_by(|&a, &b| from(a).total_cmp(&from(b)));
            let n = edges.len() as f64;
            for (k, e) in edges.into_iter().enumerate() {
                ports[e] = HEAD + self.laid.y[card] + (k as f64 - (n - 1.0) / 2.0) * PORT;
            }
        }
        ports
    }

    fn edge(&mut self, e: usize, port: f64) {
        let Edge { ticket, from, to } = self.edges[e];
        let (x, y) = self.at(from);
        let (mut x, mut y) = (x + CARD.0, y);
        let mut path = format!("M{x:.1} {y:.1}");
        let curve = |path: &mut String, x: f64, y: f64, to: (f64, f64)| {
            let middle = (x + to.0) / 2.0;
            let _ = write!(path, " C{middle:.1} {y:.1} {middle:.1} {:.1} {:.1} {:.1}", to.1, to.0, to.1);
        };
        for (k, &height) in self.laid.through[e].iter().enumerate() {
            let column = self.left(self.laid.column[from] + 1 + k);
            curve(&mut path, x, y, (column, HEAD + height));
            let _ = write!(path, " H{:.1}", column + CARD.0);
            (x, y) = (column + CARD.0, HEAD + height);
        }
        let end = self.left(self.laid.column[to]);
        curve(&mut path, x, y, (end - LABEL, port));
        let _ = write!(path, " H{end:.1}");
        let (colour, dash) = if ticket.active { (INK, "") } else { (FAINT, r#" stroke-dasharray="4 3""#) };
        let width = if ticket.kind == Kind::Hard { 2.4 } else { 1.1 };
        let _ = writeln!(
            self.out,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>"#
        );
    }

    /// The amount of a ticket, above its line's end.
    fn label(&mut self, e: usize, port: f64) {
        let Edge { ticket, to, .. } = self.edges[e];
        let end = self.left(self.laid.column[to]);
        let colour = if ticket.active { INK } else { FAINT };
        let label = format!("{}{}", ticket.amount, kind_word(ticket.kind));
        // A white edge keeps it readable where lines pass.
        let style = format!(
            r#" text-anchor="end" fill="{colour}" stroke="white" stroke-width="3" paint-order="stroke""#
        );
        self.text(end - 5.0, port - 3.0, &style, &label);
    }

    fn card(&mut self, card: usize) {
        let i = self.cards[card];
        let currency = self.drawn.currency(i);
        let (x, middle) = self.at(card);
        let height = self.heights[card];
        let y = middle - height / 2.0;
        let active = self.drawn.is_active(i);
        let (colour, dash) = if active { (INK, "") } else { (FAINT, r#" stroke-dasharray="4 3""#) };
        let (fill, round) = if currency.client { ("#eef4ff", 14) } else { ("#f7f8fa", 3) };
        let _ = writeln!(
            self.out,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{}" height="{height}" rx="{round}" fill="{fill}" stroke="{colour}"{dash}/>"#,
            CARD.0
        );
        let idle = if active { "" } else { " (idle)" };
        let name = format!("{}{idle}", cut(&currency.name, NAME_MAX - idle.len()));
        self.text(
            x + 10.0,
            y + 19.0,
            &format!(r#" font-size="13" font-weight="bold" fill="{colour}""#),
            &name,
        );
        let Some(standing) = self.drawn.standing(i) else { return };
        let parts = [Some(standing.requested), Some(standing.effective), standing.achieved];
        for (k, (part, (word, colour))) in parts.iter().zip(BARS).enumerate().take(self.nr_bars()) {
            let y = y + 37.0 + 16.0 * k as f64;
            self.text(x + 10.0, y, "", word);
            let percent = part.map_or_else(|| "-".to_owned(), |p| format!("{:.2} %", p * 100.0));
            self.text(x + CARD.0 - 10.0, y, r#" text-anchor="end""#, &percent);
            let full = CARD.0 - 156.0;
            let long = full * part.unwrap_or(0.0).clamp(0.0, 1.0);
            let _ = writeln!(
                self.out,
                r##"<rect x="{0:.1}" y="{1:.1}" width="{full:.1}" height="7" fill="#e4e7eb"/><rect x="{0:.1}" y="{1:.1}" width="{long:.1}" height="7" fill="{colour}"/>"##,
                x + 80.0,
                y - 8.0
            );
        }
    }

    /// What is achieved is known of the CPU alone.
    fn nr_bars(&self) -> usize {
        if self.drawn.resource == Resource::Cpu { 3 } else { 2 }
    }

    /// Exchanges, from card to card, with their numbers.
    fn trades(&mut self) {
        let drawn = self.drawn;
        for x in drawn.exchanges() {
            let (Some(a), Some(b)) = (drawn.index(&x.a), drawn.index(&x.b)) else { continue };
            if !drawn.reached[a] || !drawn.reached[b] {
                continue;
            }
            let (from, to) = (self.at(self.place[a]), self.at(self.place[b]));
            let (from, to) = ((from.0 + CARD.0, from.1 + 16.0), (to.0 + CARD.0, to.1 - 16.0));
            let bulge = from.0.max(to.0) + GAP / 2.0;
            let _ = writeln!(
                self.out,
                r#"<path d="M{:.1} {:.1} C{bulge:.1} {:.1} {bulge:.1} {:.1} {:.1} {:.1}" fill="none" stroke="{TRADE}" stroke-width="1.4" stroke-dasharray="2 3"/>"#,
                from.0, from.1, from.1, to.1, to.0, to.1
            );
            let number = x.id.to_string();
            let radius = 6.0 + number.len() as f64 * 4.0;
            let (mx, my) = ((from.0 + to.0 + 6.0 * bulge) / 8.0, (from.1 + to.1) / 2.0);
            let _ = writeln!(
                self.out,
                r#"<circle cx="{mx:.1}" cy="{my:.1}" r="{radius:.0}" fill="white" stroke="{TRADE}"/>"#
            );
            let style = format!(r#" text-anchor="middle" fill="{TRADE}""#);
            self.text(mx, my + 4.3, &style, &number);
        }
    }

    /// What stands below: exchanges and offers in words, and what the lines mean.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            self.drawn.exchanges().map(|x| format!("exchange {}: {}", x.id, traded(x))).collect();
        let offers = self.drawn.graph.offers.iter();
        notes.extend(offers.map(|o| format!("offer {}: {}, waits", o.id, offered(o))));
        notes.push("Round: a client. Thick: a hard ticket. Dashed: idle, others have its part.".to_owned());
        notes
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
