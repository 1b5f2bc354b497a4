//! Who the clients are: names, selectors, and those who left lately.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use divvy_policy::ClientId;

use super::system::Owner;
use crate::message::Refusal;
use divvy_api::names;
use divvy_api::types::{Bounds, Client, ErrorCode};

/// Clients that have left and can still be asked about.
const LEFT_KEPT: usize = 64;

/// What is known of a client beside its accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(super) name: String,
    pub(super) selector: String,
    /// Whose it is, where there are several users.
    pub(super) owner: Option<Owner>,
    /// What else it is sure of, and may not exceed.
    pub(super) bounds: Bounds,
    /// Its cgroup, where it has one of ours.
    pub(super) cgroup: Option<PathBuf>,
}

impl Entry {
    /// As it is called in lists: `USER/NAME` where there are several users.
    pub(super) fn shown(&self) -> String {
        match &self.owner {
            Some(owner) => format!("{}/{}", owner.user, self.name),
            None => self.name.clone(),
        }
    }

    /// Whether it is [`shown`](Self::shown) so.
    fn is_shown_as(&self, key: &str) -> bool {
        match &self.owner {
            Some(owner) => key
                .strip_prefix(owner.user.as_str())
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|name| name == self.name),
            None => self.name == key,
        }
    }

    /// Whether it is user `uid`'s; nobody's where there is one user only.
    pub(super) fn is_of(&self, uid: Option<u32>) -> bool {
        self.owner.as_ref().map(|owner| owner.uid) == uid
    }
}

/// All clients by id, and those that left lately as they were then. What of it does not change is shared with whoever
/// shows it.
#[derive(Debug, Default)]
pub(super) struct Book {
    present: BTreeMap<ClientId, Arc<Entry>>,
    left: Arc<VecDeque<Client>>,
}

/// What a key (a name, or an id in digits) stands for.
#[derive(Debug, PartialEq)]
pub(super) enum Found<'a, T> {
    Present(T),
    Left(&'a Client),
}

/// The client of that name or id, of those that are `present` by rising id: these first, then the last that left. A name
/// without its user is that of `asker`'s own client, where there are several users.
pub(super) fn find<'a, T: Copy>(
    key: &str,
    asker: Option<u32>,
    present: impl Iterator<Item = (u32, &'a Entry, T)> + Clone,
    left: &'a VecDeque<Client>,
) -> Result<Found<'a, T>, Refusal> {
    let id = key.parse::<u32>().ok();
    let whole = |&(c, e, _): &(u32, &Entry, T)| id == Some(c) || e.is_shown_as(key);
    let own = |&(_, e, _): &(u32, &Entry, T)| e.name == key && e.is_of(asker);
    if let Some((_, _, found)) = present.clone().find(whole).or_else(|| present.clone().find(own)) {
        return Ok(Found::Present(found));
    }
    let left = left.iter().rev().find(|c| c.name == key || id == Some(c.id));
    left.map(Found::Left).ok_or_else(|| no_such_client(key))
}

impl Book {
    pub(super) fn present(&self) -> impl Iterator<Item = (ClientId, &Entry)> {
        self.present.iter().map(|(&id, entry)| (id, &**entry))
    }

    /// As [`present`](Self::present), to be kept.
    pub(super) fn entries(&self) -> impl Iterator<Item = (ClientId, &Arc<Entry>)> {
        self.present.iter().map(|(&id, entry)| (id, entry))
    }

    /// Those that left lately, oldest first.
    pub(super) fn left(&self) -> Arc<VecDeque<Client>> {
        Arc::clone(&self.left)
    }

    pub(super) fn len(&self) -> usize {
        self.present.len()
    }

    pub(super) fn entry(&self, client: ClientId) -> Option<&Arc<Entry>> {
        self.present.get(&client)
    }

    pub(super) fn entry_mut(&mut self, client: ClientId) -> Option<&mut Entry> {
        self.present.get_mut(&client).map(Arc::make_mut)
    }

    pub(super) fn join(&mut self, client: ClientId, entry: Entry) {
        self.present.insert(client, Arc::new(entry));
    }

    /// A client has left; `last` is what there is to tell about it from now on.
    pub(super) fn leave(&mut self, client: ClientId, last: Client) {
        if self.present.remove(&client).is_some() {
            let left = Arc::make_mut(&mut self.left);
            if left.len() == LEFT_KEPT {
                left.pop_front();
            }
            left.push_back(last);
        }
    }

    /// The client of that name or id: see [`find`].
    pub(super) fn find(&self, key: &str, asker: Option<u32>) -> Result<Found<'_, ClientId>, Refusal> {
        let present = self.present.iter().map(|(&client, entry)| (client.0, &**entry, client));
        find(key, asker, present, &self.left)
    }

    /// The client of that name or id, if it has not left.
    pub(super) fn find_present(&self, key: &str, asker: Option<u32>) -> Result<ClientId, Refusal> {
        match self.find(key, asker)? {
            Found::Present(client) => Ok(client),
            Found::Left(_) => Err(no_such_client(key)),
        }
    }

    /// `asked` if it can be a name and is free. Where there is none, or it may be `numbered`, a name made of it or of
    /// `made`, told apart by a number if need be. Names are told apart among the clients of user `of`.
    pub(super) fn name(
        &self,
        asked: Option<&str>,
        numbered: bool,
        made: &str,
        of: Option<u32>,
    ) -> Result<String, Refusal> {
        if let Some(name) = asked.filter(|_| !numbered) {
            check_name(name)?;
            if self.is_taken(name, of) {
                let text = format!("there is a client '{name}' already");
                return Err(Refusal::new(
                    ErrorCode::NameTaken,
                    text,
                    "choose another name, or detach that one",
                ));
            }
            return Ok(name.to_owned());
        }
        let base = names::made_of(asked.unwrap_or(made));
        let numbered = (2..).map(|n| format!("{base}#{n}"));
        let free = std::iter::once(base.clone()).chain(numbered).find(|name| !self.is_taken(name, of));
        Ok(free.unwrap_or(base))
    }

    fn is_taken(&self, name: &str, of: Option<u32>) -> bool {
        self.present.values().any(|e| e.name == name && e.is_of(of))
    }
}

