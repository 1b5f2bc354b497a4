//! Who leaves a CPU and who gets it: the kernel tells of each switch of those that were asked about, as it happens.
//!
//! One ring for a CPU takes the records of all commands; a command has an event of its own, inherited by all that it will have,
//! and switched on only while it matters. Only then does it write there at all: the kernel wakes whoever polls a ring at each
//! end of a process that has inherited one of its events, be that on or off.
//!
//! **Who reads the ring.** Each record wakes whoever polls it, and to be woken on the CPU in question takes that from the thread
//! that has just got it, which is two more records: a scheduler that listened itself would keep waking itself. So a process of
//! its own reads, the listener, of the lowest weight that there is (`SCHED_IDLE`, in a session of nice 19). It runs as soon
//! as the CPU has nothing else to do, which is when a sleep matters, and within a tick or so otherwise; and it writes into a pipe
//! only if something has changed. What a command's processes do among themselves passes unseen, and so do sleeps that are over
//! before anybody could act on them. A command that changes more often than its owner can act on it is told of less often ([`Heard`]).

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use divvy_policy::{Instant, Nanos};
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_FLAG_FD_CLOEXEC, PERF_RECORD_MISC_SWITCH_OUT,
    PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, PERF_RECORD_SWITCH, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_TIME,
    PERF_TYPE_SOFTWARE, SET_OUTPUT, perf_event_attr, perf_event_mmap_page,
};
use perf_event_open_sys::ioctls;
use rustix::event::{PollFd, PollFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::pipe::PipeFlags;

use super::heard::{Budget, Heard, Told};
use crate::aide::{Aide, settle};
use crate::error::last_errno;
use crate::{Error, Result, clock, own};

/// Pages of the ring behind its first, which is not of records: some 600 records. More at once say no more than the last.
const RING_PAGES: usize = 4;
/// Events that the listener remembers the state of; of others nothing is heard.
const EVENTS_MAX: usize = 256;
/// A message: the event's number, and what is told.
const MESSAGE: usize = 16;

/// The ring, as this process sees it. A process that is forked has to map it anew.
#[derive(Debug)]
struct Map {
    at: *mut perf_event_mmap_page,
    /// Bytes of a page.
    page: usize,
}

// SAFETY: the mapping is the process's, not a thread's.
unsafe impl Send for Map {}

impl Map {
    fn of(ring: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let page = rustix::param::page_size();
        let size = page * (1 + RING_PAGES);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, access, flags, ring, 0)? };
        Ok(Self { at: at.cast(), page })
    }

    /// The word of the ring at `position`, which is a multiple of 8.
    fn word(&self, position: u64) -> u64 {
        let at = self.page + (position % (self.page * RING_PAGES) as u64) as usize;
        // SAFETY: within the mapping, and aligned; the kernel writes there only what lies beyond the head.
        unsafe { self.at.cast::<u8>().add(at).cast::<u64>().read_volatile() }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped for as long as this lives, and the kernel stores whole words.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.at).data_head) }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as above; only the listener stores there.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.at).data_tail) }
    }

    /// Calls `each` with the events whose processes were switched, in order, when that was, and whether that process runs or
    /// wants to.
    fn read(&self, mut each: impl FnMut(u64, Instant, bool)) {
        let head = self.head().load(Ordering::Acquire);
        let mut at = self.tail().load(Ordering::Relaxed);
        while at < head {
            // type: u32, misc: u16, size: u16.
            let header = self.word(at).to_ne_bytes();
            let [a, b, c, d, m, n, s, t] = header;
            let (kind, misc) = (u32::from_ne_bytes([a, b, c, d]), u32::from(u16::from_ne_bytes([m, n])));
            let size = u64::from(u16::from_ne_bytes([s, t])).max(8);
            // At the end: time: u64, the event's number: u64.
            if kind == PERF_RECORD_SWITCH && size >= 24 {
                let out = misc & PERF_RECORD_MISC_SWITCH_OUT != 0;
                let preempted = misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0;
                let when = Instant(self.word(at + size - 16));
                each(self.word(at + size - 8), when, !out || preempted);
            }
            // Of records that were lost, those that follow say how things stand.
            at += size;
        }
        self.tail().store(at, Ordering::Release);
    }
}

