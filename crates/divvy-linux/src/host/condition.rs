//! What we do to a client, and what others have done to it.

/// One of them at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It may run.
    Released,
    /// It may run, and somebody else stopped it: not ours to resume.
    Stopped,
    /// Kept from running.
    Held,
    /// It has what the others leave of the CPU while it waits for its turn.
    Behind,
    /// It has what the others leave in its own turn: whoever waits stands.
    InTurn,
    /// Kept from running, and somebody else stopped it, too.
    HeldAndStopped,
    /// It was to be held and was found to run, at least in part: somebody else has resumed it.
    Resumed,
    /// It has ended, or was let go; whether it was stopped by somebody else until then.
    Gone { stopped: bool },
}

impl Condition {
    pub(crate) const fn is_held(self) -> bool {
        matches!(self, Self::Held | Self::HeldAndStopped | Self::Behind)
    }

    /// Whether its cgroup is put behind the others'.
    pub(crate) const fn is_behind(self) -> bool {
        matches!(self, Self::Behind | Self::InTurn)
    }

    /// Whether none of its processes is to run.
    pub(crate) const fn stands(self) -> bool {
        matches!(self, Self::Held | Self::HeldAndStopped)
    }

    pub(crate) const fn is_stopped(self) -> bool {
        matches!(self, Self::Stopped | Self::HeldAndStopped | Self::Gone { stopped: true })
    }

    pub(crate) const fn is_gone(self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    pub(crate) const fn held(stopped: bool) -> Self {
        if stopped { Self::HeldAndStopped } else { Self::Held }
    }

    pub(crate) const fn released(stopped: bool) -> Self {
        if stopped { Self::Stopped } else { Self::Released }
    }

    /// After a look at its threads: nobody but somebody else can have stopped one that is not held.
    pub(crate) const fn seen(self, stopped: bool) -> Self {
        match self {
            Self::Released | Self::Stopped => Self::released(stopped),
            other => other,
        }
    }

    pub(crate) const fn gone(self) -> Self {
        Self::Gone { stopped: self.is_stopped() }
    }
}

#[cfg(test)]
mod tests {
    use super::Condition::{self, Behind, Gone, Held, HeldAndStopped, InTurn, Released, Resumed, Stopped};

    #[test]
    fn what_others_did_is_kept_apart_from_what_we_do() {
        let all = [Released, Stopped, Held, HeldAndStopped, Resumed];
        let held: Vec<Condition> = all.into_iter().filter(|c| c.is_held()).collect();
        assert_eq!(held, [Held, HeldAndStopped]);
        assert_eq!(all.map(Condition::is_stopped), [false, true, false, true, false]);
        // A look tells of those that are not held, and only of whether they were stopped.
        assert_eq!(all.map(|c| c.seen(true)), [Stopped, Stopped, Held, HeldAndStopped, Resumed]);
        assert_eq!(all.map(|c| c.seen(false)), [Released, Released, Held, HeldAndStopped, Resumed]);
        // Who has what is left is held only while it waits, and stands in neither case.
        let behind = [Behind, InTurn];
        assert_eq!(behind.map(Condition::is_held), [true, false]);
        assert!(behind.into_iter().all(|c| c.is_behind() && !c.stands() && c.seen(true) == c));
        assert!(!all.into_iter().any(Condition::is_behind));
        assert!(all.into_iter().all(|c| c.gone().is_gone() && c.gone().is_stopped() == c.is_stopped()));
        assert_eq!(Gone { stopped: true }.seen(false), Gone { stopped: true });
    }
}
