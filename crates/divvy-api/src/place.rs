//! Where a user's divvyd is found: a directory of the user's own, and a socket in it.

use std::path::PathBuf;

use divvy_linux::guard::{Environment, RuntimeDir};

/// The socket's name in the runtime directory.
pub const SOCKET: &str = "api.sock";
/// The longest path that a socket can have, its closing NUL left out (`struct sockaddr_un`).
pub const SOCKET_PATH_MAX: usize = 107;

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    #[error("{what} {}: {cause}{}", path.display(), room(cause))]
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

fn room(cause: &std::io::Error) -> &'static str {
    cause.raw_os_error().map_or("", |code| divvy_linux::room_fix(rustix::io::Errno::from_raw_os_error(code)))
}

/// A private runtime directory: the user's own, no symbolic link, mode 0700.
#[derive(Debug)]
pub struct Place {
    dir: RuntimeDir,
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
        first_candidate()?;
        Environment::read().open()?.map(Self::check).transpose()
    }

    fn check(dir: RuntimeDir) -> Result<Self, PlaceError> {
        let path = dir.path().to_owned();
        // Nobody could serve there, nor be asked.
        let socket = path.join(SOCKET);
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(PlaceError::TooLong { path: socket });
        }
        let stat = rustix::fs::fstat(&dir).map_err(|e| PlaceError::File {
            what: "stat",
            path: path.clone(),
            cause: e.into(),
        })?;
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

    /// The directory, which others can neither read nor write.
    #[must_use]
    pub fn dir(&self) -> &RuntimeDir {
        &self.dir
    }
}

/// The directory that is asked for.
fn first_candidate() -> Result<Option<PathBuf>, PlaceError> {
    match Environment::read().candidates().into_iter().next() {
        Some(path) if path.is_relative() => Err(PlaceError::Relative { path }),
        first => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

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
        let long = dir.path().join("x".repeat(SOCKET_PATH_MAX));
        let error = place(&long).unwrap_err().to_string();
        assert!(error.contains("longer than 107 bytes") && error.contains("DIVVY_RUNTIME_DIR"), "{error}");
    }
}
