//! What the dashboard shows on an 80x24 terminal, and what its keys do, without a terminal.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::app::{App, Column, Key, Mode, Notice, Request};
use super::render::{Look, draw};
use super::source::{Change, Client, Cycles, Member, Own, SNAPSHOT_VERSION, Snapshot, State};
use super::{is_utf8, parse_interval, parse_speed};
use crate::strip::Signs;

fn client(id: u32, name: &str, share: u64, state: State) -> Client {
    Client {
        id,
        name: name.into(),
        order: id as usize,
        beside: 6,
        selector: format!("tree:{}", 100 + id),
        share,
        effective_share: share as f64,
        requested_fraction: share as f64 / 6.0,
        effective_fraction: share as f64 / 6.0,
        achieved_fraction: share as f64 / 6.0,
        state,
        width: 1,
        nr_members: 1,
        members: Some(vec![Member {
            pid: 100 + id as i32,
            name: format!("{name}-main"),
            state: "running".into(),
            permitted: true,
        }]),
        ..Client::default()
    }
}

fn snapshot(now_s: u64, mut clients: Vec<Client>) -> Snapshot {
    let beside = clients.iter().filter(|c| c.state != State::Left).map(|c| c.share).sum();
    clients.iter_mut().for_each(|c| c.beside = beside);
    Snapshot {
        version: SNAPSHOT_VERSION,
        source: "divvyd 4711".into(),
        policy: "exact".into(),
        quantum_ns: 10_000_000,
        cpus: 1,
        now_ns: now_s * 1_000_000_000,
        ended: false,
        cycles: None,
        own: Own {
            cpu_ns: Some(now_s * 700_000),
            wakeups: now_s * 85,
            reads: now_s * 90,
            signals: now_s * 100,
        },
        clients,
    }
}

/// Three clients with shares 1, 2, 3 that have run for `seconds`; the second sleeps from the eighth second on.
fn three(seconds: u64) -> Vec<Client> {
    let mut clients = vec![
        client(0, "sha256sum", 1, State::Held),
        client(1, "make", 2, if seconds > 8 { State::Asleep } else { State::Running }),
        client(2, "backup of everything", 3, State::Held),
    ];
    let awake = seconds.min(8);
    clients[0].service_ns = awake * 1_000_000_000 / 6 + (seconds - awake) * 250_000_000;
    clients[1].service_ns = awake * 2_000_000_000 / 6;
    clients[2].service_ns = awake * 3_000_000_000 / 6 + (seconds - awake) * 750_000_000;
    let all: u64 = clients.iter().map(|c| c.service_ns).sum();
    for c in &mut clients {
        c.measured = all > 0;
        c.achieved_fraction = if all == 0 { 0.0 } else { c.service_ns as f64 / all as f64 };
        c.relative_error = if all == 0 { 0.0 } else { c.achieved_fraction / c.effective_fraction - 1.0 };
    }
    let more =
        |pid, name: &str, permitted| Member { pid, name: name.into(), state: "asleep".into(), permitted };
    if let Some(members) = &mut clients[1].members {
        members.extend([more(201, "cc1", true), more(202, "sudo", false)]);
    }
    (clients[1].nr_members, clients[1].not_permitted) = (3, 1);
    clients
}

/// A dashboard that has looked for 12 seconds.
fn watched() -> App {
    let mut app = App::new();
    (0..=12).for_each(|s| app.on_snapshot(Ok(snapshot(s, three(s)))));
    app
}

const PLAIN: Look = Look { signs: Signs::Blocks, color: true };

fn shown(app: &App, (width, height): (u16, u16), look: Look) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, look)).unwrap();
    terminal.backend().to_string()
}

fn press(app: &mut App, keys: &str) -> Vec<Request> {
    keys.chars().filter_map(|c| app.on_key(Key::Char(c))).collect()
}

fn names(app: &App) -> Vec<&str> {
    app.rows().iter().map(|c| c.name.as_str()).collect()
}

fn change(client: u32, change: Change) -> Request {
    Request::Change { client, change }
}

#[test]
fn an_ordinary_screen() {
    let mut app = watched();
    app.on_key(Key::Down);
    insta::assert_snapshot!(shown(&app, (80, 24), PLAIN));
}

#[test]
fn a_wide_screen_has_longer_names_and_strips() {
    insta::assert_snapshot!(shown(&watched(), (120, 20), PLAIN));
}

