//! Moving processes by the user's systemd, where the kernel refuses it to us.
//!
//! Who moves a process from one cgroup to another must have the right to write to the `cgroup.procs` of the cgroup around both. Around
//! a login session and what the user's systemd has made that is the user's slice, which is root's. On request
//! (`AttachProcessesToUnit`) the user's systemd moves processes into a cgroup of a unit that is delegated; where the kernel refuses
//! it that, too, it asks the first systemd, which does it if process and unit are this user's.
//!
//! The same holds for whom it moves as for those who ask for a scope ([`super::scope`]): whoever is kept in some cgroup, or may outlive
//! the session, stays where it is.
//!
//! Asking takes some 10 ms. Whoever is there when a client comes is moved at once, all in one go. Whoever joins it later waits, so that
//! asking takes one part in a hundred of the time.

use std::path::{Path, PathBuf};

use divvy_policy::{ClientId, Instant, Nanos};

use super::scope::{self, Lifetime};
use super::survey::{Ground, Hierarchy};
use super::tree::Tree;
use super::users::WithLeaves;
use crate::{Error, Pid, clock, procfs};

/// Asking takes at most one part in this many of the time, where nobody waits for it.
const REST: u64 = 100;
/// So many processes are moved by one request.
const BATCH: usize = 256;
/// So often systemd is asked for those of a request whom it did not move: it moves nobody where one of them has ended.
const ATTEMPTS: usize = 3;
/// A systemd that takes longer to answer is not asked again until it has rested, whoever waits: clients are held meanwhile.
const SLOW: Nanos = Nanos::from_millis(500);

/// When those are to be moved who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Now: somebody waits for a client.
    Now,
    /// When asking has rested long enough.
    Later,
}

/// A unit of the user's systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unit {
    name: String,
    dir: PathBuf,
}

impl Unit {
    /// The unit of user `uid`'s systemd that `ground` is in.
    fn around(ground: &Ground, uid: u32) -> Option<Self> {
        if ground.hierarchy != Hierarchy::Unified || ground.shown != Path::new("/") || uid == 0 {
            return None;
        }
        let mut dir = ground.mount.join(format!("user.slice/user-{uid}.slice/user@{uid}.service"));
        let below = ground.dir.strip_prefix(&dir).ok()?.to_owned();
        for part in &below {
            dir.push(part);
            let name = part.to_str()?;
            if name.ends_with(".scope") || name.ends_with(".service") {
                return Some(Self { name: name.to_owned(), dir });
            }
        }
        None
    }

    /// Has systemd move `pids`, all of which are in `from`, to `to`, which is below this unit, within `limit`.
    fn take(&self, pids: &[Pid], from: &str, to: &Path, limit: Nanos) -> Result<(), String> {
        let place = scope::whom(false, Lifetime::Daemon, from)?;
        let below = to.strip_prefix(&self.dir).unwrap_or(Path::new("")).display();
        let mut words = ["AttachProcessesToUnit", "ssau", &self.name].map(str::to_owned).to_vec();
        words.extend([format!("/{below}"), pids.len().to_string()]);
        words.extend(pids.iter().map(ToString::to_string));
        scope::call(&place, words, limit)
    }
}

/// Has those moved by systemd whom the kernel does not let us move.
#[derive(Debug)]
pub(super) struct Migrator {
    unit: Unit,
    waiting: Vec<(ClientId, Pid)>,
    /// When systemd may be asked again where nobody waits for it, and whether it was slow the last time: then in no case sooner.
    rested: Instant,
    silent: bool,
}

impl Migrator {
    /// `None` where the user's systemd has nothing to do with `ground`.
    pub(super) fn of(ground: &Ground) -> Option<Self> {
        let unit = Unit::around(ground, rustix::process::geteuid().as_raw())?;
        Some(Self { unit, waiting: Vec::new(), rested: Instant::ZERO, silent: false })
    }
}

/// What systemd is asked once: to move those that are in one cgroup, by its `/proc/PID/cgroup`, to another.
struct Request {
    to: PathBuf,
    members: Vec<(ClientId, Pid)>,
}

/// Somebody who was not moved, and why.
pub(crate) type NotMoved = (ClientId, Pid, String);

