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

use divvy_policy::{ClientId, Instant};

use super::LinuxHost;

impl LinuxHost {
    /// Has those weigh more who are due all of a CPU now, and those as much as others who are not any more.
    pub(super) fn prefer_settled(&mut self, now: Instant) {
        if self.tree.as_ref().is_none_or(|tree| !tree.gives_way()) {
            return;
        }
        let settled = self.own_cpu.settled(now);
        let (stay, over): (Vec<ClientId>, Vec<ClientId>) =
            std::mem::take(&mut self.preferred).into_iter().partition(|client| settled.contains(client));
        let come: Vec<ClientId> = settled.into_iter().filter(|client| !stay.contains(client)).collect();
        self.preferred = stay;
        for client in over {
            self.prefer(client, false);
        }
        for client in come {
            if self.prefer(client, true) {
                self.preferred.push(client);
            }
        }
    }

    /// Says whether the kernel took it: else it is as it was, and nobody is worse off.
    fn prefer(&mut self, client: ClientId, more: bool) -> bool {
        let Some(c) = self.clients.get(client.index()).filter(|c| !c.is_gone()) else { return false };
        // Whoever is behind others has no weight, and an ordinary one when that is over.
        let (Some(tree), Some(leaf)) = (&self.tree, &c.leaf) else { return false };
        self.tally.signals += 1;
        !c.condition.is_behind() && tree.prefer(leaf, more).is_ok()
    }
}
