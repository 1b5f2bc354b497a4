//! `docs/openapi.json` is what the types say: their schemas, and below the table of paths. `DIVVY_WRITE_DOCS=1` writes it.

use divvy_api::market::{
    Audit, Bound, Changed, Currencies, Currency, CurrencyChange, Exchange, Explained, Graph, NewCurrency,
    NewExchange, NewNice, NewOffer, NewTicket, Offer, Offered, Ticket, TicketChange,
};
use divvy_api::rules::RulesState;
use divvy_api::site::{Orders, Report, Site, SiteTable};
use divvy_api::types::{
    Change, Client, Clients, ErrorBody, ErrorCode, Events, Explanation, Finding, Group, GroupChange,
    MEMBERS_SHOWN, NewClient, Plan, Status,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

const ABOUT: &str = "A scheduler of running processes, a user's own or a system's. HTTP/1.1 over a unix socket. A user's \
own: api.sock in $DIVVY_RUNTIME_DIR, else $XDG_RUNTIME_DIR/divvy, /run/user/UID/divvy or /tmp/divvy-UID; only its owner and \
root may talk to it. A system's: /run/divvy/api.sock; everybody may talk to it, and it knows by the kernel who does. It \
keeps the market (/v1/market), of which a user's own has none (404, `no-market`). Times are in nanoseconds; fractions are \
numbers, 1 for all. Unknown members of a request's body are errors; answers may get more members within this version.";

/// Refusals of every path, and which others a path has.
const ALWAYS: &[u16] = &[403, 405, 408, 429, 503];
const READS: &[u16] = &[400];
const READS_CLIENT: &[u16] = &[400, 404];
const EXPLAINS: &[u16] = &[400, 500];
const ADDS: &[u16] = &[400, 404, 409, 413, 422, 500];
const CHANGES: &[u16] = &[400, 404, 413, 500];
const DETACHES: &[u16] = &[400, 404, 500];
const MARKET: &[u16] = &[404, 413, 500];
const MARKET_READS: &[u16] = &[400, 404, 413, 500];
const MARKET_CHANGES: &[u16] = &[400, 404, 409, 413, 500];

struct Document {
    schemas: SchemaGenerator,
    paths: Map<String, Value>,
}

/// One method of a path, while it is described.
struct Operation<'a>(&'a mut SchemaGenerator, &'a mut Value);

impl Document {
    /// A method: its operation's id, what it does, and the refusals that it has beside those that all have.
    fn on(&mut self, method: &str, path: &str, id: &str, summary: &str, refusals: &[u16]) -> Operation<'_> {
        let item = self.paths.entry(path).or_insert_with(|| json!({}));
        if let Some((_, name)) = path.split_once('{') {
            item["parameters"] = json!([of_path(name.trim_end_matches('}'))]);
        }
        let operation = &mut item[method];
        *operation = json!({ "operationId": id, "summary": summary, "responses": {} });
        let mut all: Vec<u16> = ALWAYS.iter().chain(refusals).copied().collect();
        all.sort_unstable();
        for status in all {
            let status = status.to_string();
            operation["responses"][&status] = json!({ "$ref": format!("#/components/responses/{status}") });
        }
        Operation(&mut self.schemas, operation)
    }
}

impl Operation<'_> {
    fn answers<T: JsonSchema>(self, description: &str) -> Self {
        self.with_status::<T>("200", description)
    }

    /// It makes something, and says where that is.
    fn makes<T: JsonSchema>(self, description: &str) -> Self {
        let headers =
            json!({ "Location": { "description": "Where it is.", "schema": { "type": "string" } } });
        self.with_status::<T>("201", description).with_headers("201", headers)
    }

    fn with_status<T: JsonSchema>(self, status: &str, description: &str) -> Self {
        let schema = self.0.subschema_for::<T>();
        self.with_content(status, description, "application/json", json!(schema))
    }

    fn with_content(self, status: &str, description: &str, mime: &str, schema: Value) -> Self {
        self.1["responses"][status] =
            json!({ "description": description, "content": { mime: { "schema": schema } } });
        self
    }

    fn with_headers(self, status: &str, headers: Value) -> Self {
        self.1["responses"][status]["headers"] = headers;
        self
    }

    fn takes<T: JsonSchema>(self) -> Self {
        let schema = self.0.subschema_for::<T>();
        self.1["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        self
    }

    fn asks(self, name: &str, description: &str, schema: Value) -> Self {
        self.1["parameters"] = json!([{
            "name": name, "in": "query", "required": false, "description": description, "schema": schema
        }]);
        self
    }

    fn note(self, description: &str) {
        self.1["description"] = json!(description);
    }
}

