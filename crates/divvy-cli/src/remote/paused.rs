//! What `pause` and `resume` say: whether anything has changed.

use divvy_api::types::{Client, ClientState, Group};

use super::group::clients;

/// How many of these clients are paused in the group of this path.
pub(super) fn within(all: &[Client], path: &str) -> usize {
    let is_within =
        |group: &str| group.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_paused = |client: &&Client| {
        client.state == ClientState::Paused && client.group.as_deref().is_some_and(is_within)
    };
    all.iter().filter(is_paused).count()
}

/// What is said of a client that was to be paused, or resumed, and was in state `before`.
pub(super) fn of_client(before: ClientState, paused: bool) -> &'static str {
    match (paused, before) {
        (true, ClientState::Paused) => "already paused",
        (true, _) => "paused; its share goes to the others",
        (false, ClientState::Paused) => "resumed",
        (false, ClientState::Stopped) => "was not paused; somebody else has stopped it",
        (false, _) => "was not paused",
    }
}

/// The same of a group, `before` of whose clients were paused.
pub(super) fn of_group(group: &Group, before: usize, paused: bool) -> String {
    match (paused, before) {
        (true, n) if n >= group.clients => "already paused".to_owned(),
        (true, _) => "paused; its share goes to the others".to_owned(),
        (false, 0) => "none of its clients was paused".to_owned(),
        (false, n) => format!("{} resumed", clients(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_is_said_to() {
        use ClientState::{Held, Paused, Running, Stopped};
        for (before, paused, words) in [
            (Running, true, "paused; its share goes to the others"),
            (Paused, true, "already paused"),
            (Paused, false, "resumed"),
            (Held, false, "was not paused"),
            (Stopped, false, "was not paused; somebody else has stopped it"),
        ] {
            assert_eq!(of_client(before, paused), words, "{before:?}");
        }
        let client =
            |group: &str, state| Client { group: Some(group.to_owned()), state, ..Client::default() };
        let all = [
            client("build", Paused),
            client("build/tests", Paused),
            client("build", Running),
            client("builds", Paused),
            Client { state: Paused, ..Client::default() },
        ];
        assert_eq!([within(&all, "build"), within(&all, "build/tests"), within(&all, "b")], [2, 1, 0]);
        let group = Group {
            name: "build".to_owned(),
            share: 1,
            requested_fraction: 0.0,
            effective_fraction: 0.0,
            achieved_fraction: 0.0,
            relative_error: 0.0,
            service_ns: 0,
            clients: 3,
            paused: false,
        };
        for (before, paused, words) in [
            (2, true, "paused; its share goes to the others"),
            (3, true, "already paused"),
            (0, false, "none of its clients was paused"),
            (1, false, "1 client resumed"),
            (2, false, "2 clients resumed"),
        ] {
            assert_eq!(of_group(&group, before, paused), words, "{before}");
        }
    }
}
