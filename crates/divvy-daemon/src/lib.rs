//! divvyd: a scheduler of running processes, a user's own or a system's, and the API that it is asked through.
//!
//! One thread schedules ([`divvy_engine::Engine`] over [`divvy_linux::LinuxHost`]) and waits for nobody; another serves
//! HTTP and JSON on a unix socket that only the user (and root) may use; a system's divvyd serves everybody, and a third
//! thread keeps its [`market`]. `divvy` asks it, and starts one where none runs, with the client of `divvy-api`.
//! `docs/daemon.md` is for users, `docs/openapi.json` for programs.

mod backend;
mod budget;
mod clients;
mod connection_limit;
mod daemon;
#[doc(hidden)]
pub mod fuzzing;
mod kernel;
mod limit;
mod local;
mod logs;
mod lookers;
pub mod market;
#[doc(hidden)]
pub mod measured;
mod message;
mod metrics;
mod place;
mod protect;
mod routes;
mod rules;
mod scheduler;
mod server;
mod subscribers;
mod system;
mod write_timeout;

pub use daemon::{command, main};
pub use routes::OPENAPI;

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Writes a line to the log, where there is one, else to standard error. Nobody may be reading it, which ends nothing and
/// holds nobody up: what standard error would not take at once (a full pipe, a terminal that was stopped) is not said. Whoever
/// calls may be the scheduling thread, and clients stand while that waits.
fn say(line: impl std::fmt::Display) {
    if logs::is_started() {
        tracing::info!("{line}");
        return;
    }
    write_now(std::io::stderr().as_fd(), &format!("divvyd: {line}\n"));
}

/// Writes as much of `text` as `to` takes without waiting.
fn write_now(to: BorrowedFd<'_>, text: &str) {
    /// What can be written to at all takes so much at once.
    const AT_ONCE: usize = 4096;
    for part in text.as_bytes().chunks(AT_ONCE) {
        let mut polled = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let takes = poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0);
        if !takes || rustix::io::write(to, part).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// It would not come back where it waited.
    #[test]
    fn what_nobody_reads_holds_nobody_up() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        for n in 0..20_000 {
            write_now(writer.as_fd(), &format!("line {n} that is long enough to fill a pipe before long\n"));
        }
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).expect("what was taken");
        assert!(said.starts_with("line 0 ") && !said.contains("line 19999 "), "{} bytes", said.len());
        drop(reader);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        write_now(writer.as_fd(), "nobody is there");
    }
}
