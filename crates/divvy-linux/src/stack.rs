//! Room on the stack, whatever `ulimit -s` says.
//!
//! The limit holds for a program's first thread and is handed on to what it starts, so it is left as it is. Reading a
//! command line takes more than some limits leave (256 KiB was too little); another thread's stack is as large as it is
//! asked to be.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use rustix::process::{Resource, getrlimit};

/// Below this limit another thread is used.
const ENOUGH: u64 = 4 << 20;
/// The size of that thread's stack: what a first thread usually has.
const ROOM: usize = 8 << 20;
/// What Rust's runtime ends a process with that has panicked.
const PANICKED: i32 = 101;

/// Runs `main`, and the rest of this process's life, with at least some MiB of stack. To be called first of all; the
/// calling thread does nothing any more but wait.
pub fn with_room(main: fn() -> ExitCode) -> ExitCode {
    if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= ENOUGH) {
        return main();
    }
    // A process that was forked in there has no other thread that could end it with its code.
    let run = move || {
        let code = catch_unwind(AssertUnwindSafe(main)).map_or(PANICKED, number);
        std::process::exit(code)
    };
    let thread = std::thread::Builder::new().name("divvy".into()).stack_size(ROOM).spawn(run);
    if thread.is_ok() {
        // Signals are that thread's, which says what becomes of them.
        let all = nix::sys::signal::SigSet::all();
        let _ = nix::sys::signal::pthread_sigmask(nix::sys::signal::SigmaskHow::SIG_BLOCK, Some(&all), None);
    }
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(never)) => never,
        Ok(Err(_)) => ExitCode::from(PANICKED as u8),
        // No thread can be had: some room may do.
        Err(_) => main(),
    }
}

fn number(code: ExitCode) -> i32 {
    (0..=u8::MAX).find(|&n| ExitCode::from(n) == code).map_or(PANICKED, i32::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_numbers() {
        for n in [0, 1, 7, 130, 255] {
            assert_eq!(number(ExitCode::from(n)), i32::from(n));
        }
    }
}
