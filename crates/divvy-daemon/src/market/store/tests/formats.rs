//! Files of other versions: what earlier divvyds wrote is read, what this one cannot read is refused by name and left alone.
//!
//! The fixtures are what those divvyds wrote, as SQL. They are never written anew: they are what is on people's disks.

use super::*;
use crate::market::message::{Cpus, Limits};

/// Tables of version 1: the whole log, and an audit log without pids.
const TABLES_1: &str = include_str!("../fixtures/tables-1.sql");
/// Tables of version 2: a snapshot in format 1 of the first six records, and the two after it.
const SNAPSHOT_1: &str = include_str!("../fixtures/tables-2-snapshot-1.sql");
/// The same, with a snapshot in format 2 of all of them.
const SNAPSHOT_2: &str = include_str!("../fixtures/tables-2-snapshot-2.sql");
/// A snapshot in format 3 of them, and of limits of alice's task.
const SNAPSHOT_3: &str = include_str!("../fixtures/tables-2-snapshot-3.sql");
/// What all are, alice and bob with a program each that computes: names and what each is worth of the CPU.
const MARKET: [(&str, &str); 10] = [
    ("base", "2000"),
    ("alice", "970"),
    // 1000 hard parts are 970 base tickets, of which 70 parts are kept for `build`, that has nobody.
    ("alice/task", "9021/10"),
    ("alice/other", "30"),
    ("bob", "1000"),
    // 5, 7 and 3 of bob's 1000.
    ("bob/task", "1000/3"),
    ("bob/other", "1400/3"),
    ("alice/build", "0"),
    // What `nice` made of 30 of alice's base tickets.
    ("8", "30"),
    ("bob/third", "200"),
];

/// A store whose file is what `sql` makes.
fn store_of(sql: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
    Connection::open(state.join(FILE)).unwrap().execute_batch(sql).unwrap();
    std::fs::set_permissions(state.join(FILE), std::fs::Permissions::from_mode(0o600)).unwrap();
    dir
}

fn market_of(ledger: &mut Ledger) -> Vec<(String, String)> {
    let done = ledger.apply(&Scripted, &who(ROOT), &Ask::Graph, 0).unwrap();
    let crate::market::message::Said::Graph(graph) = done.said else { panic!("{:?}", done.said) };
    graph.currencies.into_iter().map(|c| (c.name, c.standing[0].value.clone())).collect()
}

/// Opens it, and again once it was written in the ways of today.
fn check_read(sql: &str, recovered: Recovered) -> tempfile::TempDir {
    let dir = store_of(sql);
    let expected = MARKET.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (mut store, mut ledger, found) = open(dir.path());
    assert_eq!(found, recovered);
    assert_eq!(market_of(&mut ledger), expected);
    store.put_ledger(&ledger).unwrap();
    drop(store);
    let (store, mut ledger, found) = open(dir.path());
    assert_eq!(found, Recovered { snapshot: Some(8), replayed: 0, damaged: 0 });
    assert_eq!(market_of(&mut ledger), expected);
    let format: i64 =
        store.db().query_row("SELECT format FROM snapshots WHERE seq = 8", [], |row| row.get(0)).unwrap();
    let version: i64 = store.db().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!((format, version), (FORMAT, schema::VERSION));
    drop(store);
    dir
}

/// Is refused as something that is wrong with the file, in these words, and what is in it stays.
fn check_refused(dir: &Path, words: &[&str]) {
    let rows = |table: &str| -> Option<i64> {
        let db = Connection::open(dir.join("state").join(FILE)).unwrap();
        db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).ok()
    };
    let all = || ["records", "snapshots", "snapshot_parts", "audit", "meta"].map(rows);
    let before = all();
    let error = Store::open(&config(dir), &Policy::default()).map(|_| ()).unwrap_err();
    let said = error.to_string();
    assert!(error.is_of_the_file(), "{said}");
    for word in words {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
    assert_eq!(all(), before, "{said}");
}

#[test]
fn a_snapshot_of_format_1_is_read() {
    check_read(SNAPSHOT_1, Recovered { snapshot: Some(6), replayed: 2, damaged: 0 });
}

#[test]
fn a_snapshot_of_format_2_is_read() {
    check_read(SNAPSHOT_2, Recovered { snapshot: Some(8), replayed: 0, damaged: 0 });
}

#[test]
fn a_snapshot_of_format_3_is_read() {
    let dir = check_read(SNAPSHOT_3, Recovered { snapshot: Some(8), replayed: 0, damaged: 0 });
    let (_, ledger, _) = open(dir.path());
    let limits = Limits { cpu_ppm: Some(500_000), memory: Some(1 << 30), disk: None };
    let bounds: Vec<_> = ledger.clients(&Scripted).into_iter().map(|c| (c.limits, c.cpus)).collect();
    assert!(bounds.iter().all(|&(_, cpus)| cpus == Cpus::default()), "{bounds:?}");
    assert_eq!(bounds.iter().filter(|&&(had, _)| had == limits).count(), 1, "{bounds:?}");
}

#[test]
fn tables_of_version_1_become_those_of_today() {
    let dir = check_read(TABLES_1, Recovered { snapshot: None, replayed: 8, damaged: 0 });
    let (mut store, ..) = open(dir.path());
    store.commit(&[], &[line(6, ALICE)]).unwrap();
    let lines = store.audit(0, None).unwrap().entries;
    let told: Vec<_> =
        lines.iter().map(|line| (line.t_unix_ns, line.pid, line.what["ask"].as_str())).collect();
    assert_eq!(told, [(5, 0, Some("nice")), (6, 7, Some("test"))]);
}

#[test]
fn what_cannot_be_read_is_refused_by_name_and_stays() {
    // Of version 1, with a snapshot instead of the log's beginning: made anew from the rest it would be another market.
    let cut =
        format!("{TABLES_1}\nDELETE FROM records WHERE seq < 4; INSERT INTO snapshots VALUES (3, x'00');");
    let words = ["its version is 1, whose snapshots", "let the divvyd that wrote it", "empty market"];
    check_refused(store_of(&cut).path(), &words);
    let nothing = format!("{TABLES_1}\nDELETE FROM records; INSERT INTO snapshots VALUES (8, x'00');");
    check_refused(store_of(&nothing).path(), &words);
    // A downgrade: tables or a snapshot of a divvyd to come. The older snapshot beside it is not taken instead.
    let tables = format!("{SNAPSHOT_1}\nPRAGMA user_version = 99;");
    let words = ["its version is 99", "use a newer divvyd", "backup of before the upgrade"];
    check_refused(store_of(&tables).path(), &words);
    let snapshot = format!("{SNAPSHOT_1}\nINSERT INTO snapshots VALUES (7, {}, 0, 0);", FORMAT + 1);
    let newer = format!("a snapshot is in format {}", FORMAT + 1);
    let words = [newer.as_str(), "a newer divvyd wrote it", "backup of before the upgrade"];
    check_refused(store_of(&snapshot).path(), &words);
    // And one from before all that is read.
    let snapshot = format!("{SNAPSHOT_1}\nUPDATE snapshots SET format = {};", image::OLDEST - 1);
    let words = ["a snapshot is in format 0", "start a divvyd between the two", "empty market"];
    check_refused(store_of(&snapshot).path(), &words);
}