fn no_such_client(key: &str) -> Refusal {
    Refusal::new(ErrorCode::NoSuchClient, format!("no client is called '{key}'"), "see `divvy ls`")
}

fn check_name(name: &str) -> Result<(), Refusal> {
    names::check_client(name).map_err(|bad| {
        let text = format!("'{}' cannot be a name: {bad}", name.escape_default());
        Refusal::new(ErrorCode::BadRequest, text, "choose another name")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_api::types::ClientState;

    fn entry(name: &str) -> Entry {
        let bounds = Bounds::default();
        Entry { name: name.into(), selector: "pid:1".into(), owner: None, bounds, cgroup: None }
    }

    fn client(id: u32, name: &str) -> Client {
        Client {
            id,
            name: name.into(),
            selector: "pid:1".into(),
            share: 1,
            state: ClientState::Left,
            width: 1,
            ..Client::default()
        }
    }

    #[test]
    fn names_are_checked_and_told_apart() {
        let mut book = Book::default();
        assert_eq!(book.name(None, false, "sleep", None).unwrap(), "sleep");
        book.join(ClientId(0), entry("sleep"));
        assert_eq!(book.name(None, false, "sleep", None).unwrap(), "sleep#2");
        book.join(ClientId(1), entry("sleep#2"));
        assert_eq!(book.name(None, false, "sleep", None).unwrap(), "sleep#3");
        assert_eq!(book.name(Some("sleep"), true, "x", None).unwrap(), "sleep#3");
        assert_eq!(book.name(None, false, "a b/c", None).unwrap(), "a-b-c");
        assert_eq!(book.name(None, false, "123", None).unwrap(), "client123");
        assert_eq!(book.name(None, false, "", None).unwrap(), "client");
        assert_eq!(book.name(None, false, "--", None).unwrap(), "client");
        assert_eq!(book.name(None, false, &"x".repeat(500), None).unwrap().len(), 56);
        assert_eq!(book.name(Some("büro"), false, "", None).unwrap(), "büro");
        let code = |name| book.name(Some(name), false, "", None).unwrap_err().code;
        assert_eq!(code("sleep"), ErrorCode::NameTaken);
        let long = "x".repeat(65);
        for bad in ["", "a b", "a/b", "12", "-s", "a\nb", &long] {
            assert_eq!(code(bad), ErrorCode::BadRequest, "{bad}");
        }
    }

    #[test]
    fn a_key_is_a_name_or_an_id_and_the_present_come_first() {
        let mut book = Book::default();
        book.join(ClientId(0), entry("a"));
        book.join(ClientId(7), entry("b"));
        assert_eq!(book.find("a", None).unwrap(), Found::Present(ClientId(0)));
        assert_eq!(book.find_present("7", None).unwrap(), ClientId(7));
        book.leave(ClientId(0), client(0, "a"));
        assert_eq!(book.find("0", None).unwrap(), Found::Left(&client(0, "a")));
        assert_eq!(book.find_present("a", None).unwrap_err().code, ErrorCode::NoSuchClient);
        book.join(ClientId(8), entry("a"));
        assert_eq!(book.find("a", None).unwrap(), Found::Present(ClientId(8)));
        assert_eq!(book.find("c", None).unwrap_err().message, "no client is called 'c'");
        // Whoever left long ago is forgotten.
        for i in 10..10 + LEFT_KEPT as u32 {
            book.join(ClientId(i), entry("x"));
            book.leave(ClientId(i), client(i, "x"));
        }
        assert_eq!(book.find("0", None).unwrap_err().code, ErrorCode::NoSuchClient);
        assert_eq!(book.len(), 2);
    }

    #[test]
    fn several_users_may_call_theirs_alike() {
        let owned = |uid: u32, user: &str, name: &str| {
            let currency = divvy_market::Market::new().base();
            Entry { owner: Some(Owner { uid, user: user.into(), currency, amount: 1 }), ..entry(name) }
        };
        let mut book = Book::default();
        book.join(ClientId(0), owned(1000, "alice", "build"));
        assert_eq!(book.name(Some("build"), false, "", Some(1001)).unwrap(), "build");
        assert_eq!(book.name(Some("build"), false, "", Some(1000)).unwrap_err().code, ErrorCode::NameTaken);
        book.join(ClientId(1), owned(1001, "bob", "build"));
        for (key, asker, expected) in [
            ("build", 1000, Some(0)),
            ("build", 1001, Some(1)),
            ("build", 0, None),
            ("alice/build", 1001, Some(0)),
            ("1", 1000, Some(1)),
        ] {
            assert_eq!(book.find_present(key, Some(asker)).ok().map(|c| c.0), expected, "{key} of {asker}");
        }
    }
}
