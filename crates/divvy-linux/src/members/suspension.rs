//! What divvy knows of one member's suspension, and what follows from it: a state machine without a system call.
//!
//! **The problem.** The kernel keeps no record of who stopped a process. A stop signal waits until the process comes to
//! take it (a sleeper has to be given a CPU first), a second one that finds the first still waiting is dropped, and one
//! that finds the process suspended already waits behind that. SIGCONT takes all of it away, whoever sent it. So a stop
//! that waits in a suspended process is somebody else's *only if we have sent no more than one ourselves*, and a
//! process that does not look suspended may be about to be.
//!
//! **The rules.**
//! - One stop signal of ours to a process, and no second one before it was seen that the first can have no effect any
//!   more ([`Seen::Runs`]). Where that cannot be seen and another has to be sent, it is remembered
//!   ([`Suspension::Twice`]): a stop that waits then proves nothing, and the process is resumed.
//! - After one stop signal of ours, a stop that waits in a process that stands is somebody else's, be it that theirs came
//!   before ours or after it. It is left to whoever sent it.
//! - Stop signals go to one process each, never to a process group. The kernel hands a group's stop on to a child that is
//!   being forked just then, but not a SIGCONT that comes before the fork is through (it drops that one early unless the
//!   process handles it): the child is born standing, after everybody was resumed.
//! - It goes to one thread, where several CPUs are divided and one was found that takes it at once: what waits is looked for there.
//!   If that thread ends first the signal is gone, and the process is found running.
//! - A member is marked in the table before the signal and until it was resumed, or was seen to be somebody else's.
//!   Nothing else takes the mark away.
//!
//! **What is proven**, by a search of every interleaving of these steps with the kernel's and a stranger's
//! (`suspension/search.rs`): a process that stands, or is about to, is marked unless somebody else wants it so; after a
//! release nobody stands but by somebody else's stop; a stop of somebody else's that can be told from ours is not undone
//! by a release.

#[cfg(test)]
mod search;

/// Whose doing it is that a member stands, as far as divvy knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Suspension {
    /// No stop signal of ours has been sent since it was last resumed.
    #[default]
    Free,
    /// We have sent one.
    Once,
    /// We have sent more than one, and do not know that the first was without effect when the second was sent.
    Twice,
    /// Somebody else has suspended it: not ours to resume.
    Elsewhere,
}

/// What a look at a process shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// It stands.
    Stands,
    /// It does not stand yet: a stop signal waits.
    OnItsWay,
    /// It does not stand, and no stop signal that was sent before the look is still to come.
    Runs,
    /// It does not stand, and a stop signal may have been taken by one of its threads that the others do not know of.
    Unclear,
    /// It could not be looked at.
    Unknown,
}

/// What to do about a member whose client is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// It is not suspended by us.
    Nothing,
    /// Send SIGCONT; then [`Suspension::resumed`].
    Resume,
    /// Somebody else wants it suspended: it stays so, and its mark is taken away.
    LeaveToOthers,
}

impl Suspension {
    /// Whether a stop signal of ours may hold it: it is to be resumed by us.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Once | Self::Twice)
    }

    /// Whether somebody else has suspended it.
    pub const fn is_elsewhere(self) -> bool {
        matches!(self, Self::Elsewhere)
    }

    /// Whether it is to stand once its client is held, by whomever.
    pub const fn is_to_stand(self) -> bool {
        !matches!(self, Self::Free)
    }

    /// Whether to send a stop signal to a member whose client is to be held. `look` looks at it, and is asked only where
    /// the answer depends on it. If so, [`sent`](Self::sent) has to follow.
    pub fn hold(&mut self, look: impl FnOnce() -> Seen) -> bool {
        if *self == Self::Free {
            return true;
        }
        match (look(), *self) {
            (Seen::Runs, _) | (Seen::Unclear, Self::Elsewhere) => {
                // Whatever was sent before has been undone by somebody's SIGCONT.
                *self = Self::Free;
                true
            }
            (Seen::Unclear, _) => true,
            (Seen::Stands | Seen::OnItsWay | Seen::Unknown, _) => false,
        }
    }

    /// A stop signal of ours was sent.
    pub const fn sent(&mut self) {
        *self = match self {
            Self::Free | Self::Elsewhere => Self::Once,
            Self::Once | Self::Twice => Self::Twice,
        };
    }

    /// What to do about it when its client is released. `waits` tells whether it stands and a stop signal waits
    /// behind that, and is asked only where the answer depends on it.
    pub fn release(&mut self, waits: impl FnOnce() -> bool) -> Release {
        match self {
            Self::Free | Self::Elsewhere => Release::Nothing,
            Self::Once if waits() => {
                *self = Self::Elsewhere;
                Release::LeaveToOthers
            }
            Self::Once | Self::Twice => Release::Resume,
        }
    }

    /// SIGCONT of ours was sent to it: no stop signal from before has an effect any more.
    pub const fn resumed(&mut self) {
        *self = Self::Free;
    }

    /// A look at its state while no stop signal of ours is out says whether somebody else has suspended it.
    pub const fn see_released(&mut self, stands: bool) {
        if !self.is_ours() {
            *self = if stands { Self::Elsewhere } else { Self::Free };
        }
    }
}
