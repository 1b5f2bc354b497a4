//! Where a user's divvyd is found: a directory of the user's own, a socket in it, and the lock of the one that serves.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use divvy_linux::guard::{Environment, RuntimeDir};
use rustix::fs::{Mode, OFlags};

/// The socket's name in the runtime directory.
pub const SOCKET: &str = "api.sock";
const LOCK: &str = "divvyd.lock";
const LOG: &str = "divvyd.log";
/// The longest path that a socket can have, its closing NUL left out (`struct sockaddr_un`).
const SOCKET_PATH_MAX: usize = 107;

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The directory is not safe, or cannot be had.
    #[error(transparent)]
    System(#[from] divvy_linux::Error),
    /// A path that means something else wherever a process is.
    #[error("DIVVY_RUNTIME_DIR={}: give the whole path, from / on", path.display())]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// Others can look into the directory.
    #[error("runtime directory {}: others can look into it (mode {mode:o}); chmod 700 it, or name another one in DIVVY_RUNTIME_DIR", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A socket cannot have such a long path.
    #[error("socket {}: the path is longer than {SOCKET_PATH_MAX} bytes; name a shorter directory in DIVVY_RUNTIME_DIR (of the system's divvyd: --run-dir)", path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// A file of it cannot be made or opened.
    #[error("{what} {}: {cause}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
}

/// A private runtime directory: the user's own, no symbolic link, mode 0700.
#[derive(Debug)]
pub struct Place {
    dir: RuntimeDir,
}

/// Says that this process is the user's divvyd, until it is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "kept open: closing it unlocks")] File);

/// Who has the lock.
#[derive(Debug)]
pub enum Locked {
    /// We do.
    Ours(Lock),
    /// Another divvyd, of this pid if that can be read.
    Theirs(Option<i32>),
}

impl Place {
    /// The place of this process's user and environment, made if it is not there.
    ///
    /// # Errors
    /// [`PlaceError`] names what is wrong with it, and the fix.
    pub fn open_or_create() -> Result<Self, PlaceError> {
        first_candidate()?;
        Self::check(Environment::read().open_or_create()?)
    }

    /// The place if it is there: where no divvyd has ever run, there may be none.
    ///
    /// # Errors
    /// As [`open_or_create`](Self::open_or_create).
    pub fn open() -> Result<Option<Self>, PlaceError> {
        let dir = first_candidate()?.map(|path| RuntimeDir::open(&path)).transpose()?.flatten();
        dir.map(Self::check).transpose()
    }

    fn check(dir: RuntimeDir) -> Result<Self, PlaceError> {
        let path = dir.path().to_owned();
        let stat = rustix::fs::fstat(&dir).map_err(|e| file_error("stat", &path, e.into()))?;
        let mode = stat.st_mode & 0o777;
        if mode & 0o077 != 0 {
            return Err(PlaceError::NotPrivate { path, mode });
        }
        Ok(Self { dir })
    }

    /// The socket's path.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// Where a divvyd in the background writes what nobody is there to read.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.path().join(LOG)
    }

    /// Takes the lock of the one divvyd that serves here, without waiting. The kernel lets go of it when its owner ends,
    /// however that comes about.
    ///
    /// # Errors
    /// [`PlaceError::File`] where the lock file cannot be had.
    pub fn lock(&self) -> Result<Locked, PlaceError> {
        lock_in(&self.dir)
    }

    /// A listening socket, in the place of whatever an earlier divvyd left. Only the owner can connect to it.
    ///
    /// # Errors
    /// [`PlaceError`] where it cannot be made.
    pub fn listen(&self, _: &Lock) -> Result<UnixListener, PlaceError> {
        // The directory is private, so nobody could connect in the moment before the mode is set either.
        listen_in(&self.dir, 0o600)
    }

    /// Removes the socket: nobody new finds us any more.
    pub fn remove_socket(&self) {
        remove_socket_in(&self.dir);
    }
}

/// Takes the lock in `dir`, without waiting; see [`Place::lock`].
pub(crate) fn lock_in(dir: &RuntimeDir) -> Result<Locked, PlaceError> {
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

/// The directory that is asked for.
fn first_candidate() -> Result<Option<PathBuf>, PlaceError> {
    match Environment::read().candidates().into_iter().next() {
        Some(path) if path.is_relative() => Err(PlaceError::Relative { path }),
        first => Ok(first),
    }
}

fn file_error(what: &'static str, path: &Path, cause: std::io::Error) -> PlaceError {
    PlaceError::File { what, path: path.to_owned(), cause }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use divvy_linux::clock;
    use divvy_policy::Nanos;
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

    fn place(dir: &Path) -> Result<Place, PlaceError> {
        Place::check(RuntimeDir::open_or_create(dir)?)
    }

    #[test]
    fn a_directory_that_is_not_the_users_own_alone_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (private, link) = (dir.path().join("private"), dir.path().join("link"));
        assert!(place(&private).is_ok());
        assert_eq!(std::fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o700);
        for mode in [0o750, 0o701, 0o704, 0o777] {
            std::fs::set_permissions(&private, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = place(&private).unwrap_err().to_string();
            assert!(error.contains(&format!("(mode {mode:o})")), "{error}");
            assert!(error.contains("DIVVY_RUNTIME_DIR"), "a fix: {error}");
        }
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&private, &link).unwrap();
        let error = place(&link).unwrap_err().to_string();
        assert!(error.contains("it is a symbolic link"), "{error}");
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = place(&dir.path().join("file")).unwrap_err().to_string();
        assert!(error.contains("it is not a directory"), "{error}");
    }

    #[test]
    fn one_at_a_time_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(&dir.path().join("run")).unwrap();
        let Locked::Ours(lock) = place.lock().unwrap() else { panic!("nobody else is there") };
        match place.lock().unwrap() {
            Locked::Theirs(pid) => assert_eq!(pid, Some(std::process::id() as i32)),
            Locked::Ours(_) => panic!("twice"),
        }
        let listener = place.listen(&lock).unwrap();
        let mode = std::fs::metadata(place.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        // A socket that was left behind is in nobody's way.
        place.listen(&lock).unwrap();
        place.remove_socket();
        assert!(!place.socket().exists());
        drop(lock);
        unlocked(|| matches!(place.lock().unwrap(), Locked::Ours(_)));
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(&dir.path().join("x".repeat(100))).unwrap();
        let Locked::Ours(lock) = place.lock().unwrap() else { panic!("nobody else is there") };
        let error = place.listen(&lock).unwrap_err().to_string();
        assert!(error.contains("name a shorter directory in DIVVY_RUNTIME_DIR"), "{error}");
    }
}
