//! Users that this machine has no accounts for, so that nothing else runs as one of them, and no name is known of them.
//!
//! Numbers of any fixed choice are somebody's somewhere (64030 is Slurm's on Debian). So each is looked up before it is
//! used: the first that is free is user 0 of the tests, the next user 1, and so on, on one machine always the same ones.

use std::sync::LazyLock;

/// Where it is looked from: behind what people and packages get, before what systemd gives to services.
const FIRST: u32 = 60_600;
/// More than the tests have users.
const USERS: usize = 32;

static FREE: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let is_free = |id: &u32| divvy_linux::user_name(*id).is_none() && divvy_linux::group_name(*id).is_none();
    (FIRST..).filter(is_free).take(USERS).collect()
});

/// The number of the `n`-th user and group without an account. Two tests with the same `n` may meet as one user.
pub fn nobody(n: usize) -> u32 {
    FREE[n]
}

#[test]
fn nobody_has_an_account() {
    let all: std::collections::BTreeSet<u32> = (0..USERS).map(nobody).collect();
    assert_eq!(all.len(), USERS, "each is another");
    // As `id` sees it, which asks the machine on a way of its own.
    for id in all.iter().take(8) {
        let known = std::process::Command::new("getent").args(["passwd", &id.to_string()]).output();
        assert_eq!(known.expect("getent").status.code(), Some(2), "user {id} is somebody");
    }
}
