//! What the market's part of the API takes and answers, in Rust. `docs/openapi.json` says the same for everybody.
//!
//! A currency is named by its id (`17`, `17.2`), by `base`, by a user's name (that user's own currency), or by
//! `USER/NAME` for what USER called NAME; a bare NAME that is no user's is the caller's own.

use divvy_market::{Kind, Resource};
use serde::{Deserialize, Serialize};

use crate::types::given;

/// Characters in a currency's name, at most.
pub const CURRENCY_NAME_MAX: usize = 64;

/// A share of a resource three ways. All three are fractions of the whole resource, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Standing {
    /// Which resource.
    pub resource: Resource,
    /// The base value now, exactly: `1000/3` base tickets.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^-?[0-9]+(/[0-9]+)?$")))]
    pub value: String,
    /// The base value were everybody active, as a fraction of what all would be worth: what was promised.
    pub requested: f64,
    /// The base value now, as a fraction of what all that are active are worth.
    pub effective: f64,
    /// What it was served, as a fraction of what all clients were served since shares last changed; CPU only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub achieved: Option<f64>,
    /// Whether it competes: for a currency, whether somebody who holds its tickets does.
    pub active: bool,
    /// How many of its hard tickets are the whole of its rights.
    pub hard_total: u64,
    /// Of these, how many are out.
    pub hard_issued: u64,
}

/// A currency or a client: `GET /v1/market/currencies/{currency}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Currency {
    /// Never given twice.
    pub id: String,
    /// How it is best named: `base`, `alice`, `alice/build`, or its id where it has no name.
    pub name: String,
    /// Whether it is a client: a leaf that competes and issues nothing but transfer tickets.
    pub client: bool,
    /// The scheduler's number of it, where it is a client that is divided just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<u32>,
    /// Its owner's name, or number where there is no name.
    pub owner: String,
    /// Its group's name, or number.
    pub group: String,
    /// `fci------`: what owner, group and others may do (fund, change, issue).
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[f-][c-][i-][f-][c-][i-][f-][c-][i-]$")))]
    pub mode: String,
    /// Currencies on the longest path from the base; 0 where nothing backs it.
    pub depth: u16,
    /// The currency that `nice` took it from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub niced_from: Option<String>,
    /// Cpu, memory and disk, in this order.
    #[cfg_attr(feature = "schema", schemars(length(min = 3, max = 3)))]
    pub standing: Vec<Standing>,
}

/// A ticket: `GET /v1/market/tickets/{ticket}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ticket {
    /// Never given twice.
    pub id: String,
    /// Whose ticket it is, by name.
    pub issuer: String,
    /// Whom it backs, by name.
    pub holder: String,
    /// What it gives a right to.
    pub resource: Resource,
    /// How many it stands for.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub amount: u64,
    /// Soft, hard or transfer.
    pub kind: Kind,
    /// Whether it counts just now.
    pub active: bool,
    /// What it is worth in base tickets, exactly.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^-?[0-9]+(/[0-9]+)?$")))]
    pub value: String,
}

/// What one party of an exchange gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Give {
    /// Which resource.
    pub resource: Resource,
    /// How many base tickets of it.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = u32::MAX)))]
    pub amount: u64,
}

/// An exchange that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exchange {
    /// Never given twice.
    pub id: u64,
    /// One party, by name.
    pub a: String,
    /// What it gives.
    pub a_gives: Give,
    /// The other party, by name.
    pub b: String,
    /// What that gives.
    pub b_gives: Give,
}

/// An offer that waits at the dealer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offer {
    /// Never given twice.
    pub id: u64,
    /// For whom, by name.
    pub party: String,
    /// What it gives.
    pub gives: Give,
    /// What it wants.
    pub wants: Give,
    /// When it ends if nobody takes it: ns since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix_ns: Option<u64>,
}

/// The whole market as it stands: `GET /v1/market`. What `divvy currency tree` draws.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Graph {
    /// Every currency and client, the base first, then by id.
    pub currencies: Vec<Currency>,
    /// Every ticket, by id.
    pub tickets: Vec<Ticket>,
    /// Every exchange, by id.
    pub exchanges: Vec<Exchange>,
    /// Every offer, by id.
    pub offers: Vec<Offer>,
}

/// Every currency and client: `GET /v1/market/currencies`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Currencies {
    /// The base first, then by id.
    pub currencies: Vec<Currency>,
}

/// A currency to make: `POST /v1/market/currencies`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewCurrency {
    /// Its name among the owner's: 1 to 64 of letters, digits, `-`, `_`, `.`, not all digits.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^(?=.*[A-Za-z_-])[A-Za-z0-9._][A-Za-z0-9._-]{0,63}$"), extend("not" = { "const": "base" })))]
    pub name: String,
    /// Its group, by name or number; the caller's first if not given.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Three octal digits (`740`) or nine letters (`fcif-----`); `700` if not given.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^([0-7]{3}|([f-][c-][i-]){3})$")))]
    pub mode: Option<String>,
}

