//! The market's refusals in words: with names where it knows ids only.

use divvy_market::{CurrencyId, Permission, Refusal as No};

use super::Work;
use crate::message::Refusal;
use divvy_api::names::word;
use divvy_api::types::ErrorCode;

impl Work<'_> {
    /// Why not, and what would help.
    pub(super) fn in_words(&self, refusal: No) -> Refusal {
        let (code, message) = match refusal {
            No::UnknownCurrency(_) => (ErrorCode::NoSuchCurrency, refusal.to_string()),
            No::UnknownTicket(_) => (ErrorCode::NoSuchTicket, refusal.to_string()),
            No::UnknownExchange(_) => (ErrorCode::NoSuchExchange, refusal.to_string()),
            No::UnknownOffer(_) => (ErrorCode::NoSuchOffer, refusal.to_string()),
            No::Denied { currency, permission } => {
                (ErrorCode::NotPermitted, self.denied(currency, permission))
            }
            No::MayNotTake(ticket) => {
                let text = match self.ledger.market.ticket_view(ticket) {
                    Some(view) => {
                        let (holder, issuer) = (self.name(view.holder), self.name(view.issuer));
                        format!(
                            "not permitted: ticket {ticket} needs c on {holder}, who holds it, or i on {issuer}, whose it is"
                        )
                    }
                    None => refusal.to_string(),
                };
                (ErrorCode::NotPermitted, text)
            }
            No::NotOwner(id) => {
                let owner = self.ledger.market.currency(id).map(|view| self.user(view.broker.owner));
                let owner = owner.map_or_else(String::new, |owner| format!(", {owner},"));
                (
                    ErrorCode::NotPermitted,
                    format!("not permitted: only the owner of {}{owner} may", self.name(id)),
                )
            }
            No::NotYourIds | No::SuperuserOnly => (ErrorCode::NotPermitted, refusal.to_string()),
            No::ZeroAmount | No::AmountTooLarge | No::UsedTooMuch | No::EndsBeforeNow => {
                (ErrorCode::BadRequest, refusal.to_string())
            }
            No::SameParty | No::SameResource => (ErrorCode::Refused, refusal.to_string()),
            No::NotAClient(id) => {
                (ErrorCode::Refused, format!("{} is a currency, and that needs a client", self.name(id)))
            }
            No::ClientsDoNotIssue(id) => (
                ErrorCode::Refused,
                format!("{} is a client, and only currencies issue tickets", self.name(id)),
            ),
            No::Cycle { through } => {
                (ErrorCode::Refused, format!("a cycle: {} would come to back itself", self.name(through)))
            }
            No::NotEnough(id) => {
                (ErrorCode::Refused, format!("{} does not have what it would give, not now", self.name(id)))
            }
            No::TransferTicket | No::BaseCurrency => (ErrorCode::Refused, refusal.to_string()),
            No::TooDeep | No::HardExhausted { .. } | No::AboveBound { .. } => {
                (ErrorCode::Refused, refusal.to_string())
            }
            No::ClockWentBack => (ErrorCode::Internal, refusal.to_string()),
            No::Full => (ErrorCode::Busy, refusal.to_string()),
        };
        Refusal::new(code, message, self.remedy(refusal))
    }

    fn denied(&self, currency: CurrencyId, permission: Permission) -> String {
        format!(
            "not permitted: user {} needs {permission} on {}",
            self.user(self.caller.uid),
            self.name(currency)
        )
    }

    fn remedy(&self, refusal: No) -> String {
        match refusal {
            No::UnknownCurrency(_) => "see `divvy currency ls`".to_owned(),
            No::UnknownTicket(_) => "see `divvy currency tree`".to_owned(),
            No::UnknownExchange(_) | No::UnknownOffer(_) => "see `divvy exchange ls`".to_owned(),
            No::Denied { currency, .. } => {
                let name = self.name(currency);
                match self.ledger.market.currency(currency) {
                    Some(view) => format!(
                        "ask its owner, {}, for it: `divvy currency chmod MODE {}` (it is {} now)",
                        self.user(view.broker.owner), word(&name), view.broker.mode
                    ),
                    None => String::new(),
                }
            }
            No::MayNotTake(_) => "ask the owner of either".to_owned(),
            No::NotOwner(_) | No::NotYourIds | No::SuperuserOnly => "ask an administrator".to_owned(),
            No::NotEnough(_) => {
                "offer less, or wait until it competes: what sleeps has nothing to give; see `divvy market explain`".to_owned()
            }
            No::HardExhausted { left } if left > 0 => format!("reserve {left} or less"),
            No::HardExhausted { .. } => "take hard tickets back first, or set a larger hard total".to_owned(),
            No::AboveBound { .. } => {
                let user = self.user(self.caller.uid);
                format!(
                    "those that {user} was given count, too: an administrator gives a larger bound (`divvy market bound {} cpu:N`)",
                    word(&user)
                )
            }
            No::BaseCurrency => "name another currency, or a client: `divvy currency ls`".to_owned(),
            No::Cycle { .. } => "fund it from a currency that it does not back".to_owned(),
            No::TooDeep => "fund it from a currency nearer to the base".to_owned(),
            No::ClientsDoNotIssue(_) => "fund from a currency".to_owned(),
            _ => String::new(),
        }
    }
}
