//! The cgroups around one user's leaves each: what a client leaves is its own user's other clients' first.
//!
//! *Problem*: a reader that waits for the disk does not use its part of the CPU. Were all leaves beside each other, everybody
//! would have a part of what it leaves, and its user less than it is due. *Idea*: values stay those of leaves, which a graph of
//! currencies has said; a user's cgroup has what its leaves have together, and so changes nothing as long as all of them
//! want what they are due. *Weak spot*: within a user's cgroup what one client leaves is everybody's, whichever currency of the user
//! funds it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use divvy_policy::ClientId;

use super::leaf::{Leaf, is_gone};
use super::rights::{DISK_WEIGHTS, Given, Rights};
use super::room::Controller;
use super::tree::{Tree, failed};
use super::upkeep::Whose;
use super::weights::{Knob, Off, scale};
use crate::Result;

/// A sum of shares that is off by less than one in so many is taken to be what it was: parts that were rounded down.
const CLOSE: u64 = 1 << 16;
/// Larger shares are made smaller, all by as much, so that nothing overflows.
const SHARE_BITS: u32 = 48;

/// What a client's leaf is to have of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Of the CPU, in any unit that is the same for all; 1 at least.
    pub share: u64,
    /// Whether it wants the CPU, as far as is known: its user's cgroup weighs as much as those of its leaves that do.
    pub counts: bool,
    /// Of memory and disks.
    pub rights: Rights,
}

/// What is looked at beside what clients are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing.
    Nothing,
    /// How much memory there is, of which the kernel takes some for itself and does not tell, and which disks.
    Machine,
}

/// Clients by number, with a place for a leaf each.
pub(crate) trait WithLeaves {
    /// The place of one; `None` where there is no such client.
    fn leaf(&mut self, client: usize) -> Option<&mut Option<Leaf>>;
}

/// What the leaves of one cgroup have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Of the CPU: of those that want it.
    pub(super) share: u64,
    /// Parts of the disks.
    pub(super) disk: u64,
    /// `memory.min` and `memory.low`, bytes.
    pub(super) memory: (u64, u64),
    /// How far off the worst weights are.
    pub(super) off: Off,
}

/// The cgroup around one user's leaves.
#[derive(Debug)]
pub(super) struct UserCgroup {
    pub(super) dir: PathBuf,
    pub(super) weight: u64,
    /// What it was given of memory and disks: what its leaves have together.
    pub(super) given: Given,
    pub(super) sum: Sum,
    /// Clients with a leaf in it.
    clients: BTreeSet<usize>,
}

/// Whose leaves have to be looked at, and those that are in no user's cgroup.
#[derive(Debug, Default)]
pub(super) struct Stale {
    /// Users some of whose leaves are to have something else, or came or went.
    users: BTreeSet<u32>,
    /// What is beside each other in the root is to be looked at, whatever its sums say.
    root: bool,
    /// Clients with a leaf in the root.
    in_root: BTreeSet<usize>,
    /// Somebody has removed a leaf.
    lost: bool,
    /// Clients whose leaves somebody had removed, and that are made anew: nobody is in them, and they have no limits yet.
    remade: Vec<usize>,
}

/// Which leaves are in which user's cgroup, by their places in `users`; those that are in none are the root's.
#[derive(Default)]
pub(super) struct Levels {
    pub(super) root: Vec<usize>,
    pub(super) users: BTreeMap<u32, Vec<usize>>,
}

impl Levels {
    pub(super) fn of(leaves: &[Leaf]) -> Self {
        let mut levels = Self::default();
        for (i, leaf) in leaves.iter().enumerate() {
            match leaf.user {
                None => levels.root.push(i),
                Some(user) => levels.users.entry(user).or_default().push(i),
            }
        }
        levels
    }
}

/// Shares no larger than what can be computed with, in the same proportions.
fn within_range(shares: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut shares: Vec<u64> = shares.collect();
    let most = shares.iter().copied().max().unwrap_or(0);
    let shift = (u64::BITS - most.leading_zeros()).saturating_sub(SHARE_BITS);
    shares.iter_mut().for_each(|share| *share = (*share >> shift).max(1));
    shares
}

