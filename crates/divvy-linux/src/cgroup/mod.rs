//! Back ends that use cgroups of our own: the freezer as the means to hold clients, and the kernel's CPU weights.
//!
//! divvy makes a tree (`divvy-PID-START`) below a cgroup that is ours to change, with a leaf for each client, where there are several
//! users in a cgroup for each of them (`u1000`). A command's
//! process writes itself into its leaf before it becomes the command, so nobody escapes; its children are born there.
//! What runs already is moved into its client's leaf, into a part for those that come from the same place, which bears that
//! place's name in an attribute, so that they can be moved back there. Where the kernel lets only systemd move them, systemd does.
//! At the end, or when guardian or rescue find that divvy has died, everybody is thawed and moved back to where divvy
//! was, and the tree is removed.

mod brake;
mod ceiling;
mod choose;
mod disks;
mod files;
mod held;
mod leaf;
mod many;
mod migrate;
mod pressure;
pub(crate) mod raw;
mod rights;
pub mod room;
pub(crate) mod scope;
mod survey;
mod tree;
mod upkeep;
mod users;
mod weights;

pub use ceiling::{Ceilings, NotKept};
pub use choose::{Asked, Backend, Chosen, Means, Refused, Wish, choose, choose_here};
pub use held::{disk_had, memory_held};
pub(crate) use leaf::{Leaf, is_gone};
#[doc(hidden)]
pub use many::ManyLeaves;
pub(crate) use migrate::Urgency;
pub use pressure::pressures;
pub use rights::{Enforced, Rights, WHOLE};
pub use scope::Lifetime;
pub(crate) use survey::FIX;
pub use survey::{Enable, Ground, Hierarchy, Survey};
pub(crate) use tree::Tree;
pub(crate) use upkeep::Whose;
pub(crate) use users::WithLeaves;
pub use users::{Check, Due};
pub use weights::{DEVIATION_WARN_PPM, Knob, Off, Weights, scale};
