//! The system's market: `currency`, `fund`, `reserve`, `unfund`, `exchange`, `nice`, `market`.
//!
//! Each is a question to the system's divvyd, and its answer in words. Who may do what is decided there, by whom the kernel
//! says we are.

pub(crate) mod args;
mod audit;
mod explain;
mod list;
pub(crate) mod tree;

use std::collections::BTreeSet;

use divvy_api::client::{Api, ApiError};
use divvy_api::market::{
    Aftermath, Bound, Changed, Currency, CurrencyChange, Exchange, Give, Graph, NewCurrency, NewNice,
    NewOffer, NewTicket, Offer, Offered, Ticket,
};
use divvy_api::names::word;
use divvy_api::types::ErrorCode;
use divvy_market::{Kind, Resource};
use serde::Serialize;
use serde_json::json;

use crate::remote::json as pretty;
use crate::remote::which::refused_by_system as refused;
use crate::remote::{json_of, one_by_one, warn_of_no_effect};
use crate::{Code, Failure, print, tell};
use args::{
    BoundArgs, CancelArgs, ChmodArgs, ChownArgs, CreateArgs, CurrencyCommand, DestroyArgs, ExchangeCommand,
    FundArgs, HardTotalArgs, MarketCommand, NiceArgs, OfferArgs, UnfundArgs,
};

/// Says what was done, or all of it as JSON.
fn told<T: Serialize>(
    changed: &Changed<T>,
    as_json: bool,
    words: impl FnOnce(&T) -> String,
) -> Result<Code, Failure> {
    if as_json {
        print(pretty(changed)?)?;
    } else {
        shown(changed, words)?;
    }
    Ok(Code::Done)
}

/// What was changed, in words, and what came of it.
fn shown<T>(changed: &Changed<T>, words: impl FnOnce(&T) -> String) -> Result<(), Failure> {
    let mut lines = vec![words(&changed.result)];
    lines.extend(aftermath(&changed.aftermath));
    print(lines.join("\n"))
}

/// What else came of it.
fn aftermath(came: &Aftermath) -> Vec<String> {
    let mut lines: Vec<String> =
        came.undone.iter().map(|id| format!("exchange {id} ended: a party can no longer cover it")).collect();
    lines.extend(came.lapsed.iter().map(|id| format!("offer {id} ended: it can no longer be taken up")));
    lines.extend(came.ended.iter().map(|id| format!("currency {id} ended: it was made for what is gone")));
    lines
}

/// `50 disk`.
fn what(give: &Give) -> String {
    format!("{} {}", give.amount, give.resource)
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Soft => "soft",
        Kind::Hard => "hard",
        Kind::Transfer => "transfer",
    }
}

/// A moment, UTC, to the second.
fn moment(unix_ns: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(unix_ns);
    humantime::format_rfc3339_seconds(time).to_string()
}

pub(crate) fn currency(command: &CurrencyCommand) -> Result<Code, Failure> {
    match command {
        CurrencyCommand::Create(args) => create(args),
        CurrencyCommand::Ls(args) => list::currencies(args),
        CurrencyCommand::Tree(args) => tree::run(args),
        CurrencyCommand::Destroy(args) => destroy(args),
        CurrencyCommand::Chmod(args) => chmod(args),
        CurrencyCommand::Chown(args) => chown(args),
        CurrencyCommand::HardTotal(args) => hard_total(args),
    }
}

fn create(args: &CreateArgs) -> Result<Code, Failure> {
    let new = NewCurrency { name: args.name.clone(), group: args.group.clone(), mode: args.mode.clone() };
    let made = args.ask.of.api()?.create_currency(&new).map_err(refused)?;
    told(&made, args.ask.json, |c| {
        let made = format!("{}: made, owner {}, group {}, mode {}", c.name, c.owner, c.group, c.mode);
        if c.depth > 0 {
            return made; // A user's own comes with what the policy gives.
        }
        // Without an account, a user's own currency is named by the user's number.
        let from = if c.owner.parse::<u32>().is_ok() { format!("uid:{}", c.owner) } else { c.owner.clone() };
        format!("{made}\nnothing backs it yet: divvy fund {} --from {from} AMOUNT", word(&c.name))
    })
}

