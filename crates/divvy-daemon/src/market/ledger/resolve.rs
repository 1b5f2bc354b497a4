//! Names to ids, and back.

use divvy_market::CurrencyId;

use divvy_linux::Selector;

use super::{Ledger, Name, Work};
use crate::market::message::Identity;
use crate::market::names::Names;
use crate::market::policy::EVERYTHING;
use crate::message::Refusal;
use divvy_api::market::CURRENCY_NAME_MAX;
use divvy_api::nearest;
use divvy_api::types::ErrorCode;

/// Before the number of a user, where the user's own currency is meant and there is no account that would name it. A
/// number alone is an id, and no other name has a colon.
const BY_NUMBER: &str = "uid:";
/// A word that is nobody's name is compared with the names of so many users at most.
const USERS_COMPARED: usize = 64;

/// What a word names.
pub(super) enum Found {
    Currency(CurrencyId),
    /// A user who has no currency yet.
    Newcomer(u32),
}

impl Ledger {
    /// How a currency is best named: `base`, `alice`, `uid:1007` for the own currency of a user without an account,
    /// `alice/build`, or its id where it has no name.
    pub(in crate::market) fn name_of(&self, names: &dyn Names, id: CurrencyId) -> String {
        if id == self.market.base() {
            return "base".to_owned();
        }
        let user = |uid: u32| names.user_name(uid).unwrap_or_else(|| uid.to_string());
        if let Some(name) = self.named.get(&id) {
            return format!("{}/{}", user(name.uid), name.name);
        }
        // Only an owner's own currency can be it; where it was given away or has no name, the id is the name.
        let owner = self.market.currency(id).map(|view| view.broker.owner);
        // One that has ended a moment ago is its user's until it is forgotten.
        let owner = owner.or_else(|| self.owner_of(id));
        let own = owner.filter(|uid| self.users.get(uid).is_some_and(|user| user.currency == id));
        let called = |uid: u32| names.user_name(uid).unwrap_or_else(|| format!("{BY_NUMBER}{uid}"));
        own.map_or_else(|| id.to_string(), called)
    }
}

