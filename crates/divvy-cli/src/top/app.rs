//! The dashboard as a state machine: keys and snapshots in, requests out. It draws nothing and reads no clock.

use std::collections::{BTreeMap, VecDeque};

use super::source::{Change, Client, Own, Snapshot, State};

/// Cells of a strip that are kept.
const CELLS_MAX: usize = 512;
/// Snapshots over which "now" is averaged.
const RECENT: usize = 6;
/// The largest share, as on the command line.
const SHARE_MAX: u64 = 1_000_000;
/// Rows that a page key moves by.
const PAGE: usize = 10;

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Ctrl(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

/// What the dashboard wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Quit,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    Redraw,
    /// Show new snapshots or do not.
    Freeze(bool),
    Change {
        client: u32,
        change: Change,
    },
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Id,
    Name,
    Share,
    Requested,
    Effective,
    Achieved,
    Error,
    Cpu,
    State,
    Members,
}

impl Column {
    const ALL: [Self; 10] = [
        Self::Id,
        Self::Name,
        Self::Share,
        Self::Requested,
        Self::Effective,
        Self::Achieved,
        Self::Error,
        Self::Cpu,
        Self::State,
        Self::Members,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Id => "number",
            Self::Name => "name",
            Self::Share => "share",
            Self::Requested => "requested",
            Self::Effective => "effective",
            Self::Achieved => "achieved",
            Self::Error => "error",
            Self::Cpu => "CPU time",
            Self::State => "state",
            Self::Members => "processes",
        }
    }

    /// The next one (`by` = 1) or the one before (`by` = -1), around.
    fn step(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|&c| c == self).unwrap_or(0) as isize;
        Self::ALL[(at + by).rem_euclid(Self::ALL.len() as isize) as usize]
    }

    /// Largest first is what one wants of amounts; names and states go up.
    const fn descends(self) -> bool {
        !matches!(self, Self::Id | Self::Name | Self::State)
    }
}

/// What keys mean at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    Help,
    /// A filter is being typed; what it was before is kept for Escape.
    Filter {
        before: String,
    },
    /// A share for this client is being typed.
    Share {
        client: u32,
        name: String,
        text: String,
    },
}

/// A line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Done(String),
    Trouble(String),
}

/// What a client did between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// CPU time as a part of what it could have used: 0 to 1.
    pub(super) part: f64,
    /// Its state at the end.
    pub(super) state: State,
}

#[derive(Clone, Debug, Default)]
struct Track {
    cells: VecDeque<Cell>,
    service_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    now_ns: u64,
    /// CPU time of all clients since the dashboard began.
    used_ns: u64,
    own: Own,
}

/// What was used lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// CPU time of all clients as a fraction of the time of all CPUs.
    pub(super) used: f64,
    /// divvy's own, as a fraction of one CPU.
    pub(super) own: Option<f64>,
    pub(super) wakeups_per_s: f64,
    pub(super) signals_per_s: f64,
}

/// All that the dashboard knows.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub(super) snapshot: Option<Snapshot>,
    pub(super) notice: Option<Notice>,
    /// Why there is no newer snapshot.
    pub(super) trouble: Option<String>,
    pub(super) mode: Mode,
    pub(super) filter: String,
    pub(super) sort: Column,
    pub(super) descending: bool,
    pub(super) selected: Option<u32>,
    pub(super) details: bool,
    pub(super) frozen: bool,
    tracks: BTreeMap<u32, Track>,
    recent: VecDeque<Recent>,
}

impl App {
    pub(super) fn new() -> Self {
        Self {
            snapshot: None,
            notice: None,
            trouble: None,
            mode: Mode::Browse,
            filter: String::new(),
            sort: Column::Id,
            descending: false,
            selected: None,
            details: true,
            frozen: false,
            tracks: BTreeMap::new(),
            recent: VecDeque::new(),
        }
    }

