//! Who funds a client that says so, and a site's table.

use divvy_api::market::{Currency, NewCurrency};
use divvy_api::site::{Site, SiteAccount, SiteTable, SiteUser};
use divvy_api::types::ErrorCode;
use divvy_market::{CurrencyId, Resource};

use super::tests::{ALICE, BOB, Bench, CAROL, ROOT, identity};
use super::{HeldTable, Ledger};
use crate::market::message::{Admitted, Ask, Said};
use crate::market::policy::Policy;
use crate::message::Refusal;

fn admit_from(bench: &mut Bench, uid: u32, name: &str, amount: u64, from: &str) -> Result<Admitted, Refusal> {
    let (name, from) = (name.to_owned(), Some(from.to_owned()));
    match bench.ask(uid, Ask::Admit { name, amount, identity: identity(9), parent: None, from, job: None })? {
        Said::Admitted(admitted) => Ok(admitted),
        other => panic!("{other:?}"),
    }
}

/// `physics<root:3` is an account with three shares of the root account, `alice@physics:2` a user with two of that.
fn table(version: u64, rows: &[&str]) -> SiteTable {
    let mut table = SiteTable { version, tickets: 1000, ..SiteTable::default() };
    for row in rows {
        let (words, shares) = row.rsplit_once(':').unwrap();
        let shares = shares.parse().unwrap();
        if let Some((user, account)) = words.split_once('@') {
            table.users.push(SiteUser { user: user.to_owned(), account: account.to_owned(), shares });
        } else {
            let (account, parent) = words.split_once('<').unwrap();
            table.accounts.push(SiteAccount {
                account: account.to_owned(),
                parent: parent.to_owned(),
                shares,
            });
        }
    }
    table
}

fn set(bench: &mut Bench, version: u64, rows: &[&str]) -> Site {
    match bench.ask(ROOT, Ask::SetSite(table(version, rows))) {
        Ok(Said::Site(site)) => site,
        other => panic!("{other:?}"),
    }
}

/// What each client gets of the CPU, of 1000.
fn parts(bench: &mut Bench, clients: &[CurrencyId]) -> Vec<u64> {
    let shares = bench.ledger.shares(1_000_000);
    let all: u64 = shares.iter().map(|(_, share)| share).sum();
    let of = |client: &CurrencyId| shares.iter().find(|(id, _)| id == client).map_or(0, |(_, share)| *share);
    clients.iter().map(|client| (of(client) * 1000 + all / 2) / all).collect()
}

const TABLE: [&str; 6] = [
    "science<root:3",
    "physics<science:2",
    "biology<science:1",
    "arts<root:1",
    "alice@physics:1",
    "bob@arts:1",
];

#[test]
fn a_client_is_funded_by_the_currency_that_it_names() {
    let mut bench = Bench::new("");
    bench.admit(ALICE, "first", 1);
    let new = NewCurrency { name: "build".to_owned(), group: None, mode: None };
    bench.ask(ALICE, Ask::CreateCurrency(new)).unwrap();
    let client = admit_from(&mut bench, ALICE, "job", 7, "build").unwrap();
    for resource in Resource::ALL {
        let backing = bench.ledger.market.backing_of(client.currency, resource);
        assert_eq!(backing.len(), 1, "{resource}");
        assert_eq!((backing[0].issuer.to_string(), backing[0].amount), (bench.currency("alice/build").id, 7));
    }
    // One's own is made on first use, as ever; others' are not there for one, nor is the base, nor a client.
    admit_from(&mut bench, CAROL, "job", 1, "carol").unwrap();
    let refused = |bench: &mut Bench, from: &str| admit_from(bench, BOB, "job", 1, from).unwrap_err().code;
    assert_eq!(refused(&mut bench, "alice/build"), ErrorCode::NotPermitted);
    assert_eq!(refused(&mut bench, "alice"), ErrorCode::NotPermitted);
    assert_eq!(refused(&mut bench, "base"), ErrorCode::NotPermitted);
    assert_eq!(refused(&mut bench, "nothing"), ErrorCode::NoSuchCurrency);
    let own = admit_from(&mut bench, ALICE, "other", 1, "first").unwrap_err();
    assert_eq!(own.code, ErrorCode::Refused, "{}", own.message);
}

