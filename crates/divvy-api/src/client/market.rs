//! The market's part of the API. Only the system's divvyd has one.

use divvy_market::Resource;
use ureq::http::Method;

use super::{Api, ApiError, encode};
use crate::market::{
    Audit, Bound, Changed, Currencies, Currency, CurrencyChange, Exchange, Explained, Graph, NewCurrency,
    NewExchange, NewNice, NewOffer, NewTicket, Offer, Offered, Ticket, TicketChange,
};
use crate::site::{Orders, Report, Site, SiteTable};

fn currency_path(key: &str) -> String {
    format!("/v1/market/currencies/{}", encode(key))
}

fn ticket_path(id: &str) -> String {
    format!("/v1/market/tickets/{}", encode(id))
}

/// Each fails with [`ApiError::Refused`] where the market refuses: nothing was changed then.
impl Api {
    /// The whole market as it stands.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn market(&self) -> Result<Graph, ApiError> {
        self.get("/v1/market")
    }

    /// Every currency and client, the base first.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn currencies(&self) -> Result<Vec<Currency>, ApiError> {
        self.get("/v1/market/currencies").map(|all: Currencies| all.currencies)
    }

    /// The currency or client of that name or id.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn currency(&self, key: &str) -> Result<Currency, ApiError> {
        self.get(&currency_path(key))
    }

    /// Makes a currency of the caller's own.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn create_currency(&self, new: &NewCurrency) -> Result<Changed<Currency>, ApiError> {
        self.call(Method::POST, "/v1/market/currencies", Some(new))
    }

    /// Changes a currency's mode, owner, group or hard total.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn change_currency(&self, key: &str, change: &CurrencyChange) -> Result<Changed<Currency>, ApiError> {
        self.call(Method::PATCH, &currency_path(key), Some(change))
    }

    /// Ends a currency, and with it every ticket that it issued or holds.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn destroy_currency(&self, key: &str) -> Result<Changed<Currency>, ApiError> {
        self.call::<(), _>(Method::DELETE, &currency_path(key), None)
    }

    /// Issues a ticket.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn create_ticket(&self, new: &NewTicket) -> Result<Changed<Ticket>, ApiError> {
        self.call(Method::POST, "/v1/market/tickets", Some(new))
    }

    /// The ticket of that id.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn ticket(&self, id: &str) -> Result<Ticket, ApiError> {
        self.get(&ticket_path(id))
    }

    /// Changes a ticket's amount.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn change_ticket(&self, id: &str, change: TicketChange) -> Result<Changed<Ticket>, ApiError> {
        self.call(Method::PATCH, &ticket_path(id), Some(&change))
    }

    /// Takes a ticket away from its holder; the answer is what it was.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn destroy_ticket(&self, id: &str) -> Result<Changed<Ticket>, ApiError> {
        self.call::<(), _>(Method::DELETE, &ticket_path(id), None)
    }

    /// Exchanges at once, for a caller who may speak for both parties.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn create_exchange(&self, new: &NewExchange) -> Result<Changed<Exchange>, ApiError> {
        self.call(Method::POST, "/v1/market/exchanges", Some(new))
    }

    /// Undoes an exchange; the answer is what it was.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn cancel_exchange(&self, id: u64) -> Result<Changed<Exchange>, ApiError> {
        self.call::<(), _>(Method::DELETE, &format!("/v1/market/exchanges/{id}"), None)
    }

    /// Offers an exchange: it is made at once where its complement waits, else it waits itself.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn offer(&self, new: &NewOffer) -> Result<Changed<Offered>, ApiError> {
        self.call(Method::POST, "/v1/market/offers", Some(new))
    }

    /// Withdraws an offer; the answer is what it was.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn withdraw_offer(&self, id: u64) -> Result<Changed<Offer>, ApiError> {
        self.call::<(), _>(Method::DELETE, &format!("/v1/market/offers/{id}"), None)
    }

    /// Moves a client to a new currency with a part of its user's base funding; the answer is that currency.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn nice(&self, new: &NewNice) -> Result<Changed<Currency>, ApiError> {
        self.call(Method::POST, "/v1/market/nice", Some(new))
    }

    /// Says how many base tickets a user may issue. Superusers only.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn set_bound(&self, user: &str, bound: Bound) -> Result<Bound, ApiError> {
        self.call(Method::PUT, &format!("/v1/market/bounds/{}", encode(user)), Some(&bound))
    }

    /// What holds of the site's table.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn site(&self) -> Result<Site, ApiError> {
        self.get("/v1/market/site")
    }

    /// Makes the site's accounts and users what the table says. Superusers only.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn set_site(&self, table: &SiteTable) -> Result<Site, ApiError> {
        self.call(Method::PUT, "/v1/market/site", Some(table))
    }

    /// Tells the node which exchanges over nodes it is to hold and give, and asks how far they are. Superusers only.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn order(&self, orders: &Orders) -> Result<Report, ApiError> {
        self.call(Method::POST, "/v1/market/site/orders", Some(orders))
    }

    /// Where a currency's value comes from, ticket by ticket.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn explain_value(&self, key: &str, resource: Resource) -> Result<Explained, ApiError> {
        self.get(&format!("/v1/market/explain/{}?resource={resource}", encode(key)))
    }

    /// Who did what, from entry number `since` on.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn market_audit(&self, since: u64) -> Result<Audit, ApiError> {
        self.get(&format!("/v1/market/audit?since={since}"))
    }
}
