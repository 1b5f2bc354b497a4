//! Groups of clients of a user's own divvyd: shares within shares.
//!
//! **Problem.** A gate divides among clients, all on one level. A build and a test run that are to have 2:1 *together* are many
//! clients that come and go, and what each of them is due depends on who else is there.
//!
//! **Idea.** Groups form a tree, and clients are its leaves. What a group has is divided among what is in it, clients and groups,
//! in proportion to their shares. So a client's value is the product of `share / sum of shares` over its way to the top, a
//! fraction; the gate gets the smallest whole numbers that are to each other as the values are.
//!
//! **Active.** Only what is active counts in a sum: a client that neither is paused nor was asleep for [`IDLE_AFTER`], and a group
//! that has one. So what a sleeper leaves goes to its siblings, not to other groups. One that is not active keeps what it
//! would be worth were it active alone beside those who are: that is right as soon as it wakes.
//!
//! **Names.** A group is a path, `build` or `build/tests`; the groups on the way are there too. A group ends with the last client
//! in it and below it.
//!
//! **Properties.** Values of one level sum to what is above it (`values_sum_to_what_is_above`); a sleeper's part goes to its
//! siblings only (`what_a_sleeper_leaves_goes_to_its_siblings`); without groups shares are what was asked for
//! (`without_groups_shares_are_themselves`); whatever the shares are, their sum is bounded (`sums_are_bounded`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use divvy_policy::{ClientId, Nanos, Share};

use crate::message::Refusal;
use divvy_api::types::{ErrorCode, SHARE_MAX};

/// A client that was asleep for so long is not active any more.
pub(super) const IDLE_AFTER: Nanos = Nanos::from_secs(1);
/// Shares of all active clients together at most, where there are groups: what cannot be told by them exactly is rounded to one
/// in so many.
const PARTS: u64 = 8000;

/// A group's path, as `build/tests`.
pub(super) type Path = Arc<str>;

#[derive(Clone, Debug)]
struct Leaf {
    group: Option<Path>,
    share: u64,
    /// CPU time that it had had when it came into this group.
    before: Nanos,
    idle: bool,
    paused: bool,
}

impl Leaf {
    fn active(&self) -> bool {
        !self.idle && !self.paused
    }
}

/// What is kept of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) share: u64,
    /// CPU time that clients had in it who have left it.
    pub(super) past: Nanos,
}

/// All groups, and who is in them.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// By path: whatever a group is in comes before it.
    groups: BTreeMap<Path, Group>,
    leaves: BTreeMap<ClientId, Leaf>,
    /// Whether groups without clients are kept.
    keeps_empty: bool,
}

/// A group that is asked for, and the share that it is to have if one was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) path: Path,
    pub(super) share: Option<Share>,
}

fn bad(text: String, fix: &str) -> Refusal {
    Refusal::new(ErrorCode::BadRequest, text, fix)
}

/// A path of names, or what is wrong with it.
///
/// # Errors
/// `bad-request`.
pub(super) fn parse(text: &str) -> Result<Path, Refusal> {
    // As a directory may be written.
    let path = text.strip_suffix('/').unwrap_or(text);
    divvy_api::names::check_group(text).map_err(|what| {
        let text = format!("'{}' cannot be a group: {what}", text.escape_default());
        bad(text, "write NAME, or NAME/NAME for a group within a group")
    })?;
    Ok(path.into())
}

/// The group that another is in; `None` for one at the top.
pub(super) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(above, _)| above)
}

