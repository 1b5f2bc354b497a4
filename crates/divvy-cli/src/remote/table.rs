//! The table of `divvy ls`.

use std::borrow::Cow;

use divvy_api::runs::ShareRun;
use divvy_api::types::{BackendInfo, Client, Clients, Group, Pressure, Status};
use divvy_linux::CpuMask;
use divvy_policy::CpuLimit;
use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthStr as _;

use super::seconds;
use crate::bounds;
use crate::strip::fit;

/// In a shorter window nobody has had its turns yet.
const SHORTEST_NS: u64 = 200_000_000;
/// As a client's state, and a group's whose clients all are.
const PAUSED: &str = "paused";
/// Cells of a name at most: where everything is to be within 80 columns, and where it need not.
const NAME_MAX: usize = 18;
const NAME_MAX_WIDE: usize = 24;
/// Of a narrow terminal's line a name has so many, if it is that long, before less important columns have room.
const NAME_NARROW: usize = 12;
/// Columns of a line where standard output is no terminal, and at most.
const LINE: usize = 80;

/// What a line may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// Every column that there is.
    Wide,
    /// So many columns; with less than [`LINE`], what matters least is left out.
    Columns(usize),
    /// No terminal's: what is read by programs has whole names.
    Endless,
}

impl Width {
    /// What was asked for, and the width of the terminal if standard output is one.
    pub(super) fn of_output(wide: bool) -> Self {
        if wide {
            return Self::Wide;
        }
        let Ok(size) = tcgetwinsize(std::io::stdout()) else { return Self::Endless };
        // A terminal that does not know its size says 0.
        let columns = Some(usize::from(size.ws_col)).filter(|&columns| columns > 0);
        Self::Columns(columns.map_or(LINE, |columns| columns.min(LINE)))
    }

    /// How many columns a line of words may have; of what programs read, any number.
    pub(super) const fn columns(self) -> usize {
        match self {
            Self::Columns(columns) => columns,
            Self::Wide | Self::Endless => usize::MAX,
        }
    }
}

/// Whether a target is shown as 0.00 %: nothing is a part of it.
pub(crate) const fn is_due_nothing(target: f64) -> bool {
    target < 5e-5
}

/// A column to the right of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Share,
    Limit,
    Effective,
    Requested,
    Target,
    Achieved,
    Error,
    State,
    Processes,
    Time,
    Is,
}

use Column::{Achieved, Effective, Is, Limit, Processes, Requested, Share, State, Target, Time};

const ORDINARY: &[Column] = &[Share, Limit, Target, Achieved, Column::Error, State, Processes, Time];
const EVERY: &[Column] =
    &[Share, Limit, Effective, Requested, Target, Achieved, Column::Error, State, Processes, Time, Is];
/// What a narrow line is without, in this order, until names have room.
const LEFT_OUT: [Column; 6] = [Processes, Time, Column::Error, Limit, State, Target];

impl Column {
    /// Its title, and how wide it is, the space before it among that.
    fn title(self, wide: bool) -> (&'static str, usize) {
        match self {
            Share => ("share", 8),
            Limit => ("limit", 8),
            Effective => ("effective", 10),
            Requested => ("requested %", 12),
            Target => ("target %", 9),
            Achieved => ("achieved %", 11),
            Self::Error => ("error %", 9),
            State => ("state", 9),
            Processes if wide => ("processes", 10),
            Processes => ("procs", 6),
            Time if wide => ("CPU time", 12),
            Time => ("CPU time", 10),
            Is => ("is", 0),
        }
    }

    /// A cell with that text.
    fn cell(self, text: &str, wide: bool) -> String {
        let (_, width) = self.title(wide);
        match self {
            State => format!("  {text:<0$}", width - 2),
            Is => format!("  {text}"),
            _ => format!(" {text:>0$}", width - 1),
        }
    }
}

