//! What happened to clients lately, for whoever draws it.
//!
//! The engine's recorder sees every event and decision; what a client's state follows from is kept in a ring.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use divvy_engine::{Recorder, Trace, TraceLine};
use divvy_policy::{ClientId, Instant};

use divvy_api::types::{Event, Events, Happening};

/// Events that are kept.
const KEPT: usize = 65_536;
/// Events in one answer at most.
const ANSWERED: usize = 8_192;

#[derive(Debug, Default)]
struct Ring {
    next: u64,
    events: VecDeque<Event>,
    /// What the policy decides about these is not done.
    paused: BTreeSet<u32>,
    /// Who was seen asleep (true) or awake, for the market; `None` where there is none.
    seen: Option<Vec<(ClientId, bool)>>,
}

impl Ring {
    fn push(&mut self, t_ns: u64, client: u32, what: Happening) {
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(Event { seq: self.next, t_ns, client, what });
        self.next += 1;
    }
}

/// The last events. Clones are of the same ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Rc<RefCell<Ring>>);

impl Log {
    /// Says that a client is paused, or not any more.
    pub(super) fn pause(&self, now: Instant, client: ClientId, paused: bool) {
        let mut ring = self.0.borrow_mut();
        let changed = if paused { ring.paused.insert(client.0) } else { ring.paused.remove(&client.0) };
        if changed {
            ring.push(now.0, client.0, if paused { Happening::Paused } else { Happening::Resumed });
        }
    }

    /// From now on, [`take_seen`](Self::take_seen) tells who was seen asleep.
    pub(super) fn keep_seen(&self) {
        self.0.borrow_mut().seen = Some(Vec::new());
    }

    /// Who was seen asleep (true) or awake since this was last asked, in order; paused counts as asleep.
    pub(super) fn take_seen(&self) -> Vec<(ClientId, bool)> {
        self.0.borrow_mut().seen.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Events from number `since` on.
    pub(super) fn since(&self, since: u64, now: Instant) -> Events {
        let ring = self.0.borrow();
        let first = ring.events.front().map_or(ring.next, |e| e.seq);
        let from = since.clamp(first, ring.next);
        let skip = (from - first) as usize;
        let events: Vec<Event> = ring.events.iter().skip(skip).take(ANSWERED).copied().collect();
        Events {
            next: from + events.len() as u64,
            now_ns: now.0,
            lost: first.saturating_sub(since.min(ring.next)),
            events,
        }
    }
}

impl Recorder for Log {
    fn record(&mut self, line: &TraceLine) {
        let (client, what) = match line.what {
            Trace::Join { c, .. } => (c, Happening::Joined),
            Trace::Leave { c } => (c, Happening::Left),
            Trace::Reshare { c, .. } => (c, Happening::Reshared),
            Trace::Release { c, .. } | Trace::Behind { c } => (c, Happening::Released),
            Trace::Hold { c } => (c, Happening::Held),
            Trace::Block { c } => (c, Happening::Asleep),
            Trace::Wake { c } => (c, Happening::Awake),
            _ => return,
        };
        let mut ring = self.0.borrow_mut();
        if let (Some(seen), Happening::Asleep | Happening::Awake) = (&mut ring.seen, what) {
            seen.push((ClientId(client), what == Happening::Asleep));
        }
        let of_policy =
            matches!(what, Happening::Released | Happening::Held | Happening::Asleep | Happening::Awake);
        if of_policy && ring.paused.contains(&client) {
            return;
        }
        if what == Happening::Left {
            ring.paused.remove(&client);
        }
        ring.push(line.t, client, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(log: &Log, t: u64, what: Trace) {
        log.clone().record(&TraceLine { t, what });
    }

    fn whats(events: &Events) -> Vec<Happening> {
        events.events.iter().map(|e| e.what).collect()
    }

    #[test]
    fn numbers_have_no_gaps_and_what_is_forgotten_is_counted() {
        let log = Log::default();
        assert_eq!(log.since(7, Instant(1)), Events { next: 0, now_ns: 1, lost: 0, events: vec![] });
        for i in 0..KEPT as u64 + 10 {
            record(&log, i, Trace::Hold { c: 1 });
        }
        let first = log.since(0, Instant(0));
        assert_eq!((first.lost, first.events.len()), (10, ANSWERED));
        assert_eq!((first.events[0].seq, first.events[0].t_ns), (10, 10));
        let second = log.since(first.next, Instant(0));
        assert_eq!((second.lost, second.events[0].seq), (0, first.next));
        let end = KEPT as u64 + 10;
        let last = log.since(end - 1, Instant(0));
        assert_eq!((last.next, last.events.len(), last.lost), (end, 1, 0));
        assert_eq!(log.since(u64::MAX, Instant(0)).next, end);
    }

    #[test]
    fn what_is_decided_about_a_paused_client_does_not_happen() {
        let log = Log::default();
        record(&log, 0, Trace::Join { c: 3, share: 1 });
        record(&log, 1, Trace::Release { c: 3, cpu: None });
        log.pause(Instant(2), ClientId(3), true);
        log.pause(Instant(2), ClientId(3), true);
        record(&log, 3, Trace::Block { c: 3 });
        record(&log, 4, Trace::Hold { c: 3 });
        record(&log, 4, Trace::Hold { c: 4 });
        record(&log, 5, Trace::Reshare { c: 3, share: 2 });
        log.pause(Instant(6), ClientId(3), false);
        record(&log, 7, Trace::Wake { c: 3 });
        record(&log, 8, Trace::Measure { c: 3 });
        record(&log, 9, Trace::Leave { c: 3 });
        use Happening::{Awake, Held, Joined, Left, Paused, Released, Reshared, Resumed};
        assert_eq!(
            whats(&log.since(0, Instant(9))),
            [Joined, Released, Paused, Held, Reshared, Resumed, Awake, Left]
        );
    }
}
