//! What else a suspension does, and to whom.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use divvy_linux::{Pid, Signal, clock, procfs};
use divvy_policy::Nanos;

use super::{Method, PATIENCE, QUIET, Suspended, Victim, eventually};

/// A case's row in the document, and what happens.
pub type Case = (&'static str, fn(Method) -> Option<&'static str>);

/// Every case of the document's table.
pub const CASES: [Case; 15] = [
    ("state in /proc/PID/stat", state),
    ("threads", threads),
    ("CPU clock", cpu_clock),
    ("waitpid(WUNTRACED) of the parent", waitpid),
    ("handler for SIGCONT", handler),
    ("SIGTERM meanwhile", terminate),
    ("SIGKILL meanwhile", kill),
    ("sleep that ends meanwhile", sleep),
    ("periodic timerfd", timerfd),
    ("lock (flock)", lock),
    ("connection to its socket", connection),
    ("data sent to its socket", data),
    ("tracer", tracer),
    ("SIGSTOP by somebody else meanwhile", second_stop),
    ("interactive shell that it is the foreground job of", shell),
];

/// How long what `method` brings about by signals alone is waited for: where it is to come, for as long as it takes.
fn by_signals(method: Method) -> Duration {
    if method == Method::Signals { PATIENCE } else { QUIET }
}

/// Waits until `met` for at most so long; says whether it is.
fn within(time: Duration, mut met: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if met() {
            return true;
        }
        if begun.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

fn sleeper(method: Method) -> Option<Victim> {
    let victim = Victim::new(method, |_| std::thread::sleep(Duration::from_secs(60)))?;
    victim.wait_asleep();
    Some(victim)
}

fn state(method: Method) -> Option<&'static str> {
    let victim = sleeper(method)?;
    victim.suspend();
    Some(match victim.state() {
        procfs::State::Stopped => "T",
        procfs::State::Sleeping => "S",
        other => panic!("{other:?}"),
    })
}

fn clock_of(pid: Pid) -> Nanos {
    clock::process_cpu(pid).expect("readable").expect("not waited for")
}

/// Whether the CPU clock of `pid` stands still.
fn stands(pid: Pid) -> bool {
    // Threads stop one after the other, and a clock may be a tick behind.
    std::thread::sleep(QUIET / 3);
    let before = clock_of(pid);
    std::thread::sleep(QUIET);
    clock_of(pid) == before
}

fn threads(method: Method) -> Option<&'static str> {
    let mut victim = Victim::new(method, |tell| {
        let other = std::thread::spawn(|| spin());
        tell.number(1);
        let _ = other.join();
    })?;
    victim.heard();
    eventually("the thread to run", || clock_of(victim.pid) > Nanos::from_millis(5));
    victim.suspend();
    Some(if stands(victim.pid) { "all stop" } else { "some go on" })
}

fn cpu_clock(method: Method) -> Option<&'static str> {
    let victim = Victim::new(method, |_| spin())?;
    eventually("it to run", || clock_of(victim.pid) > Nanos::from_millis(5));
    victim.suspend();
    Some(if stands(victim.pid) { "stands" } else { "goes on" })
}

fn waitpid(method: Method) -> Option<&'static str> {
    use rustix::process::WaitOptions;
    let victim = sleeper(method)?;
    victim.suspend();
    let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
    let tells = within(by_signals(method), || {
        let told = rustix::process::waitpid(Some(victim.pid), options).expect("our child");
        told.is_some_and(|(_, status)| {
            assert!(status.stopped());
            true
        })
    });
    Some(if tells { "tells" } else { "does not tell" })
}

fn handler(method: Method) -> Option<&'static str> {
    extern "C" fn on_signal(_: libc::c_int) {
        CALLED.store(true, std::sync::atomic::Ordering::SeqCst);
    }
    static CALLED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let mut victim = Victim::new(method, |tell| {
        // SAFETY: the handler stores one atomic.
        unsafe { libc::signal(libc::SIGCONT, on_signal as *const () as libc::sighandler_t) };
        tell.number(1);
        while !CALLED.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        tell.number(2);
        std::thread::sleep(Duration::from_secs(60));
    })?;
    victim.heard();
    victim.suspend();
    victim.resume();
    Some(if victim.heard_within(by_signals(method)).is_some() { "runs" } else { "does not run" })
}

