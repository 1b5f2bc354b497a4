//! The market's paths. What each takes and answers is in `docs/openapi.json`.
//!
//! A user's own divvyd keeps no market: there, all of these answer `no-market`.

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Json, Router};
use divvy_market::Resource;
use serde::Deserialize;

use super::message::{Ask, Handle, Said, Who};
use super::types::{
    Bound, Currencies, CurrencyChange, NewCurrency, NewExchange, NewNice, NewOffer, NewTicket, TicketChange,
};
use crate::client::encode;
use crate::message::Refusal;
use crate::routes::{Context, bad_request, key, parse};
use crate::types::ErrorCode;

/// All paths of the market.
pub(crate) fn router() -> Router<Context> {
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
        .route("/v1/market/explain/{currency}", get(explain))
        .route("/v1/market/audit", get(audit))
}

/// The market, and who asks it.
struct Market {
    handle: Handle,
    who: Who,
}

impl FromRequestParts<Context> for Market {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refusal> {
        let Some(handle) = context.market.clone() else {
            let fix = "the market is kept by the system's divvyd: ask for it (divvyd --system)";
            return Err(Refusal::new(ErrorCode::NoMarket, "a user's own divvyd keeps no market", fix));
        };
        let known = Extension::<Who>::from_request_parts(parts, context).await;
        let Extension(who) = known.map_err(|e| Refusal::new(ErrorCode::Internal, e, ""))?;
        Ok(Self { handle, who })
    }
}

impl Market {
    async fn ask(self, ask: Ask) -> Result<Said, Refusal> {
        self.handle.ask(self.who, ask).await
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
    market.make(Ask::Nice(new)).await
}

async fn set_bound(market: Market, path: Key, body: Bytes) -> Result<Json<Bound>, Refusal> {
    let bound: Bound = parse(&body)?;
    market.ask(Ask::SetBound(key(path)?, bound)).await?;
    Ok(Json(bound))
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
