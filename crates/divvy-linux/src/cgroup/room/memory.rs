//! The memory controller. All sizes are bytes; the kernel rounds what it is given down to whole pages.

use super::text::{Limit, Parse, Pressure, keyed};
use super::{Attribute, Controller, ReadOnly};

const SIZE: &str = "bytes, or max";

/// What is never taken from it while it has no more than this.
pub const MEMORY_MIN: Attribute<Limit> = Attribute::new("memory.min", Controller::Memory, SIZE);
/// What is taken from it only when nothing unprotected is left elsewhere.
pub const MEMORY_LOW: Attribute<Limit> = Attribute::new("memory.low", Controller::Memory, SIZE);
/// Beyond this its processes are slowed down and memory is taken back.
pub const MEMORY_HIGH: Attribute<Limit> = Attribute::new("memory.high", Controller::Memory, SIZE);
/// Beyond this a process is killed if nothing can be taken back.
pub const MEMORY_MAX: Attribute<Limit> = Attribute::new("memory.max", Controller::Memory, SIZE);
/// What it has, children's included.
pub const MEMORY_CURRENT: Attribute<u64, ReadOnly> = Attribute::new("memory.current", Controller::Memory, "");
/// How often its bounds were met.
pub const MEMORY_EVENTS: Attribute<MemoryEvents, ReadOnly> =
    Attribute::new("memory.events", Controller::Memory, "");
/// How much of the time its processes waited for memory.
pub const MEMORY_PRESSURE: Attribute<Pressure, ReadOnly> =
    Attribute::new("memory.pressure", Controller::Memory, "");

/// `memory.events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// Memory was taken from it although it had no more than `memory.low`.
    pub low: u64,
    /// It was above `memory.high`.
    pub high: u64,
    /// It was about to go above `memory.max`.
    pub max: u64,
    /// An allocation failed for lack of memory.
    pub oom: u64,
    /// Processes killed for it.
    pub oom_kill: u64,
}

impl Parse for MemoryEvents {
    fn parse(text: &str) -> Result<Self, &'static str> {
        Ok(Self {
            low: keyed(text, "low").ok_or("low")?,
            high: keyed(text, "high").ok_or("high")?,
            max: keyed(text, "max").ok_or("max")?,
            oom: keyed(text, "oom").ok_or("oom")?,
            oom_kill: keyed(text, "oom_kill").ok_or("oom_kill")?,
        })
    }
}