fn after(method: Method, signal: Signal) -> Option<&'static str> {
    let victim = sleeper(method)?;
    victim.suspend();
    victim.signal(signal);
    // Only SIGTERM waits, and only for who is suspended by signals.
    let waits = signal == Signal::TERM && method == Method::Signals;
    if within(if waits { QUIET } else { PATIENCE }, || victim.state().is_ended()) {
        return Some("ends it at once");
    }
    victim.resume();
    eventually("it to end", || victim.state().is_ended());
    Some("ends it when it is resumed")
}

fn terminate(method: Method) -> Option<&'static str> {
    after(method, Signal::TERM)
}

fn kill(method: Method) -> Option<&'static str> {
    after(method, Signal::KILL)
}

fn sleep(method: Method) -> Option<&'static str> {
    /// Long enough to be suspended within, also where the CPU is taken away for a while.
    const SLEEP: Duration = Duration::from_secs(3);
    let mut victim = Victim::new(method, |tell| {
        tell.number(1);
        std::thread::sleep(SLEEP);
        tell.number(2);
    })?;
    victim.heard();
    victim.wait_asleep();
    victim.suspend();
    std::thread::sleep(SLEEP + QUIET);
    assert_eq!(victim.heard_within(Duration::ZERO), None, "it stands");
    let resumed = Instant::now();
    victim.resume();
    victim.heard();
    let more = resumed.elapsed();
    assert!(more < SLEEP, "it slept for {more:?} more");
    Some("ends when it is resumed")
}

fn timerfd(method: Method) -> Option<&'static str> {
    let mut victim = Victim::new(method, |tell| {
        let ten_ms = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        // SAFETY: the pointers are to live values of the types that the kernel expects.
        unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
            let spec = libc::itimerspec { it_interval: ten_ms, it_value: ten_ms };
            libc::timerfd_settime(fd, 0, &spec, std::ptr::null_mut());
            loop {
                let mut count = 0_u64;
                libc::read(fd, (&raw mut count).cast(), 8);
                tell.number(count);
            }
        }
    })?;
    victim.heard();
    victim.suspend();
    std::thread::sleep(Duration::from_millis(300));
    // What it had told before it stood.
    while victim.heard_within(Duration::ZERO).is_some() {}
    victim.resume();
    let (first, second) = (victim.heard(), victim.heard());
    Some(if first.max(second) >= 10 { "counts on" } else { "waits" })
}

fn lock(method: Method) -> Option<&'static str> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = std::ffi::CString::new(file.path().as_os_str().as_encoded_bytes()).expect("a path");
    let mut victim = Victim::new(method, |tell| {
        // SAFETY: the path is a live string.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR) };
        // SAFETY: takes and returns numbers only.
        assert_eq!(unsafe { libc::flock(fd, libc::LOCK_EX) }, 0);
        tell.number(1);
        std::thread::sleep(Duration::from_secs(60));
    })?;
    victim.heard();
    victim.suspend();
    // SAFETY: takes and returns numbers only.
    let free = unsafe { libc::flock(file.as_file().as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    Some(if free { "is given up" } else { "is kept: others wait" })
}

/// A process that accepts connections and reads from them, and the port that it does so on.
fn server(method: Method) -> Option<(Victim, std::net::SocketAddr)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let victim = Victim::new(method, |tell| {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut bytes) {
                tell.number(n as u64);
            }
        }
    })?;
    victim.wait_asleep();
    Some((victim, address))
}

fn connection(method: Method) -> Option<&'static str> {
    let (victim, address) = server(method)?;
    victim.suspend();
    let connected = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5));
    Some(if connected.is_ok() { "is made, and waits" } else { "is refused" })
}

