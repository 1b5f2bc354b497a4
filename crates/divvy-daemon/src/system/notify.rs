//! What a service manager (systemd) hands down and wants to hear: sockets, readiness, reloads, signs of life.
//!
//! All of it comes in the environment, which is taken out of there: whatever divvyd starts is none of the manager's
//! services.

use std::ffi::OsStr;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};
use sd_notify::NotifyState;

/// Where the manager listens.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// What a manager has handed down. All of it is absent where there is none.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    pub(crate) notifier: Notifier,
    /// A socket that listens already.
    pub(crate) socket: Option<UnixListener>,
    /// It wants a sign of life at least so often.
    pub(crate) watchdog: Option<Duration>,
}

/// Why what was handed down cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManagerError {
    #[error("the sockets that systemd hands down: {0}")]
    Variables(std::io::Error),
    #[error("systemd hands down {0} sockets, and divvyd takes one: see divvyd.socket")]
    Count(usize),
    #[error(
        "what systemd hands down is {0}, and divvyd takes a unix stream socket that listens: see divvyd.socket"
    )]
    Kind(&'static str),
}

impl Manager {
    /// Takes what this process's environment says, out of the environment too.
    ///
    /// # Errors
    /// [`ManagerError`] where sockets were handed down that cannot be used: another one would be found by nobody.
    ///
    /// # Safety
    /// This process has one thread, and nobody owns a descriptor but the three standard ones.
    pub(crate) unsafe fn take() -> Result<Self, ManagerError> {
        // SAFETY: one thread, by this function's own condition.
        let (fds, watchdog) =
            unsafe { (sd_notify::listen_fds_and_unset_env(), sd_notify::watchdog_enabled_and_unset_env()) };
        let notifier = Notifier::from_environment();
        for name in [NOTIFY_SOCKET, "LISTEN_FDNAMES"] {
            // SAFETY: as above.
            unsafe { std::env::remove_var(name) };
        }
        let fds = fds.map_err(ManagerError::Variables)?;
        // SAFETY: they were handed down to this process by its manager, and nobody owns them yet.
        let mut sockets: Vec<OwnedFd> = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
        let socket = match sockets.len() {
            0 | 1 => sockets.pop().map(listener).transpose()?,
            count => return Err(ManagerError::Count(count)),
        };
        Ok(Self { notifier, socket, watchdog })
    }
}

/// `socket`, if it is one to accept connections from.
fn listener(socket: OwnedFd) -> Result<UnixListener, ManagerError> {
    let kind = |what| move |_| ManagerError::Kind(what);
    let domain = sockopt::socket_domain(&socket).map_err(kind("no socket"))?;
    let kind_of = sockopt::socket_type(&socket).map_err(kind("no socket"))?;
    if (domain, kind_of) != (AddressFamily::UNIX, SocketType::STREAM) {
        return Err(ManagerError::Kind("a socket of another kind"));
    }
    if !sockopt::socket_acceptconn(&socket).map_err(kind("no socket"))? {
        return Err(ManagerError::Kind("a socket that does not listen"));
    }
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true).map_err(ManagerError::Variables)?;
    Ok(listener)
}

/// Tells the manager how things stand, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notifier(Option<UnixDatagram>);

impl Notifier {
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the environment is read")]
    fn from_environment() -> Self {
        let Some(place) = std::env::var_os(NOTIFY_SOCKET).filter(|place| !place.is_empty()) else {
            return Self::default();
        };
        Self::to(&place)
            .inspect_err(|e| {
                crate::say(format_args!("{NOTIFY_SOCKET}={}: {e}; systemd hears nothing", place.display()))
            })
            .unwrap_or_default()
    }

    /// Tells whoever listens at `place`: a path, or a name that begins with `@`.
    fn to(place: &OsStr) -> std::io::Result<Self> {
        let address = match place.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(place)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A manager that does not listen is not waited for.
        socket.set_nonblocking(true)?;
        Ok(Self(Some(socket)))
    }

    pub(crate) fn tell(&self, what: &[NotifyState<'_>]) {
        let Some(socket) = &self.0 else { return };
        let lines: Vec<String> = what.iter().map(ToString::to_string).collect();
        // What does not get through now is told again, or is late already.
        let _ = socket.send(lines.join("\n").as_bytes());
    }

    /// What is to be said before a reload, and how that began.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_unix_stream_socket_that_listens_will_do() {
        let dir = tempfile::tempdir().unwrap();
        let listens = UnixListener::bind(dir.path().join("a")).unwrap();
        assert!(listener(listens.into()).is_ok());
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let error = listener(one.into()).unwrap_err().to_string();
        assert!(error.contains("a socket that does not listen"), "{error}");
        let datagrams = UnixDatagram::bind(dir.path().join("b")).unwrap();
        assert!(listener(datagrams.into()).unwrap_err().to_string().contains("of another kind"));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listener(tcp.into()).unwrap_err().to_string().contains("of another kind"));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(listener(file.into()).unwrap_err().to_string().contains("no socket"));
    }

    #[test]
    fn the_manager_hears_by_path_and_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("divvy-test-notify-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        let mut bytes = [0; 100];
        for (place, heard) in [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&by_name).unwrap()),
        ] {
            let notifier = Notifier::to(&place).unwrap();
            notifier.tell(&[NotifyState::Ready, NotifyState::Status("serves")]);
            let n = heard.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..n], b"READY=1\nSTATUS=serves");
            notifier.reloading();
            let n = heard.recv(&mut bytes).unwrap();
            assert!(bytes[..n].starts_with(b"RELOADING=1\nMONOTONIC_USEC="));
        }
        assert!(Notifier::to(OsStr::new("/no/such/place")).is_err());
        Notifier::default().tell(&[NotifyState::Ready]);
    }
}
