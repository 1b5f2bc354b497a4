//! The market of a system's divvyd: who has which right, kept on disk, and asked for over the API.

pub(crate) mod message;
pub mod types;
