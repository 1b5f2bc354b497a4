//! `divvy web`: the page in a real browser, and who is answered at its port.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::accounts::nobody;
use crate::browser::Browser;
use crate::daemon::{client, start_divvyd};
use crate::harness::{PATIENCE, Running, SPIN, Sandbox, eventually, one_cpu};
use crate::system::System;

/// A page that is served.
struct Page {
    running: Running,
    address: String,
    port: u16,
    token: String,
}

impl Page {
    fn serve(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("start divvy web");
        let mut text = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        while !text.ends_with("}\n") {
            assert!(out.read_line(&mut text).expect("text") > 0, "it ended: {text}");
        }
        let told: Value = serde_json::from_str(&text).expect("JSON");
        let address = told["address"].as_str().expect("an address").to_owned();
        let token = address.split_once('#').expect("a token").1.to_owned();
        let port = told["port"].as_u64().expect("a port") as u16;
        assert!(address.starts_with(&format!("http://127.0.0.1:{port}/#")), "{address}");
        assert_eq!(told["pid"], child.id());
        Self { running: Running { child }, address, port, token }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream
    }

    /// Status, head and body of the answer to a request with these headers.
    fn ask(&self, line: &str, headers: &[String], body: &str) -> (u16, String, String) {
        let mut stream = self.connect();
        let headers = headers.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let text = format!("{line} HTTP/1.1\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        (status, head.to_owned(), body.to_owned())
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}", self.port)
    }

    fn key(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }
}

/// The row of a client on the page: `expression` is about `row`.
fn of_row(name: &str, expression: &str) -> String {
    format!(
        "[...document.querySelectorAll('#clients tbody tr')].some((row) => \
         row.querySelector('.name span:nth-of-type(2)').textContent === '{name}' && ({expression}))"
    )
}

fn check_width(browser: &mut Browser, width: u32) {
    let over = "[...document.querySelectorAll('body *')].filter((e) => !e.closest('#graph, .hidden, thead') && \
                e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map((e) => e.outerHTML.slice(0, 120))";
    assert_eq!(browser.evaluate(over), serde_json::json!([]), "nothing reaches over an edge at {width}");
    let scroll = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.evaluate(scroll), 0, "no scrolling sideways at {width}");
}