/// The switches of one CPU.
#[derive(Debug)]
pub struct Switches {
    cpu: u32,
    ring: Rc<OwnedFd>,
    /// Kept so that events can write into the ring before the listener has mapped it.
    _map: Map,
    messages: OwnedFd,
    listener: Aide,
}

impl AsFd for Switches {
    /// Readable when [`Switches::take`] has something to tell.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.messages.as_fd()
    }
}

/// What the listener needs: all made before the fork.
struct Duty<'a> {
    ring: BorrowedFd<'a>,
    messages: BorrowedFd<'a>,
    states: [Heard; EVENTS_MAX],
    /// When a message that was put off is due.
    due: Option<Instant>,
    budget: Budget,
}

impl Switches {
    /// A ring for `cpu`, and a process that reads it.
    ///
    /// # Errors
    /// [`Error::Permission`] where `perf_event_paranoid` or a filter forbids it, [`Error::System`] where there is no memory for
    /// the ring (`perf_event_mlock_kb`), or no process.
    pub fn open(cpu: u32) -> Result<Self> {
        let failed = |e| Error::system("open a ring of perf events", "for a CPU's switches", e);
        let ring = open_event(cpu, false).map_err(failed)?;
        let map = Map::of(ring.as_fd()).map_err(failed)?;
        let (messages, writer) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(failed)?;
        let states = [Heard::default(); EVENTS_MAX];
        let mut duty = Duty {
            ring: ring.as_fd(),
            messages: writer.as_fd(),
            states,
            due: None,
            budget: Budget::new(clock::now()),
        };
        let listener = Aide::fork(&mut duty, listen).map_err(failed)?;
        Ok(Self { cpu, ring: Rc::new(ring), _map: map, messages, listener })
    }

    /// The CPU that it is of.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Has the records of `event` written here.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses.
    pub fn adopt(&self, event: OwnedFd) -> Result<SwitchEvent> {
        let failed = || Error::system("read a perf event's number", "of a command", last_errno());
        let mut id = 0;
        // SAFETY: the kernel writes one number.
        let done = unsafe { ioctls::ID(event.as_raw_fd(), &raw mut id) == 0 };
        let event = SwitchEvent { event, ring: Rc::clone(&self.ring), id, on: false };
        // Whether it can be had at all shows now.
        if done && event.write_to(Some(&self.ring)) && event.write_to(None) {
            Ok(event)
        } else {
            Err(failed())
        }
    }

    /// Calls `each` with the events that were told of since the last call, and what was. Says whether there is still somebody
    /// who listens.
    pub fn take(&self, mut each: impl FnMut(u64, Told)) -> bool {
        let mut buffer = [0; 64 * MESSAGE];
        let Ok(read) = rustix::io::read(&self.messages, &mut buffer) else { return true };
        let words = buffer.as_chunks::<8>().0.as_chunks::<2>().0;
        for [id, told] in &words[..read / MESSAGE] {
            each(u64::from_ne_bytes(*id), Told::of(u64::from_ne_bytes(*told)));
        }
        read > 0
    }

    /// CPU time that listening has cost.
    pub fn cost(&self) -> Nanos {
        clock::process_cpu_raw(self.listener.pid()).ok().flatten().unwrap_or_default()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever could read from it goes with this.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), self.page * (1 + RING_PAGES)) };
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        // It would end by itself when the pipe is closed, but be a zombie then.
        let _ = self.listener.end();
    }
}

