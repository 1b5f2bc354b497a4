//! Who used how much between two looks at a divvyd's clients, and who used far more than its share for a while.

use std::collections::{BTreeMap, VecDeque};

use divvy_api::types::Client;
use serde::{Deserialize, Serialize};

/// What one user used in a stretch of time: a line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Seconds since 1970 (UTC).
    pub(super) from: u64,
    /// As `from`.
    pub(super) to: u64,
    pub(super) user: String,
    pub(super) cpu_ns: u64,
    /// What the user's effective shares came to of what all used.
    pub(super) due_ns: u64,
    /// What the CPUs that are divided could have given to all.
    pub(super) machine_ns: u64,
}

/// CPU time had, and due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) cpu_ns: u64,
    pub(super) due_ns: u64,
}

/// Adds up what users used.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// What each client that is there had at the last look.
    last: BTreeMap<u32, u64>,
    users: BTreeMap<String, Used>,
}

impl Account {
    /// One that counts from now on: what is `there` had its CPU time before.
    pub(super) fn from(there: &[Client]) -> Self {
        Self {
            last: there.iter().map(|client| (client.id, client.service_ns)).collect(),
            users: BTreeMap::new(),
        }
    }

    /// Clients that were there at the last look and are not any more.
    pub(super) fn gone<'a>(&'a self, there: &'a [Client]) -> impl Iterator<Item = u32> + 'a {
        self.last.keys().copied().filter(|id| there.iter().all(|client| client.id != *id))
    }

    /// The same for another divvyd, whose clients have had nothing before it began.
    pub(super) fn anew(&mut self) -> Self {
        Self { last: BTreeMap::new(), users: std::mem::take(&mut self.users) }
    }

    /// Counts what those that are `there`, and those that have `left` since the last look, have had since then. Says what each
    /// user used.
    pub(super) fn look(&mut self, there: &[Client], left: &[Client], own: &str) -> BTreeMap<String, Used> {
        let mut now: BTreeMap<String, Used> = BTreeMap::new();
        let mut parts: BTreeMap<String, f64> = BTreeMap::new();
        for client in there.iter().chain(left) {
            let before = self.last.get(&client.id).copied().unwrap_or(0);
            let user = client.user.as_deref().unwrap_or(own).to_owned();
            *parts.entry(user.clone()).or_default() += client.effective_fraction;
            now.entry(user).or_default().cpu_ns += client.service_ns.saturating_sub(before);
        }
        let all: u64 = now.values().map(|used| used.cpu_ns).sum();
        let whole: f64 = parts.values().sum();
        for (user, used) in &mut now {
            // Of one who left between two looks no share is known any more: it was due what it had.
            used.due_ns = if whole > 0.0 { (all as f64 * parts[user] / whole) as u64 } else { used.cpu_ns };
            let sum = self.users.entry(user.clone()).or_default();
            sum.cpu_ns += used.cpu_ns;
            sum.due_ns += used.due_ns;
        }
        self.last = there.iter().map(|client| (client.id, client.service_ns)).collect();
        now
    }

    /// All that was counted since it was taken last, as lines.
    pub(super) fn take(&mut self, from: u64, to: u64, machine_ns: u64) -> Vec<Line> {
        let users = std::mem::take(&mut self.users);
        let used = users.into_iter().filter(|(_, used)| used.cpu_ns > 0);
        used.map(|(user, used)| Line { from, to, user, cpu_ns: used.cpu_ns, due_ns: used.due_ns, machine_ns })
            .collect()
    }
}

/// One user who has used far more than its share.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Over {
    pub(super) user: String,
    /// Of the CPUs that are divided, in the last stretch.
    pub(super) used: f64,
    /// What the user's share is of them, were everybody active who had clients in that time.
    pub(super) share: f64,
}