    /// Takes what the source says now.
    pub(super) fn on_snapshot(&mut self, answer: Result<Snapshot, String>) {
        let snapshot = match answer {
            Ok(snapshot) => snapshot,
            Err(why) => {
                self.trouble = Some(why);
                return;
            }
        };
        self.trouble = None;
        let before = self.snapshot.as_ref().map(|s| s.now_ns);
        if before.is_some_and(|before| snapshot.now_ns < before) {
            // Another scheduler, or a trace from its beginning: what was is no part of it.
            self.tracks.clear();
            self.recent.clear();
        }
        let span = before.map_or(0, |before| snapshot.now_ns.saturating_sub(before));
        let mut used = self.recent.back().map_or(0, |recent| recent.used_ns);
        for client in &snapshot.clients {
            let first = !self.tracks.contains_key(&client.id);
            let track = self.tracks.entry(client.id).or_default();
            let more = client.service_ns.saturating_sub(track.service_ns);
            track.service_ns = client.service_ns;
            if span == 0 || first {
                continue; // Nobody knows since when.
            }
            if client.kind.is_leaf() {
                used += more;
            }
            let could = span as f64 * f64::from(client.width.clamp(1, snapshot.cpus.max(1)));
            track.cells.push_back(Cell { part: more as f64 / could, state: client.state });
            if track.cells.len() > CELLS_MAX {
                track.cells.pop_front();
            }
        }
        self.tracks.retain(|id, _| snapshot.clients.iter().any(|client| client.id == *id));
        if span > 0 || self.recent.is_empty() {
            self.recent.push_back(Recent { now_ns: snapshot.now_ns, used_ns: used, own: snapshot.own });
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
        self.snapshot = Some(snapshot);
        self.keep_selection();
    }

    /// Takes what became of a change.
    pub(super) fn on_answer(&mut self, answer: Result<String, String>) {
        self.notice = Some(match answer {
            Ok(done) => Notice::Done(done),
            Err(why) => Notice::Trouble(why),
        });
    }

    /// What was used lately; `None` before there were two snapshots.
    pub(super) fn rates(&self) -> Option<Rates> {
        let (first, last) = (self.recent.front()?, self.recent.back()?);
        let span = last.now_ns.checked_sub(first.now_ns).filter(|&span| span > 0)? as f64;
        let cpus = f64::from(self.snapshot.as_ref()?.cpus.max(1));
        let per_s = |a: u64, b: u64| b.saturating_sub(a) as f64 / span * 1e9;
        let own = first.own.cpu_ns.zip(last.own.cpu_ns);
        Some(Rates {
            used: last.used_ns.saturating_sub(first.used_ns) as f64 / span / cpus,
            own: own.map(|(a, b)| b.saturating_sub(a) as f64 / span),
            wakeups_per_s: per_s(first.own.wakeups, last.own.wakeups),
            signals_per_s: per_s(first.own.signals, last.own.signals),
        })
    }

    /// The last `nr` cells of a client's strip, oldest first.
    pub(super) fn cells(&self, client: u32, nr: usize) -> impl Iterator<Item = Cell> + '_ {
        let cells = self.tracks.get(&client).map(|track| &track.cells);
        let skip = cells.map_or(0, |cells| cells.len().saturating_sub(nr));
        cells.into_iter().flatten().skip(skip).copied()
    }

    /// The clients that are shown, in their order.
    pub(super) fn rows(&self) -> Vec<&Client> {
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let mut rows: Vec<&Client> = snapshot
            .clients
            .iter()
            .filter(|c| {
                let mut members = c.members.iter().flatten();
                has(&c.name) || has(&c.selector) || has(c.state.as_str()) || members.any(|m| has(&m.name))
            })
            .collect();
        rows.sort_by(|a, b| {
            let order = match self.sort {
                Column::Id => a.order.cmp(&b.order),
                Column::Name => a.name.cmp(&b.name),
                Column::Share => a.share.cmp(&b.share),
                Column::Requested => a.requested_fraction.total_cmp(&b.requested_fraction),
                Column::Effective => a.effective_fraction.total_cmp(&b.effective_fraction),
                Column::Achieved => a.achieved_fraction.total_cmp(&b.achieved_fraction),
                Column::Error => a.relative_error.abs().total_cmp(&b.relative_error.abs()),
                Column::Cpu => a.service_ns.cmp(&b.service_ns),
                Column::State => a.state.cmp(&b.state),
                Column::Members => a.nr_members.cmp(&b.nr_members),
            };
            let order = if self.descending { order.reverse() } else { order };
            order.then(a.id.cmp(&b.id))
        });
        rows
    }

    /// The client that keys are about.
    pub(super) fn chosen(&self) -> Option<&Client> {
        self.rows().into_iter().find(|c| Some(c.id) == self.selected)
    }

    /// Takes a key; says what is to be done.
    pub(super) fn on_key(&mut self, key: Key) -> Option<Request> {
        match key {
            Key::Ctrl('c') => return Some(Request::Interrupt),
            Key::Ctrl('z') => return Some(Request::Suspend),
            Key::Ctrl('l') => return Some(Request::Redraw),
            _ => {}
        }
        let request = match self.mode.clone() {
            Mode::Browse => self.browse(key),
            Mode::Help => {
                self.mode = Mode::Browse; // Any key closes it.
                None
            }
            Mode::Filter { before } => {
                self.type_filter(key, before);
                None
            }
            Mode::Share { client, name, text } => self.type_share(key, client, name, text),
        };
        self.keep_selection();
        request
    }