/// The columns that there is room for, and the width of the names, of which the longest has `longest` characters.
fn layout(width: Width, longest: usize, limits: bool) -> (Vec<Column>, usize) {
    let all = if width == Width::Wide { EVERY } else { ORDINARY };
    let mut columns: Vec<Column> = all.iter().copied().filter(|&c| limits || c != Limit).collect();
    let line = match width {
        Width::Wide => return (columns, longest.clamp(6, NAME_MAX_WIDE)),
        Width::Endless => return (columns, longest.max(6)),
        Width::Columns(line) => line,
    };
    let room = |columns: &[Column]| line.saturating_sub(columns.iter().map(|c| c.title(false).1).sum());
    // The ordinary line is as it is, however long the names are; a limit takes room from them.
    if line < LINE || limits {
        for left_out in LEFT_OUT {
            if room(&columns) < longest.clamp(6, NAME_NARROW) {
                columns.retain(|&c| c != left_out);
            }
        }
    }
    let most = room(&columns).clamp(6, NAME_MAX);
    (columns, longest.clamp(6, most))
}

/// A header, a line for each client, and what the fractions are of.
pub(super) fn lines(clients: &Clients, width: Width) -> Vec<String> {
    let rows = rows(clients);
    let longest = rows.iter().map(|row| row.name.width()).max().unwrap_or(0);
    let limits = clients.clients.iter().any(|c| c.limit_ppm.is_some());
    let (columns, name) = layout(width, longest, limits);
    let wide = width == Width::Wide;
    // Before anybody had anything there is no fraction of it, and one turn of one of them is none either.
    let measured =
        clients.window_ns >= SHORTEST_NS && clients.clients.iter().any(|c| c.achieved_fraction > 0.0);
    let line = |first: &str, cell: &dyn Fn(Column) -> String| {
        let cells: String = columns.iter().map(|&column| column.cell(&cell(column), wide)).collect();
        format!("{}{cells}", fit(first, name)).trim_end().to_owned()
    };
    let mut lines = vec![line("client", &|column| column.title(wide).0.to_owned())];
    lines.extend(rows.iter().map(|row| line(&row.name, &|column| row.cell(column, measured))));
    let refused = clients.clients.iter().filter(|client| !wide && client.not_permitted > 0);
    lines.extend(refused.map(|client| {
        let name = fit(&client.name, name);
        let name = name.trim_end();
        format!("{name}: {} of its processes may not be signalled, and run undivided", client.not_permitted)
    }));
    lines.extend(clients.clients.iter().filter(|client| !client.bounds.is_empty()).map(|client| {
        let bounds = bounds::shown(client.bounds);
        format!("{}: {}", client.name, bounds.trim_start_matches(", "))
    }));
    let of_client = |client: &Client| Some(format!("{}: {}", client.name, uses(client)?));
    lines.extend(clients.clients.iter().filter(|_| wide).filter_map(of_client));
    let window = span(clients.window_ns);
    lines.push(match width {
        Width::Columns(..LINE) => format!("achieved: in the last {window}"),
        _ => format!("achieved: of all clients' CPU time in the {window} since shares or clients changed"),
    });
    lines
}

/// Why those with a thread for each CPU that they have are due less than their shares say, if any are.
pub(super) fn at_their_width(clients: &Clients, cpus: usize) -> Vec<String> {
    const ENOUGH: f64 = 0.01;
    // Parts are of what all together can use.
    let takes_part = clients.clients.iter().filter(|client| client.effective_fraction > 0.0);
    let limit = |client: &Client| client.limit_ppm.map_or(f64::INFINITY, |ppm| ppm as f64 / 1e6);
    let all: f64 = takes_part.map(|client| f64::from(client.width).min(limit(client))).sum();
    let all = all.min(cpus as f64).max(f64::MIN_POSITIVE);
    let is_so = |client: &&Client| {
        let can = f64::from(client.width) / all;
        client.limit_ppm.is_none()
            && client.effective_fraction < client.requested_fraction * (1.0 - ENOUGH)
            && (client.effective_fraction / can - 1.0).abs() < ENOUGH
    };
    let told = clients.clients.iter().filter(is_so).map(|client| {
        let can = if client.width == 1 { "one CPU".to_owned() } else { format!("{} CPUs", client.width) };
        format!("{} can use {can} only: the others have the rest of its share", client.name)
    });
    told.collect()
}