#[test]
fn the_page_shows_clients_and_changes_them() {
    let sandbox = Sandbox::own();
    let Some(mut browser) = Browser::open(&sandbox, "the_page_shows_clients_and_changes_them") else {
        return;
    };
    let cpu = one_cpu();
    let page = Page::serve(sandbox.divvy(&["web", "--own", "--json"]));
    browser.look(1200, 900, false);
    browser.go(&page.address);
    browser.wait_for("!document.querySelector('#empty').hidden");
    assert_eq!(
        browser.evaluate("document.querySelector('#banner').hidden"),
        true,
        "that nobody runs is no trouble"
    );
    // Clients come, in a group and beside it, and what a run divides.
    start_divvyd(&sandbox, &["--linger", "60s", "--cpus", &cpu]);
    let start = |args: &[&str]| {
        let words = [&["run"], args, &["--", "sh", "-c", SPIN]].concat();
        sandbox.start(&words)
    };
    let _clients = [
        start(&["--group", "build=2", "--name", "compile"]),
        start(&["--group", "build=2", "--name", "link"]),
        start(&["--name", "tests"]),
        sandbox.start(&["share", "--quiet", "--cpus", &cpu, &format!("task=2:{SPIN}")]),
    ];
    let attached = sandbox.run(&["attach", "name:<b>none</b>", "--name", "nobody"]);
    assert_eq!(attached.code, Some(0), "{}", attached.stderr);
    for name in ["nobody", "build/", "compile", "link", "tests", "task"] {
        browser.wait_for(&of_row(name, "true"));
    }
    assert_eq!(browser.evaluate("document.querySelectorAll('#clients b').length"), 0, "words are no markup");
    browser.wait_for(&of_row(
        "compile",
        "row.dataset.depth === '1' && /\\d/.test(row.querySelector('.portion').textContent)",
    ));
    // The history has everybody, and a line for each.
    browser.wait_for("document.querySelectorAll('#chart polygon').length >= 4");
    browser.wait_for(&of_row(
        "link",
        "row.querySelector('.spark polyline').getAttribute('points').split(' ').length >= 3",
    ));
    // One click gives a greater share.
    browser.click("button[aria-label='more for tests']");
    eventually("the share", || client(&sandbox, "tests").filter(|c| c["share"] == 2));
    browser.wait_for("document.querySelector('#notice').textContent === 'tests: share 2'");
    // By the keyboard alone: a number, a limit, a pause. The looks in between take nobody's focus or text away.
    browser.evaluate("document.querySelector(\"input[aria-label='share of compile']\").select()");
    browser.type_text("7");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    browser.press("Enter", 13, "\r");
    eventually("the share", || client(&sandbox, "compile").filter(|c| c["share"] == 7));
    browser.press("Tab", 9, "");
    browser.press("Tab", 9, "");
    assert_eq!(browser.evaluate("document.activeElement.getAttribute('aria-label')"), "limit of compile");
    browser.type_text("50%");
    browser.press("Enter", 13, "\r");
    eventually("the limit", || client(&sandbox, "compile").filter(|c| c["limit_ppm"] == 500_000));
    browser.press("Tab", 9, "");
    browser.press(" ", 32, " ");
    eventually("the pause", || client(&sandbox, "compile").filter(|c| c["state"] == "paused"));
    browser.wait_for("document.activeElement.textContent === 'Resume'");
    browser.press(" ", 32, " ");
    eventually("the end of it", || client(&sandbox, "compile").filter(|c| c["state"] != "paused"));
    // A whole group, and what divvyd refuses.
    browser.click("button[aria-label='more for build/']");
    browser.wait_for(&of_row("build/", "row.querySelector('input').value === '3'"));
    browser.evaluate("document.querySelector(\"input[aria-label='limit of link']\").focus()");
    browser.type_text("much");
    browser.press("Enter", 13, "\r");
    browser.wait_for("document.querySelector('#notice').textContent.includes('is no limit')");
    check_looks(&mut browser);
    assert_eq!(browser.complaints, Vec::<String>::new());
    // What it says when nobody serves it any more.
    page.running.signal(Signal::INT);
    assert_eq!(page.running.end().code, Some(130));
    browser.wait_for("document.querySelector('#banner').textContent.includes('divvy web has ended')");
}

/// As wide as a screen and as narrow as a telephone, light and dark.
fn check_looks(browser: &mut Browser) {
    let mut papers = Vec::new();
    for (width, dark) in [(1200, false), (1200, true), (400, false), (400, true)] {
        browser.look(width, 900, dark);
        browser.wait_for("document.querySelector('#chart svg').viewBox.baseVal.width <= innerWidth");
        check_width(browser, width);
        papers.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
        browser.picture(&format!("clients-{width}-{}", if dark { "dark" } else { "light" }));
    }
    assert_eq!(papers, ["rgb(255, 255, 255)", "rgb(15, 20, 25)", "rgb(255, 255, 255)", "rgb(15, 20, 25)"]);
}

