//! divvy as its users meet it: real processes, the real program, from the outside.
#![allow(clippy::disallowed_methods, reason = "these tests live in real time")]

mod api;
mod attach;
mod attached;
mod crash;
mod daemon;
mod dispatch;
mod ends;
mod family;
mod harness;
mod hostile;
mod input;
mod others;
mod plot;
mod readme;
mod share;
mod terminal;
mod top;
