//! `divvy currency ls` and `divvy exchange ls`.

use divvy_api::market::{Currency, Exchange, Graph, Offer};
use divvy_market::Resource;
use serde_json::json;

use super::args::{CurrenciesArgs, ExchangesArgs};
use super::{moment, refused, tree, what};
use crate::remote::json as pretty;
use crate::{Code, Failure, print};

const NAME_MAX: usize = 24;

pub(super) fn currencies(args: &CurrenciesArgs) -> Result<Code, Failure> {
    let currencies = args.ask.of.api()?.currencies().map_err(refused)?;
    if args.ask.json {
        print(pretty(&currencies)?)?;
    } else {
        table(&currencies, args.resource).iter().try_for_each(print)?;
    }
    Ok(Code::Done)
}

/// A header, a line for each currency, and what the fractions are of. It fits 80 columns where names are short.
pub(super) fn table(currencies: &[Currency], resource: Resource) -> Vec<String> {
    let longest =
        |of: &dyn Fn(&Currency) -> usize, least| currencies.iter().map(of).max().unwrap_or(0).max(least);
    let name = longest(&|c| c.name.chars().count(), 8).min(NAME_MAX);
    let owner = longest(&|c| whose(c).chars().count(), 11).min(NAME_MAX);
    let mut lines = vec![format!(
        "{:<name$} {:<owner$} {:<9} {:>11} {:>11} {:>10}  is",
        "currency", "owner:group", "mode", "requested %", "effective %", "achieved %"
    )];
    for c in currencies {
        let standing = c.standing.iter().find(|s| s.resource == resource);
        let percent =
            |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |p| format!("{:.2}", p * 100.0));
        let is = match (c.client, standing.is_some_and(|s| s.active)) {
            (true, true) => "client",
            (true, false) => "client, idle",
            (false, true) => "",
            (false, false) => "idle",
        };
        lines.push(
            format!(
                "{:<name$} {:<owner$} {:<9} {:>11} {:>11} {:>10}  {is}",
                tree::cut(&c.name, name),
                tree::cut(&whose(c), owner),
                c.mode,
                percent(standing.map(|s| s.requested)),
                percent(standing.map(|s| s.effective)),
                percent(standing.and_then(|s| s.achieved)),
            )
            .trim_end()
            .to_owned(),
        );
    }
    lines.extend(tree::legend(resource));
    lines
}

fn whose(c: &Currency) -> String {
    format!("{}:{}", c.owner, c.group)
}

pub(super) fn exchanges(args: &ExchangesArgs) -> Result<Code, Failure> {
    let Graph { exchanges, offers, .. } = args.ask.of.api()?.market().map_err(refused)?;
    if args.ask.json {
        print(pretty(&json!({ "exchanges": exchanges, "offers": offers }))?)?;
    } else {
        deals(&exchanges, &offers).iter().try_for_each(print)?;
    }
    Ok(Code::Done)
}

/// Exchanges that hold and offers that wait, a line each.
pub(super) fn deals(exchanges: &[Exchange], offers: &[Offer]) -> Vec<String> {
    if exchanges.is_empty() && offers.is_empty() {
        return vec!["no exchanges and no offers: see `divvy exchange offer --help`".to_owned()];
    }
    let names = exchanges.iter().flat_map(|x| [&x.a, &x.b]).chain(offers.iter().map(|o| &o.party));
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0).clamp(5, NAME_MAX);
    let mut lines =
        vec![format!("{:<8} {:>6}  {:<width$} {:>16}  {:<16} with", "", "id", "party", "gives", "gets")];
    for x in exchanges {
        for (what_is, party, gives, gets, with) in
            [("exchange", &x.a, &x.a_gives, &x.b_gives, &x.b), ("", &x.b, &x.b_gives, &x.a_gives, &x.a)]
        {
            let id = if what_is.is_empty() { String::new() } else { x.id.to_string() };
            lines.push(format!(
                "{what_is:<8} {id:>6}  {:<width$} {:>16}  {:<16} {with}",
                tree::cut(party, width),
                what(gives),
                what(gets)
            ));
        }
    }
    for o in offers {
        let until = o.until_unix_ns.map_or_else(String::new, |t| format!(", until {}", moment(t)));
        lines.push(format!(
            "{:<8} {:>6}  {:<width$} {:>16}  {:<16} nobody yet{until}",
            "offer",
            o.id,
            tree::cut(&o.party, width),
            what(&o.gives),
            what(&o.wants)
        ));
    }
    lines
}
