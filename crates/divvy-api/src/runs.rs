//! What every `divvy share` of a user shows of itself: beside `divvyd`, of whose clients its tasks are none.
//!
//! A run listens at `share-PID.sock` in the user's private runtime directory ([`Place`]); whoever connects is told how it stands,
//! as one line of JSON ([`ShareRun`]), and that is all. Nobody who does not ask costs it anything. A socket that nobody serves any
//! more, because its run was killed, is removed by whoever finds it.

use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::place::{Place, PlaceError};
use crate::types::Client;

/// An answer that has not come by then is not waited for: the run is stopped, or hangs.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes in an answer at most.
const ANSWER_MAX: u64 = 16 << 20;

/// A `divvy share` as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShareRun {
    /// Its scheduler.
    pub pid: i32,
    /// Its policy.
    pub policy: String,
    /// The CPUs that it divides, by the kernel's numbers.
    pub cpus: Vec<u32>,
    /// Time since it began.
    pub uptime_ns: u64,
    /// Its tasks that have not ended, as clients; fractions are of this run's own. Members are not told.
    pub clients: Vec<Client>,
}

/// Where run `pid` listens.
///
/// # Errors
/// [`PlaceError`] where the runtime directory cannot be had or trusted.
pub fn socket(pid: u32) -> Result<PathBuf, PlaceError> {
    Ok(Place::open_or_create()?.dir().path().join(format!("share-{pid}.sock")))
}

/// All runs of this user that answer, by pid.
///
/// # Errors
/// [`PlaceError`] where the runtime directory cannot be trusted.
pub fn all() -> Result<Vec<ShareRun>, PlaceError> {
    let Some(place) = Place::open()? else { return Ok(Vec::new()) };
    Ok(all_in(place.dir().path()))
}

fn all_in(dir: &Path) -> Vec<ShareRun> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let is_run = |name: &str| name.strip_prefix("share-").is_some_and(|rest| rest.ends_with(".sock"));
    let paths = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_run));
    let mut runs: Vec<ShareRun> = paths.filter_map(|entry| ask(&entry.path())).collect();
    runs.sort_by_key(|run| run.pid);
    runs
}

fn ask(path: &Path) -> Option<ShareRun> {
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(e) => {
            if e.kind() == ErrorKind::ConnectionRefused {
                let _ = std::fs::remove_file(path); // Another may have done so already.
            }
            return None;
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn those_that_answer_are_told_and_what_nobody_serves_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let run =
            |pid| ShareRun { pid, policy: "exact".into(), cpus: vec![0], uptime_ns: 5, clients: vec![] };
        let serve = |pid: i32, text: String| {
            let listener = UnixListener::bind(dir.path().join(format!("share-{pid}.sock"))).unwrap();
            std::thread::spawn(move || listener.accept().unwrap().0.write_all(text.as_bytes()).unwrap())
        };
        let served = [
            serve(9, serde_json::to_string(&run(9)).unwrap()),
            serve(7, serde_json::to_string(&run(7)).unwrap()),
            serve(8, "{".into()),
        ];
        let (dead, other) = (dir.path().join("share-5.sock"), dir.path().join("api.sock"));
        drop((UnixListener::bind(&dead).unwrap(), UnixListener::bind(&other).unwrap()));
        assert_eq!(all_in(dir.path()), [run(7), run(9)]);
        assert!(!dead.exists() && other.exists());
        served.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(all_in(&dir.path().join("none")), []);
    }
}
