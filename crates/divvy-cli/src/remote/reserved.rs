//! What a client of the system's divvyd is sure of: its hard tickets, as parts of what their issuers have.

use divvy_api::client::{Api, ApiError};
use divvy_api::market::{Graph, Ticket};
use divvy_api::types::Client;
use divvy_market::{Kind, Resource};

/// `, reserved cpu 20%` and so on, of all reservations that `client` has; for a line about it.
pub(super) fn shown(api: &Api, client: &Client) -> Result<String, ApiError> {
    let of = client.currency.as_deref().unwrap_or(&client.name);
    Ok(in_market(&api.market()?, of, client.user.as_deref().unwrap_or_default()))
}

/// Of the client of that name or id, whose user's own currency is called `own`: that is not named.
fn in_market(graph: &Graph, client: &str, own: &str) -> String {
    let is_client =
        |name: &str| name == client || graph.currencies.iter().any(|c| c.name == name && c.id == client);
    let total = |ticket: &Ticket| {
        let issuer = graph.currencies.iter().find(|currency| currency.name == ticket.issuer)?;
        let standing = issuer.standing.iter().find(|standing| standing.resource == ticket.resource)?;
        Some(standing.hard_total).filter(|&total| total > 0)
    };
    let part = |ticket: &Ticket| {
        let percent = ticket.amount as f64 * 100.0 / total(ticket)? as f64;
        // A user without an account has the number as a name.
        let is_own = ticket.issuer == own || ticket.issuer.strip_prefix("uid:") == Some(own);
        let of = if is_own { String::new() } else { format!(" of {}", ticket.issuer) };
        // Tickets are whole: more figures than these were not asked for.
        Some(format!(", reserved {} {}%{of}", ticket.resource, (percent * 100.0).round() / 100.0))
    };
    let hard = |resource| {
        let all = graph.tickets.iter();
        all.filter(move |t| t.kind == Kind::Hard && t.resource == resource && is_client(&t.holder))
    };
    Resource::ALL.into_iter().flat_map(hard).filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reservations_of_a_client_are_told() {
        let currency = |id: &str, name: &str| {
            let standing = |resource: &str, total: u64| {
                serde_json::json!({ "resource": resource, "value": "1", "requested": 0.5, "effective": 0.5, "active": true,
                    "hard_total": total, "hard_issued": 0 })
            };
            serde_json::json!({ "id": id, "name": name, "client": false, "owner": "alice", "group": "alice", "mode": "fci------",
                "depth": 1, "standing": [standing("cpu", 1000), standing("memory", 400), standing("disk", 3)] })
        };
        let ticket = |issuer: &str, holder: &str, resource: &str, amount: u64, kind: &str| {
            serde_json::json!({ "id": "1", "issuer": issuer, "holder": holder, "resource": resource, "amount": amount, "kind": kind,
                "active": true, "value": "1" })
        };
        let graph: Graph = serde_json::from_value(serde_json::json!({
            "currencies": [currency("2", "alice"), currency("3", "lab"), currency("7.1", "alice/task")],
            "tickets": [
                ticket("lab", "alice/task", "disk", 1, "hard"),
                ticket("alice", "alice/task", "cpu", 125, "hard"),
                ticket("alice", "alice/task", "cpu", 3, "soft"),
                ticket("alice", "alice/other", "cpu", 500, "hard"),
                ticket("alice", "alice/task", "memory", 100, "hard"),
            ],
            "exchanges": [], "offers": [],
        }))
        .expect("a market");
        let all = ", reserved cpu 12.5%, reserved memory 25%, reserved disk 33.33% of lab";
        assert_eq!(in_market(&graph, "7.1", "alice"), all);
        assert_eq!(in_market(&graph, "alice/task", "alice"), all);
        assert_eq!(in_market(&graph, "9", "alice"), "");
        let graph = serde_json::to_string(&graph).expect("JSON").replace("\"alice\"", "\"uid:1007\"");
        let graph: Graph = serde_json::from_str(&graph).expect("a market");
        assert_eq!(in_market(&graph, "7.1", "1007"), all);
    }
}