/// A parameter in a path, by its name.
fn of_path(name: &str) -> Value {
    let (id, text) = (
        json!({ "type": "string", "pattern": "^[0-9]{1,19}$" }),
        json!({ "type": "string", "minLength": 1 }),
    );
    let (description, schema) = match name {
        "client" => ("The client's name, or its id in digits.", text),
        "group" => ("The group's path; a slash in it as %2F.", text),
        "pid" => ("A process.", json!({ "type": "integer", "minimum": 1, "maximum": i32::MAX })),
        "currency" => {
            ("A currency's id, `base`, a user's name, `USER/NAME`, or a NAME of the caller's own.", text)
        }
        "ticket" => ("A ticket's id.", text),
        "exchange" => ("An exchange's id.", id),
        "offer" => ("An offer's id.", id),
        "user" => ("A user, by name or number.", text),
        _ => panic!("no parameter {name}"),
    };
    json!({ "name": name, "in": "path", "required": true, "description": description, "schema": schema })
}

fn members(operation: Operation<'_>) -> Operation<'_> {
    let schema = json!({ "type": "integer", "minimum": 0, "maximum": 10_000, "default": MEMBERS_SHOWN });
    let text =
        "Members to tell of each client; 0 to 10000. A list tells at most 512 of all clients together.";
    operation.asks("members", text, schema)
}

fn since(operation: Operation<'_>) -> Operation<'_> {
    let schema = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX, "default": 0 });
    operation.asks("since", "The number to begin at: the last answer's `next`.", schema)
}

fn scheduler(doc: &mut Document) {
    doc.on("get", "/v1/status", "status", "What this divvyd is, and what it has cost", &[])
        .answers::<Status>("The scheduler itself.");
    members(doc.on("get", "/v1/clients", "clients", "All clients that have not left", READS))
        .answers::<Clients>("By rising id.");
    let summary = "Start a command, or attach processes that run already, as a client";
    doc.on("post", "/v1/clients", "add", summary, ADDS)
        .takes::<NewClient>()
        .makes::<Client>("The new client, held until it is its turn.")
        .answers::<Plan>("With `dry_run`: what would be done. Nothing was changed.");
    let (client, group) = ("/v1/clients/{client}", "/v1/groups/{group}");
    let age = "Age of the answer, ns; as `age_ns` of a list.";
    let age =
        json!({ "divvy-age-ns": { "description": age, "schema": { "type": "integer", "minimum": 0 } } });
    members(doc.on("get", client, "client", "One client, or one of the last 64 that left", READS_CLIENT))
        .answers::<Client>("The client. How long ago it was so is in the header `divvy-age-ns`.")
        .with_headers("200", age);
    doc.on("patch", client, "change", "Give a client another share, pause or resume it", CHANGES)
        .takes::<Change>()
        .answers::<Client>("As it is now.");
    doc.on("delete", client, "detach", "Let a client go: its processes run on undivided", DETACHES)
        .answers::<Client>("As it was when it left.");
    let summary = "Change a group's share, pause or resume all its clients";
    doc.on("patch", group, "changeGroup", summary, CHANGES)
        .takes::<GroupChange>()
        .answers::<Group>("The group from now on.");
    doc.on("delete", group, "detachGroup", "Let all clients of a group go, and so the group", CHANGES)
        .answers::<Group>("The group as it was.");
    let summary = "The user's rules (config.toml), and what became of them; none from a system's divvyd";
    doc.on("get", "/v1/rules", "rules", summary, &[]).answers::<RulesState>("In the order of the file.");
    let summary = "What divvyd would do with a process, and why";
    doc.on("get", "/v1/explain/{pid}", "explain", summary, EXPLAINS)
        .answers::<Explanation>("What would be done. A process that is not there has `found` false.");
    doc.on("get", "/v1/doctor", "doctor", "What this machine permits, and how to get more", &[])
        .answers::<Vec<Finding>>("One for each thing that was looked at.");
    since(doc.on("get", "/v1/events", "events", "What happened to clients lately", READS))
        .answers::<Events>("By rising number, at most 8192.");
    doc.on("get", "/v1/openapi.json", "openapi", "This document", &[])
        .answers::<Map<String, Value>>("OpenAPI 3.1.");
    doc.on("get", "/metrics", "metrics", "What is counted and measured, for Prometheus", &[413])
        .with_content(
            "200",
            "OpenMetrics text.",
            "application/openmetrics-text",
            json!({ "type": "string" }),
        );
}

