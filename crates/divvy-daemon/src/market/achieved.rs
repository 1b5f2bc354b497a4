//! What was served, in the market's words: the scheduler's rows told as shares of currencies.
//!
//! A client's part is measured. A currency's is what those had whom it funds: where several fund one, in proportion to
//! what their tickets are worth to it now (to the amounts, where it is worth nothing now).

use std::collections::HashMap;

use divvy_market::Resource;

use divvy_api::market::{Currency, Graph, Standing, Ticket};
use divvy_api::types::{Client, ClientState};

/// A value as it is written: `1000/3`, `500`, `-20`.
fn read(value: &str) -> f64 {
    let (above, below) = value.split_once('/').unwrap_or((value, "1"));
    let [above, below] = [above, below].map(|n| n.parse::<f64>().unwrap_or(0.0));
    if below > 0.0 { above / below } else { 0.0 }
}

fn cpu(currency: &mut Currency) -> Option<&mut Standing> {
    currency.standing.iter_mut().find(|standing| standing.resource == Resource::Cpu)
}

/// Says of `currency`, if it is a client that is divided, by which number and what it was served.
pub(super) fn fill_client<'a>(currency: &mut Currency, mut rows: impl Iterator<Item = &'a Client>) {
    let row = rows.find(|row| row.currency.as_ref() == Some(&currency.id));
    let Some(row) = row.filter(|row| row.state != ClientState::Left) else { return };
    currency.scheduled = Some(row.id);
    if let Some(standing) = cpu(currency) {
        standing.achieved = Some(row.achieved_fraction);
    }
}

/// Says of every client and currency of `graph` what it was served.
pub(super) fn fill<'a>(graph: &mut Graph, rows: impl Iterator<Item = &'a Client>) {
    let Graph { currencies, tickets, .. } = graph;
    let rows: HashMap<&str, &Client> = rows.filter_map(|row| Some((row.currency.as_deref()?, row))).collect();
    for currency in currencies.iter_mut() {
        let row = rows.get(currency.id.as_str()).copied();
        fill_client(currency, row.into_iter());
    }
    let mut served: HashMap<&str, f64> = HashMap::new();
    let mut order: Vec<(u16, &str)> = Vec::with_capacity(currencies.len());
    for currency in currencies.iter() {
        let own = currency.standing.iter().find_map(|standing| standing.achieved);
        served.insert(currency.name.as_str(), own.unwrap_or(0.0));
        order.push((currency.depth, currency.name.as_str()));
    }
    let mut held: HashMap<&str, Vec<&Ticket>> = HashMap::new();
    for ticket in tickets.iter().filter(|ticket| ticket.resource == Resource::Cpu) {
        held.entry(ticket.holder.as_str()).or_default().push(ticket);
    }
    // From below: whoever stands deeper has been told what it had before it passes it up.
    order.sort_unstable_by(|a, b| b.cmp(a));
    for (_, holder) in order {
        let (Some(had), Some(backing)) = (served.get(holder).copied(), held.get(holder)) else { continue };
        let worth: f64 = backing.iter().map(|ticket| read(&ticket.value)).sum();
        let amounts: f64 = backing.iter().map(|ticket| ticket.amount as f64).sum();
        for ticket in backing {
            let part = if worth > 0.0 {
                read(&ticket.value) / worth
            } else {
                ticket.amount as f64 / amounts.max(1.0)
            };
            *served.entry(ticket.issuer.as_str()).or_default() += had * part;
        }
    }
    let served: Vec<f64> =
        currencies.iter().map(|c| served.get(c.name.as_str()).copied().unwrap_or(0.0)).collect();
    for (currency, served) in currencies.iter_mut().zip(served) {
        if let Some(standing) = cpu(currency).filter(|standing| standing.achieved.is_none()) {
            standing.achieved = Some(served);
        }
    }
}

#[cfg(test)]
mod tests {
    use divvy_market::Kind;

    use super::*;

    fn currency(id: &str, name: &str, client: bool, depth: u16) -> Currency {
        let standing = Standing {
            resource: Resource::Cpu,
            value: "0".into(),
            requested: 0.0,
            effective: 0.0,
            achieved: None,
            active: true,
            hard_total: 1000,
            hard_issued: 0,
        };
        Currency {
            id: id.into(),
            name: name.into(),
            client,
            scheduled: None,
            owner: "a".into(),
            group: "a".into(),
            mode: "fci------".into(),
            depth,
            niced_from: None,
            standing: vec![standing],
        }
    }

    fn ticket(issuer: &str, holder: &str, amount: u64, value: &str) -> Ticket {
        let (issuer, holder, value) = (issuer.to_owned(), holder.to_owned(), value.to_owned());
        let (resource, kind) = (Resource::Cpu, Kind::Soft);
        Ticket { id: "1".into(), issuer, holder, resource, amount, kind, active: true, value }
    }

    fn row(id: u32, currency: &str, achieved_fraction: f64) -> Client {
        Client {
            id,
            currency: Some(currency.into()),
            share: 1,
            achieved_fraction,
            width: 1,
            nr_members: 1,
            ..Client::default()
        }
    }

    #[test]
    fn currencies_were_served_what_those_were_whom_they_fund() {
        let mut graph = Graph {
            currencies: vec![
                currency("0", "base", false, 0),
                currency("1", "a", false, 1),
                currency("2", "b", false, 1),
                currency("3", "a/x", true, 2),
                currency("4", "a/both", true, 2),
                currency("5", "b/gone", true, 2),
            ],
            tickets: vec![
                ticket("base", "a", 1000, "1000"),
                ticket("base", "b", 1000, "1000"),
                ticket("a", "a/x", 2, "2000/3"),
                // Three quarters of what `both` is worth come from b.
                ticket("a", "a/both", 1, "1000/3"),
                ticket("b", "a/both", 7, "1000"),
            ],
            exchanges: vec![],
            offers: vec![],
        };
        fill(&mut graph, [row(7, "3", 0.3), row(9, "4", 0.6)].iter());
        let told: Vec<f64> = graph.currencies.iter().map(|c| c.standing[0].achieved.unwrap()).collect();
        let expected = [0.9, 0.3 + 0.6 / 4.0, 0.6 * 3.0 / 4.0, 0.3, 0.6, 0.0];
        for (told, expected) in told.iter().zip(expected) {
            assert!((told - expected).abs() < 1e-9, "{told} {expected}");
        }
        assert_eq!(graph.currencies[3].scheduled, Some(7));
        assert_eq!(graph.currencies[5].scheduled, None);
    }

    #[test]
    fn values_read_as_they_are_written() {
        assert_eq!(["1000/4", "-20", "0", "", "1/0"].map(read), [250.0, -20.0, 0.0, 0.0, 0.0]);
    }
}
