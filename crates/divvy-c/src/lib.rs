//! libdivvy: what `include/divvy.h` documents. This file is the border to C; what is done is in `share.rs`.

mod share;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use divvy_api::client::{Asked, Choice};
use divvy_api::types::ClientState;

use share::{Failure, Kind, Row, Share};

const OK: c_int = 0;
const NAME_SIZE: usize = 64;
const FLAG_OWN: c_uint = 1;
const FLAG_SYSTEM: c_uint = 2;
const FLAG_NO_START: c_uint = 4;

/// `struct divvy_row`.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "include/divvy.h has them")]
pub struct DivvyRow {
    pub name: [c_char; NAME_SIZE],
    pub share: u64,
    pub limit_ppm: u64,
    pub target: f64,
    pub achieved: f64,
    pub error: f64,
    pub cpu_ns: u64,
    pub processes: u32,
    pub state: i32,
}

/// `divvy`.
pub struct Divvy(Mutex<Share>);

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::new((OK, CString::default()));
}

/// Keeps what went wrong for `divvy_error` and `divvy_message`.
fn keep(failure: &Failure) -> c_int {
    let number = match failure.kind {
        Kind::Invalid => 1,
        Kind::NoScheduler => 2,
        Kind::Refused => 3,
        Kind::NoSuch => 4,
        Kind::System => 5,
        Kind::Internal => 6,
    };
    let words = CString::new(failure.words.replace('\0', "?")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = (number, words));
    number
}

/// What `act` comes to; a panic ends here, and not in frames of C.
fn guarded<T>(act: impl FnOnce() -> Result<T, Failure>) -> Result<T, c_int> {
    let done = catch_unwind(AssertUnwindSafe(act));
    let done =
        done.unwrap_or_else(|_| Err(Failure::new(Kind::Internal, "libdivvy has failed: please report it")));
    done.map_err(|failure| keep(&failure))
}

/// Does something with the divvy that `d` points to.
///
/// # Safety
/// `d` is NULL, or from `divvy_open` and not closed.
unsafe fn with<T>(d: *mut Divvy, act: impl FnOnce(&mut Share) -> Result<T, Failure>) -> Result<T, c_int> {
    guarded(|| {
        // SAFETY: the caller's promise; only shared references are made of it, and the mutex divides them.
        let divvy = unsafe { d.as_ref() };
        let divvy =
            divvy.ok_or_else(|| Failure::new(Kind::Invalid, "the divvy is NULL; divvy_open gives one"))?;
        // What a panic left is what divvyd was told, or not.
        let mut share = divvy.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut share)
    })
}

/// A string of C's.
///
/// # Safety
/// `text` is NULL or ends in NUL, and stays as it is during the call.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::new(Kind::Invalid, format!("{what} is NULL")));
    }
    // SAFETY: it is not NULL, and the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::new(Kind::Invalid, format!("{what} is no UTF-8")))
}

/// A name, which fits a row.
///
/// # Safety
/// As [`text`].
unsafe fn name<'a>(given: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(given, "the name") }?;
    if name.len() >= NAME_SIZE {
        return Err(Failure::new(
            Kind::Invalid,
            format!("the name '{name}' has more than {} bytes", NAME_SIZE - 1),
        ));
    }
    Ok(name)
}

fn number(done: Result<(), c_int>) -> c_int {
    done.err().unwrap_or(OK)
}