/// A system's divvyd, whose users meet as in `market.rs`.
#[test]
fn the_page_shows_the_market_and_takes_offers_up() {
    let Some(sandbox) = Sandbox::shared("the_page_shows_the_market_and_takes_offers_up") else { return };
    let Some(mut browser) = Browser::open(&sandbox, "the_page_shows_the_market_and_takes_offers_up") else {
        return;
    };
    let (alice, bob) = (nobody(4), nobody(5));
    let policy = format!(
        "[users.{alice}]\ncpu = 2000\nmemory = 100\n[users.{bob}]\ncpu = 1000\nmemory = 100\n[scheduler]\ncpus = \"{}\"\n",
        one_cpu()
    );
    let _system = System::start(&sandbox, &policy, &[]);
    let spawn = |uid: u32, words: &[&str]| {
        let mut command = sandbox.command_as(uid, sandbox.program());
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { child: command.spawn().expect("start divvy") }
    };
    let _clients = [
        spawn(alice, &["run", "--name", "sums", "--", "sh", "-c", SPIN]),
        spawn(bob, &["run", "--name", "render", "--", "sh", "-c", SPIN]),
    ];
    // Their currencies come with their clients.
    eventually("an offer of alice's", || {
        let offer = ["exchange", "offer", "--give", "cpu:500", "--want", "memory:40"];
        (spawn(alice, &offer).end().code == Some(0)).then_some(())
    });
    let mut command = sandbox.command_as(bob, sandbox.program());
    command.args(["web", "--system", "--json"]);
    let page = Page::serve(command);
    browser.look(1200, 900, false);
    browser.go(&page.address);
    browser.wait_for("document.querySelector('#graph svg text')");
    browser.wait_for(&of_row(&format!("{alice}/sums"), "true"));
    let words = format!(
        "document.querySelector('#offers').textContent.includes('{alice} gives 500 cpu for 40 memory')"
    );
    browser.wait_for(&words);
    // The picture has everybody who is backed.
    let names = "[...document.querySelectorAll('#graph svg text')].map((t) => t.textContent).join()";
    let names = browser.evaluate(names).as_str().expect("text").to_owned();
    for name in ["base", &alice.to_string(), "render"] {
        assert!(names.contains(name), "{name} in {names}");
    }
    for (width, dark) in [(1200, true), (400, false)] {
        browser.look(width, 900, dark);
        check_width(&mut browser, width);
        browser.picture(&format!("market-{width}"));
    }
    browser.click("#offers button");
    browser.wait_for("document.querySelector('#exchanges').textContent.includes('500 cpu')");
    let ls = spawn(bob, &["exchange", "ls", "--json"]).end();
    let all: Value = serde_json::from_slice(&ls.stdout).expect("JSON");
    assert_eq!(
        (all["exchanges"].as_array().map(Vec::len), all["offers"].as_array().map(Vec::len)),
        (Some(1), Some(0))
    );
    // An offer of one's own, made and withdrawn.
    browser.click("#offer button");
    browser.wait_for("document.querySelector('#offers button')?.textContent === 'Withdraw'");
    browser.click("#offers button");
    browser.wait_for("document.querySelector('#offers').textContent.includes('Nobody offers')");
    // Another user's client is not one's own to change.
    browser.click(&format!("button[aria-label='more for {alice}/sums']"));
    browser.wait_for("document.querySelector('#notice').textContent.includes('belongs to')");
    // The browser names the refusal among its errors, and nothing else.
    let others: Vec<&String> =
        browser.complaints.iter().filter(|text| !text.contains("status of 403")).collect();
    assert_eq!(others, Vec::<&String>::new());
}

