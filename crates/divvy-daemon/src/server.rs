//! The API's thread: one that accepts, reads and writes, on a runtime of its own.
//!
//! Everything that a client of the API can make it keep is bounded: connections, the time and size of a request's head
//! and body, and the answers that are under way.

use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::market::message::Who;
use crate::message::Refusal;
use crate::types::ErrorCode;

/// Connections at a time; more wait until they are accepted.
const CONNECTIONS: u32 = 64;
/// A connection that has not sent a whole request's head by then, or sends no other, is closed.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Bytes in a request's head at most.
const HEAD_MAX: usize = 16 * 1024;
/// Requests that are under way at the end are given this long.
const END_TIME: Duration = Duration::from_millis(500);
/// After an accept that failed (no descriptors left, say) there is a pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve `router` to user `owner` and to root.
    ///
    /// # Errors
    /// Where the system gives no thread or event queue.
    pub(crate) fn start(listener: StdListener, router: Router, owner: u32) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            UnixListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("divvyd-api".to_owned())
            .spawn(move || runtime.block_on(serve(listener, router, owner, stopped)))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Ends it, once what is under way has been answered or half a second has passed.
    pub(crate) fn stop(mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // If it panicked, that has been told.
        }
    }
}

async fn serve(listener: UnixListener, router: Router, owner: u32, mut stopped: oneshot::Receiver<()>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS as usize));
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let slot = Arc::clone(&slots).acquire_owned().await.ok();
            (slot, listener.accept().await)
        };
        tokio::select! {
            _ = &mut stopped => break,
            (slot, accepted) = accepted => match (slot, accepted) {
                (Some(slot), Ok((stream, _))) => {
                    tokio::spawn(connection(stream, router.clone(), owner, slot));
                }
                _ => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(END_TIME, slots.acquire_many(CONNECTIONS)).await;
}

async fn connection(stream: UnixStream, router: Router, owner: u32, slot: OwnedSemaphorePermit) {
    let who = match peer(&stream) {
        Ok(who) if may_talk(who.uid, owner) => who,
        peer => {
            let _ = tokio::time::timeout(HEAD_TIME, refuse(stream, peer.ok().map(|p| p.uid), owner)).await;
            drop(slot);
            return;
        }
    };
    let service = TowerToHyperService::new(router.layer(Extension(who)));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // What is wrong with one connection ends that one: what could be answered has been.
    let _ = served.await;
    drop(slot);
}

/// Who is at the other end, as it was when it connected: asked once for the whole connection.
fn peer(stream: &UnixStream) -> std::io::Result<Who> {
    let peer = stream.peer_cred()?;
    let mut gids = vec![peer.gid()];
    // Where the kernel does not tell, nobody has rights by a group but the first.
    gids.extend(
        divvy_linux::peer_groups(stream).unwrap_or_default().into_iter().filter(|&g| g != peer.gid()),
    );
    Ok(Who { uid: peer.uid(), gids, pid: peer.pid().unwrap_or(0) })
}

fn may_talk(uid: u32, owner: u32) -> bool {
    uid == owner || uid == 0
}

/// Says no to somebody else's process. It gets as far as this only if the directory or the socket were opened to it.
async fn refuse(mut stream: UnixStream, uid: Option<u32>, owner: u32) {
    // A socket that is closed with something unread takes back what was said.
    let (mut head, mut some) = (Vec::new(), [0; 1024]);
    while head.len() < HEAD_MAX && !head.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut some).await {
            Ok(n) if n > 0 => head.extend_from_slice(&some[..n]),
            _ => break,
        }
    }
    let who = uid.map_or_else(|| "nobody that the kernel tells".to_owned(), |uid| format!("user {uid}"));
    let text = format!("this is the divvyd of user {owner}, and you are {who}");
    let refusal = Refusal::new(ErrorCode::NotPermitted, text, "start your own: `divvy run`");
    let body = serde_json::to_string(&refusal.body()).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
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
        (Server::start(listener, router, owner).expect("a thread"), path)
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
        let tell = |Extension(who): Extension<Who>| async move { format!("{who:?}") };
        let router = Router::new().route("/", axum::routing::get(tell));
        let own = rustix::process::geteuid().as_raw();
        let server = Server::start(listener, router, own).expect("a thread");
        let mut gids = vec![rustix::process::getegid().as_raw()];
        let others = rustix::process::getgroups().expect("ours");
        gids.extend(others.iter().map(|g| g.as_raw()).filter(|g| *g != gids[0]).collect::<Vec<_>>());
        let we = Who { uid: own, gids, pid: std::process::id() as i32 };
        assert!(said(&path, None).ends_with(&format!("\r\n{we:?}")), "{}", said(&path, None));
        server.stop();
    }
}