fn destroy(args: &DestroyArgs) -> Result<Code, Failure> {
    let api = args.ask.of.api()?;
    let ended = |c: &Currency| format!("{}: ended, and every ticket that it issued or held", c.name);
    // Only a warning hangs on these.
    let before = api.currencies().unwrap_or_default();
    let (all, code) = one_by_one(
        &args.currencies,
        |currency| api.destroy_currency(currency).map_err(refused),
        |was| if args.ask.json { Ok(()) } else { shown(was, ended) },
    )?;
    warn_of_lost_rights(&before, &api.currencies().unwrap_or_default(), None);
    if args.ask.json {
        print(json_of(&args.currencies, &all)?)?;
    }
    Ok(code)
}

/// What clients have a right to, were everybody active, by name.
fn rights(all: &[Currency]) -> BTreeSet<(&str, Resource)> {
    let clients = all.iter().filter(|c| c.client);
    let each = clients.flat_map(|c| c.standing.iter().map(move |of| (c.name.as_str(), of)));
    each.filter(|(_, of)| of.requested > 0.0).map(|(name, of)| (name, of.resource)).collect()
}

/// Says which clients have no right to a resource any more, to whoever has just taken tickets, or reserved all for one (`reserved`).
fn warn_of_lost_rights(before: &[Currency], now: &[Currency], reserved: Option<&Ticket>) {
    let (had, have) = (rights(before), rights(now));
    for resource in Resource::ALL {
        let is_lost = |c: &&Currency| {
            let right = (c.name.as_str(), resource);
            had.contains(&right) && !have.contains(&right)
        };
        let lost: Vec<&str> = now.iter().filter(is_lost).map(|c| c.name.as_str()).collect();
        let Some(first) = lost.first() else { continue };
        let has = if lost.len() == 1 { "has" } else { "have" };
        let lost = lost.join(", ");
        tell(match reserved {
            None => format!(
                "divvy: warning: {lost} {has} no right to {resource} any more, and nothing while others compete: divvy fund {} AMOUNT \
                 --from CURRENCY --resource {resource}",
                word(first)
            ),
            Some(Ticket { id, issuer, holder, .. }) => format!(
                "divvy: warning: all {resource} of {issuer} is reserved, and {lost} {has} nothing while {holder} competes, and what it leaves is \
                 not divided by shares: to take it back, divvy unfund {id}"
            ),
        });
    }
}

fn changed(
    api: &Api,
    key: &str,
    change: &CurrencyChange,
    as_json: bool,
    words: impl FnOnce(&Currency) -> String,
) -> Result<Code, Failure> {
    told(&api.change_currency(key, change).map_err(refused)?, as_json, words)
}

fn chmod(args: &ChmodArgs) -> Result<Code, Failure> {
    let change = CurrencyChange { mode: Some(args.mode.clone()), ..CurrencyChange::default() };
    changed(&args.ask.of.api()?, &args.currency, &change, args.ask.json, |c| {
        format!("{}: mode {}", c.name, c.mode)
    })
}

fn chown(args: &ChownArgs) -> Result<Code, Failure> {
    let (owner, group) = match args.owner.split_once(':') {
        Some((owner, group)) => (owner, Some(group)),
        None => (args.owner.as_str(), None),
    };
    let given = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
    let change =
        CurrencyChange { owner: given(owner), group: group.and_then(given), ..CurrencyChange::default() };
    if change.owner.is_none() && change.group.is_none() {
        let text = format!("'{}' names nobody; give alice, alice:staff or :staff", args.owner);
        return Err(Failure::new(Code::Usage, text));
    }
    changed(&args.ask.of.api()?, &args.currency, &change, args.ask.json, |c| {
        format!("{}: owner {}, group {}", c.name, c.owner, c.group)
    })
}