#[test]
fn nobody_but_the_page_itself_is_answered() {
    let sandbox = Sandbox::own();
    let page = Page::serve(sandbox.divvy(&["web", "--own", "--json"]));
    let (host, key) = (page.host(), page.key());
    let line = |text: &str| text.to_owned();
    // One digit of it is another.
    let last = if page.token.ends_with('0') { '1' } else { '0' };
    let other = format!("Authorization: Bearer {}{last}", &page.token[..31]);
    let view = "GET /api/view";
    let (of_name, of_tunnel) = (format!("Host: localhost:{}", page.port), line("Host: localhost:8080"));
    for (asked, headers, status, words) in [
        // Whoever has the token, by any name of loopback, through a tunnel too.
        (view, vec![host.clone(), key.clone()], 200, "\"epoch\""),
        (view, vec![of_name, key.clone()], 200, "\"epoch\""),
        (view, vec![of_tunnel, key.clone()], 200, "\"epoch\""),
        (
            view,
            vec![host.clone(), key.clone(), format!("Origin: http://127.0.0.1:{}", page.port)],
            200,
            "\"epoch\"",
        ),
        // The page says nothing of anybody.
        ("GET /", vec![host.clone()], 200, "<title>divvy</title>"),
        ("GET /page.js", vec![host.clone()], 200, "fetch("),
        // Nobody without it, or with a part of it.
        (view, vec![host.clone()], 401, "token is missing"),
        (view, vec![host.clone(), other], 401, "token is missing"),
        (view, vec![host.clone(), format!("{key}0")], 401, "token is missing"),
        (view, vec![host.clone(), line("Authorization: Bearer ")], 401, "token is missing"),
        (&format!("GET /api/view?token={}", page.token), vec![host.clone()], 401, "token is missing"),
        // A name that was made to mean this machine, or none at all.
        (view, vec![line("Host: evil.example"), key.clone()], 403, "not served as 'evil.example'"),
        ("GET /", vec![line("Host: evil.example:80")], 403, "not served"),
        ("GET /", vec![line("Host: 127.0.0.1.evil.example")], 403, "not served"),
        ("GET /", vec![], 403, "not served as ''"),
        // Another site in the same browser.
        (view, vec![host.clone(), key.clone(), line("Origin: http://evil.example")], 403, "another site"),
        (view, vec![host.clone(), key.clone(), line("Origin: null")], 403, "another site"),
        (view, vec![host.clone(), key.clone(), line("Origin: http://127.0.0.1:1")], 403, "another site"),
        (view, vec![host.clone(), key.clone(), line("Sec-Fetch-Site: cross-site")], 403, "another site"),
        ("PATCH /v1/clients/a", vec![host.clone()], 401, "token is missing"),
        // What there is not, and what is none.
        ("GET /v1/status", vec![host.clone(), key.clone()], 404, "there is no /v1/status"),
        ("GET /../../etc/passwd", vec![host.clone(), key.clone()], 404, "there is no"),
        ("DELETE /v1/clients/a", vec![host.clone(), key.clone()], 405, "does not take DELETE"),
        ("POST /", vec![host.clone(), key.clone()], 405, "does not take POST"),
        ("PATCH /v1/clients/a", vec![host.clone(), key.clone()], 400, "the body"),
        (view, vec![host.clone(), host.clone(), key.clone()], 400, "host comes twice"),
        (view, vec![host.clone(), format!("X: {}", "x".repeat(17_000))], 431, "longer than 16384"),
    ] {
        let (got, head, body) = page.ask(asked, &headers, "");
        let headers = format!("{headers:.60?}");
        assert_eq!(got, status, "{asked} {headers}: {head} {body}");
        assert!(body.contains(words), "{asked} {headers}: no '{words}' in {body}");
        for said in [
            "Content-Security-Policy: default-src 'none'; script-src 'self'",
            "X-Content-Type-Options: nosniff",
        ] {
            assert!(head.contains(said), "{asked}: {head}");
        }
        assert!(!head.to_lowercase().contains("access-control"), "{asked}: {head}");
    }
    // Where no divvyd runs, a change says so.
    let (status, _, body) = page.ask("PATCH /v1/clients/a", &[host.clone(), key.clone()], "{\"share\": 2}");
    assert_eq!((status, body.contains("no divvyd runs")), (503, true), "{body}");
    let long = "x".repeat(65 * 1024);
    let (status, ..) = page.ask("PATCH /v1/clients/a", &[host.clone(), key.clone()], &long);
    assert_eq!(status, 413);
    // Whoever says nothing is told so, and those who hold every connection give way.
    let silent: Vec<TcpStream> = (0..40).map(|_| page.connect()).collect();
    let mut text = String::new();
    (&silent[0]).read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    eventually("room for another", || {
        let mut stream = page.connect();
        let mut text = String::new();
        stream.write_all(format!("GET / HTTP/1.1\r\n{host}\r\n\r\n").as_bytes()).ok()?;
        stream.read_to_string(&mut text).ok().filter(|_| text.starts_with("HTTP/1.1 200"))
    });
}

#[test]
fn a_port_that_cannot_be_had_is_named() {
    let sandbox = Sandbox::own();
    let page = Page::serve(sandbox.divvy(&["web", "--json"]));
    let port = page.port.to_string();
    let outcome = sandbox.run(&["web", "--port", &port, "--no-open"]);
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(5), 0));
    assert!(outcome.stderr.contains(&port) && outcome.stderr.contains("--port"), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1);
    // And the one that was asked for is the one that is served.
    page.running.signal(Signal::TERM);
    assert_eq!(page.running.end().code, Some(143));
    let again = eventually("the same port", || {
        let mut command = sandbox.divvy(&["web", "--json", "--port", &port]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("divvy");
        let mut first = [0; 1];
        let told = child.stdout.as_mut().expect("its output").read(&mut first).expect("text");
        if told == 0 {
            child.wait().expect("our child");
        }
        (told == 1).then_some(child)
    });
    let mut again = Running { child: again };
    assert!(TcpStream::connect(("127.0.0.1", page.port)).is_ok());
    again.signal(Signal::HUP);
    assert_eq!(again.wait(), Some(129));
}
