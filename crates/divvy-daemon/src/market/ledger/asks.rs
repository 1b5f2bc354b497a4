//! Each request as operations.

use std::collections::BTreeSet;

use divvy_linux::Selector;
use divvy_market::{
    Amount, Broker, CurrencyId, ExchangeId, Kind, Made, Mode, Moment, OfferId, Op, Resource, Side, TicketId,
    TicketView,
};

use super::admit::Funder;
use super::resolve::Found;
use super::users::Limited;
use super::{Client, Work, amount};
use crate::market::message::{Ask, Said};
use crate::market::policy::EVERYTHING;
use crate::market::record::{Charge, Step};
use crate::message::Refusal;
use divvy_api::market::{
    Bound, Changed, CurrencyChange, Give, NewCurrency, NewExchange, NewNice, NewOffer, NewTicket, Offered,
};
use divvy_api::types::ErrorCode;

impl Work<'_> {
    pub(super) fn answer(&mut self, ask: &Ask) -> Result<Said, Refusal> {
        match ask {
            Ask::Graph => Ok(Said::Graph(self.graph())),
            Ask::Currency(word) => {
                let id = self.find(word)?;
                self.currency(id).map(Said::Currency)
            }
            Ask::CreateCurrency(new) => self.create_currency(new),
            Ask::ChangeCurrency(word, change) => self.change_currency(word, change),
            Ask::DestroyCurrency(word) => self.destroy_currency(word),
            Ask::Ticket(word) => {
                let id = ticket_id(word)?;
                self.ticket(id).map(Said::Ticket)
            }
            Ask::CreateTicket(new) => self.create_ticket(new),
            Ask::ChangeTicket(word, change) => self.change_ticket(word, change.amount),
            Ask::DestroyTicket(word) => self.destroy_ticket(word),
            Ask::CreateExchange(new) => self.create_exchange(new),
            Ask::CancelExchange(id) => self.cancel_exchange(*id),
            Ask::CreateOffer(new) => self.create_offer(new),
            Ask::WithdrawOffer(id) => self.withdraw_offer(*id),
            Ask::Nice(new) => self.nice(new),
            Ask::Site => Ok(Said::Site(self.site())),
            Ask::SetSite(table) => self.set_site(table),
            Ask::Orders(orders) => self.follow_orders(orders),
            Ask::SetBound(user, bound) => self.set_bound(user, *bound),
            Ask::Explain(word, resource) => {
                let id = self.find(word)?;
                self.explain(id, *resource).map(Said::Explained)
            }
            Ask::Admit { name, amount, identity, parent, from, job } => {
                let funder = match from {
                    Some(word) => Funder::Named(word),
                    None => Funder::Inherited(*parent),
                };
                self.admit(name, *amount, identity, funder, job.as_deref())
            }
            Ask::SetShare { client, amount } => self.set_share(*client, *amount),
            Ask::SetTerms { client, terms } => self.set_terms(*client, terms),
            Ask::MayLeave { client } => self.may_leave(*client),
            Ask::Leave { client } => self.leave(*client),
            Ask::Reload(policy) => {
                if !self.caller.superuser {
                    return Err(self.in_words(divvy_market::Refusal::SuperuserOnly));
                }
                self.ledger.set_policy((**policy).clone());
                self.follow_policy();
                Ok(Said::Done)
            }
            Ask::Noted { refused: Some(why), .. } => Err(Refusal::new(ErrorCode::NotPermitted, why, "")),
            Ask::Noted { refused: None, .. } => Ok(Said::Done),
            Ask::Audit { .. } => {
                Err(Refusal::new(ErrorCode::Internal, "the audit log is the store's", "report this"))
            }
        }
    }

    /// An answer with what else came of it.
    fn changed<T>(&mut self, result: T) -> Changed<T> {
        Changed { result, aftermath: std::mem::take(&mut self.aftermath) }
    }

    /// As [`Work::find`], for something that is to be changed: where a superuser names a user who has no currency yet, it
    /// is made, and undone if nothing comes of it.
    pub(super) fn find_to_change(&mut self, word: &str) -> Result<CurrencyId, Refusal> {
        match self.look_up(word)? {
            Found::Newcomer(uid) if self.caller.superuser => {
                if self.before.is_none() {
                    self.before = Some(Box::new(self.ledger.clone()));
                }
                self.first_use(uid)
            }
            _ => self.find(word),
        }
    }

    fn create_currency(&mut self, new: &NewCurrency) -> Result<Said, Refusal> {
        let mode = new.mode.as_deref().map_or(Ok(Mode::PRIVATE), mode)?;
        let group = match &new.group {
            Some(word) => self.group_id(word)?,
            None => self.own_group()?,
        };
        // By a user's name: that user's own currency, for whom it may be made.
        if let Some(uid) = self.own_currency_of(&new.name)
            && self.may_make_own(uid)
            && new.group.is_none()
            && new.mode.is_none()
        {
            if self.ledger.users.contains_key(&uid) {
                let text = format!("user {} has a currency already", new.name);
                let fix = format!("see `divvy currency tree`, or {}", self.another_name(&new.name));
                return Err(Refusal::new(ErrorCode::NameTaken, text, fix));
            }
            let id = self.first_use(uid)?;
            let view = self.currency(id)?;
            return Ok(Said::ChangedCurrency(self.changed(view)));
        }
        self.check_currency_name(&new.name)?;
        self.check_limit(Limited::Currencies)?;
        let broker = Broker { owner: self.caller.uid, group, mode };
        if !self.caller.may_create(&broker) {
            return Err(self.in_words(divvy_market::Refusal::NotYourIds));
        }
        self.check_room(2, 3)?;
        self.own_or_first_use()?;
        let Made::Currency(id) = self.op(Op::CreateCurrency { broker })? else { return Err(unexpected()) };
        let uid = self.caller.uid;
        self.note(Step::Name { currency: id, uid, name: new.name.clone() });
        self.charge(Charge::Currency(id));
        let view = self.currency(id)?;
        Ok(Said::ChangedCurrency(self.changed(view)))
    }

    fn change_currency(&mut self, word: &str, change: &CurrencyChange) -> Result<Said, Refusal> {
        if *change == CurrencyChange::default() {
            let fix = "give mode, owner, group or hard_total";
            return Err(Refusal::new(ErrorCode::BadRequest, "nothing is to be changed", fix));
        }
        let mode = change.mode.as_deref().map(mode).transpose()?;
        let owner = change.owner.as_deref().map(|word| self.user_id(word)).transpose()?;
        let group = change.group.as_deref().map(|word| self.group_id(word)).transpose()?;
        let total =
            change.hard_total.map(|give| amount(give.amount).map(|n| (give.resource, n))).transpose()?;
        let id = self.find_to_change(word)?;
        let Some(view) = self.ledger.market.currency(id) else { return Err(unexpected()) };
        let (was, root) = (view.broker, self.caller.superuser);
        // All that could refuse the second and third operation is asked before the first.
        if (mode.is_some() || owner.is_some() || group.is_some()) && !root && was.owner != self.caller.uid {
            return Err(self.in_words(divvy_market::Refusal::NotOwner(id)));
        }
        let (owner, group) = (owner.unwrap_or(was.owner), group.unwrap_or(was.group));
        let moves = (owner, group) != (was.owner, was.group);
        if moves {
            if id == self.ledger.market.base() {
                return Err(self.in_words(divvy_market::Refusal::BaseCurrency));
            }
            if !root && (owner != was.owner || !self.caller.groups.contains(&group)) {
                return Err(self.in_words(divvy_market::Refusal::NotYourIds));
            }
        }
        if owner != was.owner {
            self.check_may_be_given(id, owner)?;
        }
        if let Some((resource, total)) = total {
            self.op(Op::SetHardTotal { currency: id, resource, total })?;
        }
        if moves {
            self.op(Op::SetOwner { currency: id, owner, group })?;
        }
        if let Some(mode) = mode {
            self.op(Op::SetMode { currency: id, mode })?;
        }
        if owner != was.owner
            && let Some(name) = self.ledger.named.get(&id).map(|name| name.name.clone())
        {
            self.note(Step::Name { currency: id, uid: owner, name });
        }
        let view = self.currency(id)?;
        Ok(Said::ChangedCurrency(self.changed(view)))
    }

    /// A user's own currency stays that user's, and a client its maker's: what it stands for would not change with it.
    fn check_may_be_given(&self, id: CurrencyId, owner: u32) -> Result<(), Refusal> {
        let is_own = self.ledger.users.values().any(|user| user.currency == id);
        if is_own || self.ledger.clients.contains_key(&id) {
            let what = if is_own { "a user's own currency" } else { "a client" };
            let text = format!("{} is {what}, and stays with its owner", self.name(id));
            return Err(Refusal::new(ErrorCode::Refused, text, "make a currency, and give that away"));
        }
        match self.ledger.named.get(&id) {
            Some(name) => self.check_free(&name.name, owner),
            None => Ok(()),
        }
    }

    fn destroy_currency(&mut self, word: &str) -> Result<Said, Refusal> {
        let id = self.find(word)?;
        let is_own = self.ledger.users.values().any(|user| user.currency == id);
        if is_own && !self.caller.superuser {
            // It would come back with all its base tickets at the next use.
            let text = format!("not permitted: {} is a user's own currency", self.name(id));
            return Err(Refusal::new(ErrorCode::NotPermitted, text, "ask an administrator"));
        }
        if self.ledger.clients.contains_key(&id) {
            let text = format!("{} is a client that is divided just now", self.name(id));
            return Err(Refusal::new(ErrorCode::Refused, text, "detach it: `divvy detach`"));
        }
        self.check_backs_nobody(id, is_own)?;
        self.check_is_no_nice_clients(id)?;
        let view = self.currency(id)?;
        self.end_legs_of(id, None);
        self.op(Op::Destroy { currency: id })?;
        Ok(Said::ChangedCurrency(self.changed(view)))
    }

    /// Refuses to end what `nice` made of a currency for a client that is there: its tickets would go back, and the client, whose old ticket
    /// is gone, would have none.
    fn check_is_no_nice_clients(&self, id: CurrencyId) -> Result<(), Refusal> {
        let market = &self.ledger.market;
        if market.currency(id).is_none_or(|view| view.niced_from.is_none()) {
            return Ok(());
        }
        let mut issued = Resource::ALL.into_iter().flat_map(|resource| market.issued_by(id, resource));
        let is_all_of = |ticket: &TicketView| {
            let mut backing = market.backing_of(ticket.holder, ticket.resource).into_iter();
            self.ledger.clients.contains_key(&ticket.holder) && backing.all(|other| other.issuer == id)
        };
        let Some(client) = issued.find(is_all_of).map(|ticket| ticket.holder) else { return Ok(()) };
        let (nice, client) = (self.name(id), self.name(client));
        let text = format!("{nice} funds {client}, which would be left with nothing");
        let fix = format!("`divvy nice {client} N` gives it another amount; {nice} ends with it");
        Err(Refusal::new(ErrorCode::Refused, text, fix))
    }

    /// Refuses to end a user's own currency while clients are funded by it, or by what it funds: it would be made anew at the user's
    /// next client, and these would stay without.
    fn check_backs_nobody(&self, id: CurrencyId, is_own: bool) -> Result<(), Refusal> {
        let market = &self.ledger.market;
        let (mut seen, mut to_do) = (BTreeSet::from([id]), if is_own { vec![id] } else { Vec::new() });
        while let Some(issuer) = to_do.pop() {
            let issued = Resource::ALL.into_iter().flat_map(|resource| market.issued_by(issuer, resource));
            to_do.extend(issued.map(|ticket| ticket.holder).filter(|&holder| seen.insert(holder)));
        }
        let funded: Vec<CurrencyId> =
            seen.into_iter().filter(|holder| self.ledger.clients.contains_key(holder)).collect();
        let Some(&first) = funded.first() else { return Ok(()) };
        let more = if funded.len() > 1 { format!(" and {} more", funded.len() - 1) } else { String::new() };
        let text = format!(
            "{} is a user's own currency and funds clients that are divided just now: {}{more}",
            self.name(id),
            self.name(first)
        );
        let fix = "detach them first: `divvy detach`; or take base tickets from it: `divvy unfund`";
        Err(Refusal::new(ErrorCode::Refused, text, fix))
    }

    fn create_ticket(&mut self, new: &NewTicket) -> Result<Said, Refusal> {
        let n = amount(new.amount)?;
        self.check_limit(Limited::Tickets)?;
        let issuer = self.find_to_change(&new.issuer)?;
        let holder = self.find_to_change(&new.holder)?;
        let (resource, kind) = (new.resource, new.kind);
        let made = self.op(Op::Fund { holder, issuer, resource, amount: n, kind })?;
        let Made::Ticket(id) = made else { return Err(unexpected()) };
        self.charge(Charge::Ticket(id));
        let view = self.ticket(id)?;
        Ok(Said::ChangedTicket(self.changed(view)))
    }

    fn change_ticket(&mut self, word: &str, n: u64) -> Result<Said, Refusal> {
        let (ticket, n) = (ticket_id(word)?, amount(n)?);
        if self.ledger.market.ticket_view(ticket).is_some_and(|view| n.get() < view.amount) {
            self.check_not_granted(ticket)?;
        }
        self.op(Op::SetAmount { ticket, amount: n })?;
        let view = self.ticket(ticket)?;
        Ok(Said::ChangedTicket(self.changed(view)))
    }

    fn destroy_ticket(&mut self, word: &str) -> Result<Said, Refusal> {
        let ticket = ticket_id(word)?;
        let view = self.ticket(ticket)?;
        self.check_not_granted(ticket)?;
        self.op(Op::Unfund { ticket })?;
        Ok(Said::ChangedTicket(self.changed(view)))
    }

    fn create_exchange(&mut self, new: &NewExchange) -> Result<Said, Refusal> {
        let (a_gives, b_gives) = (side(new.a_gives)?, side(new.b_gives)?);
        let (a, b) = (self.find(&new.a)?, self.find(&new.b)?);
        self.check_limit(Limited::Tickets)?;
        let made = self.trade(Op::Exchange { a, a_gives, b, b_gives }, &[(a, a_gives), (b, b_gives)])?;
        let Made::Exchange { exchange, .. } = made else { return Err(unexpected()) };
        self.charge(Charge::Exchange(exchange));
        let view = self.exchange(exchange)?;
        Ok(Said::Exchange(self.changed(view)))
    }

    /// As [`Work::op`], where whoever of `gives` has too little is told how much it has.
    fn trade(&mut self, op: Op, gives: &[(CurrencyId, Side)]) -> Result<Made, Refusal> {
        self.try_op(op).map_err(|refusal| {
            let said = self.in_words(refusal);
            let divvy_market::Refusal::NotEnough(id) = refusal else { return said };
            let Some((_, side)) = gives.iter().find(|(party, _)| *party == id) else { return said };
            let has =
                self.ledger.market.value(id, side.resource).ok().and_then(|value| value.floor()).unwrap_or(0);
            let (resource, amount) = (side.resource, side.amount);
            let text = format!(
                "{}: of {resource} it has {has}, in base tickets, and would give {amount}",
                said.message
            );
            Refusal { message: text, ..said }
        })
    }

    fn cancel_exchange(&mut self, id: u64) -> Result<Said, Refusal> {
        let view = self.exchange(ExchangeId(id))?;
        self.op(Op::CancelExchange { exchange: ExchangeId(id) })?;
        Ok(Said::Exchange(self.changed(view)))
    }

    fn create_offer(&mut self, new: &NewOffer) -> Result<Said, Refusal> {
        let (gives, wants) = (side(new.gives)?, side(new.wants)?);
        let party = self.find_or_own(new.party.as_ref())?;
        self.check_limit(Limited::Offers)?;
        self.check_limit(Limited::Tickets)?;
        let now = Moment(self.at_ns);
        // One that ends after the end of time waits for ever.
        let until = new.wait_ns.map(|wait| Moment(self.at_ns.saturating_add(wait)));
        let offer = Op::Offer { party, gives, wants, now, until };
        let offered = match self.trade(offer, &[(party, gives)])? {
            Made::Exchange { exchange, .. } => {
                self.charge(Charge::Exchange(exchange));
                Offered { exchange: Some(self.exchange(exchange)?), offer: None, conflicts: Vec::new() }
            }
            Made::Offer { offer, conflicts } => {
                self.charge(Charge::Offer(offer));
                let conflicts = conflicts.iter().filter_map(|c| self.offer(c.offer).ok()).collect();
                Offered { exchange: None, offer: Some(self.offer(offer)?), conflicts }
            }
            _ => return Err(unexpected()),
        };
        Ok(Said::Offered(self.changed(offered)))
    }

    fn withdraw_offer(&mut self, id: u64) -> Result<Said, Refusal> {
        let view = self.offer(OfferId(id))?;
        self.op(Op::Withdraw { offer: OfferId(id) })?;
        Ok(Said::Offer(self.changed(view)))
    }

    fn nice(&mut self, new: &NewNice) -> Result<Said, Refusal> {
        let (client, n) = (self.find(&new.client)?, amount(new.amount)?);
        let resource = new.resource.unwrap_or(Resource::Cpu);
        let from = match &new.from {
            None if self.caller.superuser => self.funder_of(client, resource)?,
            from => self.find_or_own(from.as_ref())?,
        };
        let niced = self.ledger.market.niced(client, from, resource);
        let currency = match niced {
            // Another amount of what it has is no second currency.
            Some(currency) => {
                let done = self.op(Op::Renice { currency, amount: n });
                done.map_err(|refusal| self.too_much(refusal, n, &[from, currency], resource))?;
                currency
            }
            None => {
                self.check_limit(Limited::Currencies)?;
                let done = self.op(Op::Nice { client, from, resource, amount: n });
                let done = done.map_err(|refusal| self.too_much(refusal, n, &[from], resource))?;
                let Made::Currency(made) = done else {
                    return Err(unexpected());
                };
                self.charge(Charge::Currency(made));
                self.name_after(made, client);
                made
            }
        };
        self.leave_only(client, currency, from, resource)?;
        let view = self.currency(currency)?;
        Ok(Said::ChangedCurrency(self.changed(view)))
    }

    /// Why `nice` was refused `n` base tickets that `currencies` were to give, or have already: where that is more than there are, how many
    /// there are.
    fn too_much(
        &self,
        refusal: Refusal,
        n: Amount,
        currencies: &[CurrencyId],
        resource: Resource,
    ) -> Refusal {
        let market = &self.ledger.market;
        let backing = currencies.iter().flat_map(|&currency| market.backing_of(currency, resource));
        let of_base = backing.filter(|ticket| ticket.issuer == market.base() && ticket.kind == Kind::Soft);
        let has: u64 = of_base.map(|ticket| ticket.amount).sum();
        if refusal.code != ErrorCode::Refused || n.get() <= has {
            return refusal;
        }
        let text = format!(
            "{} has {has} {resource} base tickets that could go with it, not {n}",
            self.name(currencies[0])
        );
        Refusal::new(
            ErrorCode::Refused,
            text,
            "give as many at most; or name another currency that gives them: --from",
        )
    }

    /// Whose tickets of `resource` a client has: an administrator who asks for less for it does not mean to pay for that. Where it has
    /// none, the own currency of its user.
    fn funder_of(&self, client: CurrencyId, resource: Resource) -> Result<CurrencyId, Refusal> {
        let market = &self.ledger.market;
        let origin = |issuer| market.currency(issuer).and_then(|view| view.niced_from).unwrap_or(issuer);
        let backing = market.backing_of(client, resource);
        let funders: BTreeSet<CurrencyId> = backing.into_iter().map(|ticket| origin(ticket.issuer)).collect();
        let mut funders = funders.into_iter();
        match (funders.next(), funders.next()) {
            (Some(one), None) => Ok(one),
            (Some(one), Some(other)) => {
                let (client, one, other) = (self.name(client), self.name(one), self.name(other));
                let text = format!("{client} has {resource} tickets of {one} and of {other}");
                Err(Refusal::new(ErrorCode::Refused, text, "say whose it is to have from now on: --from"))
            }
            _ => {
                let uid = market.currency(client).map_or(self.caller.uid, |view| view.broker.owner);
                let own = self.ledger.users.get(&uid).map(|user| user.currency);
                own.ok_or_else(|| self.no_currency_yet(uid))
            }
        }
    }

    /// Calls what `nice` has made for a client after it (`build-nice`). Where its owner has something of that name its id has to do.
    fn name_after(&mut self, made: CurrencyId, client: CurrencyId) {
        let Some(name) = self.ledger.named.get(&client).map(|name| format!("{}-nice", name.name)) else {
            return;
        };
        let Some(uid) = self.ledger.market.currency(made).map(|view| view.broker.owner) else { return };
        let free = !super::site::is_reserved(&name) && self.check_currency_name(&name).is_ok();
        if free && self.check_free(&name, uid).is_ok() {
            self.note(Step::Name { currency: made, uid, name });
        }
    }

    /// Takes from a client all tickets of `resource` that come of `from`, by `nice` or at once, but those of `kept`.
    fn leave_only(
        &mut self,
        client: CurrencyId,
        kept: CurrencyId,
        from: CurrencyId,
        resource: Resource,
    ) -> Result<(), Refusal> {
        let market = &self.ledger.market;
        let comes_of =
            |issuer| issuer == from || market.currency(issuer).is_some_and(|c| c.niced_from == Some(from));
        let is_other = |ticket: &TicketView| {
            ticket.holder == client
                && ticket.resource == resource
                && ticket.issuer != kept
                && comes_of(ticket.issuer)
        };
        let others: Vec<TicketId> = market.tickets().filter(is_other).map(|ticket| ticket.id).collect();
        others.into_iter().try_for_each(|ticket| self.op(Op::Unfund { ticket }).map(drop))
    }

    fn set_bound(&mut self, user: &str, Bound { resource, bound }: Bound) -> Result<Said, Refusal> {
        let uid = self.user_id(user)?;
        self.op(Op::SetBound { uid, resource, bound })?;
        Ok(Said::Done)
    }

    pub(super) fn set_share(&mut self, client: CurrencyId, n: u64) -> Result<Said, Refusal> {
        let n = amount(n)?;
        self.check_client(client)?;
        let Some(ticket) = self.ledger.share_ticket(client) else {
            let text = format!("{} holds no cpu ticket that could be changed", self.name(client));
            return Err(Refusal::new(ErrorCode::Refused, text, "fund it: `divvy fund`"));
        };
        let market = &self.ledger.market;
        let origin = market.currency(ticket.issuer).and_then(|issuer| issuer.niced_from);
        if origin.and_then(|from| market.niced(client, from, Resource::Cpu)) == Some(ticket.issuer) {
            let (name, issuer) = (self.name(client), self.name(ticket.issuer));
            let text = format!("{name} is nice: all that {issuer} has is its, and no share changes that");
            return Err(Refusal::new(ErrorCode::Refused, text, format!("`divvy nice {name} AMOUNT`")));
        }
        self.op(Op::SetAmount { ticket: ticket.id, amount: n })?;
        Ok(Said::Done)
    }

    fn leave(&mut self, client: CurrencyId) -> Result<Said, Refusal> {
        if self.caller.superuser && self.ledger.market.currency(client).is_none() {
            // It was let go by name, and the scheduler says so once more.
            return Ok(Said::Done);
        }
        self.check_client(client)?;
        let job = self.ledger.job_of(client);
        self.op(Op::Destroy { currency: client })?;
        if let Some(job) = job.filter(|&job| self.has_issued_nothing(job)) {
            self.op(Op::Destroy { currency: job })?;
        }
        Ok(Said::Done)
    }

    /// What the policy divides stays divided, unless an administrator lets it go.
    fn may_leave(&self, client: CurrencyId) -> Result<Said, Refusal> {
        let name = self.ledger.named.get(&client).map(|named| named.name.as_str());
        let all = |of: &Client| of.identity.selector == Selector::User(of.uid).to_string();
        let whose = self.ledger.clients.get(&client).filter(|of| name == Some(EVERYTHING) && all(of));
        let Some(Client { uid, .. }) = whose.filter(|_| !self.caller.superuser) else {
            return Ok(Said::Done);
        };
        let user = self.names.user_name(*uid);
        if !self.ledger.policy.user(*uid, user.as_deref()).everything {
            return Ok(Said::Done);
        }
        let text = format!("the policy divides all that {} runs (`everything`)", self.user(*uid));
        Err(Refusal::new(ErrorCode::NotPermitted, text, "ask an administrator"))
    }

    pub(super) fn check_client(&self, id: CurrencyId) -> Result<(), Refusal> {
        if self.ledger.market.currency(id).is_none() {
            return Err(self.in_words(divvy_market::Refusal::UnknownCurrency(id)));
        }
        if !self.ledger.clients.contains_key(&id) {
            return Err(self.in_words(divvy_market::Refusal::NotAClient(id)));
        }
        Ok(())
    }
}

