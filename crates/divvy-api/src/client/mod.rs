//! A small blocking client of the API, for the command line and the dashboard.
//!
//! Each call is a connection of its own: a divvyd that ends and another that begins are no matter.

mod choice;
mod market;
mod unix;

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::request::Builder;
use ureq::http::{Method, Request, StatusCode, header};

use crate::place::{Place, PlaceError};
use crate::rules::RulesState;
use crate::types::{
    Change, Client, Clients, ErrorBody, ErrorCode, ErrorInfo, Events, Explanation, Finding, Group,
    GroupChange, NewClient, Plan, Status,
};

pub use choice::{Asked, Choice, SYSTEM_SOCKET};

/// An answer that has not come by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(45);
/// Bytes in an answer at most.
const ANSWER_MAX: u64 = 64 << 20;

/// What can go wrong on the way to divvyd and back.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Nobody listens there: no divvyd runs.
    #[error("no divvyd runs: nobody listens at {}", .0.display())]
    NotRunning(PathBuf),
    /// Nobody listens at the system's socket.
    #[error("the system's divvyd does not run: nobody listens at {}{}; its administrator starts it (divvyd --system), and --own asks your own divvyd", .0.display(), choice::named_by(.0))]
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
        let api = Self { path: path.to_owned(), of };
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

    /// Changes a group's share, pauses or resumes all its clients.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn change_group(&self, group: &str, change: GroupChange) -> Result<Group, ApiError> {
        self.call(Method::PATCH, &format!("/v1/groups/{}", encode(group)), Some(&change))
    }

    /// Lets all clients of a group go, and so the group; says what it was like.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn detach_group(&self, group: &str) -> Result<Group, ApiError> {
        self.call::<(), _>(Method::DELETE, &format!("/v1/groups/{}", encode(group)), None)
    }

    /// The user's rules, and what became of them; none from a system's divvyd.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn rules(&self) -> Result<RulesState, ApiError> {
        self.get("/v1/rules")
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
        let body = body.map(serde_json::to_vec).transpose().map_err(|e| self.broken(e))?;
        let request = Request::builder()
            .method(method)
            .uri(format!("http://divvyd{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close");
        let (status, bytes) = self.exchange(request, body)?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|e| self.broken(format!("the answer: {e}")));
        }
        match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(body) => Err(ApiError::Refused(body.error)),
            Err(_) => Err(self.broken(format!("it answered {status}"))),
        }
    }

    /// A connection to a divvyd that may be told what is asked.
    fn reach(&self) -> Result<UnixStream, ApiError> {
        let stream = unix::open(&self.path, PATIENCE).map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => self.nobody(),
            ErrorKind::TimedOut => self.too_late(),
            _ => self.broken(e),
        })?;
        if self.of == Of::System {
            let uid = unix::peer(&stream).map_err(|e| self.broken(e))?;
            if uid != 0 && uid != rustix::process::geteuid().as_raw() {
                return Err(ApiError::Stranger { path: self.path.clone(), uid });
            }
        }
        Ok(stream)
    }

    fn exchange(&self, request: Builder, body: Option<Vec<u8>>) -> Result<(StatusCode, Vec<u8>), ApiError> {
        let agent = unix::agent(self.reach()?, PATIENCE);
        let answer = match body {
            Some(body) => agent.run(request.body(body).map_err(|e| self.broken(e))?),
            None => agent.run(request.body(()).map_err(|e| self.broken(e))?),
        };
        let mut answer = answer.map_err(|e| self.lost(e))?;
        let body = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_vec();
        let body = body.map_err(|e| match e {
            ureq::Error::Timeout(_) => self.too_late(),
            e => self.broken(e),
        })?;
        Ok((answer.status(), body))
    }

    /// Why nothing was answered. Whatever a divvyd that ended before it answered has done, it holds nobody any more.
    fn lost(&self, e: ureq::Error) -> ApiError {
        const GONE: [ErrorKind; 3] =
            [ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        match e {
            ureq::Error::Io(e) if GONE.contains(&e.kind()) => self.nobody(),
            ureq::Error::Timeout(_) => self.too_late(),
            e => self.broken(e),
        }
    }

    fn too_late(&self) -> ApiError {
        self.broken(format_args!("no answer within {} s", PATIENCE.as_secs()))
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
    /// Answers one request with `answer`, after reading `read` bytes of it (or as much as comes), and gives what it was asked.
    fn serve_once(path: &Path, read: usize, answer: &'static str) -> std::thread::JoinHandle<String> {
        use std::io::{Read as _, Write as _};
        let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut bytes = [0; 4096];
            while asked.len() < read {
                match stream.read(&mut bytes).unwrap() {
                    0 => break,
                    n => asked.extend_from_slice(&bytes[..n]),
                }
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
        })
    }

    /// What is asked in one request, and what a server with this `answer` makes of it.
    fn asked(answer: &'static str) -> (String, Result<Vec<u32>, ApiError>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let server = serve_once(&path, 1, answer);
        let got = Api { path, of: Of::User }.get("/v1/a%2Fb?since=1");
        (server.join().unwrap(), got)
    }

    #[test]
    fn a_request_says_what_http_demands_and_an_answer_is_read_however_it_is_framed() {
        let (request, got) = asked("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n[1,2,3]");
        assert_eq!(got.unwrap(), [1, 2, 3]);
        let request = request.to_ascii_lowercase();
        assert!(request.starts_with("get /v1/a%2fb?since=1 http/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nhost: divvyd\r\n"), "{request}");
        assert!(request.contains("\r\nconnection: close\r\n"), "{request}");
        for answer in [
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[4,\r\n2\r\n5]\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n[4,5]",
        ] {
            assert_eq!(asked(answer).1.unwrap(), [4, 5], "{answer}");
        }
    }

    #[test]
    fn what_is_no_answer_is_told_by_what_it_is() {
        let refused = "HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n\
                       {\"error\":{\"code\":\"no-such-client\",\"message\":\"none\",\"fix\":\"look\"}}";
        let error = asked(refused).1.unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (Some(ErrorCode::NoSuchClient), "none; look"));
        // It ended before it answered: another can be started.
        assert!(matches!(asked("").1, Err(ApiError::NotRunning(_))));
        for (answer, why) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n[1,2", "the answer: "),
            ("HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n[1,2", "disconnect"),
            ("HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno", "it answered 503"),
            ("HTTP/1.1 302 Found\r\nlocation: http://a/\r\ncontent-length: 0\r\n\r\n", "it answered 302"),
            ("hello\r\n\r\n", ""),
        ] {
            let error = asked(answer).1.unwrap_err();
            assert!(matches!(error, ApiError::Broken { .. }), "{answer}: {error}");
            assert!(error.to_string().contains(why), "{answer}: {error}");
        }
    }

    /// A server that has enough of a long request answers and closes before it has read all.
    #[test]
    fn an_answer_that_comes_before_the_request_was_read_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let answer = "HTTP/1.1 413 Too Large\r\nconnection: close\r\n\r\n\
                      {\"error\":{\"code\":\"too-large\",\"message\":\"too large\",\"fix\":\"\"}}";
        let server = serve_once(&path, 1, answer);
        let new = NewClient { name: Some("x".repeat(4 << 20)), share: 1, ..NewClient::default() };
        let error = Api { path, of: Of::User }.add(&new).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::TooLarge), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn who_is_not_accepted_does_not_wait_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let wait = Duration::from_millis(50);
        let _first = unix::open(&path, wait).unwrap();
        assert_eq!(unix::open(&path, wait).unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn the_kernel_says_who_serves() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(unix::peer(&one).unwrap(), rustix::process::geteuid().as_raw());
    }
}
