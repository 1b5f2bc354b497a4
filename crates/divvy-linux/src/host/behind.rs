//! Clients that have what the others leave: held by `cpu.idle` instead of signals while only those run that sleep now and then.
//!
//! Beside a client that computes whoever is held stands suspended: hand-overs are exact to some 20 us, and nothing is left over that it
//! could have. Beside one that sleeps now and then that leaves the CPU idle in each of its naps, until somebody has noticed and
//! resumed another, who is in the way when it wakes. So, where clients have cgroups of the cpu controller, one that computes
//! is put behind all others instead then (`cpu.idle`, Linux 5.15): the kernel gives it the CPU when nobody else
//! wants it, and takes it back at once. What it has so is charged. The kernel does not put behind at once who runs, though: at the
//! next tick, or when somebody wakes. So beside one that computes signals hold the others that do, and those that sleep now and then, of whom
//! little is to be seen in a tick, are put behind.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use divvy_engine::HostError;
use divvy_engine::News;
use divvy_policy::{ClientId, Instant, Nanos};

use super::switches::Switch;
use super::{Client, Condition, LinuxHost, host_error};
use crate::members::Look;
use crate::{Result, clock};

/// Who was not seen asleep for this long computes.
const SPAN: Nanos = Nanos::from_secs(2);
/// Who is seen asleep soon after it counted as computing again is believed to sleep now and then for longer, up to this.
const SPAN_MAX: Nanos = Nanos::from_secs(60);

/// Of several threads some sleep as they begin: on several CPUs so many looks within [`FEW_WITHIN`] tell that a client uses fewer
/// than it has threads for.
const FEW_LOOKS: u32 = 8;
const FEW_WITHIN: Nanos = Nanos::from_secs(1);

/// A client that was found with several threads awake in so many looks, more than with one, is one of several threads. A shell is awake
/// with its child for moments only.
const WIDE_LOOKS: u32 = 8;

/// Whether a client sleeps now and then.
#[derive(Debug, Default)]
pub(super) struct Rest {
    until: Option<Instant>,
    span: Nanos,
    ended: Instant,
    /// Looks that found it to use fewer CPUs than it has threads for, and when the first of them was.
    few: (u32, Instant),
    /// The kernel limits it: it has to rest whatever it wants.
    limited: bool,
    /// Of the last looks that found it awake, how many more found several of its threads so than one: up to [`WIDE_LOOKS`].
    several: u32,
}

impl Rest {
    /// A client of several threads uses fewer CPUs than there are. Says whether that was found often enough.
    pub(super) fn seen_few(&mut self, now: Instant) -> bool {
        if now.since(self.few.1) > FEW_WITHIN {
            self.few = (0, now);
        }
        self.few.0 += 1;
        self.few.0 >= FEW_LOOKS
    }

    /// Several of its threads were found awake, or one. Says whether it is a client of several threads, where that is clear.
    fn seen_wide(&mut self, several: bool) -> Option<bool> {
        self.several =
            if several { (self.several + 1).min(WIDE_LOOKS) } else { self.several.saturating_sub(1) };
        match self.several {
            0 => Some(false),
            WIDE_LOOKS => Some(true),
            _ => None,
        }
    }

    /// It was seen asleep; says whether that is news.
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

    /// Whether it sleeps now and then.
    fn is_on(&self) -> bool {
        self.limited || self.until.is_some()
    }

    /// Whether it was not seen asleep for long enough, which is told once.
    fn is_over(&mut self, now: Instant) -> bool {
        let over = self.until.is_some_and(|until| until <= now);
        if over {
            (self.until, self.ended) = (None, now);
        }
        over
    }
}

/// Those who sleep now and then, and those of whom it is still open how they are held.
#[derive(Debug, Default)]
pub(super) struct Rests {
    resting: BTreeSet<ClientId>,
    giving: Vec<ClientId>,
    /// Clients of several threads.
    wide: BTreeSet<ClientId>,
    /// On several CPUs: there is at most one client of one thread, and it sleeps now and then.
    few_alone: bool,
}

