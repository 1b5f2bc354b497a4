//! Calls that wait, and how they take a suspension.
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "one argument holds for all: the pointers are to live values of the types that the kernel expects, or null \
              where it allows that"
)]

use std::os::fd::{AsRawFd as _, RawFd};

use super::{Method, PATIENCE, QUIET, Victim, pipe};

/// A call that waits for what does not come.
pub struct Call {
    /// As the document calls it.
    pub name: &'static str,
    /// Makes it: its error, or 0. Two descriptors of a pipe that stays empty are given.
    wait: fn(RawFd, RawFd) -> i32,
}

macro_rules! call {
    ($name:literal, $wait:expr) => {
        Call { name: $name, wait: $wait }
    };
}

/// The error of a call that returned `n`.
fn errno(n: impl Into<i64>) -> i32 {
    if n.into() < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

const MINUTE: libc::timespec = libc::timespec { tv_sec: 60, tv_nsec: 0 };

/// Every call of the document's table.
pub const CALLS: [Call; 20] = [
    call!("nanosleep", |_, _| errno(unsafe { libc::nanosleep(&MINUTE, std::ptr::null_mut()) })),
    call!("clock_nanosleep", |_, _| unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &MINUTE, std::ptr::null_mut())
    }),
    call!("pause", |_, _| errno(unsafe { libc::pause() })),
    call!("sigtimedwait", |_, _| unsafe {
        let mut set = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        errno(libc::sigtimedwait(&set, std::ptr::null_mut(), &MINUTE))
    }),
    call!("poll", |fd, _| {
        let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        errno(unsafe { libc::poll(&mut polled, 1, -1) })
    }),
    call!("select", |fd, _| unsafe {
        let mut set = std::mem::zeroed();
        libc::FD_SET(fd, &mut set);
        errno(libc::select(
            fd + 1,
            &mut set,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        ))
    }),
    call!("epoll_wait", |fd, _| unsafe {
        let epoll = libc::epoll_create1(0);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event);
        errno(libc::epoll_wait(epoll, &mut event, 1, -1))
    }),
    call!("read of a pipe", |fd, _| errno(read(fd))),
    call!("read of a timerfd", |_, _| unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
        let spec = libc::itimerspec { it_interval: MINUTE, it_value: MINUTE };
        libc::timerfd_settime(fd, 0, &spec, std::ptr::null_mut());
        errno(read(fd))
    }),
    call!("read of an inotify", |_, _| errno(read(unsafe { libc::inotify_init() }))),
    call!("accept", |_, _| {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        errno(unsafe { libc::accept(socket.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) })
    }),
    call!("recv", |_, _| receive(None)),
    call!("recv with SO_RCVTIMEO", |_, _| receive(Some(libc::timeval { tv_sec: 60, tv_usec: 0 }))),
    call!("futex", |_, _| {
        let word = 0_u32;
        let null = std::ptr::null::<libc::timespec>();
        errno(unsafe { libc::syscall(libc::SYS_futex, &word, libc::FUTEX_WAIT, 0, null) })
    }),
    call!("sem_wait", |_, _| unsafe {
        let mut semaphore = std::mem::zeroed();
        libc::sem_init(&mut semaphore, 0, 0);
        errno(libc::sem_wait(&mut semaphore))
    }),
    call!("semop", |_, _| semaphore(None)),
    call!("semtimedop", |_, _| semaphore(Some(&MINUTE))),
    call!("msgrcv", |_, _| unsafe {
        let queue = libc::msgget(key_of(std::process::id()), libc::IPC_CREAT | 0o600);
        let mut message = [0_u64; 4];
        errno(libc::msgrcv(queue, message.as_mut_ptr().cast(), 8, 0, 0) as i64)
    }),
    call!("flock", |_, _| unsafe {
        // Another description of the same file has the lock.
        let path = c"/proc/self/exe";
        let (one, two) =
            (libc::open(path.as_ptr(), libc::O_RDONLY), libc::open(path.as_ptr(), libc::O_RDONLY));
        libc::flock(one, libc::LOCK_SH);
        errno(libc::flock(two, libc::LOCK_EX))
    }),
    call!("wait4", |_, _| unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::nanosleep(&MINUTE, std::ptr::null_mut());
            libc::_exit(0);
        }
        errno(libc::wait4(child, std::ptr::null_mut(), 0, std::ptr::null_mut()))
    }),
];

fn read(fd: RawFd) -> i64 {
    let mut bytes = [0_u8; 256];
    // SAFETY: the kernel writes at most the buffer's length.
    unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) as i64 }
}

fn receive(timeout: Option<libc::timeval>) -> i32 {
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let mut byte = [0_u8];
    // SAFETY: the kernel reads one whole time and writes one byte.
    unsafe {
        if let Some(timeout) = timeout {
            let size = size_of_val(&timeout) as libc::socklen_t;
            let set = (&raw const timeout).cast();
            libc::setsockopt(one.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, set, size);
        }
        errno(libc::recv(one.as_raw_fd(), byte.as_mut_ptr().cast(), 1, 0) as i64)
    }
}

/// What this process's object of System V's is called, so that the test can find it.
fn key_of(pid: u32) -> libc::key_t {
    0x0d1f_0000_u32.wrapping_add(pid) as libc::key_t
}

/// Removes what a call of process `pid` has left: objects of System V's outlive their makers.
fn remove_left(pid: u32) {
    // SAFETY: takes and returns numbers only; no pointer is used by these commands.
    unsafe {
        let (set, queue) = (libc::semget(key_of(pid), 1, 0), libc::msgget(key_of(pid), 0));
        if set >= 0 {
            libc::semctl(set, 0, libc::IPC_RMID);
        }
        if queue >= 0 {
            libc::msgctl(queue, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}

fn semaphore(timeout: Option<&libc::timespec>) -> i32 {
    // SAFETY: as for the calls.
    unsafe {
        let set = libc::semget(key_of(std::process::id()), 1, libc::IPC_CREAT | 0o600);
        let mut operation = libc::sembuf { sem_num: 0, sem_op: -1, sem_flg: 0 };
        match timeout {
            Some(timeout) => errno(libc::syscall(
                libc::SYS_semtimedop,
                set,
                &raw mut operation,
                1,
                std::ptr::from_ref(timeout),
            )),
            None => errno(libc::semop(set, &mut operation, 1)),
        }
    }
}

/// What becomes of `call` when its process is suspended and resumed in it: `EINTR`, or `goes on`; `None` where it cannot be
/// suspended in this way. It is waited for as long as it takes where it is to return.
pub fn outcome_of(call: &Call, method: Method, returns: bool) -> Option<&'static str> {
    let (read_end, write_end) = pipe();
    let fds = (read_end.as_raw_fd(), write_end.as_raw_fd());
    let mut victim = Victim::new(method, |tell| {
        tell.number(0);
        let error = (call.wait)(fds.0, fds.1);
        tell.number(1000 + error.unsigned_abs() as u64);
    })?;
    assert_eq!(victim.heard(), 0);
    victim.wait_asleep();
    victim.suspend();
    std::thread::sleep(QUIET / 3);
    victim.resume();
    let told = victim.heard_within(if returns { PATIENCE } else { QUIET });
    let pid = victim.pid.as_raw_nonzero().get().unsigned_abs();
    drop(victim);
    remove_left(pid);
    drop((read_end, write_end));
    Some(match told {
        None => "goes on",
        Some(n) if n == 1000 + libc::EINTR as u64 => "EINTR",
        Some(n) => panic!("{}: {}", call.name, std::io::Error::from_raw_os_error((n - 1000) as i32)),
    })
}
