//! The table of `divvy ls`.

use divvy_api::types::{Client, Clients};

use super::seconds;

const NAME_MAX: usize = 24;

/// A header, a line for each client, and what the fractions are of.
pub(super) fn lines(clients: &Clients) -> Vec<String> {
    let longest = clients.clients.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    let width = longest.clamp(6, NAME_MAX);
    let mut lines = vec![format!(
        "{:<width$} {:>7} {:>9} {:>11} {:>8} {:>10} {:>8}  {:<7} {:>9} {:>11}  is",
        "client",
        "share",
        "effective",
        "requested %",
        "target %",
        "achieved %",
        "error %",
        "state",
        "processes",
        "CPU time"
    )];
    lines.extend(clients.clients.iter().map(|client| line(client, width)));
    lines.push(format!(
        "achieved: of the CPU time of all clients in the {:.1} s since shares or clients last changed",
        seconds(clients.window_ns)
    ));
    lines
}

fn line(c: &Client, width: usize) -> String {
    let mut name: String = c.name.chars().take(width).collect();
    if c.name.chars().count() > width {
        name.pop();
        name.push('…');
    }
    let refused =
        if c.not_permitted > 0 { format!(" ({} not permitted)", c.not_permitted) } else { String::new() };
    format!(
        "{name:<width$} {:>7} {:>9.2} {:>11.2} {:>8.2} {:>10.2} {:>+8.2}  {:<7} {:>9} {:>9.2} s  {}{refused}",
        c.share,
        c.effective_share,
        c.requested_fraction * 100.0,
        c.effective_fraction * 100.0,
        c.achieved_fraction * 100.0,
        c.relative_error * 100.0,
        c.state.as_str(),
        c.nr_members,
        seconds(c.service_ns),
        c.selector,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_api::types::ClientState;

    #[test]
    fn the_table_lines_up() {
        let client = |name: &str, share, not_permitted| Client {
            id: 0,
            name: name.into(),
            selector: "tree:4711".into(),
            user: None,
            currency: None,
            share,
            effective_share: 1.5,
            requested_fraction: 0.25,
            effective_fraction: 1.0 / 3.0,
            achieved_fraction: 0.3325,
            relative_error: -0.0025,
            service_ns: 1_669_000_000,
            state: ClientState::Running,
            width: 1,
            nr_members: 12,
            not_permitted,
            members: vec![],
            exit: None,
            why: None,
        };
        let clients = Clients {
            window_ns: 5_340_000_000,
            age_ns: 1_000_000,
            clients: vec![client("a", 1, 0), client("a-name-that-is-far-too-long-for-it", 1_000_000, 2)],
        };
        assert_eq!(
            lines(&clients),
            [
                "client                     share effective requested % target % achieved %  error %  state   processes    CPU time  is",
                "a                              1      1.50       25.00    33.33      33.25    -0.25  running        12      1.67 s  tree:4711",
                "a-name-that-is-far-too-… 1000000      1.50       25.00    33.33      33.25    -0.25  running        12      1.67 s  tree:4711 (2 not permitted)",
                "achieved: of the CPU time of all clients in the 5.3 s since shares or clients last changed",
            ]
        );
    }
}
