//! The database's tables, and how those of earlier versions become these.

use rusqlite::{Connection, TransactionBehavior};

/// The version of the tables as they are made now.
pub(super) const VERSION: i64 = 2;

/// From each version to the next. What was released is never changed here, only added to.
const STEPS: [&str; VERSION as usize] = [
    // 1: the log, whole snapshots, and an audit log without pids.
    "CREATE TABLE records (seq INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
     CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
     CREATE TABLE audit (
         seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, uid INTEGER NOT NULL,
         what TEXT NOT NULL, refused TEXT
     ) STRICT;
     CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;",
    // 2: snapshots in parts, for they can be larger than a value may be, with their format and a sum that shows damage;
    // the audit log knows pids, and finds a user's own lines.
    "ALTER TABLE audit ADD COLUMN pid INTEGER NOT NULL DEFAULT 0;
     CREATE INDEX audit_by_user ON audit (uid, seq);
     DROP TABLE snapshots;
     CREATE TABLE snapshots (
         seq INTEGER PRIMARY KEY, format INTEGER NOT NULL, parts INTEGER NOT NULL, fingerprint INTEGER NOT NULL
     ) STRICT;
     CREATE TABLE snapshot_parts (
         seq INTEGER NOT NULL, part INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (seq, part)
     ) STRICT;",
];

/// What stands in the way of the tables.
pub(super) enum SchemaError {
    /// A later divvyd made them.
    Newer(i64),
    /// They are of an early version whose snapshots nobody reads any more, and the log alone is not all of the market.
    Older(i64),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for SchemaError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sql(e)
    }
}

/// Brings the tables to this version, each step in a transaction of its own.
pub(super) fn migrate(db: &mut Connection) -> Result<(), SchemaError> {
    let mut version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if !(0..=VERSION).contains(&version) {
        return Err(SchemaError::Newer(version));
    }
    if version == 1 && !is_log_whole(db)? {
        return Err(SchemaError::Older(version));
    }
    while version < VERSION {
        let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        step.execute_batch(STEPS[version as usize])?;
        version += 1;
        step.pragma_update(None, "user_version", version)?;
        step.commit()?;
    }
    Ok(())
}

/// Whether the records of tables of version 1 begin at the beginning: then they are the market, without any snapshot.
fn is_log_whole(db: &Connection) -> rusqlite::Result<bool> {
    let snapshots: i64 = db.query_row("SELECT count(*) FROM snapshots", [], |row| row.get(0))?;
    let first: Option<i64> = db.query_row("SELECT min(seq) FROM records", [], |row| row.get(0))?;
    Ok(first.map_or(snapshots == 0, |first| first == 1))
}
