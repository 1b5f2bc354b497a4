//! Who is answered what.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use divvy_api::client::{Api, ApiError, Choice};
use divvy_api::market::{Graph, NewOffer, TicketChange};
use divvy_api::types::{Change, GroupChange};
use divvy_linux::clock;
use divvy_market::Resource;
use divvy_policy::Nanos;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::http::{self, Answer, Request};
use super::view::{INTERVAL, View};
use crate::market::tree;

/// Connections at a time: more are closed at once. A browser has six.
const CONNECTIONS_MAX: usize = 32;
/// After a connection that could not be accepted: too many files are open, say.
const ACCEPT_PAUSE: Nanos = Nanos::from_millis(50);

/// The page's own files, which say nothing about anybody.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/chart.js", "text/javascript; charset=utf-8", include_str!("page/chart.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// What is served.
pub(super) struct Site {
    pub(super) token: String,
    pub(super) view: View,
    pub(super) choice: Choice,
}

/// Serves from threads of its own, for as long as the process is there.
///
/// # Errors
/// What the system says where it has no more threads.
pub(super) fn start(listener: TcpListener, site: &Arc<Site>) -> Result<(), std::io::Error> {
    let thread = |name: &str| std::thread::Builder::new().name(format!("divvy-web-{name}"));
    let looks = Arc::clone(site);
    thread("looks").spawn(move || {
        loop {
            clock::sleep(INTERVAL);
            looks.view.look(true);
        }
    })?;
    let site = Arc::clone(site);
    let open = Arc::new(AtomicUsize::new(0));
    thread("accept").spawn(move || {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                clock::sleep(ACCEPT_PAUSE);
                continue;
            };
            let Some(turn) = Turn::take(&open) else { continue };
            let site = Arc::clone(&site);
            // Where there is no thread the connection ends, as where there are too many.
            let _ = thread("answer").spawn(move || {
                let _turn = turn;
                converse(stream, &site);
            });
        }
    })?;
    Ok(())
}

/// One of so many connections.
struct Turn(Arc<AtomicUsize>);

