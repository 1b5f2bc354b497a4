//! Which divvyd is asked: the system's, or this user's own.

use std::path::{Path, PathBuf};

use super::{Api, ApiError};

/// Where the system's divvyd listens.
pub const SYSTEM_SOCKET: &str = "/run/divvy/api.sock";

/// Which of the two somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The user's own.
    Own,
    /// The system's.
    System,
}

/// The divvyd to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This user's own, which can be started where none runs.
    Own,
    /// The system's, at this socket. Only its administrator starts it.
    System(PathBuf),
}

/// What is there where an administrator has set up a system's divvyd, whether it runs or not.
const SET_UP: [&str; 3] = [
    "/etc/divvy/divvyd.toml",
    "/etc/systemd/system/sockets.target.wants/divvyd.socket",
    "/etc/systemd/system/multi-user.target.wants/divvyd.service",
];

/// The socket that `DIVVY_SYSTEM_SOCKET` names.
#[expect(
    clippy::disallowed_methods,
    reason = "the client is the edge: where to ask is told by the environment"
)]
fn named_socket() -> Option<PathBuf> {
    std::env::var_os("DIVVY_SYSTEM_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// That one, else [`SYSTEM_SOCKET`].
pub(super) fn system_socket() -> PathBuf {
    named_socket().unwrap_or_else(|| PathBuf::from(SYSTEM_SOCKET))
}

/// ` (DIVVY_SYSTEM_SOCKET)` after a socket that is named there.
pub(super) fn named_by(socket: &Path) -> &'static str {
    if named_socket().is_some_and(|named| named == socket) { " (DIVVY_SYSTEM_SOCKET)" } else { "" }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the client is the edge: whom to ask is told by the environment"
)]
fn mode() -> Option<String> {
    std::env::var_os("DIVVY_MODE").map(|mode| mode.to_string_lossy().into_owned())
}

impl Choice {
    /// What was `asked` for by name; else what `DIVVY_MODE` says (`user`, `system`); else the system's divvyd where its
    /// socket is there, and the user's own where it is not. `socket` stands for the system's usual one.
    ///
    /// # Errors
    /// [`ApiError::Mode`] where `DIVVY_MODE` is another word.
    pub fn new(asked: Option<Asked>, socket: Option<PathBuf>) -> Result<Self, ApiError> {
        Self::decide(asked, mode().as_deref(), &socket.unwrap_or_else(system_socket))
    }

    /// Where the user's own is asked though an administrator has set up a system's here, which does not run: what tells of
    /// that. Nothing where somebody has said whom to ask.
    #[must_use]
    pub fn instead_of_system() -> Option<&'static Path> {
        let is_told = mode().is_some_and(|mode| !mode.is_empty()) || named_socket().is_some();
        if is_told || Path::new(SYSTEM_SOCKET).exists() {
            return None;
        }
        // A unit that is enabled is a link, which may lead nowhere in a container.
        SET_UP.iter().map(Path::new).find(|path| path.symlink_metadata().is_ok())
    }

    fn decide(asked: Option<Asked>, mode: Option<&str>, socket: &Path) -> Result<Self, ApiError> {
        let asked = match (asked, mode.unwrap_or_default()) {
            (Some(asked), _) => Some(asked),
            (None, "user") => Some(Asked::Own),
            (None, "system") => Some(Asked::System),
            (None, "") => None,
            (None, other) => return Err(ApiError::Mode(other.to_owned())),
        };
        let system = match asked {
            Some(asked) => asked == Asked::System,
            None => socket.exists(),
        };
        Ok(if system { Self::System(socket.to_owned()) } else { Self::Own })
    }

    /// A client of it.
    ///
    /// # Errors
    /// As [`Api::of_user`] and [`Api::of_system_at`].
    pub fn api(&self) -> Result<Api, ApiError> {
        match self {
            Self::Own => Api::of_user(),
            Self::System(socket) => Api::of_system_at(socket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_is_said_by_name_then_by_the_environment_then_by_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let (there, gone) = (dir.path().join("there"), dir.path().join("gone"));
        let _socket = std::os::unix::net::UnixListener::bind(&there).unwrap();
        let system = |path: &Path| Choice::System(path.to_owned());
        for (asked, mode, socket, expected) in [
            (None, None, &there, system(&there)),
            (None, None, &gone, Choice::Own),
            (None, Some(""), &there, system(&there)),
            (None, Some("user"), &there, Choice::Own),
            (None, Some("system"), &gone, system(&gone)),
            (Some(Asked::Own), Some("system"), &there, Choice::Own),
            (Some(Asked::System), Some("user"), &gone, system(&gone)),
        ] {
            let choice = Choice::decide(asked, mode, socket).unwrap();
            assert_eq!(choice, expected, "{asked:?}, {mode:?}, {socket:?}");
        }
        let error = Choice::decide(None, Some("root"), &there).unwrap_err().to_string();
        assert!(error.contains("DIVVY_MODE=root") && error.contains("user"), "{error}");
    }

    #[test]
    fn a_system_that_does_not_run_is_told_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let error = Api::of_system_at(&dir.path().join("api.sock")).unwrap_err();
        assert!(matches!(error, ApiError::NoSystem(_)), "{error}");
        assert!(error.to_string().contains("divvyd --system"), "a fix: {error}");
    }
}