fn data(method: Method) -> Option<&'static str> {
    let (mut victim, address) = server(method)?;
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.write_all(b"first").expect("it reads");
    victim.heard();
    victim.suspend();
    stream.write_all(&[0; 1000]).expect("there is room");
    assert_eq!(victim.heard_within(QUIET), None, "it stands");
    victim.resume();
    assert_eq!(victim.heard(), 1000);
    // Only so much is kept for it.
    victim.suspend();
    stream.set_nonblocking(true).expect("a socket");
    let chunk = vec![0; 1 << 16];
    eventually("its buffers to be full", || stream.write(&chunk).is_err());
    Some("is kept until the buffers are full")
}

fn tracer(method: Method) -> Option<&'static str> {
    let victim = sleeper(method)?;
    let raw = victim.pid.as_raw_nonzero().get();
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: takes and returns numbers only.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, raw, none, none) };
    assert_eq!(seized, 0, "our own child can be traced: {}", std::io::Error::last_os_error());
    match victim.method() {
        Method::Signals => victim.signal(Signal::STOP),
        Method::Freezer => victim.suspend(),
    }
    let sees = within(by_signals(method), || {
        let mut status = 0;
        // SAFETY: the status is ours to be written to.
        let told = unsafe { libc::waitpid(raw, &mut status, libc::WNOHANG | libc::__WALL) };
        told == raw && libc::WIFSTOPPED(status)
    });
    Some(if sees { "sees it first, and decides" } else { "sees nothing" })
}

fn second_stop(method: Method) -> Option<&'static str> {
    let victim = sleeper(method)?;
    victim.suspend();
    victim.signal(Signal::STOP);
    std::thread::sleep(QUIET / 3);
    victim.resume();
    std::thread::sleep(QUIET);
    Some(if victim.state().is_suspended() { "stays" } else { "is undone by the resume" })
}

/// A shell on a terminal of its own. Dropping it hangs up, and ends it.
struct Shell {
    terminal: std::fs::File,
    pid: Pid,
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }
}

fn shell(method: Method) -> Option<&'static str> {
    use std::os::fd::FromRawFd as _;
    let mut terminal = -1;
    let null = std::ptr::null_mut::<libc::c_void>();
    let argv = [c"sh".as_ptr(), c"-i".as_ptr(), std::ptr::null()];
    // SAFETY: the child executes at once; the parent gets a descriptor of its own.
    let pid = unsafe { libc::forkpty(&mut terminal, null.cast(), null.cast(), null.cast()) };
    if pid == 0 {
        // SAFETY: the strings end with zeros, and the list with a null pointer.
        unsafe {
            libc::execv(c"/bin/sh".as_ptr(), argv.as_ptr());
            libc::_exit(127);
        }
    }
    // SAFETY: the descriptor is ours, and open.
    let terminal = unsafe { std::fs::File::from_raw_fd(terminal) };
    let mut shell = Shell { terminal, pid: Pid::from_raw(pid).expect("a child's pid") };
    shell.terminal.write_all(b"sleep 1000\n").expect("a terminal");
    let mut found = Vec::new();
    eventually("the job", || {
        found.clear();
        procfs::children(shell.pid, shell.pid, &mut found).is_ok()
            && found
                .iter()
                .any(|&p| procfs::stat(p).is_ok_and(|s| s.is_some_and(|s| s.comm.as_bytes() == b"sleep")))
    });
    let job = Suspended::new(method, found[0])?;
    std::thread::sleep(QUIET);
    // A shell that has its terminal back does what it is told.
    shell.terminal.write_all(b"echo a$((1 + 1))z\n").expect("a terminal");
    let deadline = Instant::now() + by_signals(method).max(2 * QUIET);
    let mut said = Vec::new();
    while Instant::now() < deadline && !said.windows(3).any(|w| w == b"a2z") {
        let mut polled = [rustix::event::PollFd::new(&shell.terminal, rustix::event::PollFlags::IN)];
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        if rustix::event::poll(&mut polled, Some(&wait)) == Ok(1) {
            let mut bytes = [0; 4096];
            let n = shell.terminal.read(&mut bytes).unwrap_or(0);
            said.extend_from_slice(&bytes[..n]);
        }
    }
    drop(job);
    Some(if said.windows(3).any(|w| w == b"a2z") {
        "takes it for stopped, and its terminal back"
    } else {
        "waits"
    })
}
