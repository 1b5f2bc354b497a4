//! Owners to be killed: processes of their own, forked from the test, that hold and release what they are given.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

use divvy_linux::guard::{BEAT_INTERVAL, Guardian, Reach, RuntimeDir, Slot, Table};
use divvy_linux::{GroupDelivery, Pid, ProcessRef, Signal, clock, procfs};
use divvy_policy::Nanos;

/// A small generator (splitmix64), for moments that a seed reproduces.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// An owner process, from the test's side. Dropping it kills and reaps it.
pub struct Owner {
    pid: Pid,
    told: File,
    pub guardian: Pid,
    reaped: bool,
}

/// The owner's own side: its table, guardian and clients.
pub struct Held {
    pub table: Table,
    pub guardian: Guardian,
    pub clients: Vec<(ProcessRef, Slot, bool)>,
    told: File,
}

impl Owner {
    /// Forks an owner of `clients` (with how far each is held) whose table is in `dir`, and which then lives as `life` says.
    /// Returns once its guardian is there.
    pub fn fork(dir: &RuntimeDir, clients: &[(Pid, Reach)], life: impl FnOnce(Held)) -> Self {
        let mut ends = [0; 2];
        // SAFETY: makes two descriptors, which are taken over below.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: they are ours, and open.
        let [read, write] = ends.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        // SAFETY: the library makes its allocator usable in the child; nothing else that another thread may have
        // locked is used there, and it never returns from here.
        match unsafe { nix::unistd::fork() }.expect("fork") {
            nix::unistd::ForkResult::Child => {
                let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    // Not to outlive a test that is killed.
                    nix::sys::prctl::set_pdeathsig(nix::sys::signal::SIGKILL).expect("prctl");
                    let mut held = Held::new(dir, clients, write);
                    held.tell(held.guardian.pid());
                    life(held);
                }));
                // SAFETY: ends the process; the test's own end handlers must not run in it.
                unsafe { libc::_exit(i32::from(lived.is_err())) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                drop(write);
                let pid = Pid::from_raw(child.as_raw()).expect("a child's pid");
                let mut owner = Self { pid, told: read, guardian: pid, reaped: false };
                owner.guardian = Pid::from_raw(owner.heard() as i32).expect("the guardian's pid");
                owner
            }
        }
    }

    /// The next number that the owner tells.
    pub fn heard(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.told.read_exact(&mut bytes).expect("the owner lives and tells");
        u64::from_ne_bytes(bytes)
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid, signal).expect("our own child, not reaped yet");
    }

    /// Kills it (no warning, no clean-up) and reaps it.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if !self.reaped {
            self.reaped = true;
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Held {
    fn new(dir: &RuntimeDir, clients: &[(Pid, Reach)], told: File) -> Self {
        let mut table = Table::create(dir, 1024).expect("table");
        let guardian = Guardian::start(&table).expect("guardian");
        let clients = clients
            .iter()
            .map(|&(pid, reach)| {
                let process = ProcessRef::open(pid).expect("pidfd").expect("alive");
                let slot = table.add(pid, process.start(), reach).expect("room");
                (process, slot, matches!(reach, Reach::Group { .. }))
            })
            .collect();
        table.beat(clock::now());
        Self { table, guardian, clients, told }
    }

    /// Tells the test a number.
    pub fn tell(&mut self, pid: Pid) {
        self.tell_number(pid.as_raw_nonzero().get() as u64);
    }

    pub fn tell_number(&mut self, number: u64) {
        self.told.write_all(&number.to_ne_bytes()).expect("the test listens");
    }

    /// Holds client `i`: the journal first.
    pub fn hold(&self, i: usize) {
        let (process, slot, group) = &self.clients[i];
        self.table.set_held(slot, true);
        signal(process, *group, Signal::STOP);
    }

    /// Releases client `i`: the journal last.
    pub fn release(&self, i: usize) {
        let (process, slot, group) = &self.clients[i];
        signal(process, *group, Signal::CONT);
        self.table.set_held(slot, false);
    }

    /// Beats for ever, and calls `each` in between.
    pub fn beat_for_ever(mut self, mut each: impl FnMut(&mut Self)) -> ! {
        loop {
            self.table.beat(clock::now());
            each(&mut self);
            clock::sleep(Nanos(BEAT_INTERVAL.0 / 4));
        }
    }
}

/// Signals a client as a host does, on every kernel.
fn signal(process: &ProcessRef, group: bool, signal: Signal) {
    if !group {
        process.signal(signal).expect("permitted");
    } else if process.signal_group(signal).expect("permitted") == GroupDelivery::Unsupported {
        procfs::processes(|pid| {
            if procfs::stat(pid).is_ok_and(|s| s.is_some_and(|s| s.pgrp == Some(process.pid())))
                && let Ok(Some(member)) = ProcessRef::open(pid)
            {
                member.signal(signal).expect("permitted");
            }
        })
        .expect("readable");
    }
}
