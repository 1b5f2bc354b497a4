//! A recorded trace, played in the time that it took.

use std::path::Path;

use divvy_engine::{Divergence, Playback, Trace, TraceHeader, TraceLine, TraceReader};
use divvy_policy::{ClientId, CpuLimit, Instant, Nanos};

use super::source::{Change, Client, Cycles, Own, SNAPSHOT_VERSION, Snapshot, Source};
use crate::{Failure, trace_file};

/// A trace and a place in it.
pub(super) struct Replay {
    name: String,
    header: TraceHeader,
    lines: Vec<TraceLine>,
    /// Lines that were played.
    played: usize,
    playback: Playback,
    own: Own,
    /// Nanoseconds of the trace for a thousand of ours.
    speed_permille: u64,
    begin: Nanos,
}

impl Replay {
    /// Reads a trace, to be played from `begin` on, `speed_permille` thousandths as fast as it was.
    ///
    /// # Errors
    /// [`Failure`] with [`Code::File`] for a file that is no trace.
    pub(super) fn open(path: &Path, begin: Nanos, speed_permille: u64) -> Result<Self, Failure> {
        let bad = |e: Divergence| trace_file::unusable(path, &e);
        let (header, lines) = trace_file::with_lines(path, |lines| read(lines))?.map_err(bad)?;
        let playback = Playback::new(&header);
        let name = format!("trace {}", path.display());
        Ok(Self { name, header, lines, played: 0, playback, own: Own::default(), speed_permille, begin })
    }

    /// How long the trace is.
    pub(super) fn length(&self) -> Nanos {
        let ends = self.lines.first().zip(self.lines.last());
        ends.map_or(Nanos::ZERO, |(first, last)| Instant(last.t).since(Instant(first.t)))
    }

    /// Plays up to `place`, from the beginning if it is past that.
    fn play(&mut self, place: Nanos) {
        let Some(start) = self.lines.first().map(|line| Instant(line.t)) else { return };
        let until = start + place;
        if until < self.playback.now() {
            (self.played, self.playback, self.own) = (0, Playback::new(&self.header), Own::default());
        }
        while let Some(line) = self.lines.get(self.played).filter(|line| line.t <= until.0) {
            match line.what {
                // It asked until there was nothing more: once for each time that it woke.
                Trace::Idle => self.own.wakeups += 1,
                Trace::Measure { .. } | Trace::Observe { .. } => self.own.reads += 1,
                Trace::Release { .. } | Trace::Hold { .. } | Trace::Behind { .. } => self.own.signals += 1,
                _ => {}
            }
            // Every line was tried when the file was read.
            let _ = self.playback.apply(line);
            self.played += 1;
        }
    }

    fn clients(&self) -> Vec<Client> {
        let ledger = self.playback.ledger();
        let standings = ledger.standings(|_, c| c.present, |_, c| c.service);
        let shares = ledger.clients().iter().filter(|c| c.present).map(|c| c.share.get()).sum();
        let measured = standings.iter().any(|standing| standing.achieved_fraction > 0.0);
        let rows = ledger.clients().iter().zip(standings).enumerate();
        rows.map(|(i, (account, standing))| {
            let client = ClientId(i as u32);
            Client {
                id: client.0,
                name: self.playback.name(client),
                order: i,
                beside: shares,
                measured,
                share: account.share.get(),
                limit_ppm: account.limit.map(CpuLimit::ppm),
                effective_share: standing.effective_share,
                requested_fraction: standing.requested_fraction,
                effective_fraction: standing.effective_fraction,
                achieved_fraction: standing.achieved_fraction,
                relative_error: standing.relative_error,
                service_ns: account.service.0,
                state: self.playback.state(client),
                width: account.width,
                ..Client::default()
            }
        })
        .collect()
    }
}

/// Reads and tries every line.
fn read(lines: &mut dyn Iterator<Item = String>) -> Result<(TraceHeader, Vec<TraceLine>), Divergence> {
    let reader = TraceReader::new(lines)?;
    let header = reader.header().clone();
    let mut playback = Playback::new(&header);
    let mut kept = Vec::new();
    for read in reader {
        match read {
            Err(Divergence::CutOff { .. }) => break,
            read => {
                let (line, read) = read?;
                let tried = playback.apply(&read);
                tried.map_err(|e| Divergence::Line { line, why: e.to_string() })?;
                kept.push(read);
            }
        }
    }
    Ok((header, kept))
}

