//! Why the kernel let go of a scheduler, in words.

use std::fmt;

/// What the kernel said when it let go of a scheduler (`struct scx_exit_info`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// `enum scx_exit_kind`.
    pub kind: u32,
    /// What a program or the kernel gave with it.
    pub code: i64,
    /// The kernel's short reason.
    pub reason: String,
    /// What it says of this case.
    pub message: String,
}

const UNREGISTERED: u32 = 64;
const BY_PROGRAM: u32 = 65;
const BY_KERNEL: u32 = 66;
const SYSRQ: u32 = 67;
const ERROR: u32 = 1024;
const ERROR_OF_PROGRAM: u32 = 1025;
const STALL: u32 = 1026;
/// `SCX_ECODE_RSN_HOTPLUG`, in the code of an end by the kernel.
const HOTPLUG: i64 = 1 << 32;

impl Left {
    /// Whether somebody asked the loader for it.
    #[must_use]
    pub fn was_asked_for(&self) -> bool {
        self.kind == UNREGISTERED
    }

    /// What happened, and what can be done.
    #[must_use]
    pub fn in_words(&self) -> &'static str {
        match self.kind {
            UNREGISTERED => "divvy-scx took it away, as it was asked to",
            BY_PROGRAM => "the scheduler itself asked to end",
            BY_KERNEL if self.code & HOTPLUG != 0 => {
                "a CPU came or went while it was being loaded: start divvy-scx again"
            }
            BY_KERNEL => "the kernel ended it, without an error",
            SYSRQ => {
                "somebody pressed Alt-SysRq-S, or wrote S to /proc/sysrq-trigger, which ends every such scheduler"
            }
            ERROR => {
                "the kernel found that it did something impossible: a fault of divvy-scx, please report it"
            }
            ERROR_OF_PROGRAM => "it found its own state impossible: a fault of divvy-scx, please report it",
            STALL => {
                "the watchdog ejected it: a task that could run got no CPU for longer than --watchdog. fcfs and las \
                 starve clients by design, and a small enough share comes to the same: a shorter quantum, a larger \
                 share or a longer --watchdog helps"
            }
            _ => "the kernel gives a reason that this divvy-scx does not know",
        }
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (kernel: {}", self.in_words(), self.reason)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_words_of_its_own() {
        let of = |kind, code| Left { kind, code, reason: "r".to_owned(), message: String::new() };
        let kinds =
            [(64, 0), (65, 0), (66, HOTPLUG), (66, 0), (67, 0), (1024, 0), (1025, 0), (1026, 0), (7, 0)];
        let words: std::collections::BTreeSet<_> =
            kinds.iter().map(|&(kind, code)| of(kind, code).in_words()).collect();
        assert_eq!(words.len(), kinds.len());
        assert!(kinds.iter().filter(|&&(kind, code)| of(kind, code).was_asked_for()).eq([&(64, 0)]));
    }

    #[test]
    fn the_kernels_own_words_are_kept() {
        let left = Left {
            kind: STALL,
            code: 0,
            reason: "runnable task stall".to_owned(),
            message: "sh[7] failed".to_owned(),
        };
        let text = left.to_string();
        assert!(text.starts_with("the watchdog ejected it: "), "{text}");
        assert!(text.ends_with(" (kernel: runnable task stall: sh[7] failed)"), "{text}");
    }
}
