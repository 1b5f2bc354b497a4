//! Users: their own currencies, the policy's part in them, and what they can have at most.

use std::collections::BTreeMap;

use divvy_market::{Amount, Broker, CurrencyId, Kind, Made, Op, Resource, TicketId, TicketView};

use super::Work;
use super::asks::unexpected;
use crate::market::record::{Charge, Step};
use crate::message::Refusal;
use divvy_api::types::ErrorCode;

/// What is limited per user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limited {
    Currencies,
    /// With the exchanges that the caller made.
    Tickets,
    Offers,
    Clients,
}

impl Work<'_> {
    /// Refuses one more, where the caller has as many as one may have.
    pub(super) fn check_limit(&self, what: Limited) -> Result<(), Refusal> {
        if self.caller.superuser {
            return Ok(());
        }
        let limits = self.ledger.policy.limits;
        let (words, key, limit) = match what {
            Limited::Currencies => ("currencies", "currencies", limits.currencies),
            Limited::Tickets => ("tickets issued", "tickets", limits.tickets),
            Limited::Offers => ("offers waiting", "offers", limits.offers),
            Limited::Clients => ("clients", "clients", limits.clients),
        };
        let has = self.has(what, limit as usize);
        if has < limit as usize {
            return Ok(());
        }
        let user = self.user(self.caller.uid);
        let text = match has == limit as usize {
            true => format!("user {user} has {has} {words}, as many as one may have"),
            false => format!("user {user} has {has} {words}, and one may have {limit}"),
        };
        let fix = format!("end some, or ask an administrator for more: [limits] {key} in the policy");
        Err(Refusal::new(ErrorCode::Limit, text, fix))
    }

    /// How many of these the caller has. What is gone is only counted out where there would be `limit` with it.
    fn has(&self, what: Limited, limit: usize) -> usize {
        let (market, uid) = (&self.ledger.market, self.caller.uid);
        if what == Limited::Clients {
            return self.ledger.clients.values().filter(|client| client.uid == uid).count();
        }
        let Some(charged) = self.ledger.charged.get(&uid) else { return 0 };
        let exchanges = charged.exchanges.len();
        let all = match what {
            Limited::Currencies => charged.currencies.len(),
            Limited::Tickets => charged.tickets.len() + exchanges,
            Limited::Offers | Limited::Clients => charged.offers.len(),
        };
        if all < limit {
            return all;
        }
        match what {
            Limited::Currencies => {
                charged.currencies.iter().filter(|&&id| market.currency(id).is_some()).count()
            }
            Limited::Tickets => {
                exchanges + charged.tickets.iter().filter(|&&id| market.ticket_view(id).is_some()).count()
            }
            Limited::Offers | Limited::Clients => all,
        }
    }

    /// Counts something against the caller's limits.
    pub(super) fn charge(&mut self, what: Charge) {
        if !self.caller.superuser {
            let uid = self.caller.uid;
            self.note(Step::Charge { uid, what });
        }
    }

    /// Refuses where the market has no room: what is refused later cannot be this any more.
    pub(super) fn check_room(&self, currencies: usize, tickets: usize) -> Result<(), Refusal> {
        if self.ledger.market.has_room(currencies, tickets) {
            Ok(())
        } else {
            Err(self.in_words(divvy_market::Refusal::Full))
        }
    }

    /// The caller's effective group.
    pub(super) fn own_group(&self) -> Result<u32, Refusal> {
        match self.caller.groups.first() {
            Some(&group) => Ok(group),
            None if self.caller.superuser => Ok(0),
            None => {
                Err(Refusal::new(ErrorCode::NotPermitted, "the kernel tells no group of yours", "name one"))
            }
        }
    }

    pub(super) fn own_or_first_use(&mut self) -> Result<CurrencyId, Refusal> {
        match self.ledger.users.get(&self.caller.uid) {
            Some(user) => Ok(user.currency),
            None => self.first_use(self.caller.uid),
        }
    }

    /// Makes a user's own currency, with the base tickets that the policy says. The market must have room for one more
    /// currency and three tickets; nothing else can refuse it.
    pub(super) fn first_use(&mut self, uid: u32) -> Result<CurrencyId, Refusal> {
        self.check_room(1, 3)?;
        let name = self.names.user_name(uid);
        let terms = self.ledger.policy.user(uid, name.as_deref());
        let own = || (uid == self.caller.uid).then(|| self.caller.groups.first().copied()).flatten();
        // A private group of the user's number is what is left where nobody knows better; the mode lets no group do anything.
        let group = self.names.user_group(uid).or_else(own).unwrap_or(uid);
        let made = self.divvyd_op(Op::CreateCurrency { broker: Broker::private(uid, group) });
        let Ok(Made::Currency(currency)) = made else { return Err(unexpected()) };
        let base = self.ledger.market.base();
        for (resource, amount) in Resource::ALL.into_iter().zip(terms.base) {
            let op = Op::Fund { holder: currency, issuer: base, resource, amount, kind: Kind::Soft };
            self.divvyd_op(op).map_err(|refusal| self.in_words(refusal))?;
        }
        self.note(Step::User { uid, currency, granted: terms.base.map(Amount::get) });
        let bounds = self.wanted_bounds().remove(&uid).unwrap_or_default();
        self.set_policy_bounds(uid, bounds);
        Ok(currency)
    }

    /// Refuses what a user could not undo: giving away, or making less, the base tickets of a user's own currency that were
    /// given to it. Those that a user issued to itself, within a bound, it takes back as it likes.
    pub(super) fn check_not_granted(&self, ticket: TicketId) -> Result<(), Refusal> {
        let Some(view) = self.ledger.market.ticket_view(ticket).filter(|_| !self.caller.superuser) else {
            return Ok(());
        };
        let Some(uid) = self.ledger.whose_own(view.holder) else { return Ok(()) };
        if view.issuer != self.ledger.market.base() || self.ledger.issued_by_user(uid, ticket) {
            return Ok(());
        }
        let (holder, n, resource) = (self.name(view.holder), view.amount, view.resource);
        let text = format!(
            "not permitted: the {n} {resource} base tickets of ticket {ticket} were given to {holder}, which could not have them back"
        );
        let fix =
            "give a program less with `divvy set`, `divvy nice` or `divvy exchange`, or ask an administrator";
        Err(Refusal::new(ErrorCode::NotPermitted, text, fix))
    }

    /// Base tickets that back `currencies` and were given to user `uid`.
    fn given(&self, uid: u32, currencies: &[CurrencyId], resource: Resource) -> u64 {
        let market = &self.ledger.market;
        let base = market.base();
        let given = |ticket: &TicketView| {
            ticket.issuer == base && ticket.kind == Kind::Soft && !self.ledger.issued_by_user(uid, ticket.id)
        };
        let backing = currencies.iter().flat_map(|&id| market.backing_of(id, resource));
        let here: u64 = backing.filter(given).map(|ticket| ticket.amount).sum();
        // What others have of it for a while, by exchanges over nodes, is not missing.
        here + currencies.iter().map(|&id| self.ledger.legs.given_away(id, resource)).sum::<u64>()
    }

    /// Each user's own currency, and then those that `nice` made of it: what they have of the base is that user's too.
    fn own_and_niced(&self) -> BTreeMap<u32, Vec<CurrencyId>> {
        let mut niced: BTreeMap<CurrencyId, Vec<CurrencyId>> = BTreeMap::new();
        for view in self.ledger.market.currencies() {
            if let Some(origin) = view.niced_from {
                niced.entry(origin).or_default().push(view.id);
            }
        }
        let all = |user: &super::User| {
            let mut all = vec![user.currency];
            all.extend(niced.get(&user.currency).into_iter().flatten());
            all
        };
        self.ledger.users.iter().map(|(&uid, user)| (uid, all(user))).collect()
    }

    /// Makes grants and bounds what the policy says. What is not mentioned any more goes back to what everybody has, and
    /// what a user has lost of it comes back.
    pub(super) fn follow_policy(&mut self) {
        let users: Vec<(u32, CurrencyId, [u64; 3])> =
            self.ledger.users.iter().map(|(&uid, user)| (uid, user.currency, user.granted)).collect();
        let own = self.own_and_niced();
        for (uid, currency, granted) in users {
            let name = self.names.user_name(uid);
            let wanted = self.ledger.policy.user(uid, name.as_deref()).base.map(Amount::get);
            for ((resource, was), is) in Resource::ALL.into_iter().zip(granted).zip(wanted) {
                if is < was {
                    self.end_legs_of(currency, Some(resource));
                }
                if was != is {
                    self.regrant(currency, resource, was, is);
                }
                // Whoever took it, and however long ago: the file says what is to be there.
                let has = self.given(uid, &own[&uid], resource);
                if has < is {
                    self.regrant(currency, resource, has, is);
                }
            }
            if wanted != granted {
                self.note(Step::Granted { uid, granted: wanted });
            }
        }
        let wanted = self.wanted_bounds();
        let mut uids: Vec<u32> = wanted.keys().chain(self.ledger.bounds.keys()).copied().collect();
        uids.sort_unstable();
        uids.dedup();
        for uid in uids {
            self.set_policy_bounds(uid, wanted.get(&uid).copied().unwrap_or_default());
        }
    }

    /// Adds or takes the difference between two grants: what the user or an administrator did with the rest stays. Tickets
    /// that `nice` moved away come back in their time; less than none cannot be taken.
    fn regrant(&mut self, holder: CurrencyId, resource: Resource, was: u64, is: u64) {
        let base = self.ledger.market.base();
        let granted = |ticket: &TicketView| ticket.issuer == base && ticket.kind == Kind::Soft;
        let backing = self.ledger.market.backing_of(holder, resource);
        let tickets: Vec<TicketView> = backing.into_iter().filter(granted).collect();
        if is > was {
            let more = is - was;
            let op = match tickets.first() {
                Some(ticket) => {
                    let amount = Amount::new(ticket.amount.saturating_add(more)).unwrap_or(Amount::MAX);
                    Op::SetAmount { ticket: ticket.id, amount }
                }
                None => {
                    let amount = Amount::new(more).unwrap_or(Amount::MAX);
                    Op::Fund { holder, issuer: base, resource, amount, kind: Kind::Soft }
                }
            };
            // Refused only where the path below has become too deep for a new ticket: the user stays without it.
            let _ = self.divvyd_op(op);
            return;
        }
        let mut less = was - is;
        for ticket in tickets {
            if less == 0 {
                return;
            }
            let op = match Amount::new(ticket.amount.saturating_sub(less)) {
                Ok(amount) => Op::SetAmount { ticket: ticket.id, amount },
                Err(_) => Op::Unfund { ticket: ticket.id },
            };
            less -= less.min(ticket.amount);
            let _ = self.divvyd_op(op);
        }
    }

    /// The bounds that the policy names, of users who are known.
    fn wanted_bounds(&self) -> BTreeMap<u32, [Option<u64>; 3]> {
        let known = |word: &String| self.names.user_id(word).or_else(|| word.parse().ok());
        let bounds = &self.ledger.policy.bounds;
        bounds.iter().filter_map(|(word, bounds)| Some((known(word)?, bounds.all()))).collect()
    }

    fn set_policy_bounds(&mut self, uid: u32, bounds: [Option<u64>; 3]) {
        let before = self.ledger.bounds.get(&uid).copied().unwrap_or_default();
        if before == bounds {
            return;
        }
        for ((resource, was), bound) in Resource::ALL.into_iter().zip(before).zip(bounds) {
            if was != bound {
                // A superuser may, whoever the user is.
                let _ = self.divvyd_op(Op::SetBound { uid, resource, bound });
            }
        }
        self.note(Step::PolicyBounds { uid, bounds });
    }
}
