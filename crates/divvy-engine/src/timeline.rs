//! A trace as the run that it was: what each client had received, and whether it was released, asleep or held, at
//! every line.
//!
//! [`Playback`] keeps the accounts of one moment and is fed line by line; [`Timeline`] is the whole run. Both use the
//! ledger that the live run used, in the same order, so that their numbers are those of its report.

use divvy_policy::{ClientId, CpuLimit, Instant, Nanos, Share, ShareError};

use crate::ledger::Ledger;
use crate::session::ClientState;
use crate::trace::{Divergence, Trace, TraceHeader, TraceLine, TraceReader};

/// Why a line cannot follow those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaybackError {
    /// It speaks of a client that never joined.
    #[error("client {0} has not joined")]
    Unknown(u32),
    /// Clients join in the order of their numbers.
    #[error("client {0} joins out of turn")]
    OutOfTurn(u32),
    /// It speaks of a client that has left.
    #[error("client {0} has left")]
    Left(u32),
    /// Time went back.
    #[error("it is earlier than the line before it")]
    Backwards,
    /// A number that is no share.
    #[error("{0}")]
    Share(#[from] ShareError),
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    released: bool,
    cpu: Option<u32>,
    /// CPU time that is in the ledger already, and will come once more with the next charge.
    audited: Nanos,
}

/// The accounts of a run at one line of its trace.
#[derive(Clone, Debug)]
pub struct Playback {
    header: TraceHeader,
    ledger: Ledger,
    clients: Vec<Seen>,
    start: Option<Instant>,
    now: Instant,
    /// A cycle has ended, but for what is audited at its end.
    ending: bool,
}

impl Playback {
    /// The accounts before the first line.
    #[must_use]
    pub fn new(header: &TraceHeader) -> Self {
        Self {
            header: header.clone(),
            // What names no policy makes no gate either.
            ledger: header.gate.parse().map_or_else(|_| Ledger::new(1), |gate| gate.ledger()),
            clients: Vec::new(),
            start: None,
            now: Instant(0),
            ending: false,
        }
    }

