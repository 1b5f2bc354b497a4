//! The store: what is there after it was opened again, and what is said where it cannot be.

mod formats;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use proptest::prelude::*;

use super::*;
use crate::market::ledger::random::{Drawn, Numbers, draw};
use crate::market::ledger::tests::{ALICE, BOB, Bench, ROOT, image, who};
use crate::market::message::Ask;
use crate::market::names::scripted::Scripted;
use divvy_api::market::{Give, NewCurrency, NewNice, NewOffer, NewTicket};
use divvy_market::{Kind, Resource};

fn config(dir: &Path) -> StoreConfig {
    StoreConfig::at(dir.join("state"))
}

fn open(dir: &Path) -> (Store, Ledger, Recovered) {
    Store::open(&config(dir), &Policy::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(dir: &Path) -> String {
    Store::open(&config(dir), &Policy::default()).map(|_| ()).unwrap_err().to_string()
}

/// Does something to the database behind our back.
fn meddle(dir: &Path, what: &str) {
    Connection::open(dir.join("state").join(FILE)).unwrap().execute_batch(what).unwrap();
}

/// A bench with so many records in its log.
fn busy(records: usize) -> Bench {
    let mut bench = Bench::new("[limits]\ncurrencies = 1000000");
    for n in 0.. {
        if bench.log.len() >= records {
            return bench;
        }
        let uid = [ROOT, ALICE, BOB][n % 3];
        let name = format!("c{n}");
        if n % 4 == 0 {
            bench.admit(uid, &name, n as u64 + 1);
        } else {
            bench.ask(uid, Ask::CreateCurrency(NewCurrency { name, ..NewCurrency::default() })).unwrap();
        }
    }
    unreachable!()
}

fn line(n: u64, uid: u32) -> AuditLine {
    let what = serde_json::json!({ "ask": "test", "n": n });
    AuditLine { at_ns: n, uid, pid: 7, what, refused: (n % 2 == 1).then(|| "no".to_owned()) }
}

#[test]
fn what_was_committed_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let bench = busy(40);
    let (mut store, ledger, recovered) = open(dir.path());
    assert_eq!(recovered, Recovered { snapshot: None, replayed: 0, damaged: 0 });
    assert_eq!(image(&ledger), image(&Ledger::new(Policy::default())));
    for batch in bench.log.chunks(7) {
        store.commit(batch, &[]).unwrap();
    }
    drop(store);
    let (store, ledger, recovered) = open(dir.path());
    assert_eq!(recovered, Recovered { snapshot: None, replayed: 40, damaged: 0 });
    assert_eq!(image(&ledger), image(&bench.ledger));
    assert_eq!(store.since_snapshot(), 40);
}

#[test]
fn a_snapshot_shortens_the_log_and_the_one_before_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let bench = busy(30);
    let count = |store: &Store, table: &str| -> i64 {
        store.db().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let (mut store, mut ledger, _) = open(dir.path());
    for (n, record) in bench.log.iter().enumerate() {
        ledger.replay(record).unwrap();
        store.commit(std::slice::from_ref(record), &[]).unwrap();
        if n % 10 == 4 {
            store.write_snapshot(&ledger).unwrap();
            store.write_snapshot(&ledger).unwrap();
        }
    }
    assert_eq!((count(&store, "snapshots"), count(&store, "records")), (2, 15), "records 16 to 30");
    drop(store);
    let (store, again, recovered) = open(dir.path());
    assert_eq!(recovered, Recovered { snapshot: Some(25), replayed: 5, damaged: 0 });
    assert_eq!(image(&again), image(&bench.ledger));
    // The newest snapshot is damaged: the one before and the log since then give the same.
    store.db().execute("UPDATE snapshot_parts SET body = zeroblob(length(body)) WHERE seq = 25", []).unwrap();
    drop(store);
    let (store, again, recovered) = open(dir.path());
    assert_eq!(recovered, Recovered { snapshot: Some(15), replayed: 15, damaged: 1 });
    assert_eq!(image(&again), image(&bench.ledger));
    // Both are: what is left of the log cannot be the market.
    store.db().execute("DELETE FROM snapshot_parts", []).unwrap();
    drop(store);
    let said = refused(dir.path());
    assert!(said.contains("no snapshot is sound (snapshot 15: it is damaged)"), "{said}");
}

#[test]
fn a_large_snapshot_is_kept_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _, _) = open(dir.path());
    let bench = busy(1);
    store.commit(&bench.log, &[]).unwrap();
    let bytes: Vec<u8> = (0..PART * 2 + 17).map(|n| n as u8).collect();
    store.put_snapshot(&bytes).unwrap();
    let parts: i64 = store.db().query_row("SELECT parts FROM snapshots", [], |row| row.get(0)).unwrap();
    assert_eq!(parts, 3);
    let wrong = store.read_snapshot(1, FORMAT, &Policy::default()).unwrap().unwrap_err();
    assert!(
        wrong.starts_with("it cannot be read") || wrong.starts_with("its books are wrong"),
        "its sum was right: {wrong}"
    );
}