impl Source for Replay {
    fn snapshot(&mut self, elapsed: Nanos) -> Result<Snapshot, String> {
        let played = u128::from(elapsed.0) * u128::from(self.speed_permille) / 1000;
        let place = self.begin + Nanos(u64::try_from(played).unwrap_or(u64::MAX));
        self.play(place);
        let errors = self.playback.ledger().cycles();
        let cycles = errors.errors().map(|e| Cycles {
            count: errors.counted(),
            median: e.median,
            mean: e.mean,
            max: e.max,
        });
        Ok(Snapshot {
            version: SNAPSHOT_VERSION,
            source: self.name.clone(),
            policy: self.header.gate.policy.clone(),
            quantum_ns: self.header.gate.quantum_ns,
            cpus: self.header.gate.cpus,
            now_ns: place.0.min(self.length().0),
            ended: self.played == self.lines.len(),
            cycles,
            own: self.own,
            clients: self.clients(),
        })
    }

    fn change(&mut self, _: u32, _: Change) -> Result<String, String> {
        Err("this is a recording: without --replay, divvy top changes what runs now".into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::State;
    use super::*;

    const TRACE: &str = r#"{"divvy_trace":2,"gate":{"policy":"exact","quantum_ns":10000000,"cpus":1,"scale_shares":true,"presence":1,"period_ns":1000000000},"clients":["a","b"]}
{"t":1000,"e":"join","c":0,"share":1}
{"t":1000,"e":"join","c":1,"share":3}
{"t":2000,"e":"release","c":0,"cpu":0}
{"t":5000,"e":"charge","c":0,"ns":3000}
{"t":5000,"e":"hold","c":0}
{"t":5000,"e":"release","c":1,"cpu":0}
{"t":5000,"e":"idle"}
{"t":14000,"e":"charge","c":1,"ns":9000}
{"t":14000,"e":"leave","c":1}
{"t":14000,"e":"idle"}
"#;

    fn replay(begin: u64, speed_permille: u64) -> Replay {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        std::fs::write(&path, TRACE).unwrap();
        Replay::open(&path, Nanos(begin), speed_permille).unwrap_or_else(|e| panic!("{}", e.text))
    }

    #[test]
    fn a_trace_is_played_as_far_as_time_has_passed() {
        let mut replay = replay(0, 2000);
        let first = replay.snapshot(Nanos(0)).unwrap();
        assert_eq!(first.clients.len(), 2);
        assert_eq!((first.clients[0].state, first.clients[0].requested_fraction), (State::Held, 0.25));
        assert_eq!(first.clients[0].relative_error, 0.0);
        // Twice as fast: 4.5 us into the trace.
        let later = replay.snapshot(Nanos(2250)).unwrap();
        assert_eq!((later.clients[0].service_ns, later.clients[1].state), (3000, State::Running));
        assert_eq!((later.clients[0].achieved_fraction, later.ended, later.now_ns), (1.0, false, 4500));
        assert_eq!(later.own, Own { cpu_ns: None, wakeups: 1, reads: 0, signals: 3 });
        let last = replay.snapshot(Nanos::from_secs(9)).unwrap();
        assert_eq!((last.ended, last.now_ns, last.clients[1].state), (true, 13_000, State::Left));
        assert_eq!(last.clients[1].requested_fraction, 0.0);
        // And back.
        assert_eq!(replay.snapshot(Nanos(0)).unwrap(), first);
    }

    #[test]
    fn a_recording_cannot_be_changed() {
        assert!(replay(0, 1000).change(0, Change::Share(2)).unwrap_err().contains("--replay"));
    }

    #[test]
    fn playing_may_begin_in_the_middle() {
        let mut replay = replay(5_000, 1000);
        assert_eq!(replay.snapshot(Nanos(0)).unwrap().clients[0].service_ns, 3000);
    }
}
