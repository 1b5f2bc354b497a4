//! Everybody who runs, and which attached client each belongs to.
//!
//! A scan reads the list of processes and looks closely only at those that are new, and at a few of the others in turn; a
//! number that another process has got meanwhile shows in the directory's inode. So a scan of 10,000 processes among
//! which little happens costs the reading of one directory. Between scans, process events tell of single processes.

use std::collections::{HashMap, HashSet};

use divvy_policy::ClientId;

use crate::procfs::{Comm, StartTime, Stat};
use crate::protect::Protection;
use crate::select::{Selector, is_below, matches_glob};
use crate::world::{Live, World};
use crate::{Pid, Result};

/// Processes that a scan looks at again although nothing says that they have changed.
const AGAIN: usize = 64;
/// So many parents are followed at most: a chain of them that never ends was read while it changed.
const DEPTH_MAX: usize = 4096;

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct Rule {
    pub client: ClientId,
    pub selector: Selector,
    /// When the process that the selector names by its number began: whoever has the number later is not meant.
    pub start: Option<StartTime>,
    /// Whose processes it is of: others' are its client's only by a tree or number, and are never held there.
    pub owner: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Person {
    inode: u64,
    start: StartTime,
    parent: Option<Pid>,
    group: Option<Pid>,
    session: Option<Pid>,
    comm: Comm,
    /// Its real user, once somebody has asked.
    user: Option<u32>,
}

impl Person {
    fn of(stat: &Stat, inode: u64, user: Option<u32>) -> Self {
        let (parent, group, session) = (stat.ppid, stat.pgrp, stat.session);
        Self { inode, start: stat.start, parent, group, session, comm: stat.comm, user }
    }
}

/// What has been read of one process for several rules.
#[derive(Debug, Default)]
struct Read {
    cgroups: Option<Vec<String>>,
    program: Option<Option<String>>,
    command: Option<Option<String>>,
    /// It and its ancestors, with their owners.
    family: Option<Vec<(Pid, Option<ClientId>)>>,
}

/// Whether a process's user is read again, or still the one that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// It may be another.
    Anew,
    /// Nothing says that it has changed.
    AsBefore,
}

/// What a scan found.
#[derive(Debug, Default)]
pub struct Changes {
    /// New, other than they were, or looked at again.
    pub seen: Vec<Pid>,
    /// Not there any more.
    pub gone: Vec<Pid>,
}

/// Everybody who runs, as far as we can see.
#[derive(Debug)]
pub struct Census<W: World = Live> {
    world: W,
    people: HashMap<Pid, Person>,
    /// Where the next look at those that were known before begins.
    again: i32,
    own: Pid,
    /// Somebody asks for users.
    users: bool,
}

impl<W: World> Census<W> {
    /// A census by process `own`, that has not looked at anybody yet.
    pub fn new(world: W, own: Pid) -> Self {
        Self { world, people: HashMap::new(), again: 0, own, users: false }
    }

    /// Reads everybody's user from now on: forks hand it on, so that few have to be read.
    pub fn ask_for_users(&mut self) {
        self.users = true;
    }

    /// Processes that are known.
    pub fn len(&self) -> usize {
        self.people.len()
    }

    /// Looks who runs.
    ///
    /// # Errors
    /// As [`World::each`].
    pub fn scan(&mut self, reads: &mut u64) -> Result<Changes> {
        let mut present = HashSet::with_capacity(self.people.len() + 64);
        let mut listed = Vec::with_capacity(self.people.len() + 64);
        self.world.each(&mut |pid, inode| listed.push((pid, inode)))?;
        let mut changes = Changes::default();
        listed.sort_unstable_by_key(|(pid, _)| pid.as_raw_pid());
        // Round and round, a few of those that seem to be as they were.
        let from = listed.partition_point(|(pid, _)| pid.as_raw_pid() < self.again);
        let again: HashSet<Pid> =
            listed.iter().cycle().skip(from).take(AGAIN.min(listed.len())).map(|(pid, _)| *pid).collect();
        self.again = match listed.get((from + AGAIN) % listed.len().max(1)) {
            Some((pid, _)) if listed.len() > AGAIN => pid.as_raw_pid(),
            _ => 0,
        };
        for (pid, inode) in listed {
            present.insert(pid);
            let known = self.people.get(&pid).is_some_and(|p| p.inode == inode);
            if !known || again.contains(&pid) {
                *reads += 1;
                if self.look(pid, inode, User::Anew) {
                    changes.seen.push(pid);
                }
            }
        }
        changes.gone = self.people.keys().filter(|pid| !present.contains(pid)).copied().collect();
        changes.gone.sort_unstable_by_key(|pid| pid.as_raw_pid());
        for pid in &changes.gone {
            self.people.remove(pid);
        }
        Ok(changes)
    }

