//! The API's paths. What each takes and answers is in `docs/openapi.json`.

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, FromRef, MatchedPath, Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use divvy_linux::clock;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::clients::Clients;
use crate::limit::Limiter;
use crate::lookers::Lookers;
use crate::market::message::Who;
use crate::message::{Answer, Command, Handle, Refusal};
use crate::metrics::{self, Metrics};
use crate::rules::RulesFile;
use crate::subscribers::Subscribers;
use crate::{local, market};
use divvy_api::types::{Change, ErrorCode, GroupChange, MEMBERS_SHOWN, NewClient, Status};

/// The document of the API.
pub const OPENAPI: &str = include_str!("../openapi.json");
/// Bytes in a request's body at most.
const BODY_MAX: usize = 64 * 1024;
/// Of a site's table, which has a line for each user, and its dealer's orders, from root: some hundred thousand lines.
const SITE_BODY_MAX: usize = 16 * 1024 * 1024;
/// Members that can be asked for.
const MEMBERS_MAX: usize = 10_000;
/// How long ago what is answered was so, ns, where the body does not say it.
const AGE: HeaderName = HeaderName::from_static("divvy-age-ns");
/// Rows of a list that cost about as much to write down as a look at one process.
const ROWS_PER_LOOK: usize = 4;
/// From a request's head to the end of its body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// What the handlers need.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) scheduler: Handle,
    pub(crate) local: local::Local,
    /// The market, where this divvyd keeps one.
    pub(crate) market: Option<market::message::Handle>,
    /// The user's rules, where this divvyd follows them.
    pub(crate) rules: Option<RulesFile>,
    pub(crate) metrics: Metrics,
    /// True once a system's divvyd has found its clients of before; nobody waits where there is none.
    pub(crate) ready: Option<watch::Receiver<bool>>,
    /// How often each user may ask; as often as they like where there is none.
    pub(crate) limiter: Option<Limiter>,
    pub(crate) lookers: Lookers,
    pub(crate) subscribers: Subscribers,
}

impl Context {
    fn clients(&self) -> Clients {
        Clients { scheduler: self.scheduler.clone(), market: self.market.clone(), ready: self.ready.clone() }
    }
}

impl FromRef<Context> for Option<market::message::Handle> {
    fn from_ref(context: &Context) -> Self {
        context.market.clone()
    }
}

/// All paths.
pub(crate) fn router(context: Context) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/clients", get(list).post(add))
        .route("/v1/clients/{client}", get(show).patch(change).delete(detach))
        .route("/v1/groups/{group}", patch(change_group).delete(detach_group))
        .route("/v1/rules", get(rules))
        .route("/v1/explain/{pid}", get(explain))
        .route("/v1/doctor", get(doctor))
        .route("/v1/events", get(events))
        .route("/v1/openapi.json", get(openapi))
        .route("/metrics", get(metrics))
        .merge(market::routes::router().layer(Extension(context.scheduler.clone())))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn(bounded))
        .layer(middleware::from_fn_with_state(context.limiter.clone(), limited))
        .layer(middleware::from_fn_with_state(context.metrics.clone(), counted))
        .with_state(context)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.body())).into_response()
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        match self {
            Self::Status(status) => Json(status).into_response(),
            Self::Client(client) => Json(client).into_response(),
            Self::Group(group) => Json(group).into_response(),
            Self::Rules(rules) => Json(rules).into_response(),
            Self::Added(client) => {
                let mut response = (StatusCode::CREATED, Json(&client)).into_response();
                if let Ok(place) = HeaderValue::from_str(&format!("/v1/clients/{}", client.id)) {
                    response.headers_mut().insert(header::LOCATION, place);
                }
                response
            }
            Self::Plan(plan) => Json(plan).into_response(),
            // No path asks for these alone.
            Self::Prepared(_) | Self::Owned(..) => StatusCode::NO_CONTENT.into_response(),
            Self::Events(events) => Json(events).into_response(),
        }
    }
}

type Answered = Result<Answer, Refusal>;

fn too_large(most: usize) -> Refusal {
    Refusal::new(ErrorCode::TooLarge, format!("the body is longer than {most} bytes"), "send less")
}

pub(crate) fn bad_request(message: impl ToString) -> Refusal {
    Refusal::new(ErrorCode::BadRequest, message, "see GET /v1/openapi.json")
}

