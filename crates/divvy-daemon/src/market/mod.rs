//! The market of a system's divvyd: who has which right, kept on disk, and asked for over the API.
#![allow(dead_code, reason = "taken up part by part as the system mode grows")]

pub(crate) mod message;
pub(crate) mod policy;
pub(crate) mod routes;
pub mod types;
