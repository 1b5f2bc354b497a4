//! A phone book: a SQLite database with an index by name.

use std::path::Path;

use anyhow::{Context as _, Result};
use rusqlite::{Connection, OpenFlags};

/// What SQLite caches by itself, KiB: next to nothing, so that what it has in memory is what the kernel keeps for it.
const CACHE_KIB: i32 = 256;
/// Characters of an address: an entry takes about 250 bytes.
const ADDRESS: usize = 200;

/// Everybody's name: their number among all.
fn name(of: u64) -> String {
    format!("subscriber {of:08}")
}

/// Writes the book of so many entries.
///
/// # Errors
/// Where the file cannot be written.
pub(super) fn write(path: &Path, entries: u64) -> Result<()> {
    let failed = || format!("write {}", path.display());
    let mut book = Connection::open(path).with_context(failed)?;
    book.execute_batch(
        "PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         CREATE TABLE book (name TEXT PRIMARY KEY, number TEXT NOT NULL, address TEXT NOT NULL) WITHOUT ROWID;",
    )
    .with_context(failed)?;
    let all = book.transaction().with_context(failed)?;
    let mut insert = all.prepare("INSERT INTO book VALUES (?1, ?2, ?3)").with_context(failed)?;
    let address = "x".repeat(ADDRESS);
    for entry in 0..entries {
        let number = format!("+1 617 {:07}", entry * 7919 % 10_000_000);
        insert.execute((name(entry), number, &address)).with_context(failed)?;
    }
    drop(insert);
    all.commit().with_context(failed)
}

/// An open book, which nobody changes.
pub(super) struct Book(Connection);

impl Book {
    /// # Errors
    /// Where it cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let uri = format!("file:{}?immutable=1", path.display());
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let book = Connection::open_with_flags(&uri, flags).with_context(|| format!("open {uri}"))?;
        book.pragma_update(None, "cache_size", -CACHE_KIB).context("bound the cache")?;
        Ok(Self(book))
    }

    /// The number of an entry.
    ///
    /// # Errors
    /// Where it is not in the book, or that cannot be read.
    pub(super) fn look_up(&self, entry: u64) -> Result<String> {
        let mut query = self.0.prepare_cached("SELECT number FROM book WHERE name = ?1")?;
        Ok(query.query_row([name(entry)], |row| row.get(0))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_book_is_found_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("book.db");
        write(&path, 1_000).expect("written");
        let book = Book::open(&path).expect("a book");
        assert_eq!(book.look_up(0).expect("there"), "+1 617 0000000");
        // 999 * 7919 = 7911081.
        assert_eq!(book.look_up(999).expect("there"), "+1 617 7911081");
        assert!(book.look_up(1_000).is_err());
    }
}
