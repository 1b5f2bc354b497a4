//! The ledger on disk: SQLite, with a log of [`Record`]s, snapshots that shorten it, and the audit log.
//!
//! **Nothing is acknowledged that is not on disk.** [`Store::commit`] writes a batch of records in one transaction and comes
//! back when the disk has it (WAL, `synchronous=FULL`: one flush a batch). A crash at any moment leaves whole batches.
//!
//! **Recovery** takes the newest snapshot that is sound (its sum and format fit, it can be read, and every law of the market
//! holds in it) and does the records after it again. A record that cannot be replayed, or of which something else comes
//! than came of it before, is an error that names it: divvyd then does not start with a market that nobody agreed to.

mod audit;
mod create;
mod dir;
mod image;
mod schema;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::ledger::{ImageError, Ledger, ReplayError};
use super::policy::{AuditTerms, Policy};
use super::record::{Fingerprint, Record};
use audit::AuditLog;
use divvy_api::market::Audit;
use image::FORMAT;
use schema::SchemaError;

/// The database's name in its directory.
const FILE: &str = "market.db";
/// Bytes of one part of a snapshot.
const PART: usize = 8 << 20;
/// Snapshots that are kept: the newest, and one to go back to if that is damaged.
const SNAPSHOTS_KEPT: i64 = 2;

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{what} {}: {cause}", path.display())]
    System {
        what: &'static str,
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("{}: {what}; it must be divvyd's own, and nobody else's to read: chown and chmod it (directory 0700, file 0600), or name another with --state-dir", path.display())]
    Unsafe { path: PathBuf, what: String },
    #[error("{}: another process has it open; end that one first (is another divvyd running?)", path.display())]
    InUse { path: PathBuf },
    #[error("{}: it is empty, and a market's file never is (was the disk full once?); move it away with {0}-wal, if that is there, and restore it from a backup, or begin with an empty market", path.display())]
    Empty { path: PathBuf },
    #[error("{}: its version is {version}, and this divvyd knows versions up to {}; use a newer divvyd, or restore the file from a backup of before the upgrade", path.display(), schema::VERSION)]
    Newer { path: PathBuf, version: i64 },
    #[error("{}: its version is {version}, whose snapshots this divvyd cannot read; let the divvyd that wrote it go on with it, or move it away to begin with an empty market", path.display())]
    Older { path: PathBuf, version: i64 },
    #[error("{}: {what}: {cause}; {}", path.display(), remedy(cause))]
    Sql {
        path: PathBuf,
        what: &'static str,
        #[source]
        cause: rusqlite::Error,
    },
    #[error("{}: record {seq}: {what}; restore the file from a backup, or move it away to begin with an empty market", path.display())]
    Record { path: PathBuf, seq: i64, what: String },
    #[error("{}: no snapshot is sound ({what}), and the log does not begin at its beginning; restore the file from a backup, or move it away to begin with an empty market", path.display())]
    NoSnapshot { path: PathBuf, what: String },
    #[error("{}: a snapshot is in format {format}, and this divvyd reads formats {} to {FORMAT}; {}", path.display(), image::OLDEST, image::remedy(*format))]
    Format { path: PathBuf, format: i64 },
    #[error("write the ledger down: {0}")]
    Image(#[from] postcard::Error),
}

