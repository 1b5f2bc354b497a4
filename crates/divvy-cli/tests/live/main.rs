//! divvy as its users meet it: real processes, the real program, from the outside.
#![allow(clippy::disallowed_methods, reason = "these tests live in real time")]

mod accounts;
mod admin;
mod api;
mod attach;
mod attached;
mod backend;
mod books;
mod browser;
mod compare;
mod completion;
mod cpus;
mod crash;
mod daemon;
mod daemon_program;
mod dispatch;
mod divided;
mod ends;
mod family;
mod front;
mod groups;
mod harness;
mod hostile;
mod input;
mod kills;
mod limits;
mod manners;
mod market;
mod market_api;
mod others;
mod plot;
mod readme;
mod rules;
mod seen;
mod share;
mod site;
#[path = "../../../divvy-linux/tests/common/skip.rs"]
mod skip;
mod system;
mod tags;
mod terminal;
mod together;
mod top;
mod usage;
mod web;
mod wrappers;
