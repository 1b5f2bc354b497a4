//! ureq over a unix socket: a connection that is there already, for one request.

use std::io::{Error as IoError, ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

/// A connection to whoever listens at `path`. It is waited for where more wait there than it takes, `wait` at most.
///
/// # Errors
/// What the system says; [`ErrorKind::TimedOut`] after `wait`.
pub(super) fn open(path: &Path, wait: Duration) -> Result<UnixStream, IoError> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(wait))?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            // One that waited with a time limit is interrupted by every signal, and by being suspended and resumed.
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// The user at the other end, as the kernel knows.
///
/// # Errors
/// What the system says.
pub(super) fn peer(stream: &UnixStream) -> Result<u32, IoError> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}

/// An agent that sends one request through `stream`, and gives up after `patience`.
pub(super) fn agent(stream: UnixStream, patience: Duration) -> Agent {
    let config = Config::builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        // A proxy that the environment names is none for a socket.
        .proxy(None)
        .user_agent(concat!("divvy/", env!("CARGO_PKG_VERSION")))
        .timeout_global(Some(patience))
        .build();
    Agent::with_parts(config, Connected(Mutex::new(Some(stream))), Nowhere)
}

/// Hands over what is connected already.
#[derive(Debug)]
struct Connected(Mutex<Option<UnixStream>>);

impl Connector for Connected {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, Error> {
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = stream.ok_or(Error::ConnectionFailed)?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers: LazyBuffers::new(input, output) }))
    }
}

/// Needs no address: there is a connection.
#[derive(Debug)]
struct Nowhere;

impl Resolver for Nowhere {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Ok(addresses)
    }
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    buffers: LazyBuffers,
}

/// Sends all of it. A peer that has gone is an error, and no signal: in a program that is not Rust's, SIGPIPE would end it.
fn send_all(stream: &UnixStream, mut bytes: &[u8]) -> Result<(), IoError> {
    while !bytes.is_empty() {
        match send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// What a call that waited too long, or was interrupted, says of itself.
fn timed_out(e: IoError, timeout: NextTimeout) -> Error {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => e.into(),
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|t| *t))?;
        match send_all(&self.stream, &self.buffers.output()[..amount]) {
            // Whoever answers before it has read everything, and closes, has answered.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
            sent => sent.map_err(|e| timed_out(e, timeout)),
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|t| *t))?;
        let amount = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|e| timed_out(e, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        false // It is for one request.
    }
}
