//! The API's thread: one that accepts, reads and writes, on a runtime of its own.
//!
//! Everything that a client of the API can make it keep is bounded: connections, the time and size of a request's head
//! and body, the time that an answer waits to be read, and the answers that are under way.

use std::convert::Infallible;
use std::os::unix::net::UnixListener as StdListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_service::Service as _;

use crate::connection_limit::{ConnectionLimit, peer};
use crate::market::message::Who;
use crate::message::Refusal;
use crate::write_timeout::WriteTimeout;
use divvy_api::types::ErrorCode;

/// A connection that has not sent a whole request's head by then, or sends no other, is closed.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Bytes in a request's head at most.
const HEAD_MAX: usize = 16 * 1024;
/// An answer of which nothing is read for so long is not finished.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// Requests that are under way at the end are given this long.
const END_TIME: Duration = Duration::from_millis(500);
/// After an accept that failed (no descriptors left, say) there is a pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are refused are told so, this many at a time; others are closed without a word.
const REFUSALS: usize = 32;
/// Whoever is refused has this long to send the request that is answered so.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Server {
    stop: watch::Sender<bool>,
    leaving: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What all connections share.
#[derive(Clone)]
struct Shared {
    router: Router,
    limit: Arc<ConnectionLimit>,
    leaving: Arc<AtomicBool>,
    stopped: watch::Receiver<bool>,
    refusing: Arc<Semaphore>,
}

impl Server {
    /// Starts to serve `router` to whomever `limit` lets in. `maintenance` is run beside it on the same thread.
    ///
    /// # Errors
    /// Where the system gives no thread or event queue.
    pub(crate) fn start(
        listener: StdListener,
        router: Router,
        limit: Arc<ConnectionLimit>,
        maintenance: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            UnixListener::from_std(listener)?
        };
        let (stop, stopped) = watch::channel(false);
        let leaving = Arc::new(AtomicBool::new(false));
        let refusing = Arc::new(Semaphore::new(REFUSALS));
        let shared = Shared { router, limit, leaving: Arc::clone(&leaving), stopped, refusing };
        let thread = std::thread::Builder::new().name("divvyd-api".to_owned()).spawn(move || {
            runtime.spawn(maintenance);
            runtime.block_on(serve(listener, shared));
        })?;
        Ok(Self { stop, leaving, thread: Some(thread) })
    }

    /// From now on every request is answered by saying that divvyd is ending.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Ends it, once what is under way has been answered or half a second has passed.
    pub(crate) fn stop(mut self) {
        self.leave();
        let _ = self.stop.send(true); // Where nobody listens, the thread has ended.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // If it panicked, that has been told.
        }
    }
}

