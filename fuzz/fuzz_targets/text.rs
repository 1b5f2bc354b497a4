//! Words that people and programs write: what is taken can be written again, and means the same.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use divvy_engine::policies::{GateSpec, PolicySpec, Span};
use divvy_linux::{CpuMask, Selector, matches_glob};
use divvy_market::{CurrencyId, Resource, TicketId};
use divvy_policy::dispatch::fixed::Fixed;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    kept::<Selector>(text);
    kept::<CurrencyId>(text);
    kept::<TicketId>(text);
    kept::<Resource>(text);
    kept::<Span>(text);
    // Lists of no CPU are refused, so whatever was read can be written.
    kept::<CpuMask>(text);
    kept::<PolicySpec>(text);
    let _ = text.parse::<Fixed>();
    mode(text);
    let (pattern, name) = text.split_once('\n').unwrap_or((text, text));
    // A star is tried at each character; longer ones only take longer.
    if text.len() <= 512 {
        let _ = matches_glob(pattern, name);
    }
    let spec = GateSpec { policy: text.to_owned(), ..GateSpec::default() };
    let (made, quantum) = (spec.make(), spec.quantum());
    assert!(made.is_err() || quantum.is_ok(), "a gate without a quantum: {quantum:?}");
});

/// What was read is the same when it was written and read again.
fn kept<T: FromStr + Display + Debug + PartialEq>(text: &str) {
    let Ok(read) = text.parse::<T>() else { return };
    let written = read.to_string();
    assert_eq!(written.parse::<T>().ok().as_ref(), Some(&read), "{text:?} was written as {written:?}");
}

fn mode(text: &str) {
    let Some(mode) = divvy_daemon::fuzzing::mode(text) else { return };
    let digits = text.len() == 3 && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    assert!(digits || text.len() == 9, "{text:?} is neither three digits nor nine letters");
    assert_eq!(divvy_daemon::fuzzing::mode(&mode.to_string()), Some(mode));
}