impl Turn {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let turn = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(mut stream: TcpStream, site: &Site) {
    let (answer, with_body) = match http::read(&mut stream) {
        Ok(request) => (answer(&request, site), request.method != "HEAD"),
        Err(Some(refusal)) => (refusal, true),
        Err(None) => return,
    };
    let _ = http::write(&mut stream, &answer, with_body); // Who has gone wants no answer.
}

fn answer(request: &Request, site: &Site) -> Answer {
    if let Some(refusal) = refused_host(request) {
        return refusal;
    }
    let read = matches!(request.method.as_str(), "GET" | "HEAD");
    if let Some((_, kind, text)) = FILES.iter().find(|(path, ..)| *path == request.path) {
        return match read {
            true => Answer { status: 200, kind, body: text.as_bytes().to_vec() },
            false => no_method(request),
        };
    }
    match refused_asker(request, &site.token) {
        Some(refusal) => refusal,
        None => asked(request, site),
    }
}

fn no_method(request: &Request) -> Answer {
    Answer::refusal(405, format!("{} does not take {}", request.path, request.method), "see docs/web.md")
}

/// A browser that was told that another name means this machine believes that it talks to that name's owner.
fn refused_host(request: &Request) -> Option<Answer> {
    let host = request.header("host").unwrap_or_default();
    // A tunnel (`ssh -L`) may end at another port.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let known = ["127.0.0.1", "localhost", "[::1]"].contains(&name);
    let text = format!("this page is not served as '{host}'");
    (!known).then(|| Answer::refusal(403, text, "open the address that `divvy web` printed"))
}

/// Whoever wants to know or change something has the token, and is no other site in the same browser.
fn refused_asker(request: &Request, token: &str) -> Option<Answer> {
    let host = request.header("host").unwrap_or_default();
    let other_origin = request.header("origin").is_some_and(|origin| origin != format!("http://{host}"));
    let other_site =
        request.header("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    if other_origin || other_site {
        return Some(Answer::refusal(
            403,
            "another site may not ask",
            "open the address that `divvy web` printed",
        ));
    }
    let said = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let same = said.is_some_and(|said| {
        // As long for a wrong one whose beginning is right.
        let differs = said.bytes().zip(token.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
        said.len() == token.len() && differs == 0
    });
    let fix = "open the address that `divvy web` printed, with all behind its #";
    (!same).then(|| Answer::refusal(401, "the token is missing, or another one's", fix))
}

/// Does what the page asks.
fn asked(request: &Request, site: &Site) -> Answer {
    let number = |name: &str| request.asked(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", ["api", "view"]) => {
            let body = site.view.told(number("epoch"), number("since"));
            Answer { status: 200, kind: "application/json", body }
        }
        ("GET", ["api", "market"]) => market(request, site),
        ("PATCH", ["v1", "clients", key]) => {
            change(request, site, |api, change: Change| api.change(&decoded(key), change))
        }
        ("PATCH", ["v1", "groups", key]) => {
            change(request, site, |api, change: GroupChange| api.change_group(&decoded(key), change))
        }
        ("PATCH", ["v1", "market", "tickets", id]) => {
            change(request, site, |api, change: TicketChange| api.change_ticket(&decoded(id), change))
        }
        ("POST", ["v1", "market", "offers"]) => {
            change(request, site, |api, offer: NewOffer| api.offer(&offer))
        }
        ("DELETE", ["v1", "market", "offers", id]) => match id.parse() {
            Ok(id) => told(site.choice.api().and_then(|api| api.withdraw_offer(id))),
            Err(_) => Answer::refusal(404, format!("'{id}' is no offer"), "see the page's list of offers"),
        },
        (_, ["api", "view" | "market"] | ["v1", "clients" | "groups", _])
        | (_, ["v1", "market", "offers"] | ["v1", "market", "offers" | "tickets", _]) => no_method(request),
        _ => Answer::refusal(404, format!("there is no {}", request.path), "see docs/web.md"),
    }
}

/// Changes something, and looks again, so that what the page asks next shows it.
fn change<B: DeserializeOwned, T: Serialize>(
    request: &Request,
    site: &Site,
    change: impl FnOnce(&Api, B) -> Result<T, ApiError>,
) -> Answer {
    let body = match serde_json::from_slice(&request.body) {
        Ok(body) => body,
        Err(e) => return Answer::refusal(400, format!("the body: {e}"), "see docs/openapi.json"),
    };
    let answer = told(site.choice.api().and_then(|api| change(&api, body)));
    site.view.look(false);
    answer
}

fn told<T: Serialize>(done: Result<T, ApiError>) -> Answer {
    match done {
        Ok(done) => Answer::json(200, &done),
        Err(ApiError::Refused(info)) => {
            Answer::json(info.code.status(), &serde_json::json!({ "error": info }))
        }
        Err(e) => Answer::refusal(503, e, "start a client: divvy run -- COMMAND"),
    }
}

/// The market, and a picture of the rights to one resource.
#[derive(Serialize)]
struct Market {
    graph: Graph,
    picture: String,
}

fn market(request: &Request, site: &Site) -> Answer {
    let resource = match request.asked("resource") {
        Some("memory") => Resource::Memory,
        Some("disk") => Resource::Disk,
        _ => Resource::Cpu,
    };
    told(site.choice.api().and_then(|api| api.market()).map(|graph| {
        let picture = tree::picture(&graph, resource);
        Market { graph, picture }
    }))
}

/// A part of a path as the name that it means.
fn decoded(part: &str) -> String {
    percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    /// The picture of the market has the page's own sizes and colours: each that it is drawn with has a rule, or is the default.
    #[test]
    fn the_page_has_rules_for_what_the_market_is_drawn_with() {
        let css = include_str!("page/page.css");
        let drawn = include_str!("../market/snapshots/divvy_cli__market__tests__svg_of_an_exchange.snap");
        let values = |attribute: &str, of: &str| {
            let parts =
                drawn.split(of).skip(1).filter_map(|rest| rest.split('>').next()?.split_once(attribute));
            let values = parts.filter_map(|(_, rest)| rest.split('"').nth(1).map(str::to_owned));
            values.collect::<std::collections::BTreeSet<_>>()
        };
        let sizes = values(" font-size=", "<text");
        assert!(sizes.len() >= 2, "{sizes:?}");
        for size in sizes {
            let rule = format!("#graph svg text[font-size=\"{size}\"] {{ font-size: {size}px; }}");
            assert!(css.contains(&rule), "{rule}");
        }
        for attribute in ["fill", "stroke"] {
            let colours = values(&format!(" {attribute}="), "<");
            assert!(colours.len() >= 3, "{colours:?}");
            for colour in colours.iter().filter(|colour| *colour != "none") {
                let rule = format!("#graph [{attribute}=\"{colour}\"]");
                assert!(css.contains(&rule), "{rule}");
            }
        }
    }
}