#[test]
fn a_screen_that_is_wider_still_has_memory_and_disks() {
    let mut clients = three(1);
    let uses = &mut clients[1].uses;
    (uses.memory_bytes, uses.disk_read_bytes_per_s, uses.disk_written_bytes_per_s) =
        (Some(3 << 20), Some(1024), Some(512));
    let mut app = App::new();
    app.on_snapshot(Ok(snapshot(1, clients)));
    let row = |width, of: &str| {
        let screen = shown(&app, (width, 10), PLAIN);
        screen.lines().find(|line| line.contains(of)).expect("its row").to_owned()
    };
    assert!(row(130, "req %").contains("  n     memory     disk/s "), "{}", row(130, "req %"));
    assert!(row(130, "make").contains("  3    3.0 MiB    1.5 KiB "), "{}", row(130, "make"));
    assert!(row(130, "sha256sum ").contains("  1          -          - "), "nothing is known of it");
    assert!(!row(129, "req %").contains("memory"));
}

/// Who the clients are is seen on any terminal; their history, and then numbers, make room.
#[test]
fn a_narrow_screen_keeps_the_names() {
    let row = |app: &App, width, of: &str| {
        let screen = shown(app, (width, 10), PLAIN);
        screen.lines().find(|line| line.contains(of)).expect("its row").to_owned()
    };
    let mut app = watched();
    assert_eq!(row(&app, 60, "backup"), "\" backup of every…       3  50.00  58.33  +16.67 held      1 \"");
    assert_eq!(row(&app, 60, "client"), "\" client             share  eff %  got %   err % state     n \"");
    assert_eq!(row(&app, 40, "client"), "\" client            share  got % state   \"");
    assert_eq!(row(&app, 40, "backup"), "\" backup of ever…       3  58.33 held    \"");
    assert_eq!(row(&app, 40, "sha256"), "\">sha256sum             1  19.44 held    \"");
    // Nothing was measured yet.
    app.on_snapshot(Ok(snapshot(0, three(0))));
    assert_eq!(row(&app, 40, "sha256"), "\">sha256sum             1      - held    \"");
    assert!(row(&app, 80, "sha256").contains("  16.67  16.67      -       -    0.00s held"));
}

#[test]
fn ascii_is_ascii() {
    let look = Look { signs: Signs::Ascii, color: false };
    let mut app = watched();
    let screen = shown(&app, (80, 24), look);
    assert!(screen.is_ascii() && screen.contains("backup of~"), "{screen}");
    press(&mut app, "?");
    assert!(shown(&app, (80, 24), look).is_ascii());
    let strip = screen.lines().find(|line| line.contains(">sha256sum")).unwrap();
    // Six of its last ten seconds at 1/6 of the CPU, four at 1/4.
    assert!(strip.trim_end_matches('"').ends_with("......::::"), "{strip}");
}

#[test]
fn a_recording_says_what_it_does_not_know() {
    let mut app = watched();
    let mut clients = three(13);
    for c in &mut clients {
        (c.members, c.nr_members) = (None, 0);
        c.selector.clear();
    }
    clients[0].state = State::Left;
    let mut last = snapshot(13, clients);
    last.cycles = Some(Cycles { count: 200, median: 0.0004, mean: 0.001, max: 0.02 });
    (last.ended, last.source, last.own.cpu_ns) = (true, "trace run.jsonl".into(), None);
    app.on_snapshot(Ok(last));
    insta::assert_snapshot!(shown(&app, (80, 24), PLAIN));
}

#[test]
fn help_covers_the_screen_and_any_key_closes_it() {
    let mut app = watched();
    press(&mut app, "?");
    insta::assert_snapshot!(shown(&app, (80, 24), PLAIN));
    let narrow = shown(&app, (60, 30), PLAIN);
    let inside = narrow.replace(['│', '"'], " ");
    let words: Vec<&str> = inside.split_whitespace().collect();
    assert!(words.join(" ").contains("reads from disks and writes to them"), "{narrow}");
    assert_eq!(press(&mut app, "q"), []);
    assert_eq!(app.mode, Mode::Browse);
}

#[test]
fn every_size_can_be_drawn() {
    let mut app = watched();
    for _ in 0..2 {
        for (width, height) in [(1, 1), (5, 3), (20, 5), (60, 17), (60, 18), (79, 24), (300, 100)] {
            let screen = shown(&app, (width, height), PLAIN);
            assert_eq!(screen.lines().count(), usize::from(height));
        }
        press(&mut app, "?");
    }
}

#[test]
fn a_screen_without_clients_says_how_to_get_one() {
    let mut app = App::new();
    assert!(shown(&app, (80, 24), PLAIN).contains("waiting for the first answer"));
    app.on_snapshot(Ok(snapshot(1, vec![])));
    assert!(shown(&app, (80, 24), PLAIN).contains("divvy run -s 3 -- COMMAND"));
    app.on_snapshot(Err("divvyd has gone".into()));
    assert!(shown(&app, (80, 24), PLAIN).contains("divvyd has gone"));
    app.on_snapshot(Ok(snapshot(2, vec![])));
    assert!(!shown(&app, (80, 24), PLAIN).contains("divvyd has gone"));
}

