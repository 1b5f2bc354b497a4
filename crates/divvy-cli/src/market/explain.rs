//! `divvy market explain`: where a value comes from, ticket by ticket, as a tree in words.

use divvy_api::market::{Explained, Why};
use divvy_market::Resource;

use super::args::ExplainArgs;
use super::refused;
use crate::remote::json;
use crate::{Code, Failure, print};

/// Longer fractions are printed as decimals alone.
const FRACTION_MAX: usize = 16;

pub(super) fn run(args: &ExplainArgs) -> Result<Code, Failure> {
    let said = args.ask.of.api()?.explain_value(&args.client, args.resource).map_err(refused)?;
    print(if args.ask.json { json(&said)? } else { in_words(&said) })?;
    Ok(Code::Done)
}

/// A value in a form that can be read: `333.33 (1000/3)`, or the whole number that it is.
pub(super) fn number(exact: &str) -> String {
    let Some((numerator, denominator)) = exact.split_once('/') else { return exact.to_owned() };
    let (Ok(n), Ok(d)) = (numerator.parse::<f64>(), denominator.parse::<f64>()) else {
        return exact.to_owned();
    };
    let decimal = n / d;
    if exact.len() > FRACTION_MAX { format!("{decimal:.2}") } else { format!("{decimal:.2} ({exact})") }
}

pub(super) fn in_words(said: &Explained) -> String {
    let standing = said.currency.standing.iter().find(|s| s.resource == said.resource);
    let value = standing.map_or("0", |s| s.value.as_str());
    let mut lines =
        vec![format!("{} is worth {} base tickets of {}", said.currency.name, number(value), said.resource)];
    if let Some(s) = standing {
        let achieved =
            s.achieved.map_or_else(String::new, |part| format!("; achieved {:.2} %", part * 100.0));
        lines.push(format!(
            "requested {:.2} % of all {}, effective {:.2} % of all that is active{achieved}",
            s.requested * 100.0,
            said.resource,
            s.effective * 100.0
        ));
        if !s.active {
            let who = if said.currency.client { "it does not compete" } else { "nobody it backs competes" };
            lines.push(format!("idle: {who} for {} now, and others have its part", said.resource));
        }
        if said.resource != Resource::Cpu {
            lines.push(format!("achieved: {}", super::tree::NOT_MEASURED));
        }
    }
    if said.parts.is_empty() {
        lines.push(format!("nothing backs it: no {} ticket, no exchange", said.resource));
    }
    parts(&said.parts, "", &mut lines);
    lines.join("\n")
}

fn parts(whys: &[Why], indent: &str, lines: &mut Vec<String>) {
    for (i, why) in whys.iter().enumerate() {
        let last = i + 1 == whys.len();
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let id = why.ticket.as_ref().map_or_else(String::new, |t| format!(" [ticket {}]", t.id));
        lines.push(format!("{indent}{branch}{}: {}{id}", number(&why.value), why.words));
        parts(&why.from, &format!("{indent}{below}"), lines);
    }
}
