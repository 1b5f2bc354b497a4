//! What attaching would do, and who the members are: looks that change nothing.

use divvy_policy::{ClientId, Nanos};

use super::{MemberInfo, select_error};
use crate::census::Rule;
use crate::host::LinuxHost;
use crate::members::Look;
use crate::procfs::{self, StartTime, State};
use crate::protect::{Protection, Why};
use crate::select::Selector;
use crate::{Error, Pid, ProcessRef, Result, clock};

/// A process that a selector names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Its pid.
    pub pid: Pid,
    /// The kernel's name of it.
    pub name: String,
    /// Whether it may be signalled.
    pub permitted: bool,
    /// Why it is never touched, if it is not.
    pub why: Option<Why>,
    /// The client that has it and would keep it, by as narrow a selector.
    pub owner: Option<ClientId>,
}

/// A member as it is known, without a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMember {
    /// Its pid.
    pub pid: Pid,
    /// When it began: another process of the same pid began later.
    pub start: StartTime,
    /// Whether it may be signalled.
    pub permitted: bool,
}

impl LinuxHost {
    /// The processes that `selector` names just now, by pid, and what would become of each as members of a client of `user`'s, if
    /// that is given. Nothing is changed.
    ///
    /// # Errors
    /// As [`attach_for`](Self::attach_for) would; as [`procfs::stat`] where the list of processes cannot be read.
    pub fn plan(&mut self, selector: &Selector, user: Option<u32>) -> Result<Vec<Match>> {
        let start = self.check(selector, user)?;
        let found = self.matches(selector, start, user)?;
        let is_nobody = found.iter().all(|m| m.why.is_some() || m.owner.is_some());
        if is_nobody && selector.must_match() { Err(nobody(selector, found)) } else { Ok(found) }
    }

    fn matches(
        &mut self,
        selector: &Selector,
        start: Option<StartTime>,
        user: Option<u32>,
    ) -> Result<Vec<Match>> {
        self.scan_processes(true)?;
        let new = self.clients.next_id();
        let only = [Rule { client: new, selector: selector.clone(), start, owner: user }];
        let a = &self.attached;
        let mut rules = a.rules.clone();
        let order = (selector.rank(), new);
        let at = rules.partition_point(|r| (r.selector.rank(), r.client) < order);
        rules.insert(at, only[0].clone());
        let nobody = Protection::none();
        let mut found = Vec::new();
        for pid in a.census.everybody() {
            if a.census.claim(pid, &only, &a.owners, &nobody).is_none() {
                continue;
            }
            // What has ended since the look is nobody's.
            let Some(stat) = procfs::stat(pid)?.filter(|s| !s.state.is_ended()) else { continue };
            let permitted = ProcessRef::open(pid)?.map(|p| p.may_signal()).transpose()?.flatten();
            let why = a.protection.why(pid, stat.start, &stat.comm, stat.ppid);
            let owner = a.census.claim(pid, &rules, &a.owners, &nobody).filter(|&owner| owner != new);
            let owned = match user {
                Some(user) => crate::users(pid)?.is_some_and(|users| users.is_owned_by(user)),
                None => true,
            };
            let permitted = owned && permitted.unwrap_or(false);
            found.push(Match { pid, name: stat.comm.to_string(), permitted, why, owner });
        }
        Ok(found)
    }

    /// Why `selector`, which names somebody, makes no client.
    pub(super) fn why_nobody(
        &mut self,
        selector: &Selector,
        start: Option<StartTime>,
        user: Option<u32>,
    ) -> Result<Error> {
        Ok(nobody(selector, self.matches(selector, start, user)?))
    }

    /// The first `most` members of `client` that are known, by pid, without a look at them.
    #[must_use]
    pub fn known_members(&self, client: ClientId, most: usize) -> Vec<KnownMember> {
        let Some(c) = self.clients.get(client.index()).filter(|c| !c.is_gone() && most > 0) else {
            return Vec::new();
        };
        let known =
            c.members.known().map(|m| KnownMember { pid: m.pid, start: m.start, permitted: m.permitted });
        let mut known: Vec<KnownMember> = known.collect();
        known.sort_unstable_by_key(|m| m.pid.as_raw_pid());
        known.truncate(most);
        known
    }

    /// CPU time that the known members of `client` have used; `None` where it has ended or cannot be read. Unlike a
    /// measurement, nobody is looked for: only clocks are read, about .3 us for each member.
    pub fn peek(&mut self, client: ClientId) -> Option<Nanos> {
        let c = self.clients.get_mut(client.index()).filter(|c| !c.is_gone())?;
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        c.members.total(look).ok()
    }

    /// The first `most` members of `client` that are known, by pid. Each costs a look at `/proc`, about 5 us.
    #[must_use]
    pub fn members_up_to(&self, client: ClientId, most: usize) -> Vec<MemberInfo> {
        let Some(c) = self.clients.get(client.index()).filter(|c| !c.is_gone() && most > 0) else {
            return Vec::new();
        };
        let mut known: Vec<_> = c.members.known().collect();
        known.sort_unstable_by_key(|m| m.pid.as_raw_pid());
        known.truncate(most);
        let info = known.into_iter().map(|known| {
            let stat = procfs::stat(known.pid).ok().flatten().filter(|s| s.start == known.start);
            MemberInfo {
                pid: known.pid,
                name: stat.map_or_else(String::new, |s| s.comm.to_string()),
                state: stat.map_or(State::Dead, |s| s.state),
                cpu: known.used,
                permitted: known.permitted,
                held: known.held,
            }
        });
        info.collect()
    }
}

/// Why `selector`, which names those `found`, makes no client: whose they are, or why they are never touched.
fn nobody(selector: &Selector, found: Vec<Match>) -> Error {
    if let Some(of) = found.iter().find_map(|m| m.owner.filter(|_| m.why.is_none())) {
        return Error::Taken { selector: selector.to_string(), of };
    }
    match found.into_iter().find_map(|m| m.why) {
        Some(why) => select_error(selector, format!("it is never touched: {why}"), "choose another process"),
        None => {
            let what = "no process to be scheduled".to_owned();
            select_error(selector, what, "look with 'divvy explain PID'")
        }
    }
}