#[test]
fn rows_are_sorted_with_ties_by_number() {
    let mut app = watched();
    assert_eq!(names(&app), ["sha256sum", "make", "backup of everything"]);
    press(&mut app, ">");
    assert_eq!((app.sort, names(&app)[0]), (Column::Name, "backup of everything"));
    press(&mut app, ">");
    assert_eq!((app.sort, names(&app)[0]), (Column::Share, "backup of everything"));
    press(&mut app, "r");
    assert_eq!(names(&app)[0], "sha256sum");
    // Around, and largest error first whichever way it is off: the sleeper's.
    press(&mut app, "<<<<<<");
    assert_eq!((app.sort, names(&app)[0]), (Column::Error, "make"));
    let mut equal = three(5);
    equal.iter_mut().for_each(|c| c.relative_error = f64::NAN);
    app.on_snapshot(Ok(snapshot(20, equal)));
    assert_eq!(names(&app), ["sha256sum", "make", "backup of everything"]);
}

#[test]
fn a_filter_looks_at_names_states_and_processes() {
    let mut app = watched();
    for (text, found) in [
        ("BACK", vec!["backup of everything"]),
        ("cc1", vec!["make"]),
        ("asleep", vec!["make"]),
        ("tree:10", vec!["sha256sum", "make", "backup of everything"]),
        ("nothing", vec![]),
    ] {
        press(&mut app, "/");
        app.on_key(Key::Ctrl('u'));
        press(&mut app, text);
        app.on_key(Key::Enter);
        assert_eq!(names(&app), found, "{text}");
        // Whoever is chosen is one that is shown.
        assert_eq!(app.chosen().is_some(), !found.is_empty(), "{text}");
    }
    assert!(shown(&app, (80, 24), PLAIN).contains("Escape shows all"));
    assert_eq!(press(&mut app, "+"), []);
    assert_eq!(app.notice, Some(Notice::Trouble("no client is chosen".into())));
    // Escape takes the filter away, and ends nothing: who presses it once more has the rest of its keys taken by the shell.
    assert_eq!(app.on_key(Key::Escape), None);
    assert_eq!(names(&app).len(), 3);
    assert_eq!(app.on_key(Key::Escape), None);
    assert_eq!(app.on_key(Key::Char('q')), Some(Request::Quit));
}

#[test]
fn escape_while_typing_leaves_the_filter_as_it_was() {
    let mut app = watched();
    press(&mut app, "/make");
    app.on_key(Key::Enter);
    press(&mut app, "/x");
    assert_eq!(names(&app).len(), 0);
    app.on_key(Key::Backspace);
    app.on_key(Key::Escape);
    assert_eq!((app.filter.as_str(), names(&app)), ("make", vec!["make"]));
}

#[test]
fn shares_change_by_one_or_as_typed() {
    let mut app = watched();
    assert_eq!(press(&mut app, "+"), [change(0, Change::Share(2))]);
    assert_eq!(press(&mut app, "-"), []);
    assert_eq!(app.notice, Some(Notice::Trouble("a share is a whole number from 1 to 1000000".into())));
    app.on_key(Key::Down);
    assert_eq!(app.notice, None);
    assert_eq!(press(&mut app, "-"), [change(1, Change::Share(1))]);
    // Letters are not taken.
    assert_eq!(press(&mut app, "s1x2"), []);
    assert!(shown(&app, (80, 24), PLAIN).contains("share of make: 12_"));
    app.on_key(Key::Backspace);
    assert_eq!(app.on_key(Key::Enter), Some(change(1, Change::Share(1))));
    for (text, answer) in [("0", true), ("1000001", true), ("-5", true), ("", false)] {
        press(&mut app, "s");
        press(&mut app, text);
        assert_eq!(app.on_key(Key::Enter), None);
        assert_eq!(app.notice.is_some(), answer, "{text}");
        app.notice = None;
    }
    press(&mut app, "s7");
    assert_eq!((app.on_key(Key::Escape), app.mode.clone()), (None, Mode::Browse));
    // The client may leave the list while its share is being typed: the number is still for it.
    press(&mut app, "s7");
    app.on_snapshot(Ok(snapshot(20, vec![three(9).remove(0)])));
    assert_eq!(app.on_key(Key::Enter), Some(change(1, Change::Share(7))));
}