/// The listener's life.
extern "C" fn listen(duty: &mut Duty<'_>) -> ! {
    settle([duty.ring, duty.messages], c"divvy-listener");
    own::come_last();
    if let Ok(map) = Map::of(duty.ring) {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(duty.ring, PollFlags::IN),
                PollFd::from_borrowed_fd(duty.messages, PollFlags::empty()),
            ];
            let left = duty.due.map(|due| due.since(clock::now()));
            let left =
                left.map(|Nanos(ns)| rustix::time::Timespec { tv_sec: 0, tv_nsec: ns.min(999_999_999) as _ });
            let polled = rustix::event::poll(&mut fds, left.as_ref());
            // Nobody reads the pipe any more, or polling does not work: looks do without us.
            if polled.is_err() || !fds[1].revents().is_empty() {
                break;
            }
            // Where this has the CPU by a tick's grace rather than because nobody else wants it, they go on first.
            rustix::thread::sched_yield();
            let now = clock::now();
            duty.read(&map);
            if !duty.pass_on(now) {
                break;
            }
        }
    }
    // SAFETY: ends the process without running anything of the owner's.
    unsafe { libc::_exit(0) }
}

impl Duty<'_> {
    /// Takes in what the ring says. Of more events than there is room for, those that came first are heard of.
    fn read(&mut self, map: &Map) {
        map.read(|id, at, runs| {
            if let Some(heard) = self.states.iter_mut().find(|heard| heard.id == id || heard.id == 0) {
                heard.id = id;
                heard.note(at, runs, &mut self.budget);
            }
        });
    }

    /// Writes down what is due; says whether there is anybody to read it.
    fn pass_on(&mut self, now: Instant) -> bool {
        self.due = None;
        for heard in self.states.iter_mut().take_while(|heard| heard.id != 0) {
            let Some(due) = heard.due() else { continue };
            if due > now {
                self.due = Some(self.due.map_or(due, |first| first.min(due)));
                continue;
            }
            let told = heard.told();
            heard.tell(now, &mut self.budget);
            let mut message = [0; MESSAGE];
            message[..8].copy_from_slice(&heard.id.to_ne_bytes());
            message[8..].copy_from_slice(&(told as u64).to_ne_bytes());
            // A full pipe has enough in it to wake whoever reads it.
            if rustix::io::write(self.messages, &message) == Err(rustix::io::Errno::PIPE) {
                return false;
            }
        }
        true
    }
}

/// A command's event.
#[derive(Debug)]
pub struct SwitchEvent {
    event: OwnedFd,
    ring: Rc<OwnedFd>,
    id: u64,
    on: bool,
}

impl SwitchEvent {
    /// What its records are known by.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether records are written.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Has records written, or no more.
    pub fn turn(&mut self, on: bool) {
        let fd = self.event.as_raw_fd();
        let written = on && self.write_to(Some(&self.ring));
        // SAFETY: takes and returns numbers only.
        let done = unsafe { if on { ioctls::ENABLE(fd, 0) } else { ioctls::DISABLE(fd, 0) } };
        self.on = written && done == 0;
        if !self.on {
            self.write_to(None);
        }
    }

    /// Has its records written into `ring`, or nowhere; says whether the kernel does so.
    fn write_to(&self, ring: Option<&OwnedFd>) -> bool {
        // -1 has to be that in all bits of a word, which the bindings' own call does not see to.
        let ring = ring.map_or(-1, |ring| libc::c_long::from(ring.as_raw_fd()));
        // The C libraries do not agree on the type of a request.
        let request = SET_OUTPUT as libc::Ioctl;
        // SAFETY: takes and returns numbers only; the kernel keeps the ring for as long as the event writes there.
        unsafe { libc::ioctl(self.event.as_raw_fd(), request, ring) == 0 }
    }
}

/// Opens an event for the calling process's switches on `cpu`, switched off. A system call and no more: for use between fork
/// and exec too.
pub fn open_own(cpu: u32) -> rustix::io::Result<OwnedFd> {
    open_event(cpu, true)
}

