//! Who is due all of a CPU weighs more than others, where the kernel weighs clients.
//!
//! Such a client is never held, and what it does not get nobody gives back. Beside it others take turns on the rest, often with more threads
//! than that has CPUs: the kernel, which sees as much weight on each CPU, moves one of theirs beside it now and then, and lets that run for a
//! tick. Where it weighs more there is nothing to even out: of one process beside three and beside two threads at 3:2:1, on two CPUs, the
//! long run was 2 to 4 % off, and is some tenths so.
//!
//! Nobody else's part changes: on that CPU nobody else is to run. Strangers do, in time: where they take what all are due who is due a
//! CPU is held like others ([`Lag`](divvy_policy::gate::Lag)), and weighs what they weigh. Until then the others compete with
//! them by less, for the kernel gives each CPU of our weight what those have who run there.

use divvy_policy::ClientId;

use super::LinuxHost;

impl LinuxHost {
    /// Has those weigh more whom the policy never holds, and those as much as others who are held in their turns again.
    pub(super) fn prefer_capped(&mut self) {
        if self.tree.as_ref().is_none_or(|tree| !tree.gives_way()) {
            return;
        }
        let runs = |client: &ClientId| {
            let c = self.clients.get(client.index()).filter(|c| !c.is_gone());
            // Whoever is behind others has no weight, and an ordinary one when that is over.
            c.is_some_and(|c| !c.is_held() && !c.condition.is_behind())
        };
        // Of those who are all capped nobody is in another's way.
        let wanted: Vec<ClientId> = if self.own_cpu.holds_lately(self.beaten) {
            self.capped.iter().copied().filter(runs).collect()
        } else {
            Vec::new()
        };
        let before = std::mem::replace(&mut self.preferred, wanted.clone());
        for &client in before.iter().filter(|client| !wanted.contains(client)) {
            self.prefer(client, false);
        }
        for &client in wanted.iter().filter(|client| !before.contains(client)) {
            self.prefer(client, true);
        }
    }

    /// What the kernel refuses, of a cgroup that somebody has removed or changed, it would refuse again: then it evens out as it did before.
    fn prefer(&mut self, client: ClientId, more: bool) {
        let leaf = self.clients.get(client.index()).and_then(|c| c.leaf.as_ref());
        // One that freezes nobody any more weighs all the same.
        if let (Some(tree), Some(leaf)) = (&self.tree, leaf)
            && tree.prefer(leaf, more).is_ok()
        {
            self.tally.signals += 1;
        }
    }
}