impl Tree {
    /// As [`leaf`](Self::leaf), in the cgroup of user `user`, if it is given and there can be one.
    ///
    /// # Errors
    /// As [`leaf`](Self::leaf).
    pub(crate) fn leaf_of(&mut self, client: usize, user: Option<u32>) -> Result<Leaf> {
        // Version 1 has a hierarchy for each controller; one level there does for all.
        let Some(user) = user.filter(|_| self.purpose.keeps() && self.ground.knob == Knob::Weight) else {
            let leaf = self.leaf(client)?;
            self.stale.in_root.insert(client);
            self.stale.root = true;
            return Ok(leaf);
        };
        let mut around = match self.users.remove(&user) {
            Some(there) if there.dir.exists() => there,
            _ => self.make_user(user)?,
        };
        let leaf = self.leaf_in(&around.dir, client);
        if leaf.is_ok() {
            around.clients.insert(client);
            self.stale.users.insert(user);
        } else if around.clients.is_empty() {
            // Empty, and ours.
            let _ = rustix::fs::rmdir(&around.dir);
            return leaf;
        }
        self.users.insert(user, around);
        leaf.map(|mut leaf| {
            leaf.user = Some(user);
            leaf
        })
    }

    fn make_user(&self, user: u32) -> Result<UserCgroup> {
        let dir = self.root.join(format!("u{user}"));
        self.files.make(&dir).map_err(|e| failed("make cgroup", &dir, e))?;
        let weight = self.ground.knob.ordinary();
        let on = |controller: Controller| {
            let wanted = controller == Controller::Cpu || self.offers.wanted(controller).is_some();
            let control = dir.join("cgroup.subtree_control");
            if wanted { self.write(&control, &format!("+{controller}")) } else { Ok(()) }
        };
        let made = Controller::ALL.into_iter().try_for_each(on).and_then(|()| self.weigh(&dir, weight));
        if let Err(e) = made {
            let _ = rustix::fs::rmdir(&dir);
            return Err(e);
        }
        Ok(UserCgroup { dir, weight, given: Given::default(), sum: Sum::default(), clients: BTreeSet::new() })
    }

    /// Client number `client` has no leaf any more: with its last one a user's cgroup goes too.
    pub(super) fn left(&mut self, client: usize, user: Option<u32>) {
        let Some(user) = user else {
            self.stale.root |= self.stale.in_root.remove(&client);
            return;
        };
        let Some(around) = self.users.get_mut(&user) else { return };
        around.clients.remove(&client);
        self.stale.users.insert(user);
        if !around.clients.is_empty() {
            return;
        }
        around.sum = Sum::default();
        if rustix::fs::rmdir(&around.dir).is_ok() || !around.dir.exists() {
            self.users.remove(&user);
            self.stale.root = true;
        }
    }

    /// Notes what a leaf is to have from now on. [`follow`](Self::follow) writes it.
    pub(super) fn owe(&mut self, leaf: &mut Leaf, due: Due) {
        if leaf.due == due {
            return;
        }
        leaf.due = due;
        self.note_stale(leaf.user);
    }

    fn note_stale(&mut self, user: Option<u32>) {
        match user {
            None => self.stale.root = true,
            Some(user) => {
                self.stale.users.insert(user);
            }
        }
    }

    /// Somebody has removed a leaf: [`give`](Self::give) makes it anew.
    pub(crate) fn note_lost(&mut self, leaf: &Leaf) {
        self.stale.lost = true;
        self.note_stale(leaf.user);
    }

    /// The same of all.
    pub(super) fn note_lost_all(&mut self) {
        self.stale.lost = true;
        self.note_all_stale();
    }

    /// All clients that have a leaf.
    pub(super) fn clients_with_leaves(&self) -> Vec<usize> {
        let of_users = self.users.values().flat_map(|around| &around.clients);
        of_users.chain(&self.stale.in_root).copied().collect()
    }

