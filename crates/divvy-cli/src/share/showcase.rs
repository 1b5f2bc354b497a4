//! How a run shows itself to `divvy ls` and `divvy top`: a socket, and a thread that answers there.
//!
//! The thread asks the scheduler for how it stands, whose next turn puts that down; between two questions nothing is done. A run
//! that cannot show itself, because there is no private directory for the socket, runs all the same.

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use divvy_api::runs::{self, ShareRun};
use divvy_linux::Waker;
use rustix::event::{PollFd, PollFlags, poll};

/// Between turns of a scheduler that is alive there is less.
const PATIENCE: Duration = Duration::from_millis(400);

#[derive(Default)]
struct Desk {
    wanted: AtomicBool,
    answer: Mutex<Option<String>>,
    answered: Condvar,
}

/// A run's place where it can be looked at. Dropping it takes the socket away.
pub(super) struct Showcase {
    desk: Arc<Desk>,
    path: PathBuf,
    /// Dropped: the thread ends.
    _end: OwnedFd,
}

impl Showcase {
    /// Starts to listen; `waker` ends the scheduler's wait when somebody looks. `None` where there is no place for it.
    pub(super) fn open(waker: Waker) -> Option<Self> {
        Self::open_at(&runs::socket(std::process::id()).ok()?, move || waker.wake())
    }

    fn open_at(path: &Path, wake: impl Fn() + Send + 'static) -> Option<Self> {
        // Of a run that was killed and had our pid.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).ok()?;
        let (ending, end) = std::io::pipe().ok()?;
        let desk = Arc::new(Desk::default());
        let of_thread = Arc::clone(&desk);
        let thread = std::thread::Builder::new().name("divvy-showcase".into());
        thread.spawn(move || serve(&listener, &ending, &of_thread, &wake)).ok()?;
        Some(Self { desk, path: path.to_owned(), _end: end.into() })
    }

    /// Puts down how the run stands, if somebody wants to know.
    pub(super) fn show(&self, run: impl FnOnce() -> ShareRun) {
        if self.desk.wanted.swap(false, Ordering::AcqRel) {
            let text = serde_json::to_string(&run()).unwrap_or_default();
            *self.desk.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            self.desk.answered.notify_all();
        }
    }
}

impl Drop for Showcase {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, end: &std::io::PipeReader, desk: &Desk, wake: &impl Fn()) {
    loop {
        let mut polled =
            [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !polled[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        if let Ok((stream, _)) = listener.accept() {
            answer(stream, desk, wake);
        }
    }
}

/// Whoever asks reads, or is left: nobody else waits for it but who asks next.
fn answer(mut stream: UnixStream, desk: &Desk, wake: &impl Fn()) {
    let mut held = desk.answer.lock().unwrap_or_else(PoisonError::into_inner);
    *held = None;
    desk.wanted.store(true, Ordering::Release);
    wake();
    let waited = desk.answered.wait_timeout_while(held, PATIENCE, |answer| answer.is_none());
    let text = waited.unwrap_or_else(PoisonError::into_inner).0.take();
    if let Some(text) = text {
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let _ = stream.write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn whoever_looks_is_told_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("share-1.sock");
        let (woken, wakes) = std::sync::mpsc::channel();
        let showcase = Showcase::open_at(&path, move || woken.send(()).unwrap()).unwrap();
        let run = || ShareRun { pid: 1, policy: "exact".into(), cpus: vec![], uptime_ns: 7, clients: vec![] };
        showcase.show(|| unreachable!("nobody has asked"));
        let mut looking = UnixStream::connect(&path).unwrap();
        wakes.recv().unwrap();
        showcase.show(run);
        let mut text = String::new();
        looking.read_to_string(&mut text).unwrap();
        assert_eq!(serde_json::from_str::<ShareRun>(&text).unwrap(), run());
        // A scheduler that does not answer: nothing, and soon.
        let mut looking = UnixStream::connect(&path).unwrap();
        looking.read_to_string(&mut text).unwrap();
        drop(showcase);
        assert!(!path.exists());
    }
}
