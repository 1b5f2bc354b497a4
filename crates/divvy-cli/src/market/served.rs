//! What currencies achieved: clients are served, and what they got is counted to whoever backs them.

use std::collections::BTreeMap;

use divvy_daemon::market::types::Graph;
use divvy_market::Resource;

/// An exact value as a number to draw or divide with; 0 where it is none.
fn number(exact: &str) -> f64 {
    let (n, d) = exact.split_once('/').unwrap_or((exact, "1"));
    match (n.parse::<f64>(), d.parse::<f64>()) {
        (Ok(n), Ok(d)) if d != 0.0 => n / d,
        _ => 0.0,
    }
}

/// For each currency and client of the graph, the CPU time that it achieved as a fraction of that of all clients. A client's is
/// measured; each of its tickets has the part of it that it has of the client's value (equal parts where it sleeps and has
/// none), and a currency what its tickets have. `None` where nobody below was measured.
pub(super) fn served(graph: &Graph) -> Vec<Option<f64>> {
    let cpu = |i: usize| graph.currencies[i].standing.iter().find(|s| s.resource == Resource::Cpu);
    let n = graph.currencies.len();
    let mut served: Vec<Option<f64>> = (0..n).map(|i| cpu(i).and_then(|s| s.achieved)).collect();
    let known: Vec<bool> = served.iter().map(Option::is_some).collect();
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
    for i in order {
        let Some(achieved) = served[i] else { continue };
        let all: f64 = backing[i].iter().map(|(_, value)| value).sum();
        for &(issuer, value) in &backing[i] {
            let part = if all > 0.0 { value / all } else { 1.0 / backing[i].len() as f64 };
            if !known[issuer] {
                served[issuer] = Some(served[issuer].unwrap_or(0.0) + achieved * part);
            }
        }
    }
    served
}
