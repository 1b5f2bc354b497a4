//! divvyd: a scheduler of running processes, a user's own or a system's, and the API that it is asked through.
//!
//! One thread schedules ([`divvy_engine::Engine`] over [`divvy_linux::LinuxHost`]) and waits for nobody; another serves
//! HTTP and JSON on a unix socket that only the user (and root) may use; a system's divvyd serves everybody, and a third
//! thread keeps its [`market`]. The [`client`] is what `divvy` asks with; it
//! [starts](launch) a divvyd where none runs. `docs/daemon.md` is for users, `docs/openapi.json` for programs.

pub mod client;
mod clients;
mod daemon;
mod door;
#[doc(hidden)]
pub mod fuzzing;
pub mod launch;
mod limit;
mod local;
mod logs;
mod lookers;
pub mod market;
mod message;
mod metrics;
mod patient;
pub mod place;
mod protect;
mod routes;
mod scheduler;
mod server;
mod subscribers;
mod system;
pub mod types;

pub use daemon::{command, main};
pub use routes::OPENAPI;

use std::io::Write as _;

/// Writes a line to the log, where there is one, else to standard error. Nobody may be reading it, which ends nothing.
fn say(line: impl std::fmt::Display) {
    if logs::is_started() {
        tracing::info!("{line}");
        return;
    }
    let _ = writeln!(std::io::stderr().lock(), "divvyd: {line}");
}