impl Rests {
    /// Whether anybody sleeps now and then.
    pub(super) fn are_on(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Whether `client` is to be held, and how is not settled yet.
    pub(super) fn is_open(&self, client: ClientId) -> bool {
        self.giving.contains(&client)
    }

    /// Whether anybody is to be held, and how is not settled yet.
    pub(super) fn has_open(&self) -> bool {
        !self.giving.is_empty()
    }

    /// How `client` is held is settled by others.
    pub(super) fn close(&mut self, client: ClientId) {
        self.giving.retain(|of| *of != client);
    }

    /// Nothing is known of `client` any more.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.resting.remove(&client);
        self.wide.remove(&client);
        self.close(client);
    }
}

impl Client {
    fn can_give_way(&self) -> bool {
        !self.is_gone() && self.leaf.as_ref().is_some_and(|leaf| leaf.gives_way())
    }

    /// Whether it uses whatever it is given.
    fn is_steady(&self) -> bool {
        !self.rest.is_on()
    }
}

impl LinuxHost {
    /// Holds client `i` so that it has what the others leave, if these leave anything; says whether that can be.
    pub(super) fn let_give_way(&mut self, i: usize) -> std::result::Result<bool, HostError> {
        let client = ClientId(i as u32);
        if !self.rests.are_on()
            || !self.clients.get(i).is_some_and(Client::can_give_way)
            || !self.fills_gaps(client)
        {
            return Ok(false);
        }
        self.release_if_due(client);
        self.clients[i].waits = true;
        if self.clients[i].condition == Condition::InTurn {
            self.clients[i].condition = Condition::Behind;
        }
        if self.clients[i].is_steady() || self.cpus.len() > 1 {
            if !self.rests.is_open(client) {
                self.rests.giving.push(client); // Who comes instead decides how.
            }
        } else if let Err(e) = self.put_behind(i) {
            let gone = self.awaits_leaf(i, &e) || self.has_lost_leaf(i, &e);
            return if gone { Ok(false) } else { Err(host_error(&e)) };
        }
        Ok(true)
    }

    /// Lets client `i` have what the others leave, in its own turn; says whether that can be.
    pub(super) fn run_in_turn_behind(&mut self, i: usize) -> std::result::Result<bool, HostError> {
        let client = ClientId(i as u32);
        let can = |c: &Client| c.can_give_way() && !c.condition.is_stopped();
        if self.cpus.len() > 1 || !self.clients.get(i).is_some_and(can) {
            return Ok(false);
        }
        self.rests.close(client);
        self.put_off.releasing.retain(|&(of, _)| of != client);
        if !self.clients[i].condition.is_behind()
            && let Err(e) = self.put_behind(i)
        {
            let gone = self.awaits_leaf(i, &e) || self.has_lost_leaf(i, &e);
            return if gone { Ok(false) } else { Err(host_error(&e)) };
        }
        self.clients[i].waits = false;
        self.clients[i].condition = Condition::InTurn;
        Ok(true)
    }

    /// Whether a client that waits shall have what the others leave. On several CPUs only one of several threads, beside at most one
    /// that has one and naps: the kernel puts a new process of that one beside any other that runs, and leaves it waiting there for 20 ms
    /// if no CPU is idle.
    fn fills_gaps(&self, client: ClientId) -> bool {
        self.cpus.len() == 1 || self.rests.few_alone && self.rests.wide.contains(&client)
    }

    /// Whether those who are held have what the others leave.
    pub(super) fn leaves_gaps(&self) -> bool {
        self.rests.are_on() && (self.cpus.len() == 1 || self.rests.few_alone && !self.rests.wide.is_empty())
    }

    /// Finds out whether there are clients of one thread at whose side others may have what is left.
    fn note_alone(&mut self) {
        if self.cpus.len() == 1 {
            return;
        }
        let alone = |(client, c): &(ClientId, &Client)| !c.is_gone() && !self.rests.wide.contains(client);
        let mut alone = self.clients.with_ids().filter(alone).map(|(_, c)| c.is_steady());
        let first = alone.next().unwrap_or(false);
        self.rests.few_alone = !first && alone.next().is_none();
    }