#[test]
fn a_table_becomes_account_over_account_over_user() {
    let mut bench = Bench::new("");
    let site = set(&mut bench, 1, &TABLE);
    let mut names = site.currencies.clone();
    names.sort();
    let expected =
        ["alice/site.physics", "bob/site.arts", "root/site.arts", "root/site.biology", "root/site.physics"];
    assert_eq!(names[..5], expected);
    assert_eq!(names[5..], ["root/site.root", "root/site.science"]);
    assert_eq!((site.version, site.kept.len()), (1, 0));
    let a = admit_from(&mut bench, ALICE, "a", 1, "site.physics").unwrap().currency;
    let b = admit_from(&mut bench, BOB, "b", 5, "site.arts").unwrap().currency;
    // Science has three of four; in it biology is idle.
    assert_eq!(parts(&mut bench, &[a, b]), [750, 250]);
    // Whoever is not in an account has no part of it.
    assert_eq!(
        admit_from(&mut bench, BOB, "c", 1, "site.physics").unwrap_err().code,
        ErrorCode::NoSuchCurrency
    );
    let theirs = admit_from(&mut bench, BOB, "c", 1, "alice/site.physics").unwrap_err();
    assert_eq!(theirs.code, ErrorCode::NotPermitted);
    // All of the site's jobs together weigh what the table says against what is none of its: a thousand to carol's thousand.
    let c = bench.admit(CAROL, "c", 1).currency;
    assert_eq!(parts(&mut bench, &[a, b, c]), [375, 125, 500]);
}

#[test]
fn the_same_table_changes_nothing_and_another_what_differs() {
    let mut bench = Bench::new("");
    set(&mut bench, 1, &TABLE);
    let a = admit_from(&mut bench, ALICE, "a", 1, "site.physics").unwrap().currency;
    let b = admit_from(&mut bench, BOB, "b", 1, "site.arts").unwrap().currency;
    let log = bench.log.len();
    assert_eq!(set(&mut bench, 2, &TABLE).changes, 0);
    assert_eq!(bench.log.len(), log + 1, "which table holds, and nothing else");
    let mut other = TABLE;
    other[3] = "arts<root:3";
    assert_eq!(set(&mut bench, 3, &other).changes, 3, "a ticket of each resource");
    assert_eq!(parts(&mut bench, &[a, b]), [500, 500]);
    // Turned over: what was below is above, and no cycle is made on the way.
    let turned = ["physics<root:3", "science<physics:1", "arts<science:1", "alice@physics:1", "bob@arts:1"];
    set(&mut bench, 4, &turned);
    assert_eq!(parts(&mut bench, &[a, b]), [500, 500], "alice's one of physics beside science's one");
    assert_eq!(bench.code(ROOT, Ask::Currency("root/site.biology".to_owned())), ErrorCode::NoSuchCurrency);
}

#[test]
fn whoever_left_the_table_stays_for_as_long_as_a_job_runs() {
    let mut bench = Bench::new("");
    set(&mut bench, 1, &TABLE);
    let a = admit_from(&mut bench, ALICE, "a", 1, "site.physics").unwrap().currency;
    let b = admit_from(&mut bench, BOB, "b", 1, "site.arts").unwrap().currency;
    let site = set(&mut bench, 2, &["arts<root:1", "bob@arts:1"]);
    let mut kept = site.kept.clone();
    kept.sort();
    assert_eq!(kept, ["alice/site.physics", "root/site.physics", "root/site.science"]);
    assert_eq!(parts(&mut bench, &[a, b]), [750, 250], "as before");
    bench.ask(ROOT, Ask::Leave { client: a }).unwrap();
    let site = set(&mut bench, 3, &["arts<root:1", "bob@arts:1"]);
    assert_eq!((site.kept.len(), site.currencies.len()), (0, 3), "{:?}", site.currencies);
}