    /// All leaves are to be looked at.
    pub(super) fn note_all_stale(&mut self) {
        self.stale.users.extend(self.users.keys());
        self.stale.root = true;
    }

    /// Clients whose leaves [`follow`](Self::follow) needs: all of a user's, where one of them is to have something else,
    /// and whoever is beside the users.
    pub(super) fn stale(&self) -> Vec<usize> {
        if self.stale.users.is_empty() && !self.stale.root {
            return Vec::new();
        }
        let of_users = self.stale.users.iter().filter_map(|user| self.users.get(user));
        of_users.flat_map(|around| &around.clients).chain(&self.stale.in_root).copied().collect()
    }

    /// Notes what clients are due from now on, and writes what is another than it was, of all that was noted: the whole of
    /// what [`LinuxHost::give_dues`](crate::LinuxHost::give_dues) does.
    ///
    /// # Errors
    /// As [`follow`](Self::follow).
    pub(crate) fn give(
        &mut self,
        dues: &[(ClientId, Due)],
        check: Check,
        clients: &mut impl WithLeaves,
    ) -> Result<Off> {
        for &(client, due) in dues {
            if let Some(leaf) = clients.leaf(client.index()).and_then(Option::as_mut) {
                self.owe(leaf, due);
            }
        }
        if check == Check::Machine {
            self.look_at_memory();
            self.look_at_disks(Path::new("/sys"));
            self.look_underneath(Whose::Next, clients)?;
        }
        let mut leaves = Vec::new();
        self.gather(clients, &mut leaves);
        let lost = std::mem::take(&mut self.stale.lost);
        let remade = if lost { self.remake_all(clients, &mut leaves) } else { Ok(false) };
        let mut done = remade.and_then(|_| self.follow(&mut leaves));
        if done.as_ref().is_err_and(|e| is_gone(e.errno())) {
            done = match self.remake_all(clients, &mut leaves) {
                Ok(true) => self.follow(&mut leaves),
                Ok(false) => done,
                Err(e) => Err(e),
            };
        }
        for leaf in leaves {
            if let Some(place) = clients.leaf(leaf.client) {
                *place = Some(leaf);
            }
        }
        done
    }

    /// Takes the leaves of those to whom something is owed.
    fn gather(&self, clients: &mut impl WithLeaves, leaves: &mut Vec<Leaf>) {
        for client in self.stale() {
            leaves.extend(clients.leaf(client).and_then(Option::take));
        }
    }

    /// Makes anew what somebody has removed: with a user's cgroup all leaves in it, also those to whom nothing else is owed.
    fn remake_all(&mut self, clients: &mut impl WithLeaves, leaves: &mut Vec<Leaf>) -> Result<bool> {
        let any = self.remake(leaves)?;
        let before = leaves.len();
        self.gather(clients, leaves);
        if leaves.len() > before {
            self.remake(leaves)?;
        }
        Ok(any)
    }

    /// Makes those of `leaves`, and of the users' cgroups, anew that somebody has removed; whether there were any.
    fn remake(&mut self, leaves: &mut [Leaf]) -> Result<bool> {
        let removed = self.users.iter().filter(|(_, around)| !around.dir.exists());
        let removed: Vec<u32> = removed.map(|(&user, _)| user).collect();
        for &user in &removed {
            let made = self.make_user(user)?;
            if let Some(around) = self.users.get_mut(&user) {
                let clients = std::mem::take(&mut around.clients);
                *around = UserCgroup { clients, ..made };
            }
            self.stale.users.insert(user);
        }
        let mut any = !removed.is_empty();
        for leaf in leaves.iter_mut().filter(|leaf| !leaf.is_there()) {
            match self.files.make(&leaf.dir) {
                // Somebody has made one of that name.
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(failed("make cgroup", &leaf.dir, e)),
            }
            let made = self.open_leaf(&leaf.dir, leaf.client)?.close();
            *leaf = Leaf { due: leaf.due, user: leaf.user, ..made };
            self.stale.remade.push(leaf.client);
            any = true;
        }
        Ok(any)
    }

