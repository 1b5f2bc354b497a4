//! The market's paths. What each takes and answers is in `docs/openapi.json`.
//!
//! A user's own divvyd keeps no market: there, all of these answer `no-market`.

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRef, FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Json, Router};
use divvy_market::Resource;
use serde::Deserialize;

use super::achieved;
use super::message::{Ask, Handle, Said, Who};
use crate::message::{Command, Refusal};
use crate::routes::{bad_request, key, parse};
use divvy_api::client::encode;
use divvy_api::market::{
    Bound, Currencies, CurrencyChange, NewCurrency, NewExchange, NewNice, NewOffer, NewTicket, TicketChange,
};
use divvy_api::site::{Orders, SiteTable};
use divvy_api::types::{Change, ErrorCode};

/// Where a site's table goes.
pub(crate) const SITE_PATH: &str = "/v1/market/site";
/// Where its dealer's orders go.
pub(crate) const ORDERS_PATH: &str = "/v1/market/site/orders";

/// All paths of the market, of a divvyd whose state has one or none.
pub(crate) fn router<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Option<Handle>: FromRef<S>,
{
    Router::new()
        .route("/v1/market", get(graph))
        .route("/v1/market/currencies", get(currencies).post(create_currency))
        .route(
            "/v1/market/currencies/{currency}",
            get(currency).patch(change_currency).delete(destroy_currency),
        )
        .route("/v1/market/tickets", post(create_ticket))
        .route("/v1/market/tickets/{ticket}", get(ticket).patch(change_ticket).delete(destroy_ticket))
        .route("/v1/market/exchanges", post(create_exchange))
        .route("/v1/market/exchanges/{exchange}", delete(cancel_exchange))
        .route("/v1/market/offers", post(create_offer))
        .route("/v1/market/offers/{offer}", delete(withdraw_offer))
        .route("/v1/market/nice", post(nice))
        .route("/v1/market/bounds/{user}", put(set_bound))
        .route(SITE_PATH, get(site).put(set_site))
        .route(ORDERS_PATH, post(orders))
        .route("/v1/market/explain/{currency}", get(explain))
        .route("/v1/market/audit", get(audit))
}

/// The market, and who asks it.
struct Market {
    handle: Handle,
    who: Who,
    /// Where it is known what was served.
    scheduler: Option<crate::message::Handle>,
}

impl<S> FromRequestParts<S> for Market
where
    S: Send + Sync,
    Option<Handle>: FromRef<S>,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Some(handle) = Option::<Handle>::from_ref(state) else {
            let fix = "the market is kept by the system's divvyd: ask for it (divvyd --system)";
            return Err(Refusal::new(ErrorCode::NoMarket, "a user's own divvyd keeps no market", fix));
        };
        let known = Extension::<Who>::from_request_parts(parts, state).await;
        let Extension(who) = known.map_err(|e| Refusal::new(ErrorCode::Internal, e, ""))?;
        let scheduler = parts.extensions.get::<crate::message::Handle>().cloned();
        Ok(Self { handle, who, scheduler })
    }
}

impl Market {
    /// Asks, and says beside what the market knows what was served.
    async fn ask(self, ask: Ask) -> Result<Said, Refusal> {
        let mut said = self.handle.ask(self.who.clone(), ask).await?;
        let of_clients = match &said {
            Said::Graph(_) => true,
            Said::Currency(currency) => currency.client,
            Said::Explained(explained) => explained.currency.client,
            _ => false,
        };
        if let Some(scheduler) = self.scheduler.filter(|_| of_clients)
            // Where the scheduler shows nothing, the rest is worth having.
            && let Ok(view) = scheduler.view(self.who.uid, 0).await
        {
            match &mut said {
                Said::Graph(graph) => achieved::fill(graph, view.rows()),
                Said::Currency(currency) => achieved::fill_client(currency, view.rows()),
                Said::Explained(explained) => achieved::fill_client(&mut explained.currency, view.rows()),
                _ => {}
            }
        }
        Ok(said)
    }

    /// Asks for something to be made.
    async fn make(self, ask: Ask) -> Result<Made, Refusal> {
        self.ask(ask).await.map(Made)
    }
}

/// What was made by a request, and where it is from now on.
struct Made(Said);