#[test]
fn a_bad_table_is_refused_and_the_one_before_stays() {
    let mut bench = Bench::new("");
    set(&mut bench, 5, &TABLE);
    let a = admit_from(&mut bench, ALICE, "a", 1, "site.physics").unwrap().currency;
    let with = |row: &str| {
        let mut rows = TABLE.to_vec();
        rows.push(row);
        table(6, &rows)
    };
    let older = SiteTable { version: 4, ..table(4, &TABLE) };
    for (table, code, words) in [
        (older, ErrorCode::Refused, "table 4 is older than table 5"),
        (table(1006, &TABLE), ErrorCode::Refused, "table 1006 is too far ahead of table 5"),
        (
            table(u64::MAX, &TABLE),
            ErrorCode::Refused,
            "is too far ahead of table 5, which holds, and of this",
        ),
        (with("physics<root:1"), ErrorCode::BadRequest, "account physics is in the table twice"),
        (with("root<arts:1"), ErrorCode::BadRequest, "account root is in the table twice"),
        (with("bob@arts:2"), ErrorCode::BadRequest, "user bob is in account arts twice"),
        (with("mallory@arts:1"), ErrorCode::NoSuchUser, "there is no user 'mallory'"),
        (with("root@arts:1"), ErrorCode::BadRequest, "user root is in account 'arts'"),
        (with("carol@law:1"), ErrorCode::BadRequest, "in account 'law', which is not in the table"),
        (with("law<courts:1"), ErrorCode::BadRequest, "account law is below 'courts', which is not"),
        (with("law<law:1"), ErrorCode::BadRequest, "account law is below itself"),
        (with("law<root:0"), ErrorCode::BadRequest, "0 tickets"),
        (with("law<root:4294967296"), ErrorCode::BadRequest, "4294967296 tickets"),
        (with("carol@arts:0"), ErrorCode::BadRequest, "0 tickets"),
        (with("a/b<root:1"), ErrorCode::BadRequest, "'a/b' cannot be an account's name"),
        (SiteTable { tickets: 0, ..table(6, &TABLE) }, ErrorCode::BadRequest, "0 tickets"),
    ] {
        let refusal =
            bench.ask(ROOT, Ask::SetSite(table.clone())).map(|done| panic!("{done:?}")).unwrap_err();
        assert_eq!(refusal.code, code, "{table:?}: {}", refusal.message);
        assert!(refusal.message.contains(words), "{table:?}: {}", refusal.message);
    }
    // A depth that the market does not have is found out when half of the table is made: all of it is taken back.
    let deep: Vec<String> =
        (0..70).map(|k| if k == 0 { "d0<root:1".to_owned() } else { format!("d{k}<d{}:1", k - 1) }).collect();
    let rows: Vec<&str> = TABLE.iter().copied().chain(deep.iter().map(String::as_str)).collect();
    assert_eq!(bench.code(ROOT, Ask::SetSite(table(6, &rows))), ErrorCode::Refused);
    assert_eq!(bench.code(ALICE, Ask::SetSite(table(6, &TABLE))), ErrorCode::NotPermitted);
    match bench.ask(ROOT, Ask::Site) {
        Ok(Said::Site(site)) => assert_eq!((site.version, site.currencies.len()), (5, 7)),
        other => panic!("{other:?}"),
    }
    assert_eq!(parts(&mut bench, &[a]), [1000]);
}

/// Tables may bear the time, of a clock that is right.
#[test]
fn a_table_from_a_clock_that_runs_ahead_is_refused() {
    const NOW_S: u64 = 1_700_000_000;
    let mut bench = Bench::new("");
    bench.now_ns = NOW_S * 1_000_000_000;
    set(&mut bench, NOW_S, &TABLE);
    set(&mut bench, NOW_S + 300, &TABLE);
    // A thousand more than that holds are always counted on.
    assert_eq!(bench.code(ROOT, Ask::SetSite(table(NOW_S + 1301, &TABLE))), ErrorCode::Refused);
    set(&mut bench, NOW_S + 301, &TABLE);
}

/// What holds is what a snapshot, or the log, makes of it: an older table is refused after a restart as before.
#[test]
fn the_table_that_holds_outlives_divvyd() {
    let mut bench = Bench::new("");
    set(&mut bench, 5, &TABLE);
    admit_from(&mut bench, ALICE, "a", 1, "site.physics").unwrap();
    let without: Vec<&str> = TABLE.iter().copied().filter(|row| !row.starts_with("alice")).collect();
    let held = set(&mut bench, 6, &without);
    assert_eq!((held.version, held.kept.as_slice()), (6, &["alice/site.physics".to_owned()][..]));
    let image = bench.ledger.to_bytes().unwrap();
    bench.ledger = Ledger::from_bytes(&image, Policy::default()).unwrap();
    assert_eq!(bench.code(ROOT, Ask::SetSite(table(5, &TABLE))), ErrorCode::Refused);
    match bench.ask(ROOT, Ask::Site) {
        Ok(Said::Site(site)) => assert_eq!(site, Site { changes: 0, ..held }),
        other => panic!("{other:?}"),
    }
    // What it was before format 2 ends earlier.
    let later = postcard::to_stdvec(&(&bench.ledger.site, &bench.ledger.legs, &bench.ledger.cpus)).unwrap();
    let before = &image[..image.len() - later.len()];
    assert_eq!(Ledger::from_bytes(before, Policy::default()).unwrap().site, HeldTable::default());
}

