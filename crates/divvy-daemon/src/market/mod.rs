//! The market of a system's divvyd: who has which right, kept on disk, and asked for over the API.

mod achieved;
pub(crate) mod bucket;
#[doc(hidden)]
pub mod drill;
pub(crate) mod ledger;
pub(crate) mod message;
pub(crate) mod names;
pub(crate) mod policy;
pub(crate) mod record;
pub(crate) mod routes;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod thread;

pub(crate) use store::StoreConfig;
pub(crate) use thread::{Feed, PARTS, Running, Start, start};