impl IntoResponse for Made {
    fn into_response(self) -> Response {
        let place = match &self.0 {
            Said::ChangedCurrency(made) => Some(format!("currencies/{}", encode(&made.result.id))),
            Said::ChangedTicket(made) => Some(format!("tickets/{}", encode(&made.result.id))),
            _ => None, // There is nothing to be had at an exchange's or an offer's path.
        };
        let mut response = (StatusCode::CREATED, self.0).into_response();
        if let Some(Ok(place)) = place.map(|place| HeaderValue::from_str(&format!("/v1/market/{place}"))) {
            response.headers_mut().insert(header::LOCATION, place);
        }
        response
    }
}

impl IntoResponse for Said {
    fn into_response(self) -> Response {
        match self {
            Self::Graph(graph) => Json(graph).into_response(),
            Self::Currency(currency) => Json(currency).into_response(),
            Self::ChangedCurrency(changed) => Json(changed).into_response(),
            Self::Ticket(ticket) => Json(ticket).into_response(),
            Self::ChangedTicket(changed) => Json(changed).into_response(),
            Self::Exchange(changed) => Json(changed).into_response(),
            Self::Offer(changed) => Json(changed).into_response(),
            Self::Offered(changed) => Json(changed).into_response(),
            Self::Explained(explained) => Json(explained).into_response(),
            Self::Site(site) => Json(site).into_response(),
            Self::Report(report) => Json(report).into_response(),
            Self::Audit(audit) => Json(audit).into_response(),
            // No path asks for these alone: they are the scheduler's business.
            Self::Admitted(_) | Self::Done => StatusCode::NO_CONTENT.into_response(),
        }
    }
}

type Asked = Result<Said, Refusal>;
type Key = Result<Path<String>, PathRejection>;

/// The number in a path.
fn number(path: Key, what: &str) -> Result<u64, Refusal> {
    let text = key(path)?;
    text.parse().map_err(|_| {
        let text = format!("'{text}' is no {what}'s number");
        Refusal::new(ErrorCode::BadRequest, text, "give its id in digits, as GET /v1/market tells")
    })
}

async fn graph(market: Market) -> Asked {
    market.ask(Ask::Graph).await
}

async fn currencies(market: Market) -> Result<Json<Currencies>, Refusal> {
    match market.ask(Ask::Graph).await? {
        Said::Graph(graph) => Ok(Json(Currencies { currencies: graph.currencies })),
        _ => Err(Refusal::new(ErrorCode::Internal, "the market said something else than its graph", "")),
    }
}

async fn create_currency(market: Market, body: Bytes) -> Result<Made, Refusal> {
    let new: NewCurrency = parse(&body)?;
    market.make(Ask::CreateCurrency(new)).await
}

async fn currency(market: Market, path: Key) -> Asked {
    market.ask(Ask::Currency(key(path)?)).await
}

async fn change_currency(market: Market, path: Key, body: Bytes) -> Asked {
    let change: CurrencyChange = parse(&body)?;
    if change == CurrencyChange::default() {
        let fix = "give `mode`, `owner`, `group` or `hard_total`";
        return Err(Refusal::new(ErrorCode::BadRequest, "nothing is to be changed", fix));
    }
    market.ask(Ask::ChangeCurrency(key(path)?, change)).await
}

async fn destroy_currency(market: Market, path: Key) -> Asked {
    market.ask(Ask::DestroyCurrency(key(path)?)).await
}

async fn create_ticket(market: Market, body: Bytes) -> Result<Made, Refusal> {
    let new: NewTicket = parse(&body)?;
    market.make(Ask::CreateTicket(new)).await
}

async fn ticket(market: Market, path: Key) -> Asked {
    market.ask(Ask::Ticket(key(path)?)).await
}

async fn change_ticket(market: Market, path: Key, body: Bytes) -> Asked {
    let change: TicketChange = parse(&body)?;
    market.ask(Ask::ChangeTicket(key(path)?, change)).await
}

async fn destroy_ticket(market: Market, path: Key) -> Asked {
    market.ask(Ask::DestroyTicket(key(path)?)).await
}

async fn create_exchange(market: Market, body: Bytes) -> Result<Made, Refusal> {
    let new: NewExchange = parse(&body)?;
    market.make(Ask::CreateExchange(new)).await
}

async fn cancel_exchange(market: Market, path: Key) -> Asked {
    market.ask(Ask::CancelExchange(number(path, "exchange")?)).await
}