impl Work<'_> {
    pub(super) fn name(&self, id: CurrencyId) -> String {
        self.ledger.name_of(self.names, id)
    }

    /// The currency or client that `word` names.
    pub(super) fn find(&self, word: &str) -> Result<CurrencyId, Refusal> {
        match self.look_up(word)? {
            Found::Currency(id) => Ok(id),
            Found::Newcomer(uid) => Err(self.no_currency_yet(uid)),
        }
    }

    pub(super) fn look_up(&self, word: &str) -> Result<Found, Refusal> {
        let none = || {
            let text = format!("no currency or client is called '{}'", brief(word));
            let fix = format!("see `divvy currency ls`{}", self.likest(word));
            Refusal::new(ErrorCode::NoSuchCurrency, text, fix)
        };
        let found = if word == "base" {
            Some(self.ledger.market.base())
        } else if let Ok(id) = word.parse::<CurrencyId>() {
            self.ledger.market.currency(id).map(|view| view.id)
        } else if let Some((user, name)) = word.split_once('/') {
            let uid = self.names.user_id(user).or_else(|| user.parse().ok());
            uid.and_then(|uid| self.named(uid, name))
        } else if let Some(uid) = self.own_currency_of(word) {
            match self.ledger.users.get(&uid) {
                Some(user) => Some(user.currency),
                None => return Ok(Found::Newcomer(uid)),
            }
        } else {
            self.named(self.caller.uid, word)
        };
        found.map(Found::Currency).ok_or_else(none)
    }

    /// What `word` may have been meant to be: a name of the caller's, one of the user before its slash, or a user's own currency. Nobody
    /// else's names are looked through: they are many.
    fn likest(&self, word: &str) -> String {
        if word.len() > 2 * CURRENCY_NAME_MAX {
            return String::new();
        }
        let of = |uid: u32| {
            let from = self.ledger.by_name.range(Name { uid, name: String::new() }..);
            from.take_while(move |(name, _)| name.uid == uid).map(|(name, _)| name.name.clone())
        };
        let known: Vec<String> = match word.split_once('/') {
            Some((user, _)) => {
                let uid = self.names.user_id(user).or_else(|| user.parse().ok());
                uid.into_iter().flat_map(of).map(|name| format!("{user}/{name}")).collect()
            }
            None => {
                let users = self.ledger.users.keys().take(USERS_COMPARED);
                of(self.caller.uid).chain(users.filter_map(|&uid| self.names.user_name(uid))).collect()
            }
        };
        nearest::hint(word, known.iter().map(String::as_str))
    }

    /// The user whose own currency `word` would name: by the account, or by number as [`Ledger::name_of`] writes it.
    pub(super) fn own_currency_of(&self, word: &str) -> Option<u32> {
        let number = || word.strip_prefix(BY_NUMBER)?.parse().ok();
        self.names.user_id(word).or_else(number)
    }

    pub(super) fn named(&self, uid: u32, name: &str) -> Option<CurrencyId> {
        self.ledger.by_name.get(&Name { uid, name: name.to_owned() }).copied()
    }

    /// The caller's own currency.
    pub(super) fn own(&self) -> Result<CurrencyId, Refusal> {
        let user = self.ledger.users.get(&self.caller.uid);
        user.map(|user| user.currency).ok_or_else(|| self.no_currency_yet(self.caller.uid))
    }

    /// The currency that is meant: the caller's own if none is named.
    pub(super) fn find_or_own(&self, word: Option<&String>) -> Result<CurrencyId, Refusal> {
        word.map_or_else(|| self.own(), |word| self.find(word))
    }

    pub(super) fn no_currency_yet(&self, uid: u32) -> Refusal {
        let user = self.user(uid);
        let text = format!("user {user} has no currency yet");
        let word = self.names.user_name(uid).unwrap_or_else(|| format!("{BY_NUMBER}{uid}"));
        let by = if self.may_make_own(uid) { "" } else { " of an administrator's" };
        let fix = format!(
            "it is made when {user} first runs or attaches something, or by `divvy currency create {word}`{by}"
        );
        Refusal::new(ErrorCode::NoSuchCurrency, text, fix)
    }

    /// Whether the caller may make the own currency of that user.
    pub(super) fn may_make_own(&self, uid: u32) -> bool {
        uid == self.caller.uid || self.caller.superuser
    }

    /// What to do where a currency cannot have this name: another, which it can have.
    pub(super) fn another_name(&self, name: &str) -> String {
        let is_free =
            |name: &String| self.own_currency_of(name).is_none() && self.check_currency_name(name).is_ok();
        let free = (2..10).map(|n| format!("{name}-{n}")).find(is_free);
        free.map_or_else(
            || "choose another name".to_owned(),
            |free| format!("choose another name, as '{free}'"),
        )
    }

    /// A user's name, or number where there is none.
    pub(super) fn user(&self, uid: u32) -> String {
        self.names.user_name(uid).unwrap_or_else(|| uid.to_string())
    }

    pub(super) fn group(&self, gid: u32) -> String {
        self.names.group_name(gid).unwrap_or_else(|| gid.to_string())
    }

    /// The user that `word`, a name or number, means.
    pub(super) fn user_id(&self, word: &str) -> Result<u32, Refusal> {
        self.names.user_id(word).or_else(|| word.parse().ok()).ok_or_else(|| {
            let text = format!("there is no user '{}'", brief(word));
            Refusal::new(ErrorCode::NoSuchUser, text, "give a name or a number that id(1) knows")
        })
    }

    pub(super) fn group_id(&self, word: &str) -> Result<u32, Refusal> {
        self.names.group_id(word).or_else(|| word.parse().ok()).ok_or_else(|| {
            let text = format!("there is no group '{}'", brief(word));
            Refusal::new(ErrorCode::NoSuchGroup, text, "give a name or a number that `getent group` knows")
        })
    }

    /// Refuses a name that the user has given already, or that can be read as something else.
    pub(super) fn check_currency_name(&self, name: &str) -> Result<(), Refusal> {
        if let Some(uid) = self.own_currency_of(name) {
            let text = format!(
                "'{}' is a user of this machine, and so would be read as that user's own currency",
                brief(name)
            );
            let another = self.another_name(name);
            let fix = if self.may_make_own(uid) {
                format!("{another}; that user's own has neither --mode nor --group")
            } else {
                another
            };
            return Err(Refusal::new(ErrorCode::NameTaken, text, fix));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let length = name.chars().count();
        if length == 0 || length > CURRENCY_NAME_MAX || !name.chars().all(fits) || name.starts_with('-') {
            let text = format!("'{}' cannot be a currency's name", brief(name));
            let fix = format!(
                "use 1 to {CURRENCY_NAME_MAX} letters, digits, '-', '_' and '.'; the first is no '-'"
            );
            return Err(Refusal::new(ErrorCode::BadRequest, text, fix));
        }
        let numeric = name.chars().all(|c| c.is_ascii_digit() || c == '.');
        if numeric || name == "base" {
            let text = format!("'{name}' would be read as an id or the base currency");
            return Err(Refusal::new(ErrorCode::BadRequest, text, "choose another name"));
        }
        self.check_not_reserved(name)?;
        self.check_free(name, self.caller.uid)
    }

    /// Refuses a client's name that cannot be one, or that the user has given already.
    pub(super) fn check_client_name(&self, name: &str, of: &Identity) -> Result<(), Refusal> {
        let fits = |c: char| c.is_alphanumeric() || (c.is_ascii_graphic() && c != '/');
        let length = name.chars().count();
        if length == 0 || length > CURRENCY_NAME_MAX || !name.chars().all(fits) {
            let text = format!("'{}' cannot be a client's name", brief(name));
            let fix = format!("use 1 to {CURRENCY_NAME_MAX} characters, no blank and no '/'");
            return Err(Refusal::new(ErrorCode::BadRequest, text, fix));
        }
        // All that a user runs is called that, whoever makes it a client.
        if of.selector != Selector::User(self.caller.uid).to_string() {
            self.check_not_reserved(name)?;
        }
        self.check_free(name, self.caller.uid)
    }

    /// Refuses a name that only a site's table gives, or the policy.
    fn check_not_reserved(&self, name: &str) -> Result<(), Refusal> {
        if self.caller.superuser {
            return Ok(());
        }
        if name == EVERYTHING {
            let text = format!("'{name}' is what all that a user runs is called");
            return Err(Refusal::new(ErrorCode::NameTaken, text, "choose another name"));
        }
        if !super::site::is_reserved(name) {
            return Ok(());
        }
        let text = format!("'{}' begins as the names of a site's accounts do", brief(name));
        Err(Refusal::new(ErrorCode::NameTaken, text, "choose another name"))
    }

    pub(super) fn check_free(&self, name: &str, uid: u32) -> Result<(), Refusal> {
        if self.named(uid, name).is_none() {
            return Ok(());
        }
        let text = format!("user {} has something called '{name}' already", self.user(uid));
        Err(Refusal::new(ErrorCode::NameTaken, text, "choose another name, or end that one"))
    }
}

/// As much of what a caller wrote as an error repeats.
pub(super) fn brief(word: &str) -> String {
    const SHOWN: usize = 80;
    if word.chars().count() <= SHOWN {
        return word.to_owned();
    }
    word.chars().take(SHOWN).chain("...".chars()).collect()
}