    /// Who started `pid`; `None` where that cannot be read.
    fn user(&self, pid: Pid) -> Option<u32> {
        self.world.users(pid).ok().flatten().map(|users| users.real)
    }

    /// Looks at one process; whether it is there.
    fn look(&mut self, pid: Pid, inode: u64, user: User) -> bool {
        match self.world.stat(pid).ok().flatten().filter(|stat| !stat.state.is_ended()) {
            Some(stat) => {
                let before = self.people.get(&pid).and_then(|p| p.user).filter(|_| user == User::AsBefore);
                let asked = || if self.users { self.user(pid) } else { None };
                let user = before.or_else(asked);
                self.people.insert(pid, Person::of(&stat, inode, user));
                true
            }
            None => {
                self.people.remove(&pid);
                false
            }
        }
    }

    /// Somebody was told to have changed; whether it is still there.
    pub fn touch(&mut self, pid: Pid, user: User, reads: &mut u64) -> bool {
        *reads += 1;
        let inode = self.people.get(&pid).map_or(0, |p| p.inode);
        self.look(pid, inode, user)
    }

    /// Whether somebody who runs another program now, or has another name or session, can be of interest before the next
    /// scan: a member, or one whom a rule would make one whatever those are. Its user, group, parents and cgroup are as
    /// they were.
    pub fn may_concern(&self, pid: Pid, rules: &[Rule], owners: &HashMap<Pid, ClientId>) -> bool {
        let Some(person) = self.people.get(&pid) else { return true };
        let may_match = |rule: &Rule| match &rule.selector {
            Selector::Name(_) | Selector::Command(_) | Selector::Below(..) | Selector::Session(_) => true,
            Selector::User(uid) => person.user.is_none_or(|user| user == *uid),
            _ => self.matches(pid, person, rule, owners, &mut Read::default()),
        };
        owners.contains_key(&pid) || rules.iter().any(may_match)
    }

    /// The next scan looks at `pid` as if it were new.
    pub fn look_later(&mut self, pid: Pid) {
        if let Some(person) = self.people.get_mut(&pid) {
            person.inode = 0;
        }
    }

    /// Whether anybody of that number is known.
    pub fn knows(&self, pid: Pid) -> bool {
        self.people.contains_key(&pid)
    }

    /// `parent` was told to have made `child`, which is as its parent is until it is told to have changed.
    pub fn fork(&mut self, parent: Pid, child: Pid) {
        if let Some(&like) = self.people.get(&parent) {
            let person = Person { parent: Some(parent), inode: 0, ..like };
            self.people.insert(child, person);
        }
    }

    /// Everybody, in order.
    pub fn everybody(&self) -> Vec<Pid> {
        let mut all: Vec<Pid> = self.people.keys().copied().collect();
        all.sort_unstable_by_key(|pid| pid.as_raw_pid());
        all
    }

    /// When the process that has `pid` began, if it is known.
    #[cfg(test)]
    fn start(&self, pid: Pid) -> Option<StartTime> {
        self.people.get(&pid).map(|p| p.start)
    }

    /// The parent of `pid`, if it is known.
    pub fn parent(&self, pid: Pid) -> Option<Pid> {
        self.people.get(&pid)?.parent
    }