fn hard_total(args: &HardTotalArgs) -> Result<Code, Failure> {
    let change = CurrencyChange { hard_total: Some(args.total), ..CurrencyChange::default() };
    changed(&args.ask.of.api()?, &args.currency, &change, args.ask.json, |c| {
        let is = format!(
            "{}: {} hard tickets are the whole of its {}",
            c.name, args.total.amount, args.total.resource
        );
        match c.standing.iter().find(|s| s.resource == args.total.resource) {
            Some(s) => format!("{is}; {} of them are out", s.hard_issued),
            None => is,
        }
    })
}

/// `ticket 12: 100 soft cpu tickets of alice back alice/build`.
fn ticket(t: &Ticket) -> String {
    format!("ticket {}: {} {} {} of {} for {}", t.id, t.amount, kind(t.kind), t.resource, t.issuer, t.holder)
}

/// `divvy fund` (soft) and `divvy reserve` (hard).
pub(crate) fn fund(args: &FundArgs, kind: Kind) -> Result<Code, Failure> {
    let new = NewTicket {
        holder: args.holder.clone(),
        issuer: args.from.clone(),
        resource: args.resource,
        amount: args.amount,
        kind,
    };
    let api = args.ask.of.api()?;
    let rights = || if kind == Kind::Hard { api.currencies().unwrap_or_default() } else { Vec::new() };
    let before = rights();
    let made = api.create_ticket(&new).map_err(refused)?;
    warn_of_no_effect(&api, &[args.resource]);
    warn_of_lost_rights(&before, &rights(), Some(&made.result));
    told(&made, args.ask.json, |t| {
        let worth = if t.active {
            format!("worth {} base tickets now", explain::number(&t.value))
        } else {
            format!("worth nothing until {} competes for it", t.holder)
        };
        format!("{}, {worth}", ticket(t))
    })
}

pub(crate) fn unfund(args: &UnfundArgs) -> Result<Code, Failure> {
    let api = args.ask.of.api()?;
    let (ids, unknown) = match &args.from {
        None => (args.tickets.clone(), Code::Done),
        Some(issuer) => {
            let of = |holder: &String| tickets_between(&api, args, holder, issuer);
            let (found, code) = one_by_one(&args.tickets, of, |_| Ok(()))?;
            (found.concat(), code)
        }
    };
    let before = api.currencies().unwrap_or_default();
    let gone = |was: &Changed<Ticket>| shown(was, |t| format!("{}: taken away", ticket(t)));
    let taken = one_by_one(
        &ids,
        |id| api.destroy_ticket(id).map_err(|e| no_ticket(id, refused(e))),
        |was| if args.ask.json { Ok(()) } else { gone(was) },
    );
    let (all, code) = match taken {
        // The only ticket of several holders.
        Err(Failure { code, text }) if args.tickets.len() > 1 => {
            tell(format_args!("divvy: {text}"));
            (Vec::new(), code)
        }
        taken => taken?,
    };
    warn_of_lost_rights(&before, &api.currencies().unwrap_or_default(), None);
    if args.ask.json {
        print(pretty(&all)?)?;
    }
    Ok(if unknown == Code::Done { code } else { unknown })
}

/// Whoever names a holder, and not whose ticket is meant, is told how to.
fn no_ticket(id: &str, refusal: Failure) -> Failure {
    if refusal.code != Code::NoSuch || id.starts_with(|c: char| c.is_ascii_digit()) {
        return refusal;
    }
    let text = format!(
        "{}; a holder's tickets are named by whose they are: divvy unfund {} --from ISSUER",
        refusal.text,
        word(id)
    );
    Failure::new(refusal.code, text)
}

/// The ids of the tickets of `issuer` that the holder has.
fn tickets_between(api: &Api, args: &UnfundArgs, holder: &str, issuer: &str) -> Result<Vec<String>, Failure> {
    let holder = api.currency(holder).map_err(refused)?;
    let issuer = api.currency(issuer).map_err(refused)?;
    let tickets = api.market().map_err(refused)?.tickets;
    let between = tickets.iter().filter(|t| {
        t.holder == holder.name
            && t.issuer == issuer.name
            && t.resource == args.resource
            && t.kind != Kind::Transfer
    });
    let ids: Vec<String> = between.map(|t| t.id.clone()).collect();
    match ids.len() {
        0 => {
            let text = format!("no {} ticket of {} backs {}", args.resource, issuer.name, holder.name);
            Err(Failure::new(Code::NoSuch, text))
        }
        2.. if !args.all => {
            let text = format!(
                "{} {} tickets of {} back {}: {}; take one away by its id, or --all",
                ids.len(),
                args.resource,
                issuer.name,
                holder.name,
                ids.join(", ")
            );
            Err(Failure::new(Code::Usage, text))
        }
        _ => Ok(ids),
    }
}