fn market(doc: &mut Document) {
    let (all, one) = ("/v1/market/currencies", "/v1/market/currencies/{currency}");
    doc.on("get", "/v1/market", "market", "The whole market as it stands", MARKET)
        .answers::<Graph>("Currencies, tickets, exchanges and offers.");
    doc.on("get", all, "currencies", "Every currency and client", MARKET)
        .answers::<Currencies>("The base first, then by id.");
    doc.on("post", all, "createCurrency", "Make a currency that is the caller's", MARKET_CHANGES)
        .takes::<NewCurrency>()
        .makes::<Changed<Currency>>("The new currency.");
    doc.on("get", one, "currency", "One currency or client", MARKET_READS)
        .answers::<Currency>("It as it stands.");
    let summary = "Change a currency's mode, owner, group or hard total";
    doc.on("patch", one, "changeCurrency", summary, MARKET_CHANGES)
        .takes::<CurrencyChange>()
        .answers::<Changed<Currency>>("It as it is now.");
    let summary = "End a currency, and whatever it backs or is backed by";
    doc.on("delete", one, "destroyCurrency", summary, MARKET_CHANGES)
        .answers::<Changed<Currency>>("It as it was.");
    doc.on("post", "/v1/market/tickets", "createTicket", "Issue a ticket", MARKET_CHANGES)
        .takes::<NewTicket>()
        .makes::<Changed<Ticket>>("The new ticket.");
    let one = "/v1/market/tickets/{ticket}";
    doc.on("get", one, "ticket", "One ticket", MARKET_READS).answers::<Ticket>("It as it stands.");
    doc.on("patch", one, "changeTicket", "Change a ticket's amount", MARKET_CHANGES)
        .takes::<TicketChange>()
        .answers::<Changed<Ticket>>("It as it is now.");
    doc.on("delete", one, "destroyTicket", "Take a ticket back", MARKET_CHANGES)
        .answers::<Changed<Ticket>>("It as it was.");
    let summary = "Give base tickets to a client through a currency of its own, within the caller's bound";
    doc.on("post", "/v1/market/nice", "nice", summary, MARKET_CHANGES)
        .takes::<NewNice>()
        .makes::<Changed<Currency>>("The currency between.");
    let summary = "Say how many base tickets a user may issue";
    doc.on("put", "/v1/market/bounds/{user}", "setBound", summary, MARKET_CHANGES)
        .takes::<Bound>()
        .answers::<Bound>("What holds now.")
        .note("Superusers only.");
    let resource = json!({ "enum": ["cpu", "memory", "disk"], "default": "cpu" });
    let summary = "Where a currency's or client's value comes from";
    doc.on("get", "/v1/market/explain/{currency}", "explainValue", summary, MARKET_CHANGES)
        .asks("resource", "Of which resource.", resource)
        .answers::<Explained>("Its parts; their values sum to its own.");
    let summary = "Who asked for which change, and what came of it";
    since(doc.on("get", "/v1/market/audit", "audit", summary, MARKET_READS))
        .answers::<Audit>("By rising number; superusers see all, others what they asked themselves.");
}

fn exchanges(doc: &mut Document) {
    let (exchanges, offers) = ("/v1/market/exchanges", "/v1/market/offers");
    let summary = "Make an exchange at once, for somebody who may speak for both parties";
    doc.on("post", exchanges, "createExchange", summary, MARKET_CHANGES)
        .takes::<NewExchange>()
        .with_status::<Changed<Exchange>>("201", "The exchange that holds now.");
    let summary = "End an exchange; both parties have back what they gave";
    doc.on("delete", "/v1/market/exchanges/{exchange}", "cancelExchange", summary, MARKET_CHANGES)
        .answers::<Changed<Exchange>>("It as it was.");
    let came = "The exchange, where somebody had offered the complement, else the offer that waits.";
    let summary = "Offer an exchange to whoever wants the complement";
    doc.on("post", offers, "createOffer", summary, MARKET_CHANGES)
        .takes::<NewOffer>()
        .with_status::<Changed<Offered>>("201", came);
    let summary = "Withdraw an offer that waits";
    doc.on("delete", "/v1/market/offers/{offer}", "withdrawOffer", summary, MARKET_CHANGES)
        .answers::<Changed<Offer>>("It as it was.");
    let (site, orders) = ("/v1/market/site", "/v1/market/site/orders");
    doc.on("get", site, "site", "What holds of a site's table of accounts and users", MARKET)
        .answers::<Site>("The version and the currencies.");
    doc.on("put", site, "setSite", "Make currencies of a site's accounts and users", MARKET_CHANGES)
        .takes::<SiteTable>()
        .answers::<Site>("What holds now.")
        .note("Superusers only. Done whole or not at all.");
    let summary = "Say which exchanges over nodes are to be here, and hear how far they are";
    doc.on("post", orders, "order", summary, MARKET_CHANGES)
        .takes::<Orders>()
        .answers::<Report>("How far they are.")
        .note("Superusers only: for the site's dealer. Exchanges that are not among them end.");
}

