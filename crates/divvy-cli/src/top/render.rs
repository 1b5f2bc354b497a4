//! The dashboard on a screen. Nothing here changes anything.

use divvy_policy::CpuLimit;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::app::{App, Mode, Notice};
use super::source::{Client, Kind, Snapshot, State};
use crate::remote::bytes;
use crate::remote::table::is_due_nothing;
use crate::strip::{self, Signs, fit, fit_right};

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) signs: Signs,
    pub(super) color: bool,
}

impl Look {
    fn paint(self, style: Style, color: Color) -> Style {
        if self.color { style.fg(color) } else { style }
    }

    fn state(self, state: State) -> Style {
        let style = Style::new();
        match state {
            State::Running => self.paint(style, Color::Green),
            State::Held => style,
            State::Limited => self.paint(style, Color::Cyan),
            State::Asleep => self.paint(style, Color::Blue),
            State::Stopped => self.paint(style, Color::Yellow),
            State::Paused => self.paint(style, Color::Magenta),
            State::Left => style.add_modifier(Modifier::DIM),
        }
    }

    fn trouble(self) -> Style {
        self.paint(Style::new().add_modifier(Modifier::BOLD), Color::Red)
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Lines of the pane below the table.
const DETAILS: u16 = 8;
/// With fewer lines the table has all of them.
const DETAILS_FROM: u16 = 18;
/// Titles and widths of the columns between name and strip.
const COLUMNS: [(&str, usize); 10] = [
    ("share", 7),
    ("req %", 6),
    ("eff %", 6),
    ("got %", 6),
    ("err %", 7),
    ("CPU time", 8),
    ("state", 7),
    ("n", 3),
    ("memory", 10),
    ("disk/s", 10),
];
/// Only a terminal of [`WIDE`] columns has these.
const OF_WIDE: [&str; 2] = ["memory", "disk/s"];
/// With so many columns there is room for memory and disks too.
const WIDE: usize = 130;
/// What a terminal of less than [`WHOLE`] columns is without, in this order, until names have room. It has no strip either.
const LEFT_OUT: [&str; 5] = ["req %", "CPU time", "n", "err %", "eff %"];
/// With so many columns there is room for all that is of the CPU.
const WHOLE: usize = 80;
const NAME_MIN: usize = 10;
const NAME_MAX: usize = 28;
/// What a name has of a narrow line.
const NAME_NARROW: usize = 15;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, look: Look) {
    let area = frame.area();
    let details = if app.details && area.height >= DETAILS_FROM { DETAILS } else { 0 };
    let parts = [
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(details),
        Constraint::Length(1),
    ];
    let [head, notice, table, pane, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(head_lines(app, usize::from(head.width))), head);
    frame.render_widget(Paragraph::new(notice_line(app, look)), notice);
    frame.render_widget(Paragraph::new(table_lines(app, look, table)), table);
    if details > 0 {
        draw_details(frame, app, look, pane);
    }
    frame.render_widget(Paragraph::new(foot_line(app, usize::from(foot.width))), foot);
    if app.mode == Mode::Help {
        draw_help(frame, area);
    }
    if look.signs == Signs::Ascii {
        frame.buffer_mut().content.iter_mut().for_each(|cell| {
            if let Some(sign) = plain(cell.symbol()) {
                cell.set_symbol(sign);
            }
        });
    }
}

/// What stands for a sign on a terminal that has ASCII only; `None` for one that is ASCII.
fn plain(sign: &str) -> Option<&'static str> {
    match sign {
        _ if sign.is_ascii() => None,
        "─" => Some("-"),
        "│" => Some("|"),
        "┌" | "┐" | "└" | "┘" => Some("+"),
        "…" => Some("~"),
        _ => Some("?"),
    }
}

/// `left` and `right` at the two ends of a line; the left one is cut if both have no room.
fn ends(left: &str, right: &str, width: usize) -> String {
    let room = width.saturating_sub(right.chars().count() + 1);
    format!("{} {right}", fit(left, room))
}

fn plural(n: usize, word: &str) -> String {
    let ending = match (n, word.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{n} {word}{ending}")
}

fn head_lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(snapshot) = &app.snapshot else {
        return vec![Line::styled("divvy top", BOLD), Line::raw("waiting for the first answer")];
    };
    let quantum = snapshot.quantum_ns as f64 / 1e6;
    let left = format!(
        "divvy top  {}, quantum {quantum} ms, {}",
        snapshot.policy,
        plural(snapshot.cpus as usize, "CPU")
    );
    let state = match (app.frozen, snapshot.ended) {
        (true, _) => "frozen  ",
        (false, true) => "the end  ",
        (false, false) => "",
    };
    let right = format!("{state}{}  {}", snapshot.source, clock(snapshot.now_ns));
    vec![Line::styled(ends(&left, &right, width), BOLD), Line::raw(ends(&now(app, snapshot), "", width))]
}

