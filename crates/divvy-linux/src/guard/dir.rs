//! The private runtime directory that holds the tables.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::{Error, Result};

/// Where the system's divvyd keeps its table, unless it was told another place.
pub const SYSTEM_DIR: &str = "/run/divvy";

/// What to do about a directory that cannot be used: never to remove it, for it may be one that the user has named.
const NAME_ANOTHER: &str = "name a directory of your own in DIVVY_RUNTIME_DIR";
const CLOSE_IT: &str = "chmod go-w it, or name another one in DIVVY_RUNTIME_DIR";

const SET_ANOTHER: &str =
    "set DIVVY_RUNTIME_DIR to a directory of your own, as in DIVVY_RUNTIME_DIR=~/.divvy";
const MAKE_PARENT: &str = "make the directory around it, or set DIVVY_RUNTIME_DIR to another of your own, as in DIVVY_RUNTIME_DIR=~/.divvy";

/// What the environment says about where the runtime directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `DIVVY_RUNTIME_DIR`: the directory itself.
    pub divvy_runtime_dir: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`: the directory's parent.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// The user who runs divvy.
    pub uid: u32,
}

impl Environment {
    /// What this process's environment says. The one place of the crate that reads it; empty variables count as unset.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the environment is read")]
    pub fn read() -> Self {
        let dir =
            |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
        Self {
            divvy_runtime_dir: dir("DIVVY_RUNTIME_DIR"),
            xdg_runtime_dir: dir("XDG_RUNTIME_DIR"),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// Every place where a table may be, the preferred one first: `$DIVVY_RUNTIME_DIR`, `$XDG_RUNTIME_DIR/divvy`,
    /// `/run/user/UID/divvy`, `/tmp/divvy-UID`, and root's last the [system's](SYSTEM_DIR). A parent that is not there or
    /// not the user's own is left out (`su` and `sudo` leave that of another user behind).
    #[must_use]
    pub fn candidates(&self) -> Vec<PathBuf> {
        let uid = self.uid;
        let own = |parent: &Path| {
            rustix::fs::stat(parent)
                .is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_dir() && s.st_uid == uid)
        };
        let mut found: Vec<PathBuf> = self.divvy_runtime_dir.iter().cloned().collect();
        let parents = self.xdg_runtime_dir.iter().cloned().chain([PathBuf::from(format!("/run/user/{uid}"))]);
        found.extend(parents.filter(|parent| own(parent)).map(|parent| parent.join("divvy")));
        found.push(PathBuf::from(format!("/tmp/divvy-{uid}")));
        if uid == 0 {
            found.push(PathBuf::from(SYSTEM_DIR)); // Never the first: it is the system's divvyd's alone.
        }
        found.dedup();
        found
    }

    /// The directory to keep tables in: the first of the [candidates](Environment::candidates), made if need be.
    ///
    /// # Errors
    /// As [`RuntimeDir::open_or_create`]: an unsafe directory is refused, never passed over in silence. What the system refuses is
    /// [`Error::RuntimeDirectory`], with the variable that names another.
    pub fn open_or_create(&self) -> Result<RuntimeDir> {
        match self.candidates().first() {
            Some(path) => RuntimeDir::open_or_create(path).map_err(of_environment),
            None => Err(Error::system("find", "a runtime directory", Errno::NOENT)),
        }
    }

    /// The same directory if it is there.
    ///
    /// # Errors
    /// As [`open_or_create`](Self::open_or_create).
    pub fn open(&self) -> Result<Option<RuntimeDir>> {
        let first = self.candidates().into_iter().next();
        first.map_or(Ok(None), |path| RuntimeDir::open(&path).map_err(of_environment))
    }

    /// Every directory that exists among the [candidates](Environment::candidates), for a rescue: a table may have been
    /// left by a divvy that saw another environment (cron, `su`).
    #[must_use]
    pub fn open_all(&self) -> Vec<Result<RuntimeDir>> {
        self.candidates().iter().filter_map(|path| RuntimeDir::open(path).transpose()).collect()
    }
}

/// The same error where the environment says which directory it is, and can name another.
fn of_environment(e: Error) -> Error {
    match e {
        Error::System { operation, object, cause } | Error::Permission { operation, object, cause, .. } => {
            let fix = match cause {
                Errno::NOENT => MAKE_PARENT,
                _ => SET_ANOTHER,
            };
            Error::RuntimeDirectory { operation, object, fix, cause }
        }
        e => e,
    }
}

/// A directory that is ours and that nobody else can write to, held open: what is behind its name later does not matter.
#[derive(Debug)]
pub struct RuntimeDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl RuntimeDir {
    /// The directory at `path`, made with mode 0700 if it is not there. Its parent has to be.
    ///
    /// # Errors
    /// [`Error::UnsafeDirectory`] where it is a symbolic link, no directory, not owned by us, or writable by others;
    /// [`Error::System`] or [`Error::Permission`] where it cannot be made or opened.
    pub fn open_or_create(path: &Path) -> Result<Self> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(Error::system("create directory", path.display(), e)),
        }
        Self::open(path)?.ok_or_else(|| Error::system("open directory", path.display(), Errno::NOENT))
    }

    /// The directory at `path`; `None` if there is none.
    ///
    /// # Errors
    /// As [`RuntimeDir::open_or_create`].
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let unsafe_dir = |what: String, fix| Error::UnsafeDirectory { path: path.to_owned(), what, fix };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let is_link =
                    rustix::fs::lstat(path).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_symlink());
                let what = if is_link { "it is a symbolic link" } else { "it is not a directory" };
                return Err(unsafe_dir(what.to_owned(), NAME_ANOTHER));
            }
            Err(e) => return Err(Error::system("open directory", path.display(), e)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|e| Error::system("stat directory", path.display(), e))?;
        let uid = rustix::process::geteuid().as_raw();
        if stat.st_uid != uid {
            let what = format!("it belongs to user {}, not to user {uid} who runs divvy", stat.st_uid);
            return Err(unsafe_dir(what, NAME_ANOTHER));
        }
        let mode = stat.st_mode & 0o7777;
        if mode & 0o022 != 0 {
            return Err(unsafe_dir(format!("others can write to it (mode {mode:o})"), CLOSE_IT));
        }
        Ok(Some(Self { fd, path: path.to_owned() }))
    }

    /// Where it was when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file `name` in it, for messages.
    pub(crate) fn path_of(&self, name: &std::ffi::CStr) -> PathBuf {
        self.path.join(OsString::from_vec(name.to_bytes().to_vec()))
    }

    /// Removes the file `name`; that somebody else has done so already is fine.
    pub(crate) fn remove(&self, name: &std::ffi::CStr) -> Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::system("remove", self.path_of(name).display(), e)),
        }
    }

    /// The names of the files in it, in order.
    pub(crate) fn names(&self) -> Result<Vec<CString>> {
        let failed = |e| Error::system("list directory", self.path.display(), e);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name().to_owned());
        }
        names.sort();
        Ok(names)
    }

    /// A second descriptor of it.
    pub(crate) fn duplicate(&self) -> Result<Self> {
        let fd = self.fd.try_clone().map_err(|e| {
            Error::system("duplicate", self.path.display(), Errno::from_io_error(&e).unwrap_or(Errno::MFILE))
        })?;
        Ok(Self { fd, path: self.path.clone() })
    }
}

impl AsFd for RuntimeDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
