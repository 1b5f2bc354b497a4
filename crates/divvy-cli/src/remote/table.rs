//! The table of `divvy ls`.

use std::borrow::Cow;

use divvy_api::runs::ShareRun;
use divvy_api::types::{Client, Clients, Group, Pressure};
use divvy_policy::CpuLimit;

use super::seconds;

/// Characters of a name at most: where everything is to be within 80 columns, and where it need not.
const NAME_MAX: usize = 18;
const NAME_MAX_WIDE: usize = 24;

/// What a column for limits takes of a line.
const LIMIT_WIDTH: usize = 8;

/// A header, a line for each client, and what the fractions are of; within 80 columns unless it may be `wide`.
pub(super) fn lines(clients: &Clients, wide: bool) -> Vec<String> {
    let rows = rows(clients);
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
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
    lines.extend(rows.iter().map(|row| {
        let limit = match row.what {
            What::Client(client) => client.limit_ppm.and_then(|ppm| CpuLimit::new(ppm).ok()),
            What::Group(..) => None,
        };
        line(row, width, &column(&limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string())))
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

/// The same for a `divvy share`, which divides its tasks by itself.
pub(super) fn of_run(run: ShareRun, wide: bool) -> Vec<String> {
    let cpus: Vec<String> = run.cpus.iter().map(u32::to_string).collect();
    let all = Clients { window_ns: run.uptime_ns, age_ns: 0, clients: run.clients, groups: Vec::new() };
    let mut lines = vec![format!(
        "divvy share (pid {}, {}, CPUs {}): divides its tasks by itself, since {:.1} s",
        run.pid,
        run.policy,
        cpus.join(","),
        seconds(run.uptime_ns)
    )];
    lines.extend(self::lines(&all, wide));
    lines.pop(); // What its fractions are of is said already.
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

/// A line of the table.
struct Row<'a> {
    /// As it is shown: groups end in a slash, and what is in them stands further right.
    name: String,
    what: What<'a>,
}

enum What<'a> {
    Client(&'a Client),
    /// With the processes of all clients in it.
    Group(&'a Group, usize),
}

/// What both kinds of lines have.
struct Numbers<'a> {
    share: u64,
    requested: f64,
    effective: f64,
    achieved: f64,
    error: f64,
    state: &'a str,
    processes: usize,
    service_ns: u64,
    /// The effective share, and what it is: for those who want everything.
    effective_share: String,
    is: Cow<'a, str>,
}

/// Clients without a group by id, then each group with what is in it.
fn rows(clients: &Clients) -> Vec<Row<'_>> {
    let mut rows = Vec::with_capacity(clients.clients.len() + clients.groups.len());
    fn add_clients_of<'a>(clients: &'a Clients, group: Option<&Group>, rows: &mut Vec<Row<'a>>) {
        let path = group.map(|group| group.name.as_str());
        let indent = path.map_or(0, |path| path.split('/').count()) * 2;
        let of = clients.clients.iter().filter(|client| client.group.as_deref() == path);
        rows.extend(of.map(|client| Row {
            name: format!("{:indent$}{}", "", client.name),
            what: What::Client(client),
        }));
    }
    add_clients_of(clients, None, &mut rows);
    for group in &clients.groups {
        let mut names = group.name.split('/');
        let (name, depth) = (names.next_back().unwrap_or_default(), names.count());
        let within = |client: &&Client| {
            let rest = client.group.as_deref().and_then(|path| path.strip_prefix(group.name.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let processes = clients.clients.iter().filter(within).map(|client| client.nr_members).sum();
        let name = format!("{:indent$}{name}/", "", indent = depth * 2);
        rows.push(Row { name, what: What::Group(group, processes) });
        add_clients_of(clients, Some(group), &mut rows);
    }
    rows
}

impl Row<'_> {
    fn numbers(&self) -> Numbers<'_> {
        match self.what {
            What::Client(c) => Numbers {
                share: c.share,
                requested: c.requested_fraction,
                effective: c.effective_fraction,
                achieved: c.achieved_fraction,
                error: c.relative_error,
                state: c.state.as_str(),
                processes: c.nr_members,
                service_ns: c.service_ns,
                effective_share: format!("{:.2}", c.effective_share),
                is: match c.not_permitted {
                    0 => Cow::Borrowed(c.selector.as_str()),
                    n => Cow::Owned(format!("{} ({n} not permitted)", c.selector)),
                },
            },
            What::Group(g, processes) => Numbers {
                share: g.share,
                requested: g.requested_fraction,
                effective: g.effective_fraction,
                achieved: g.achieved_fraction,
                error: g.relative_error,
                state: if g.paused { "paused" } else { "" },
                processes,
                service_ns: g.service_ns,
                effective_share: "-".to_owned(),
                is: Cow::Owned(format!("group of {}", super::group::clients(g))),
            },
        }
    }
}

fn line(row: &Row<'_>, width: usize, limit: &str) -> String {
    let n = row.numbers();
    format!(
        "{:<width$} {:>7}{limit} {:>8.2} {:>10.2} {:>+8.2}  {:<7} {:>5} {:>7.2} s",
        short(&row.name, width),
        n.share,
        n.effective * 100.0,
        n.achieved * 100.0,
        n.error * 100.0,
        n.state,
        n.processes,
        seconds(n.service_ns),
    )
}

fn wide_line(row: &Row<'_>, width: usize, limit: &str) -> String {
    let n = row.numbers();
    format!(
        "{:<width$} {:>7}{limit} {:>9} {:>11.2} {:>8.2} {:>10.2} {:>+8.2}  {:<7} {:>9} {:>9.2} s  {}",
        short(&row.name, width),
        n.share,
        n.effective_share,
        n.requested * 100.0,
        n.effective * 100.0,
        n.achieved * 100.0,
        n.error * 100.0,
        n.state,
        n.processes,
        seconds(n.service_ns),
        n.is,
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

    fn client(name: &str, share: u64, not_permitted: usize) -> Client {
        Client {
            id: 0,
            name: name.into(),
            selector: "tree:4711".into(),
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
            ..Client::default()
        }
    }

    #[test]
    fn the_table_lines_up() {
        let clients = Clients {
            window_ns: 5_340_000_000,
            age_ns: 1_000_000,
            groups: vec![],
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

    #[test]
    fn groups_are_a_tree() {
        let group = |name: &str, share, clients| Group {
            name: name.into(),
            share,
            requested_fraction: 0.5,
            effective_fraction: 0.5,
            achieved_fraction: 0.49,
            relative_error: -0.02,
            service_ns: 2_000_000_000,
            clients,
            paused: clients == 1,
        };
        let of =
            |name: &str, group: Option<&str>| Client { group: group.map(Into::into), ..client(name, 1, 0) };
        let clients = Clients {
            window_ns: 1_000_000_000,
            age_ns: 0,
            clients: vec![of("cc", Some("build")), of("editor", None), of("unit", Some("build/tests"))],
            groups: vec![group("build", 3, 2), group("build/tests", 2, 1)],
        };
        let narrow = lines(&clients, false);
        assert_eq!(
            narrow,
            [
                "client     share target % achieved %  error %  state   procs  CPU time",
                "editor         1    33.33      33.25    -0.25  running    12    1.67 s",
                "build/         3    50.00      49.00    -2.00             24    2.00 s",
                "  cc           1    33.33      33.25    -0.25  running    12    1.67 s",
                "  tests/       2    50.00      49.00    -2.00  paused     12    2.00 s",
                "    unit       1    33.33      33.25    -0.25  running    12    1.67 s",
                "achieved: of all clients' CPU time in the 1.0 s since shares or clients changed",
            ]
        );
        assert!(lines(&clients, true)[4].ends_with("group of 1 client"));
    }
}
