//! Finding the user's divvyd, and starting it where there is none.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::io::Errno;

use crate::client::{Api, ApiError, Choice};
use crate::types::ErrorCode;

/// The scheduler's program.
const PROGRAM: &str = "divvyd";
/// A divvyd may end between two of our calls; so often another is started.
const ATTEMPTS: u32 = 5;

/// Why there is no divvyd to talk to.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It is there, or should be, but cannot be talked to.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The program cannot be run.
    #[error("start {}: {cause}; install divvyd beside divvy, or put it on the PATH", program.display())]
    NotFound {
        /// What was tried.
        program: PathBuf,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// It could not be started, or ended at once.
    #[error("{said}")]
    Failed {
        /// Its exit code; 1 if a signal ended it, 5 if the system gave it no process.
        code: u8,
        /// What it said, or the system.
        said: String,
    },
}

/// Calls `call` with the divvyd of that choice. The user's own is started if none runs; the system's never is.
///
/// # Errors
/// As [`with_divvyd`].
pub fn with_choice<T>(choice: &Choice, call: impl Fn(&Api) -> Result<T, ApiError>) -> Result<T, LaunchError> {
    match choice {
        Choice::Own => with_divvyd(call),
        Choice::System(_) => Ok(choice.api().and_then(|api| call(&api))?),
    }
}

/// Calls `call` with the user's divvyd, which is started if none runs; once more where it ended meanwhile.
///
/// # Errors
/// [`LaunchError`] where none can be started, or the error of the last call.
pub fn with_divvyd<T>(call: impl Fn(&Api) -> Result<T, ApiError>) -> Result<T, LaunchError> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let called = Api::of_user().and_then(|api| call(&api));
        match called {
            Err(ApiError::NotRunning(path)) => {
                last = Some(ApiError::NotRunning(path));
                start()?;
            }
            Err(e) if e.code() == Some(ErrorCode::Leaving) => last = Some(e),
            called => return Ok(called?),
        }
    }
    match last {
        Some(e) => Err(e.into()),
        None => Ok(Api::of_user().and_then(|api| call(&api))?),
    }
}

/// Starts divvyd in the background and waits until one serves: this one, or another that was started meanwhile.
///
/// # Errors
/// [`LaunchError::NotFound`], [`LaunchError::Failed`].
pub fn start() -> Result<(), LaunchError> {
    let program = program();
    let mut command = Command::new(&program);
    command.args(["--user", "--background"]).stdin(Stdio::null()).stdout(Stdio::null());
    // It is nobody's client, even where whoever asks for it is one.
    let output = match command.env_remove("DIVVY_CLIENT").stderr(Stdio::piped()).output() {
        Ok(output) => output,
        // A scheduler waits for all children of its process, whoever made them. It has ended, and whether one serves is seen
        // by the next call.
        Err(e) if e.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => return Ok(()),
        Err(cause) if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Err(LaunchError::NotFound { program, cause });
        }
        Err(cause) => {
            let said = format!("start {}: {cause}{}", program.display(), divvy_linux::limit_fix(&cause));
            return Err(LaunchError::Failed { code: 5, said });
        }
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().last().map_or_else(|| format!("divvyd: {}", output.status), str::to_owned);
    let code = output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(LaunchError::Failed { code, said })
}

/// divvyd beside the program that asks, else whichever the `PATH` has.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name(PROGRAM));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM))
}
