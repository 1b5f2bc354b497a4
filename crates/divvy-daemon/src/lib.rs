//! divvyd: a user's own scheduler of running processes, and the API that it is asked through.
//!
//! One thread schedules ([`divvy_engine::Engine`] over [`divvy_linux::LinuxHost`]) and waits for nobody; another serves
//! HTTP and JSON on a unix socket that only the user (and root) may use. The [`client`] is what `divvy` asks with; it
//! [starts](launch) a divvyd where none runs. `docs/daemon.md` is for users, `docs/openapi.json` for programs.

pub mod client;
mod daemon;
mod door;
pub mod launch;
mod local;
pub mod market;
mod message;
mod metrics;
mod patient;
pub mod place;
mod protect;
mod routes;
mod scheduler;
mod server;
pub mod types;

pub use daemon::{command, main};
pub use routes::OPENAPI;

use std::io::Write as _;

/// Writes a line to standard error: the log, in the background. Nobody may be reading it, which ends nothing.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "divvyd: {line}");
}