    /// Clients whose leaves were made anew since this was last asked.
    pub(crate) fn take_remade(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.stale.remade)
    }

    /// Gives leaves, and the cgroups of their users, what they are to have, by what was [owed](Self::owe) to them; writes
    /// what is another than it was. `leaves` are those of the clients that [`stale`](Self::stale) names. Returns how far off
    /// the worst weights are: the kernel's range is narrower than that of shares.
    ///
    /// Cost: a look at each of `leaves` and, where a user's part changed, at each user.
    ///
    /// # Errors
    /// The first that could not be written; the others are.
    pub(super) fn follow(&mut self, leaves: &mut [Leaf]) -> Result<Off> {
        let levels = Levels::of(leaves);
        let anew = std::mem::take(&mut self.stale.root);
        self.stale.users.clear();
        let kept = self.keep(leaves, &levels, anew);
        let weighed = self.weigh_all(leaves, &levels, anew);
        let done = kept.and(weighed);
        if done.is_err() {
            // What was not taken is tried again when there is something to write next.
            self.stale.users.extend(levels.users.keys());
            self.stale.root = true;
        }
        done.map(|()| self.deviation())
    }

    /// How far off the worst weights are, of those of the disks only where they count on some disk.
    pub(super) fn deviation(&self) -> Off {
        let users = self.users.values().fold(Off::default(), |worst, around| worst.or(around.sum.off));
        let off = self.off.over(users);
        let counts = |file: &str| self.disks.iter().any(|disk| disk.by.contains(&file));
        let disks = [0, 1].map(|which: usize| off.disks[which] * u64::from(counts(DISK_WEIGHTS[which].0)));
        Off { disks, ..off }
    }

    /// CPU weights in the proportion of shares.
    pub(super) fn weigh_all(&mut self, leaves: &mut [Leaf], levels: &Levels, anew: bool) -> Result<()> {
        let knob = self.ground.knob;
        let (mut done, mut others) = (Ok(()), anew || !levels.root.is_empty());
        for (&user, places) in &levels.users {
            let weights = scale(&within_range(places.iter().map(|&i| leaves[i].due.share)), knob);
            for (&i, &weight) in places.iter().zip(&weights.values) {
                done = done.and(self.reweigh(&mut leaves[i], weight));
            }
            let counting = places.iter().map(|&i| leaves[i].due).filter(|due| due.counts);
            let share = counting.fold(0u64, |sum, due| sum.saturating_add(due.share));
            let Some(around) = self.users.get_mut(&user) else { continue };
            around.sum.off.cpu = weights.deviation_ppm;
            if share.abs_diff(around.sum.share) > around.sum.share / CLOSE {
                around.sum.share = share;
                others = true;
            }
        }
        if !others {
            return done;
        }
        // Whose clients all sleep keeps the weight that it had.
        let of_users = self.users.iter().map(|(&user, around)| (user, around.sum.share));
        let users: Vec<(u32, u64)> = of_users.filter(|of| of.1 > 0).collect();
        let shares = users.iter().map(|of| of.1).chain(levels.root.iter().map(|&i| leaves[i].due.share));
        let weights = scale(&within_range(shares), knob);
        let (of_users, of_leaves) = weights.values.split_at(users.len());
        for (&(user, _), &weight) in users.iter().zip(of_users) {
            done = done.and(self.reweigh_user(user, weight));
        }
        for (&i, &weight) in levels.root.iter().zip(of_leaves) {
            done = done.and(self.reweigh(&mut leaves[i], weight));
        }
        self.off.cpu = weights.deviation_ppm;
        done
    }

    fn reweigh_user(&mut self, user: u32, weight: u64) -> Result<()> {
        let Some(around) = self.users.get(&user).filter(|around| around.weight != weight) else {
            return Ok(());
        };
        self.weigh(&around.dir, weight)?;
        if let Some(around) = self.users.get_mut(&user) {
            around.weight = weight;
        }
        Ok(())
    }
}
