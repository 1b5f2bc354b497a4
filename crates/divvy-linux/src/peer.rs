//! Who is at the other end of a unix socket, as the kernel noted when it was connected.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use crate::{Error, Result};

/// Groups that are asked for at first: more than nearly everybody has.
const GROUPS_FIRST: usize = 64;

/// The supplementary groups of the peer of `socket` (`SO_PEERGROUPS`), as they were when it connected; nobody can add to
/// them afterwards. In the kernel's order.
///
/// # Errors
/// [`Error::System`] where `socket` is no connected unix stream socket, or the kernel (before 4.13) does not tell.
pub fn peer_groups(socket: impl AsFd) -> Result<Vec<u32>> {
    let mut room = GROUPS_FIRST;
    loop {
        let mut groups = vec![0u32; room];
        let mut bytes = (room * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes into `groups`, which has so many, and the length back.
        let done = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if done == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        match std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error) {
            // The kernel has said how much there is, and it does not change any more.
            Some(Errno::RANGE) if count > room => room = count,
            e => return Err(Error::system("ask for the groups of", "a peer", e.unwrap_or(Errno::INVAL))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_peers_groups_are_those_of_its_process() {
        let (near, far) = UnixStream::pair().unwrap();
        let own: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|g| g.as_raw()).collect();
        for socket in [&near, &far] {
            assert_eq!(peer_groups(socket).unwrap(), own);
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer_groups(&file).is_err(), "no socket at all");
    }

    /// As root: a thread with more groups than fit at first is told with all of them.
    #[test]
    fn all_groups_are_told_however_many() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED all_groups_are_told_however_many: only root can choose its groups");
            return;
        }
        let many: Vec<u32> = (70_000..70_000 + 3 * GROUPS_FIRST as u32).collect();
        let told = {
            let many = many.clone();
            // Of this thread alone, which ends soon.
            std::thread::spawn(move || {
                let gids: Vec<_> = many.iter().map(|&g| rustix::process::Gid::from_raw(g)).collect();
                rustix::thread::set_thread_groups(&gids).unwrap();
                let (near, _far) = UnixStream::pair().unwrap();
                peer_groups(&near).unwrap()
            })
        };
        assert_eq!(told.join().unwrap(), many);
    }
}