fn side(give: Give) -> Result<Side, Refusal> {
    Ok(Side { resource: give.resource, amount: amount(give.amount)? })
}

fn ticket_id(word: &str) -> Result<TicketId, Refusal> {
    word.parse().map_err(|e| {
        let text = format!("'{}' names no ticket: {e}", super::resolve::brief(word));
        Refusal::new(ErrorCode::NoSuchTicket, text, "see `divvy currency tree`")
    })
}

/// Three octal digits, or nine letters of `fci` and `-`.
pub(crate) fn mode(text: &str) -> Result<Mode, Refusal> {
    // Of a number that may have a sign, as from_str_radix takes it, three digits are only two.
    let unsigned = text.len() == 3 && !text.starts_with('+');
    let digits = || unsigned.then(|| u16::from_str_radix(text, 8).ok()).flatten();
    let letters = || {
        let bits = text.bytes().zip(b"fcifcifci").map(|(is, letter)| match is {
            b'-' => Some(0u16),
            is if is == *letter => Some(1),
            _ => None,
        });
        let bits: Option<Vec<u16>> = bits.collect();
        bits.filter(|_| text.len() == 9).map(|bits| bits.into_iter().fold(0, |mode, bit| mode << 1 | bit))
    };
    digits().or_else(letters).and_then(|bits| Mode::try_from(bits).ok()).ok_or_else(|| {
        let text = format!("'{}' is no mode", super::resolve::brief(text));
        let fix = "write three octal digits, as in 740, or nine letters, as in fcif-----: f fund, c change, i issue";
        Refusal::new(ErrorCode::BadRequest, text, fix)
    })
}

/// An operation made something else than it makes.
pub(super) fn unexpected() -> Refusal {
    Refusal::new(ErrorCode::Internal, "the market made something else than was asked for", "report this")
}