    /// What was run.
    #[must_use]
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// The accounts. Those of a cycle that ended with the last line are complete after [`settle`](Self::settle).
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The moment of the first line.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start.unwrap_or(self.now)
    }

    /// The moment of the last line.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many clients ever joined.
    #[must_use]
    pub fn nr_clients(&self) -> usize {
        self.clients.len()
    }

    /// A client's name: the header's, or its number.
    #[must_use]
    pub fn name(&self, client: ClientId) -> String {
        self.header.clients.get(client.index()).cloned().unwrap_or_else(|| format!("client {}", client.0))
    }

    /// What a client is doing, as far as the policy knows.
    ///
    /// # Panics
    /// If it never joined.
    #[must_use]
    pub fn state(&self, client: ClientId) -> ClientState {
        let account = &self.ledger.clients()[client.index()];
        if !account.present {
            ClientState::Left
        } else if account.blocked {
            ClientState::Asleep
        } else if self.clients[client.index()].released {
            ClientState::Running
        } else {
            ClientState::Held
        }
    }

    /// The CPU that a client was released on, where one was named: its number among those that are divided.
    ///
    /// # Panics
    /// If it never joined.
    #[must_use]
    pub fn cpu(&self, client: ClientId) -> Option<u32> {
        self.clients[client.index()].cpu
    }

    /// Takes the next line; returns the client that it is about, if it is about one.
    ///
    /// # Errors
    /// [`PlaybackError`] if the line cannot follow those before it. Nothing changes then.
    pub fn apply(&mut self, line: &TraceLine) -> Result<Option<ClientId>, PlaybackError> {
        if self.start.is_some() && line.t < self.now.0 {
            return Err(PlaybackError::Backwards);
        }
        let client = match line.what {
            Trace::Join { c, share } => {
                if c as usize != self.clients.len() {
                    return Err(PlaybackError::OutOfTurn(c));
                }
                let share = Share::new(share)?;
                self.settle();
                self.ledger.join(share);
                self.clients.push(Seen::default());
                Some(c)
            }
            Trace::Audit { c, ns } => {
                let i = self.known(c)?;
                self.clients[i].audited += Nanos(ns);
                self.ledger.charge(i, Nanos(ns));
                Some(c)
            }
            Trace::Cycle { .. } => {
                self.settle();
                self.ending = true;
                None
            }
            Trace::Free { .. } | Trace::Idle => {
                self.settle();
                None
            }
            what => self.about_one(what)?,
        };
        self.start.get_or_insert(Instant(line.t));
        self.now = Instant(line.t);
        Ok(client.map(ClientId))
    }

    /// What happened to a client that is there.
    fn about_one(&mut self, what: Trace) -> Result<Option<u32>, PlaybackError> {
        let (Trace::Leave { c }
        | Trace::Reshare { c, .. }
        | Trace::Wake { c }
        | Trace::Block { c }
        | Trace::Charge { c, .. }
        | Trace::Width { c, .. }
        | Trace::Limit { c, .. }
        | Trace::AtLimit { c, .. }
        | Trace::Release { c, .. }
        | Trace::Hold { c }
        | Trace::Behind { c }
        | Trace::Measure { c }
        | Trace::Observe { c }) = what
        else {
            return Ok(None);
        };
        // A policy may decide about a client that has left, for which nothing is done then.
        let decided = matches!(
            what,
            Trace::Release { .. }
                | Trace::Hold { .. }
                | Trace::Behind { .. }
                | Trace::Measure { .. }
                | Trace::Observe { .. }
        );
        let i = match self.known(c) {
            Err(PlaybackError::Left(_)) if decided => c as usize,
            known => known?,
        };
        let share = if let Trace::Reshare { share, .. } = what { Some(Share::new(share)?) } else { None };
        self.settle();
        match what {
            Trace::Leave { .. } => {
                self.ledger.leave(i);
                self.clients[i].released = false;
            }
            Trace::Reshare { .. } => share.into_iter().for_each(|share| self.ledger.reshare(i, share)),
            Trace::Wake { .. } => self.ledger.set_blocked(i, false),
            Trace::Block { .. } => self.ledger.set_blocked(i, true),
            Trace::Charge { ns, .. } => {
                let audited = std::mem::replace(&mut self.clients[i].audited, Nanos::ZERO);
                self.ledger.charge(i, Nanos(ns).saturating_sub(audited));
            }
            Trace::Width { cpus, .. } => self.ledger.widen(i, cpus),
            Trace::Limit { ppm, .. } => self.ledger.set_limit(i, CpuLimit::new(ppm).ok()),
            Trace::AtLimit { held, .. } => self.ledger.set_at_limit(i, held),
            Trace::Release { cpu, .. } => {
                self.clients[i].released = true;
                self.clients[i].cpu = cpu;
            }
            Trace::Behind { .. } => self.clients[i].released = true,
            Trace::Hold { .. } => {
                self.clients[i].released = false;
                self.clients[i].cpu = None;
            }
            _ => {}
        }
        Ok(Some(c))
    }

    /// Ends a cycle whose end was the last line: nothing more is audited in it.
    pub fn settle(&mut self) {
        if std::mem::take(&mut self.ending) {
            self.ledger.end_cycle();
        }
    }

    fn known(&self, c: u32) -> Result<usize, PlaybackError> {
        match self.ledger.clients().get(c as usize) {
            None => Err(PlaybackError::Unknown(c)),
            Some(account) if !account.present => Err(PlaybackError::Left(c)),
            Some(_) => Ok(c as usize),
        }
    }
}

/// A time in which a client's state was one and the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stretch {
    /// Its beginning.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
    /// What the client was doing; never [`ClientState::Left`].
    pub state: ClientState,
    /// Where it was released, if a CPU was named.
    pub cpu: Option<u32>,
}

/// Cuts what clients do into stretches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretches(Vec<Option<Stretch>>);

impl Stretches {
    /// Notes what `client` is doing now; returns the stretch that this ends, if it ends one that has a length.
    pub(crate) fn note(&mut self, playback: &Playback, client: ClientId) -> Option<Stretch> {
        if self.0.len() <= client.index() {
            self.0.resize(client.index() + 1, None);
        }
        let (now, state, cpu) = (playback.now(), playback.state(client), playback.cpu(client));
        let slot = &mut self.0[client.index()];
        if slot.is_some_and(|open| open.state == state && open.cpu == cpu) {
            return None;
        }
        let open = (state != ClientState::Left).then_some(Stretch { from: now, to: now, state, cpu });
        let ended = std::mem::replace(slot, open)?;
        (ended.from < now).then_some(Stretch { to: now, ..ended })
    }