/// See `include/divvy.h`.
#[unsafe(no_mangle)]
pub extern "C" fn divvy_open(flags: c_uint) -> *mut Divvy {
    let opened = guarded(|| {
        let asked = match (flags & FLAG_OWN != 0, flags & FLAG_SYSTEM != 0) {
            _ if flags & !(FLAG_OWN | FLAG_SYSTEM | FLAG_NO_START) != 0 => {
                return Err(Failure::new(Kind::Invalid, format!("flags {flags:#x}: a bit has no meaning")));
            }
            (true, true) => {
                return Err(Failure::new(
                    Kind::Invalid,
                    "DIVVY_OWN and DIVVY_SYSTEM_ONLY exclude each other",
                ));
            }
            (true, false) => Some(Asked::Own),
            (false, true) => Some(Asked::System),
            (false, false) => None,
        };
        let choice = Choice::new(asked, None)?;
        Share::open(choice, flags & FLAG_NO_START == 0)
    });
    match opened {
        Ok(share) => Box::into_raw(Box::new(Divvy(Mutex::new(share)))),
        Err(_) => std::ptr::null_mut(),
    }
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` is NULL, or from [`divvy_open`], not closed, and in no other thread's call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_close(d: *mut Divvy) {
    if d.is_null() {
        return;
    }
    // SAFETY: from `Box::into_raw`, by the caller's promise, and nobody's any more.
    let divvy = unsafe { Box::from_raw(d) };
    let _ = guarded(|| {
        divvy.0.into_inner().unwrap_or_else(PoisonError::into_inner).close();
        Ok(())
    });
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` as for [`with`]; `name_of` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_add_pid(
    d: *mut Divvy,
    name_of: *const c_char,
    pid: libc::pid_t,
    share: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe {
        with(d, |divvy| {
            if pid <= 0 {
                return Err(Failure::new(
                    Kind::Invalid,
                    format!("{pid} is no process; give a positive number"),
                ));
            }
            divvy.add(name(name_of)?, &format!("tree:{pid}"), share)
        })
    })
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` as for [`with`]; the strings end in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_add(
    d: *mut Divvy,
    name_of: *const c_char,
    selector: *const c_char,
    share: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe { with(d, |divvy| divvy.add(name(name_of)?, text(selector, "the selector")?, share)) })
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` as for [`with`]; `name_of` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_set_share(d: *mut Divvy, name_of: *const c_char, share: u64) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe { with(d, |divvy| divvy.set_share(name(name_of)?, share)) })
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` as for [`with`]; `name_of` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_set_limit(d: *mut Divvy, name_of: *const c_char, cpus: f64) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe { with(d, |divvy| divvy.set_limit(name(name_of)?, cpus)) })
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` as for [`with`]; `name_of` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_pause(d: *mut Divvy, name_of: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe { with(d, |divvy| divvy.set_paused(name(name_of)?, true)) })
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` as for [`with`]; `name_of` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_resume(d: *mut Divvy, name_of: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe { with(d, |divvy| divvy.set_paused(name(name_of)?, false)) })
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` as for [`with`]; `name_of` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_remove(d: *mut Divvy, name_of: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe { with(d, |divvy| divvy.remove(name(name_of)?)) })
}

/// See `include/divvy.h`.
///
/// # Safety
/// `d` as for [`with`]; `rows` has room for so many, or is NULL where `room` is 0; `count` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn divvy_report(
    d: *mut Divvy,
    rows: *mut DivvyRow,
    room: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe {
        with(d, |divvy| {
            if rows.is_null() && room > 0 {
                return Err(Failure::new(
                    Kind::Invalid,
                    "the rows are NULL, and there is to be room for some",
                ));
            }
            divvy.report()
        })
    };
    number(done.map(|report| {
        for (i, row) in report.iter().take(room).enumerate() {
            // SAFETY: there is room for `room` of them, and `i` is less.
            unsafe { rows.add(i).write(of(row)) };
        }
        if !count.is_null() {
            // SAFETY: it may be written to where it is not NULL.
            unsafe { count.write(report.len()) };
        }
    }))
}

fn of(row: &Row) -> DivvyRow {
    let mut name = [0; NAME_SIZE];
    for (to, from) in name.iter_mut().zip(row.name.bytes().take(NAME_SIZE - 1)) {
        *to = c_char::from_ne_bytes([from]);
    }
    DivvyRow {
        name,
        share: row.share,
        limit_ppm: row.limit_ppm,
        target: row.target,
        achieved: row.achieved,
        error: row.error,
        cpu_ns: row.cpu_ns,
        processes: row.processes,
        state: STATES.iter().position(|(state, _)| *state == row.state).map_or(-1, |at| at as i32),
    }
}

/// The states by their numbers.
const STATES: [(ClientState, &CStr); 7] = [
    (ClientState::Running, c"running"),
    (ClientState::Held, c"held"),
    (ClientState::Limited, c"limited"),
    (ClientState::Asleep, c"asleep"),
    (ClientState::Stopped, c"stopped"),
    (ClientState::Paused, c"paused"),
    (ClientState::Left, c"left"),
];

/// See `include/divvy.h`.
#[unsafe(no_mangle)]
pub extern "C" fn divvy_error() -> c_int {
    LAST.with(|last| last.borrow().0)
}

/// See `include/divvy.h`.
#[unsafe(no_mangle)]
pub extern "C" fn divvy_message() -> *const c_char {
    LAST.with(|last| last.borrow().1.as_ptr())
}

/// See `include/divvy.h`.
#[unsafe(no_mangle)]
pub extern "C" fn divvy_state_name(state: i32) -> *const c_char {
    let known = usize::try_from(state).ok().and_then(|at| STATES.get(at));
    known.map_or(c"unknown", |(_, name)| *name).as_ptr()
}

/// See `include/divvy.h`.
#[unsafe(no_mangle)]
pub extern "C" fn divvy_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