pub(crate) fn exchange(command: &ExchangeCommand) -> Result<Code, Failure> {
    match command {
        ExchangeCommand::Offer(args) => offer(args),
        ExchangeCommand::Ls(args) => list::exchanges(args),
        ExchangeCommand::Cancel(args) => cancel(args),
    }
}

/// `alice gives 50 disk to bob for 20 memory`.
fn traded(x: &Exchange) -> String {
    format!("{} gives {} to {} for {}", x.a, what(&x.a_gives), x.b, what(&x.b_gives))
}

/// `alice gives 50 disk for 20 memory`.
fn offered(o: &Offer) -> String {
    format!("{} gives {} for {}", o.party, what(&o.gives), what(&o.wants))
}

fn offer(args: &OfferArgs) -> Result<Code, Failure> {
    let wait_ns =
        match args.wait {
            Some(wait) => Some(u64::try_from(wait.as_nanos()).map_err(|_| {
                Failure::new(Code::Usage, "--for: longer than a machine lives; leave it away")
            })?),
            None => None,
        };
    let new = NewOffer { party: args.party.clone(), gives: args.give, wants: args.want, wait_ns };
    let api = args.ask.of.api()?;
    let made = api.offer(&new).map_err(refused)?;
    warn_of_no_effect(&api, &[args.give.resource, args.want.resource]);
    told(&made, args.ask.json, |o| outcome(o).join("\n"))
}

/// What came of an offer, and what to do where it waits.
fn outcome(made: &Offered) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(x) = &made.exchange {
        lines.push(format!("exchange {}: {}", x.id, traded(x)));
    }
    let Some(o) = &made.offer else { return lines };
    let until = o
        .until_unix_ns
        .map_or_else(|| "until it is withdrawn".to_owned(), |t| format!("until {}", moment(t)));
    lines.push(format!("offer {}: {}; it waits for its complement, {until}", o.id, offered(o)));
    let Some(first) = made.conflicts.first() else { return lines };
    lines.push("others trade the same at other rates:".to_owned());
    lines.extend(made.conflicts.iter().map(|c| format!("  offer {}: {}", c.id, offered(c))));
    let complement = |give: &Give| format!("{}:{}", give.resource, give.amount);
    lines.push(format!(
        "to take up offer {}: divvy exchange offer --give {} --want {}",
        first.id,
        complement(&first.wants),
        complement(&first.gives)
    ));
    lines.push(format!("to withdraw yours: divvy exchange cancel --offer {}", o.id));
    lines
}

/// What there is none of, where there is one of the other kind that has the number.
fn mistaken(api: &Api, id: u64, offer: bool, e: ApiError) -> Failure {
    let wanted = e.code();
    let failure = refused(e);
    if !matches!(wanted, Some(ErrorCode::NoSuchExchange | ErrorCode::NoSuchOffer)) {
        return failure;
    }
    let Ok(all) = api.market() else { return failure };
    let text = if offer && all.exchanges.iter().any(|exchange| exchange.id == id) {
        format!(
            "no offer has the number {id}, but an exchange that holds: to end it, divvy exchange cancel {id}"
        )
    } else if !offer && all.offers.iter().any(|offer| offer.id == id) {
        format!(
            "no exchange has the number {id}, but an offer that waits: to withdraw it, divvy exchange cancel --offer {id}"
        )
    } else {
        return failure;
    };
    Failure { text, ..failure }
}