/// What is to change about a currency: `PATCH /v1/market/currencies/{currency}`. At least one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("minProperties" = 1)))]
#[serde(deny_unknown_fields)]
pub struct CurrencyChange {
    /// Another mode.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^([0-7]{3}|([f-][c-][i-]){3})$")))]
    pub mode: Option<String>,
    /// Another owner, by name or number.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Another group, by name or number.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How many hard tickets are the whole of its rights to a resource.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub hard_total: Option<Give>,
}

/// A ticket to issue: `POST /v1/market/tickets`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewTicket {
    /// Who gets it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub holder: String,
    /// Whose ticket it is.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub issuer: String,
    /// What it gives a right to.
    pub resource: Resource,
    /// How many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = u32::MAX)))]
    pub amount: u64,
    /// Soft or hard: transfer tickets are made by waiting.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["soft", "hard"])))]
    pub kind: Kind,
}

/// Another amount for a ticket: `PATCH /v1/market/tickets/{ticket}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TicketChange {
    /// How many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = u32::MAX)))]
    pub amount: u64,
}

/// An exchange to offer: `POST /v1/market/offers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewOffer {
    /// For whom; the caller's own currency if not given.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub party: Option<String>,
    /// What it gives.
    pub gives: Give,
    /// What it wants.
    pub wants: Give,
    /// How long it waits, ns; for ever if not given.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub wait_ns: Option<u64>,
}

/// An exchange at once, by somebody who may speak for both: `POST /v1/market/exchanges`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewExchange {
    /// One party.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub a: String,
    /// What it gives.
    pub a_gives: Give,
    /// The other.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub b: String,
    /// What that gives.
    pub b_gives: Give,
}

/// What came of an offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offered {
    /// The exchange, if somebody had offered the complement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// The offer, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
    /// Others' offers of the same two resources at other rates, oldest first.
    pub conflicts: Vec<Offer>,
}

/// A client to make nice: `POST /v1/market/nice`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewNice {
    /// Which client.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub client: String,
    /// Whose tickets it holds; the caller's own currency if not given, and where a superuser asks that of the client's user.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub from: Option<String>,
    /// Which resource; cpu if not given.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// How many base tickets go with it.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = u32::MAX)))]
    pub amount: u64,
}

/// How many base tickets a user may issue: `PUT /v1/market/bounds/{user}`. Superusers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Of which resource.
    pub resource: Resource,
    /// At most so many; `null` takes the permission back, and is to be said.
    #[serde(deserialize_with = "Option::deserialize")]
    pub bound: Option<u64>,
}

/// One step of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Why {
    /// `ticket`, `exchange`, `lodged` (of an idle holder below) or `passed-on` (left with the funders while idle).
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["ticket", "exchange", "lodged", "passed-on"])))]
    pub what: String,
    /// In words: `100 of the 300 active soft tickets of alice`.
    pub words: String,
    /// What it adds in base tickets, exactly; may be negative.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^-?[0-9]+(/[0-9]+)?$")))]
    pub value: String,
    /// The ticket, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// For a ticket: where its issuer's value comes from, in turn.
    pub from: Vec<Why>,
}

/// Where a value comes from: `GET /v1/market/explain/{currency}?resource=cpu`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explained {
    /// Whose.
    pub currency: Currency,
    /// Of which resource.
    pub resource: Resource,
    /// Its parts; their values sum to its own.
    pub parts: Vec<Why>,
}

/// What an operation did beside what was asked: every answer that changes something has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Aftermath {
    /// Exchanges that ended through it.
    pub undone: Vec<u64>,
    /// Offers that ended through it without being taken up.
    pub lapsed: Vec<u64>,
    /// Currencies that ended through it, by id.
    pub ended: Vec<String>,
}

/// The answer to a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Changed{T}"))]
pub struct Changed<T> {
    /// What was made or changed, or what it was before it was taken away.
    pub result: T,
    /// What else came of it.
    pub aftermath: Aftermath,
}

/// The member of `what` in the audit log that names root, where it asked in the user's place.
pub const BY: &str = "by";

/// What `ask` is in the audit log where nobody asked: a party to an exchange is told that it is over.
pub const ENDED: &str = "exchange-ended";

/// One line of the audit log: `GET /v1/market/audit?since=N`. Superusers see all, others what they did themselves and what they
/// are told of exchanges that ended (`what.ask` is `exchange-ended`, and the pid 0).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// Its number; rises.
    pub seq: u64,
    /// When: ns since 1970 (UTC).
    pub t_unix_ns: u64,
    /// Who: the user's number, from the kernel; where `what` has `by`, root asked in this user's place.
    pub uid: u32,
    /// The pid at the other end of the socket, 0 for divvyd itself.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub pid: i32,
    /// What was asked for, as JSON: an operation with its ids.
    pub what: serde_json::Value,
    /// Why it was refused; done if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A part of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Audit {
    /// What to ask for next.
    pub next: u64,
    /// By rising number; at most 1,000 in one answer.
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub entries: Vec<AuditEntry>,
}