/// What comes with each status of errors: its codes, and what their documentation says.
fn refusals(codes: &Value) -> Value {
    let mut all = json!({});
    for code in codes["oneOf"].as_array().expect("each code has its own description") {
        let status = serde_json::from_value::<ErrorCode>(code["const"].clone()).expect("a code").status();
        let (said, name) = (code["description"].as_str().unwrap(), code["const"].as_str().unwrap());
        let said = said.strip_prefix(&format!("{status}: ")).expect("the status first");
        let response = &mut all[status.to_string()];
        let before = response["description"].as_str().map_or_else(String::new, |text| format!("{text} "));
        *response = json!({
            "description": format!("{before}`{name}`: {said}"),
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
        });
    }
    all
}

/// Schemas of types, as they hold for what is sent: formats and defaults are Rust's, an option that is not written is never null, and
/// documentation is one line a paragraph.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(object) => {
            object.values_mut().for_each(tidy);
            object.remove("default");
            if let Some(Value::String(text)) = object.get_mut("description") {
                let lines = text.replace("\n\n", "\0").replace('\n', " ").replace('\0', "\n\n");
                *text = lines.replace("[`", "`").replace("`]", "`");
            }
            let required = object.get("required").cloned().unwrap_or_default();
            let is_required = |name: &String| required.as_array().is_some_and(|r| r.contains(&json!(name)));
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                for (_, value) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
                    not_null(value.as_object_mut().expect("a schema"));
                }
            }
            if let Some(Value::String(format)) = object.remove("format") {
                let (least, most) = match format.as_str() {
                    "uint32" => (0, u64::from(u32::MAX)),
                    "uint64" | "uint" => (0, u64::MAX),
                    "int32" => (i64::from(i32::MIN), i32::MAX as u64),
                    "uint8" | "uint16" | "double" => return,
                    _ => panic!("a number of the format {format}"),
                };
                object.entry("minimum").or_insert(json!(least));
                object.entry("maximum").or_insert(json!(most));
            }
        }
        _ => {}
    }
}

fn not_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        schema["type"] = types[0].clone();
    }
    if let Some(Value::Array(mut of)) = schema.remove("anyOf") {
        of.retain(|schema| schema["type"] != "null");
        let Some(Value::Object(one)) = of.pop() else { panic!("null or what?") };
        schema.extend(one);
    }
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|s| s.definitions_path = "/components/schemas".into());
    let mut doc = Document { schemas: settings.into_generator(), paths: Map::new() };
    scheduler(&mut doc);
    market(&mut doc);
    exchanges(&mut doc);
    doc.schemas.subschema_for::<ErrorBody>();
    let mut schemas = Value::Object(doc.schemas.take_definitions(true));
    tidy(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "divvyd", "version": "1", "license": { "name": "MIT OR Apache-2.0" }, "description": ABOUT
        },
        "paths": doc.paths,
        "components": { "responses": refusals(&schemas["ErrorCode"]), "schemas": schemas },
    })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "who wants the document written says so")]
fn the_document_is_the_one_that_is_published() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&document()).expect("JSON"));
    if std::env::var_os("DIVVY_WRITE_DOCS").is_some() {
        std::fs::write(path, &text).expect("write docs/openapi.json");
    }
    let published = std::fs::read_to_string(path).expect("docs/openapi.json");
    assert!(
        published == text,
        "docs/openapi.json is not what the types say: DIVVY_WRITE_DOCS=1 cargo test -p divvy-api --test openapi"
    );
}
