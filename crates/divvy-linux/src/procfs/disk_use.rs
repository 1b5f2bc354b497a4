//! What processes had of disks: `/proc/PID/io`.

use super::{ProcPath, RawError, number, read_once};
use crate::{Pid, Result};

/// Bytes that a process, and those of its children that it has waited for, had read from disks and written to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// What was in no cache and had to be read.
    pub read: u64,
    /// What is to be written, charged when it was put into the cache; what was taken back before is left out.
    pub written: u64,
}

impl DiskUse {
    fn parse(text: &[u8]) -> Option<Self> {
        let line = |name: &[u8]| {
            let value = |line: &[u8]| number(line.strip_prefix(name)?.strip_prefix(b":")?.trim_ascii());
            text.split(|&b| b == b'\n').find_map(value)
        };
        let written = line(b"write_bytes")?.saturating_sub(line(b"cancelled_write_bytes")?);
        Some(Self { read: line(b"read_bytes")?, written })
    }
}

/// What process `pid` had of disks; `None` if there is no such process. About 7 us.
///
/// # Errors
/// [`Error::Permission`](crate::Error::Permission) for a process that may not be looked into, another user's mostly; else as
/// [`stat`](super::stat).
pub fn disk_use(pid: Pid) -> Result<Option<DiskUse>> {
    let path = ProcPath::of(pid, "io");
    let mut buffer = [0; 512];
    let Some(read) = read_once(&path, &mut buffer)? else { return Ok(None) };
    let told = DiskUse::parse(read).ok_or(RawError::Malformed("the bytes read and written"));
    told.map(Some).map_err(|e| e.on(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_to_disks_is_read_and_what_was_cached_is_not() {
        let text = b"rchar: 1948\nwchar: 7\nsyscr: 7\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1024\n";
        assert_eq!(DiskUse::parse(text), Some(DiskUse { read: 4096, written: 7168 }));
        assert_eq!(DiskUse::parse(b"read_bytes: 4096\n"), None);
        assert_eq!(DiskUse::parse(b"read_bytes: x\nwrite_bytes: 1\ncancelled_write_bytes: 0\n"), None);
        let own = disk_use(rustix::process::getpid()).expect("our own").expect("alive");
        let later = disk_use(rustix::process::getpid()).expect("our own").expect("alive");
        assert!(later.read >= own.read, "{own:?} {later:?}");
        let nobody = Pid::from_raw(4_194_304).expect("positive");
        assert_eq!(disk_use(nobody).expect("nobody is no error"), None);
    }
}
