//! Users and groups by name: the market itself knows numbers only.

use std::cell::RefCell;
use std::collections::BTreeMap;

use divvy_linux::clock;
use divvy_policy::{Instant, Nanos};

/// A name or number that was looked up is believed for so long, and that there is none for less: somebody may be about to
/// make the account.
const BELIEVED: Nanos = Nanos::from_secs(30);
const MISSED: Nanos = Nanos::from_secs(1);
/// Answers that are kept; a caller who asks for more different ones makes the system look them up again.
const KEPT: usize = 4096;

/// Who is called what. Handed in, so that tests need no accounts.
pub(crate) trait Names {
    /// The number of the user called `name`.
    fn user_id(&self, name: &str) -> Option<u32>;
    /// The name of user `uid`.
    fn user_name(&self, uid: u32) -> Option<String>;
    /// The group that user `uid` has when it logs in.
    fn user_group(&self, uid: u32) -> Option<u32>;
    /// The number of the group called `name`.
    fn group_id(&self, name: &str) -> Option<u32>;
    /// The name of group `gid`.
    fn group_name(&self, gid: u32) -> Option<String>;
}

/// Answers, and until when they are believed.
type Kept<K, V> = RefCell<BTreeMap<K, (Option<V>, Instant)>>;

/// The machine's users and groups. A look-up can take long where they come from a network, so answers are kept a while.
#[derive(Debug, Default)]
pub(crate) struct SystemNames {
    user_ids: Kept<String, u32>,
    user_names: Kept<u32, String>,
    user_groups: Kept<u32, u32>,
    group_ids: Kept<String, u32>,
    group_names: Kept<u32, String>,
}

fn kept<K: Ord + Clone, V: Clone>(kept: &Kept<K, V>, key: &K, look: impl FnOnce() -> Option<V>) -> Option<V> {
    let now = clock::now();
    if let Some((answer, until)) = kept.borrow().get(key)
        && now < *until
    {
        return answer.clone();
    }
    let answer = look();
    let mut kept = kept.borrow_mut();
    if kept.len() >= KEPT {
        kept.clear();
    }
    let until = now + if answer.is_some() { BELIEVED } else { MISSED };
    kept.insert(key.clone(), (answer.clone(), until));
    answer
}

impl Names for SystemNames {
    fn user_id(&self, name: &str) -> Option<u32> {
        kept(&self.user_ids, &name.to_owned(), || divvy_linux::user_id(name))
    }

    fn user_name(&self, uid: u32) -> Option<String> {
        kept(&self.user_names, &uid, || divvy_linux::user_name(uid))
    }

    fn user_group(&self, uid: u32) -> Option<u32> {
        kept(&self.user_groups, &uid, || divvy_linux::user_group(uid))
    }

    fn group_id(&self, name: &str) -> Option<u32> {
        kept(&self.group_ids, &name.to_owned(), || divvy_linux::group_id(name))
    }

    fn group_name(&self, gid: u32) -> Option<String> {
        kept(&self.group_names, &gid, || divvy_linux::group_name(gid))
    }
}

#[cfg(test)]
pub(crate) mod scripted {
    use super::Names;

    /// Users and groups of a test: alice, bob and carol are 1001 to 1003, each in a group of their own number and name;
    /// `staff` is group 50.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Scripted;

    const KNOWN: [(&str, u32); 4] = [("root", 0), ("alice", 1001), ("bob", 1002), ("carol", 1003)];

    impl Names for Scripted {
        fn user_id(&self, name: &str) -> Option<u32> {
            KNOWN.iter().find(|(known, _)| *known == name).map(|&(_, id)| id)
        }

        fn user_name(&self, uid: u32) -> Option<String> {
            KNOWN.iter().find(|&&(_, id)| id == uid).map(|&(name, _)| name.to_owned())
        }

        fn user_group(&self, uid: u32) -> Option<u32> {
            self.user_name(uid).map(|_| uid)
        }

        fn group_id(&self, name: &str) -> Option<u32> {
            if name == "staff" { Some(50) } else { self.user_id(name) }
        }

        fn group_name(&self, gid: u32) -> Option<String> {
            if gid == 50 { Some("staff".to_owned()) } else { self.user_name(gid) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_names_are_found_both_ways() {
        let names = SystemNames::default();
        for _ in 0..2 {
            assert_eq!(names.user_id("root"), Some(0));
            assert_eq!(names.user_name(0).as_deref(), Some("root"));
            assert_eq!(names.group_id("root"), Some(0));
            assert_eq!(names.group_name(0).as_deref(), Some("root"));
            assert_eq!(names.user_id("no such user"), None);
        }
    }
}
