//! A site's table of accounts and users as currencies: account over account over user.
//!
//! What a table made is known by its name: nobody but a superuser may begin one with [`SITE_PREFIX`]. So the currencies are
//! the table that holds, and giving the same one again changes nothing. Whoever is not in the table any more goes, but
//! not before the last client below has left: a job that runs is not to lose its rights by a clerk's hand.

use std::collections::{BTreeMap, BTreeSet};

use divvy_market::{Amount, Broker, CurrencyId, Kind, Made, Op, Resource, TicketView};

use super::asks::unexpected;
use super::{Name, Work, amount};
use crate::market::message::Said;
use crate::market::record::Step;
use crate::message::Refusal;
use divvy_api::site::{ROOT_ACCOUNT, SITE_PREFIX, Site, SiteTable};
use divvy_api::types::ErrorCode;

/// A table may be so many versions newer than the one that holds, or as new as Unix time in seconds and this much: one from a
/// clock that runs ahead would have all that come after it refused.
const LEAP_MAX: u64 = 1000;
const AHEAD_MAX_S: u64 = 300;
const NS_PER_S: u64 = 1_000_000_000;

/// A table that was checked: what each currency is to be. The site's own is that of [`ROOT_ACCOUNT`].
type Wanted = BTreeMap<Key, Place>;

/// Whose currency of which account; the account's own is user 0's.
type Key = (Option<u32>, String);

/// Where a currency is in the table.
struct Place {
    /// The account above; `None` for the site's own, which the base funds.
    above: Option<String>,
    shares: Amount,
}

/// Whether `name` is what only a table gives.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with(SITE_PREFIX)
}

fn bad(message: String, fix: &str) -> Refusal {
    Refusal::new(ErrorCode::BadRequest, message, fix)
}

