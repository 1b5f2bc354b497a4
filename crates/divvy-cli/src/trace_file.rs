//! Recorded traces, as files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use divvy_engine::Divergence;

use crate::{Code, Failure};

/// A line longer than this is no line of a trace.
const LINE_MAX: u64 = 64 << 20;

fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    // A pipe comes to its end; /dev/zero does not.
    let what = if kind.is_char_device() {
        "it is a device, not a file"
    } else if kind.is_dir() {
        "it is a directory; name a file in it"
    } else {
        return Ok(file);
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

fn next_line(file: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = file.take(LINE_MAX).read_line(&mut line).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData => {
            io::Error::new(e.kind(), format!("it is no text, and so no trace; {MAKE_ONE}"))
        }
        _ => e,
    });
    if read? == 0 {
        return Ok(None);
    }
    if line.len() as u64 == LINE_MAX {
        let text = format!("a line of more than {} MiB", LINE_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    line.truncate(line.strip_suffix('\n').map_or(line.len(), |l| l.strip_suffix('\r').unwrap_or(l).len()));
    Ok(Some(line))
}

/// The text of a file, or of a pipe, of up to `max` bytes.
///
/// # Errors
/// Where it cannot be read, is longer, or is a device, which may have no end.
pub(crate) fn read_text(path: &Path, max: u64) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {} MiB", max >> 20),
        ));
    }
    Ok(text)
}

/// How a trace is made.
const MAKE_ONE: &str = "`divvy share --trace FILE` writes one";

/// Why a file cannot be used as a trace. One whose first line is nothing that any divvy wrote there may be anything.
pub(crate) fn unusable(path: &Path, e: &Divergence) -> Failure {
    let path = path.display();
    let text = match e {
        // serde_json's errors, and no others, say where they are.
        Divergence::Header(why) if why.contains(" at line ") => {
            format!("{path}: line 1: it is no trace; {MAKE_ONE}")
        }
        e => format!("{path}: {e}"),
    };
    Failure::new(Code::File, text)
}

/// Does `read` with the lines of a file.
///
/// # Errors
/// [`Failure`] with [`Code::File`] if it cannot be opened, or a line cannot be read (is no text, say).
pub(crate) fn with_lines<T>(
    path: &Path,
    read: impl FnOnce(&mut dyn Iterator<Item = String>) -> T,
) -> Result<T, Failure> {
    let unreadable = |e: std::io::Error| crate::files::failed("read", path, &e);
    let mut file = BufReader::new(open(path).map_err(unreadable)?);
    let mut broken = None;
    let lines = std::iter::from_fn(|| next_line(&mut file).transpose());
    let done = read(&mut lines.map_while(|line| line.map_err(|e| broken = Some(e)).ok()));
    match broken {
        Some(e) => Err(unreadable(e)),
        None => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read() {
        let zero = Path::new("/dev/zero");
        let why = "it is a device, not a file";
        assert_eq!(read_text(zero, 10).unwrap_err().to_string(), why);
        let failure = with_lines(zero, |lines| lines.count()).unwrap_err();
        assert_eq!(failure.text, format!("read /dev/zero: {why}"));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "one\r\ntwo\n\nfour").unwrap();
        assert_eq!(read_text(&file, 14).unwrap().len(), 14);
        assert_eq!(read_text(&file, 13).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let lines = with_lines(&file, |lines| lines.collect::<Vec<_>>()).unwrap();
        assert_eq!(lines, ["one", "two", "", "four"]);
    }

    #[test]
    fn what_is_no_trace_is_told_how_one_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tasks.toml");
        for (text, what) in [
            (&b"[[task]]\nshare = 1\n"[..], "line 1: it is no trace"),
            (b"{\"a\":1}\n", "line 1: it is no trace"),
            (b"\x7fELF\xff\xff", "it is no text, and so no trace"),
        ] {
            std::fs::write(&file, text).unwrap();
            let read = with_lines(&file, |lines| divvy_engine::replay(lines));
            let failure = read.map_or_else(|unread| unread, |read| unusable(&file, &read.unwrap_err()));
            let said = &failure.text;
            assert!(said.ends_with(&format!("{what}; `divvy share --trace FILE` writes one")), "{said}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let endless = BufReader::new(std::io::repeat(b'x'));
        let error = next_line(&mut { endless }).unwrap_err().to_string();
        assert_eq!(error, "a line of more than 64 MiB");
    }
}
