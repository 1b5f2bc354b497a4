//! `bpf/core.h` compiled natively: what `bpf/native.c` offers of it.
#![expect(dead_code, reason = "each test calls some of them")]

/// Nobody.
pub const NONE: u32 = u32::MAX;

unsafe extern "C" {
    pub fn dvn_start(policy: u32, quantum: u64, seed: u64, alpha: u64);
    pub fn dvn_as_published();
    pub fn dvn_cpus(cpus: u32);
    pub fn dvn_sessions(beta: u64, excluded: bool, gamma: i64);
    pub fn dvn_log_row(row: u32, log: u64, reciprocal: u64);
    pub fn dvn_join(id: u32, share: u64);
    pub fn dvn_wake(id: u32, now: u64);
    pub fn dvn_block(id: u32, busy: bool, now: u64);
    pub fn dvn_reshare(id: u32, share: u64);
    pub fn dvn_pick(ran: u32, now: u64) -> u32;
    pub fn dvn_preempts(id: u32, runs: u32, now: u64) -> bool;
    pub fn dvn_charge(id: u32, used: u64);
    pub fn dvn_return(id: u32);
    pub fn dvn_hide(id: u32, list: u32) -> u32;
    pub fn dvn_show(list: u32) -> u32;
    pub fn dvn_log2(x: u64) -> i64;
    pub fn dvn_counter(id: u32) -> i64;
    pub fn dvn_following(id: u32) -> u32;
}