/// Whether `path` is `group` or in it.
fn is_within(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Groups {
    /// Whether there are any: if not, shares are what was asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// All of them: whatever a group is in comes before it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &Group)> {
        self.groups.iter()
    }

    /// The group of that path.
    ///
    /// # Errors
    /// `no-such-client`.
    pub(super) fn find(&self, text: &str) -> Result<Path, Refusal> {
        let path = text.strip_suffix('/').unwrap_or(text);
        let found = self.groups.get_key_value(path).map(|(path, _)| Arc::clone(path));
        found.ok_or_else(|| {
            let text = format!("no group is called '{path}'");
            Refusal::new(ErrorCode::NoSuchClient, text, "see `divvy ls`")
        })
    }

    /// The group that a client is in.
    pub(super) fn of(&self, client: ClientId) -> Option<&Path> {
        self.leaves.get(&client)?.group.as_ref()
    }

    /// What a client asked for, within its group.
    pub(super) fn share(&self, client: ClientId) -> Option<u64> {
        self.leaves.get(&client).map(|leaf| leaf.share)
    }

    /// Whether a client counts as one that competes.
    pub(super) fn competes(&self, client: ClientId) -> bool {
        self.is_empty() || self.leaves.get(&client).is_none_or(|leaf| !leaf.idle)
    }

    /// Whether a client's part is its own now, and not its group's: it is neither idle nor paused, or there is no group.
    pub(super) fn counts(&self, client: ClientId) -> bool {
        self.is_empty() || self.leaves.get(&client).is_none_or(Leaf::active)
    }

    /// Clients in a group and below it.
    pub(super) fn within(&self, group: &str) -> impl Iterator<Item = ClientId> {
        let of = move |leaf: &Leaf| leaf.group.as_ref().is_some_and(|path| is_within(path, group));
        self.leaves.iter().filter(move |(_, leaf)| of(leaf)).map(|(&client, _)| client)
    }

    /// CPU time that a client had had when it came into the group that it is in.
    pub(super) fn before(&self, client: ClientId) -> Nanos {
        self.leaves.get(&client).map_or(Nanos::ZERO, |leaf| leaf.before)
    }

    /// A client has come, awake. Groups on its way that are not there are made, of share 1: those for which nobody asked for
    /// another are returned.
    pub(super) fn join(&mut self, client: ClientId, share: Share, group: Option<&Asked>) -> Vec<Path> {
        let made = group.map_or_else(Vec::new, |asked| self.make(asked));
        let group = group.map(|asked| Arc::clone(&asked.path));
        let leaf = Leaf { group, share: share.get(), before: Nanos::ZERO, idle: false, paused: false };
        self.leaves.insert(client, leaf);
        made
    }

    /// A client that has had so much CPU time goes to another group, or to none. Groups are made as by [`Groups::join`], and end
    /// as by [`Groups::leave`]; one that it was in and is in keeps what it is.
    pub(super) fn migrate(&mut self, client: ClientId, service: Nanos, group: Option<&Asked>) -> Vec<Path> {
        let made = group.map_or_else(Vec::new, |asked| self.make(asked));
        let Some(leaf) = self.leaves.get_mut(&client) else { return made };
        let old = std::mem::replace(&mut leaf.group, group.map(|asked| Arc::clone(&asked.path)));
        let before = std::mem::replace(&mut leaf.before, service);
        self.end_stay(old.as_deref(), service.saturating_sub(before));
        made
    }

    /// A client has left, after so much CPU time. Groups without clients end.
    pub(super) fn leave(&mut self, client: ClientId, service: Nanos) {
        let Some(leaf) = self.leaves.remove(&client) else { return };
        self.end_stay(leaf.group.as_deref(), service.saturating_sub(leaf.before));
    }

    /// Makes the groups on this way that are not there.
    fn make(&mut self, asked: &Asked) -> Vec<Path> {
        let mut made = Vec::new();
        for end in asked.path.match_indices('/').map(|(at, _)| at).chain([asked.path.len()]) {
            let path: Path = asked.path[..end].into();
            if let Entry::Vacant(free) = self.groups.entry(Arc::clone(&path)) {
                free.insert(Group { share: 1, past: Nanos::ZERO });
                made.push(path);
            }
        }
        if let (Some(share), Some(group)) = (asked.share, self.groups.get_mut(&asked.path)) {
            group.share = share.get();
            made.retain(|path| *path != asked.path);
        }
        made
    }

    /// Whether groups without clients are kept, for a while in which some leave and others come. At the end of that they go.
    pub(super) fn keep_empty(&mut self, keep: bool) {
        self.keeps_empty = keep;
        if !keep {
            let mut groups = std::mem::take(&mut self.groups);
            groups.retain(|group, _| self.within(group).next().is_some());
            self.groups = groups;
        }
    }

    /// A client that had so much CPU time in this group is not in it any more.
    fn end_stay(&mut self, group: Option<&str>, service: Nanos) {
        for group in std::iter::successors(group, |path| parent(path)) {
            if !self.keeps_empty && self.within(group).next().is_none() {
                self.groups.remove(group);
            } else if let Some(kept) = self.groups.get_mut(group) {
                kept.past = Nanos(kept.past.0.saturating_add(service.0));
            }
        }
    }

    /// Another share for a client, within its group.
    pub(super) fn set_share(&mut self, client: ClientId, share: Share) {
        if let Some(leaf) = self.leaves.get_mut(&client) {
            leaf.share = share.get();
        }
    }

    /// Another share for a group, among what is beside it.
    pub(super) fn set_group_share(&mut self, group: &str, share: Share) {
        if let Some(group) = self.groups.get_mut(group) {
            group.share = share.get();
        }
    }

    pub(super) fn set_paused(&mut self, client: ClientId, paused: bool) {
        if let Some(leaf) = self.leaves.get_mut(&client) {
            leaf.paused = paused;
        }
    }

    pub(super) fn set_idle(&mut self, client: ClientId, idle: bool) {
        if let Some(leaf) = self.leaves.get_mut(&client) {
            leaf.idle = idle;
        }
    }

    /// The share that the gate is to have for each client.
    pub(super) fn shares(&self) -> Vec<(ClientId, u64)> {
        if self.is_empty() {
            return self.leaves.iter().map(|(&client, leaf)| (client, leaf.share)).collect();
        }
        let sums = self.sums();
        self.exact(&sums).unwrap_or_else(|| self.rounded(&sums))
    }

    /// The sum of the active shares in each group, by path; of the top, by nothing. Those of 0 are left out.
    fn sums(&self) -> BTreeMap<&str, u64> {
        let mut sums = BTreeMap::new();
        for leaf in self.leaves.values().filter(|leaf| leaf.active()) {
            *sums.entry(leaf.group.as_deref().unwrap_or_default()).or_insert(0) += leaf.share;
        }
        // What is within others comes last in order, and is added to them first.
        for (path, group) in self.groups.iter().rev() {
            if sums.contains_key(&**path) {
                *sums.entry(parent(path).unwrap_or_default()).or_insert(0) += group.share;
            }
        }
        sums
    }

    /// The way of a leaf to the top: at each level a share, and the sum that it is a part of.
    fn way<'a>(
        &'a self,
        leaf: &'a Leaf,
        sums: &'a BTreeMap<&str, u64>,
    ) -> impl Iterator<Item = (u64, u64)> + 'a {
        let groups = std::iter::successors(leaf.group.as_deref(), |path| parent(path));
        let of_group = |path: &'a str| {
            let share = self.groups.get(path).map_or(1, |group| group.share);
            (share, parent(path).unwrap_or_default(), sums.contains_key(path))
        };
        let first = (leaf.share, leaf.group.as_deref().unwrap_or_default(), leaf.active());
        std::iter::once(first).chain(groups.map(of_group)).map(|(share, above, active)| {
            let sum = sums.get(above).copied().unwrap_or(0);
            (share, if active { sum } else { sum + share })
        })
    }

    /// The smallest whole numbers that are to each other as the values are; `None` where they would be too large.
    fn exact(&self, sums: &BTreeMap<&str, u64>) -> Option<Vec<(ClientId, u64)>> {
        let mut values = Vec::with_capacity(self.leaves.len());
        let mut denominator: u128 = 1;
        for (&client, leaf) in &self.leaves {
            let (mut n, mut d): (u128, u128) = (1, 1);
            for (share, sum) in self.way(leaf, sums) {
                let (share, sum) = (u128::from(share), u128::from(sum));
                let (a, b) = (gcd(n, sum), gcd(share, d));
                n = (n / a).checked_mul(share / b)?;
                d = (d / b).checked_mul(sum / a)?;
            }
            if leaf.active() {
                denominator = denominator.checked_mul(d / gcd(denominator, d))?;
            }
            values.push((client, leaf.active(), n, d));
        }
        let mut shares = Vec::with_capacity(values.len());
        let (mut common, mut sum) = (0, 0u128);
        for (client, active, n, d) in values {
            let scaled = n.checked_mul(denominator)?;
            let share = if active { scaled / d } else { scaled.div_ceil(d) };
            if active {
                common = gcd(common, share);
                sum += share;
            }
            shares.push((client, share));
        }
        // Where nobody is active, anything is as good.
        let common = common.max(1);
        let fits = sum / common <= u128::from(PARTS);
        let whole = |share: u128| u64::try_from((share / common).clamp(1, u128::from(SHARE_MAX)));
        fits.then(|| shares.into_iter().filter_map(|(c, s)| Some((c, whole(s).ok()?))).collect())
    }

    /// Values in parts of [`PARTS`], to the nearest; at least one.
    fn rounded(&self, sums: &BTreeMap<&str, u64>) -> Vec<(ClientId, u64)> {
        /// Each level is rounded down to one in so many.
        const FINE: u128 = 1 << 40;
        let part = |leaf: &Leaf| {
            let whole = u128::from(PARTS) * FINE;
            let value = self.way(leaf, sums).fold(whole, |all, (share, sum)| {
                all.saturating_mul(u128::from(share)) / u128::from(sum.max(1))
            });
            u64::try_from((value + FINE / 2) / FINE).unwrap_or(PARTS).max(1)
        };
        self.leaves.iter().map(|(&client, leaf)| (client, part(leaf))).collect()
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Clients of these groups (`""` is none, `build=3` sets a share) and shares, by number.
    fn groups(clients: &[(&str, u64)]) -> Groups {
        let mut groups = Groups::default();
        for (i, &(group, share)) in clients.iter().enumerate() {
            let (path, of_group) = match group.split_once('=') {
                Some((path, n)) => (path, Share::new(n.parse().unwrap()).ok()),
                None => (group, None),
            };
            let asked = Asked { path: path.into(), share: of_group };
            let asked = (!path.is_empty()).then_some(&asked);
            groups.join(ClientId(i as u32), Share::new(share).unwrap(), asked);
        }
        groups
    }

    fn shares(groups: &Groups) -> Vec<u64> {
        groups.shares().into_iter().map(|(_, share)| share).collect()
    }

    #[test]
    fn without_groups_shares_are_themselves() {
        let mut all = groups(&[("", 10), ("", 20), ("", 997)]);
        assert_eq!(shares(&all), [10, 20, 997]);
        all.set_share(ClientId(2), Share::new(1_000_000).unwrap());
        assert_eq!(shares(&all), [10, 20, 1_000_000]);
    }

    /// A group of share 2 beside a client of share 1: 2/3, of which a has 1/4 and b 3/4.
    #[test]
    fn what_a_group_has_is_divided_within_it() {
        let mut all = groups(&[("build=2", 1), ("build", 3), ("", 1)]);
        assert_eq!(shares(&all), [1, 3, 2]);
        all.set_group_share("build", Share::new(4).unwrap());
        assert_eq!(shares(&all), [1, 3, 1]);
        // Somebody more in the group has nothing of those outside: 4/5 in parts of 1:3:4.
        all.join(ClientId(3), Share::new(4).unwrap(), Some(&Asked { path: "build".into(), share: None }));
        assert_eq!(shares(&all), [1, 3, 2, 4]);
    }

    /// Top: a/ 1, b/ 1. In a: x 1 and a/c 2, in which y 1 and z 2. So 1/6, 1/9, 2/9 and 1/2, in eighteenths.
    #[test]
    fn groups_within_groups() {
        let mut all = groups(&[("a", 1), ("a/c=2", 1), ("a/c", 2), ("b", 7)]);
        assert_eq!(shares(&all), [3, 2, 4, 9]);
        let paths: Vec<&str> = all.iter().map(|(path, _)| &**path).collect();
        assert_eq!(paths, ["a", "a/c", "b"]);
        assert_eq!(all.within("a").collect::<Vec<_>>(), [ClientId(0), ClientId(1), ClientId(2)]);
        // A group ends with its last client, and what it is in stays.
        all.leave(ClientId(1), Nanos(5));
        all.leave(ClientId(2), Nanos(7));
        let left: Vec<_> = all.iter().map(|(path, group)| (&**path, group.past)).collect();
        assert_eq!(left, [("a", Nanos(12)), ("b", Nanos::ZERO)]);
        all.leave(ClientId(0), Nanos(1));
        all.leave(ClientId(3), Nanos(1));
        assert!(all.is_empty());
        assert_eq!(all.find("a/").unwrap_err().message, "no group is called 'a'");
    }

    /// Of 10 ns, 4 were in a/b and 6 in a/c; d ends with its only client, and the way of both groups, a, has all of it.
    #[test]
    fn who_goes_to_another_group_takes_along_what_comes_from_then_on() {
        let mut all = groups(&[("a/b=2", 1), ("a/b", 3), ("d", 1)]);
        let to = |path: &str| Asked { path: path.into(), share: None };
        all.set_group_share("a", Share::new(5).unwrap());
        all.set_idle(ClientId(0), true);
        let made = all.migrate(ClientId(0), Nanos(4), Some(&to("a/c")));
        assert_eq!(made.iter().map(|path| &**path).collect::<Vec<_>>(), ["a/c"]);
        assert_eq!(
            (all.before(ClientId(0)), all.of(ClientId(0)).map(|path| &**path)),
            (Nanos(4), Some("a/c"))
        );
        assert!(!all.counts(ClientId(0)), "it sleeps on");
        let kept = |all: &Groups| -> Vec<_> {
            all.iter().map(|(path, group)| (path.to_string(), group.share, group.past.0)).collect()
        };
        let row = |path: &str, share, past| (path.to_owned(), share, past);
        assert_eq!(kept(&all), [row("a", 5, 4), row("a/b", 2, 4), row("a/c", 1, 0), row("d", 1, 0)]);
        assert_eq!(all.migrate(ClientId(2), Nanos(1), None), []);
        assert_eq!(all.migrate(ClientId(0), Nanos(10), Some(&to("a/b"))), []);
        assert_eq!(kept(&all), [row("a", 5, 10), row("a/b", 2, 4)]);
        all.leave(ClientId(0), Nanos(11));
        assert_eq!(kept(&all), [row("a", 5, 11), row("a/b", 2, 5)]);
    }

    #[test]
    fn a_group_that_is_empty_between_two_changes_is_what_it_was() {
        let mut all = groups(&[("day", 1), ("night=9", 1), ("gone", 1)]);
        let to = |path: &str| Asked { path: path.into(), share: None };
        all.keep_empty(true);
        all.leave(ClientId(2), Nanos(7));
        all.migrate(ClientId(1), Nanos(4), Some(&to("day")));
        all.migrate(ClientId(0), Nanos(5), Some(&to("night")));
        all.keep_empty(false);
        let kept: Vec<_> = all.iter().map(|(path, group)| (&**path, group.share, group.past.0)).collect();
        assert_eq!(kept, [("day", 1, 5), ("night", 9, 4)]);
        all.leave(ClientId(0), Nanos(6));
        assert!(all.find("night").is_err());
    }

    #[test]
    fn what_a_sleeper_leaves_goes_to_its_siblings() {
        let mut all = groups(&[("build", 1), ("build", 1), ("test", 1)]);
        assert_eq!(shares(&all), [1, 1, 2]);
        all.set_idle(ClientId(0), true);
        // The other has all of the group; the sleeper's own, were it to wake, would be half of that.
        assert_eq!(shares(&all), [1, 1, 1]);
        all.set_paused(ClientId(1), true);
        // Nobody of the group is there: the last has everything.
        assert_eq!(shares(&all)[2], 1);
        all.set_idle(ClientId(0), false);
        all.set_paused(ClientId(1), false);
        assert_eq!(shares(&all), [1, 1, 2]);
    }

    #[test]
    fn paths_are_names_with_slashes() {
        for (text, path) in [("build", "build"), ("build/", "build"), ("a/b/c", "a/b/c"), ("büro", "büro")]
        {
            assert_eq!(&*parse(text).unwrap(), path);
        }
        for text in ["", "/", "/a", "a//b", "a b", "-a", "a/-b", "a=3", "a\n", "a/b/c/d/e", &"x".repeat(65)] {
            assert_eq!(parse(text).unwrap_err().code, ErrorCode::BadRequest, "{text:?}");
        }
    }

    fn any_clients() -> impl Strategy<Value = Vec<(usize, u64, bool)>> {
        prop::collection::vec((0usize..6, prop_oneof![1u64..6, 1u64..1_000_000], any::<bool>()), 1..12)
    }

    const PATHS: [&str; 6] = ["", "a=3", "a/b=7", "a/b/c=2", "d=999983", "d/e=11"];

    fn made(clients: &[(usize, u64, bool)]) -> Groups {
        let named: Vec<(&str, u64)> = clients.iter().map(|&(g, share, _)| (PATHS[g], share)).collect();
        let mut all = groups(&named);
        for (i, &(_, _, idle)) in clients.iter().enumerate() {
            all.set_idle(ClientId(i as u32), idle);
        }
        all
    }

    proptest! {
        /// Of what a group's active clients have together, each child has its share: within what is rounded.
        #[test]
        fn values_sum_to_what_is_above(clients in any_clients()) {
            let all = made(&clients);
            prop_assume!(!all.is_empty());
            let shares: BTreeMap<ClientId, u64> = all.shares().into_iter().collect();
            let active = |client: &ClientId| all.leaves[client].active();
            let total: u64 = shares.iter().filter(|(c, _)| active(c)).map(|(_, s)| s).sum();
            let of = |path: &str| -> u64 { all.within(path).filter(&active).map(|c| shares[&c]).sum() };
            let sums = all.sums();
            for (path, group) in all.iter() {
                if !sums.contains_key(&**path) {
                    prop_assert_eq!(of(path), 0);
                    continue;
                }
                let above = parent(path).map_or(total, of);
                let due = above as f64 * group.share as f64 / sums[parent(path).unwrap_or_default()] as f64;
                // Each client's part was rounded to a whole one, of at least one.
                prop_assert!((of(path) as f64 - due).abs() <= 2.0 * clients.len() as f64, "{path}: {due}");
            }
        }

        #[test]
        fn sums_are_bounded(clients in any_clients()) {
            let all = made(&clients);
            prop_assume!(!all.is_empty());
            let shares = all.shares();
            prop_assert_eq!(shares.len(), clients.len());
            prop_assert!(shares.iter().all(|&(_, s)| (1..=SHARE_MAX).contains(&s)));
            let active = shares.iter().filter(|(c, _)| all.leaves[c].active());
            prop_assert!(active.map(|(_, s)| s).sum::<u64>() <= PARTS + clients.len() as u64);
        }
    }
}
