//! What the kernel told of processes since it was asked last: who is to be looked at, and what of them anew.

use std::collections::{HashMap, HashSet};

use crate::Pid;
use crate::census::{Census, User};
use crate::events::ProcessEvent;
use crate::world::World;

/// Some events, one after the other. Somebody of whom there are several is looked at once.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// In the order in which they were first told of; whether they changed, and perhaps their user.
    changed: Vec<(Pid, Option<User>)>,
    places: HashMap<Pid, usize>,
    /// Whoever has made children.
    pub(super) parents: HashSet<Pid>,
    /// The new ones.
    pub(super) children: Vec<Pid>,
    /// Some were lost.
    pub(super) lost: bool,
    /// How many there were.
    pub(super) number: u64,
}

impl Told {
    /// Takes one in.
    pub(super) fn hear<W: World>(&mut self, event: ProcessEvent, census: &mut Census<W>) {
        self.number += 1;
        match event {
            ProcessEvent::Fork { parent, child } => {
                self.children.push(child);
                self.parents.insert(parent);
                // It was found before this was heard, or has the number of one who has ended: like its parent it is in neither case.
                if census.knows(child) {
                    return self.note(child, Some(User::Anew));
                }
                census.fork(parent, child);
                // Whose user has changed just before, and is not known yet, has made a child of that user's.
                let user = self.look_at(parent).filter(|user| *user == User::Anew);
                self.note(child, user);
            }
            ProcessEvent::Changed(pid) => self.note(pid, Some(User::AsBefore)),
            ProcessEvent::User(pid) => self.note(pid, Some(User::Anew)),
            ProcessEvent::Lost => self.lost = true,
        }
    }

    /// Everybody who was told of, and what is to be read of them.
    pub(super) fn changed(&self) -> &[(Pid, Option<User>)] {
        &self.changed
    }

    fn look_at(&self, pid: Pid) -> Option<User> {
        self.changed[*self.places.get(&pid)?].1
    }

    fn note(&mut self, pid: Pid, look: Option<User>) {
        let at = *self.places.entry(pid).or_insert(self.changed.len());
        match self.changed.get_mut(at) {
            None => self.changed.push((pid, look)),
            Some((_, Some(User::Anew))) => {}
            Some((_, before)) => *before = look.or(*before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::State;
    use crate::census::Rule;
    use crate::owner::Users;
    use crate::protect::Protection;
    use crate::world::script::{Script, pid};
    use divvy_policy::ClientId;

    const OWN: i32 = 50;
    const JOB: i32 = 60;
    const CHILD: i32 = 61;

    fn add(script: Script, n: i32, parent: i32, user: u32) -> Script {
        let script = script.with(n, State::Running, 0);
        script.change(n, |p| {
            (p.start, p.parent, p.users, p.comm) = (1000 + n as u64, parent, Users::all(user), "job".into());
        });
        script
    }

    /// A job of root's becomes user 1000, runs a program and makes a child that runs another; `events` are heard at once, when all
    /// of that is over. Which of the two are user 1000's then.
    fn users_after(events: &[ProcessEvent], child_of: u32) -> Vec<i32> {
        let script = add(add(Script::default(), 1, 0, 0), JOB, 1, 0);
        let mut census = Census::new(script.clone(), pid(OWN));
        census.ask_for_users();
        census.scan(&mut 0).unwrap();
        let script = add(script, CHILD, JOB, child_of);
        script.change(JOB, |p| p.users = Users::all(1000));
        let mut told = Told::default();
        events.iter().for_each(|event| told.hear(*event, &mut census));
        for (pid, look) in told.changed() {
            if let Some(user) = look {
                census.touch(*pid, *user, &mut 0);
            }
        }
        let rule = Rule {
            client: ClientId(0),
            selector: "user:1000".parse().expect("a selector"),
            start: None,
            owner: Some(1000),
        };
        let is = |n: &i32| {
            census.claim(pid(*n), std::slice::from_ref(&rule), &HashMap::new(), &Protection::none()).is_some()
        };
        [JOB, CHILD].into_iter().filter(is).collect()
    }

    /// Who was found by looking is who it is, though its birth is heard of later: it is not what its parent is.
    #[test]
    fn who_was_found_before_it_was_told_of_stays() {
        let script = add(add(Script::default(), JOB, 1, 1000), CHILD, JOB, 1000);
        let mut census = Census::new(script, pid(OWN));
        census.scan(&mut 0).unwrap();
        let rule = Rule {
            client: ClientId(0),
            selector: format!("pid:{CHILD}").parse().expect("a selector"),
            start: Some(crate::StartTime(1000 + CHILD as u64)),
            owner: None,
        };
        let is_client = |census: &Census<Script>| {
            let (rules, owners) = (std::slice::from_ref(&rule), HashMap::new());
            census.claim(pid(CHILD), rules, &owners, &Protection::none()).is_some()
        };
        assert!(is_client(&census));
        let mut told = Told::default();
        told.hear(ProcessEvent::Fork { parent: pid(JOB), child: pid(CHILD) }, &mut census);
        for (pid, look) in told.changed() {
            assert_eq!(*look, Some(User::Anew));
            census.touch(*pid, User::Anew, &mut 0);
        }
        assert!(is_client(&census), "it began when it did, and not when its parent did");
    }

    /// As cron, su and runuser do: a child that is made at once is the new user's.
    #[test]
    fn a_child_has_the_user_that_its_parent_had_just_got() {
        let (job, child) = (pid(JOB), pid(CHILD));
        let fork = ProcessEvent::Fork { parent: job, child };
        let (user, ran) = (ProcessEvent::User(job), ProcessEvent::Changed(job));
        let both = vec![JOB, CHILD];
        assert_eq!(users_after(&[user, ran, fork], 1000), both, "it runs its parent's program");
        assert_eq!(users_after(&[user, ran, fork, ProcessEvent::Changed(child)], 1000), both);
        assert_eq!(users_after(&[user, fork, ran, ProcessEvent::Changed(child)], 1000), both);
        // Made before, it is root's.
        assert_eq!(users_after(&[fork, user, ProcessEvent::Changed(child)], 0), [JOB]);
    }
}