impl Work<'_> {
    /// What holds.
    pub(super) fn site(&self) -> Site {
        let named = self.site_currencies();
        let kept = named.values().filter(|id| self.is_unfunded(**id));
        Site {
            version: self.ledger.site.version,
            kept: kept.map(|&id| self.name(id)).collect(),
            currencies: named.values().map(|&id| self.name(id)).collect(),
            changes: 0,
        }
    }

    /// Makes the currencies what the table says.
    ///
    /// # Errors
    /// Names the account or user that cannot be; nothing has changed then.
    pub(super) fn set_site(&mut self, table: &SiteTable) -> Result<Said, Refusal> {
        if !self.caller.superuser {
            return Err(self.in_words(divvy_market::Refusal::SuperuserOnly));
        }
        if table.version < self.ledger.site.version {
            let text = format!(
                "table {} is older than table {}, which holds",
                table.version, self.ledger.site.version
            );
            return Err(Refusal::new(
                ErrorCode::Refused,
                text,
                "give a newer one; GET /v1/market/site says which holds",
            ));
        }
        let newest =
            self.ledger.site.version.saturating_add(LEAP_MAX).max(self.at_ns / NS_PER_S + AHEAD_MAX_S);
        if table.version > newest {
            let text = format!(
                "table {} is too far ahead of table {}, which holds, and of this node's clock",
                table.version, self.ledger.site.version
            );
            let fix =
                "number tables one after the other, or by Unix time in seconds from a clock that is right";
            return Err(Refusal::new(ErrorCode::Refused, text, fix));
        }
        let wanted = self.check_table(table)?;
        let count = wanted.len();
        self.check_room(count, count.saturating_mul(3))?;
        if self.before.is_none() {
            self.before = Some(Box::new(self.ledger.clone()));
        }
        let begun = self.steps.len();
        let ids = self.make_currencies(&wanted)?;
        self.take_wrong_tickets(&wanted, &ids)?;
        self.give_tickets(&wanted, &ids)?;
        let kept = self.end_unwanted(&ids)?;
        let names = |step: &&Step| !matches!(step, Step::Name { .. });
        let changes = self.steps[begun..].iter().filter(names).count();
        self.note(Step::Site { version: table.version, kept });
        Ok(Said::Site(Site { changes, ..self.site() }))
    }

    /// Every currency that a table made, by whose it is and of which account.
    fn site_currencies(&self) -> BTreeMap<Key, CurrencyId> {
        let of_site = |(name, id): (&Name, &CurrencyId)| {
            let account = name.name.strip_prefix(SITE_PREFIX)?;
            let view = self.ledger.market.currency(*id).filter(|view| !view.client)?;
            Some((((name.uid != 0).then_some(name.uid), account.to_owned()), view.id))
        };
        self.ledger.by_name.iter().filter_map(of_site).collect()
    }

    fn check_table(&self, table: &SiteTable) -> Result<Wanted, Refusal> {
        let tickets = amount(table.tickets)?;
        let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
        let mut currencies = Wanted::new();
        currencies.insert((None, ROOT_ACCOUNT.to_owned()), Place { above: None, shares: tickets });
        for row in &table.accounts {
            let account = &row.account;
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if account.is_empty() || account.len() > 64 - SITE_PREFIX.len() || !account.chars().all(fits) {
                let fix = "use 1 to 59 letters, digits, '-', '_' and '.'";
                return Err(bad(
                    format!("'{}' cannot be an account's name", super::resolve::brief(account)),
                    fix,
                ));
            }
            let place = Place { above: Some(row.parent.clone()), shares: amount(row.shares)? };
            if currencies.insert((None, account.clone()), place).is_some() {
                let text = format!("account {account} is in the table twice");
                return Err(bad(text, "an account is in one place; leave out the account 'root'"));
            }
            parents.insert(account, &row.parent);
        }
        for account in parents.keys() {
            self.check_way_up(account, &parents)?;
        }
        for row in &table.users {
            let uid = self.user_id(&row.user)?;
            if uid == 0 {
                let text = format!("user {} is in account '{}'", row.user, row.account);
                return Err(bad(text, "leave it out: root's jobs are root's own"));
            }
            if row.account != ROOT_ACCOUNT && !parents.contains_key(row.account.as_str()) {
                let text =
                    format!("user {} is in account '{}', which is not in the table", row.user, row.account);
                return Err(bad(text, "give the account, or leave out the user"));
            }
            let place = Place { above: Some(row.account.clone()), shares: amount(row.shares)? };
            if currencies.insert((Some(uid), row.account.clone()), place).is_some() {
                let text = format!("user {} is in account {} twice", row.user, row.account);
                return Err(bad(text, "give a user once for each account"));
            }
        }
        Ok(currencies)
    }

    /// Whether an account is below the root account, by accounts that there are.
    fn check_way_up(&self, account: &str, parents: &BTreeMap<&str, &str>) -> Result<(), Refusal> {
        let mut at = account;
        let mut steps = 0;
        while at != ROOT_ACCOUNT {
            let Some(above) = parents.get(at) else {
                let text = format!("account {account} is below '{at}', which is not in the table");
                return Err(bad(text, "give that account, or another parent"));
            };
            steps += 1;
            if steps > parents.len() {
                return Err(bad(
                    format!("account {account} is below itself"),
                    "give one of them another parent",
                ));
            }
            at = above;
        }
        Ok(())
    }

    /// Every currency of the table, those made that were not there.
    fn make_currencies(&mut self, wanted: &Wanted) -> Result<BTreeMap<Key, CurrencyId>, Refusal> {
        let mut ids = self.site_currencies();
        ids.retain(|key, _| wanted.contains_key(key));
        for key in wanted.keys() {
            if ids.contains_key(key) {
                continue;
            }
            let owner = key.0.unwrap_or(0);
            let group = self.names.user_group(owner).unwrap_or(owner);
            let name = format!("{SITE_PREFIX}{}", key.1);
            self.check_free(&name, owner)?;
            let made = self.op(Op::CreateCurrency { broker: Broker::private(owner, group) })?;
            let Made::Currency(currency) = made else { return Err(unexpected()) };
            self.note(Step::Name { currency, uid: owner, name });
            ids.insert(key.clone(), currency);
        }
        Ok(ids)
    }

    /// Who is to fund a currency of the table.
    fn funder(&self, place: &Place, ids: &BTreeMap<Key, CurrencyId>) -> Result<CurrencyId, Refusal> {
        match &place.above {
            None => Ok(self.ledger.market.base()),
            Some(account) => ids.get(&(None, account.clone())).copied().ok_or_else(unexpected),
        }
    }

    /// Tickets of the site's that are now at the wrong place go first: no move makes a cycle on its way.
    fn take_wrong_tickets(
        &mut self,
        wanted: &Wanted,
        ids: &BTreeMap<Key, CurrencyId>,
    ) -> Result<(), Refusal> {
        let of_accounts: BTreeSet<CurrencyId> =
            self.site_currencies().into_iter().filter(|(key, _)| key.0.is_none()).map(|(_, id)| id).collect();
        for (key, place) in wanted {
            let (holder, funder) = (ids[key], self.funder(place, ids)?);
            for resource in Resource::ALL {
                for ticket in self.ledger.market.backing_of(holder, resource) {
                    if ticket.issuer != funder && of_accounts.contains(&ticket.issuer) {
                        self.op(Op::Unfund { ticket: ticket.id })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn give_tickets(&mut self, wanted: &Wanted, ids: &BTreeMap<Key, CurrencyId>) -> Result<(), Refusal> {
        for (key, place) in wanted {
            let (holder, issuer) = (ids[key], self.funder(place, ids)?);
            let amount = place.shares;
            for resource in Resource::ALL {
                let backing = self.ledger.market.backing_of(holder, resource);
                let is_it = |ticket: &&TicketView| ticket.issuer == issuer && ticket.kind == Kind::Soft;
                match backing.iter().find(is_it) {
                    Some(ticket) if ticket.amount == amount.get() => {}
                    Some(ticket) => drop(self.op(Op::SetAmount { ticket: ticket.id, amount })?),
                    None => drop(self.op(Op::Fund { holder, issuer, resource, amount, kind: Kind::Soft })?),
                }
            }
        }
        Ok(())
    }

    /// Ends what the table does not name, from below, but for what still backs something; that is returned.
    fn end_unwanted(&mut self, ids: &BTreeMap<Key, CurrencyId>) -> Result<Vec<CurrencyId>, Refusal> {
        loop {
            let unwanted: Vec<CurrencyId> = self
                .site_currencies()
                .into_iter()
                .filter(|(key, _)| !ids.contains_key(key))
                .map(|(_, id)| id)
                .collect();
            let ending: Vec<CurrencyId> =
                unwanted.iter().copied().filter(|&id| self.has_issued_nothing(id)).collect();
            if ending.is_empty() {
                return Ok(unwanted.into_iter().collect::<BTreeSet<_>>().into_iter().collect());
            }
            for currency in ending {
                self.op(Op::Destroy { currency })?;
            }
        }
    }

    fn is_unfunded(&self, id: CurrencyId) -> bool {
        self.ledger.site.kept.contains(&id)
    }
}