async fn create_offer(market: Market, body: Bytes) -> Result<Made, Refusal> {
    let new: NewOffer = parse(&body)?;
    market.make(Ask::CreateOffer(new)).await
}

async fn withdraw_offer(market: Market, path: Key) -> Asked {
    market.ask(Ask::WithdrawOffer(number(path, "offer")?)).await
}

async fn nice(market: Market, body: Bytes) -> Result<Made, Refusal> {
    let new: NewNice = parse(&body)?;
    let (word, amount) = (new.client.clone(), new.amount);
    let is_share = new.resource.is_none_or(|resource| resource == Resource::Cpu);
    let (scheduler, handle, who) = (market.scheduler.clone(), market.handle.clone(), market.who.clone());
    let made = market.make(Ask::Nice(new)).await?;
    if let Some(scheduler) = scheduler.filter(|_| is_share) {
        // Its ticket is another now, and that is what is shown as its share. The word may be a number, which is another client's there.
        if let Ok(Said::Currency(client)) = handle.ask(who.clone(), Ask::Currency(word)).await
            && client.name.contains('/')
        {
            let change = Change { share: Some(amount), ..Change::default() };
            let _ = scheduler.ask(Command::Change { key: client.name, change, who }).await;
        }
    }
    Ok(made)
}

async fn set_bound(market: Market, path: Key, body: Bytes) -> Result<Json<Bound>, Refusal> {
    let bound: Bound = parse(&body)?;
    market.ask(Ask::SetBound(key(path)?, bound)).await?;
    Ok(Json(bound))
}

async fn site(market: Market) -> Asked {
    market.ask(Ask::Site).await
}

async fn set_site(market: Market, body: Bytes) -> Asked {
    let table: SiteTable = parse(&body)?;
    market.ask(Ask::SetSite(table)).await
}

async fn orders(market: Market, body: Bytes) -> Asked {
    let orders: Orders = parse(&body)?;
    market.ask(Ask::Orders(orders)).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    resource: Option<Resource>,
}

async fn explain(market: Market, path: Key, query: Result<Query<ExplainQuery>, QueryRejection>) -> Asked {
    let query = query.map_err(|e| bad_request(e.body_text()))?.0;
    market.ask(Ask::Explain(key(path)?, query.resource.unwrap_or(Resource::Cpu))).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    since: Option<u64>,
}

