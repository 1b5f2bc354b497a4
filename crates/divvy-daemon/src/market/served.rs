//! What was achieved of the rights that the market keeps: clients are served, and what they got is counted to whoever backs
//! them. The scheduler measures, and the market's own thread never asks it; whoever shows a market puts the two together.

use std::collections::BTreeMap;

use divvy_market::Resource;

use super::types::{Currency, Graph};
use crate::message::{Answer, Command, Handle};

/// The scheduler beside the market; none in tests of the market alone.
#[derive(Clone, Debug)]
pub(crate) struct Measured(pub(crate) Option<Handle>);

/// By the market's id: the scheduler's number of a client, and its part of the CPU time of all clients.
type Served = BTreeMap<String, (u32, f64)>;

impl Measured {
    async fn served(&self) -> Served {
        let Some(scheduler) = &self.0 else { return Served::new() };
        // A scheduler that is too busy to be asked leaves the picture without what was achieved.
        let Ok(Answer::Clients(clients)) = scheduler.ask(Command::Clients { members: 0 }).await else {
            return Served::new();
        };
        let of = |c: crate::types::Client| Some((c.currency?, (c.id, c.achieved_fraction)));
        clients.clients.into_iter().filter_map(of).collect()
    }

    /// Adds what each achieved to the whole market.
    pub(crate) async fn complete(&self, graph: &mut Graph) {
        let served = self.served().await;
        graph.currencies.iter_mut().for_each(|currency| measure(currency, &served));
        count_up(graph);
    }

    /// Adds what a client achieved. Of a currency alone that is not known: it is what those achieved whom it backs.
    pub(crate) async fn complete_one(&self, currency: &mut Currency) {
        if currency.client {
            measure(currency, &self.served().await);
        }
    }
}

fn measure(currency: &mut Currency, served: &Served) {
    let Some(&(id, achieved)) = served.get(&currency.id) else { return };
    currency.scheduled = Some(id);
    let cpu = currency.standing.iter_mut().filter(|s| s.resource == Resource::Cpu);
    cpu.for_each(|standing| standing.achieved = Some(achieved));
}

/// An exact value as a number to divide with; 0 where it is none.
fn number(exact: &str) -> f64 {
    let (n, d) = exact.split_once('/').unwrap_or((exact, "1"));
    match (n.parse::<f64>(), d.parse::<f64>()) {
        (Ok(n), Ok(d)) if d != 0.0 => n / d,
        _ => 0.0,
    }
}

/// Counts what clients achieved to the currencies that back them. Each ticket has the part of it that it has of the client's
/// value (equal parts where that sleeps and has none), a currency what its tickets have. `None` stays where nobody below was
/// measured.
fn count_up(graph: &mut Graph) {
    let n = graph.currencies.len();
    let cpu = |c: &Currency| c.standing.iter().position(|s| s.resource == Resource::Cpu);
    let places: Vec<Option<usize>> = graph.currencies.iter().map(cpu).collect();
    let names = graph.currencies.iter().enumerate().map(|(i, c)| (c.name.as_str(), i));
    let by_name: BTreeMap<&str, usize> = names.collect();
    let mut backing: Vec<Vec<(usize, f64)>> = vec![Vec::new(); n];
    for ticket in graph.tickets.iter().filter(|t| t.resource == Resource::Cpu) {
        let ends = (by_name.get(ticket.issuer.as_str()), by_name.get(ticket.holder.as_str()));
        if let (Some(&issuer), Some(&holder)) = ends {
            backing[holder].push((issuer, number(&ticket.value)));
        }
    }
    // Every ticket leads deeper, so from the deepest on each is complete when its turn comes.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(graph.currencies[i].depth));
    let mut achieved: Vec<Option<f64>> =
        (0..n).map(|i| places[i].and_then(|place| graph.currencies[i].standing[place].achieved)).collect();
    for i in order {
        let Some(all_of_it) = achieved[i] else { continue };
        let all: f64 = backing[i].iter().map(|(_, value)| value).sum();
        for &(issuer, value) in &backing[i] {
            let part = if all > 0.0 { value / all } else { 1.0 / backing[i].len() as f64 };
            *achieved[issuer].get_or_insert(0.0) += all_of_it * part;
        }
    }
    for (i, currency) in graph.currencies.iter_mut().enumerate() {
        if let Some(place) = places[i] {
            currency.standing[place].achieved = achieved[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use divvy_market::Kind;

    use super::super::types::{Standing, Ticket};
    use super::*;

    fn currency(name: &str, depth: u16, client: bool, achieved: Option<f64>) -> Currency {
        let standing = Standing {
            resource: Resource::Cpu,
            value: "1".into(),
            requested: 0.0,
            effective: 0.0,
            achieved,
            active: true,
            hard_total: 1000,
            hard_issued: 0,
        };
        Currency {
            id: name.into(),
            name: name.into(),
            client,
            scheduled: None,
            owner: "alice".into(),
            group: "alice".into(),
            mode: "fci------".into(),
            depth,
            niced_from: None,
            standing: vec![standing],
        }
    }

    fn ticket(issuer: &str, holder: &str, value: &str) -> Ticket {
        Ticket {
            id: "1".into(),
            issuer: issuer.into(),
            holder: holder.into(),
            resource: Resource::Cpu,
            amount: 1,
            kind: Kind::Soft,
            active: true,
            value: value.into(),
        }
    }

    /// A and B back a client, A with 1000/3 of its 400; B backs one that sleeps, together with C, which backs nobody else.
    #[test]
    fn currencies_achieve_what_their_clients_do_by_their_parts_in_them() {
        let mut graph = Graph {
            currencies: vec![
                currency("base", 0, false, None),
                currency("a", 1, false, None),
                currency("b", 1, false, None),
                currency("c", 1, false, None),
                currency("d", 1, false, None),
                currency("works", 2, true, Some(0.6)),
                currency("sleeps", 2, true, Some(0.1)),
            ],
            tickets: vec![
                ticket("base", "a", "1000"),
                ticket("base", "b", "1000"),
                ticket("base", "c", "0"),
                ticket("base", "d", "0"),
                ticket("a", "works", "1000/3"),
                ticket("b", "works", "200/3"),
                ticket("b", "sleeps", "0"),
                ticket("c", "sleeps", "0"),
            ],
            exchanges: vec![],
            offers: vec![],
        };
        count_up(&mut graph);
        let of = |name: &str| {
            graph.currencies.iter().find(|c| c.name == name).and_then(|c| c.standing[0].achieved)
        };
        for (name, achieved) in [("a", 0.5), ("b", 0.1 + 0.05), ("c", 0.05), ("base", 0.7), ("works", 0.6)] {
            let found = of(name).expect(name);
            assert!((found - achieved).abs() < 1e-9, "{name}: {found}");
        }
        assert_eq!(of("d"), None, "nobody below was measured");
    }
}