async fn serve(listener: UnixListener, shared: Shared) {
    let connections = shared.limit.connections();
    let slots = Arc::new(Semaphore::new(connections as usize));
    let mut stopped = shared.stopped.clone();
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let slot = Arc::clone(&slots).acquire_owned().await.ok();
            (slot, listener.accept().await)
        };
        tokio::select! {
            _ = stopped.changed() => break,
            (slot, accepted) = accepted => match (slot, accepted) {
                (Some(slot), Ok((stream, _))) => {
                    tokio::spawn(connection(stream, shared.clone(), slot));
                }
                _ => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(END_TIME, slots.acquire_many(connections)).await;
}

async fn connection(stream: UnixStream, shared: Shared, slot: OwnedSemaphorePermit) {
    let who = peer(&stream);
    let pass = match shared.limit.enter(who.as_ref().ok().map(|who| who.uid)) {
        Ok(pass) => pass,
        Err(refusal) => {
            // It keeps nobody out who may come in.
            drop(slot);
            if let Ok(_turn) = shared.refusing.try_acquire() {
                let _ = tokio::time::timeout(REFUSAL_TIME, refuse(stream, refusal)).await;
            }
            return;
        }
    };
    if let Ok(who) = who {
        converse(stream, shared, who).await;
    }
    drop((pass, slot));
}

/// Answers one request after the other, until the other end or divvyd has had enough.
async fn converse(stream: UnixStream, shared: Shared, who: Who) {
    let Shared { router, leaving, mut stopped, .. } = shared;
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(who.clone());
        let (mut router, leaving) = (router.clone(), leaving.load(Ordering::Relaxed));
        async move {
            let answer: Result<Response, Infallible> =
                if leaving { Ok(divvyd_leaves().into_response()) } else { router.call(request).await };
            answer
        }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(WriteTimeout::new(stream, WRITE_TIME)), service)
    );
    tokio::select! {
        // What is wrong with one connection ends that one: what could be answered has been.
        _ = served.as_mut() => {}
        _ = stopped.changed() => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

/// What is said to whoever asks while divvyd ends.
pub(crate) fn divvyd_leaves() -> Refusal {
    Refusal::new(ErrorCode::Leaving, "divvyd is ending", "ask again: another one is started")
}

/// Answers whatever is asked with `refusal`, and closes.
async fn refuse(mut stream: UnixStream, refusal: Refusal) {
    // A socket that is closed with something unread takes back what was said.
    let (mut head, mut some) = (Vec::new(), [0; 1024]);
    while head.len() < HEAD_MAX && !head.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut some).await {
            Ok(n) if n > 0 => head.extend_from_slice(&some[..n]),
            _ => break,
        }
    }
    let status = axum::http::StatusCode::from_u16(refusal.code.status()).unwrap_or_default();
    let body = serde_json::to_string(&refusal.body()).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};

    use super::*;

    /// What the server at `path` says to a thread that has become user `uid`, if it is to be another.
    fn said(path: &Path, uid: Option<u32>) -> String {
        let path = path.to_owned();
        let asked = std::thread::spawn(move || {
            if let Some(uid) = uid {
                // Of this thread alone, which ends soon.
                let (uid, same) = (rustix::process::Uid::from_raw(uid), None::<rustix::process::Uid>);
                rustix::thread::set_thread_res_uid(same, Some(uid), same).expect("root may");
            }
            let mut stream = std::os::unix::net::UnixStream::connect(path).expect("somebody listens");
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").expect("send");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer");
            text
        });
        asked.join().expect("a thread")
    }

    fn serve_to(dir: &Path, owner: u32) -> (Server, PathBuf) {
        let path = dir.join(format!("{owner}.sock"));
        let listener = StdListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        // Open to everybody: only the kernel's word about who is there is left.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("ours");
        let router = Router::new().route("/", axum::routing::get(|| async { "welcome" }));
        (Server::start(listener, router, ConnectionLimit::of_user(owner), async {}).expect("a thread"), path)
    }

    #[test]
    fn only_the_owner_and_root_are_answered() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).expect("ours");
        let own = rustix::process::geteuid().as_raw();
        let another = own + 54_321;
        let (of_us, ours) = serve_to(dir.path(), own);
        let (of_another, theirs) = serve_to(dir.path(), another);
        assert!(said(&ours, None).ends_with("welcome"));
        let check_refused = |text: &str| {
            assert!(text.starts_with("HTTP/1.1 403") && text.contains("\"not-permitted\""), "{text}");
        };
        if own == 0 {
            assert!(said(&theirs, None).ends_with("welcome"), "root may");
            assert!(said(&theirs, Some(another)).ends_with("welcome"), "the owner may");
            check_refused(&said(&theirs, Some(another + 1)));
            check_refused(&said(&ours, Some(another)));
        } else {
            check_refused(&said(&theirs, None));
        }
        of_us.stop();
        of_another.stop();
    }

    #[test]
    fn the_handlers_know_who_asks() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("api.sock");
        let listener = StdListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let tell = |axum::Extension(who): axum::Extension<Who>| async move { format!("{who:?}") };
        let router = Router::new().route("/", axum::routing::get(tell));
        let own = rustix::process::geteuid().as_raw();
        let server =
            Server::start(listener, router, ConnectionLimit::of_user(own), async {}).expect("a thread");
        let mut gids = vec![rustix::process::getegid().as_raw()];
        let others = rustix::process::getgroups().expect("ours");
        gids.extend(others.iter().map(|g| g.as_raw()).filter(|g| *g != gids[0]).collect::<Vec<_>>());
        let we = Who { uid: own, gids, pid: std::process::id() as i32, by_root: false };
        assert!(said(&path, None).ends_with(&format!("\r\n{we:?}")), "{}", said(&path, None));
        server.stop();
    }
}