/// A time as a number of at most four characters and its unit: `5.3 s`, `120 s`, `2.8 h`.
fn span(ns: u64) -> String {
    let seconds = seconds(ns);
    // As many of a unit are rounded to four digits.
    const MOST: f64 = 9_999.5;
    let (number, unit) = match seconds {
        s if s < MOST => (s, "s"),
        s if s / 3_600.0 < MOST => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    if number < 99.95 { format!("{number:.1} {unit}") } else { format!("{number:.0} {unit}") }
}

/// The same for a `divvy share`, which divides its tasks by itself.
pub(super) fn of_run(run: ShareRun, width: Width) -> Vec<String> {
    let most = match width {
        Width::Columns(columns) => columns,
        Width::Wide | Width::Endless => usize::MAX,
    };
    let line = |cpus: String| {
        let time = span(run.uptime_ns);
        format!("divvy share (pid {}, {}, {cpus}): divides by itself, for {time}", run.pid, run.policy)
    };
    let listed = line(format!("CPUs {}", run.cpus.iter().copied().collect::<CpuMask>()));
    // Every other CPU of many is a long list.
    let title =
        if listed.chars().count() <= most { listed } else { line(format!("{} CPUs", run.cpus.len())) };
    let room = most.max(NAME_NARROW).min(title.width());
    let mut lines = vec![fit(&title, room)];
    let all = Clients { window_ns: run.uptime_ns, age_ns: 0, clients: run.clients, groups: Vec::new() };
    lines.extend(self::lines(&all, width));
    lines.pop(); // What its fractions are of is said already.
    lines
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
                state: if g.paused { PAUSED } else { "" },
                processes,
                service_ns: g.service_ns,
                effective_share: "-".to_owned(),
                is: Cow::Owned(format!("group of {}", super::group::clients(g.clients))),
            },
        }
    }

    /// What stands in a column; `-` for nothing. Nothing was `measured` where nobody had any CPU time yet.
    fn cell(&self, column: Column, measured: bool) -> String {
        let n = self.numbers();
        let of_measured = |text: String| if measured { text } else { "-".to_owned() };
        match column {
            Share => n.share.to_string(),
            Limit => match self.what {
                What::Client(client) => client.limit_ppm.and_then(|ppm| CpuLimit::new(ppm).ok()),
                What::Group(..) => None,
            }
            .map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
            Effective => n.effective_share,
            Requested => format!("{:.2}", n.requested * 100.0),
            Target => format!("{:.2}", n.effective * 100.0),
            // What it had before it was held says nothing of now.
            Achieved if is_due_nothing(n.effective) && n.state == PAUSED => "-".to_owned(),
            Achieved => of_measured(format!("{:.2}", n.achieved * 100.0)),
            Column::Error if is_due_nothing(n.effective) => "-".to_owned(),
            Column::Error => of_measured(format!("{:+.2}", n.error * 100.0)),
            State => n.state.to_owned(),
            Processes => n.processes.to_string(),
            Time => format!("{:.2} s", seconds(n.service_ns)),
            Is => n.is.into_owned(),
        }
    }
}

/// What divides, and of which rights nothing gives effect; with every column, also how much all clients wait. The default,
/// signals, is told of only there.
pub(super) fn enforced(status: &Status, wide: bool) -> Vec<String> {
    let BackendInfo { asked, used, why, enforced, keeps_cpus: _, starts_on: _ } = &status.backend;
    let mut lines = Vec::new();
    if used.is_empty() {
        return lines; // An older divvyd.
    }
    if used != asked {
        lines.push(format!("divided by {used}, where {asked} was asked for: {why}"));
    } else if wide || used != "signals" {
        lines.push(format!("divided by {used}"));
    }
    let none = enforced.iter().filter(|told| told.by.is_none());
    lines.extend(none.map(|told| format!("{}: {told}", told.resource)));
    if wide {
        let kept = enforced.iter().filter(|told| told.by.is_some() && told.resource != "cpu");
        lines.extend(kept.map(|told| format!("{}: {told}", told.resource)));
        lines.extend(pressure(&status.pressure));
    }
    lines
}

/// How much all clients wait, in one line; `None` where the kernel does not tell.
fn pressure(told: &[Pressure]) -> Option<String> {
    let of = |p: &Pressure| format!("{} {:.1} %", p.resource, p.some_avg10 * 100.0);
    let parts: Vec<String> = told.iter().map(of).collect();
    (!parts.is_empty()).then(|| format!("of the last 10 s some client waited, for {}", parts.join(", for ")))
}

/// Bytes as people write them: `3.4 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", n as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", n as f64 / 1_073_741_824.0),
    }
}

