//! The table of `divvy ls`.

use divvy_api::types::{Client, Clients, Pressure};
use divvy_policy::CpuLimit;

use super::seconds;

/// Characters of a name at most: where everything is to be within 80 columns, and where it need not.
const NAME_MAX: usize = 18;
const NAME_MAX_WIDE: usize = 24;

/// What a column for limits takes of a line.
const LIMIT_WIDTH: usize = 8;

/// A header, a line for each client, and what the fractions are of; within 80 columns unless it may be `wide`.
pub(super) fn lines(clients: &Clients, wide: bool) -> Vec<String> {
    let longest = clients.clients.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    let limits = clients.clients.iter().any(|c| c.limit_ppm.is_some());
    let most = if wide { NAME_MAX_WIDE } else { NAME_MAX - if limits { LIMIT_WIDTH } else { 0 } };
    let width = longest.clamp(6, most);
    let column = |text: &str| if limits { format!(" {text:>7}") } else { String::new() };
    let line = if wide { wide_line } else { line };
    let mut lines = vec![if wide {
        format!(
            "{:<width$} {:>7}{} {:>9} {:>11} {:>8} {:>10} {:>8}  {:<7} {:>9} {:>11}  is",
            "client",
            "share",
            column("limit"),
            "effective",
            "requested %",
            "target %",
            "achieved %",
            "error %",
            "state",
            "processes",
            "CPU time"
        )
    } else {
        format!(
            "{:<width$} {:>7}{} {:>8} {:>10} {:>8}  {:<7} {:>5} {:>9}",
            "client",
            "share",
            column("limit"),
            "target %",
            "achieved %",
            "error %",
            "state",
            "procs",
            "CPU time"
        )
    }];
    lines.extend(clients.clients.iter().map(|client| {
        let limit = client.limit_ppm.and_then(|ppm| CpuLimit::new(ppm).ok());
        line(client, width, &column(&limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string())))
    }));
    let refused = clients.clients.iter().filter(|client| !wide && client.not_permitted > 0);
    lines.extend(refused.map(|client| {
        let name = short(&client.name, width);
        format!("{name}: {} of its processes may not be signalled, and run undivided", client.not_permitted)
    }));
    lines.push(format!(
        "achieved: of all clients' CPU time in the {:.1} s since shares or clients changed",
        seconds(clients.window_ns)
    ));
    lines
}

/// The name, or as much of it as there is room for.
fn short(name: &str, width: usize) -> String {
    let mut text: String = name.chars().take(width).collect();
    if name.chars().count() > width {
        text.pop();
        text.push('…');
    }
    text
}

fn line(c: &Client, width: usize, limit: &str) -> String {
    format!(
        "{:<width$} {:>7}{limit} {:>8.2} {:>10.2} {:>+8.2}  {:<7} {:>5} {:>7.2} s",
        short(&c.name, width),
        c.share,
        c.effective_fraction * 100.0,
        c.achieved_fraction * 100.0,
        c.relative_error * 100.0,
        c.state.as_str(),
        c.nr_members,
        seconds(c.service_ns),
    )
}

fn wide_line(c: &Client, width: usize, limit: &str) -> String {
    let refused =
        if c.not_permitted > 0 { format!(" ({} not permitted)", c.not_permitted) } else { String::new() };
    format!(
        "{:<width$} {:>7}{limit} {:>9.2} {:>11.2} {:>8.2} {:>10.2} {:>+8.2}  {:<7} {:>9} {:>9.2} s  {}{refused}",
        short(&c.name, width),
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

/// How much all clients wait, in one line; `None` where the kernel does not tell.
pub(super) fn pressure(told: &[Pressure]) -> Option<String> {
    let of = |p: &Pressure| format!("{} {:.1} %", p.resource, p.some_avg10 * 100.0);
    let parts: Vec<String> = told.iter().map(of).collect();
    (!parts.is_empty()).then(|| format!("of the last 10 s some client waited, for {}", parts.join(", for ")))
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
            limit_ppm: None,
            bounds: divvy_api::types::Bounds::default(),
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
            pressure: Vec::new(),
            why: None,
        };
        let clients = Clients {
            window_ns: 5_340_000_000,
            age_ns: 1_000_000,
            clients: vec![client("a", 1, 0), client("a-name-that-is-far-too-long-for-it", 1_000_000, 2)],
        };
        let narrow = lines(&clients, false);
        assert_eq!(
            narrow,
            [
                "client               share target % achieved %  error %  state   procs  CPU time",
                "a                        1    33.33      33.25    -0.25  running    12    1.67 s",
                "a-name-that-is-fa… 1000000    33.33      33.25    -0.25  running    12    1.67 s",
                "a-name-that-is-fa…: 2 of its processes may not be signalled, and run undivided",
                "achieved: of all clients' CPU time in the 5.3 s since shares or clients changed",
            ]
        );
        assert!(narrow.iter().all(|line| line.chars().count() <= 80), "{narrow:#?}");
        assert_eq!(
            lines(&clients, true),
            [
                "client                     share effective requested % target % achieved %  error %  state   processes    CPU time  is",
                "a                              1      1.50       25.00    33.33      33.25    -0.25  running        12      1.67 s  tree:4711",
                "a-name-that-is-far-too-… 1000000      1.50       25.00    33.33      33.25    -0.25  running        12      1.67 s  tree:4711 (2 not permitted)",
                "achieved: of all clients' CPU time in the 5.3 s since shares or clients changed",
            ]
        );

        let limited =
            Client { limit_ppm: Some(500_000), ..client("a-name-that-is-far-too-long-for-it", 3, 0) };
        let clients = Clients { clients: vec![client("a", 1, 0), limited], ..clients };
        let narrow = lines(&clients, false);
        assert_eq!(
            narrow[..3],
            [
                "client       share   limit target % achieved %  error %  state   procs  CPU time",
                "a                1       -    33.33      33.25    -0.25  running    12    1.67 s",
                "a-name-th…       3     50%    33.33      33.25    -0.25  running    12    1.67 s",
            ]
        );
        assert!(narrow.iter().all(|line| line.chars().count() <= 80), "{narrow:#?}");
        assert!(lines(&clients, true)[2].starts_with("a-name-that-is-far-too-…       3     50%      1.50"));
    }
}
