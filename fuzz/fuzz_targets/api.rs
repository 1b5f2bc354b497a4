//! Bodies of requests to divvyd: whatever is taken can be written, and is the same then.
#![no_main]

use std::fmt::Debug;

use divvy_api::market::{
    Bound, CurrencyChange, NewCurrency, NewExchange, NewNice, NewOffer, NewTicket, TicketChange,
};
use divvy_api::types::{Change, ErrorBody, Events, NewClient, Plan};
use divvy_market::{Broker, Caller, Op};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

fuzz_target!(|body: &[u8]| {
    kept::<NewClient>(body);
    kept::<Change>(body);
    kept::<NewCurrency>(body);
    kept::<CurrencyChange>(body);
    kept::<NewTicket>(body);
    kept::<TicketChange>(body);
    kept::<NewOffer>(body);
    kept::<NewExchange>(body);
    kept::<NewNice>(body);
    kept::<Bound>(body);
    // Answers, and what the log is made of.
    kept::<Plan>(body);
    kept::<Events>(body);
    kept::<ErrorBody>(body);
    kept::<Op>(body);
    kept::<Broker>(body);
    kept::<Caller>(body);
});

/// What was read is the same when it was written and read again.
fn kept<T: DeserializeOwned + Serialize + PartialEq + Debug>(body: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(body) else { return };
    let written = serde_json::to_vec(&read).expect("what was read can be written");
    let again = serde_json::from_slice::<T>(&written).expect("what was written can be read");
    assert_eq!(again, read);
}
