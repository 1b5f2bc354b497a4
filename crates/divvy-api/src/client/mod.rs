//! A small blocking client of the API, for the command line and the dashboard.
//!
//! Each call is a connection of its own: a divvyd that ends and another that begins are no matter.

mod choice;
mod market;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::place::{Place, PlaceError};
use crate::types::{
    Change, Client, Clients, ErrorBody, ErrorCode, ErrorInfo, Events, Explanation, Finding, NewClient, Plan,
    Status,
};

pub use choice::{Asked, Choice, SYSTEM_SOCKET};

/// An answer that has not come by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(45);
/// Bytes in an answer at most.
const ANSWER_MAX: usize = 64 << 20;

/// What can go wrong on the way to divvyd and back.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Nobody listens there: no divvyd runs.
    #[error("no divvyd runs: nobody listens at {}", .0.display())]
    NotRunning(PathBuf),
    /// Nobody listens at the system's socket.
    #[error("the system's divvyd does not run: nobody listens at {}; its administrator starts it (divvyd --system), and --own asks your own divvyd", .0.display())]
    NoSystem(PathBuf),
    /// Somebody serves the system's socket who cannot be trusted with what is asked there.
    #[error("the socket {} is served by user {uid}, who is neither root nor you: not asked; name the right one with --system-socket or DIVVY_SYSTEM_SOCKET", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Who listens there.
        uid: u32,
    },
    /// `DIVVY_MODE` says what it cannot say.
    #[error("DIVVY_MODE={0}: say user (your own divvyd) or system (the system's), or leave it away")]
    Mode(String),
    /// The directory of the socket cannot be trusted.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// divvyd's refusal.
    #[error("{}{}{}", .0.message, if .0.fix.is_empty() { "" } else { "; " }, .0.fix)]
    Refused(ErrorInfo),
    /// The connection broke, or what came back is no answer of the API.
    #[error("talk to divvyd at {}: {why}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What happened.
        why: String,
    },
}

impl ApiError {
    /// The kind of divvyd's refusal, if it was one.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(info) => Some(info.code),
            _ => None,
        }
    }
}

/// A divvyd to talk to.
#[derive(Debug)]
pub struct Api {
    path: PathBuf,
    runtime: Runtime,
    of: Of,
}

/// Whose divvyd it is, and so why it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// A user's: whoever could put the socket into its private directory.
    User,
    /// The system's: anybody can connect, so the kernel must name root, or our own user, at the other end.
    System,
}

impl Api {
    /// A client of the divvyd that listens at `path`, which has answered.
    ///
    /// # Errors
    /// [`ApiError::NotRunning`] where nobody listens; [`ApiError`] for what else goes wrong.
    pub fn connect(path: &Path) -> Result<Self, ApiError> {
        Self::open(path, Of::User)
    }

    fn open(path: &Path, of: Of) -> Result<Self, ApiError> {
        let broken = |e: std::io::Error| ApiError::Broken { path: path.to_owned(), why: e.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
        let api = Self { path: path.to_owned(), runtime, of };
        api.status()?;
        Ok(api)
    }

    /// A client of this user's divvyd.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`ApiError::Place`] where its directory cannot be trusted.
    pub fn of_user() -> Result<Self, ApiError> {
        match Place::open()? {
            Some(place) => Self::connect(&place.socket()),
            None => Err(ApiError::NotRunning(PathBuf::from(crate::place::SOCKET))),
        }
    }

    /// A client of the system's divvyd, at its usual socket or at the one that `DIVVY_SYSTEM_SOCKET` names.
    ///
    /// # Errors
    /// As [`of_system_at`](Self::of_system_at).
    pub fn of_system() -> Result<Self, ApiError> {
        Self::of_system_at(&choice::system_socket())
    }

    /// A client of the system's divvyd that listens at `path`. At each connection the kernel is asked who does: nobody but
    /// root, or this process's own user (who could fool only itself), is told anything.
    ///
    /// # Errors
    /// [`ApiError::NoSystem`] where nobody listens, [`ApiError::Stranger`] where somebody else does.
    pub fn of_system_at(path: &Path) -> Result<Self, ApiError> {
        Self::open(path, Of::System)
    }

    /// A client of the system's divvyd where its socket is there and `DIVVY_MODE` is not `user`, else of this user's.
    ///
    /// # Errors
    /// As [`of_system`](Self::of_system) and [`of_user`](Self::of_user); [`ApiError::Mode`].
    pub fn best() -> Result<Self, ApiError> {
        Choice::new(None, None)?.api()
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What divvyd is and has cost.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn status(&self) -> Result<Status, ApiError> {
        self.get("/v1/status")
    }

    /// All clients, with up to 64 members each.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn clients(&self) -> Result<Clients, ApiError> {
        self.get("/v1/clients")
    }

    /// All clients, with up to `members` members each (10,000 at most).
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn clients_with_members(&self, members: usize) -> Result<Clients, ApiError> {
        self.get(&format!("/v1/clients?members={members}"))
    }

    /// The client of that name or id, or one of the last that left.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn client(&self, key: &str) -> Result<Client, ApiError> {
        self.get(&format!("/v1/clients/{}", encode(key)))
    }