/// The body as what it should be.
pub(crate) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    let wrong = match serde_json::from_slice(body) {
        Ok(meant) => return Ok(meant),
        Err(e) => bad_request(format!("the body: {e}")),
    };
    // JSON has one kind of numbers: 5.0 is 5.
    let Ok(mut value) = serde_json::from_slice(body) else { return Err(wrong) };
    if !make_whole(&mut value) {
        return Err(wrong);
    }
    serde_json::from_value(value).map_err(|_| wrong)
}

/// Writes numbers that are whole as such, wherever they are; says whether there were any to be written anew.
fn make_whole(value: &mut Value) -> bool {
    /// Up to here every whole number is told from the next.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|f| number.is_f64() && f.trunc() == *f && f.abs() <= EXACT);
            whole.inspect(|&f| *value = Value::from(f as i64)).is_some()
        }
        // All of them, not only up to the first.
        Value::Array(all) => all.iter_mut().map(make_whole).filter(|&was| was).count() > 0,
        Value::Object(all) => all.values_mut().map(make_whole).filter(|&was| was).count() > 0,
        _ => false,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MembersQuery {
    members: Option<usize>,
}

type MembersAsked = Result<Query<MembersQuery>, QueryRejection>;

fn members(query: MembersAsked) -> Result<usize, Refusal> {
    let asked = query.map_err(|e| bad_request(e.body_text()))?.0.members.unwrap_or(MEMBERS_SHOWN);
    if asked > MEMBERS_MAX {
        return Err(bad_request(format!("members={asked}: at most {MEMBERS_MAX} are told")));
    }
    Ok(asked)
}

pub(crate) fn key(path: Result<Path<String>, PathRejection>) -> Result<String, Refusal> {
    path.map(|Path(key)| key).map_err(|e| bad_request(e.body_text()))
}

async fn status(State(context): State<Context>, Extension(who): Extension<Who>) -> Result<Response, Refusal> {
    let view = context.scheduler.view(who.uid, 0).await?;
    let policy_file = context.local.policy_file();
    Ok(Json(Status { policy_file, ..view.status() }).into_response())
}

async fn list(
    State(context): State<Context>,
    Extension(who): Extension<Who>,
    query: MembersAsked,
) -> Result<Response, Refusal> {
    let members = members(query)?;
    let view = context.scheduler.view(who.uid, members).await?;
    let looks = view.looks(members) + view.rows().count() / ROWS_PER_LOOK;
    context.lookers.look(&who, looks, move || json_body(&view.clients(members))).await
}

async fn show(
    State(context): State<Context>,
    Extension(who): Extension<Who>,
    path: Result<Path<String>, PathRejection>,
    query: MembersAsked,
) -> Result<Response, Refusal> {
    let (key, members) = (key(path)?, members(query)?);
    let view = context.scheduler.view(who.uid, members).await?;
    let (looks, asker) = (view.looks(members), who.uid);
    let told = move || {
        let age = view.age();
        let client = view.client(&key, asker, members)?;
        let mut response = json_body(&client)?;
        response.headers_mut().insert(AGE, HeaderValue::from(age.0));
        Ok(response)
    };
    context.lookers.look(&who, looks, told).await
}

/// Something as the body of an answer.
fn json_body(what: &impl Serialize) -> Result<Response, Refusal> {
    let bytes = serde_json::to_vec(what).map_err(|e| Refusal::new(ErrorCode::Internal, e, ""))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], bytes).into_response())
}

async fn add(State(context): State<Context>, Extension(who): Extension<Who>, body: Bytes) -> Answered {
    let new: NewClient = parse(&body)?;
    context.clients().add(who, new).await
}

async fn change(
    State(context): State<Context>,
    Extension(who): Extension<Who>,
    path: Result<Path<String>, PathRejection>,
    body: Bytes,
) -> Answered {
    let change: Change = parse(&body)?;
    context.clients().change(who, key(path)?, change).await
}

async fn detach(
    State(context): State<Context>,
    Extension(who): Extension<Who>,
    path: Result<Path<String>, PathRejection>,
) -> Answered {
    context.clients().detach(who, key(path)?).await
}

async fn change_group(
    State(context): State<Context>,
    Extension(who): Extension<Who>,
    path: Result<Path<String>, PathRejection>,
    body: Bytes,
) -> Answered {
    let change: GroupChange = parse(&body)?;
    context.scheduler.ask(Command::ChangeGroup { key: key(path)?, change, who }).await
}

async fn detach_group(
    State(context): State<Context>,
    Extension(who): Extension<Who>,
    path: Result<Path<String>, PathRejection>,
) -> Answered {
    context.scheduler.ask(Command::DetachGroup { key: key(path)?, who }).await
}

