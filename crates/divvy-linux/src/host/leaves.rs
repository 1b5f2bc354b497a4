//! Cgroups of clients that run already, and weights that follow shares.

use divvy_policy::{ClientId, CpuLimit};

use super::{Client, LinuxHost, Warning};
use crate::cgroup::{Ceilings, Check, Due, Enforced, Leaf, NotKept, Off, Tree, Urgency, Whose, WithLeaves};
use crate::clients::ById;
use crate::select::Selector;
use crate::{CpuMask, Error, Pid, Result, own};

impl WithLeaves for ById<Client> {
    fn leaf(&mut self, client: usize) -> Option<&mut Option<Leaf>> {
        self.get_mut(client).map(|client| &mut client.leaf)
    }
}

/// Who divides memory is not to wait for its own: what others press out of it comes back as slowly as the disk is. What the
/// user should know where that is refused.
fn stay_in_memory(tree: Option<&Tree>) -> Option<Warning> {
    // An ordinary user may lock next to nothing, and is not warned of what cannot be helped.
    let ours = tree.filter(|tree| tree.keeps_memory() && rustix::process::geteuid().is_root());
    let refused = ours.and_then(|_| own::stay_in_memory().err());
    refused.map(|e| Warning { client: None, text: e.to_string() })
}

/// `divided`, where those are not all CPUs that the machine has: whoever starts a client keeps it to these.
pub(super) fn not_all(divided: CpuMask) -> Option<CpuMask> {
    let all = CpuMask::online().unwrap_or_default();
    (!all.is_within(&divided)).then_some(divided)
}

/// Where the kernel divides each CPU by itself, whoever runs on another than those `divided` is divided with nobody.
fn keep_to_divided(tree: Option<&Tree>, divided: Option<CpuMask>) -> Option<Warning> {
    let (tree, divided) = (tree.filter(|tree| tree.follows())?, divided?);
    let why = tree.not_kept_to_divided()?;
    let text = format!(
        "of CPUs only {divided} are to be divided, and the kernel lets clients run on the others, too: {why}; what `divvy run` starts \
         keeps to {divided}, what runs already does by `taskset -a -c -p {divided} PID`"
    );
    Some(Warning { client: None, text })
}

/// What is to be told of a tree that was just made.
pub(super) fn warnings(tree: Option<&Tree>, divided: Option<CpuMask>) -> Vec<Warning> {
    stay_in_memory(tree).into_iter().chain(keep_to_divided(tree, divided)).collect()
}

impl LinuxHost {
    /// The cgroup for what `selector` names, within that of `user` if it is given, where cgroups are what holds or weighs.
    ///
    /// # Errors
    /// [`Error::Select`] for what is in a cgroup: moved into ours it would not be there any more; and where none can be made.
    pub(crate) fn leaf_for(
        &mut self,
        selector: &Selector,
        client: ClientId,
        user: Option<u32>,
    ) -> Result<Option<Leaf>> {
        let Some(tree) = &mut self.tree else { return Ok(None) };
        if matches!(selector, Selector::Cgroup(_)) {
            return Err(Error::Select {
                selector: selector.to_string(),
                what: "with this back end clients are moved into cgroups of divvy's, and would leave the one that names \
                       them"
                    .to_owned(),
                fix: "name them by tree, user or name, or start divvyd with --backend signals",
            });
        }
        let leaf = tree.leaf_of(client.index(), user)?.close();
        // Held from the start, as every client is.
        leaf.freeze()?;
        Ok(Some(leaf))
    }

    /// Moves a new member into its client's cgroup, or notes it for [`migrate`](Self::migrate). One that cannot be moved is told of,
    /// once a client, and is neither held nor weighed.
    pub(crate) fn take_into_leaf(&mut self, client: ClientId, pid: Pid) {
        let (Some(tree), Some(leaf)) = (&mut self.tree, self.clients[client.index()].leaf.as_mut()) else {
            return;
        };
        if let Some(why) = tree.must_stay(pid) {
            return self.not_taken(client, pid, &why);
        }
        if let Err(e) = tree.take(leaf, pid)
            && !tree.await_migration(client, pid, &e)
        {
            self.not_taken(client, pid, &e.to_string());
        }
    }

    fn not_taken(&mut self, client: ClientId, pid: Pid, why: &str) {
        if self.clients[client.index()].leaf.as_mut().is_some_and(Leaf::tells_once) {
            let text = format!("process {pid} is charged, and neither held nor weighed: {why}");
            self.notices.push(Some(client), text);
        }
    }

