//! Members that are not the client's owner's.
//!
//! Where a client has an owner (a user of a system's divvyd), only processes that are the owner's in every way are held
//! and charged. Whoever else is among the members (`sudo`, a set-uid program, a shell of another user's in the tree) is
//! neither signalled nor charged for as long as it is somebody else's; when it ends, its parent is not charged for it
//! either. One that came and went unseen is charged to the parent that waited for it: nothing tells it apart.

use super::{Member, Members};
use crate::world::World;
use crate::{Pid, Result};

impl<W: World> Members<W> {
    /// These members, of whom only processes of `owner` are held and charged; everybody for `None`.
    pub fn owned_by(mut self, owner: Option<u32>) -> Self {
        self.owner = owner;
        self
    }

    /// Whether whoever has `pid` now is the owner's.
    pub(super) fn is_owned(&self, pid: Pid) -> Result<bool> {
        let Some(owner) = self.owner else { return Ok(true) };
        Ok(self.world.users(pid)?.is_some_and(|users| users.is_owned_by(owner)))
    }

    /// Looks whose `m` is by now. Who has become somebody else's is not to be signalled from here on.
    ///
    /// # Errors
    /// As [`World::users`].
    pub(super) fn look_whose(&self, m: &mut Member<W::Process>) -> Result<()> {
        if self.owner.is_some() {
            m.owned = self.is_owned(m.pid)?;
            m.permitted &= m.owned;
        }
        Ok(())
    }
}