/// Watches for users who use far more than their share.
#[derive(Debug)]
pub(super) struct Watch {
    /// How many times its share is far more.
    times: f64,
    /// Over how long a time, ns.
    span_ns: u64,
    /// How long a user who was told is left alone, ns.
    again_ns: u64,
    /// What was used at each look: over how long a time, and by whom.
    looks: VecDeque<(u64, BTreeMap<String, u64>)>,
    /// Who was told last when, by the clock on the wall: it is remembered over a restart.
    pub(super) told: BTreeMap<String, u64>,
    /// Whom it was tried in vain to tell, and when: tried again once the stretch of time is over that counts.
    failed: BTreeMap<String, u64>,
}

impl Watch {
    /// `told` is who was told last when, before.
    pub(super) fn new(times: f64, span_ns: u64, again_ns: u64, told: BTreeMap<String, u64>) -> Self {
        Self { times, span_ns, again_ns, looks: VecDeque::new(), told, failed: BTreeMap::new() }
    }

    /// That `user` was not told after all, as is known at `now_ns`.
    pub(super) fn not_told(&mut self, user: &str, now_ns: u64) {
        self.told.remove(user);
        self.failed.insert(user.to_owned(), now_ns);
    }

    /// Those who are far over now, and were not told lately: of what was `used` in the `since_ns` before `now_ns` and in the looks
    /// before. Nobody is until there have been looks for the whole time. `shares` says what each has a right to, and counts of those only
    /// who had clients in that time; nobody is told who is `exempt`.
    pub(super) fn look(
        &mut self,
        now_ns: u64,
        since_ns: u64,
        used: &BTreeMap<String, Used>,
        cpus: usize,
        shares: &BTreeMap<String, f64>,
        exempt: &[String],
    ) -> Vec<Over> {
        let used = used.iter().map(|(user, used)| (user.clone(), used.cpu_ns)).collect();
        self.looks.push_back((since_ns, used));
        // As few as cover the time.
        let mut span: u64 = self.looks.iter().map(|(since, _)| since).sum();
        while let Some((since, _)) = self.looks.front()
            && span - since >= self.span_ns
        {
            span -= since;
            self.looks.pop_front();
        }
        if span < self.span_ns {
            return Vec::new();
        }
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (user, ns) in self.looks.iter().flat_map(|(_, used)| used) {
            *sums.entry(user).or_default() += ns;
        }
        // Whoever is not there has no use of a share, and may never come again.
        let all: f64 = sums.keys().filter_map(|&user| shares.get(user)).sum();
        let share = |user: &str| {
            let share = shares.get(user).filter(|_| all > 0.0 && exempt.iter().all(|name| name != user));
            share.map(|share| share / all)
        };
        let machine = span as f64 * cpus.max(1) as f64;
        let is_past = |of: &BTreeMap<String, u64>, user: &str, time: u64| {
            of.get(user).is_none_or(|&then| then > now_ns || now_ns - then >= time)
        };
        let is_due = |user: &str| {
            is_past(&self.told, user, self.again_ns) && is_past(&self.failed, user, self.span_ns)
        };
        let over: Vec<Over> = sums
            .into_iter()
            .filter_map(|(user, ns)| {
                Some(Over { user: user.to_owned(), used: ns as f64 / machine, share: share(user)? })
            })
            .filter(|over| over.used > over.share * self.times && is_due(&over.user))
            .collect();
        self.failed.retain(|user, _| over.iter().all(|over| over.user != *user));
        self.told.extend(over.iter().map(|over| (over.user.clone(), now_ns)));
        over
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::types::ClientState;

    use super::*;

    fn client(id: u32, user: &str, service_ns: u64, effective_fraction: f64) -> Client {
        let text = format!(
            r#"{{"id":{id},"name":"c","selector":"tree:1","user":"{user}","share":1,"effective_share":1.0,
                "requested_fraction":0.0,"effective_fraction":{effective_fraction},"achieved_fraction":0.0,
                "relative_error":0.0,"service_ns":{service_ns},"state":"running","width":1,"nr_members":1,
                "not_permitted":0,"members":[]}}"#
        );
        let client: Client = serde_json::from_str(&text).expect("a client");
        assert_eq!(client.state, ClientState::Running);
        client
    }

    fn used(cpu_ns: u64, due_ns: u64) -> Used {
        Used { cpu_ns, due_ns }
    }

    #[test]
    fn what_each_user_used_is_counted_once() {
        // What alice's first client had before is not counted; bob's comes later, and all of it is.
        let mut account = Account::from(&[client(1, "alice", 1000, 1.0)]);
        let there = [client(1, "alice", 1300, 0.5), client(2, "bob", 100, 0.5)];
        let now = account.look(&there, &[], "own");
        assert_eq!(now["alice"], used(300, 200));
        assert_eq!(now["bob"], used(100, 200));
        // Bob's has left with 50 more; carol's came and went between two looks.
        let there = [client(1, "alice", 1400, 1.0)];
        assert_eq!(account.gone(&there).collect::<Vec<_>>(), [2]);
        let now = account.look(&there, &[client(2, "bob", 150, 0.0), client(3, "carol", 7, 0.0)], "own");
        assert_eq!((now["alice"].cpu_ns, now["bob"].cpu_ns, now["carol"].cpu_ns), (100, 50, 7));
        assert_eq!(account.gone(&there).count(), 0);
        let lines = account.take(10, 20, 4000);
        let sums: Vec<(&str, u64)> = lines.iter().map(|line| (line.user.as_str(), line.cpu_ns)).collect();
        assert_eq!(sums, [("alice", 400), ("bob", 150), ("carol", 7)]);
        assert!(lines.iter().all(|line| (line.from, line.to, line.machine_ns) == (10, 20, 4000)));
        assert_eq!(account.take(20, 30, 4000), [], "taken");
    }

    #[test]
    fn who_is_far_over_is_told_after_the_whole_time_and_then_left_alone() {
        let mut watch = Watch::new(2.0, 100, 1000, BTreeMap::new());
        // Dave has been here before, and has as much as the others together.
        let share = &[("alice", 0.3), ("bob", 0.1), ("carol", 0.1), ("dave", 0.5)]
            .map(|(user, share)| (user.to_owned(), share))
            .into();
        let exempt = &["carol".to_owned()];
        let of = |alice, bob, carol| {
            let all = [("alice", alice), ("bob", bob), ("carol", carol)];
            all.into_iter().map(|(user, ns)| (user.to_owned(), used(ns, 0))).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(watch.look(50, 50, &of(10, 90, 100), 2, share, exempt), [], "not for long enough");
        // Bob has had 180 of 200, which is 90 %, and his share of what the three have is 20 %. Carol is told nothing.
        let over = watch.look(100, 50, &of(10, 90, 100), 2, share, exempt);
        assert_eq!(over, [Over { user: "bob".into(), used: 0.9, share: 0.2 }]);
        assert_eq!(watch.look(150, 50, &of(10, 90, 0), 2, share, exempt), [], "told a moment ago");
        assert_eq!(
            watch.look(1150, 50, &of(0, 10, 0), 2, share, exempt).len(),
            1,
            "the look before still counts"
        );
        assert_eq!(
            watch.look(3000, 50, &of(0, 10, 0), 2, share, exempt),
            [],
            "10 of 100 are less than his share"
        );
    }

    #[test]
    fn who_could_not_be_told_is_told_after_another_while() {
        let mut watch = Watch::new(2.0, 100, 1000, BTreeMap::new());
        let bob = BTreeMap::from([("bob".to_owned(), used(90, 0)), ("alice".to_owned(), used(0, 0))]);
        let shares = BTreeMap::from([("bob".to_owned(), 0.2), ("alice".to_owned(), 0.8)]);
        let look = |watch: &mut Watch, now| watch.look(now, 50, &bob, 1, &shares, &[]).len();
        assert_eq!([look(&mut watch, 50), look(&mut watch, 100)], [0, 1]);
        watch.not_told("bob", 110);
        assert_eq!(watch.told, BTreeMap::new(), "nothing is remembered");
        assert_eq!([look(&mut watch, 150), look(&mut watch, 200), look(&mut watch, 250)], [0, 0, 1]);
        assert_eq!(watch.told, BTreeMap::from([("bob".to_owned(), 250)]));
        assert_eq!([look(&mut watch, 400), look(&mut watch, 1300)], [0, 1], "this time he was");
    }
}
