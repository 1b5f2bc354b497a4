//! The compiled programs, as libbpf-cargo describes them.

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/divvy.skel.rs"));