    /// The client that `pid` belongs to by `rules`, which are in order of precedence; `owners` says whose everybody is by
    /// now. Our own descendants belong to commands, and protected processes to nobody. A process is its own user's clients'
    /// first; in those of another owner it is at most as a part of a tree.
    pub fn claim(
        &self,
        pid: Pid,
        rules: &[Rule],
        owners: &HashMap<Pid, ClientId>,
        protection: &Protection,
    ) -> Option<ClientId> {
        let person = self.people.get(&pid)?;
        let mut read = Read::default();
        let user = std::cell::OnceCell::new();
        let own = |rule: &&Rule| {
            let is_of = |owner| *user.get_or_init(|| person.user.or_else(|| self.user(pid))) == Some(owner);
            rule.owner.is_none_or(is_of)
        };
        let own_rule =
            rules.iter().filter(own).find(|rule| self.matches(pid, person, rule, owners, &mut read));
        let by_descent = |rule: &&Rule| matches!(rule.selector, Selector::Pid(_) | Selector::Tree(_));
        let rule = match own_rule {
            // Of two trees, one of which is in the other, it is the inner one's.
            Some(Rule { selector: Selector::Tree(_), .. }) => {
                self.innermost(pid, rules.iter().filter(own), owners).or(own_rule)?
            }
            Some(rule) => rule,
            None => rules
                .iter()
                .filter(by_descent)
                .find(|rule| !own(rule) && self.matches(pid, person, rule, owners, &mut read))?,
        };
        // Last, for it costs more than most rules, and most processes match none.
        let never = protection.why(pid, person.start, &person.comm, person.parent).is_some();
        (!never && !self.descends(pid, self.own)).then_some(rule.client)
    }

    /// Whether `rule` names `pid`.
    fn matches(
        &self,
        pid: Pid,
        person: &Person,
        rule: &Rule,
        owners: &HashMap<Pid, ClientId>,
        read: &mut Read,
    ) -> bool {
        match &rule.selector {
            Selector::Pid(one) => pid == *one && self.is(*one, rule.start),
            // Whoever was in a tree stays in it: its parents may have ended.
            Selector::Tree(root) => {
                let family = read.family.get_or_insert_with(|| {
                    let family = std::iter::once(pid).chain(self.ancestors(pid));
                    family.map(|p| (p, owners.get(&p).copied())).collect()
                });
                let is_root = |p: Pid| p == *root && self.is(p, rule.start);
                family.iter().any(|&(p, owner)| owner == Some(rule.client) || is_root(p))
            }
            Selector::Group(group) => person.group == Some(*group),
            Selector::Session(session) => person.session == Some(*session),
            Selector::Cgroup(path) => {
                let paths = read.cgroups.get_or_insert_with(|| self.world.cgroups(pid));
                paths.iter().any(|p| is_below(p, path))
            }
            Selector::Name(pattern) => self.has_name(pid, person, pattern, rule, read),
            // What stands in a process's memory is not read for others: see `has_name`.
            Selector::Command(pattern) => rule.owner.is_none() && self.has_command(pid, pattern, read),
            Selector::Below(above, of) => {
                let matches = match &**of {
                    Selector::Name(pattern) => self.has_name(pid, person, pattern, rule, read),
                    Selector::Command(pattern) => {
                        rule.owner.is_none() && self.has_command(pid, pattern, read)
                    }
                    _ => false,
                };
                let is_above = |p: Pid| {
                    let comm = self.people.get(&p).map(|p| String::from_utf8_lossy(p.comm.as_bytes()));
                    comm.is_some_and(|comm| matches_glob(above, &comm))
                };
                matches && self.ancestors(pid).any(is_above)
            }
            Selector::User(uid) => person.user.or_else(|| self.user(pid)) == Some(*uid),
        }
    }

    /// Whether the kernel's name of `pid`, or the one that it was called by, matches.
    fn has_name(&self, pid: Pid, person: &Person, pattern: &str, rule: &Rule, read: &mut Read) -> bool {
        if matches_glob(pattern, &String::from_utf8_lossy(person.comm.as_bytes())) {
            return true;
        }
        // How it was called stands in its own memory. A user can lay that out so that whoever reads it waits for as
        // long as that user likes (a mapped file of a file system that the user serves), or reads megabytes.
        if rule.owner.is_some() {
            return false;
        }
        let program = read.program.get_or_insert_with(|| self.world.program(pid));
        program.as_deref().is_some_and(|name| matches_glob(pattern, name))
    }