    fn browse(&mut self, key: Key) -> Option<Request> {
        self.notice = None;
        match key {
            Key::Char('q') => return Some(Request::Quit),
            Key::Escape => self.filter.clear(),
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Up | Key::Char('k') => self.move_by(-1),
            Key::Down | Key::Char('j') => self.move_by(1),
            Key::PageUp => self.move_by(-(PAGE as isize)),
            Key::PageDown => self.move_by(PAGE as isize),
            Key::Home | Key::Char('g') => self.move_by(isize::MIN),
            Key::End | Key::Char('G') => self.move_by(isize::MAX),
            Key::Left | Key::Char('<') => self.sort_by(self.sort.step(-1)),
            Key::Right | Key::Char('>') => self.sort_by(self.sort.step(1)),
            Key::Char('r') => self.descending = !self.descending,
            Key::Char('/') => self.mode = Mode::Filter { before: self.filter.clone() },
            Key::Enter => self.details = !self.details,
            Key::Char(' ') => {
                self.frozen = !self.frozen;
                return Some(Request::Freeze(self.frozen));
            }
            Key::Char('+' | '=') => return self.change_share(1),
            Key::Char('-') => return self.change_share(-1),
            Key::Char('p') => return self.toggle_pause(),
            Key::Char('s') => {
                if let Some(client) = self.changeable() {
                    let (client, name) = (client.id, client.name.clone());
                    self.mode = Mode::Share { client, name, text: String::new() };
                }
            }
            _ => {}
        }
        None
    }

    /// The chosen client, if something can be changed about it; else the user is told.
    fn changeable(&mut self) -> Option<&Client> {
        let why = match self.chosen() {
            None => "no client is chosen",
            Some(client) if client.state == State::Left => "it has left",
            Some(_) => return self.chosen(),
        };
        self.notice = Some(Notice::Trouble(why.into()));
        None
    }

    fn change_share(&mut self, by: i64) -> Option<Request> {
        let client = self.changeable()?;
        let share = client.share.saturating_add_signed(by);
        if !(1..=SHARE_MAX).contains(&share) {
            let text = format!("a share is a whole number from 1 to {SHARE_MAX}");
            self.notice = Some(Notice::Trouble(text));
            return None;
        }
        Some(Request::Change { client: client.id, change: Change::Share(share) })
    }

    fn toggle_pause(&mut self) -> Option<Request> {
        let client = self.changeable()?;
        let change = Change::Pause(client.state != State::Paused);
        Some(Request::Change { client: client.id, change })
    }

    fn type_filter(&mut self, key: Key, before: String) {
        match key {
            Key::Enter => self.mode = Mode::Browse,
            Key::Escape => {
                self.filter = before;
                self.mode = Mode::Browse;
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Ctrl('u') => self.filter.clear(),
            Key::Char(c) => self.filter.push(c),
            _ => {}
        }
    }

    fn type_share(&mut self, key: Key, client: u32, name: String, mut text: String) -> Option<Request> {
        match key {
            Key::Escape => {
                self.mode = Mode::Browse;
                return None;
            }
            Key::Enter => {
                self.mode = Mode::Browse;
                return match text.parse() {
                    Ok(share @ 1..=SHARE_MAX) => {
                        Some(Request::Change { client, change: Change::Share(share) })
                    }
                    _ if text.is_empty() => None,
                    _ => {
                        let text = format!("{text}: a share is a whole number from 1 to {SHARE_MAX}");
                        self.notice = Some(Notice::Trouble(text));
                        None
                    }
                };
            }
            Key::Backspace => drop(text.pop()),
            Key::Ctrl('u') => text.clear(),
            // A minus is seen, and refused.
            Key::Char(c @ ('0'..='9' | '-')) if text.len() < 10 => text.push(c),
            _ => {}
        }
        self.mode = Mode::Share { client, name, text };
        None
    }

    fn sort_by(&mut self, column: Column) {
        (self.sort, self.descending) = (column, column.descends());
    }

    fn move_by(&mut self, by: isize) {
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else { return };
        let at = rows.iter().position(|c| Some(c.id) == self.selected).unwrap_or(0);
        self.selected = Some(rows[at.saturating_add_signed(by).min(last)].id);
    }

    /// Where the chosen client is not shown any more, the first is chosen.
    fn keep_selection(&mut self) {
        let rows = self.rows();
        if !rows.iter().any(|c| Some(c.id) == self.selected) {
            self.selected = rows.first().map(|c| c.id);
        }
    }
}
