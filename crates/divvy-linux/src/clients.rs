//! Clients by id: an id is never given twice, and a client that is forgotten leaves nothing behind.
//!
//! Ids rise for ever, so what is kept is found by id and not by place: a scheduler that has let a hundred thousand clients go
//! looks at, and pays for, those that it has.

use std::collections::BTreeMap;
use std::ops::{Bound, Index, IndexMut};

use divvy_policy::ClientId;

/// What is known of each client that has not been forgotten.
#[derive(Debug)]
pub(crate) struct ById<T> {
    next: u32,
    known: BTreeMap<u32, Box<T>>,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self { next: 0, known: BTreeMap::new() }
    }
}

impl<T> ById<T> {
    /// The id that the next client will have.
    pub(crate) const fn next_id(&self) -> ClientId {
        ClientId(self.next)
    }

    /// How many are known, ended ones among them.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Takes in the client with the next id.
    pub(crate) fn push(&mut self, client: T) {
        self.known.insert(self.next, Box::new(client));
        self.next += 1;
    }

    /// Takes back the last that was taken in, of which nobody was told: its id is given again.
    pub(crate) fn pop(&mut self) -> Option<Box<T>> {
        let last = self.known.remove(&self.next.checked_sub(1)?)?;
        self.next -= 1;
        Some(last)
    }

    /// Drops what is known of a client. Its id is not given again.
    pub(crate) fn forget(&mut self, client: ClientId) -> Option<Box<T>> {
        self.known.remove(&client.0)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        Some(self.known.get(&u32::try_from(index).ok()?)?)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        Some(self.known.get_mut(&u32::try_from(index).ok()?)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.known.values().map(|client| &**client)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.known.values_mut().map(|client| &mut **client)
    }

    /// Each with its id, by id.
    pub(crate) fn with_ids(&self) -> impl Iterator<Item = (ClientId, &T)> {
        self.known.iter().map(|(&id, client)| (ClientId(id), &**client))
    }

    /// As [`with_ids`](Self::with_ids).
    pub(crate) fn with_ids_mut(&mut self) -> impl Iterator<Item = (ClientId, &mut T)> {
        self.known.iter_mut().map(|(&id, client)| (ClientId(id), &mut **client))
    }

    /// The first whose index is `from` or more, or else the first of all: for whoever takes turns among them.
    pub(crate) fn in_turn(&self, from: usize) -> Option<usize> {
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        let next = self.known.range((Bound::Included(from), Bound::Unbounded)).next();
        next.or_else(|| self.known.iter().next()).map(|(&id, _)| id as usize)
    }

    /// All indices, beginning with the first that is `from` or more.
    pub(crate) fn all_in_turn(&self, from: usize) -> Vec<usize> {
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        self.known.range(from..).chain(self.known.range(..from)).map(|(&id, _)| id as usize).collect()
    }
}

impl<T> Index<usize> for ById<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        self.get(index).expect("a client that was not forgotten")
    }
}

impl<T> IndexMut<usize> for ById<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("a client that was not forgotten")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_that_came_and_went_leave_nothing() {
        let mut all = ById::default();
        all.push("stays".to_owned());
        for n in 1..=100_000 {
            let client = all.next_id();
            assert_eq!(client, ClientId(n), "no id is given twice");
            all.push(format!("client {n}"));
            assert_eq!(
                all.forget(client).as_deref().map(String::as_str),
                Some(format!("client {n}").as_str())
            );
            assert_eq!(all.forget(client), None);
        }
        assert_eq!((all.len(), all.known.len(), all.next_id()), (1, 1, ClientId(100_001)));
        assert_eq!((all[0].as_str(), all.get(77)), ("stays", None));
        assert_eq!(all.with_ids().collect::<Vec<_>>(), [(ClientId(0), &"stays".to_owned())]);
    }

    #[test]
    fn everybody_has_a_turn() {
        let mut all = ById::default();
        assert_eq!((all.in_turn(0), all.all_in_turn(3)), (None, vec![]));
        (0..10).for_each(|n| all.push(n));
        for gone in [0, 3, 4, 9] {
            all.forget(ClientId(gone));
        }
        assert_eq!([0, 3, 5, 9, 100].map(|from| all.in_turn(from)), [1, 5, 5, 1, 1].map(Some));
        assert_eq!(all.all_in_turn(4), [5, 6, 7, 8, 1, 2]);
        // One that nobody was told of gives its id back, and is not mistaken for one that was forgotten.
        all.push(10);
        assert_eq!((all.pop(), all.pop(), all.next_id()), (Some(Box::new(10)), None, ClientId(10)));
    }
}