    /// Whether the command line of `pid` matches.
    fn has_command(&self, pid: Pid, pattern: &str, read: &mut Read) -> bool {
        let command = read.command.get_or_insert_with(|| self.world.command(pid));
        command.as_deref().is_some_and(|line| matches_glob(pattern, line))
    }

    /// Of the trees that `pid` is in, the one whose root is nearest. Whoever has lost the root of its tree, its parents having
    /// ended, is in that tree all the same, and so is what it makes.
    fn innermost<'r>(
        &self,
        pid: Pid,
        rules: impl Iterator<Item = &'r Rule> + Clone,
        owners: &HashMap<Pid, ClientId>,
    ) -> Option<&'r Rule> {
        let root_of = |rule: &Rule| match rule.selector {
            Selector::Tree(root) => Some(root),
            _ => None,
        };
        std::iter::once(pid).chain(self.ancestors(pid)).find_map(|p| {
            let mut roots = rules.clone().filter(|rule| root_of(rule) == Some(p) && self.is(p, rule.start));
            let lost = || {
                let of = owners.get(&p)?;
                let rule = rules.clone().find(|rule| rule.client == *of)?;
                let root = root_of(rule)?;
                (!self.ancestors(p).any(|a| a == root && self.is(a, rule.start))).then_some(rule)
            };
            roots.next().or_else(lost)
        })
    }

    /// Whether `pid` is still the process that began at `start`.
    fn is(&self, pid: Pid, start: Option<StartTime>) -> bool {
        start.is_none_or(|start| self.people.get(&pid).is_some_and(|p| p.start == start))
    }

    /// Whether `ancestor` is one of `pid`'s.
    pub fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        self.ancestors(pid).any(|a| a == ancestor)
    }

    fn ancestors(&self, pid: Pid) -> impl Iterator<Item = Pid> + '_ {
        std::iter::successors(self.parent(pid), |&p| self.parent(p)).take(DEPTH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::State;
    use crate::owner::Users;
    use crate::world::script::{Script, pid};

    impl Script {
        /// `n (comm)`, child of `parent`, leading or in group and session `group`, of `user`.
        fn add(self, n: i32, comm: &str, parent: i32, group: i32, user: u32) -> Self {
            let script = self.with(n, State::Sleeping, 0);
            script.change(n, |p| {
                (p.start, p.parent, p.group, p.users) = (1000 + n as u64, parent, group, Users::all(user));
                (p.comm, p.program) = (comm.into(), comm.into());
            });
            script
        }
    }

    const OWN: i32 = 50;

    fn machine() -> (Script, Census<Script>) {
        let script = Script::default()
            .add(1, "init", 0, 1, 0)
            .add(10, "sh", 1, 10, 1000)
            .add(11, "make", 10, 11, 1000)
            .add(12, "cc1", 11, 11, 1000)
            .add(20, "sh", 1, 20, 1001)
            .add(OWN, "divvy", 10, OWN, 1000)
            .add(51, "sh", OWN, 51, 1000);
        let census = Census::new(script.clone(), pid(OWN));
        (script, census)
    }

    fn rules(selectors: &[&str]) -> Vec<Rule> {
        let rule = |(i, s): (usize, &&str)| Rule {
            client: ClientId(i as u32),
            selector: s.parse().expect("a selector"),
            start: None,
            owner: None,
        };
        let mut rules: Vec<Rule> = selectors.iter().enumerate().map(rule).collect();
        rules.sort_by_key(|r| (r.selector.rank(), r.client));
        rules
    }

    fn check_claims(
        census: &Census<Script>,
        selectors: &[&str],
        owners: &[(i32, u32)],
        expected: &[(i32, u32)],
    ) {
        let owners = owners.iter().map(|&(n, c)| (pid(n), ClientId(c))).collect();
        let rules = rules(selectors);
        let found: Vec<(i32, u32)> = census
            .everybody()
            .into_iter()
            .filter_map(|p| Some((p.as_raw_pid(), census.claim(p, &rules, &owners, &Protection::none())?.0)))
            .collect();
        assert_eq!(found, expected, "{selectors:?}");
    }

    #[test]
    fn each_selector_has_its_processes() {
        let (script, mut census) = machine();
        script.change(20, |e| e.cgroup = "/a/b".into());
        census.scan(&mut 0).unwrap();
        check_claims(&census, &["pid:11"], &[], &[(11, 0)]);
        check_claims(&census, &["tree:11"], &[], &[(11, 0), (12, 0)]);
        check_claims(&census, &["group:11"], &[], &[(11, 0), (12, 0)]);
        check_claims(&census, &["session:20"], &[], &[(20, 0)]);
        check_claims(&census, &["cgroup:/a"], &[], &[(20, 0)]);
        check_claims(&census, &["name:c*"], &[], &[(12, 0)]);
        // divvy itself is 50, and its children are its commands'. Protection is somebody else's test.
        check_claims(&census, &["user:1000"], &[], &[(10, 0), (11, 0), (12, 0), (50, 0)]);
        check_claims(&census, &["name:nobody-has-it"], &[], &[]);
    }

    #[test]
    fn the_narrower_selector_has_a_process_and_then_the_first_client() {
        let (_, mut census) = machine();
        census.scan(&mut 0).unwrap();
        check_claims(
            &census,
            &["user:1000", "name:make", "pid:12"],
            &[],
            &[(10, 0), (11, 1), (12, 2), (50, 0)],
        );
        check_claims(&census, &["user:1001", "user:1001"], &[], &[(20, 0)]);
    }

    #[test]
    fn a_process_is_its_own_users_clients_first_and_in_others_only_by_descent() {
        let (script, mut census) = machine();
        // `sudo` of user 1000, and what it starts as user 1001.
        let script = script.add(13, "sudo", 11, 11, 1000).add(14, "cc1", 13, 11, 1001);
        script.change(14, |e| e.parent = 13);
        census.ask_for_users();
        census.scan(&mut 0).unwrap();
        let claims = |selectors: &[(&str, u32)]| {
            let mut rules = Vec::new();
            for (i, (selector, owner)) in selectors.iter().enumerate() {
                let (client, selector) = (ClientId(i as u32), selector.parse().expect("a selector"));
                rules.push(Rule { client, selector, start: None, owner: Some(*owner) });
            }
            rules.sort_by_key(|r| (r.selector.rank(), r.client));
            let claim = |n| census.claim(pid(n), &rules, &HashMap::new(), &Protection::none()).map(|c| c.0);
            [10, 11, 12, 13, 14, 20].map(claim)
        };
        // By name, group or user nobody gets another's processes.
        assert_eq!(claims(&[("name:cc1", 1000)]), [None, None, Some(0), None, None, None]);
        assert_eq!(claims(&[("group:11", 1000)]), [None, Some(0), Some(0), Some(0), None, None]);
        assert_eq!(claims(&[("user:1000", 1001)]), [None; 6]);
        assert_eq!(claims(&[("name:*", 1001)]), [None, None, None, None, Some(0), Some(0)]);
        // In a tree they are members, unless their own user has a client for them, however broad.
        let tree = claims(&[("tree:11", 1000)]);
        assert_eq!(tree, [None, Some(0), Some(0), Some(0), Some(0), None]);
        let both = claims(&[("tree:11", 1000), ("user:1001", 1001)]);
        assert_eq!(both, [None, Some(0), Some(0), Some(0), Some(1), Some(1)]);
    }

    #[test]
    fn a_users_pattern_goes_by_the_kernels_name_only() {
        let (script, mut census) = machine();
        script.change(12, |e| e.program = "compiler".into());
        census.scan(&mut 0).unwrap();
        let claims = |pattern: &str, owner| {
            let selector = pattern.parse().expect("a selector");
            let rules = [Rule { client: ClientId(0), selector, start: None, owner }];
            census.claim(pid(12), &rules, &HashMap::new(), &Protection::none()).is_some()
        };
        assert!(claims("name:compiler", None) && claims("name:cc1", None));
        assert!(claims("name:cc1", Some(1000)));
        assert!(!claims("name:compiler", Some(1000)), "a user's memory is not read");
    }

    #[test]
    fn whoever_is_in_a_tree_stays_in_it() {
        let (script, mut census) = machine();
        census.scan(&mut 0).unwrap();
        // The root ends, and its child is init's from now on.
        script.ends(11);
        script.change(12, |e| e.parent = 1);
        let changes = census.scan(&mut 0).unwrap();
        assert_eq!(changes.gone, [pid(11)]);
        check_claims(&census, &["tree:11"], &[(12, 0)], &[(12, 0)]);
        check_claims(&census, &["tree:11"], &[], &[]);
        // A child of a member that has lost its root is one as well.
        let script = script.add(13, "as", 12, 11, 1000);
        census.scan(&mut 0).unwrap();
        check_claims(&census, &["tree:11"], &[(12, 0)], &[(12, 0), (13, 0)]);
        drop(script);
    }

    #[test]
    fn of_two_trees_the_inner_one_has_a_process() {
        let (script, mut census) = machine();
        let script = script.add(13, "as", 12, 11, 1000).add(14, "ld", 13, 11, 1000);
        census.scan(&mut 0).unwrap();
        for selectors in [["tree:11", "tree:13"], ["tree:13", "tree:11"]] {
            let inner = u32::from(selectors[1] == "tree:13");
            let outer = 1 - inner;
            let expected = [(11, outer), (12, outer), (13, inner), (14, inner)];
            check_claims(&census, &selectors, &[], &expected);
            // Whoever was in the outer one before the inner one came is no exception.
            check_claims(&census, &selectors, &[(11, outer), (13, outer), (14, outer)], &expected);
        }
        // The inner root ends, and its child is the outer root's or init's now: it stays in its tree, with what it makes.
        script.ends(13);
        let script = script.add(15, "cc1", 14, 11, 1000);
        for parent in [11, 1] {
            script.change(14, |e| e.parent = parent);
            census.touch(pid(14), User::AsBefore, &mut 0);
            census.scan(&mut 0).unwrap();
            let owners = [(11, 0), (12, 0), (14, 1)];
            check_claims(&census, &["tree:11", "tree:13"], &owners, &[(11, 0), (12, 0), (14, 1), (15, 1)]);
        }
    }

    #[test]
    fn a_recycled_number_is_looked_at_anew() {
        let mut script = Script::default();
        for n in 1..=2000 {
            script = script.add(n, "worker", 0, 1, 1000);
        }
        let mut census = Census::new(script.clone(), pid(5000));
        let mut reads = 0;
        census.scan(&mut reads).unwrap();
        assert_eq!((census.len(), reads), (2000, 2000));
        // Far from those that are looked at again next, somebody else gets a number.
        script.change(1900, |e| {
            e.inode += 100_000;
            e.start = 99_999;
        });
        reads = 0;
        let changes = census.scan(&mut reads).unwrap();
        assert!(changes.seen.contains(&pid(1900)));
        assert_eq!(census.start(pid(1900)), Some(StartTime(99_999)));
        assert_eq!(reads, 1 + AGAIN as u64, "nobody else was looked at");
        // In turn, everybody is looked at again.
        let mut seen = HashSet::new();
        for _ in 0..2000_usize.div_ceil(AGAIN) {
            seen.extend(census.scan(&mut reads).unwrap().seen);
        }
        assert_eq!(seen.len(), 2000);
    }

    #[test]
    fn a_number_means_the_process_that_had_it() {
        let (script, mut census) = machine();
        census.scan(&mut 0).unwrap();
        for selector in ["pid:11", "tree:11"] {
            let mut rules = rules(&[selector]);
            rules[0].start = census.start(pid(11));
            let claim = |census: &Census<Script>, n| {
                census.claim(pid(n), &rules, &HashMap::new(), &Protection::none()).is_some()
            };
            assert!(claim(&census, 11) && claim(&census, 12) == (selector == "tree:11"));
            // The number is given again, and a child of the first has that for its parent's.
            script.change(11, |e| (e.inode, e.start) = (e.inode + 1, e.start + 1));
            census.scan(&mut 0).unwrap();
            assert!(!claim(&census, 11) && !claim(&census, 12), "{selector}");
        }
    }

    #[test]
    fn whoever_hides_or_has_ended_is_nobody() {
        let (script, mut census) = machine();
        script.change(11, |e| e.unreadable = Some(Errno::ACCESS));
        script.change(12, |e| e.state = State::Zombie);
        census.scan(&mut 0).unwrap();
        check_claims(&census, &["user:1000"], &[], &[(10, 0), (50, 0)]);
        script.change(11, |e| e.unreadable = None);
        census.scan(&mut 0).unwrap();
        check_claims(&census, &["user:1000"], &[], &[(10, 0), (11, 0), (50, 0)]);
    }

    #[test]
    fn events_tell_of_one_process() {
        let (script, mut census) = machine();
        let mut reads = 0;
        census.scan(&mut reads).unwrap();
        reads = 0;
        census.fork(pid(11), pid(14));
        check_claims(&census, &["group:11"], &[], &[(11, 0), (12, 0), (14, 0)]);
        assert_eq!(reads, 0, "a child is as its parent");
        let script = script.add(14, "as", 11, 14, 1000);
        assert!(census.touch(pid(14), User::AsBefore, &mut reads));
        check_claims(&census, &["group:11"], &[], &[(11, 0), (12, 0)]);
        script.ends(14);
        assert!(!census.touch(pid(14), User::AsBefore, &mut reads));
        assert_eq!(census.start(pid(14)), None);
        census.fork(pid(999), pid(15));
        assert_eq!(census.start(pid(15)), None, "the child of somebody unknown waits for a scan");
    }

    #[test]
    fn users_are_handed_on_and_read_anew_where_they_may_have_changed() {
        let (script, mut census) = machine();
        census.ask_for_users();
        census.scan(&mut 0).unwrap();
        script.change(12, |e| e.users = Users::all(1001));
        assert!(census.touch(pid(12), User::AsBefore, &mut 0));
        check_claims(&census, &["user:1001"], &[], &[(20, 0)]);
        assert!(census.touch(pid(12), User::Anew, &mut 0));
        check_claims(&census, &["user:1001"], &[], &[(12, 0), (20, 0)]);
        census.fork(pid(12), pid(13));
        check_claims(&census, &["user:1001"], &[], &[(12, 0), (13, 0), (20, 0)]);
    }

    #[test]
    fn only_whom_a_rule_may_mean_is_looked_at_before_the_next_scan() {
        let (script, mut census) = machine();
        census.ask_for_users();
        census.scan(&mut 0).unwrap();
        let owners: HashMap<Pid, ClientId> = [(pid(11), ClientId(0))].into();
        for (selectors, concerned) in [
            (&["user:1001"][..], &[11, 20][..]),
            (&["tree:11"], &[11, 12]),
            (&["group:20"], &[11, 20]),
            // A name or a session may be another by now.
            (&["user:1001", "name:cc1"], &[1, 10, 11, 12, 20]),
            (&["session:10"], &[1, 10, 11, 12, 20]),
        ] {
            let rules = rules(selectors);
            let found: Vec<i32> = [1, 10, 11, 12, 20]
                .into_iter()
                .filter(|&n| census.may_concern(pid(n), &rules, &owners))
                .collect();
            assert_eq!(found, concerned, "{selectors:?}");
            assert!(census.may_concern(pid(99), &rules, &owners), "of somebody unknown nothing is known");
        }
        // Whoever was left out is looked at by the next scan, though nothing else tells that it has changed: it is beyond
        // those that are looked at anyway.
        for n in 100..100 + 2 * AGAIN as i32 {
            script.clone().add(n, "sleep", 1, n, 1000);
        }
        let last = 99 + 2 * AGAIN as i32;
        census.scan(&mut 0).unwrap();
        for later in [false, true] {
            script.change(last, |e| {
                e.comm = "make".into();
            });
            census.again = 0;
            if later {
                census.look_later(pid(last));
            }
            let seen = census.scan(&mut 0).unwrap().seen;
            assert_eq!(seen.contains(&pid(last)), later);
        }
        let rules = rules(&["name:make"]);
        let claim = census.claim(pid(last), &rules, &HashMap::new(), &Protection::none());
        assert_eq!(claim, Some(ClientId(0)));
    }

    #[test]
    fn parents_in_a_ring_end() {
        let script = Script::default().add(30, "a", 31, 30, 0).add(31, "b", 30, 30, 0);
        let mut census = Census::new(script, pid(OWN));
        census.scan(&mut 0).unwrap();
        check_claims(&census, &["tree:77"], &[], &[]);
    }
}