#[test]
fn a_record_that_does_something_else_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let bench = busy(12);
    let (mut store, _, _) = open(dir.path());
    store.commit(&bench.log, &[]).unwrap();
    let set = |store: &Store, seq: i64, body: &str| {
        store.db().execute("UPDATE records SET body = ? WHERE seq = ?", params![body, seq]).unwrap();
    };
    let mut other = bench.log[7].clone();
    other.outcome = Fingerprint::EMPTY.and(b"something else");
    set(&store, 8, &serde_json::to_string(&other).unwrap());
    drop(store);
    let said = refused(dir.path());
    assert!(said.contains("record 8: what comes of it is not what came of it"), "{said}");

    // Somebody who may not: refused, where it was done.
    let mut other = bench.log[7].clone();
    other.caller = divvy_market::Caller::user(77, vec![]);
    let body = serde_json::to_string(&other).unwrap();
    meddle(dir.path(), &format!("UPDATE records SET body = '{body}' WHERE seq = 8"));
    let said = refused(dir.path());
    assert!(said.contains("record 8: operation") && said.contains("is refused now"), "{said}");

    meddle(dir.path(), "UPDATE records SET body = '{' WHERE seq = 8");
    assert!(refused(dir.path()).contains("record 8: it cannot be read"));
    meddle(dir.path(), "DELETE FROM records WHERE seq = 8");
    assert!(refused(dir.path()).contains("record 9: the one before it is missing"));
    meddle(dir.path(), "DELETE FROM records WHERE seq < 9");
    assert!(refused(dir.path()).contains("no snapshot is sound (there is none)"));
}

#[test]
fn one_process_at_a_time_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (store, ..) = open(dir.path());
    let said = refused(dir.path());
    assert!(said.contains("another process has it open"), "{said}");
    drop(store);
    open(dir.path());
}

#[test]
fn the_directory_and_the_file_are_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let state = dir.path().join("state");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    let (store, ..) = open(dir.path());
    for entry in std::fs::read_dir(&state).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    drop(store);
    let set =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for open_to_others in [0o755, 0o770, 0o701] {
        set(&state, open_to_others);
        assert!(refused(dir.path()).contains("others can look into it"));
    }
    set(&state, 0o700);
    set(&state.join(FILE), 0o644);
    assert!(refused(dir.path()).contains("others can read it (mode 644)"));
    set(&state.join(FILE), 0o600);
    drop(open(dir.path()));
    // A link in the file's or the directory's place is not followed.
    std::fs::rename(state.join(FILE), dir.path().join("elsewhere")).unwrap();
    symlink(dir.path().join("elsewhere"), state.join(FILE)).unwrap();
    assert!(refused(dir.path()).contains("it is a symbolic link"));
    std::fs::remove_file(state.join(FILE)).unwrap();
    std::fs::create_dir(state.join(FILE)).unwrap();
    let said = refused(dir.path());
    assert!(said.contains("open") && said.contains("directory"), "{said}");
    std::fs::remove_dir(state.join(FILE)).unwrap();
    std::fs::rename(&state, dir.path().join("moved")).unwrap();
    symlink(dir.path().join("moved"), &state).unwrap();
    assert!(refused(dir.path()).contains("it is a symbolic link"));
    std::fs::remove_file(&state).unwrap();
    std::fs::write(&state, "x").unwrap();
    assert!(refused(dir.path()).contains("it is not a directory"));
}

#[test]
fn a_full_disk_is_said_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let bench = busy(60);
    let (mut store, ..) = open(dir.path());
    store.commit(&bench.log[..20], &[]).unwrap();
    let pages: i64 = store.db().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.db().pragma_update(None, "max_page_count", pages).unwrap();
    let error = (20..60).find_map(|n| store.commit(&bench.log[n..=n], &[]).err().map(|e| (n, e)));
    let (n, error) = error.expect("it is full at some time");
    let said = error.to_string();
    assert!(said.contains("write to the log") && said.contains("the disk is full: make room"), "{said}");
    drop(store);
    let (mut store, ledger, recovered) = open(dir.path());
    assert_eq!(recovered.replayed, n as u64, "all that was acknowledged, and no more");
    // Made room, it goes on where it was.
    store.commit(&bench.log[n..], &[]).unwrap();
    drop((store, ledger));
    assert_eq!(image(&open(dir.path()).1), image(&bench.ledger));
}

