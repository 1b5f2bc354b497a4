//! The directory of the database: ours, no symbolic link, and nobody else's to look into.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::StoreError;

/// Opens the directory, made with mode 0700 if it is not there; its parent has to be.
pub(super) fn open(path: &Path) -> Result<OwnedFd, StoreError> {
    let system = |what: &'static str, cause: Errno| StoreError::System {
        what,
        path: path.to_owned(),
        cause: cause.into(),
    };
    let unsafe_dir = |what: String| StoreError::Unsafe { path: path.to_owned(), what };
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(system("create directory", e)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let is_link =
                rustix::fs::lstat(path).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_symlink());
            let what = if is_link { "it is a symbolic link" } else { "it is not a directory" };
            return Err(unsafe_dir(what.to_owned()));
        }
        Err(e) => return Err(system("open directory", e)),
    };
    let stat = rustix::fs::fstat(&dir).map_err(|e| system("stat directory", e))?;
    check_owner(stat.st_uid).map_err(unsafe_dir)?;
    let mode = stat.st_mode & 0o777;
    if mode & 0o077 != 0 {
        return Err(unsafe_dir(format!("others can look into it (mode {mode:o})")));
    }
    Ok(dir)
}

/// Whether the database's file is there. It has to be a file of ours alone, and what SQLite puts beside it gets the same mode; one that
/// is empty was something else once.
pub(super) fn check_file(dir: &OwnedFd, name: &str, path: &Path) -> Result<bool, StoreError> {
    let system = |what: &'static str, cause: Errno| StoreError::System {
        what,
        path: path.to_owned(),
        cause: cause.into(),
    };
    let unsafe_file = |what: String| StoreError::Unsafe { path: path.to_owned(), what };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(false),
        Err(Errno::LOOP) => return Err(unsafe_file("it is a symbolic link".to_owned())),
        Err(e) => return Err(system("open", e)),
    };
    let stat = rustix::fs::fstat(&file).map_err(|e| system("stat", e))?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(unsafe_file("it is no plain file".to_owned()));
    }
    check_owner(stat.st_uid).map_err(unsafe_file)?;
    let mode = stat.st_mode & 0o777;
    if mode & 0o077 != 0 {
        return Err(unsafe_file(format!("others can read it (mode {mode:o})")));
    }
    if stat.st_size == 0 {
        return Err(StoreError::Empty { path: path.to_owned() });
    }
    Ok(true)
}

fn check_owner(owner: u32) -> Result<(), String> {
    let uid = rustix::process::geteuid().as_raw();
    if owner == uid {
        Ok(())
    } else {
        Err(format!("it belongs to user {owner}, not to user {uid} who runs divvyd"))
    }
}
