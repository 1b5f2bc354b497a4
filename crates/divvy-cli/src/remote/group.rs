//! Groups on the command line: `build`, `build=3`, `build/tests`; `build/` where a client could be meant too.

use divvy_api::client::{Api, ApiError};
use divvy_api::types::{Client, Clients, ErrorCode, Group, NewClient};
use serde::Serialize;

use super::{json, of_its_owner, seconds, undivided};
use crate::{Code, Failure, nearest, print};

/// `--group`: its path, and the share that it is to have if one was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupArg {
    path: String,
    share: Option<u64>,
}

impl GroupArg {
    /// Its path: `build`, or `build/tests`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

/// Reads `NAME` or `NAME=SHARE`.
pub(crate) fn parse(text: &str) -> Result<GroupArg, String> {
    let Some((path, share)) = text.rsplit_once('=') else {
        return Ok(GroupArg { path: text.to_owned(), share: None });
    };
    let share = share.trim().parse().map_err(|_| {
        format!("'{share}' is no share of a group; write {path}=3, a whole number from 1 to 1000000")
    })?;
    Ok(GroupArg { path: path.to_owned(), share: Some(share) })
}

/// Sets the group that a new client is to be in.
pub(crate) fn set(new: &mut NewClient, group: Option<&GroupArg>) {
    new.group = group.map(|group| group.path.clone());
    new.group_share = group.and_then(|group| group.share);
}

/// What is asked for a client, and where no client is called so, for the group of that name, or the client of that way. `NAME/` is
/// a group, and `NAME/CLIENT` a client in it, as `ls` shows them.
///
/// # Errors
/// [`Failure`] of divvyd's refusal; where nobody is called so, with the name that is likest, or why a task of that name is no client.
pub(super) fn client_or_group<C, G>(
    api: &Api,
    key: &str,
    client: impl Fn(&Api, &str) -> Result<C, ApiError>,
    group: impl FnOnce(&Api, &str) -> Result<G, ApiError>,
) -> Result<Found<C, G>, Failure> {
    let e = match client_then_group(api, key, &client, group) {
        Err(e) if e.code() == Some(ErrorCode::NoSuchClient) => e,
        found => return found.map_err(of_its_owner),
    };
    let within = key.rsplit_once('/').and_then(|_| by_its_way(&api.clients().ok()?, key));
    if let Some(id) = within {
        return client(api, &id.to_string()).map(Found::Client).map_err(of_its_owner);
    }
    let text = undivided::reason(key).unwrap_or_else(|| format!("{e}{}", likest(api, key)));
    Err(Failure { text, ..e.into() })
}

/// The client or group that may have been meant. At the system's divvyd, whose names are USER/NAME, the caller's own may be
/// called by the second part.
fn likest(api: &Api, key: &str) -> String {
    let Ok(all) = api.clients() else { return String::new() };
    let uid = rustix::process::geteuid().as_raw();
    let user = divvy_linux::user_name(uid).unwrap_or_else(|| uid.to_string());
    if let Some(others) = of_another(&all, key) {
        return format!("; did you mean '{others}'?");
    }
    nearest::hint(key, names(&all, &user).iter().map(String::as_str))
}

/// The only client of any user that its user calls so.
fn of_another<'a>(all: &'a Clients, key: &str) -> Option<&'a str> {
    let called = |client: &&Client| {
        client.user.is_some() && client.name.split_once('/').is_some_and(|(_, name)| name == key)
    };
    let mut called = all.clients.iter().filter(called);
    called.next().filter(|_| called.next().is_none()).map(|client| client.name.as_str())
}

/// By what clients and groups can be called by `user`.
fn names(all: &Clients, user: &str) -> Vec<String> {
    let own = all.clients.iter().filter(|client| client.user.as_deref() == Some(user));
    let own = own.filter_map(|client| client.name.split_once('/')).map(|(_, name)| name.to_owned());
    let whole = all.clients.iter().map(|client| client.name.clone());
    let ways = all.clients.iter().filter_map(way);
    let groups = all.groups.iter().map(|group| format!("{}/", group.name));
    own.chain(whole).chain(ways).chain(groups).collect()
}

/// A client with the groups that it is in, as `build/link`.
fn way(client: &Client) -> Option<String> {
    client.group.as_ref().map(|group| format!("{group}/{}", client.name))
}