    /// So many threads of client `i` were found awake.
    pub(super) fn note_width(&mut self, i: usize, width: u32) {
        if self.cpus.len() == 1 || !self.clients[i].can_give_way() {
            return;
        }
        let client = ClientId(i as u32);
        let changed = match self.clients[i].rest.seen_wide(width > 1) {
            Some(true) => self.rests.wide.insert(client),
            Some(false) => self.rests.wide.remove(&client),
            None => false,
        };
        if changed && self.rests.are_on() {
            self.settle_ways();
        }
    }

    /// Released client `i` was seen asleep, or (`lasting`) to use fewer CPUs than it has threads for time and again. Says whether
    /// those who are held have what it leaves.
    pub(super) fn note_rest(&mut self, i: usize, now: Instant, lasting: bool) -> bool {
        if !self.clients[i].can_give_way() {
            return false;
        }
        if self.clients[i].rest.seen(now, lasting) {
            self.rests.resting.insert(ClientId(i as u32));
            self.end_keenness(i);
            self.settle_ways();
        }
        true
    }

    /// The kernel bounds what client `i` has of the CPU, or does so no more.
    pub(super) fn note_limit(&mut self, i: usize, limited: bool) {
        self.clients[i].doze.limited = limited;
        if self.clients[i].can_give_way() {
            self.clients[i].rest.limited = limited;
            if limited {
                self.rests.resting.insert(ClientId(i as u32));
            } else if !self.clients[i].rest.is_on() {
                self.rests.resting.remove(&ClientId(i as u32));
            }
            self.settle_ways();
        }
    }

    /// Who has not slept for a while computes.
    pub(super) fn end_rests_if_due(&mut self, now: Instant) {
        if !self.rests.are_on() {
            return;
        }
        let clients = &mut self.clients;
        let resting = &mut self.rests.resting;
        let before = resting.len();
        resting.retain(|client| {
            let rest = &mut clients[client.index()].rest;
            !rest.is_over(now) || rest.is_on()
        });
        if resting.len() < before {
            self.settle_ways();
        }
    }

    /// Of the clients that compute and are held (on several CPUs of all), has as many give way as there are CPUs on which nobody
    /// computes, and the others stand: those first who were told so last, whose turn has just ended, then whoever gives way
    /// already, then who has stood for longest. Where somebody has what is left in its turn, all others stand, also those that
    /// nap, which give way else.
    pub(super) fn settle_ways(&mut self) {
        self.note_alone();
        let giving = std::mem::take(&mut self.rests.giving);
        let coming = |client| self.put_off.releasing.iter().any(|&(due, _)| due == client);
        let several = self.cpus.len() > 1;
        // What is left is its own who has that in its turn.
        let taken = self.clients.with_ids().any(|(_, c)| c.condition == Condition::InTurn);
        let mut wanting = if self.rests.are_on() && !taken { self.cpus.len() as u64 } else { 0 };
        let (mut held, mut resting) = (Vec::new(), Vec::new());
        for (client, c) in self.clients.with_ids().filter(|(_, c)| c.can_give_way()) {
            let behind = c.condition == Condition::Behind;
            let fills_gaps = self.fills_gaps(client);
            if c.condition == Condition::InTurn {
                continue;
            }
            if !several && !c.is_steady() {
                if c.waits && (taken && behind || !taken && c.condition.stands() && self.rests.are_on()) {
                    resting.push(client.index());
                }
                continue;
            }
            let opened = giving.iter().position(|&of| of == client);
            let runs = c.condition == Condition::Released && opened.is_none() || coming(client);
            if runs {
                wanting = wanting.saturating_sub(if c.is_steady() { u64::from(c.width) } else { 0 });
            } else if opened.is_some() || behind || c.is_held() && c.waits && fills_gaps {
                let order = (Reverse(opened), !behind, c.stood_since);
                held.push((order, client, c.width, fills_gaps, opened.is_some() || behind));
            }
        }
        for i in resting {
            let hold = |e: &mut Self| e.hold_client(i).map(|_| ()).map_err(|(_, e)| e);
            let done = if taken { hold(self) } else { self.put_behind_or_hold(i) };
            if let Err(e) = done {
                self.news.push_back(News::Failed(ClientId(i as u32), e));
            }
        }
        held.sort_unstable_by_key(|&(order, ..)| order);
        for (_, client, width, fills_gaps, runs) in held {
            let i = client.index();
            let done = if wanting > 0 && fills_gaps {
                let behind = self.clients[i].condition == Condition::Behind;
                if behind { Ok(()) } else { self.put_behind_or_hold(i) }
            } else if runs {
                self.hold_client(i).map(|_| ()).map_err(|(_, e)| e)
            } else {
                Ok(())
            };
            if let Err(e) = done {
                self.news.push_back(News::Failed(client, e));
            }
            wanting = wanting.saturating_sub(u64::from(width));
        }
    }