async fn rules(State(context): State<Context>, Extension(who): Extension<Who>) -> Answered {
    if let Some(file) = context.rules {
        // What was written a moment ago counts: it is read before the answer.
        let read = tokio::task::spawn_blocking(move || file.refresh()).await;
        read.map_err(|e| Refusal::new(ErrorCode::Internal, e, "see divvyd's log"))?;
    }
    let answer = context.scheduler.ask(Command::Rules).await;
    // So it is with what it shows of the clients from now on.
    context.scheduler.note_change(who.uid);
    answer
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    since: Option<u64>,
}

async fn events(
    State(context): State<Context>,
    Extension(who): Extension<Who>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let query = query.map_err(|e| bad_request(e.body_text()))?.0;
    let turn = context.subscribers.enter(&who)?;
    let answer = context.scheduler.ask(Command::Events { since: query.since.unwrap_or(0), who }).await?;
    // Until all of it was read, it is one of those that are under way.
    Ok(answer.into_response().map(|body| Body::new(turn.with(body))))
}

async fn explain(
    State(context): State<Context>,
    Extension(who): Extension<Who>,
    path: Result<Path<String>, PathRejection>,
) -> Response {
    let pid = match key(path) {
        Ok(text) => text,
        Err(refusal) => return refusal.into_response(),
    };
    match context.local.explain(&pid, &who) {
        Ok(explanation) => Json(explanation).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn doctor(State(context): State<Context>) -> Response {
    Json(context.local.doctor()).into_response()
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// Everything that is counted, for Prometheus.
async fn metrics(State(context): State<Context>, Extension(who): Extension<Who>) -> Response {
    // What the scheduler has to tell is left out while it does not answer: the rest is worth having.
    let status = context.scheduler.view(who.uid, 0).await.ok().map(|view| view.status());
    let text = context.metrics.text(status);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// Counts each request by what was asked for and what came of it.
async fn counted(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let (method, begun) = (request.method().clone(), clock::now());
    let response = next.run(request).await;
    let path = path.as_ref().map_or("none", MatchedPath::as_str);
    metrics.request(&method, path, response.status(), clock::now().since(begun));
    response
}

async fn no_path(request: Request) -> Refusal {
    let text = format!("there is nothing at {}", request.uri().path());
    Refusal::new(ErrorCode::NoSuchPath, text, "see GET /v1/openapi.json")
}

async fn no_method(request: Request) -> Refusal {
    let text = format!("{} does not take {}", request.uri().path(), request.method());
    Refusal::new(ErrorCode::NoSuchMethod, text, "see GET /v1/openapi.json")
}

/// Hands a request on if its user has not asked too often.
async fn limited(State(limiter): State<Option<Limiter>>, request: Request, next: Next) -> Response {
    if let (Some(limiter), Some(who)) = (limiter, request.extensions().get::<Who>())
        && let Err(refusal) = limiter.check(who)
    {
        return refusal.into_response();
    }
    next.run(request).await
}

/// Hands a request on once all of it is there: refuses what is too large, by its own word or in fact, and gives up what
/// takes too long to come.
async fn bounded(request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let is_root = request.extensions().get::<Who>().is_some_and(|who| who.uid == 0);
    let most = if is_root
        && [market::routes::SITE_PATH, market::routes::ORDERS_PATH].contains(&request.uri().path())
    {
        SITE_BODY_MAX
    } else {
        BODY_MAX
    };
    if length.is_some_and(|length: u64| length > most as u64) {
        return too_large(most).into_response();
    }
    let (parts, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_TIME, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(e)) if e.is::<LengthLimitError>() => return too_large(most).into_response(),
        Ok(Err(e)) => return bad_request(format!("the body: {e}")).into_response(),
        Err(_) => {
            let text = format!("the request did not come to its end within {} s", BODY_TIME.as_secs());
            return Refusal::new(ErrorCode::TooSlow, text, "send it in one go").into_response();
        }
    };
    next.run(Request::from_parts(parts, Body::from(body))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_api::types::Change;

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        let share = |text: &str| parse::<Change>(&Bytes::from(text.to_owned())).map(|c| c.share);
        for text in [r#"{"share":5}"#, r#"{"share":5.0}"#, r#"{"share":0.5e1}"#] {
            assert_eq!(share(text).unwrap(), Some(5), "{text}");
        }
        for text in [r#"{"share":5.5}"#, r#"{"share":-5.0}"#, r#"{"share":1e300}"#, r#"{"share":"5.0"}"#] {
            assert!(share(text).unwrap_err().message.contains("at line 1 column"), "{text}");
        }
        assert!(share(r#"{"share":null}"#).is_err(), "what is not meant is left out");
    }
}
