//! Which CPUs a thread may run on.

use rustix::io::Errno;
use rustix::process::Pid;

use crate::{Delivery, Error, Result, own};

/// Where the kernel tells which CPUs run anybody.
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// Words in a mask.
pub(crate) const MASK_WORDS: usize = CpuMask::CPUS as usize / 64;

/// A set of CPUs, by the kernel's numbers, 0 to 1023.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuMask {
    pub(crate) words: [u64; MASK_WORDS],
}

impl std::fmt::Display for CpuMask {
    /// As the kernel writes lists of CPUs: `0-3,8`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut cpus, mut comma) = (self.iter().peekable(), "");
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|&cpu| cpu == last + 1) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

/// Why a text is no list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuListError {
    /// A part of it is no number.
    #[error("'{0}' is no CPU")]
    NoNumber(String),
    /// A range that ends before it begins.
    #[error("the range {0} is empty")]
    EmptyRange(String),
    /// A number beyond [`CpuMask::CPUS`].
    #[error("there is no CPU {0}")]
    NoCpu(u32),
}

impl std::str::FromStr for CpuMask {
    type Err = CpuListError;

    /// `0,2-3` as a set of CPUs.
    fn from_str(list: &str) -> Result<Self, CpuListError> {
        let number =
            |text: &str| text.trim().parse().map_err(|_| CpuListError::NoNumber(text.trim().to_owned()));
        let mut mask = Self::default();
        for part in list.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if last < first {
                return Err(CpuListError::EmptyRange(part.to_owned()));
            }
            if last >= Self::CPUS {
                return Err(CpuListError::NoCpu(last));
            }
            (first..=last).for_each(|cpu| mask.insert(cpu));
        }
        Ok(mask)
    }
}

impl FromIterator<u32> for CpuMask {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut mask = Self::default();
        cpus.into_iter().for_each(|cpu| mask.insert(cpu));
        mask
    }
}

impl CpuMask {
    /// How many CPUs a mask can name.
    pub const CPUS: u32 = 1024;

    /// The set of `cpu` alone; empty where `cpu` is beyond [`CpuMask::CPUS`].
    #[must_use]
    pub fn only(cpu: u32) -> Self {
        let mut mask = Self::default();
        mask.insert(cpu);
        mask
    }

    /// Adds `cpu`; a number beyond [`CpuMask::CPUS`] changes nothing.
    pub fn insert(&mut self, cpu: u32) {
        if let Some(word) = self.words.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Whether `other` has all of its CPUs.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(own, others)| own & !others == 0)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The CPUs of the set, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::CPUS).filter(|&cpu| self.contains(cpu))
    }

    /// The CPUs of the machine that run anybody, whichever of them this process may use.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Malformed`] where the kernel does not tell.
    pub fn online() -> Result<Self> {
        let malformed = |_| Error::Malformed { object: ONLINE.to_owned(), what: "the list of CPUs" };
        let text = std::fs::read_to_string(ONLINE).map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            Error::system("read", ONLINE, errno)
        })?;
        text.trim().parse().map_err(malformed)
    }

    /// The CPUs that thread `tid` may run on; `None` if there is no such thread.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses, or has more than [`CpuMask::CPUS`] CPUs (`EINVAL`).
    pub fn of_thread(tid: Pid) -> Result<Option<Self>> {
        let mut mask = Self::default();
        let (size, words) = (size_of_val(&mask.words), mask.words.as_mut_ptr());
        // SAFETY: a mask is as many bytes as we say, laid out as the kernel lays out its own: bits of machine words.
        let got = unsafe { libc::sched_getaffinity(tid.as_raw_nonzero().get(), size, words.cast()) };
        match (got, own::last_errno()) {
            (0, _) => Ok(Some(mask)),
            (_, Errno::SRCH) => Ok(None),
            (_, e) => Err(Error::system("read the affinity of thread", tid, e)),
        }
    }

    /// Lets thread `tid` run on these CPUs only. About 2.6 us; brings the thread's CPU clock up to date.
    ///
    /// # Errors
    /// [`Error::Permission`] for somebody else's thread, [`Error::System`] where no CPU of the set can be used.
    pub fn apply(&self, tid: Pid) -> Result<Delivery> {
        self.apply_raw(tid).map_err(|e| Error::system("set the affinity of thread", tid, e))
    }

    /// As [`CpuMask::apply`], for places that may not allocate.
    pub(crate) fn apply_raw(&self, tid: Pid) -> rustix::io::Result<Delivery> {
        let (size, words) = (size_of_val(&self.words), self.words.as_ptr());
        // SAFETY: a mask is as many bytes as we say, laid out as the kernel lays out its own: bits of machine words.
        let set = unsafe { libc::sched_setaffinity(tid.as_raw_nonzero().get(), size, words.cast()) };
        match (set, own::last_errno()) {
            (0, _) => Ok(Delivery::Sent),
            (_, Errno::SRCH) => Ok(Delivery::Gone),
            (_, e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever runs does so on a CPU that is there, whatever it is kept to.
    #[test]
    fn where_we_may_run_is_online() {
        let online = CpuMask::online().unwrap();
        let own = CpuMask::of_thread(rustix::process::getpid()).unwrap().unwrap();
        assert!(!own.is_empty() && own.iter().all(|cpu| online.contains(cpu)), "{own} of {online}");
    }
}