impl StoreError {
    /// Whether the file is there and is not what it should be: damaged, or of another version.
    pub(crate) fn is_of_the_file(&self) -> bool {
        use rusqlite::ErrorCode as Code;
        match self {
            Self::Empty { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::Record { .. }
            | Self::NoSnapshot { .. }
            | Self::Format { .. } => true,
            Self::Sql { cause, .. } => {
                matches!(cause.sqlite_error_code(), Some(Code::DatabaseCorrupt | Code::NotADatabase))
            }
            Self::System { .. } | Self::Unsafe { .. } | Self::InUse { .. } | Self::Image(_) => false,
        }
    }
}

fn remedy(cause: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode as Code;
    match cause.sqlite_error_code() {
        Some(Code::DiskFull) => "the disk is full: make room; nothing that was acknowledged is lost",
        Some(Code::ReadOnly | Code::PermissionDenied | Code::CannotOpen) => {
            "it cannot be written: check the file's owner and mode, and whether the file system is mounted read-only"
        }
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => {
            "it is damaged: restore the file from a backup, or move it away to begin with an empty market"
        }
        Some(Code::SystemIoFailure) => "the disk reports errors: see the kernel's log",
        _ => "try again; report this if it stays",
    }
}

/// Where the store is.
#[derive(Clone, Debug)]
pub(crate) struct StoreConfig {
    /// The directory: made with mode 0700 if it is not there, refused if it is not ours alone.
    pub(crate) dir: PathBuf,
    /// A snapshot is written once so many records came since the last, or as many as there are tickets if that is more.
    pub(crate) snapshot_after: u64,
    /// The database has no more pages than this, of 4 KiB; as large as the disk where not given.
    pub(crate) pages_max: Option<u32>,
}

impl StoreConfig {
    /// The store in `dir`, with the usual settings.
    pub(crate) fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), snapshot_after: 10_000, pages_max: None }
    }
}

/// A line of the audit log to be written.
#[derive(Clone, Debug)]
pub(crate) struct AuditLine {
    pub(crate) at_ns: u64,
    pub(crate) uid: u32,
    pub(crate) pid: i32,
    pub(crate) what: serde_json::Value,
    pub(crate) refused: Option<String>,
}

/// What recovery found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// The snapshot that was used: how many records it stands for.
    pub(crate) snapshot: Option<i64>,
    /// Records that were done again after it.
    pub(crate) replayed: u64,
    /// Snapshots that were not sound.
    pub(crate) damaged: u64,
}

/// The database, open. Nobody else can open it.
#[derive(Debug)]
pub(crate) struct Store {
    db: Connection,
    path: PathBuf,
    /// The number of the last record, and of the last that a snapshot stands for.
    last: i64,
    snapshot: i64,
    audit: AuditLog,
}