#[test]
fn nobody_makes_what_a_table_makes() {
    let mut bench = Bench::new("");
    let create =
        |name: &str| Ask::CreateCurrency(NewCurrency { name: name.to_owned(), group: None, mode: None });
    assert_eq!(bench.code(ALICE, create("site.physics")), ErrorCode::NameTaken);
    let client = Ask::Admit {
        name: "site.physics".to_owned(),
        amount: 1,
        identity: identity(9),
        parent: None,
        from: None,
        job: None,
    };
    assert_eq!(bench.code(ALICE, client), ErrorCode::NameTaken);
    // What alice ends of her own is there again with the next table.
    set(&mut bench, 1, &TABLE);
    bench.ask(ALICE, Ask::DestroyCurrency("site.physics".to_owned())).unwrap();
    assert!(set(&mut bench, 2, &TABLE).changes > 0);
    let again: Currency = bench.currency("alice/site.physics");
    assert_eq!(again.depth, 4);
}

fn admit_task(
    bench: &mut Bench,
    uid: u32,
    name: &str,
    amount: u64,
    job: &str,
) -> Result<CurrencyId, Refusal> {
    let (name, job) = (name.to_owned(), Some(job.to_owned()));
    match bench.ask(uid, Ask::Admit { name, amount, identity: identity(9), parent: None, from: None, job })? {
        Said::Admitted(admitted) => Ok(admitted.currency),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_tasks_of_a_job_have_its_share_together() {
    let mut bench = Bench::new("");
    let other = bench.admit(ALICE, "other", 1).currency;
    let tasks = ["42.0", "42.1", "42.2"].map(|name| admit_task(&mut bench, ALICE, name, 3, "42").unwrap());
    let all = [other, tasks[0], tasks[1], tasks[2]];
    assert_eq!(parts(&mut bench, &all), [250, 250, 250, 250], "three of four, in three parts");
    bench.ask(ROOT, Ask::Leave { client: tasks[0] }).unwrap();
    assert_eq!(parts(&mut bench, &all), [250, 0, 375, 375]);
    // Another share for any of them is the job's.
    bench.ask(ALICE, Ask::SetShare { client: tasks[1], amount: 9 }).unwrap();
    assert_eq!(parts(&mut bench, &all), [100, 0, 450, 450]);
    bench.ask(ALICE, Ask::SetShare { client: tasks[2], amount: 3 }).unwrap();
    // Bob's job of that number is another one, and nobody pays through alice's.
    admit_task(&mut bench, BOB, "42.0", 1, "42").unwrap();
    assert_eq!(parts(&mut bench, &all)[0], 125);
    for task in &tasks[1..] {
        bench.ask(ROOT, Ask::Leave { client: *task }).unwrap();
    }
    assert_eq!(bench.code(ROOT, Ask::Currency("alice/job.42".to_owned())), ErrorCode::NoSuchCurrency);
    assert_eq!(bench.currency("bob/job.42").depth, 2);
    for job in ["", "a b", "a/b", &"x".repeat(61)] {
        assert_eq!(
            admit_task(&mut bench, ALICE, "odd", 1, job).unwrap_err().code,
            ErrorCode::BadRequest,
            "{job:?}"
        );
    }
    // What the job's currency was given beside, or gives beside, is a reason to stay.
    let task = admit_task(&mut bench, ALICE, "43.0", 1, "43").unwrap();
    let new = NewCurrency { name: "sub".to_owned(), group: None, mode: None };
    bench.ask(ALICE, Ask::CreateCurrency(new)).unwrap();
    let ticket = divvy_api::market::NewTicket {
        holder: "sub".to_owned(),
        issuer: "job.43".to_owned(),
        resource: Resource::Cpu,
        amount: 1,
        kind: divvy_market::Kind::Soft,
    };
    bench.ask(ALICE, Ask::CreateTicket(ticket)).unwrap();
    bench.ask(ROOT, Ask::Leave { client: task }).unwrap();
    assert_eq!(bench.currency("alice/job.43").depth, 2);
}

#[test]
fn a_job_takes_as_many_currencies_as_one_may_have() {
    let mut bench = Bench::new("[limits]\ncurrencies = 1");
    admit_task(&mut bench, ALICE, "1.0", 1, "1").unwrap();
    assert_eq!(admit_task(&mut bench, ALICE, "2.0", 1, "2").unwrap_err().code, ErrorCode::Limit);
    admit_task(&mut bench, ALICE, "1.1", 1, "1").unwrap();
}