impl Tree {
    /// Notes a process of `client` that was to be moved, and for which `e` was the answer, for systemd to move it. Whether that can be.
    pub(crate) fn await_migration(&mut self, client: ClientId, pid: Pid, e: &Error) -> bool {
        let Some(migrator) = self.migrator.as_mut().filter(|_| matches!(e, Error::Permission { .. })) else {
            return false;
        };
        migrator.waiting.retain(|(_, waiting)| *waiting != pid);
        migrator.waiting.push((client, pid));
        true
    }

    /// Those who wait, if it is time to move them: nobody waits then.
    pub(crate) fn take_waiting(&mut self, urgency: Urgency) -> Vec<(ClientId, Pid)> {
        let Some(migrator) = self.migrator.as_mut().filter(|migrator| !migrator.waiting.is_empty()) else {
            return Vec::new();
        };
        let rests = urgency == Urgency::Later || migrator.silent;
        match rests && clock::now() < migrator.rested {
            true => Vec::new(),
            false => std::mem::take(&mut migrator.waiting),
        }
    }

    /// Whose processes wait because systemd was slow the last time.
    pub(crate) fn kept_waiting(&self) -> Vec<ClientId> {
        let waiting = self.migrator.iter().filter(|migrator| migrator.silent).flat_map(|m| &m.waiting);
        waiting.map(|&(client, _)| client).collect()
    }

    /// Why a process is not to be moved out of where it is, though the kernel may let us: a service of the user's systemd, or a scope
    /// with limits, which would hold no longer.
    pub(crate) fn must_stay(&self, pid: Pid) -> Option<String> {
        let migrator = self.migrator.as_ref()?;
        // What has ended is nowhere, and what is below our unit was moved there or born there.
        let now = self.ground.cgroup_of(pid).filter(|now| !now.starts_with(&migrator.unit.dir))?;
        let why = scope::whom(false, Lifetime::Daemon, &procfs::cgroup_text(pid)).err()?;
        self.ground.cgroup_of(pid).filter(|later| *later == now).map(|_| why)
    }