    /// The stretches that are open at `end`.
    pub(crate) fn finish(self, end: Instant) -> impl Iterator<Item = (ClientId, Stretch)> {
        let open = self.0.into_iter().enumerate().filter_map(|(i, open)| Some((ClientId(i as u32), open?)));
        open.filter(move |(_, open)| open.from < end)
            .map(move |(client, open)| (client, Stretch { to: end, ..open }))
    }
}

/// One client of a [`Timeline`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClientTimeline {
    /// Its name, or its number.
    pub name: String,
    /// The share that it had last.
    pub share: Share,
    /// The limit that it had last.
    pub limit: Option<CpuLimit>,
    /// CPUs that it could use at once, in the end.
    pub width: u32,
    /// Its effective share as a fraction of those of all clients that ever were.
    pub target: f64,
    /// CPU time received, each time it was charged: when, and the sum.
    pub service: Vec<(Instant, Nanos)>,
    /// What it did, without gaps from its joining to its leaving.
    pub stretches: Vec<Stretch>,
}

impl ClientTimeline {
    /// CPU time received in all.
    #[must_use]
    pub fn total(&self) -> Nanos {
        self.service.last().map_or(Nanos::ZERO, |&(_, sum)| sum)
    }

    /// CPU time received by `at`, as far as was known then. Cost: O(log n).
    #[must_use]
    pub fn received_by(&self, at: Instant) -> Nanos {
        let nr = self.service.partition_point(|&(t, _)| t <= at);
        nr.checked_sub(1).map_or(Nanos::ZERO, |last| self.service[last].1)
    }

    /// The part of the time from `from` to `to` that it spent in `state`: 0 to 1, 0 of no time. Cost: O(log n), and O(1)
    /// for each stretch in it.
    #[must_use]
    pub fn part_in(&self, state: ClientState, from: Instant, to: Instant) -> f64 {
        let first = self.stretches.partition_point(|s| s.to <= from);
        let there = self.stretches[first..].iter().take_while(|s| s.from < to).filter(|s| s.state == state);
        let ns: u64 = there.map(|s| s.to.min(to).since(s.from.max(from)).0).sum();
        if to > from { ns as f64 / to.since(from).0 as f64 } else { 0.0 }
    }
}

/// The end of a cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct CycleEnd {
    /// When it ended.
    pub at: Instant,
    /// Its error, a fraction (see [`Ledger`]); `None` for one that does not count.
    pub error: Option<f64>,
}

/// A whole run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeline {
    /// What was run.
    pub header: TraceHeader,
    /// The moment of the first line.
    pub start: Instant,
    /// The moment of the last line.
    pub end: Instant,
    /// The clients, by id.
    pub clients: Vec<ClientTimeline>,
    /// The cycles that ended, in order.
    pub cycles: Vec<CycleEnd>,
    /// The accounts at the end.
    pub ledger: Ledger,
    /// The last line was incomplete, and was left out.
    pub cut_off: bool,
}