#[test]
fn what_cannot_be_written_or_is_damaged_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let bench = busy(3);
    let (mut store, ..) = open(dir.path());
    store.db().pragma_update(None, "query_only", true).unwrap();
    let said = store.commit(&bench.log, &[]).unwrap_err().to_string();
    assert!(said.contains("it cannot be written: check the file's owner and mode"), "{said}");
    drop(store);
    let path = dir.path().join("state").join(FILE);
    std::fs::write(&path, "this is no database, and was none at any time, however one looks at it").unwrap();
    let said = refused(dir.path());
    assert!(said.contains("it is damaged: restore the file from a backup"), "{said}");
}

/// A file that is there and empty is what is left of a market, and not a new one.
#[test]
fn an_empty_file_is_no_market() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(dir.path());
    store.commit(&busy(3).log, &[]).unwrap();
    drop(store);
    let path = dir.path().join("state").join(FILE);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let error = Store::open(&config(dir.path()), &Policy::default()).map(|_| ()).unwrap_err();
    let said = error.to_string();
    assert!(
        error.is_of_the_file() && said.starts_with(&format!("{}: it is empty", path.display())),
        "{said}"
    );
    let fix = format!(
        "move it away with {}-wal, if that is there, and restore it from a backup, or begin with an empty market",
        path.display()
    );
    assert!(said.ends_with(&fix), "{said}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "it is left alone");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(open(dir.path()).2.replayed, 0);
}

/// Whoever is killed while a market is made leaves none, and what is in nobody's way.
#[test]
fn a_market_is_made_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let names = || -> Vec<String> {
        let all = std::fs::read_dir(&state).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut all: Vec<String> = all.collect();
        all.sort();
        all
    };
    let (mut store, ..) = open(dir.path());
    store.commit(&busy(3).log, &[]).unwrap();
    let old = std::fs::read(state.join("market.db-wal")).unwrap();
    assert!(!old.is_empty());
    drop(store);
    std::fs::remove_file(state.join(FILE)).unwrap();
    // It cannot be made.
    std::fs::create_dir(state.join("market.db.new")).unwrap();
    assert!(refused(dir.path()).contains("market.db.new: "));
    assert_eq!(names(), ["market.db.new"]);
    std::fs::remove_dir(state.join("market.db.new")).unwrap();
    // Somebody makes it just now.
    let making = std::fs::File::open(&state).unwrap();
    making.lock().unwrap();
    assert!(refused(dir.path()).contains("another process has it open"));
    assert_eq!(names(), [""; 0]);
    drop(making);
    // Half of one, and what a market that has gone left beside it.
    std::fs::write(state.join("market.db.new"), "SQLite fo").unwrap();
    std::fs::write(state.join("market.db-wal"), &old).unwrap();
    let (store, _, recovered) = open(dir.path());
    assert_eq!(recovered, Recovered { snapshot: None, replayed: 0, damaged: 0 });
    drop(store);
    // Its log, which may hold what was done last, is not thrown away.
    assert_eq!(names(), [FILE, "market.db-wal.old"]);
    assert_eq!(std::fs::read(state.join("market.db-wal.old")).unwrap(), old);
}

#[test]
fn the_audit_log_is_read_in_order_and_kept_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(dir.path());
    store.set_audit_terms(AuditTerms { rows_max: 1500, rows_per_user_max: 1500 });
    for from in (0..4000).step_by(500) {
        let lines: Vec<AuditLine> =
            (from..from + 500).map(|n| line(n, [ALICE, BOB][n as usize / 2 % 2])).collect();
        store.commit(&[], &lines).unwrap();
    }
    let first = store.audit(0, None).unwrap();
    assert_eq!(
        (first.entries.len(), first.entries[0].seq),
        (1000, 2501),
        "the oldest are gone, and 1000 come at once"
    );
    assert_eq!(first.entries[0].refused, None);
    assert_eq!(first.entries[1].refused.as_deref(), Some("no"));
    let second = store.audit(first.next, None).unwrap();
    assert_eq!((second.entries.len(), second.next), (500, 4001));
    let third = store.audit(second.next, None).unwrap();
    assert_eq!((third.entries.len(), third.next), (0, 4001));
    let own = store.audit(0, Some(BOB)).unwrap();
    assert!(own.entries.len() == 750 && own.entries.iter().all(|line| line.uid == BOB));
}