    /// Lets client `i` have what the others leave. One whose cgroup somebody has removed is held.
    fn put_behind_or_hold(&mut self, i: usize) -> std::result::Result<(), HostError> {
        let c = &self.clients[i];
        let begun = c.condition.stands().then(|| c.switches.begin(Switch::Release));
        let done = self.put_behind(i);
        self.note_switch(i, begun.filter(|_| done.is_ok()));
        match done {
            Err(e) if self.awaits_leaf(i, &e) || self.has_lost_leaf(i, &e) => {
                self.hold_client(i).map(|_| ()).map_err(|(_, e)| e)
            }
            done => done.map_err(|e| host_error(&e)),
        }
    }

    /// Lets client `i` have what the others leave.
    fn put_behind(&mut self, i: usize) -> Result<()> {
        let c = &mut self.clients[i];
        let (stopped, stood) = (c.stops(), c.condition.stands());
        let Some(leaf) = &c.leaf else { return Ok(()) };
        leaf.put_behind(true)?;
        c.doze.begin();
        self.preferred.retain(|of| of.index() != i); // It has lost its weight.
        self.tally.signals += 1;
        if stood && !stopped {
            leaf.thaw()?;
            self.tally.signals += 1;
        }
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
        let mut rests = Rest::default();
        assert!(!rests.is_on() && !rests.is_over(at(0)));
        assert!(rests.seen(at(0), false), "it is news");
        assert!(!rests.seen(at(500), false), "it is none any more");
        assert!(rests.is_on() && !rests.is_over(at(2_499)));
        assert!(rests.is_over(at(2_500)) && !rests.is_on() && !rests.is_over(at(2_501)));
        // Seen again at once: twice as long. After a while of computing: as at first.
        assert!(rests.seen(at(2_600), false) && !rests.is_over(at(6_599)) && rests.is_over(at(6_600)));
        assert!(rests.seen(at(9_000), false) && rests.is_over(at(11_000)));
        let mut end = 11_000;
        for _ in 0..20 {
            assert!(rests.seen(at(end), false));
            let span = rests.span.0 / 1_000_000;
            assert!(!rests.is_over(at(end + span - 1)) && rests.is_over(at(end + span)));
            end += span;
        }
        assert_eq!(rests.span, SPAN_MAX);
    }

    #[test]
    fn a_shell_with_its_child_is_no_client_of_several_threads() {
        let mut rest = Rest::default();
        let shell = [true, false, true, true, false, false].repeat(50);
        assert!(shell.iter().all(|&several| rest.seen_wide(several) != Some(true)));
        assert!((0..WIDE_LOOKS).any(|_| rest.seen_wide(true) == Some(true)));
        // Now and then only one of its threads is awake.
        let build = [true, true, true, false, true, false].repeat(50);
        assert!(build.iter().all(|&several| rest.seen_wide(several) != Some(false)));
        assert!((0..WIDE_LOOKS).any(|_| rest.seen_wide(false) == Some(false)));
    }

    #[test]
    fn threads_that_rest_once_are_no_news() {
        let mut rests = Rest::default();
        let mut seen = |ms: std::ops::Range<u64>| ms.fold(false, |_, ms| rests.seen_few(at(ms)));
        assert!(!seen(0..7));
        assert!(!seen(1_500..1_507), "that was long ago");
        assert!(seen(1_507..1_508), "the eighth within a second");
    }
}