fn cancel(args: &CancelArgs) -> Result<Code, Failure> {
    let api = args.ask.of.api()?;
    if args.offer {
        let done = |&id: &u64| {
            let mut was = api.withdraw_offer(id).map_err(|e| mistaken(&api, id, true, e))?;
            was.aftermath.lapsed.retain(|&lapsed| lapsed != id);
            Ok(was)
        };
        return each(args, done, |o| format!("offer {}: withdrawn; {}", o.id, offered(o)));
    }
    let done = |&id: &u64| {
        let mut was = api.cancel_exchange(id).map_err(|e| mistaken(&api, id, false, e))?;
        was.aftermath.undone.retain(|&undone| undone != id); // That is what was asked for.
        Ok(was)
    };
    each(args, done, |x| format!("exchange {}: ended; {} no more", x.id, traded(x)))
}

/// Ends each, and tells of it.
fn each<T: Serialize>(
    args: &CancelArgs,
    done: impl Fn(&u64) -> Result<Changed<T>, Failure>,
    words: impl Fn(&T) -> String,
) -> Result<Code, Failure> {
    let as_json = args.ask.json;
    let (all, code) = one_by_one(&args.ids, done, |was| if as_json { Ok(()) } else { shown(was, &words) })?;
    if as_json {
        print(json_of(&args.ids, &all)?)?;
    }
    Ok(code)
}

pub(crate) fn nice(args: &NiceArgs) -> Result<Code, Failure> {
    let new = NewNice {
        client: args.client.clone(),
        from: args.from.clone(),
        resource: Some(args.resource),
        amount: args.amount,
    };
    let api = args.ask.of.api()?;
    let made = api.nice(&new).map_err(refused)?;
    warn_of_no_effect(&api, &[args.resource]);
    told(&made, args.ask.json, |c| {
        let from = c.niced_from.as_deref().unwrap_or("its currency");
        format!(
            "{}: backed by {} now, which has {} of {from}'s {} base tickets; they go back when it ends, what it starts with `divvy run` is paid by them too, and `divvy nice {} N` gives it others",
            args.client,
            c.name,
            args.amount,
            args.resource,
            word(&args.client)
        )
    })
}

pub(crate) fn market(command: &MarketCommand) -> Result<Code, Failure> {
    match command {
        MarketCommand::Explain(args) => explain::run(args),
        MarketCommand::Audit(args) => audit::run(args),
        MarketCommand::Bound(args) => set_bound(args),
    }
}

fn set_bound(args: &BoundArgs) -> Result<Code, Failure> {
    let (resource, bound) = args.bound;
    let api = args.ask.of.api()?;
    api.set_bound(&args.user, Bound { resource, bound }).map_err(refused)?;
    let has = api.market().map_or(0, |graph| given(&graph, &args.user, resource));
    if args.ask.json {
        print(pretty(&json!({ "user": args.user, "resource": resource, "bound": bound }))?)?;
    } else {
        print(bound_words(&args.user, resource, bound, has))?;
        if args.user.parse().is_ok_and(|uid| divvy_linux::user_name(uid).is_none()) {
            print(format!(
                "{}: there is no such account here; it holds for whoever runs under that number",
                args.user
            ))?;
        }
    }
    Ok(Code::Done)
}

/// Base tickets that a user's currencies have.
fn given(graph: &Graph, user: &str, resource: Resource) -> u64 {
    let name = user.parse().ok().and_then(divvy_linux::user_name);
    let own = |c: &&Currency| c.owner == user || Some(&c.owner) == name.as_ref();
    let own: BTreeSet<&str> = graph.currencies.iter().filter(own).map(|c| c.name.as_str()).collect();
    let to_user =
        |t: &&Ticket| t.issuer == "base" && own.contains(t.holder.as_str()) && t.resource == resource;
    graph.tickets.iter().filter(to_user).map(|ticket| ticket.amount).sum()
}

fn bound_words(user: &str, resource: Resource, bound: Option<u64>, has: u64) -> String {
    match bound {
        Some(bound) if has >= bound => format!(
            "{user}: has {has} {resource} base tickets, and may issue none until it has less than {bound}; what it has it keeps"
        ),
        Some(bound) => format!(
            "{user}: may issue {resource} base tickets until it has {bound}, those that it was given among them"
        ),
        None => format!("{user}: may issue no {resource} base tickets"),
    }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
