//! The audit log on disk: who did what, kept within bounds.
//!
//! There is a bound for all lines, and one for each user's, so that nobody who asks for much makes the log forget what
//! others did. Where all together are too many, whoever has the most lines gives up the oldest of its own.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::AuditLine;
use crate::market::policy::AuditTerms;
use divvy_api::market::{Audit, AuditEntry};

/// Lines in one answer.
const ANSWERED: i64 = 1000;
/// So often the log is cut to its length: every so many lines. So much longer it may be for a while.
const CUT: u64 = 1000;

/// What is known of the log without a look at it.
#[derive(Debug)]
pub(super) struct AuditLog {
    terms: AuditTerms,
    /// Lines of each user that has any.
    lines: BTreeMap<u32, u64>,
    since_cut: u64,
}

impl AuditLog {
    pub(super) const fn new(terms: AuditTerms) -> Self {
        Self { terms, lines: BTreeMap::new(), since_cut: 0 }
    }

    /// Counts what is there, and cuts it.
    pub(super) fn open(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.lines = count(db)?;
        self.cut(db)
    }

    /// Bounds that hold from the next cut on.
    pub(super) const fn set_terms(&mut self, terms: AuditTerms) {
        self.terms = terms;
    }

    /// Writes `lines` within the transaction that is open on `db`. Where that fails, the log has to be opened again.
    pub(super) fn write(&mut self, db: &Connection, lines: &[AuditLine]) -> rusqlite::Result<()> {
        let mut insert =
            db.prepare_cached("INSERT INTO audit (at_ns, uid, pid, what, refused) VALUES (?, ?, ?, ?, ?)")?;
        for line in lines {
            let what = line.what.to_string();
            insert.execute(params![line.at_ns.cast_signed(), line.uid, line.pid, what, line.refused])?;
            *self.lines.entry(line.uid).or_default() += 1;
        }
        self.since_cut = self.since_cut.saturating_add(lines.len() as u64);
        if self.since_cut >= CUT { self.cut(db) } else { Ok(()) }
    }

    fn cut(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.since_cut = 0;
        let kept = kept(&self.lines, &self.terms);
        let mut delete = db.prepare_cached(
            "DELETE FROM audit WHERE uid = ?1 AND seq <=
             (SELECT seq FROM audit WHERE uid = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
        )?;
        for (&uid, &keep) in &kept {
            if self.lines.get(&uid).is_some_and(|&has| has > keep) {
                delete.execute(params![uid, i64::try_from(keep).unwrap_or(i64::MAX)])?;
            }
        }
        self.lines = kept;
        Ok(())
    }

    /// Lines from number `since` on: all, or those of one user.
    pub(super) fn read(db: &Connection, since: u64, uid: Option<u32>) -> rusqlite::Result<Audit> {
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        let mut query = db.prepare_cached(
            "SELECT seq, at_ns, uid, pid, what, refused FROM audit
             WHERE seq >= ?1 AND (?2 IS NULL OR uid = ?2) ORDER BY seq LIMIT ?3",
        )?;
        let rows = query.query_map(params![since, uid, ANSWERED], |row| {
            let what: String = row.get(4)?;
            Ok(AuditEntry {
                seq: row.get::<_, i64>(0)?.cast_unsigned(),
                t_unix_ns: row.get::<_, i64>(1)?.cast_unsigned(),
                uid: row.get(2)?,
                pid: row.get(3)?,
                what: serde_json::from_str(&what).unwrap_or(serde_json::Value::String(what)),
                refused: row.get(5)?,
            })
        })?;
        let entries = rows.collect::<rusqlite::Result<Vec<AuditEntry>>>()?;
        let next = entries.last().map_or(since.cast_unsigned(), |entry| entry.seq + 1);
        Ok(Audit { next, entries })
    }
}

fn count(db: &Connection) -> rusqlite::Result<BTreeMap<u32, u64>> {
    let mut query = db.prepare("SELECT uid, count(*) FROM audit GROUP BY uid")?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))?;
    rows.collect()
}

/// How many lines of each user are kept: as many as one may have (user 0, who is divvyd itself too, as many as all), and
/// where these are too many together, no more than the level at which they fit. Nobody is left without the last one.
fn kept(lines: &BTreeMap<u32, u64>, terms: &AuditTerms) -> BTreeMap<u32, u64> {
    let most = |uid: u32| if uid == 0 { terms.rows_max } else { terms.rows_per_user_max };
    let mut kept: BTreeMap<u32, u64> = lines.iter().map(|(&uid, &n)| (uid, n.min(most(uid)))).collect();
    let mut sorted: Vec<u64> = kept.values().copied().collect();
    sorted.sort_unstable();
    let (mut left, mut level) = (terms.rows_max, u64::MAX);
    for (index, &n) in sorted.iter().enumerate() {
        let each = left / (sorted.len() - index) as u64;
        if n > each {
            level = each.max(1);
            break;
        }
        left -= n;
    }
    kept.values_mut().for_each(|n| *n = (*n).min(level));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_the_most_lines_gives_them_up() {
        let terms = |rows_max, rows_per_user_max| AuditTerms { rows_max, rows_per_user_max };
        for (has, terms, expected) in [
            (&[(1, 50), (2, 70)][..], terms(1000, 100), &[(1, 50), (2, 70)][..]),
            (&[(1, 50), (2, 700)], terms(1000, 100), &[(1, 50), (2, 100)]),
            // Root's and divvyd's own lines are bounded by all that there may be.
            (&[(0, 5000), (2, 700)], terms(1000, 100), &[(0, 900), (2, 100)]),
            // 30 are less than a third of 1000, so the others have half of the 970 that are left.
            (&[(1, 30), (2, 800), (3, 600)], terms(1000, 900), &[(1, 30), (2, 485), (3, 485)]),
            (&[(1, 9), (2, 9), (3, 9)], terms(2, 900), &[(1, 1), (2, 1), (3, 1)]),
            (&[], terms(2, 900), &[]),
        ] {
            let lines: BTreeMap<u32, u64> = has.iter().copied().collect();
            let expected: BTreeMap<u32, u64> = expected.iter().copied().collect();
            assert_eq!(kept(&lines, &terms), expected, "{has:?}, {terms:?}");
        }
    }
}
