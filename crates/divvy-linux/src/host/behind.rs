//! Clients that have what the others leave: held by `cpu.idle` instead of signals while somebody sleeps now and then.
//!
//! Where all compute, whoever is held stands suspended: hand-overs are exact to some 20 us, and nothing is left over that it could
//! have. Beside a client that sleeps now and then that leaves the CPU idle in each of its naps, until somebody has noticed and
//! resumed another, who is in the way when it wakes. So from then on, where clients have cgroups of the cpu controller,
//! whoever is to be held is put behind all others instead (`cpu.idle`, Linux 5.15): the kernel gives it the CPU when nobody else
//! wants it, and takes it back at once. What it has so is charged. The kernel does not put it behind at once, though: at the
//! next tick, or when somebody wakes. So as soon as nobody was seen to sleep for a while signals hold again.

use divvy_engine::News;
use divvy_policy::{ClientId, Instant, Nanos};

use super::{Condition, LinuxHost};
use crate::members::Look;
use crate::{Result, clock};

/// Nobody was seen asleep for this long: all compute.
const SPAN: Nanos = Nanos::from_secs(2);
/// Who is seen asleep soon after signals held again has them used no more for longer, up to this.
const SPAN_MAX: Nanos = Nanos::from_secs(60);

/// Of several threads some sleep as they begin: on several CPUs so many looks within [`FEW_WITHIN`] tell that a client uses fewer
/// than it has threads for.
const FEW_LOOKS: u32 = 8;
const FEW_WITHIN: Nanos = Nanos::from_secs(1);

/// Whether, and how long, clients are put behind others instead of being suspended.
#[derive(Debug, Default)]
pub(super) struct Rests {
    until: Option<Instant>,
    span: Nanos,
    ended: Instant,
    /// Looks that found a client to use fewer CPUs than it has threads for, and when the first of them was.
    few: (u32, Instant),
}

impl Rests {
    /// A client of several threads uses fewer CPUs than there are. Says whether that was found often enough.
    pub(super) fn seen_few(&mut self, now: Instant) -> bool {
        if now.since(self.few.1) > FEW_WITHIN {
            self.few = (0, now);
        }
        self.few.0 += 1;
        self.few.0 >= FEW_LOOKS
    }

    /// Somebody was seen asleep; says whether that is news.
    fn seen(&mut self, now: Instant, lasting: bool) -> bool {
        let anew = self.until.is_none();
        if anew {
            let soon = self.ended > Instant::ZERO && now.since(self.ended) < SPAN;
            self.span = if soon { Nanos((2 * self.span.0).min(SPAN_MAX.0)) } else { SPAN };
        }
        if lasting {
            self.span = SPAN_MAX;
        }
        self.until = Some(now + self.span);
        anew
    }

    pub(super) fn are_on(&self) -> bool {
        self.until.is_some()
    }

    /// Whether nobody was seen asleep for long enough, which is told once.
    fn are_over(&mut self, now: Instant) -> bool {
        let over = self.until.is_some_and(|until| until <= now);
        if over {
            (self.until, self.ended) = (None, now);
        }
        over
    }
}

impl LinuxHost {
    /// Whether client `i` is to be put behind others rather than suspended.
    pub(super) fn gives_way(&self, i: usize) -> bool {
        let can = |c: &super::Client| !c.is_gone() && c.leaf.as_ref().is_some_and(|leaf| leaf.gives_way());
        self.rests.are_on() && self.clients.get(i).is_some_and(can)
    }

    /// Released client `i` was seen asleep, or (`lasting`) to use fewer CPUs than it has threads for time and again. Says whether those who are held have what it leaves.
    pub(super) fn note_rest(&mut self, i: usize, now: Instant, lasting: bool) -> bool {
        if !self.clients[i].leaf.as_ref().is_some_and(|leaf| leaf.gives_way()) {
            return false;
        }
        if self.rests.seen(now, lasting) {
            for client in self.held_by_signals() {
                self.end_keenness(client.index());
                // What cannot be done now is done when it is held the next time.
                let _ = self.put_behind(client.index());
            }
            self.end_keenness(i);
        }
        true
    }

    /// Has clients held by signals again once all have computed for a while.
    pub(super) fn end_rests_if_due(&mut self, now: Instant) {
        if !self.rests.are_over(now) {
            return;
        }
        let behind = |c: &super::Client| c.condition == Condition::Behind;
        for client in self.clients.with_ids().filter(|(_, c)| behind(c)).map(|(id, _)| id).collect::<Vec<_>>()
        {
            if let Err((_, e)) = self.hold_client(client.index()) {
                self.news.push_back(News::Failed(client, e));
            }
        }
    }

    /// Those that stand because others come first: who was paused stands on.
    fn held_by_signals(&self) -> Vec<ClientId> {
        let held = self.clients.with_ids().filter(|(_, c)| c.stops() && c.waits && !c.is_gone());
        held.map(|(client, _)| client).collect()
    }

    /// Lets client `i` have what the others leave.
    pub(super) fn put_behind(&mut self, i: usize) -> Result<()> {
        let c = &mut self.clients[i];
        let stopped = c.stops();
        let Some(leaf) = &c.leaf else { return Ok(()) };
        leaf.put_behind(true)?;
        self.tally.signals += 1;
        c.condition = Condition::Behind;
        c.audited = None;
        if stopped {
            let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), false);
            c.members.resume(look)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(Nanos::from_millis(1_000_000 + ms).0)
    }

    #[test]
    fn who_is_seen_asleep_anew_is_believed_for_longer() {
        let mut rests = Rests::default();
        assert!(!rests.are_on() && !rests.are_over(at(0)));
        assert!(rests.seen(at(0), false), "it is news");
        assert!(!rests.seen(at(500), false), "it is none any more");
        assert!(rests.are_on() && !rests.are_over(at(2_499)));
        assert!(rests.are_over(at(2_500)) && !rests.are_on() && !rests.are_over(at(2_501)));
        // Seen again at once: twice as long. After a while of computing: as at first.
        assert!(rests.seen(at(2_600), false) && !rests.are_over(at(6_599)) && rests.are_over(at(6_600)));
        assert!(rests.seen(at(9_000), false) && rests.are_over(at(11_000)));
        let mut end = 11_000;
        for _ in 0..20 {
            assert!(rests.seen(at(end), false));
            let span = rests.span.0 / 1_000_000;
            assert!(!rests.are_over(at(end + span - 1)) && rests.are_over(at(end + span)));
            end += span;
        }
        assert_eq!(rests.span, SPAN_MAX);
    }

    #[test]
    fn threads_that_rest_once_are_no_news() {
        let mut rests = Rests::default();
        let mut seen = |ms: std::ops::Range<u64>| ms.fold(false, |_, ms| rests.seen_few(at(ms)));
        assert!(!seen(0..7));
        assert!(!seen(1_500..1_507), "that was long ago");
        assert!(seen(1_507..1_508), "the eighth within a second");
    }
}
