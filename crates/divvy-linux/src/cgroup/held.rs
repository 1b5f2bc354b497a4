//! What a cgroup has of memory, and had of disks, by the kernel's own books.

use std::path::Path;

use super::room::{IO_STAT, IoStat, MEMORY_CURRENT, Parse as _, PerDevice};
use crate::procfs::DiskUse;

fn read(dir: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(file)).ok()
}

/// Bytes that are charged to the cgroup at `dir`, the cache among them; `None` where it has no memory controller.
#[must_use]
pub fn memory_held(dir: &Path) -> Option<u64> {
    u64::parse(&read(dir, MEMORY_CURRENT.name())?).ok()
}

/// Bytes that its processes read from all disks together, and wrote to them; `None` where it has no io controller.
#[must_use]
pub fn disk_had(dir: &Path) -> Option<DiskUse> {
    let disks = PerDevice::<IoStat>::parse(&read(dir, IO_STAT.name())?).ok()?;
    let sum = |of: fn(&IoStat) -> u64| disks.values().map(of).fold(0, u64::saturating_add);
    Some(DiskUse { read: sum(|disk| disk.rbytes), written: sum(|disk| disk.wbytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_books_are_read_where_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!((memory_held(dir.path()), disk_had(dir.path())), (None, None));
        std::fs::write(dir.path().join("memory.current"), "12288\n").expect("a file");
        let line = |disk| format!("{disk} rbytes=4096 wbytes=100 rios=1 wios=1 dbytes=0 dios=0\n");
        std::fs::write(dir.path().join("io.stat"), line("8:0") + &line("8:16")).expect("a file");
        assert_eq!(memory_held(dir.path()), Some(12_288));
        assert_eq!(disk_had(dir.path()), Some(DiskUse { read: 8192, written: 200 }));
        std::fs::write(dir.path().join("io.stat"), "").expect("a file");
        assert_eq!(disk_had(dir.path()), Some(DiskUse::default()), "nothing yet");
    }
}
