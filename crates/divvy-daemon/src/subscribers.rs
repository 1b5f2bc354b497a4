//! Who follows what happens: how many answers full of events each user may have under way.
//!
//! Events are in one ring for everybody, and whoever reads has no queue of its own: it says from which number on, gets a
//! bounded part, and is told how many were `lost` if it came too late. All that a slow reader can make divvyd keep is the
//! answer that it does not read. So these are counted, from the question to the last byte.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::market::message::Who;
use crate::message::Refusal;
use divvy_api::types::ErrorCode;

/// Answers full of events that one user, root or not, may have under way: each is .6 MB at most.
const AT_A_TIME: u32 = 8;

/// Counts them. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subscribers(Arc<Mutex<BTreeMap<u32, u32>>>);

/// One answer that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    all: Subscribers,
    uid: u32,
}

impl Subscribers {
    /// Counts one more of `who`.
    ///
    /// # Errors
    /// [`ErrorCode::Limit`] where the user has as many as one may have.
    pub(crate) fn enter(&self, who: &Who) -> Result<Turn, Refusal> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has = all.entry(who.uid).or_default();
        if *has >= AT_A_TIME {
            let text = format!("user {} has {has} answers with events under way already", who.uid);
            return Err(Refusal::new(ErrorCode::Limit, text, "read those first"));
        }
        *has += 1;
        drop(all);
        Ok(Turn { all: self.clone(), uid: who.uid })
    }
}

impl Turn {
    /// `body`, of which this is the turn.
    pub(crate) fn with(self, body: Body) -> Following {
        Following { body, _turn: self }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(has) = all.get_mut(&self.uid) {
            *has -= 1;
            if *has == 0 {
                all.remove(&self.uid);
            }
        }
    }
}

/// The body of an answer with events.
#[derive(Debug)]
pub(crate) struct Following {
    body: Body,
    _turn: Turn,
}

impl HttpBody for Following {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn who_does_not_read_gets_no_more_and_others_do() {
        let all = Subscribers::default();
        let who = |uid| Who { uid, gids: vec![uid], pid: 1, by_root: false };
        let body = |turn: Turn| turn.with(Body::from(vec![7; 100]));
        let mut under_way: Vec<Following> =
            (0..AT_A_TIME).map(|_| body(all.enter(&who(1)).expect("room"))).collect();
        assert_eq!(all.enter(&who(1)).expect_err("too many").code, ErrorCode::Limit);
        let _other = all.enter(&who(2)).expect("another user has room of its own");
        // Once one was read to its end, or given up, there is room for another.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let read = runtime.block_on(under_way.pop().expect("one").collect()).expect("a body").to_bytes();
        assert_eq!(read.len(), 100);
        under_way.push(body(all.enter(&who(1)).expect("room")));
        assert!(all.enter(&who(1)).is_err());
        drop(under_way);
        assert_eq!(
            all.0.lock().unwrap().keys().copied().collect::<Vec<_>>(),
            [2],
            "who has none is forgotten"
        );
    }
}