#[test]
fn one_users_lines_push_out_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(dir.path());
    store.set_audit_terms(AuditTerms { rows_max: 10_000, rows_per_user_max: 100 });
    let seqs = |store: &Store, uid: u32| -> Vec<u64> {
        store.audit(0, Some(uid)).unwrap().entries.iter().map(|line| line.seq).collect()
    };
    store.commit(&[], &[line(1, BOB), line(2, ROOT)]).unwrap();
    for _ in 0..30 {
        store.commit(&[], &vec![line(3, ALICE); 100]).unwrap();
    }
    // A thousand lines are written between two cuts at most.
    let hers = seqs(&store, ALICE);
    assert!(hers.len() <= 100 + 1000 && hers.last() == Some(&3002), "{}", hers.len());
    assert_eq!((seqs(&store, BOB), seqs(&store, ROOT)), (vec![1], vec![2]));
    // They are counted anew by whoever opens the log next, and cut at once.
    drop(store);
    let policy = Policy::parse("[audit]\nrows_per_user_max = 100").unwrap();
    let (store, ..) = Store::open(&config(dir.path()), &policy).unwrap();
    assert_eq!(seqs(&store, ALICE), (2903..=3002).collect::<Vec<u64>>(), "the newest");
    assert_eq!((seqs(&store, BOB), seqs(&store, ROOT)), (vec![1], vec![2]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]

    /// Random requests, committed in batches of random size, with a snapshot now and then; at random points the store is
    /// dropped and opened again. What is there then is the ledger as it was at the last commit, to the letter.
    #[test]
    fn what_is_recovered_is_what_was_committed(seeds in prop::collection::vec(any::<u64>(), 1..150)) {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, mut ledger, _) = open(dir.path());
        let mut committed = image(&ledger);
        let (mut pending, mut now_ns) = (Vec::new(), 0);
        for seed in seeds {
            let mut numbers = Numbers::new(seed);
            now_ns += 10;
            match numbers.below(12) {
                0..=2 => {
                    store.commit(&pending, &[]).unwrap();
                    pending.clear();
                    committed = image(&ledger);
                    if numbers.below(3) == 0 {
                        store.write_snapshot(&ledger).unwrap();
                    }
                }
                3 => {
                    drop(store);
                    pending.clear();
                    (store, ledger, _) = open(dir.path());
                    prop_assert_eq!(image(&ledger), committed.clone());
                }
                _ => match draw(&mut numbers) {
                    Drawn::Ask(uid, ask) => {
                        if let Ok(done) = ledger.apply(&Scripted, &who(uid), &ask, now_ns) {
                            pending.extend(done.record);
                        }
                    }
                    Drawn::Presence(client, presence) => {
                        pending.extend(ledger.presences(&Scripted, &[(client, presence)], now_ns));
                    }
                    Drawn::Time(ns) => {
                        now_ns += ns;
                        pending.extend(ledger.tick(&Scripted, now_ns));
                    }
                },
            }
        }
        drop(store);
        prop_assert_eq!(image(&open(dir.path()).1), committed);
    }
}

/// Snapshots are the ledger's memory, field by field, without names. Whoever changes what a ledger or a market is made of
/// changes what old snapshots mean: then [`FORMAT`] is to be raised, a way from the old format to be written (`image.rs`), with
/// a fixture of it, and this number to be set anew. The log is JSON and has no such trap.
#[test]
fn the_format_of_snapshots_has_not_changed() {
    let give = |resource, amount| Give { resource, amount };
    let (cpu, disk) = (Resource::Cpu, Resource::Disk);
    let mut bench = Bench::new("[bounds.alice]\ncpu = 1500");
    for uid in [ALICE, BOB] {
        bench.admit(uid, "task", 5);
        bench.admit(uid, "other", 7);
    }
    let new =
        NewCurrency { name: "build".to_owned(), mode: Some("754".to_owned()), ..NewCurrency::default() };
    bench.ask(ALICE, Ask::CreateCurrency(new)).unwrap();
    for kind in [Kind::Soft, Kind::Hard] {
        let (holder, issuer) = ("build".to_owned(), "alice".to_owned());
        let new = NewTicket { holder, issuer, resource: cpu, amount: 70, kind };
        bench.ask(ALICE, Ask::CreateTicket(new)).unwrap();
    }
    let new = NewNice { client: "alice/other".to_owned(), from: None, resource: None, amount: 30 };
    bench.ask(ALICE, Ask::Nice(new)).unwrap();
    for (uid, gives, wants) in [
        (ALICE, give(disk, 20), give(cpu, 10)),
        (BOB, give(cpu, 10), give(disk, 20)),
        (BOB, give(cpu, 11), give(disk, 20)),
    ] {
        let new = NewOffer { party: None, gives, wants, wait_ns: Some(1_000_000) };
        bench.ask(uid, Ask::CreateOffer(new)).unwrap();
    }
    let image = image(&bench.ledger);
    assert_eq!(FORMAT, 4);
    assert_eq!(
        (image.len(), Fingerprint::EMPTY.and(&image).bits()),
        (1308, -5_353_780_544_108_004_469),
        "the format of snapshots changed"
    );
}
