//! Clients of which the driver tells when they fall asleep and when they wake: they come first when they wake.
//!
//! On one CPU a client that wakes takes the CPU at once, and whoever had it is held until its turn comes, so that the two do
//! not share the CPU evenly whatever their shares are. While both want the CPU they take turns: a quota is used in as
//! many turns as make the longest [`TURN`] long, half as many each time that the one that woke has used a turn up, until
//! turns are whole allowances again. What the others have used of their quotas while it slept it forfeits of its own, in
//! proportion (processor sharing: nobody is owed anything for the time in which it slept). What they were ahead of it when it
//! fell asleep, because they had their turns first, it is still owed, less the same.

use super::Exact;
use super::client::{Client, Place};
use crate::gate::observer::nanos;
use crate::{ClientId, Instant, Nanos};

/// The first turn of whoever has the largest share: 4 ms, a tick of many kernels.
const TURN: Nanos = Nanos::from_millis(4);
/// Changes that a look finds before the driver has told of them are taken for told this long after the last that was.
pub(super) const HEARD_FOR: Nanos = Nanos::from_millis(100);
/// No turn is shorter than 1 ms.
const TURN_MIN: Nanos = Nanos::from_millis(1);

/// When to look again at a client that has slept for so long and is `prompt`: many naps are shorter than it takes until they are
/// told to be over, while somebody else has the CPU.
pub(super) fn next_look(prompt: bool, asleep: Nanos) -> Option<Nanos> {
    let short = Nanos::from_micros(500);
    match asleep {
        _ if !prompt => None,
        asleep if asleep < short => Some(short),
        asleep if asleep < Nanos(3 * short.0) => Some(Nanos(2 * short.0)),
        asleep if asleep < HEARD_FOR => Some(TURN),
        _ => None,
    }
}

impl Exact {
    /// The longest run of a client in one go, where that is not its whole allowance.
    pub(super) fn turn(&self, client: ClientId) -> Option<Nanos> {
        let Some((woken, turns)) = self.turns else { return self.params.slice };
        // Turns are short for its sake alone: not while it sleeps, nor once it is through with the cycle, or gone.
        let wants = |c: &Client| matches!(c.place, Place::Head) || c.place == Place::Waiting(self.cycle);
        if turns <= 1 || self.params.slice.is_some() || !self.clients.get(woken).is_some_and(wants) {
            return self.params.slice;
        }
        let quota = nanos(self.quota(self.clients.get(client)?));
        Some(Nanos(quota.0 / turns).max(TURN_MIN))
    }

    /// The one that woke has used a turn up: the longer it stays awake, the longer are the turns.
    pub(super) fn lengthen_turns(&mut self, client: ClientId) {
        if let Some((woken, turns)) = &mut self.turns
            && *woken == client
        {
            *turns = (*turns / 2).max(1);
        }
    }

    /// A client was told, or found, to have woken: how far the others are has to be known before it takes the CPU, and what the one had
    /// that gives it up.
    pub(super) fn wake(&mut self, client: ClientId) {
        for head in self.heads.clone() {
            if self.clients.get(head).is_some_and(|c| c.looked <= self.told) {
                self.disarm(head);
                self.ask(head);
            }
        }
        if !self.waking.contains(&client) {
            self.waking.push(client);
        }
    }

    /// A client that has woken takes the CPU.
    pub(super) fn promote(&mut self, now: Instant, client: ClientId) {
        let head = self.heads.first().copied();
        let left = head.map(|head| self.left_of_cycle(Some(head)));
        let Some(quota) = self.clients.get(client).map(|c| self.quota(c)) else { return };
        let used_by_all = self.used_by_all;
        let Some(c) = self.clients.get_mut(client) else { return };
        (c.looked, c.used_since_look) = (now, Nanos::ZERO);
        let owed = core::mem::take(&mut c.owed);
        if let Some((left, all)) = left {
            let used = i128::try_from(used_by_all - c.used_by_then).unwrap_or(i128::MAX);
            let owed = (owed - used.saturating_mul(quota) / all).max(0);
            c.allowance = c.allowance.min(quota.saturating_mul(left) / all + Self::grain()) + owed;
        }
        if c.allowance <= Self::grain() {
            return self.hold_at(client, self.spent_place(false));
        }
        let Some(head) = head else { return self.run_as_head(client) };
        let other = self.clients.get(head).map_or(0, |c| self.quota(c));
        let (longest, shortest) = (quota.max(other), quota.min(other));
        let turns = (longest / i128::from(TURN.0)).min(shortest / i128::from(TURN_MIN.0)).max(1);
        self.turns = Some((client, u64::try_from(turns).unwrap_or(1)));
        self.hold_at(head, Place::Waiting(self.cycle));
        self.run_as_head(client);
    }

    /// A head has fallen asleep: notes how far the others are ahead of it, who may have had their turns first.
    pub(super) fn note_owed(&mut self, client: ClientId) {
        let (left, all) = self.left_of_cycle(None);
        let Some(quota) = self.clients.get(client).map(|c| self.quota(c)) else { return };
        let used_by_all = self.used_by_all;
        let Some(c) = self.clients.get_mut(client) else { return };
        c.owed = (c.allowance - quota.saturating_mul(left) / all).clamp(0, quota.max(0));
        c.used_by_then = used_by_all;
    }

    /// What those that wait, and the head if it is given, have left of their quotas in this cycle, and the sum of those.
    fn left_of_cycle(&self, head: Option<ClientId>) -> (i128, i128) {
        let (quota, left) = head
            .and_then(|head| self.clients.get(head))
            .map_or((0, 0), |c| (self.quota(c), c.allowance.max(0)));
        let all = quota + self.ready.quota_sum + self.next.quota_sum;
        ((left + self.ready.work_sum).clamp(0, all), all.max(1))
    }
}
