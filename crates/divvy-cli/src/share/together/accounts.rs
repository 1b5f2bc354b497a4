//! What tasks that divvyd divides were to get, and got: sums over what it tells again and again.
//!
//! **Problem.** What a task is due depends on whoever else is there, and that changes: shares are set, clients come, end and sleep.
//! divvyd's own fractions are of the time since the last change.
//!
//! **Idea.** Between two looks all clients together had so much CPU time, of which each was due its effective fraction.

use std::collections::HashMap;

use divvy_api::types::{Client, ClientState, Clients};

/// One task.
#[derive(Clone, Debug, Default)]
struct Task {
    share: u64,
    /// CPU time that it was to get.
    due: f64,
    /// What it got of the CPU time that `due` is a part of.
    got: u64,
    last: Option<Client>,
    /// Looks at it, and how many of them found it asleep.
    looks: u32,
    asleep: u32,
    /// It was let go, by whomever: it runs on as nobody's client.
    let_go: bool,
}

/// How the tasks of a run stand at divvyd.
#[derive(Clone, Debug, Default)]
pub(in crate::share) struct Accounts {
    tasks: Vec<Task>,
    /// CPU time of all of divvyd's clients.
    total: u64,
    /// CPU time that each client had by the last look.
    before: Option<HashMap<u32, u64>>,
}

impl Accounts {
    /// Of tasks with these shares, of which nothing is known yet.
    pub(super) fn new(shares: impl Iterator<Item = u64>) -> Self {
        Self { tasks: shares.map(|share| Task { share, ..Task::default() }).collect(), ..Self::default() }
    }

    /// Another divvyd counts from nothing.
    pub(super) fn begin_again(&mut self) {
        self.before = None;
        self.tasks.iter_mut().for_each(|task| task.last = None);
    }

    /// Takes in how all clients stand; the task at each place is the client of that number.
    pub(super) fn take_in(&mut self, ids: &[Option<u32>], all: &Clients) {
        let now: HashMap<u32, u64> =
            all.clients.iter().map(|client| (client.id, client.service_ns)).collect();
        // Whoever came since the last look had all of it since.
        let used = |before: &HashMap<u32, u64>, id: u32, service: u64| {
            service.saturating_sub(before.get(&id).copied().unwrap_or(0))
        };
        let known = self.before.replace(now);
        let total = known.as_ref().map_or(0, |before| {
            all.clients.iter().map(|client| used(before, client.id, client.service_ns)).sum()
        });
        self.total += total;
        for (task, id) in self.tasks.iter_mut().zip(ids) {
            let client = all.clients.iter().find(|client| Some(client.id) == *id);
            if let Some(client) = client {
                task.due += client.effective_fraction * total as f64;
                task.got += known.as_ref().map_or(0, |before| used(before, client.id, client.service_ns));
                task.looks += 1;
                task.asleep += u32::from(client.state == ClientState::Asleep);
            }
            task.last = client.cloned();
        }
    }

    /// What task `i` was to get, as a fraction of what all tasks of the run were.
    pub(in crate::share) fn target(&self, i: usize) -> f64 {
        let due: f64 = self.tasks.iter().map(|task| task.due).sum();
        if due > 0.0 {
            return self.tasks[i].due / due;
        }
        let shares: u64 = self.tasks.iter().map(|task| task.share).sum();
        self.tasks[i].share as f64 / shares.max(1) as f64
    }

    /// What all tasks of the run were to get and got, as fractions of the CPU time of all of divvyd's clients; nothing where
    /// these had none yet.
    pub(in crate::share) fn of_all(&self) -> Option<(f64, f64)> {
        let part = |sum: f64| sum / self.total as f64;
        let due = self.tasks.iter().map(|task| task.due).sum();
        let got = self.tasks.iter().map(|task| task.got).sum::<u64>();
        (self.total > 0).then(|| (part(due), part(got as f64)))
    }

    /// CPU time of divvyd's other clients.
    pub(in crate::share) fn others_ns(&self) -> u64 {
        self.total.saturating_sub(self.tasks.iter().map(|task| task.got).sum())
    }