/// What a client has of memory and disks, beside what it is due; `None` where nothing is known.
fn uses(client: &Client) -> Option<String> {
    let u = &client.uses;
    let due = |told: Option<String>| told.map_or_else(String::new, |told| format!(" ({told})"));
    let memory = u.memory_bytes.map(|n| {
        format!(
            "memory {}{}",
            bytes(n),
            due(u.memory_due_bytes.map(|n| format!("{} are kept for it", bytes(n))))
        )
    });
    let disk = u.disk_read_bytes_per_s.zip(u.disk_written_bytes_per_s).map(|(read, written)| {
        let percent = |fraction: f64| format!("{:.1} %", fraction * 100.0);
        let achieved = u.disk_achieved_fraction.map_or_else(|| "nothing".to_owned(), percent);
        let parts = u.disk_due_fraction.map(|part| format!("{achieved} of all, due {}", percent(part)));
        format!("disks {}/s read, {}/s written{}", bytes(read), bytes(written), due(parts))
    });
    let told: Vec<String> = [memory, disk].into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests {
    use divvy_api::types::Bounds;

    use super::*;

    #[test]
    fn what_divides_is_named_where_it_is_not_the_default_or_not_what_was_asked_for() {
        let of = |asked: &str, used: &str, enforced: Vec<Enforcement>| {
            let backend = BackendInfo {
                asked: asked.into(),
                used: used.into(),
                why: "no cgroup".into(),
                enforced,
                keeps_cpus: false,
                starts_on: None,
            };
            let status = Status { backend, ..status() };
            (super::enforced(&status, false), super::enforced(&status, true))
        };
        let by = |resource: &str, by: Option<&str>| Enforcement {
            resource: resource.into(),
            by: by.map(Into::into),
            note: "a note".into(),
        };
        assert_eq!(of("signals", "signals", vec![]), (vec![], vec!["divided by signals".to_owned()]));
        assert_eq!(of("", "", vec![]), (vec![], vec![]), "an older divvyd");
        let (narrow, _) = of("auto", "signals", vec![by("cpu", Some("signals"))]);
        assert_eq!(narrow, ["divided by signals, where auto was asked for: no cgroup"]);
        let (narrow, wide) = of("cgroup", "cgroup", vec![by("memory", None), by("disk", Some("io.weight"))]);
        assert_eq!(narrow, ["divided by cgroup", "memory: rights are kept and not enforced: a note"]);
        assert_eq!(wide[2..], ["disk: by io.weight; a note"]);
    }

    fn status() -> Status {
        let text = r#"{"version": "1", "pid": 1, "policy": "exact", "quantum_ns": 1, "cpus": [0], "uptime_ns": 1, "clients": 1,
            "self": {"cpu_ns": 0, "overhead": 0.0, "wakeups": 0, "reads": 0, "signals": 0, "scans": 0}}"#;
        serde_json::from_str(text).expect("a status")
    }

    #[test]
    fn what_bounds_a_client_beside_its_limit_has_a_line() {
        let mut one = client("a", 1, 0);
        one.bounds = Bounds {
            limit_memory_bytes: Some(2 << 30),
            limit_disk_bytes: Some(10 << 20),
            ..Bounds::default()
        };
        let clients =
            Clients { window_ns: 1, age_ns: 0, groups: vec![], clients: vec![one, client("b", 1, 0)] };
        for width in [Width::Columns(80), Width::Columns(60), Width::Wide, Width::Endless] {
            let lines = lines(&clients, width);
            assert_eq!(lines[3], "a: limit of memory 2G, limit of each disk 10M a second", "{lines:?}");
            assert_eq!(lines.len(), 5);
        }
    }

    #[test]
    fn memory_and_disks_stand_beside_what_is_due() {
        let mut one = client("a", 1, 0);
        assert_eq!(uses(&one), None);
        one.uses.memory_bytes = Some(3 << 20);
        assert_eq!(uses(&one).as_deref(), Some("memory 3.0 MiB"));
        one.uses.memory_due_bytes = Some(5 << 29);
        (one.uses.disk_read_bytes_per_s, one.uses.disk_written_bytes_per_s) = (Some(1536), Some(0));
        (one.uses.disk_due_fraction, one.uses.disk_achieved_fraction) = (Some(0.75), Some(0.744));
        let told = "memory 3.0 MiB (2.5 GiB are kept for it), disks 1.5 KiB/s read, 0 B/s written (74.4 % of all, due 75.0 %)";
        assert_eq!(uses(&one).as_deref(), Some(told));
        let clients = Clients { window_ns: 1, age_ns: 0, groups: vec![], clients: vec![one] };
        assert!(lines(&clients, Width::Wide).iter().any(|line| *line == format!("a: {told}")));
        assert!(!lines(&clients, Width::Columns(80)).iter().any(|line| line.contains("memory")));
    }
    use divvy_api::types::{ClientState, Enforcement};

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

    /// Shares 3 and 1 of one thread each on two CPUs: half and half is all that there is.
    #[test]
    fn who_can_use_less_than_its_share_is_named() {
        let of = |requested: f64, effective: f64| Client {
            requested_fraction: requested,
            effective_fraction: effective,
            ..client("a", 3, 0)
        };
        let told = |client: Client, cpus: usize| {
            let other = Client { name: "b".to_owned(), width: 4, ..of(0.1, 0.1) };
            let clients = Clients { window_ns: 1, age_ns: 0, groups: vec![], clients: vec![client, other] };
            at_their_width(&clients, cpus)
        };
        assert_eq!(told(of(0.75, 0.5), 2), ["a can use one CPU only: the others have the rest of its share"]);
        let wide = Client { width: 3, ..of(0.9, 0.75) };
        assert_eq!(told(wide, 4), ["a can use 3 CPUs only: the others have the rest of its share"]);
        assert_eq!(told(of(0.25, 0.5), 2), [""; 0], "it has what another leaves");
        assert_eq!(told(of(0.75, 0.3), 2), [""; 0], "a limit, or sleep, is another reason");
        assert_eq!(told(Client { limit_ppm: Some(1_000_000), ..of(0.75, 0.5) }, 2), [""; 0]);
    }

    /// What it had in the moment before it was held is all that anybody had.
    #[test]
    fn of_who_is_paused_nothing_is_achieved() {
        let paused = Client {
            achieved_fraction: 1.0,
            effective_fraction: 0.0,
            state: ClientState::Paused,
            ..client("a", 1, 0)
        };
        let of = |client: Client| {
            let clients =
                Clients { window_ns: 5_000_000_000, age_ns: 0, groups: vec![], clients: vec![client] };
            lines(&clients, Width::Columns(80))[1].clone()
        };
        assert_eq!(
            of(paused.clone()),
            "a            1     0.00          -        -  paused     12    1.67 s"
        );
        let runs_on = Client { state: ClientState::Running, ..paused };
        assert_eq!(of(runs_on), "a            1     0.00     100.00        -  running    12    1.67 s");
    }

    #[test]
    fn the_table_lines_up() {
        let clients = Clients {
            window_ns: 5_340_000_000,
            age_ns: 1_000_000,
            groups: vec![],
            clients: vec![client("a", 1, 0), client("a-name-that-is-far-too-long-for-it", 1_000_000, 2)],
        };
        let narrow = lines(&clients, Width::Columns(80));
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
            lines(&clients, Width::Wide),
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
        let narrow = lines(&clients, Width::Columns(80));
        assert_eq!(
            narrow[..3],
            [
                "client             share   limit target % achieved %  error %  state    CPU time",
                "a                      1       -    33.33      33.25    -0.25  running    1.67 s",
                "a-name-that-is-…       3     50%    33.33      33.25    -0.25  running    1.67 s",
            ]
        );
        assert!(narrow.iter().all(|line| line.chars().count() <= 80), "{narrow:#?}");
        assert!(
            lines(&clients, Width::Wide)[2].starts_with("a-name-that-is-far-too-…       3     50%      1.50")
        );
    }

    /// However long ago shares changed, and whichever CPUs a run has, lines are no longer than a terminal's.
    #[test]
    fn lines_of_long_times_and_many_cpus_fit() {
        const S: u64 = 1_000_000_000;
        for (ns, expected) in [
            (0, "0.0 s"),
            (12_340_000_000, "12.3 s"),
            (99_960_000_000, "100 s"),
            (9_999 * S, "9999 s"),
            (10_000 * S, "2.8 h"),
            (999 * 3_600 * S, "999 h"),
            (u64::MAX, "213504 d"),
        ] {
            assert_eq!(span(ns), expected);
            let clients =
                Clients { window_ns: ns, age_ns: 0, groups: vec![], clients: vec![client("a", 1, 0)] };
            let lines = lines(&clients, Width::Columns(80));
            assert!(ns == u64::MAX || lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        }
        let title = |cpus: Vec<u32>, policy: &str, width| {
            let run = ShareRun {
                pid: 4_194_304,
                policy: policy.into(),
                cpus,
                uptime_ns: 120 * S,
                clients: vec![client("a", 1, 0)],
            };
            let mut lines = of_run(run, width);
            assert_eq!(lines.len(), 3, "{lines:#?}");
            lines.swap_remove(0)
        };
        let every_other: Vec<u32> = (0..128).step_by(2).collect();
        for (cpus, policy, columns, expected) in [
            (
                vec![0, 1, 2, 3],
                "exact",
                80,
                "divvy share (pid 4194304, exact, CPUs 0-3): divides by itself, for 120 s",
            ),
            (
                every_other.clone(),
                "alps-basic",
                80,
                "divvy share (pid 4194304, alps-basic, 64 CPUs): divides by itself, for 120 s",
            ),
            (vec![0, 1], "exact", 40, "divvy share (pid 4194304, exact, 2 CPUs…"),
        ] {
            let title = title(cpus, policy, Width::Columns(columns));
            assert_eq!(title, expected);
            assert!(title.chars().count() <= columns, "{title}");
        }
        let whole = title(every_other, "exact", Width::Endless);
        assert!(whole.contains("CPUs 0,2,4,") && whole.contains(",126)"), "{whole}");
    }

    /// A terminal of 60 columns, or 40, shows who the clients are before it shows everything about them.
    #[test]
    fn narrow_lines_keep_the_names() {
        let long = Client { limit_ppm: Some(500_000), ..client("test-runner-of-the-night", 3, 0) };
        let clients = Clients {
            window_ns: 5_340_000_000,
            age_ns: 0,
            groups: vec![],
            clients: vec![client("build-tree", 1_000_000, 0), long],
        };
        for (columns, expected) in [
            (
                70,
                [
                    "client             share   limit target % achieved %  error %  state",
                    "build-tree       1000000       -    33.33      33.25    -0.25  running",
                    "test-runner-of-…       3     50%    33.33      33.25    -0.25  running",
                ],
            ),
            (
                60,
                [
                    "client            share   limit target % achieved %  state",
                    "build-tree      1000000       -    33.33      33.25  running",
                    "test-runner-of…       3     50%    33.33      33.25  running",
                ],
            ),
            (
                40,
                [
                    "client         share target % achieved %",
                    "build-tree   1000000    33.33      33.25",
                    "test-runner…       3    33.33      33.25",
                ],
            ),
            (
                30,
                [
                    "client        share achieved %",
                    "build-tree  1000000      33.25",
                    "test-runne…       3      33.25",
                ],
            ),
        ] {
            let lines = lines(&clients, Width::Columns(columns));
            assert_eq!(lines[..3], expected, "{columns}");
            assert_eq!(lines[3], "achieved: in the last 5.3 s");
            assert!(lines[..3].iter().all(|line| line.chars().count() <= columns), "{columns}: {lines:#?}");
        }
        // A line that nobody could read is no narrower.
        assert!(lines(&clients, Width::Columns(1))[1].starts_with("build… "));
        // Programs read whole names.
        let whole = lines(&clients, Width::Endless);
        assert!(whole[1].starts_with(&clients.clients[0].name), "{whole:?}");
    }

    #[test]
    fn what_nobody_has_measured_is_no_number() {
        let fresh =
            Client { achieved_fraction: 0.0, relative_error: 0.0, service_ns: 0, ..client("a", 1, 0) };
        let clients = Clients { window_ns: 0, age_ns: 0, groups: vec![], clients: vec![fresh.clone()] };
        let line = "a            1    33.33          -        -  running    12    0.00 s";
        assert_eq!(lines(&clients, Width::Columns(80))[1], line);
        // One who has nothing of what another has, has 0 of it.
        let clients = Clients { clients: vec![fresh, client("b", 1, 0)], ..clients };
        assert!(lines(&clients, Width::Columns(80))[1].contains("33.33          -        -"), "too early");
        let clients = Clients { window_ns: SHORTEST_NS, ..clients };
        assert!(lines(&clients, Width::Columns(80))[1].contains("33.33       0.00    +0.00"));
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
        let narrow = lines(&clients, Width::Columns(80));
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
        assert!(lines(&clients, Width::Wide)[4].ends_with("group of 1 client"));
    }
}
