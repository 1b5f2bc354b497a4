//! The graph in Graphviz's language: `divvy currency tree --dot | dot -Tpdf`.

use std::fmt::Write as _;

use super::{Drawn, kind_word};
use crate::market::what;

pub(in crate::market) fn draw(drawn: &Drawn<'_>) -> String {
    let mut text =
        String::from("digraph market {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    text.push_str("  edge [fontname=\"sans-serif\"];\n");
    // Writing to a string cannot fail.
    for (i, c) in drawn.graph.currencies.iter().enumerate().filter(|&(i, _)| drawn.reached[i]) {
        let mut label = escaped(&c.name);
        if let Some(s) = drawn.standing(i) {
            let _ = write!(
                label,
                "\\nrequested {:.2} %\\neffective {:.2} %",
                s.requested * 100.0,
                s.effective * 100.0
            );
            if let Some(achieved) = s.achieved {
                let _ = write!(label, "\\nachieved {:.2} %", achieved * 100.0);
            }
        }
        let mut style = Vec::new();
        if c.client {
            style.push("rounded");
        }
        if !drawn.is_active(i) {
            style.push("dashed");
        }
        let style = if style.is_empty() { String::new() } else { format!(", style=\"{}\"", style.join(",")) };
        let _ = writeln!(text, "  n{i} [label=\"{label}\"{style}];");
    }
    for (i, issued) in drawn.issued.iter().enumerate().filter(|&(i, _)| drawn.reached[i]) {
        for (ticket, holder) in issued {
            let label = format!("{}{}", ticket.amount, kind_word(ticket.kind));
            let style = match (ticket.active, ticket.kind) {
                (false, _) => ", style=dashed",
                (true, divvy_market::Kind::Hard) => ", style=bold",
                (true, _) => "",
            };
            let _ = writeln!(text, "  n{i} -> n{holder} [label=\"{label}\"{style}];");
        }
    }
    for x in drawn.exchanges() {
        let (Some(a), Some(b)) = (drawn.index(&x.a), drawn.index(&x.b)) else { continue };
        for (from, to, gives) in [(a, b, &x.a_gives), (b, a, &x.b_gives)] {
            let label = format!("{}, exchange {}", what(gives), x.id);
            let _ = writeln!(
                text,
                "  n{from} -> n{to} [label=\"{label}\", style=dotted, color=purple, constraint=false];"
            );
        }
    }
    text.push('}');
    text
}

/// As it may stand between quotes.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"")
}
