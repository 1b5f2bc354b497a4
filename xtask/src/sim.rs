//! What divvy's own command line needs of its `sim`, so that manual pages are made of all of it.

#[path = "../../crates/divvy-cli/src/sim/args.rs"]
pub(crate) mod args;
