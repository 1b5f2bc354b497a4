//! What the market's commands print, over markets that real operations made.

use clap::Parser as _;
use divvy_api::market::{AuditEntry, Offer, Offered};
use divvy_market::{Kind, Resource};

use super::fixtures::{Fair, all_kinds, an_exchange, backed_by_many, deep, two_currencies, wide};
use super::tree::text::Look;
use super::tree::{Drawn, Lines};
use super::*;
use crate::args::{Args, Command};

const COLUMNS: usize = 80;
const PLAIN: Look = Look { signs: Lines::BOXES, ids: false };

fn text(fair: &mut Fair, resource: Resource, root: Option<&str>) -> String {
    let graph = fair.graph();
    let lines = tree::text::draw(&Drawn::new(&graph, resource, root), &PLAIN);
    let wide = lines.iter().find(|line| line.chars().count() > COLUMNS);
    assert_eq!(wide, None, "fits {COLUMNS} columns");
    lines.join("\n")
}

#[test]
fn a_bound_below_what_a_user_has_is_told_as_such() {
    let graph = two_currencies().graph();
    assert_eq!(given(&graph, "alice", Resource::Cpu), 1000);
    assert_eq!((given(&graph, "alice", Resource::Disk), given(&graph, "carol", Resource::Cpu)), (0, 0));
    let words = |bound, has| bound_words("alice", Resource::Cpu, bound, has);
    assert!(
        words(Some(1000), 1000).starts_with("alice: has 1000 cpu base tickets, and may issue none until")
    );
    assert!(words(Some(1001), 1000).starts_with("alice: may issue cpu base tickets until it has 1001"));
    assert_eq!(words(None, 1000), "alice: may issue no cpu base tickets");
}

