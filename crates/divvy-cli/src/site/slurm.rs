//! What Slurm's own programs say, and are told.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use divvy_linux::{Pid, ProcessRef, Signal};

use crate::{Code, Failure};

/// An accounting that does not answer is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The associations, in lines of ACCOUNT|USER|PARENT|SHARES.
///
/// # Errors
/// [`Failure`] where sacctmgr cannot be run, fails, or does not end.
pub(super) fn associations(program: &Path, cluster: Option<&str>) -> Result<String, Failure> {
    let mut words = vec!["--noheader".to_owned(), "--parsable2".into(), "show".into(), "assoc".into()];
    words.extend(cluster.map(|cluster| format!("cluster={cluster}")));
    words.push("format=account,user,parentname,fairshare".into());
    said(program, &words, &[]).map_err(|what| {
        let fix = "the table that holds stays; without accounting, give one with --table FILE";
        Failure::new(Code::System, format!("{} show assoc: {what}; {fix}", program.display()))
    })
}

/// What a program of Slurm's prints, with these variables.
///
/// # Errors
/// What went wrong, in words: it cannot be run, fails, or does not end within a minute.
pub(super) fn said<S: AsRef<OsStr>>(
    program: &Path,
    words: &[S],
    with: &[(&str, &str)],
) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(words).envs(with.iter().copied()).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| e.to_string())?;
    let process = ProcessRef::open_child(Pid::from_child(&child)).map_err(|e| e.to_string())?;
    let (ended, watch) = mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        let late = watch.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            let _ = process.signal(Signal::KILL);
        }
        late
    });
    let mut said = String::new();
    // However much it complains of: a full pipe would keep it.
    let complaints = child.stderr.take().map(|mut out| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = out.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let read = child.stdout.take().map_or(Ok(0), |mut out| out.read_to_string(&mut said));
    let status = child.wait();
    let complaint = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    drop(ended);
    if watcher.join().unwrap_or(false) {
        return Err(format!("no answer within {} s", PATIENCE.as_secs()));
    }
    let status = status.map_err(|e| e.to_string())?;
    if !status.success() {
        let why = complaint.lines().last().unwrap_or_default();
        return Err(format!("{status}: {why}"));
    }
    read.map_err(|e| e.to_string())?;
    Ok(said)
}
