//! Groups on the command line: `build`, `build=3`, `build/tests`; `build/` where a client could be meant too.

use divvy_api::client::{Api, ApiError};
use divvy_api::types::{ErrorCode, Group, NewClient};

use super::{json, of_its_owner, seconds};
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

/// What is asked for a client, and where no client is called so, for the group of that name. `NAME/` is a group.
///
/// # Errors
/// [`Failure`] of divvyd's refusal; where nobody is called so, with the name that is likest.
pub(super) fn client_or_group<C, G>(
    api: &Api,
    key: &str,
    client: impl FnOnce(&Api) -> Result<C, ApiError>,
    group: impl FnOnce(&Api, &str) -> Result<G, ApiError>,
) -> Result<Found<C, G>, Failure> {
    let e = match client_then_group(api, key, client, group) {
        Err(e) if e.code() == Some(ErrorCode::NoSuchClient) => e,
        found => return found.map_err(of_its_owner),
    };
    let text = format!("{e}{}", likest(api, key));
    Err(Failure { text, ..e.into() })
}

/// The client or group that may have been meant.
fn likest(api: &Api, key: &str) -> String {
    let Ok(all) = api.clients() else { return String::new() };
    let groups: Vec<String> = all.groups.iter().map(|group| format!("{}/", group.name)).collect();
    let names = all.clients.iter().map(|client| client.name.as_str());
    nearest::hint(key, names.chain(groups.iter().map(String::as_str)))
}

fn client_then_group<C, G>(
    api: &Api,
    key: &str,
    client: impl FnOnce(&Api) -> Result<C, ApiError>,
    group: impl FnOnce(&Api, &str) -> Result<G, ApiError>,
) -> Result<Found<C, G>, ApiError> {
    if let Some(path) = key.strip_suffix('/') {
        return group(api, path).map(Found::Group);
    }
    match client(api) {
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
pub(super) enum Found<C, G> {
    Client(C),
    Group(G),
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
pub(super) fn clients(group: &Group) -> String {
    if group.clients == 1 { "1 client".to_owned() } else { format!("{} clients", group.clients) }
}

/// `detached ...`, for all of them.
pub(super) fn detached(group: &Group) -> String {
    format!("{} detached after {:.2} s of CPU time", clients(group), seconds(group.service_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_may_have_a_share() {
        let read = |text| parse(text).map(|group| (group.path, group.share));
        assert_eq!(read("build"), Ok(("build".to_owned(), None)));
        assert_eq!(read("build/tests=3"), Ok(("build/tests".to_owned(), Some(3))));
        assert!(read("build=much").unwrap_err().contains("write build=3"));
    }
}