    /// Starts or attaches a client.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn add(&self, new: &NewClient) -> Result<Client, ApiError> {
        self.call(Method::POST, "/v1/clients", Some(new))
    }

    /// What [`add`](Self::add) would do; nothing is changed.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn plan(&self, new: &NewClient) -> Result<Plan, ApiError> {
        let new = NewClient { dry_run: true, ..new.clone() };
        self.call(Method::POST, "/v1/clients", Some(&new))
    }

    /// Changes a client's share, pauses or resumes it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn change(&self, key: &str, change: Change) -> Result<Client, ApiError> {
        self.call(Method::PATCH, &format!("/v1/clients/{}", encode(key)), Some(&change))
    }

    /// Lets a client go; its processes go on undivided.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn detach(&self, key: &str) -> Result<Client, ApiError> {
        self.call::<(), _>(Method::DELETE, &format!("/v1/clients/{}", encode(key)), None)
    }

    /// What happened to clients, from event number `since` on.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn events(&self, since: u64) -> Result<Events, ApiError> {
        self.get(&format!("/v1/events?since={since}"))
    }

    /// What divvyd would do with a process, and why.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn explain(&self, pid: i32) -> Result<Explanation, ApiError> {
        self.get(&format!("/v1/explain/{pid}"))
    }

    /// What this machine permits divvyd.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn doctor(&self) -> Result<Vec<Finding>, ApiError> {
        self.get("/v1/doctor")
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.call::<(), T>(Method::GET, path, None)
    }

    fn call<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<T, ApiError> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|e| self.broken(e))?,
            None => Vec::new(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "divvyd")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| self.broken(e))?;
        let call = async {
            match tokio::time::timeout(PATIENCE, self.exchange(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(self.broken(format!("no answer within {} s", PATIENCE.as_secs()))),
            }
        };
        let (status, bytes) = self.runtime.block_on(call)?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|e| self.broken(format!("the answer: {e}")));
        }
        match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(body) => Err(ApiError::Refused(body.error)),
            Err(_) => Err(self.broken(format!("it answered {status}"))),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), ApiError> {
        use std::io::ErrorKind;
        let stream = UnixStream::connect(&self.path).await.map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => self.nobody(),
            _ => self.broken(e),
        })?;
        if self.of == Of::System {
            let uid = stream.peer_cred().map_err(|e| self.broken(e))?.uid();
            if uid != 0 && uid != rustix::process::geteuid().as_raw() {
                return Err(ApiError::Stranger { path: self.path.clone(), uid });
            }
        }
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(e))?;
        let driver = tokio::spawn(connection);
        let answered = async {
            // Whatever a divvyd that ended before it answered has done, it holds nobody any more.
            let response = sender.send_request(request).await.map_err(|e| self.lost(&e))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|e| self.broken(e))?.to_bytes();
            Ok((status, body))
        };
        let answer = answered.await;
        driver.abort();
        answer
    }

    fn lost(&self, e: &hyper::Error) -> ApiError {
        use std::error::Error as _;
        let reset = e.source().and_then(|s| s.downcast_ref::<std::io::Error>()).is_some_and(|e| {
            matches!(e.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
        });
        if e.is_incomplete_message() || e.is_canceled() || e.is_closed() || reset {
            return self.nobody();
        }
        self.broken(e)
    }

    fn nobody(&self) -> ApiError {
        match self.of {
            Of::User => ApiError::NotRunning(self.path.clone()),
            Of::System => ApiError::NoSystem(self.path.clone()),
        }
    }

    fn broken(&self, why: impl ToString) -> ApiError {
        ApiError::Broken { path: self.path.clone(), why: why.to_string() }
    }
}

/// A name as part of a path.
#[must_use]
pub fn encode(key: &str) -> String {
    let mut out = String::new();
    for &byte in key.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_parts_of_a_path() {
        assert_eq!(encode("make-1.2_~"), "make-1.2_~");
        assert_eq!(encode("sleep#2"), "sleep%232");
        assert_eq!(encode("a/?&b"), "a%2F%3F%26b");
        assert_eq!(encode("büro"), "b%C3%BCro");
    }

    #[test]
    fn where_nobody_listens_no_divvyd_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let error = Api::connect(&path).unwrap_err();
        assert!(matches!(error, ApiError::NotRunning(_)), "{error}");
        // A socket that was left behind is nobody's.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let error = Api::connect(&path).unwrap_err();
        assert!(matches!(error, ApiError::NotRunning(_)), "{error}");
    }
}