    /// Has systemd move each of `waiting` into the leaf of its client, and returns whom it did not.
    pub(crate) fn migrate(
        &mut self,
        waiting: Vec<(ClientId, Pid)>,
        leaves: &mut impl WithLeaves,
    ) -> Vec<NotMoved> {
        let mut not_moved = Vec::new();
        let mut requests: Vec<Request> = Vec::new();
        for (client, pid) in waiting {
            let Some(Some(leaf)) = leaves.leaf(client.index()) else { continue };
            match self.part_for(leaf, pid) {
                Ok(Some(to)) => match requests.iter_mut().find(|r| r.to == to && r.members.len() < BATCH) {
                    Some(request) => request.members.push((client, pid)),
                    None => requests.push(Request { to, members: vec![(client, pid)] }),
                },
                Ok(None) => {}
                Err(e) => not_moved.push((client, pid, e.to_string())),
            }
        }
        let (Some(migrator), ground) = (&mut self.migrator, &self.ground) else { return not_moved };
        let began = clock::now();
        let left = || scope::PATIENCE.saturating_sub(clock::now().since(began));
        for Request { to, members } in requests {
            if left() == Nanos::ZERO {
                migrator.waiting.extend(members);
                continue;
            }
            let is_elsewhere = |pid| ground.cgroup_of(pid).is_some_and(|now| !now.starts_with(&to));
            let mut asked = Ok(());
            for _ in 0..ATTEMPTS {
                let pids: Vec<Pid> =
                    members.iter().map(|&(_, pid)| pid).filter(|&pid| is_elsewhere(pid)).collect();
                let Some(&first) = pids.first() else { break };
                asked = migrator.unit.take(&pids, &procfs::cgroup_text(first), &to, left());
                if asked.is_ok() || left() == Nanos::ZERO {
                    break;
                }
            }
            for (client, pid) in members.into_iter().filter(|&(_, pid)| is_elsewhere(pid)) {
                let why = asked.as_ref().err().map_or("it has not done it", String::as_str);
                not_moved.push((
                    client,
                    pid,
                    format!("systemd moves nobody to {}: {why}", migrator.unit.name),
                ));
            }
        }
        let took = clock::now().since(began);
        migrator.rested = clock::now() + Nanos(took.0.saturating_mul(REST));
        migrator.silent = took >= SLOW;
        not_moved
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::super::tree::Purpose;
    use super::super::{Enable, Knob};
    use super::*;
    use crate::StartTime;

    fn ground(dir: &str) -> Ground {
        Ground {
            dir: dir.into(),
            home: dir.into(),
            mount: "/cg".into(),
            shown: "/".into(),
            hierarchy: Hierarchy::Unified,
            knob: Knob::Weight,
            enable: Enable::Nothing,
        }
    }

    #[test]
    fn what_is_delegated_is_the_first_unit_of_the_users_systemd() {
        let manager = "/cg/user.slice/user-7.slice/user@7.service";
        let of = |below: &str| Unit::around(&ground(&format!("{manager}{below}")), 7);
        let unit = |name: &str, below: &str| {
            Some(Unit { name: name.to_owned(), dir: format!("{manager}{below}").into() })
        };
        let scope = unit("divvy-5-9.scope", "/app.slice/divvy-5-9.scope");
        assert_eq!(of("/app.slice/divvy-5-9.scope"), scope);
        assert_eq!(of("/app.slice/divvy-5-9.scope/home/a.scope"), scope);
        assert_eq!(of("/divvyd.service"), unit("divvyd.service", "/divvyd.service"));
        // A slice is not delegated, and the others are not theirs.
        assert_eq!(of("/app.slice"), None);
        assert_eq!(of(""), None);
        for (dir, uid) in [
            ("/cg/user.slice/user-7.slice/session-2.scope", 7),
            ("/cg/system.slice/divvyd.service", 7),
            ("/cg/user.slice/user-7.slice/user@7.service/a.scope", 8),
            ("/cg/user.slice/user-0.slice/user@0.service/a.scope", 0),
        ] {
            assert_eq!(Unit::around(&ground(dir), uid), None, "{dir}");
        }
        let mut part = ground(&format!("{manager}/a.scope"));
        assert!(Unit::around(&part, 7).is_some());
        part.shown = "/container".into();
        assert_eq!(Unit::around(&part, 7), None);
    }

    /// Nobody is asked for anybody twice, and those who join later wait while asking rests; all wait for a systemd that does not answer.
    #[test]
    fn who_waits_is_taken_when_asking_has_rested() {
        let ground = ground("/cg/user.slice/user-7.slice/user@7.service/a.scope");
        let unit = Unit::around(&ground, 7).expect("a unit");
        let [one, two] = [1, 2].map(|pid| Pid::from_raw(pid).expect("positive"));
        let mut tree = Tree::plan(ground, Purpose::Freeze, one, StartTime(1));
        let refused = Error::system("move a process to", "a", Errno::ACCESS);
        let note = |tree: &mut Tree, client, pid| tree.await_migration(ClientId(client), pid, &refused);
        tree.migrator = None;
        assert!(!note(&mut tree, 1, one), "there is no systemd to ask");
        let rested = clock::now() + Nanos::from_secs(60);
        tree.migrator = Some(Migrator { unit, waiting: Vec::new(), rested, silent: false });
        let full = Error::system("move a process to", "a", Errno::AGAIN);
        assert!(!tree.await_migration(ClientId(1), one, &full), "nobody could move it");
        assert!(note(&mut tree, 1, one) && note(&mut tree, 1, two) && note(&mut tree, 2, one));
        assert_eq!(tree.take_waiting(Urgency::Later), []);
        assert_eq!(tree.take_waiting(Urgency::Now), [(ClientId(1), two), (ClientId(2), one)]);
        assert_eq!(tree.take_waiting(Urgency::Now), []);
        assert!(note(&mut tree, 1, one));
        tree.migrator.as_mut().expect("just set").silent = true;
        assert_eq!(tree.take_waiting(Urgency::Now), []);
        tree.migrator.as_mut().expect("just set").rested = Instant::ZERO;
        assert_eq!(tree.take_waiting(Urgency::Later), [(ClientId(1), one)]);
    }
}