/// Figs. 5 and 6: the numbers are those of docs/market.md.
#[test]
fn tree_of_two_currencies() {
    let text = text(&mut two_currencies(), Resource::Cpu, None);
    for (name, requested, effective) in
        [("A1", "16.67", "16.67"), ("B1", "8.33", "16.67"), ("B2", "16.67", "33.33"), ("B3", "25.00", "0.00")]
    {
        let line = text.lines().find(|line| line.contains(&format!("/{name} "))).unwrap();
        let numbers: Vec<&str> = line.split_whitespace().rev().take(3).collect();
        assert_eq!((numbers[2], numbers[1]), (requested, effective), "{line}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn tree_of_an_exchange() {
    insta::assert_snapshot!(text(&mut an_exchange(), Resource::Memory, None));
}

#[test]
fn tree_of_one_currency() {
    insta::assert_snapshot!(text(&mut an_exchange(), Resource::Disk, Some("bob")));
}

#[test]
fn tree_of_hard_shared_nice_and_unfunded() {
    insta::assert_snapshot!(text(&mut all_kinds(), Resource::Cpu, None));
}

#[test]
fn tree_that_is_deep() {
    insta::assert_snapshot!(text(&mut deep(), Resource::Cpu, None));
}

#[test]
fn tree_that_is_wide() {
    let text = text(&mut wide(), Resource::Cpu, None);
    let rows = text.lines().filter(|line| line.contains("user")).count();
    assert_eq!(rows, 400, "each currency and client once");
    insta::assert_snapshot!(text.lines().take(6).collect::<Vec<_>>().join("\n"));
}

#[test]
fn tree_in_ascii_with_ids() {
    let graph = all_kinds().graph();
    let lines =
        tree::text::draw(&Drawn::new(&graph, Resource::Cpu, None), &Look { signs: Lines::ASCII, ids: true });
    assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
    let ids = graph.tickets.iter().filter(|t| t.resource == Resource::Cpu);
    for ticket in ids {
        let row = format!("#{} {}", ticket.id, ticket.amount);
        assert!(lines.iter().any(|line| line.contains(&row)), "{row}: {lines:#?}");
    }
}

/// Whoever several back is drawn out once, however many ways lead there.
#[test]
fn shared_currencies_are_drawn_once() {
    let mut fair = Fair::new();
    fair.currency("alice").fund("alice", "base", Resource::Cpu, 1, Kind::Soft);
    let mut above = "alice".to_owned();
    // Two ways through each layer: 2^10 ways to the last.
    for layer in 0..10 {
        let (left, right, join) =
            (format!("alice/l{layer}"), format!("alice/r{layer}"), format!("alice/j{layer}"));
        for side in [&left, &right] {
            fair.currency(side).fund(side, &above, Resource::Cpu, 1, Kind::Soft);
        }
        fair.currency(&join);
        for side in [&left, &right] {
            fair.fund(&join, side, Resource::Cpu, 1, Kind::Soft);
        }
        above = join;
    }
    let text = text(&mut fair, Resource::Cpu, None);
    assert_eq!(text.lines().filter(|line| line.contains("/j")).count(), 20, "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("(above)")).count(), 10, "{text}");
}

#[test]
fn dot_of_an_exchange() {
    let graph = an_exchange().graph();
    insta::assert_snapshot!(tree::dot::draw(&Drawn::new(&graph, Resource::Memory, None)));
}

#[test]
fn names_are_quoted_for_graphviz_and_svg() {
    let mut graph = two_currencies().graph();
    graph.currencies[0].name = "a\"b\\<&".to_owned();
    let drawn = Drawn::new(&graph, Resource::Cpu, None);
    let dot = tree::dot::draw(&drawn);
    assert!(dot.contains(r#"label="a\"b\\<&\nrequested"#), "{dot}");
    let svg = tree::svg::draw(&drawn);
    assert!(svg.contains(r#"a"b\&lt;&amp;"#), "{svg}");
}

#[test]
fn svg_of_an_exchange() {
    let graph = an_exchange().graph();
    insta::assert_snapshot!(tree::svg::draw(&Drawn::new(&graph, Resource::Memory, None)));
}

#[expect(clippy::disallowed_methods, reason = "where pictures go is told by the environment")]
fn pictures() -> Option<std::path::PathBuf> {
    std::env::var_os("DIVVY_PICTURES").map(std::path::PathBuf::from)
}

fn attribute(line: &str, name: &str) -> Option<f64> {
    line.split_once(&format!("{name}=\""))?.1.split_once('"')?.0.parse().ok()
}

/// Letters are large enough to be read, and no amount of a ticket stands on another.
fn check_letters(name: &str, svg: &str) {
    const LEAST: f64 = 12.0;
    for line in svg.lines() {
        assert!(attribute(line, "font-size").is_none_or(|size| size >= LEAST), "{name}: {line}");
    }
    let amounts = svg.lines().filter(|line| line.contains("paint-order"));
    let mut places: Vec<(f64, f64)> =
        amounts.map(|line| (attribute(line, " x").unwrap(), attribute(line, " y").unwrap())).collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    for pair in places.windows(2) {
        let apart = pair[0].0 != pair[1].0 || pair[1].1 - pair[0].1 >= LEAST;
        assert!(apart, "{name}: amounts at {pair:?}");
    }
}

/// Every picture is well-formed, and has a card for each currency and a line for each ticket. With `DIVVY_PICTURES` they are
/// written there, to be looked at.
#[test]
fn pictures_have_everybody() {
    let dir = pictures();
    for (name, mut fair, resource) in [
        ("two", two_currencies(), Resource::Cpu),
        ("exchange", an_exchange(), Resource::Memory),
        ("kinds", all_kinds(), Resource::Cpu),
        ("wide", wide(), Resource::Cpu),
        ("deep", deep(), Resource::Cpu),
        ("many", backed_by_many(), Resource::Cpu),
        ("empty", Fair::new(), Resource::Cpu),
    ] {
        let graph = fair.graph();
        let svg = tree::svg::draw(&Drawn::new(&graph, resource, None));
        let cards = svg.matches(" rx=\"").count();
        assert_eq!(cards, graph.currencies.len(), "{name}");
        let tickets = graph.tickets.iter().filter(|t| t.resource == resource).count();
        let lines = svg
            .lines()
            .filter(|line| line.starts_with("<path") && !line.contains("stroke=\"#8e44ad\""))
            .count();
        assert_eq!(lines, tickets, "{name}");
        for line in svg.lines().skip(1).filter(|line| !line.starts_with("</svg")) {
            let closed = line.ends_with("/>") || line.ends_with("</text>");
            assert!(closed, "{name}: {line}");
            assert!(!line.contains("NaN") && !line.contains("inf"), "{name}: {line}");
        }
        check_letters(name, &svg);
        if let Some(dir) = &dir {
            std::fs::write(dir.join(format!("{name}.svg")), svg).unwrap();
        }
    }
}

/// The picture in docs/market.md is what is drawn of its worked example.
#[test]
fn the_picture_in_the_docs_is_of_today() {
    let mut graph = two_currencies().graph();
    for standing in graph.currencies.iter_mut().flat_map(|c| &mut c.standing) {
        standing.achieved = None; // Nothing ran.
    }
    let svg = tree::svg::draw(&Drawn::new(&graph, Resource::Cpu, None)) + "\n";
    if let Some(dir) = pictures() {
        std::fs::write(dir.join("market.svg"), &svg).unwrap();
    }
    assert!(
        svg == include_str!("../../../../docs/images/market.svg"),
        "draw it anew: DIVVY_PICTURES=$PWD/docs/images cargo test -p divvy-cli --lib the_picture"
    );
}

#[test]
fn explain_ticket_by_ticket() {
    insta::assert_snapshot!(explain::in_words(&all_kinds().explained("bob/B1", Resource::Cpu)));
}

#[test]
fn explain_an_exchange() {
    insta::assert_snapshot!(explain::in_words(&an_exchange().explained("bob", Resource::Memory)));
}

#[test]
fn explain_a_sleeper() {
    insta::assert_snapshot!(explain::in_words(&two_currencies().explained("bob/B3", Resource::Cpu)));
}

#[test]
fn numbers_are_readable_however_long() {
    assert_eq!(explain::number("1000"), "1000");
    assert_eq!(explain::number("-50"), "-50");
    assert_eq!(explain::number("1000/3"), "333.33 (1000/3)");
    assert_eq!(explain::number("-1000/3"), "-333.33 (-1000/3)");
    assert_eq!(explain::number("100000000000000000000000000/300000000000000000000000007"), "0.33");
}

#[test]
fn tables_of_currencies_and_deals() {
    let graph = an_exchange().graph();
    let table = list::table(&graph.currencies, Resource::Cpu).join("\n");
    let deals = list::deals(&graph.exchanges, &graph.offers).join("\n");
    insta::assert_snapshot!(format!("{table}\n\n{deals}"));
}

#[test]
fn an_offer_in_whose_way_others_stand_comes_with_a_hint() {
    let offer = |id, party: &str, gives, wants, until_unix_ns| Offer {
        id,
        party: party.to_owned(),
        gives,
        wants,
        until_unix_ns,
    };
    let (disk, memory) = (
        |amount| Give { resource: Resource::Disk, amount },
        |amount| Give { resource: Resource::Memory, amount },
    );
    let made = Offered {
        exchange: None,
        offer: Some(offer(7, "alice", disk(50), memory(20), Some(1_000_000_000))),
        conflicts: vec![offer(3, "bob", memory(15), disk(50), None)],
    };
    insta::assert_snapshot!(outcome(&made).join("\n"));
}

#[test]
fn an_audit_line_says_who_did_what() {
    let entry = AuditEntry {
        seq: 12,
        t_unix_ns: 1_700_000_000_000_000_000,
        uid: 1000,
        pid: 4711,
        what: serde_json::json!({ "ask": "change-ticket", "request": { "amount": 5 }, "steps": [{ "do": "set" }] }),
        refused: Some("not permitted".to_owned()),
    };
    assert_eq!(
        audit::line(&entry, |_| None),
        r#"12 2023-11-14T22:13:20Z user 1000 pid 4711: change-ticket amount=5  REFUSED: not permitted"#
    );
    let over = serde_json::json!({ "ask": "exchange-ended", "exchange": "0", "why": "it is over" });
    let told = AuditEntry { pid: 0, what: over, refused: None, ..entry.clone() };
    assert_eq!(
        audit::line(&told, |_| Some("carol".to_owned())),
        "12 2023-11-14T22:13:20Z divvyd to carol: exchange-ended exchange=0 why=it is over"
    );
    let by_root = serde_json::json!({ "ask": "admit", "by": "root", "name": "a" });
    let entry = AuditEntry { what: by_root, refused: None, ..entry };
    assert_eq!(
        audit::line(&entry, |_| Some("carol".to_owned())),
        "12 2023-11-14T22:13:20Z user root pid 4711 for carol: admit name=a"
    );
}

#[test]
fn what_a_user_has_asked_for_does_nothing_to_the_terminal_of_who_reads_it() {
    let entry = AuditEntry {
        seq: 1,
        t_unix_ns: 0,
        uid: 1000,
        pid: 4711,
        what: serde_json::json!({
            "ask": "create-currency",
            "request": { "name": "a\u{1b}[2Jb\n2 1970-01-01T00:00:00Z user 0 pid 1: reload", "mode": "\u{202e}" },
        }),
        refused: Some("'a\u{1b}]0;x\u{7}' cannot be a currency's name".to_owned()),
    };
    let line = audit::line(&entry, |uid| Some(format!("u{uid}")));
    assert!(line.contains("user u"), "{line}");
    assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
    for shown in [r"name=a\u{1b}[2Jb\n2 1970", r"mode=\u{202e}", r"REFUSED: 'a\u{1b}]0;x\u{7}' cannot"] {
        assert!(line.contains(shown), "{line}");
    }
}

fn parsed(line: &str) -> Result<Command, String> {
    let words = line.split_whitespace();
    Args::try_parse_from(words).map(|args| args.command).map_err(|e| e.to_string())
}

#[test]
fn command_lines_are_read() {
    let Command::Fund(args) = parsed("divvy fund build --from alice --resource disk 300").unwrap() else {
        panic!("fund")
    };
    assert_eq!((args.holder.as_str(), args.from.as_str()), ("build", "alice"));
    assert_eq!((args.resource, args.amount), (Resource::Disk, 300));
    let Command::Reserve(args) = parsed("divvy reserve bob/x --from base 4294967295").unwrap() else {
        panic!("reserve")
    };
    assert_eq!((args.resource, args.amount), (Resource::Cpu, 4_294_967_295));
    let line = "divvy exchange offer --give disk:50 --want memory:20 --for 10m --party bob/x";
    let Command::Exchange(args) = parsed(line).unwrap() else { panic!("exchange") };
    let ExchangeCommand::Offer(args) = args.command else { panic!("offer") };
    assert_eq!(args.give, Give { resource: Resource::Disk, amount: 50 });
    assert_eq!(args.want, Give { resource: Resource::Memory, amount: 20 });
    assert_eq!(args.wait, Some(std::time::Duration::from_secs(600)));
    let Command::Market(args) = parsed("divvy market bound bob cpu:none").unwrap() else { panic!("market") };
    let MarketCommand::Bound(args) = args.command else { panic!("bound") };
    assert_eq!(args.bound, (Resource::Cpu, None));
    for line in [
        "divvy currency create build --mode 740 --group staff",
        "divvy currency ls --resource memory --json",
        "divvy currency tree",
        "divvy currency tree bob --svg -o x.svg",
        "divvy currency tree --dot --resource disk",
        "divvy currency destroy build",
        "divvy currency chmod fcif----- build",
        "divvy currency chown alice:staff build",
        "divvy currency hard-total build cpu:2000",
        "divvy unfund 12",
        "divvy unfund build --from alice --resource disk --all",
        "divvy exchange ls",
        "divvy exchange cancel 3 --offer",
        "divvy nice make 10 --from alice",
        "divvy market explain make --resource memory",
        "divvy market audit --since 4",
        "divvy market bound bob disk:7 --system-socket /x",
        "divvy ls --own",
        "divvy ls --system",
        "divvy attach --user bob --own",
        "divvy run --system-socket /x -- true --own",
    ] {
        parsed(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (line, said) in [
        ("divvy fund build --from alice 0", "1 to 4294967295"),
        ("divvy fund build --from alice 4294967296", "1 to 4294967295"),
        ("divvy fund build --from alice -- -3", "1 to 4294967295"),
        ("divvy fund build --from alice 1.5", "1 to 4294967295"),
        ("divvy fund build --from alice 3 --resource gpu", "cpu, memory, disk"),
        ("divvy fund build 3", "--from"),
        ("divvy exchange offer --give disk --want memory:20", "disk:50"),
        ("divvy exchange offer --give disk:50 --want memory:0", "1 to 4294967295"),
        ("divvy exchange offer --give disk:50", "--want"),
        ("divvy exchange cancel x", "invalid"),
        ("divvy market bound bob cpu", "cpu:500"),
        ("divvy unfund build --all", "--from"),
        ("divvy currency tree --dot --svg", "cannot be used with"),
        ("divvy currency", "subcommand"),
        ("divvy ls --own --system", "cannot be used with"),
    ] {
        let error = parsed(line).err().unwrap_or_else(|| panic!("{line} is taken"));
        assert!(error.contains(said), "{line}: {error}");
    }
}

#[test]
fn refusals_have_exit_codes_of_their_own() {
    use divvy_api::client::ApiError;
    use divvy_api::types::{ErrorCode, ErrorInfo};
    let code = |code| {
        let info = ErrorInfo { code, message: "why".into(), fix: "what to do".into() };
        refused(ApiError::Refused(info)).code
    };
    assert_eq!(code(ErrorCode::NotPermitted), Code::Denied);
    assert_eq!(code(ErrorCode::NameTaken), Code::Usage);
    assert_eq!(code(ErrorCode::BadRequest), Code::Usage);
    assert_eq!(code(ErrorCode::Busy), Code::System);
    assert_eq!(code(ErrorCode::NoMarket), Code::Scheduler);
    assert_eq!([ErrorCode::Refused, ErrorCode::Limit].map(code), [Code::Refused; 2]);
    let gone = [
        ErrorCode::NoSuchCurrency,
        ErrorCode::NoSuchTicket,
        ErrorCode::NoSuchExchange,
        ErrorCode::NoSuchOffer,
    ];
    assert_eq!(gone.map(code), [Code::NoSuch; 4]);
    let none = refused(ApiError::NoSystem("/x".into()));
    assert_eq!(none.code, Code::Scheduler);
    // One's own divvyd, which other commands can ask instead, has no market.
    assert!(none.text.contains("/x") && !none.text.contains("--own"), "{}", none.text);
}