    /// For which part of the looks task `i` was asleep.
    pub(in crate::share) fn slept(&self, i: usize) -> f64 {
        let task = &self.tasks[i];
        if task.looks == 0 { 0.0 } else { f64::from(task.asleep) / f64::from(task.looks) }
    }

    /// What task `i` does; nothing where it is no client.
    pub(in crate::share) fn state(&self, i: usize) -> Option<ClientState> {
        self.tasks[i].last.as_ref().map(|client| client.state)
    }

    /// Task `i` was let go.
    pub(super) fn let_go(&mut self, i: usize) {
        self.tasks[i].let_go = true;
    }

    /// Whether task `i` was let go.
    pub(in crate::share) fn is_let_go(&self, i: usize) -> bool {
        self.tasks[i].let_go
    }

    /// CPUs that task `i` can use at once.
    pub(in crate::share) fn width(&self, i: usize) -> u32 {
        self.tasks[i].last.as_ref().map_or(1, |client| client.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(clients: &[(u32, f64, u64, ClientState)]) -> Clients {
        let client = |&(id, effective_fraction, service_ns, state): &(u32, f64, u64, ClientState)| Client {
            id,
            effective_fraction,
            service_ns,
            state,
            width: 1,
            ..Client::default()
        };
        Clients { window_ns: 0, age_ns: 0, groups: vec![], clients: clients.iter().map(client).collect() }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// Two tasks, 3:1, have a group of half the CPU beside client 9, then all of it, for 400 each.
    #[test]
    fn dues_follow_who_is_there() {
        use ClientState::{Asleep, Held, Running};
        let mut all = Accounts::new([3, 1].into_iter());
        assert!(near(all.target(0), 0.75) && all.of_all().is_none());
        let ids = [Some(0), Some(1)];
        // What was had before the first look is in none of the sums.
        all.take_in(&ids, &list(&[(0, 0.375, 50, Running), (1, 0.125, 10, Held), (9, 0.5, 70_000, Held)]));
        assert!(all.of_all().is_none());
        all.take_in(&ids, &list(&[(0, 0.375, 200, Running), (1, 0.125, 60, Held), (9, 0.5, 70_200, Held)]));
        assert!(near(all.target(0), 0.75));
        let (due, got) = all.of_all().unwrap();
        assert!(near(due, 0.5) && near(got, 0.5), "{due} {got}");
        assert_eq!(all.others_ns(), 200);
        // Now the other is gone, and a task sleeps: its sibling has all.
        all.take_in(&ids, &list(&[(0, 0.0, 200, Asleep), (1, 1.0, 460, Running)]));
        let (due, got) = all.of_all().unwrap();
        assert!(near(due, 0.75) && near(got, 0.75), "{due} {got}");
        assert!(near(all.target(0), 150.0 / 600.0));
        assert!(near(all.slept(0), 1.0 / 3.0) && near(all.slept(1), 0.0));
        assert_eq!((all.state(0), all.state(1)), (Some(Asleep), Some(Running)));
    }

    /// Another divvyd's numbers begin anew: nothing is counted twice, or backwards.
    #[test]
    fn another_divvyd_counts_from_nothing() {
        let mut all = Accounts::new([1].into_iter());
        all.take_in(&[Some(4)], &list(&[(4, 1.0, 100, ClientState::Running)]));
        all.take_in(&[Some(4)], &list(&[(4, 1.0, 300, ClientState::Running)]));
        all.begin_again();
        assert_eq!(all.state(0), None);
        all.take_in(&[Some(0)], &list(&[(0, 1.0, 5, ClientState::Running)]));
        all.take_in(&[Some(0)], &list(&[(0, 1.0, 105, ClientState::Running)]));
        assert_eq!((all.total, all.tasks[0].got, all.others_ns()), (300, 300, 0));
        // A client that has ended is no task's any more.
        all.take_in(&[None], &list(&[]));
        assert_eq!((all.total, all.state(0)), (300, None));
    }
}