async fn audit(market: Market, query: Result<Query<AuditQuery>, QueryRejection>) -> Asked {
    let query = query.map_err(|e| bad_request(e.body_text()))?.0;
    market.ask(Ask::Audit { since: query.since.unwrap_or(0) }).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Request;
    use divvy_market::Kind;
    use http_body_util::BodyExt as _;
    use tower_service::Service as _;

    use super::super::message::{Message, Question, channel};
    use super::*;
    use divvy_api::market::{
        Aftermath, Audit, Changed, Currency, Exchange, Explained, Give, Graph, Offer, Offered, Ticket,
    };

    fn currency() -> Currency {
        Currency {
            id: "17.2".into(),
            name: "alice/build".into(),
            client: false,
            scheduled: None,
            owner: "alice".into(),
            group: "alice".into(),
            mode: "fci------".into(),
            depth: 2,
            niced_from: None,
            standing: vec![],
        }
    }

    fn ticket() -> Ticket {
        Ticket {
            id: "9".into(),
            issuer: "base".into(),
            holder: "alice".into(),
            resource: Resource::Disk,
            amount: 5,
            kind: Kind::Hard,
            active: true,
            value: "5".into(),
        }
    }

    fn changed<T>(result: T) -> Changed<T> {
        Changed { result, aftermath: Aftermath::default() }
    }

    /// A market that does whatever it is asked, and nothing: one thing of each kind is there.
    fn answer(question: &Question) -> Result<Said, Refusal> {
        let give = Give { resource: Resource::Cpu, amount: 1 };
        let exchange = Exchange { id: 3, a: "alice".into(), a_gives: give, b: "bob".into(), b_gives: give };
        let offer = Offer { id: 4, party: "alice".into(), gives: give, wants: give, until_unix_ns: None };
        Ok(match &question.ask {
            Ask::Graph => Said::Graph(Graph {
                currencies: vec![currency()],
                tickets: vec![ticket()],
                exchanges: vec![exchange],
                offers: vec![offer],
            }),
            Ask::Currency(name) if name == "nobody" => {
                return Err(Refusal::new(ErrorCode::NoSuchCurrency, "no currency 'nobody'", "see the tree"));
            }
            Ask::Currency(_) => Said::Currency(currency()),
            Ask::CreateCurrency(_) | Ask::ChangeCurrency(..) | Ask::DestroyCurrency(_) | Ask::Nice(_) => {
                Said::ChangedCurrency(changed(currency()))
            }
            Ask::Ticket(_) => Said::Ticket(ticket()),
            Ask::CreateTicket(_) | Ask::ChangeTicket(..) | Ask::DestroyTicket(_) => {
                Said::ChangedTicket(changed(ticket()))
            }
            Ask::CreateExchange(_) | Ask::CancelExchange(_) => Said::Exchange(changed(exchange)),
            Ask::CreateOffer(_) => {
                let offered = Offered { exchange: None, offer: Some(offer), conflicts: vec![] };
                Said::Offered(changed(offered))
            }
            Ask::WithdrawOffer(_) => Said::Offer(changed(offer)),
            Ask::Explain(_, resource) => {
                Said::Explained(Explained { currency: currency(), resource: *resource, parts: vec![] })
            }
            Ask::Audit { since } => Said::Audit(Audit { next: *since, entries: vec![] }),
            _ => Said::Done,
        })
    }

    /// What came back: status, where something was made, and the body.
    type Came = (u16, Option<String>, serde_json::Value);

    fn ask(state: Option<Handle>, method: &str, path: &str, body: &str) -> Came {
        let who = Who { uid: 1000, gids: vec![1000], pid: 77, by_root: false };
        let request =
            Request::builder().method(method).uri(path).extension(who).body(Body::from(body.to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut router = router().with_state(state);
            let response = router.call(request.unwrap()).await.unwrap();
            let place = response.headers().get(header::LOCATION).map(|v| v.to_str().unwrap().to_owned());
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, place, serde_json::from_slice(&body).unwrap_or_default())
        })
    }

    /// Method, path and body; status and place of the answer; how what the market is asked begins.
    type Row = (&'static str, &'static str, &'static str, u16, Option<&'static str>, &'static str);

    const TRADE: &str = r#"{"a":"alice","a_gives":{"resource":"cpu","amount":1},"b":"bob","b_gives":{"resource":"cpu","amount":1}}"#;
    const OFFER: &str = r#"{"gives":{"resource":"cpu","amount":1},"wants":{"resource":"cpu","amount":1}}"#;
    const TICKET: &str = r#"{"holder":"alice","issuer":"base","resource":"disk","amount":5,"kind":"hard"}"#;

    /// Every path.
    fn rows() -> [Row; 21] {
        let (currency_at, ticket_at) = ("/v1/market/currencies/17.2", "/v1/market/tickets/9");
        [
            ("GET", "/v1/market", "", 200, None, "Graph"),
            ("GET", "/v1/market/currencies", "", 200, None, "Graph"),
            ("GET", "/v1/market/currencies/alice%2Fbuild", "", 200, None, r#"Currency("alice/build")"#),
            ("GET", "/v1/market/currencies/nobody", "", 404, None, r#"Currency("nobody")"#),
            (
                "POST",
                "/v1/market/currencies",
                r#"{"name":"build"}"#,
                201,
                Some(currency_at),
                "CreateCurrency",
            ),
            ("PATCH", "/v1/market/currencies/a", r#"{"mode":"740"}"#, 200, None, r#"ChangeCurrency("a", "#),
            ("DELETE", "/v1/market/currencies/a", "", 200, None, r#"DestroyCurrency("a")"#),
            ("GET", "/v1/market/tickets/9", "", 200, None, r#"Ticket("9")"#),
            ("POST", "/v1/market/tickets", TICKET, 201, Some(ticket_at), "CreateTicket"),
            (
                "PATCH",
                "/v1/market/tickets/9",
                r#"{"amount":7}"#,
                200,
                None,
                r#"ChangeTicket("9", TicketChange { amount: 7 })"#,
            ),
            ("DELETE", "/v1/market/tickets/9", "", 200, None, r#"DestroyTicket("9")"#),
            ("POST", "/v1/market/exchanges", TRADE, 201, None, "CreateExchange"),
            ("DELETE", "/v1/market/exchanges/3", "", 200, None, "CancelExchange(3)"),
            ("POST", "/v1/market/offers", OFFER, 201, None, "CreateOffer"),
            ("DELETE", "/v1/market/offers/4", "", 200, None, "WithdrawOffer(4)"),
            ("POST", "/v1/market/nice", r#"{"client":"c","amount":2}"#, 201, Some(currency_at), "Nice"),
            (
                "PUT",
                "/v1/market/bounds/bob",
                r#"{"resource":"cpu","bound":null}"#,
                200,
                None,
                r#"SetBound("bob", "#,
            ),
            ("GET", "/v1/market/explain/a", "", 200, None, r#"Explain("a", Cpu)"#),
            ("GET", "/v1/market/explain/a?resource=memory", "", 200, None, r#"Explain("a", Memory)"#),
            ("GET", "/v1/market/audit", "", 200, None, "Audit { since: 0 }"),
            ("GET", "/v1/market/audit?since=12", "", 200, None, "Audit { since: 12 }"),
        ]
    }

    /// Every path: what the market is asked, by whom, and how its answer comes back.
    #[test]
    fn every_path_asks_for_what_it_says() {
        let (handle, questions) = channel();
        let asked = std::thread::spawn(move || {
            let mut asked = Vec::new();
            while let Ok(message) = questions.take(Duration::from_secs(60)) {
                let Message::Question(question) = message else { break };
                assert_eq!((question.who.uid, question.who.pid), (1000, 77));
                asked.push(format!("{:?}", question.ask));
                let said = answer(&question);
                question.reply.send(said).unwrap();
            }
            asked
        });
        let rows = rows();
        for (method, path, body, status, place, _) in &rows {
            let came = ask(Some(handle.clone()), method, path, body);
            assert_eq!((came.0, came.1.as_deref()), (*status, *place), "{method} {path}: {}", came.2);
            assert!(came.2.is_object(), "{method} {path}: every answer is an object");
        }
        // What cannot be meant never gets as far as the market.
        for (method, path, body) in [
            ("POST", "/v1/market/currencies", "{"),
            ("POST", "/v1/market/currencies", r#"{"name":"a","color":"red"}"#),
            ("PATCH", "/v1/market/currencies/a", "{}"),
            ("PATCH", "/v1/market/tickets/9", r#"{"amount":-1}"#),
            ("PATCH", "/v1/market/tickets/9", r#"{"amount":1.5}"#),
            ("PATCH", "/v1/market/tickets/9", r#"{"amount":18446744073709551616}"#),
            (
                "POST",
                "/v1/market/tickets",
                r#"{"holder":"a","issuer":"b","resource":"gold","amount":5,"kind":"soft"}"#,
            ),
            ("DELETE", "/v1/market/exchanges/x", ""),
            ("DELETE", "/v1/market/offers/-1", ""),
            ("GET", "/v1/market/explain/a?resource=gold", ""),
            ("GET", "/v1/market/audit?until=3", ""),
        ] {
            let (status, _, body) = ask(Some(handle.clone()), method, path, body);
            assert_eq!(
                (status, &body["error"]["code"]),
                (400, &"bad-request".into()),
                "{method} {path}: {body}"
            );
        }
        handle.stop();
        let asked = asked.join().unwrap();
        assert_eq!(asked.len(), rows.len());
        for (row, asked) in rows.iter().zip(asked) {
            assert!(asked.starts_with(row.5), "{} {}: {asked}", row.0, row.1);
        }
    }

    #[test]
    fn where_there_is_no_market_one_is_told_where_there_is() {
        for (method, path) in
            [("GET", "/v1/market"), ("POST", "/v1/market/tickets"), ("PUT", "/v1/market/bounds/a")]
        {
            let (status, _, body) = ask(None, method, path, "no JSON");
            assert_eq!((status, &body["error"]["code"]), (404, &"no-market".into()), "{method} {path}");
            assert!(body["error"]["fix"].as_str().unwrap().contains("divvyd --system"), "{body}");
        }
    }

    #[test]
    fn a_market_that_ends_says_so() {
        let (handle, questions) = channel();
        drop(questions);
        let (status, _, body) = ask(Some(handle), "GET", "/v1/market", "");
        assert_eq!((status, &body["error"]["code"]), (503, &"leaving".into()));
    }
}
