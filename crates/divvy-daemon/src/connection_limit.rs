//! Who may connect, and how many connections there may be.
//!
//! A user's own divvyd answers its user and root, and lets others than the first 64 connections wait. A system's answers
//! everybody: there, nobody but root may take so many that another user finds none, and whoever has too many is told so
//! at once, since a connection that waits keeps the next one waiting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::UnixStream;

use crate::market::message::Who;
use crate::message::Refusal;
use divvy_api::types::ErrorCode;

/// Connections of a user's own divvyd at a time; more wait until they are accepted.
const OWN_CONNECTIONS: u32 = 64;
/// Connections of a system's divvyd at a time.
const ALL_CONNECTIONS: u32 = 1000;
/// Of these, those that only root can have: an administrator is always answered.
const RESERVE: u32 = 64;
/// Connections of one user at a time.
const USER_CONNECTIONS: u32 = 64;

/// Counts who is in.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    /// The one who may enter beside root; `None` lets everybody in.
    owner: Option<u32>,
    inside: Mutex<Inside>,
}

/// Connections by user; nobody has none.
#[derive(Debug, Default)]
struct Inside {
    all: u32,
    of: HashMap<u32, u32>,
}

/// Lets its user be inside until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    limit: Arc<ConnectionLimit>,
    uid: u32,
}

impl ConnectionLimit {
    /// For user `owner`'s own divvyd.
    pub(crate) fn of_user(owner: u32) -> Arc<Self> {
        Arc::new(Self { owner: Some(owner), inside: Mutex::default() })
    }

    /// For a system's divvyd.
    pub(crate) fn of_system() -> Arc<Self> {
        Arc::new(Self { owner: None, inside: Mutex::default() })
    }

    /// Connections that may be open at a time, by whomever; the next waits to be accepted.
    pub(crate) fn connections(&self) -> u32 {
        if self.owner.is_some() { OWN_CONNECTIONS } else { ALL_CONNECTIONS }
    }

    /// Lets a connection of user `uid` in; of `None` where the kernel does not tell.
    pub(crate) fn enter(self: &Arc<Self>, uid: Option<u32>) -> Result<Pass, Refusal> {
        let stranger =
            || uid.map_or_else(|| "nobody that the kernel tells".to_owned(), |u| format!("user {u}"));
        let uid = match (uid, self.owner) {
            (Some(uid), None) => uid,
            (Some(uid), Some(owner)) if uid == owner || uid == 0 => uid,
            (_, Some(owner)) => {
                let text = format!("this is the divvyd of user {owner}, and you are {}", stranger());
                return Err(Refusal::new(ErrorCode::NotPermitted, text, "start your own: `divvy run`"));
            }
            (None, None) => {
                let text = format!("divvyd serves users, and you are {}", stranger());
                return Err(Refusal::new(ErrorCode::NotPermitted, text, ""));
            }
        };
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let of = inside.of.get(&uid).copied().unwrap_or(0);
        if self.owner.is_none() && uid != 0 {
            if of >= USER_CONNECTIONS {
                let text = format!("user {uid} has {of} connections to divvyd already, and may have no more");
                return Err(Refusal::new(
                    ErrorCode::Limit,
                    text,
                    "close some, or send more requests over each",
                ));
            }
            if inside.all >= ALL_CONNECTIONS - RESERVE {
                let text = format!("{} connections to divvyd are open already", inside.all);
                return Err(Refusal::new(ErrorCode::Busy, text, "ask again later"));
            }
        }
        inside.all += 1;
        inside.of.insert(uid, of + 1);
        drop(inside);
        Ok(Pass { limit: Arc::clone(self), uid })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut inside = self.limit.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.all -= 1;
        if let Some(of) = inside.of.get_mut(&self.uid) {
            *of -= 1;
            if *of == 0 {
                inside.of.remove(&self.uid);
            }
        }
    }
}

/// Who is at the other end, as it was when it connected: to be asked once for a whole connection.
pub(crate) fn peer(stream: &UnixStream) -> std::io::Result<Who> {
    let peer = stream.peer_cred()?;
    let mut gids = vec![peer.gid()];
    // Where the kernel does not tell, nobody has rights by a group but the first.
    gids.extend(
        divvy_linux::peer_groups(stream).unwrap_or_default().into_iter().filter(|&g| g != peer.gid()),
    );
    Ok(Who { uid: peer.uid(), gids, pid: peer.pid().unwrap_or(0), by_root: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(entered: Result<Pass, Refusal>) -> ErrorCode {
        entered.expect_err("somebody who may not").code
    }

    #[test]
    fn one_user_cannot_keep_another_out_and_nobody_root() {
        let limit = ConnectionLimit::of_system();
        let enter = |uid, n| (0..n).map(|_| limit.enter(Some(uid)).expect("room")).collect::<Vec<Pass>>();
        let mut of_one = enter(1, USER_CONNECTIONS);
        assert_eq!(code(limit.enter(Some(1))), ErrorCode::Limit);
        of_one.pop();
        of_one.extend(enter(1, 1));
        assert_eq!(code(limit.enter(Some(1))), ErrorCode::Limit);
        // All that users may have, and then what is kept for root; who has none is told by the first limit that holds.
        let users = (ALL_CONNECTIONS - RESERVE) / USER_CONNECTIONS;
        let mut others: Vec<Vec<Pass>> = (2..=users).map(|uid| enter(uid, USER_CONNECTIONS)).collect();
        others.push(enter(users + 1, (ALL_CONNECTIONS - RESERVE) % USER_CONNECTIONS));
        assert_eq!(code(limit.enter(Some(users + 2))), ErrorCode::Busy);
        let of_root = enter(0, RESERVE);
        drop((of_one, others, of_root));
        let inside = limit.inside.lock().unwrap();
        assert_eq!((inside.all, inside.of.len()), (0, 0), "nobody is counted who has left");
    }

    #[test]
    fn a_users_own_lets_its_user_and_root_in() {
        let limit = ConnectionLimit::of_user(7);
        let passes: Vec<Pass> = (0..200).map(|_| limit.enter(Some(7)).expect("its own")).collect();
        assert_eq!(passes.len(), 200, "others wait before they are accepted");
        assert!(limit.enter(Some(0)).is_ok());
        for stranger in [Some(8), None] {
            assert_eq!(code(limit.enter(stranger)), ErrorCode::NotPermitted);
        }
        assert_eq!(code(ConnectionLimit::of_system().enter(None)), ErrorCode::NotPermitted);
    }
}
