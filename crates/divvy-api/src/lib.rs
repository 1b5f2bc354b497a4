//! What a divvyd is asked and answers, in Rust, and a client that asks it.
//!
//! [`types`] and [`market`] are the requests and answers; `docs/openapi.json` says the same for everybody. Server and
//! client use these and no others. [`client::Api`] asks a divvyd over its unix socket, [`launch`] starts the user's own where
//! none runs, [`place`] says where it is found. [`runs`] tells of every `divvy share` of the user.

pub mod client;
pub mod cpus;
pub mod launch;
pub mod limit;
pub mod market;
pub mod names;
pub mod nearest;
pub mod place;
pub mod rules;
pub mod runs;
pub mod site;
pub mod time;
pub mod types;

/// What the README shows, tried.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
