//! A runtime directory as the divvyd that serves from it has it: its lock, its socket, its log.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use divvy_api::place::{PlaceError, SOCKET, SOCKET_PATH_MAX};
use divvy_linux::guard::RuntimeDir;
use divvy_linux::{Pid, ProcessRef, clock};
use divvy_policy::Nanos;
use rustix::fs::{Mode, OFlags};

const LOCK: &str = "divvyd.lock";
const LOG: &str = "divvyd.log";

/// Says that this process is the divvyd that serves here, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "kept open: closing it unlocks")] File);

/// Who has the lock.
#[derive(Debug)]
pub(crate) enum Locked {
    /// We do.
    Ours(Lock),
    /// Another divvyd, of this pid if that can be read.
    Theirs(Option<i32>),
}

/// Where a divvyd in the background writes what nobody is there to read.
pub(crate) fn log_in(dir: &RuntimeDir) -> PathBuf {
    dir.path().join(LOG)
}

/// How long is waited for the lock of one that was killed, at most.
const LETS_GO_MAX: Nanos = Nanos::from_secs(2);
const LOOK: Nanos = Nanos::from_millis(10);

/// Takes the lock of the one divvyd that serves from `dir`, without waiting for one that lives. The kernel lets go of it when its
/// owner ends, however that comes about; where that was killed, not before those have that it had just forked.
pub(crate) fn lock_in(dir: &RuntimeDir) -> Result<Locked, PlaceError> {
    let begun = clock::now();
    loop {
        let locked = try_lock_in(dir)?;
        let gone = match locked {
            Locked::Theirs(Some(pid)) => Pid::from_raw(pid).map(ProcessRef::open),
            Locked::Ours(_) | Locked::Theirs(None) => None,
        };
        if !matches!(gone, Some(Ok(None))) || clock::now().since(begun) >= LETS_GO_MAX {
            return Ok(locked);
        }
        clock::sleep(LOOK);
    }
}

fn try_lock_in(dir: &RuntimeDir) -> Result<Locked, PlaceError> {
    let path = dir.path().join(LOCK);
    let failed = |what| {
        let path = path.clone();
        move |cause| PlaceError::File { what, path, cause }
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, LOCK, flags, Mode::RUSR | Mode::WUSR);
    let mut file = File::from(file.map_err(|e| failed("open")(e.into()))?);
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).map_err(failed("write"))?;
            writeln!(file, "{}", std::process::id()).map_err(failed("write"))?;
            Ok(Locked::Ours(Lock(file)))
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
            Ok(Locked::Theirs(read.ok().and_then(|_| text.trim().parse().ok())))
        }
        Err(TryLockError::Error(e)) => Err(failed("lock")(e)),
    }
}

/// A listening socket in `dir`, in the place of whatever was left there, with this mode.
pub(crate) fn listen_in(dir: &RuntimeDir, mode: u32) -> Result<UnixListener, PlaceError> {
    let path = dir.path().join(SOCKET);
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(PlaceError::TooLong { path });
    }
    remove_socket_in(dir);
    let listener = UnixListener::bind(&path).map_err(|e| file_error("listen on", &path, e))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&path, mode).map_err(|e| file_error("set the mode of", &path, e))?;
    listener.set_nonblocking(true).map_err(|e| file_error("listen on", &path, e))?;
    Ok(listener)
}

/// Removes the socket in `dir`.
pub(crate) fn remove_socket_in(dir: &RuntimeDir) {
    // One that is not there need not be removed; one that cannot be is told by `bind`.
    let _ = rustix::fs::unlinkat(dir, SOCKET, rustix::fs::AtFlags::empty());
}

fn file_error(what: &'static str, path: &Path, cause: std::io::Error) -> PlaceError {
    PlaceError::File { what, path: path.to_owned(), cause }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Waits until a lock that was let go of can be had: a child that another test has forked, and that has not become
    /// another program yet, holds it open for a moment.
    pub(crate) fn unlocked(can_be_had: impl Fn() -> bool) {
        let give_up = clock::now() + Nanos::from_secs(60);
        while !can_be_had() {
            assert!(clock::now() < give_up, "the lock is still held");
            clock::sleep(Nanos::from_millis(2));
        }
    }

    fn place(dir: &Path) -> RuntimeDir {
        RuntimeDir::open_or_create(dir).unwrap()
    }

    #[test]
    fn one_at_a_time_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(&dir.path().join("run"));
        let Locked::Ours(lock) = lock_in(&place).unwrap() else { panic!("nobody else is there") };
        match lock_in(&place).unwrap() {
            Locked::Theirs(pid) => assert_eq!(pid, Some(std::process::id() as i32)),
            Locked::Ours(_) => panic!("twice"),
        }
        let listener = listen_in(&place, 0o600).unwrap();
        let mode = std::fs::metadata(place.path().join(SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        // A socket that was left behind is in nobody's way.
        listen_in(&place, 0o600).unwrap();
        remove_socket_in(&place);
        assert!(!place.path().join(SOCKET).exists());
        drop(lock);
        unlocked(|| matches!(lock_in(&place).unwrap(), Locked::Ours(_)));
    }

    /// One that was killed has left the lock with a child that was just forked, and has not let go of it yet.
    #[test]
    fn the_lock_of_one_that_is_gone_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(&dir.path().join("run"));
        let Locked::Ours(lock) = lock_in(&place).unwrap() else { panic!("nobody else is there") };
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        std::fs::write(place.path().join(LOCK), gone.id().to_string()).unwrap();
        let held = std::thread::spawn(move || {
            clock::sleep(Nanos::from_millis(200));
            drop(lock);
        });
        assert!(matches!(lock_in(&place).unwrap(), Locked::Ours(_)));
        held.join().unwrap();
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(&dir.path().join("x".repeat(100)));
        let error = listen_in(&place, 0o600).unwrap_err().to_string();
        assert!(error.contains("name a shorter directory in DIVVY_RUNTIME_DIR"), "{error}");
    }
}