impl Timeline {
    /// Reads a whole trace. Memory: about 24 bytes for each charge and each change of a state.
    ///
    /// # Errors
    /// [`Divergence`] where a line cannot be read or cannot follow those before it. A last line that breaks off is no
    /// error: whoever wrote it was killed, and [`cut_off`](Self::cut_off) says so.
    pub fn read(lines: impl Iterator<Item = String>) -> Result<Self, Divergence> {
        let reader = TraceReader::new(lines)?;
        let mut playback = Playback::new(reader.header());
        let mut open = Stretches::default();
        let mut service: Vec<Vec<(Instant, Nanos)>> = Vec::new();
        let mut stretches: Vec<Vec<Stretch>> = Vec::new();
        let mut cycles: Vec<CycleEnd> = Vec::new();
        let mut counted = 0;
        let mut cut_off = false;
        for read in reader {
            let (line, read) = match read {
                Err(Divergence::CutOff { .. }) => {
                    cut_off = true;
                    break;
                }
                read => read?,
            };
            let about = playback.apply(&read);
            let about = about.map_err(|e| Divergence::Line { line, why: e.to_string() })?;
            // A cycle's error is known once what is audited at its end was entered.
            if playback.ledger().cycles().counted() > counted {
                counted = playback.ledger().cycles().counted();
                if let Some(cycle) = cycles.last_mut() {
                    cycle.error = playback.ledger().cycles().last();
                }
            }
            if matches!(read.what, Trace::Cycle { .. }) {
                cycles.push(CycleEnd { at: playback.now(), error: None });
            }
            let Some(client) = about else { continue };
            service.resize_with(playback.nr_clients(), Vec::new);
            stretches.resize_with(playback.nr_clients(), Vec::new);
            stretches[client.index()].extend(open.note(&playback, client));
            let sum = playback.ledger().clients()[client.index()].service;
            let service = &mut service[client.index()];
            if service.last().map_or(Nanos::ZERO, |&(_, sum)| sum) != sum {
                service.push((playback.now(), sum));
            }
        }
        playback.settle();
        if playback.ledger().cycles().counted() > counted
            && let Some(cycle) = cycles.last_mut()
        {
            cycle.error = playback.ledger().cycles().last();
        }
        for (client, stretch) in open.finish(playback.now()) {
            stretches[client.index()].push(stretch);
        }
        let targets = playback.ledger().effective(|_| true);
        let accounts = playback.ledger().clients().iter().zip(targets);
        let clients = accounts.zip(service.into_iter().zip(stretches)).enumerate();
        let clients = clients.map(|(i, ((account, target), (service, stretches)))| ClientTimeline {
            name: playback.name(ClientId(i as u32)),
            share: account.share,
            limit: account.limit,
            width: account.width,
            target,
            service,
            stretches,
        });
        Ok(Self {
            header: playback.header.clone(),
            start: playback.start(),
            end: playback.now(),
            clients: clients.collect(),
            cycles,
            ledger: playback.ledger,
            cut_off,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::GateSpec;

    fn trace(lines: &[&str]) -> impl Iterator<Item = String> {
        let header = TraceHeader {
            divvy_trace: crate::TRACE_VERSION,
            gate: GateSpec::default(),
            clients: vec!["a".into()],
        };
        let header = serde_json::to_string(&header).unwrap();
        std::iter::once(header)
            .chain(lines.iter().map(|line| (*line).to_owned()))
            .collect::<Vec<_>>()
            .into_iter()
    }

    const TWO: [&str; 2] =
        [r#"{"t":100,"e":"join","c":0,"share":1}"#, r#"{"t":100,"e":"join","c":1,"share":3}"#];

    fn read(lines: &[&str]) -> Timeline {
        Timeline::read(trace(&[&TWO, lines].concat())).unwrap()
    }

    fn error(lines: &[&str]) -> String {
        Timeline::read(trace(lines)).unwrap_err().to_string()
    }

    #[test]
    fn states_follow_each_other_without_gaps() {
        let run = read(&[
            r#"{"t":110,"e":"release","c":0,"cpu":0}"#,
            r#"{"t":130,"e":"block","c":0}"#,
            r#"{"t":160,"e":"wake","c":0}"#,
            r#"{"t":170,"e":"hold","c":0}"#,
            r#"{"t":170,"e":"release","c":1,"cpu":0}"#,
            r#"{"t":190,"e":"leave","c":0}"#,
            r#"{"t":200,"e":"idle"}"#,
        ]);
        let stretch = |from, to, state, cpu| Stretch { from: Instant(from), to: Instant(to), state, cpu };
        use ClientState::{Asleep, Held, Running};
        assert_eq!(
            run.clients[0].stretches,
            [
                stretch(100, 110, Held, None),
                stretch(110, 130, Running, Some(0)),
                stretch(130, 160, Asleep, Some(0)),
                stretch(160, 170, Running, Some(0)),
                stretch(170, 190, Held, None),
            ]
        );
        assert_eq!(
            run.clients[1].stretches,
            [stretch(100, 170, Held, None), stretch(170, 200, Running, Some(0))]
        );
        assert_eq!((run.start, run.end), (Instant(100), Instant(200)));
        assert_eq!((run.clients[0].name.as_str(), run.clients[1].name.as_str()), ("a", "client 1"));
        // 20 + 10 of the 60 ns from 110 to 170.
        assert!((run.clients[0].part_in(Running, Instant(110), Instant(170)) - 0.5).abs() < 1e-12);
        assert_eq!(run.clients[0].part_in(Running, Instant(200), Instant(300)), 0.0);
    }

    /// What was audited comes once more with the next charge, and counts once.
    #[test]
    fn audits_are_not_counted_twice() {
        let run = read(&[
            r#"{"t":110,"e":"charge","c":0,"ns":40}"#,
            r#"{"t":120,"e":"cycle","n":1}"#,
            r#"{"t":120,"e":"audit","c":0,"ns":5}"#,
            r#"{"t":130,"e":"charge","c":0,"ns":25}"#,
            r#"{"t":140,"e":"audit","c":0,"ns":7}"#,
        ]);
        let sums: Vec<(u64, u64)> = run.clients[0].service.iter().map(|(t, sum)| (t.0, sum.0)).collect();
        assert_eq!(sums, [(110, 40), (120, 45), (130, 65), (140, 72)]);
        assert_eq!(run.clients[0].total(), Nanos(72));
        assert_eq!(run.clients[0].received_by(Instant(129)), Nanos(45));
        assert_eq!(run.clients[0].received_by(Instant(109)), Nanos::ZERO);
        assert_eq!(run.ledger.clients()[0].service, Nanos(72));
    }

    /// Due 100 and 300 of 400. What is audited at a cycle's end belongs to that cycle.
    #[test]
    fn errors_are_of_the_cycle_that_ended() {
        let mut lines = Vec::new();
        for cycle in 1..=5u64 {
            let t = 100 + cycle * 400;
            lines.push(format!(r#"{{"t":{t},"e":"charge","c":0,"ns":110}}"#));
            lines.push(format!(
                r#"{{"t":{t},"e":"charge","c":1,"ns":{}}}"#,
                if cycle == 1 { 280 } else { 290 }
            ));
            lines.push(format!(r#"{{"t":{t},"e":"cycle","n":{cycle}}}"#));
            lines.push(format!(r#"{{"t":{t},"e":"audit","c":1,"ns":10}}"#));
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let run = read(&lines);
        // Errors +10 % and -3.3 %; the first four cycles do not count, and the last is complete with the trace's end.
        let expected = ((0.01 + (10f64 / 300.0).powi(2)) / 2.0).sqrt();
        let errors: Vec<Option<f64>> = run.cycles.iter().map(|c| c.error).collect();
        assert_eq!(errors[..4], [None; 4]);
        assert!((errors[4].unwrap() - expected).abs() < 1e-6, "{errors:?}");
        assert_eq!(run.cycles[4].at, Instant(2100));
    }

    #[test]
    fn lines_that_cannot_be_are_named() {
        let [a, b] = TWO;
        assert_eq!(error(&[b]), "line 2: client 1 joins out of turn");
        assert_eq!(error(&[a, r#"{"t":100,"e":"hold","c":7}"#]), "line 3: client 7 has not joined");
        assert_eq!(error(&[a, r#"{"t":99,"e":"idle"}"#]), "line 3: it is earlier than the line before it");
        let gone = r#"{"t":100,"e":"leave","c":0}"#;
        assert_eq!(error(&[a, gone, r#"{"t":100,"e":"charge","c":0,"ns":1}"#]), "line 4: client 0 has left");
        assert!(Timeline::read(trace(&[a, gone, r#"{"t":100,"e":"hold","c":0}"#])).is_ok());
        assert!(error(&[a, r#"{"t":100,"e":"reshare","c":0,"share":0}"#]).starts_with("line 3: "));
        assert!(error(&[a, "{", a]).starts_with("line 3: EOF"), "{}", error(&[a, "{", a]));
        assert_eq!(Timeline::read(std::iter::empty()).unwrap_err().to_string(), "line 1: the trace is empty");
    }

    #[test]
    fn a_trace_that_breaks_off_is_read_up_to_there() {
        let [a, b] = TWO;
        let run = Timeline::read(trace(&[a, b, r#"{"t":150,"e":"#])).unwrap();
        assert!(run.cut_off && run.clients.len() == 2);
        assert!(!read(&[]).cut_off);
        let error = crate::replay(trace(&[a, r#"{"t":150,"e":"#])).unwrap_err();
        assert_eq!(error.to_string(), "line 3: the trace ends in the middle of it");
    }
}