    /// Has the user's systemd move those members into their clients' cgroups whom we may not move.
    pub(crate) fn migrate(&mut self, urgency: Urgency) {
        let Some(tree) = &mut self.tree else { return };
        let mut waiting = tree.take_waiting(urgency);
        if waiting.is_empty() {
            let kept = if urgency == Urgency::Now { tree.kept_waiting() } else { Vec::new() };
            for client in kept {
                let text = "the user's systemd was slow to answer and is asked again within minutes; until then processes in a session \
                            are charged, and neither held nor weighed";
                self.notices.tell_once(client, text);
            }
            return;
        }
        // Who has ended or is another's by now is not meant any more.
        waiting.retain(|&(client, pid)| self.client_of(pid) == Some(client));
        let Some(tree) = &mut self.tree else { return };
        for (client, pid, why) in tree.migrate(waiting, &mut self.clients) {
            self.not_taken(client, pid, &why);
        }
    }

    /// Moves somebody who is no member any more back to where it was.
    pub(crate) fn give_back(&mut self, client: ClientId, pid: Pid) {
        let (Some(tree), Some(leaf)) = (&self.tree, &self.clients[client.index()].leaf) else { return };
        if let Err(e) = tree.give_back(leaf, pid) {
            self.notices.push(Some(client), e.to_string());
        }
    }

    /// Moves all of a client back to where they were, thawed, and removes its cgroup. What is left goes with the tree.
    pub(crate) fn disband(&mut self, client: ClientId) {
        let (Some(tree), Some(leaf)) = (&mut self.tree, self.clients[client.index()].leaf.take()) else {
            return;
        };
        if let Err(e) = tree.disband(leaf) {
            self.notices.push(None, e.to_string());
        }
    }

