//! What processes have of memory: `/proc/PID/statm`.

use super::{ProcPath, RawError, number, read_once};
use crate::{Pid, Result};

/// Pages that are resident, the second number.
fn parse(text: &[u8]) -> Option<u64> {
    number(text.split(|&b| b == b' ').nth(1)?)
}

/// Bytes of memory that process `pid` has: resident pages, what it shares with others among them. `None` if there is no such
/// process. About 7 us.
///
/// # Errors
/// As [`stat`](super::stat).
pub fn memory_use(pid: Pid) -> Result<Option<u64>> {
    let path = ProcPath::of(pid, "statm");
    let mut buffer = [0; 128];
    let Some(read) = read_once(&path, &mut buffer)? else { return Ok(None) };
    let pages = parse(read).ok_or(RawError::Malformed("the resident pages")).map_err(|e| e.on(&path))?;
    Ok(Some(pages.saturating_mul(rustix::param::page_size() as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_resident_is_read() {
        assert_eq!(parse(b"1000 250 90 1 0 300 0\n"), Some(250));
        assert_eq!((parse(b"1000\n"), parse(b"1 x 2")), (None, None));
        let own = memory_use(rustix::process::getpid()).expect("our own").expect("alive");
        let had = vec![1_u8; 64 << 20];
        let more = memory_use(rustix::process::getpid()).expect("our own").expect("alive");
        assert!(own > 0 && more >= own + (32 << 20), "{own} {more} {}", had.len());
        let nobody = Pid::from_raw(4_194_304).expect("positive");
        assert_eq!(memory_use(nobody).expect("nobody is no error"), None);
    }
}