impl Store {
    /// Opens the store, makes what is not there, and recovers the ledger.
    ///
    /// # Errors
    /// [`StoreError`]. Nothing that was acknowledged is lost by it.
    pub(crate) fn open(
        config: &StoreConfig,
        policy: &Policy,
    ) -> Result<(Self, Ledger, Recovered), StoreError> {
        let dir = dir::open(&config.dir)?;
        let path = config.dir.join(FILE);
        if !dir::check_file(&dir, FILE, &path)? {
            create::create(&dir, &config.dir, FILE)?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let db = Connection::open_with_flags(&path, flags).map_err(|e| sql(&path, "open", e))?;
        let mut store = Self { db, path, last: 0, snapshot: 0, audit: AuditLog::new(policy.audit) };
        store.set_up(config)?;
        let Self { db, path, audit, .. } = &mut store;
        audit.open(db).map_err(|e| sql(path, "read the audit log", e))?;
        let (ledger, recovered) = store.recover(policy)?;
        Ok((store, ledger, recovered))
    }

    fn set_up(&mut self, config: &StoreConfig) -> Result<(), StoreError> {
        let Self { db, path, .. } = self;
        let prepare = |db: &Connection| {
            db.busy_timeout(Duration::ZERO)?;
            db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            db.pragma_update(None, "journal_mode", "WAL")?;
            db.pragma_update(None, "synchronous", "FULL")?;
            // A snapshot goes through the write-ahead log: what that grew to is given back afterwards.
            db.pragma_update(None, "journal_size_limit", 16 << 20)?;
            db.pragma_update(None, "trusted_schema", "OFF")?;
            if let Some(pages) = config.pages_max {
                db.pragma_update(None, "max_page_count", pages)?;
            }
            // The lock is taken now, not at the first write, and is held until we end.
            db.execute_batch("BEGIN EXCLUSIVE; COMMIT")
        };
        prepare(db).map_err(|e| match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                StoreError::InUse { path: path.clone() }
            }
            _ => sql(path, "open", e),
        })?;
        schema::migrate(db).map_err(|e| match e {
            SchemaError::Newer(version) => StoreError::Newer { path: path.clone(), version },
            SchemaError::Older(version) => StoreError::Older { path: path.clone(), version },
            SchemaError::Sql(e) => sql(path, "bring its tables up to date", e),
        })
    }

    /// The ledger as it was acknowledged last.
    fn recover(&mut self, policy: &Policy) -> Result<(Ledger, Recovered), StoreError> {
        let mut damaged = 0;
        let mut why = String::from("there is none");
        let mut found = None;
        for (seq, format) in self.snapshots()? {
            // Not an older one instead: what was done since then may be written in ways that we do not know either.
            if !image::can_be_read(format) {
                return Err(StoreError::Format { path: self.path.clone(), format });
            }
            match self.read_snapshot(seq, format, policy)? {
                Ok(ledger) => {
                    found = Some((seq, ledger));
                    break;
                }
                Err(what) => {
                    damaged += 1;
                    why = format!("snapshot {seq}: {what}");
                }
            }
        }
        let snapshot = found.as_ref().map(|(seq, _)| *seq);
        let (from, mut ledger) = found.unwrap_or_else(|| (0, Ledger::new(policy.clone())));
        let replayed = self.replay(from, &mut ledger, &why)?;
        self.last = from + replayed as i64;
        self.snapshot = from;
        Ok((ledger, Recovered { snapshot, replayed, damaged }))
    }

    /// Number and format of each snapshot, the newest first.
    fn snapshots(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        let read = || -> rusqlite::Result<Vec<(i64, i64)>> {
            let mut query = self.db.prepare("SELECT seq, format FROM snapshots ORDER BY seq DESC")?;
            query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        read().map_err(|e| sql(&self.path, "read the snapshots", e))
    }

    fn read_snapshot(
        &self,
        seq: i64,
        format: i64,
        policy: &Policy,
    ) -> Result<Result<Ledger, String>, StoreError> {
        let read = || -> rusqlite::Result<(Vec<u8>, i64, i64, i64)> {
            let mut bytes = Vec::new();
            let mut count = 0;
            let mut query = self.db.prepare("SELECT body FROM snapshot_parts WHERE seq = ? ORDER BY part")?;
            let mut rows = query.query([seq])?;
            while let Some(row) = rows.next()? {
                bytes.extend_from_slice(row.get_ref(0)?.as_blob()?);
                count += 1;
            }
            let sql = "SELECT parts, fingerprint FROM snapshots WHERE seq = ?";
            let (parts, print) = self.db.query_row(sql, [seq], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok((bytes, count, parts, print))
        };
        let (bytes, count, parts, print) = read().map_err(|e| sql(&self.path, "read a snapshot", e))?;
        if count != parts || Fingerprint::EMPTY.and(&bytes) != Fingerprint::from_bits(print) {
            return Ok(Err("it is damaged".to_owned()));
        }
        Ok(image::read(format, &bytes, policy).map_err(|e: ImageError| e.to_string()))
    }

    /// Does the records after `from` again, and says how many these were.
    fn replay(&self, from: i64, ledger: &mut Ledger, why: &str) -> Result<u64, StoreError> {
        let read = |e| sql(&self.path, "read the log", e);
        let mut query =
            self.db.prepare("SELECT seq, body FROM records WHERE seq > ? ORDER BY seq").map_err(read)?;
        let mut rows = query.query([from]).map_err(read)?;
        let mut done = 0u64;
        while let Some(row) = rows.next().map_err(read)? {
            let seq: i64 = row.get(0).map_err(read)?;
            let wrong = |what: String| StoreError::Record { path: self.path.clone(), seq, what };
            if seq != from + 1 + done as i64 {
                if from == 0 && done == 0 {
                    return Err(StoreError::NoSnapshot { path: self.path.clone(), what: why.to_owned() });
                }
                return Err(wrong("the one before it is missing".to_owned()));
            }
            let body = row.get_ref(1).and_then(|body| Ok(body.as_str()?)).map_err(read)?;
            let record: Record =
                serde_json::from_str(body).map_err(|e| wrong(format!("it cannot be read: {e}")))?;
            ledger.replay(&record).map_err(|e: ReplayError| wrong(e.to_string()))?;
            done += 1;
        }
        Ok(done)
    }

    /// Writes records and audit lines in one transaction, and comes back when they are on disk.
    ///
    /// # Errors
    /// [`StoreError`]. Whether the batch is there is then known only after the store was opened again.
    pub(crate) fn commit(&mut self, records: &[Record], audit: &[AuditLine]) -> Result<(), StoreError> {
        let first = self.last + 1;
        self.write(records, audit).map_err(|e| sql(&self.path, "write to the log", e))?;
        self.last = first - 1 + records.len() as i64;
        Ok(())
    }

    fn write(&mut self, records: &[Record], audit: &[AuditLine]) -> rusqlite::Result<()> {
        let seq = self.last;
        let batch = self.db.transaction()?;
        {
            let mut insert = batch.prepare_cached("INSERT INTO records (seq, body) VALUES (?, ?)")?;
            for (seq, record) in (seq + 1..).zip(records) {
                let body = serde_json::to_string(record).map_err(to_sql)?;
                insert.execute(params![seq, body])?;
            }
        }
        self.audit.write(&batch, audit)?;
        batch.commit()
    }

    /// Sets how many lines of the audit log are kept.
    pub(crate) const fn set_audit_terms(&mut self, terms: AuditTerms) {
        self.audit.set_terms(terms);
    }

    /// Records since the last snapshot.
    pub(crate) const fn since_snapshot(&self) -> u64 {
        (self.last - self.snapshot) as u64
    }

    /// Writes the ledger, which must be as the last record left it, as a snapshot, and drops what it makes needless.
    ///
    /// # Errors
    /// [`StoreError`]; the log is as it was then.
    pub(crate) fn write_snapshot(&mut self, ledger: &Ledger) -> Result<(), StoreError> {
        if self.last == self.snapshot { Ok(()) } else { self.put_ledger(ledger) }
    }

    /// As [`Store::write_snapshot`], also where nothing was logged: for measurements.
    pub(crate) fn put_ledger(&mut self, ledger: &Ledger) -> Result<(), StoreError> {
        let bytes = ledger.to_bytes()?;
        self.put_snapshot(&bytes).map_err(|e| sql(&self.path, "write a snapshot", e))?;
        self.snapshot = self.last;
        Ok(())
    }

    fn put_snapshot(&mut self, bytes: &[u8]) -> rusqlite::Result<()> {
        let seq = self.last;
        let batch = self.db.transaction()?;
        {
            let parts = bytes.chunks(PART);
            let print = Fingerprint::EMPTY.and(bytes).bits();
            let count = parts.len() as i64;
            batch.execute(
                "INSERT OR REPLACE INTO snapshots (seq, format, parts, fingerprint) VALUES (?, ?, ?, ?)",
                params![seq, FORMAT, count, print],
            )?;
            batch.execute("DELETE FROM snapshot_parts WHERE seq = ?", [seq])?;
            let mut insert =
                batch.prepare_cached("INSERT INTO snapshot_parts (seq, part, body) VALUES (?, ?, ?)")?;
            for (part, body) in (0i64..).zip(parts) {
                insert.execute(params![seq, part, body])?;
            }
            let oldest: Option<i64> = batch
                .query_row(
                    "SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 1 OFFSET ?",
                    [SNAPSHOTS_KEPT - 1],
                    |row| row.get(0),
                )
                .optional()?;
            // Where there is one snapshot only, the log is kept from its beginning: it is what one can go back to.
            if let Some(oldest) = oldest {
                batch.execute("DELETE FROM records WHERE seq <= ?", [oldest])?;
                batch.execute("DELETE FROM snapshots WHERE seq < ?", [oldest])?;
                batch.execute("DELETE FROM snapshot_parts WHERE seq < ?", [oldest])?;
            }
        }
        batch.commit()
    }

    /// Lines of the audit log from number `since` on: all, or those of one user.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn audit(&self, since: u64, uid: Option<u32>) -> Result<Audit, StoreError> {
        AuditLog::read(&self.db, since, uid).map_err(|e| sql(&self.path, "read the audit log", e))
    }

    /// The database itself, for tests that break it.
    #[cfg(test)]
    pub(crate) const fn db(&self) -> &Connection {
        &self.db
    }
}

fn sql(path: &Path, what: &'static str, cause: rusqlite::Error) -> StoreError {
    StoreError::Sql { path: path.to_owned(), what, cause }
}

fn to_sql(e: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(e))
}
