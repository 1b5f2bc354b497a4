//! Clients: who funds one that comes.

use divvy_market::{
    Amount, Broker, CURRENCY_DEPTH_MAX, CurrencyId, Kind, Made, Mode, Op, Permission, Resource, Resources,
};

use super::resolve::Found;
use super::users::Limited;
use super::{Work, amount};
use crate::market::message::{Identity, Said};
use crate::market::record::{Charge, Step};
use crate::message::Refusal;
use divvy_api::site::JOB_PREFIX;
use divvy_api::types::ErrorCode;

/// Whose tickets a client gets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Funder<'a> {
    /// Those of this currency.
    Named(&'a str),
    /// Those of whoever funds the client that it descends from; the caller's own where there is none.
    Inherited(Option<CurrencyId>),
}

impl Work<'_> {
    /// A client of the caller. It competes for everything from the start: the scheduler says when it does not want the CPU;
    /// memory and disk it is taken to want for as long as it is there.
    ///
    /// Source: section 4.2. A child is funded by the issuer of its parent's first ticket. We differ: its amount is the one
    /// that was asked for (the share), not its parent's. Where that issuer would not let the caller issue, or stands too
    /// deep, the child is funded as any other: by the caller's own currency, of each resource. A funder that the caller names
    /// is taken, or the client refused.
    pub(super) fn admit(
        &mut self,
        name: &str,
        n: u64,
        identity: &Identity,
        funder: Funder<'_>,
        job: Option<&str>,
    ) -> Result<Said, Refusal> {
        let (n, uid) = (amount(n)?, self.caller.uid);
        self.check_client_name(name, identity)?;
        self.check_limit(Limited::Clients)?;
        let group = self.own_group()?;
        self.check_room(3, 9)?;
        let issuers = match funder {
            Funder::Named(word) => match self.look_up(word)? {
                Found::Newcomer(own) if own == uid => self.own_issuers()?,
                Found::Newcomer(_) => {
                    return Err(self.find(word).err().unwrap_or_else(super::asks::unexpected));
                }
                Found::Currency(issuer) => {
                    self.check_issuer(issuer)?;
                    Resource::ALL.map(|resource| (resource, issuer)).to_vec()
                }
            },
            Funder::Inherited(parent) => match parent.and_then(|parent| self.issuers_of(parent)) {
                Some(issuers) => issuers,
                None => self.own_issuers()?,
            },
        };
        let (issuers, n) = match job {
            Some("") => {
                let text = "a job without a name";
                return Err(Refusal::new(ErrorCode::BadRequest, text, "give its number, or leave out `job`"));
            }
            Some(job) => (self.issuers_of_job(job, n, group, &issuers)?, amount(1)?),
            None => (issuers, n),
        };
        // Nothing from here on can be refused: the caller makes something of its own, and the issuers were asked.
        let broker = Broker { owner: uid, group, mode: Mode::PRIVATE };
        let competes = Resources::ALL;
        let Made::Currency(client) = self.op(Op::CreateClient { broker, competes })? else {
            return Err(super::asks::unexpected());
        };
        for (resource, issuer) in issuers {
            self.fund_client(client, issuer, resource, n)?;
        }
        self.note(Step::Name { currency: client, uid, name: name.to_owned() });
        self.note(Step::Client { currency: client, uid, identity: identity.clone() });
        self.ledger.admitted(self.names, client).map(Said::Admitted).ok_or_else(super::asks::unexpected)
    }

    /// The currency of the caller's job, made with `n` tickets of each of `issuers` if it is not there.
    fn issuers_of_job(
        &mut self,
        job: &str,
        n: Amount,
        group: u32,
        issuers: &[(Resource, CurrencyId)],
    ) -> Result<Vec<(Resource, CurrencyId)>, Refusal> {
        let (name, uid) = (format!("{JOB_PREFIX}{job}"), self.caller.uid);
        let currency = match self.named(uid, &name) {
            Some(there) => {
                self.check_issuer(there)?;
                there
            }
            None => {
                self.check_currency_name(&name)?;
                self.check_limit(Limited::Currencies)?;
                let depth = |id: &CurrencyId| self.ledger.market.currency(*id).map_or(0, |view| view.depth);
                if issuers.iter().any(|(_, issuer)| depth(issuer) + 1 >= CURRENCY_DEPTH_MAX) {
                    return Err(self.in_words(divvy_market::Refusal::TooDeep));
                }
                let broker = Broker { owner: uid, group, mode: Mode::PRIVATE };
                let Made::Currency(currency) = self.op(Op::CreateCurrency { broker })? else {
                    return Err(super::asks::unexpected());
                };
                self.note(Step::Name { currency, uid, name });
                self.charge(Charge::Currency(currency));
                for &(resource, issuer) in issuers {
                    self.fund_client(currency, issuer, resource, n)?;
                }
                currency
            }
        };
        Ok(Resource::ALL.map(|resource| (resource, currency)).to_vec())
    }

    pub(super) fn has_issued_nothing(&self, id: CurrencyId) -> bool {
        Resource::ALL.iter().all(|&resource| self.ledger.market.issued_by(id, resource).is_empty())
    }

    fn fund_client(
        &mut self,
        holder: CurrencyId,
        issuer: CurrencyId,
        resource: Resource,
        n: Amount,
    ) -> Result<(), Refusal> {
        self.op(Op::Fund { holder, issuer, resource, amount: n, kind: Kind::Soft }).map(|_| ())
    }

    /// Who funds the children of `parent`: of each resource the issuer of its first soft ticket. `None` where it is no
    /// client of the caller's, or has no such cpu ticket. Base tickets are not passed on: a fork mints nothing.
    fn issuers_of(&self, parent: CurrencyId) -> Option<Vec<(Resource, CurrencyId)>> {
        let (market, base) = (&self.ledger.market, self.ledger.market.base());
        self.ledger.clients.get(&parent).filter(|client| client.uid == self.caller.uid)?;
        let issuer = |resource| {
            let backing = market.backing_of(parent, resource);
            let first =
                backing.into_iter().find(|ticket| ticket.kind == Kind::Soft && ticket.issuer != base)?;
            self.check_issuer(first.issuer).ok().map(|()| (resource, first.issuer))
        };
        let issuers: Vec<(Resource, CurrencyId)> = Resource::ALL.into_iter().filter_map(issuer).collect();
        (issuers.first()?.0 == Resource::Cpu).then_some(issuers)
    }

    /// The caller's own currency, made if this is its first use, for all three resources.
    fn own_issuers(&mut self) -> Result<Vec<(Resource, CurrencyId)>, Refusal> {
        let own = self.ledger.users.get(&self.caller.uid).map(|user| user.currency);
        let own = match own {
            Some(own) => {
                self.check_issuer(own)?;
                own
            }
            // Made as the caller's own, below the base, with a mode that lets it do everything.
            None => self.first_use(self.caller.uid)?,
        };
        Ok(Resource::ALL.map(|resource| (resource, own)).to_vec())
    }

    /// Whether the caller may issue the currency's tickets to something new.
    fn check_issuer(&self, issuer: CurrencyId) -> Result<(), Refusal> {
        use divvy_market::Refusal as No;
        let Some(view) = self.ledger.market.currency(issuer) else {
            return Err(self.in_words(No::UnknownCurrency(issuer)));
        };
        let permission = Permission::Issue;
        if !view.broker.allows(&self.caller, permission) {
            return Err(self.in_words(No::Denied { currency: issuer, permission }));
        }
        if view.client {
            return Err(self.in_words(No::ClientsDoNotIssue(issuer)));
        }
        if view.depth >= CURRENCY_DEPTH_MAX {
            return Err(self.in_words(No::TooDeep));
        }
        Ok(())
    }
}
