//! Answers that take looks at many processes, or long to write down: made beside the API's thread, which answers others
//! meanwhile.
//!
//! At a system's divvyd, a user's looks take a tenth of the time at most: whoever asks for thousands of processes again and
//! again waits, and keeps nobody else from being answered.

use std::sync::{Arc, Mutex, PoisonError};

use axum::response::Response;
use divvy_linux::clock;
use tokio::sync::Semaphore;

use crate::market::message::Who;
use crate::message::Refusal;
use crate::scheduler::Spent;
use divvy_api::types::ErrorCode;

/// Looks that are done at once, where one asks: about 50 us.
const FEW: usize = 8;
/// Answers that are made beside the API's thread at a time; more wait.
const AT_A_TIME: usize = 2;

/// Makes answers. Clones work together.
#[derive(Clone, Debug)]
pub(crate) struct Lookers {
    turns: Arc<Semaphore>,
    /// How much time each user took, where there are several.
    spent: Option<Arc<Mutex<Spent>>>,
}

impl Lookers {
    /// For one user, or for `several`.
    pub(crate) fn new(several: bool) -> Self {
        let spent = several.then(Arc::default);
        Self { turns: Arc::new(Semaphore::new(AT_A_TIME)), spent }
    }

    /// What `make` makes for `who`, which takes about so many looks at processes.
    ///
    /// # Errors
    /// [`ErrorCode::Limit`] where the user's looks have taken too much time already; what `make` says.
    pub(crate) async fn look(
        &self,
        who: &Who,
        looks: usize,
        make: impl FnOnce() -> Result<Response, Refusal> + Send + 'static,
    ) -> Result<Response, Refusal> {
        if looks <= FEW {
            return make();
        }
        let spent = self.spent.as_ref().filter(|_| who.uid != 0);
        if let Some(spent) = spent {
            let checked = spent.lock().unwrap_or_else(PoisonError::into_inner).check(who.uid, clock::now());
            checked.map_err(|wait| {
                let text = format!("what user {} asks for takes too much of divvyd's time", who.uid);
                let fix = format!("ask again in {} ms, or for less", wait.0.div_ceil(1_000_000));
                Refusal::new(ErrorCode::Limit, text, fix)
            })?;
        }
        // The semaphore is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        let made = tokio::task::spawn_blocking(move || {
            let begun = clock::own_thread_cpu();
            let made = make();
            drop(turn);
            (made, clock::own_thread_cpu().saturating_sub(begun))
        });
        let (made, took) =
            made.await.map_err(|e| Refusal::new(ErrorCode::Internal, e, "see divvyd's log"))?;
        if let Some(spent) = spent {
            spent.lock().unwrap_or_else(PoisonError::into_inner).charge(who.uid, took, clock::now());
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(future)
    }

    /// Takes CPU time, as a look at thousands of processes does.
    fn slowly() -> Result<Response, Refusal> {
        let until = clock::own_thread_cpu() + divvy_policy::Nanos::from_millis(60);
        while clock::own_thread_cpu() < until {
            std::hint::black_box(0);
        }
        Ok(Response::new(Body::empty()))
    }

    #[test]
    fn long_answers_are_made_elsewhere_and_take_a_part_of_the_time() {
        let lookers = Lookers::new(true);
        let who = |uid| Who { uid, gids: vec![uid], pid: 1, by_root: false };
        let own = std::thread::current().id();
        run(lookers.look(&who(7), FEW, move || {
            assert_eq!(std::thread::current().id(), own, "a short one is made at once");
            Ok(Response::new(Body::empty()))
        }))
        .expect("an answer");
        let mut answered = 0;
        let refusal = loop {
            match run(lookers.look(&who(7), FEW + 1, slowly)) {
                Ok(_) => answered += 1,
                Err(refusal) => break refusal,
            }
        };
        assert!((5..100).contains(&answered), "{answered}: half a second of looks at once, and then a tenth");
        assert_eq!(refusal.code, ErrorCode::Limit);
        assert!(run(lookers.look(&who(8), FEW + 1, slowly)).is_ok(), "another user is answered");
        assert!(run(lookers.look(&who(0), FEW + 1, slowly)).is_ok(), "and root");
        assert!(run(lookers.look(&who(7), FEW, slowly)).is_ok(), "and what is short");
    }
}