/// What was used lately, the error, and what divvy itself costs.
fn now(app: &App, snapshot: &Snapshot) -> String {
    let mut parts = Vec::new();
    if let Some(rates) = app.rates() {
        parts.push(format!("CPU used {:.1} %", rates.used * 100.0));
        if let Some(own) = rates.own {
            parts.push(format!("divvy {:.3} % of a CPU", own * 100.0));
        }
        parts.push(format!("{:.0} wakes/s", rates.wakeups_per_s));
        parts.push(format!("{:.0} signals/s", rates.signals_per_s));
    }
    if let Some(cycles) = &snapshot.cycles {
        parts.push(format!("error of cycles {:.3} % (median)", cycles.median * 100.0));
    }
    parts.join(", ")
}

/// A length of time: `1:02` or `3:00:07`.
fn clock(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    if s < 3600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    }
}

fn notice_line(app: &App, look: Look) -> Line<'static> {
    match &app.mode {
        Mode::Filter { .. } => return Line::raw(format!("only clients with: {}_", app.filter)),
        Mode::Share { name, text, .. } => return Line::raw(format!("share of {name}: {text}_")),
        Mode::Browse | Mode::Help => {}
    }
    if let Some(why) = &app.trouble {
        return Line::styled(why.clone(), look.trouble());
    }
    match &app.notice {
        Some(Notice::Trouble(why)) => Line::styled(why.clone(), look.trouble()),
        Some(Notice::Done(done)) => Line::raw(done.clone()),
        None if !app.filter.is_empty() => Line::styled(format!("only clients with: {}", app.filter), DIM),
        None => Line::raw(""),
    }
}

/// What of a row there is room for, and how wide it is.
struct Widths {
    name: usize,
    strip: usize,
    /// Of [`COLUMNS`].
    columns: Vec<usize>,
}

impl Widths {
    fn of(width: usize) -> Self {
        let fits = |at: &usize| width >= WIDE || !OF_WIDE.contains(&COLUMNS[*at].0);
        let mut columns: Vec<usize> = (0..COLUMNS.len()).filter(fits).collect();
        // The mark of the chosen row, and the space before the strip.
        let room = |columns: &[usize]| {
            width.saturating_sub(columns.iter().map(|&at| COLUMNS[at].1 + 1).sum::<usize>() + 2)
        };
        if width >= WHOLE {
            let room = room(&columns);
            let name = (room / 2).clamp(NAME_MIN, NAME_MAX);
            return Self { name, strip: room - name, columns };
        }
        for left_out in LEFT_OUT {
            if room(&columns) < NAME_NARROW {
                columns.retain(|&at| COLUMNS[at].0 != left_out);
            }
        }
        Self { name: room(&columns), strip: 0, columns }
    }
}

fn table_lines(app: &App, look: Look, area: Rect) -> Vec<Line<'static>> {
    let widths = Widths::of(usize::from(area.width));
    let mut title = format!(" {}", fit("client", widths.name));
    for (text, width) in widths.columns.iter().map(|&at| COLUMNS[at]) {
        title.push(' ');
        title += &if text == "state" { fit(text, width) } else { fit_right(text, width) };
    }
    title += &format!(" {}", fit(if widths.strip < 13 { "history" } else { "CPU over time" }, widths.strip));
    let mut lines = vec![Line::styled(title, BOLD.add_modifier(Modifier::UNDERLINED))];
    let rows = app.rows();
    let room = usize::from(area.height).saturating_sub(1).max(1);
    let at = rows.iter().position(|c| Some(c.id) == app.selected).unwrap_or(0);
    // By pages, so that the rows stand still while one moves within a page.
    let first = at / room * room;
    lines.extend(rows.iter().skip(first).take(room).map(|client| row(app, look, client, &widths)));
    if rows.is_empty() && app.snapshot.is_some() {
        let text = if app.filter.is_empty() {
            " no clients: divvy run -s 3 -- COMMAND, or divvy attach -s 2 PID, makes one"
        } else {
            " no client has this; Escape shows all"
        };
        lines.push(Line::styled(text, DIM));
    }
    lines
}