#[test]
fn pause_is_a_toggle_and_nothing_is_done_to_who_has_left() {
    let mut app = watched();
    assert_eq!(press(&mut app, "p"), [change(0, Change::Pause(true))]);
    let mut clients = three(12);
    clients[0].state = State::Paused;
    clients[1].state = State::Left;
    app.on_snapshot(Ok(snapshot(13, clients)));
    assert_eq!(press(&mut app, "p"), [change(0, Change::Pause(false))]);
    app.on_key(Key::Down);
    assert_eq!(press(&mut app, "p+s"), []);
    assert_eq!(
        (app.mode.clone(), app.notice.clone()),
        (Mode::Browse, Some(Notice::Trouble("it has left".into())))
    );
}

#[test]
fn the_chosen_row_stays_chosen_wherever_it_goes() {
    let mut app = watched();
    app.on_key(Key::End);
    assert_eq!(app.selected, Some(2));
    press(&mut app, ">>");
    assert_eq!((app.selected, names(&app)[0]), (Some(2), "backup of everything"));
    app.on_key(Key::PageDown);
    assert_eq!(app.selected, Some(0));
    app.on_key(Key::Home);
    assert_eq!(app.selected, Some(2));
    // It is gone: the first one.
    app.on_snapshot(Ok(snapshot(13, three(12).into_iter().take(2).collect())));
    assert_eq!(app.selected, Some(1));
}

#[test]
fn a_page_of_rows_has_the_chosen_one_in_it() {
    let mut app = App::new();
    let many = |_| (0..40).map(|i| client(i, &format!("client-{i}"), 1, State::Held)).collect();
    (0..2).for_each(|s| app.on_snapshot(Ok(snapshot(s, many(s)))));
    for _ in 0..23 {
        app.on_key(Key::Down);
    }
    let screen = shown(&app, (80, 24), PLAIN);
    assert!(screen.contains(">client-23"), "{screen}");
    assert!(!screen.contains("client-0 "), "{screen}");
}

#[test]
fn the_other_keys_ask_for_what_they_say() {
    let mut app = watched();
    assert_eq!(press(&mut app, "q"), [Request::Quit]);
    assert_eq!(app.on_key(Key::Ctrl('c')), Some(Request::Interrupt));
    assert_eq!(app.on_key(Key::Ctrl('z')), Some(Request::Suspend));
    assert_eq!(app.on_key(Key::Ctrl('l')), Some(Request::Redraw));
    assert_eq!(press(&mut app, "  "), [Request::Freeze(true), Request::Freeze(false)]);
    app.on_key(Key::Enter);
    assert!(!shown(&app, (80, 24), PLAIN).contains("tree:100"));
    // Not even while something is typed is Ctrl-C lost.
    press(&mut app, "s1");
    assert_eq!(app.on_key(Key::Ctrl('c')), Some(Request::Interrupt));
}

#[test]
fn rates_are_of_the_last_few_looks() {
    let app = watched();
    let rates = app.rates().unwrap();
    assert!((rates.used - 1.0).abs() < 1e-6, "{rates:?}");
    assert!((rates.own.unwrap() - 0.0007).abs() < 1e-9, "{rates:?}");
    assert_eq!((rates.wakeups_per_s.round(), rates.signals_per_s.round()), (85.0, 100.0));
    assert_eq!(App::new().rates(), None);
}

/// A client's past before it was first seen is no part of what is used now, and neither is another scheduler's.
#[test]
fn a_newcomers_past_does_not_count() {
    let mut app = watched();
    let mut clients = three(13);
    clients.push(Client { service_ns: 1_000_000_000_000, ..client(3, "old", 1, State::Held) });
    app.on_snapshot(Ok(snapshot(13, clients)));
    assert!((app.rates().unwrap().used - 1.0).abs() < 1e-6, "{:?}", app.rates());
    assert_eq!(app.cells(3, 10).count(), 0);
    app.on_snapshot(Ok(snapshot(1, three(1))));
    assert_eq!(app.cells(0, 10).count(), 0);
}

#[test]
fn arguments_are_checked() {
    assert_eq!(parse_speed("0.5"), Ok(500));
    assert!(parse_speed("0").is_err() && parse_speed("fast").is_err() && parse_speed("NaN").is_err());
    assert!(parse_interval("100ms").is_ok());
    assert!(parse_interval("99ms").is_err() && parse_interval("2h").is_err());
    for (locale, utf8) in
        [("de_DE.UTF-8", true), ("C.utf8", true), ("en_US.UTF-8@x", true), ("C", false), ("", false)]
    {
        assert_eq!(is_utf8(locale), utf8, "{locale}");
    }
}