/// One that takes records of switches, inherited; or one that has nothing of its own, and a ring that wakes its readers.
fn open_event(cpu: u32, switches: bool) -> rustix::io::Result<OwnedFd> {
    let mut attr = perf_event_attr::default();
    attr.type_ = PERF_TYPE_SOFTWARE;
    attr.config = u64::from(PERF_COUNT_SW_DUMMY);
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.sample_type = u64::from(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TIME);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr.set_use_clockid(1);
    attr.set_disabled(u64::from(switches));
    attr.set_inherit(u64::from(switches));
    attr.set_context_switch(u64::from(switches));
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr.set_sample_id_all(1);
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = 1;
    let flags = PERF_FLAG_FD_CLOEXEC as libc::c_ulong;
    // SAFETY: the kernel reads the attributes, which are whole and of the size that they say.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw mut attr, 0, cpu as libc::c_int, -1, flags) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test sleeps so that its sleep is told")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::CpuMask;

    /// Processes that end while nobody listens to them wake nobody.
    #[test]
    fn a_listener_sleeps_while_its_events_are_off() {
        if open_event(0, true).is_err() {
            let why = "perf events may not be opened here";
            crate::skip::skip("a_listener_sleeps_while_its_events_are_off", why);
            return;
        }
        let cpu = rustix::thread::sched_getcpu() as u32;
        CpuMask::only(cpu).apply(rustix::thread::gettid()).expect("our own thread");
        let switches = Switches::open(cpu).expect("a ring");
        let mut event = switches.adopt(open_own(cpu).expect("an event")).expect("the ring takes it");
        let path = format!("/proc/{}/status", switches.listener.pid());
        let status = |field: &str| {
            let status = std::fs::read_to_string(&path).expect("it lives");
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            line.map(|value| value.trim().to_owned()).expect("the kernel tells it")
        };
        let slept = || status("voluntary_ctxt_switches:").parse::<u64>().expect("a number");
        // One that has been woken waits for its turn, and has not slept again yet.
        let sleeps = || status("State:").starts_with('S');
        let ends = |n: u32| {
            for _ in 0..n {
                let status = std::process::Command::new("true").status().expect("a child");
                assert!(status.success());
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // It runs last of all, which on a busy machine can take a while.
        let patience = |what: &str, mut is: Box<dyn FnMut() -> bool>| {
            let begun = clock::now();
            while !is() {
                assert!(clock::now().since(begun) < Nanos::from_secs(60), "{what}");
            }
        };
        let quiet = || {
            let before = slept();
            std::thread::sleep(Duration::from_millis(200));
            before > 0 && sleeps() && slept() == before
        };
        patience("it waits", Box::new(quiet));
        let before = slept();
        ends(40);
        assert_eq!(slept(), before, "it was off from the beginning");
        event.turn(true);
        assert!(event.is_on());
        let heard = || {
            ends(1);
            slept() > before
        };
        patience("it is on", Box::new(heard));
        event.turn(false);
        patience("it has read what was written by then", Box::new(quiet));
        let before = slept();
        ends(40);
        assert_eq!(slept(), before, "it is off again");
    }

    #[test]
    fn a_thread_that_sleeps_and_wakes_is_heard() {
        if open_event(0, true).is_err() {
            crate::skip::skip(
                "a_thread_that_sleeps_and_wakes_is_heard",
                "perf events may not be opened here",
            );
            return;
        }
        let cpu = rustix::thread::sched_getcpu() as u32;
        // The records are those of this CPU.
        CpuMask::only(cpu).apply(rustix::thread::gettid()).expect("our own thread");
        let switches = Switches::open(cpu).expect("a ring");
        let mut event = switches.adopt(open_own(cpu).expect("an event")).expect("the ring takes it");
        let id = event.id();
        // Nothing is told before it is asked for.
        std::thread::sleep(Duration::from_millis(20));
        assert!(switches.take(|id, _| panic!("heard of {id}")));
        event.turn(true);
        assert!(event.is_on());
        let (mut slept, mut woke) = (false, false);
        let begun = clock::now();
        while !(slept && woke) && clock::now().since(begun) < Nanos::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
            // Who wakes for a moment is not told to have.
            let woken = clock::now();
            while clock::now().since(woken) < Nanos::from_millis(20) {}
            assert!(switches.take(|of, told| {
                assert_eq!(of, id);
                (slept, woke) = (slept || told == Told::Sleeps, woke || told == Told::Runs);
            }));
        }
        assert!(slept && woke, "told of a sleep: {slept}, of its end: {woke}");
        assert!(switches.cost() > Nanos::ZERO);
        // The listener leaves nothing behind.
        let listener = switches.listener.pid();
        drop(switches);
        assert!(crate::procfs::stat(listener).expect("/proc").is_none());
    }
}