fn row(app: &App, look: Look, client: &Client, widths: &Widths) -> Line<'static> {
    let chosen = Some(client.id) == app.selected;
    let left = client.state == State::Left;
    let percent = |fraction: f64| format!("{:.2}", fraction * 100.0);
    let unless = |nothing: bool, text: String| if nothing { "-".to_owned() } else { text };
    let name = fit(&format!("{:1$}{2}", "", client.depth * 2, client.name), widths.name);
    let base = if left { DIM } else { Style::new() };
    let base = if chosen { base.add_modifier(Modifier::BOLD) } else { base };
    let mut spans = vec![Span::styled(format!("{}{name}", if chosen { '>' } else { ' ' }), base)];
    spans.extend(widths.columns.iter().map(|&at| {
        let (title, width) = COLUMNS[at];
        let cell = match title {
            "share" => client.share.to_string(),
            "req %" => unless(left, percent(client.requested_fraction)),
            "eff %" => unless(left, percent(client.effective_fraction)),
            "got %" => unless(!client.measured, percent(client.achieved_fraction)),
            "err %" if is_due_nothing(client.effective_fraction) => "-".to_owned(),
            "err %" => unless(left || !client.measured, signed(client.relative_error * 100.0)),
            "CPU time" => cpu_time(client.service_ns),
            "memory" => client.uses.memory_bytes.map_or_else(|| "-".to_owned(), bytes),
            "disk/s" => disk_rate(client).map_or_else(|| "-".to_owned(), bytes),
            "n" => unless(client.members.is_none(), client.nr_members.to_string()),
            _ => {
                return Span::styled(
                    format!(" {}", fit(client.state.as_str(), width)),
                    look.state(client.state),
                );
            }
        };
        Span::styled(format!(" {}", fit_right(&cell, width)), base)
    }));
    spans.push(Span::raw(" "));
    spans.extend(strip_spans(app, look, client, widths.strip));
    Line::from(spans)
}

/// What a client did lately, as signs: how much of the CPU it had, in the colour of its state.
fn strip_spans(app: &App, look: Look, client: &Client, width: usize) -> Vec<Span<'static>> {
    let cells: Vec<_> = app.cells(client.id, width).collect();
    let mut spans = vec![Span::raw(" ".repeat(width - cells.len().min(width)))];
    for alike in cells.chunk_by(|a, b| colour_of(a.state) == colour_of(b.state)) {
        let signs: String = alike
            .iter()
            .map(|cell| match (strip::level(cell.part, look.signs), cell.state) {
                // Nothing used: why.
                (' ', State::Asleep) => 'z',
                (' ', State::Stopped) => 'T',
                (' ', State::Paused) => 'p',
                (sign, _) => sign,
            })
            .collect();
        spans.push(Span::styled(signs, look.state(colour_of(alike[0].state))));
    }
    spans
}

/// Held, limited and running alternate many times between two snapshots: which of them it was last means nothing.
fn colour_of(state: State) -> State {
    if matches!(state, State::Held | State::Limited) { State::Running } else { state }
}

/// A number of % with its sign, in seven columns.
fn signed(percent: f64) -> String {
    if percent.abs() < 1000.0 { format!("{percent:+.2}") } else { format!("{:+.0}", percent.min(999_999.0)) }
}

/// Bytes a second that a client reads from disks and writes to them.
fn disk_rate(client: &Client) -> Option<u64> {
    let (read, written) = (client.uses.disk_read_bytes_per_s, client.uses.disk_written_bytes_per_s);
    read.zip(written).map(|(read, written)| read.saturating_add(written))
}

/// CPU time in eight columns.
fn cpu_time(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    if s < 10_000.0 { format!("{s:.2}s") } else { clock(ns) }
}

fn draw_details(frame: &mut Frame<'_>, app: &App, look: Look, area: Rect) {
    let Some(client) = app.chosen() else { return };
    let about = if client.selector.is_empty() { String::new() } else { format!(" {}", client.selector) };
    let title = fit(&format!("{}{about}", client.name), usize::from(area.width).saturating_sub(4));
    let block = Block::new().borders(ratatui::widgets::Borders::TOP).title(format!(" {} ", title.trim_end()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let mut text = format!(
        "share {} of {}, effective {:.2}; can use {}",
        client.share,
        client.beside,
        client.effective_share,
        plural(client.width as usize, "CPU")
    );
    if let Some(limit) = client.limit_ppm.and_then(|ppm| CpuLimit::new(ppm).ok()) {
        text += &format!("; limit {limit} of one CPU");
    }
    if client.not_permitted > 0 {
        text += &format!("; {} not permitted", plural(client.not_permitted as usize, "process"));
    }
    let width = usize::from(inner.width);
    let mut strip = vec![Span::styled("CPU over time ", DIM)];
    strip.extend(strip_spans(app, look, client, width.saturating_sub(14)));
    let mut lines = vec![Line::raw(text), Line::from(strip)];
    lines.extend(member_lines(client, look, usize::from(inner.height).saturating_sub(2)));
    frame.render_widget(Paragraph::new(lines), inner);
}

fn member_lines(client: &Client, look: Look, room: usize) -> Vec<Line<'static>> {
    let Some(members) = &client.members else {
        let why = match client.kind {
            Kind::Client => "a recording does not name the processes",
            Kind::Group => "processes are shown of its clients",
            Kind::Run | Kind::Task => "a `divvy share` does not name the processes",
        };
        return vec![Line::styled(why, DIM)];
    };
    let mut lines = vec![Line::styled(format!("{:>9} {:<8} process", "pid", "state"), DIM)];
    let room = room.saturating_sub(1);
    let shown = if client.nr_members > room { room.saturating_sub(1) } else { members.len() };
    lines.extend(members.iter().take(shown).map(|member| {
        let text = format!("{:>9} {} {}", member.pid, fit(&member.state, 8), member.name);
        if member.permitted {
            Line::raw(text)
        } else {
            Line::styled(format!("{text} (not permitted: it may not be signalled)"), look.trouble())
        }
    }));
    let rest = client.nr_members.saturating_sub(shown.min(members.len()));
    if rest > 0 {
        lines.push(Line::styled(format!("{:>9} and {rest} more", ""), DIM));
    }
    lines
}

fn foot_line(app: &App, width: usize) -> Line<'static> {
    let order = if app.descending { "down" } else { "up" };
    let keys = match app.mode {
        Mode::Browse => "q quit  ? help  s + - share  p pause  / filter  < > sort",
        Mode::Help => "any key goes back",
        Mode::Filter { .. } | Mode::Share { .. } => "Enter takes it  Escape leaves it",
    };
    let sorted = format!("by {} {order}", app.sort.as_str());
    let text = if keys.len() + sorted.len() < width { ends(keys, &sorted, width) } else { fit(keys, width) };
    Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
}