    /// Whether clients' cgroups are given what [`give_dues`](Self::give_dues) says.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.tree.as_ref().is_some_and(Tree::follows)
    }

    /// Gives clients' cgroups what they are due by now of CPU, memory and disks, where that is asked for
    /// ([`Means::Rights`](crate::cgroup::Means::Rights)) and can be had. Whoever is not named is due what it was; only what is
    /// another than it was is written. Returns how far off the worst weights are: the kernel's range is
    /// narrower than that of shares.
    ///
    /// # Errors
    /// The first that could not be written; the others are.
    pub fn give_dues(&mut self, dues: &[(ClientId, Due)], check: Check) -> Result<Off> {
        let Some(tree) = self.tree.as_mut().filter(|tree| tree.follows()) else { return Ok(Off::default()) };
        let done = tree.give(dues, check, &mut self.clients);
        self.note_tree();
        done
    }

    /// Looks whether anybody has changed the cgroups underneath: that of a client that is to have other bounds, or those around one that
    /// is to come. Whether there is something for [`give_dues`](Self::give_dues) to mend.
    pub fn look_underneath(&mut self, client: Option<ClientId>) -> bool {
        let Some(tree) = self.tree.as_mut().filter(|tree| tree.follows()) else { return false };
        let whose = client.map_or(Whose::Nobody, |client| Whose::One(client.index()));
        let found = tree.look_underneath(whose, &mut self.clients);
        self.note_tree();
        found.unwrap_or_else(|e| {
            self.notices.push(None, e.to_string());
            false
        })
    }

    /// Whether all limits are to be set once more, since this was last asked: somebody had switched controllers off, or written other
    /// values, and [`give_dues`](Self::give_dues) has mended the rest.
    pub fn take_forgotten(&mut self) -> bool {
        self.tree.as_mut().is_some_and(Tree::take_forgotten)
    }

    /// Has the table say what the tree is by now, for whoever takes it apart when we are dead.
    fn note_tree(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        if !tree.take_to_be_noted() {
            return;
        }
        let noted = tree.image().map(|image| self.table.view().tree().note(&image));
        let failed = match noted {
            Ok(Ok(())) => return,
            Ok(Err(e)) => e.to_string(),
            Err(e) => e.to_string(),
        };
        let text = format!("note {} in the table: {failed}", tree.dir().display());
        self.notices.push(None, text);
    }

    /// Whether disks have come since this was last asked, on which limits are to be set: seen where [`give_dues`](Self::give_dues)
    /// [checks](Check::Machine).
    pub fn take_disks_came(&mut self) -> bool {
        self.tree.as_mut().is_some_and(Tree::take_disks_came)
    }

    /// Clients whose cgroups somebody had removed, and that [`give_dues`](Self::give_dues) has made anew since this was last
    /// asked: their processes are in them again, and limits have to be set again.
    pub fn take_remade(&mut self) -> Vec<ClientId> {
        let remade = self.tree.as_mut().map(Tree::take_remade).unwrap_or_default();
        let remade: Vec<ClientId> =
            remade.into_iter().filter_map(|i| u32::try_from(i).ok().map(ClientId)).collect();
        for &client in &remade {
            for member in self.known_members(client, usize::MAX) {
                self.take_into_leaf(client, member.pid);
            }
            let held = self.clients.get(client.index()).filter(|c| c.condition.stands());
            let frozen = held.and_then(|c| c.leaf.as_ref()).map_or(Ok(()), Leaf::freeze);
            let text = "somebody has removed its cgroup: it is made anew, and its processes are in it again";
            self.notices
                .push(Some(client), frozen.map_or_else(|e| format!("{text}; {e}"), |()| text.to_owned()));
        }
        remade
    }

    /// Has the kernel keep a client within a limit, or lift that, where it divides; whether it does.
    ///
    /// # Errors
    /// What could not be written: the client keeps the limit that it had.
    pub(super) fn limit_leaf(&mut self, client: ClientId, limit: Option<CpuLimit>) -> Result<bool> {
        let tree = self.tree.as_ref().filter(|tree| tree.keeps_limits());
        let leaf = self.clients.get_mut(client.index()).and_then(|c| c.leaf.as_mut());
        match (tree, leaf) {
            (Some(tree), Some(leaf)) => tree.limit_leaf(leaf, limit).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Whether the kernel keeps clients to some CPUs, where it is told to.
    #[must_use]
    pub fn keeps_cpus(&self) -> bool {
        self.tree.as_ref().is_some_and(Tree::keeps_cpus)
    }

    /// The CPUs that whoever starts a client has to keep it to: those that are divided, where the machine has more and no cpuset keeps
    /// clients to them.
    #[must_use]
    pub fn starts_on(&self) -> Option<CpuMask> {
        let kept = self.tree.as_ref().is_some_and(|tree| tree.not_kept_to_divided().is_none());
        self.starts_on.filter(|_| !kept)
    }

    /// Has the kernel bound what a client has of memory and disks, and which CPUs, where that is another bound than `before`.
    ///
    /// # Errors
    /// [`NotKept`].
    pub fn bound(
        &mut self,
        client: ClientId,
        before: Ceilings,
        to: Ceilings,
    ) -> std::result::Result<(), NotKept> {
        let leaf = self.clients.get_mut(client.index()).and_then(|c| c.leaf.as_mut());
        match (&self.tree, leaf) {
            _ if before == to => Ok(()),
            (Some(tree), Some(leaf)) => tree.bound(leaf, before, to),
            _ => Err(NotKept::Missing(
                "the client has no cgroup: start divvyd with --backend cgroup".to_owned(),
            )),
        }
    }

    /// The cgroup of a client of ours, or that around all of them, where cgroups are what holds or weighs.
    #[must_use]
    pub fn cgroup(&self, client: Option<ClientId>) -> Option<std::path::PathBuf> {
        match client {
            None => self.tree.as_ref().map(|tree| tree.dir().to_owned()),
            Some(client) => self.clients.get(client.index())?.leaf.as_ref().map(|leaf| leaf.dir().to_owned()),
        }
    }

    /// The file by which clients are frozen, where cgroups hold them.
    #[must_use]
    pub fn freezes_by(&self) -> Option<&'static str> {
        self.tree.as_ref().map(Tree::freezes_by)
    }

    /// Bytes of memory that the kernel keeps for a client; `None` where none are.
    #[must_use]
    pub fn memory_due(&self, client: ClientId) -> Option<u64> {
        let leaf = self.clients.get(client.index())?.leaf.as_ref()?;
        Some(leaf.memory_due()).filter(|&bytes| bytes > 0)
    }

    /// Bytes of memory that can be kept for clients.
    ///
    /// # Errors
    /// Why none can, and what would help.
    pub fn reservable_memory(&self) -> std::result::Result<u64, String> {
        match &self.tree {
            Some(tree) => tree.reservable(),
            None => Err("clients have no cgroups: start divvyd with --backend cgroup".to_owned()),
        }
    }

    /// What gives effect to rights to memory and disks, and how far; nothing where that was not asked for.
    #[must_use]
    pub fn enforced(&self) -> Vec<Enforced> {
        self.tree.as_ref().map(Tree::enforced).unwrap_or_default()
    }
}
