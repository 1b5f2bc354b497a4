//! The cgroups around one user's leaves each: what a client leaves is its own user's other clients' first.
//!
//! *Problem*: a reader that waits for the disk does not use its part of the CPU. Were all leaves beside each other, everybody
//! would have a part of what it leaves, and its user less than it is due. *Idea*: values stay those of leaves, which a graph of
//! currencies has said; a user's cgroup has what its leaves have together, and so changes nothing as long as all of them
//! want what they are due. *Weak spot*: within a user's cgroup what one client leaves is everybody's, whichever currency of the user
//! funds it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::rights::Given;
use super::room::Controller;
use super::tree::{Leaf, Tree, failed};
use super::weights::{Knob, scale};
use crate::Result;

/// The cgroup around one user's leaves.
#[derive(Debug)]
pub(super) struct UserCgroup {
    pub(super) dir: PathBuf,
    weight: u64,
    /// What it was given of memory and disks: what its leaves have together.
    pub(super) given: Given,
    leaves: usize,
}

/// What a leaf is to weigh.
pub(crate) struct Claim<'a> {
    pub(crate) share: u64,
    /// Whether it wants the CPU, as far as is known: its user's cgroup weighs as much as those of its leaves that do.
    pub(crate) counts: bool,
    pub(crate) leaf: &'a mut Leaf,
}

/// Which leaves are in which user's cgroup, by their places in `users`; those that are in none are the root's.
pub(super) struct Levels {
    pub(super) root: Vec<usize>,
    pub(super) users: BTreeMap<u32, Vec<usize>>,
}

impl Levels {
    pub(super) fn of(users: impl Iterator<Item = Option<u32>>) -> Self {
        let mut levels = Self { root: Vec::new(), users: BTreeMap::new() };
        for (i, user) in users.enumerate() {
            match user {
                None => levels.root.push(i),
                Some(user) => levels.users.entry(user).or_default().push(i),
            }
        }
        levels
    }
}

impl Tree {
    /// As [`leaf`](Self::leaf), in the cgroup of user `user`, if it is given and there can be one.
    ///
    /// # Errors
    /// As [`leaf`](Self::leaf).
    pub(crate) fn leaf_of(&mut self, client: usize, user: Option<u32>) -> Result<Leaf> {
        // Version 1 has a hierarchy for each controller; one level there does for all.
        let Some(user) = user.filter(|_| self.purpose.keeps() && self.ground.knob == Knob::Weight) else {
            return self.leaf(client);
        };
        let mut around = match self.users.remove(&user) {
            Some(there) if there.dir.exists() => there,
            _ => self.make_user(user)?,
        };
        let leaf = self.leaf_in(&around.dir, client);
        if leaf.is_ok() {
            around.leaves += 1;
        } else if around.leaves == 0 {
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
        Ok(UserCgroup { dir, weight, given: Given::default(), leaves: 0 })
    }

    /// A leaf was removed: with its last one a user's cgroup goes too.
    pub(super) fn left(&mut self, user: Option<u32>) {
        let Some(around) = user.and_then(|user| self.users.get_mut(&user)) else { return };
        around.leaves = around.leaves.saturating_sub(1);
        if around.leaves == 0 && rustix::fs::rmdir(&around.dir).is_ok() {
            self.users.retain(|_, around| around.leaves > 0 || around.dir.exists());
        }
    }

    /// Gives all leaves, and the cgroups of their users, weights in the proportion of `claims`; writes those that are others.
    /// Returns how far off the worst is, in millionths: the kernel's range is narrower than that of shares.
    ///
    /// # Errors
    /// The first that could not be written; the others are.
    pub(crate) fn weigh_all(&mut self, claims: &mut [Claim<'_>]) -> Result<u64> {
        let (knob, levels) = (self.ground.knob, Levels::of(claims.iter().map(|claim| claim.leaf.user)));
        let mut done = Ok(());
        let mut worst = 0;
        for places in levels.users.values() {
            let shares: Vec<u64> = places.iter().map(|&i| claims[i].share).collect();
            let weights = scale(&shares, knob);
            worst = worst.max(weights.deviation_ppm);
            for (&i, &weight) in places.iter().zip(&weights.values) {
                done = done.and(self.reweigh(claims[i].leaf, weight));
            }
        }
        // Whose clients all sleep keeps the weight that it had.
        let sum = |places: &Vec<usize>| {
            places.iter().map(|&i| &claims[i]).filter(|claim| claim.counts).map(|claim| claim.share).sum()
        };
        let users: Vec<(u32, u64)> =
            levels.users.iter().map(|(&user, of)| (user, sum(of))).filter(|of| of.1 > 0).collect();
        let shares = users.iter().map(|of| of.1).chain(levels.root.iter().map(|&i| claims[i].share));
        let weights = scale(&shares.collect::<Vec<u64>>(), knob);
        let (of_users, of_leaves) = weights.values.split_at(users.len());
        for (&(user, _), &weight) in users.iter().zip(of_users) {
            done = done.and(self.reweigh_user(user, weight));
        }
        for (&i, &weight) in levels.root.iter().zip(of_leaves) {
            done = done.and(self.reweigh(claims[i].leaf, weight));
        }
        done.map(|()| worst.saturating_add(weights.deviation_ppm))
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