const HELP: &[(&str, &str)] = &[
    ("up down k j", "choose a client; also page up, page down, home, end"),
    ("s", "give it another share"),
    ("+ -", "a share that is larger, or smaller, by one"),
    ("p", "pause it, or let it go on; its share goes to the others"),
    ("/", "show only clients with a text in name, state or process"),
    ("< >", "sort by another column (also left, right)"),
    ("r", "sort the other way round"),
    ("Enter", "show or hide the chosen client's details"),
    ("space", "freeze the screen, and go on"),
    ("Ctrl-L Ctrl-Z", "draw anew; suspend divvy top"),
    ("q Ctrl-C", "quit: what is scheduled goes on"),
    ("", ""),
    ("req %", "share as a part of all shares"),
    ("eff %", "the part that it can have with its threads on these CPUs"),
    ("got %", "CPU time as a part of all clients' CPU time"),
    ("err %", "(got - eff) as a part of eff"),
    ("n", "processes of the client"),
    ("memory", "bytes that it has; this and disk/s from 130 columns on"),
    ("disk/s", "bytes a second that it reads from disks and writes to them"),
    ("history", "each sign one look: how much of a CPU; z asleep, p paused"),
];

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let width = 78.min(area.width);
    let of_key = |&(key, about): &(&'static str, &str)| {
        let rest = strip::wrapped(about, usize::from(width).saturating_sub(2 + 15));
        let keys = std::iter::once(key).chain(std::iter::repeat(""));
        let line =
            |(key, about)| Line::from(vec![Span::styled(format!(" {key:<14}"), BOLD), Span::raw(about)]);
        keys.zip(rest).map(line).collect::<Vec<_>>()
    };
    let lines: Vec<Line<'_>> = HELP.iter().flat_map(of_key).collect();
    let height = (lines.len() as u16 + 2).min(area.height);
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" divvy top ")), place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_errors_fit_their_columns() {
        for (ns, text) in [
            (0, "0.00s"),
            (9_999_990_000_000, "9999.99s"),
            (10_000_000_000_000, "2:46:40"),
            (3_599_000_000_000_000, "999:43:20"),
        ] {
            assert_eq!(cpu_time(ns), text);
        }
        for (percent, text) in [(0.0, "+0.00"), (-100.0, "-100.00"), (1234.5, "+1234"), (1e9, "+999999")] {
            assert_eq!(signed(percent), text);
        }
    }

    #[test]
    fn the_columns_fill_the_width_and_no_more() {
        for width in 40..200 {
            let widths = Widths::of(width);
            let columns: usize = widths.columns.iter().map(|&at| COLUMNS[at].1 + 1).sum();
            assert_eq!(widths.name + widths.strip + columns + 2, width);
            assert!(widths.name >= if width >= WHOLE { NAME_MIN } else { NAME_NARROW }, "{width}");
        }
        let of = |width| {
            let Widths { name, strip, columns } = Widths::of(width);
            (name, strip, columns.len())
        };
        assert_eq!((of(80), of(79), of(60), of(40)), ((10, 10, 8), (19, 0, 8), (16, 0, 6), (15, 0, 3)));
        assert_eq!((of(129).2, of(130).2), (8, 10));
        assert_eq!(of(20), (0, 0, 3));
    }
}
