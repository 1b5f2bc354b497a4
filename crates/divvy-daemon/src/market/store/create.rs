//! A database that is not there yet.
//!
//! It is made whole under another name, and gets its own when the disk has all of it: whoever kills us, or pulls the plug, leaves a
//! database or none. So one that is there and empty was not left so by us.

use std::os::fd::OwnedFd;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{StoreError, schema, sql};

/// What SQLite keeps beside a database, and what is made of that of one that has gone, which would be taken for the new one's. The first may hold
/// the only copy of what was done last.
const BESIDE: [(&str, Option<&str>); 3] = [("-wal", Some("-wal.old")), ("-shm", None), ("-journal", None)];

/// Makes a database with mode 0600, and the tables of now, in `dir`, which is at `at`.
///
/// # Errors
/// [`StoreError`]: it is not there then. [`StoreError::InUse`] where another process is making it.
pub(super) fn create(dir: &OwnedFd, at: &Path, name: &str) -> Result<(), StoreError> {
    let path = at.join(name);
    let failed =
        |what: &'static str, e: Errno| StoreError::System { what, path: path.clone(), cause: e.into() };
    match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(StoreError::InUse { path }),
        Err(e) => return Err(failed("lock the directory, to make", e)),
    }
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {}
        Ok(_) => return Ok(()), // It was made while we waited for nothing.
        Err(e) => return Err(failed("stat", e)),
    }
    let remove = |name: &str| match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(StoreError::System { what: "remove", path: at.join(name), cause: e.into() }),
    };
    let unfinished = format!("{name}.new");
    remove(&unfinished)?;
    for (end, kept) in BESIDE {
        let file = format!("{name}{end}");
        match kept.map(|kept| rustix::fs::renameat(dir, &file, dir, format!("{name}{kept}"))) {
            None => remove(&file)?,
            Some(Ok(()) | Err(Errno::NOENT)) => {}
            Some(Err(e)) => return Err(failed("move away the log of", e)),
        }
    }
    let made = fill(dir, at, &unfinished)
        .and_then(|()| rustix::fs::renameat(dir, &unfinished, dir, name).map_err(|e| failed("name", e)))
        .and_then(|()| rustix::fs::fsync(dir).map_err(|e| failed("sync the directory of", e)));
    made.inspect_err(|_| drop(remove(&unfinished)))
}

/// Makes the file, and comes back when it is on disk.
fn fill(dir: &OwnedFd, at: &Path, name: &str) -> Result<(), StoreError> {
    let path = at.join(name);
    let failed =
        |what: &'static str, e: Errno| StoreError::System { what, path: path.clone(), cause: e.into() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    // It stays open for as long as SQLite has it: to close it would let go of SQLite's locks.
    let file = rustix::fs::openat(dir, name, flags, mode).map_err(|e| failed("create", e))?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut db = Connection::open_with_flags(&path, flags).map_err(|e| sql(&path, "open", e))?;
    // What is not finished is thrown away: nothing is written twice for its sake.
    let prepared = db.pragma_update(None, "journal_mode", "OFF");
    prepared.map_err(schema::SchemaError::from).and_then(|()| schema::migrate(&mut db)).map_err(
        |e| match e {
            schema::SchemaError::Sql(e) => sql(&path, "make its tables", e),
            schema::SchemaError::Newer(version) => StoreError::Newer { path: path.clone(), version },
            schema::SchemaError::Older(version) => StoreError::Older { path: path.clone(), version },
        },
    )?;
    db.close().map_err(|(_, e)| sql(&path, "close", e))?;
    rustix::fs::fsync(&file).map_err(|e| failed("sync", e))
}
