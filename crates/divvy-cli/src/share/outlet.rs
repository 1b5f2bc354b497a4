//! Writing without waiting: a thread of its own writes, from a queue that has an end.
//!
//! The thread that schedules must never wait for whoever reads what divvy says or records: a pipe that nobody reads, a
//! terminal that was stopped, a disk that stalls. What does not fit the queue any more is refused at once.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A writer that never waits. Its clones write into the same queue.
#[derive(Clone)]
pub(super) struct Outlet {
    shared: Arc<Shared>,
    /// Bytes that may wait.
    room: usize,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    /// Bytes in the queue, and those that are being written.
    waiting: usize,
    ended: bool,
    /// Everything is written, or has failed.
    done: bool,
    failed: Option<io::Error>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut to: impl Write) {
        let mut state = self.lock();
        loop {
            if let Some(bytes) = state.queue.pop_front() {
                drop(state);
                let written = to.write_all(&bytes).and_then(|()| to.flush());
                state = self.lock();
                state.waiting -= bytes.len();
                if let Err(e) = written {
                    state.failed = Some(e);
                    break;
                }
            } else if state.ended {
                break;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.done = true;
        self.changed.notify_all();
    }
}

fn too_slow(bytes: usize) -> io::Error {
    let text = format!("whoever reads it is too slow: {bytes} bytes wait to be read, and it ends here");
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn copy(e: &io::Error) -> io::Error {
    e.raw_os_error().map_or_else(|| io::Error::new(e.kind(), e.to_string()), io::Error::from_raw_os_error)
}

impl Outlet {
    /// Starts a thread that writes to `to`; up to `room` bytes wait for it.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub(super) fn start(name: &str, to: impl Write + Send + 'static, room: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let writer = Arc::clone(&shared);
        std::thread::Builder::new().name(name.into()).spawn(move || writer.write_all(to))?;
        Ok(Self { shared, room })
    }

    /// Ends it, and waits until all is written, but no longer than `limit`.
    ///
    /// # Errors
    /// What went wrong in writing, or that it could not be written in time.
    pub(super) fn finish(&self, limit: Duration) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.ended = true;
        self.shared.changed.notify_all();
        let waited = self.shared.changed.wait_timeout_while(state, limit, |state| !state.done);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.failed {
            Some(e) => Err(copy(e)),
            None if !state.done => Err(too_slow(state.waiting)),
            None => Ok(()),
        }
    }
}

impl Write for Outlet {
    /// Puts all of `bytes` into the queue, or nothing.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        if let Some(e) = &state.failed {
            return Err(copy(e));
        }
        if state.waiting + bytes.len() > self.room {
            return Err(too_slow(state.waiting));
        }
        state.waiting += bytes.len();
        state.queue.push_back(bytes.to_vec());
        self.shared.changed.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(60);

    #[test]
    fn all_is_written_in_order() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut outlet = Outlet::start("test", writer, 100).unwrap();
        for part in ["one ", "two ", "three"] {
            outlet.write_all(part.as_bytes()).unwrap();
        }
        outlet.finish(LATE).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two three");
    }

    #[test]
    fn a_reader_that_stalls_stops_nobody() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        // A pipe holds 64 KiB; nothing more goes in until somebody reads.
        writer.write_all(&[0; 65536]).unwrap();
        let mut outlet = Outlet::start("test", writer, 10).unwrap();
        outlet.write_all(b"12345678").unwrap();
        assert_eq!(outlet.write(b"abc").unwrap_err().kind(), io::ErrorKind::TimedOut);
        outlet.write_all(b"90").unwrap();
        let error = outlet.finish(SOON).unwrap_err().to_string();
        assert!(error.contains("too slow: 10 bytes"), "{error}");
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(&text[65536..], b"1234567890", "whoever comes late finds what was accepted");
        outlet.finish(LATE).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut outlet = Outlet::start("test", writer, 10).unwrap();
        outlet.write_all(b"lost").unwrap();
        assert_eq!(outlet.finish(LATE).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(outlet.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