/// The number of the client that is called so with its groups.
fn by_its_way(all: &Clients, key: &str) -> Option<u32> {
    all.clients.iter().find(|client| way(client).as_deref() == Some(key)).map(|client| client.id)
}

fn client_then_group<C, G>(
    api: &Api,
    key: &str,
    client: impl Fn(&Api, &str) -> Result<C, ApiError>,
    group: impl FnOnce(&Api, &str) -> Result<G, ApiError>,
) -> Result<Found<C, G>, ApiError> {
    if let Some(path) = key.strip_suffix('/') {
        return group(api, path).map(Found::Group);
    }
    match client(api, key) {
        Err(e) if e.code() == Some(ErrorCode::NoSuchClient) => match group(api, key) {
            Ok(group) => Ok(Found::Group(group)),
            // That no group is called so either, or that the system's divvyd has none, is no better news.
            Err(of_group) if of_group.code() == Some(ErrorCode::NoSuchClient) => Err(e),
            Err(of_group) => Err(of_group),
        },
        found => found.map(Found::Client),
    }
}

/// Which of the two it was.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Found<C, G> {
    Client(C),
    Group(G),
}

impl Found<Client, Group> {
    /// As it is told: a group with its `/`.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Client(client) => client.name.clone(),
            Self::Group(group) => format!("{}/", group.name),
        }
    }
}

/// Says what became of a group.
pub(super) fn told(group: &Group, as_json: bool, words: impl std::fmt::Display) -> Result<Code, Failure> {
    if as_json {
        print(json(group)?)?;
    } else {
        print(format_args!("{}/: {words}", group.name))?;
    }
    Ok(Code::Done)
}

/// `3 clients`.
pub(super) fn clients(n: usize) -> String {
    if n == 1 { "1 client".to_owned() } else { format!("{n} clients") }
}

/// `detached ...`, for all of them.
pub(super) fn detached(group: &Group) -> String {
    format!("{} detached after {:.2} s of CPU time", clients(group.clients), seconds(group.service_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_clients_have_two_names_at_the_systems_divvyd() {
        let client = |name: &str, user: &str| Client {
            name: name.to_owned(),
            user: Some(user.to_owned()),
            ..Client::default()
        };
        let clients = vec![client("alice/build", "alice"), client("bob/tests", "bob")];
        let all = Clients { window_ns: 0, age_ns: 0, clients, groups: Vec::new() };
        let likest = |key| nearest::hint(key, names(&all, "alice").iter().map(String::as_str));
        assert_eq!(likest("biuld"), "; did you mean 'build'?");
        assert_eq!(likest("alice/biuld"), "; did you mean 'alice/build'?");
        assert_eq!(likest("bob/test"), "; did you mean 'bob/tests'?");
        assert_eq!(likest("test"), "", "bob's");
        // Exactly so called, it may be another's that is meant: an administrator's word.
        assert_eq!([of_another(&all, "tests"), of_another(&all, "test")], [Some("bob/tests"), None]);
        let clients = vec![client("alice/x", "alice"), client("bob/x", "bob")];
        assert_eq!(of_another(&Clients { clients, ..all }, "x"), None, "whose?");
    }

    #[test]
    fn a_client_is_called_with_its_groups_too() {
        let client = |id, name: &str, group: Option<&str>| Client {
            id,
            name: name.to_owned(),
            group: group.map(Into::into),
            ..Client::default()
        };
        let clients = vec![client(3, "link", None), client(5, "link", Some("build/tests"))];
        let all = Clients { window_ns: 0, age_ns: 0, clients, groups: Vec::new() };
        assert_eq!(by_its_way(&all, "build/tests/link"), Some(5));
        assert_eq!(by_its_way(&all, "build/link"), None);
        let likest = nearest::hint("build/test/link", names(&all, "alice").iter().map(String::as_str));
        assert_eq!(likest, "; did you mean 'build/tests/link'?");
    }

    #[test]
    fn a_group_may_have_a_share() {
        let read = |text| parse(text).map(|group| (group.path, group.share));
        assert_eq!(read("build"), Ok(("build".to_owned(), None)));
        assert_eq!(read("build/tests=3"), Ok(("build/tests".to_owned(), Some(3))));
        assert!(read("build=much").unwrap_err().contains("write build=3"));
    }
}
