//! Slices: for how long a thread goes on once it has the CPU, and how soon it gets it when it wakes (Linux 6.12 and later).
//!
//! The kernel lets a thread that wakes come before one that runs if its slice is the shorter one, whatever both have used;
//! how much each gets in the long run does not depend on it. `sched_setattr` takes a slice as the `sched_runtime` of an
//! ordinary policy, from whoever may signal the thread. Older kernels refuse, or take no notice.

use divvy_policy::Nanos;

use crate::Pid;

/// The shortest slice that the kernel gives: 100 us.
const SHORTEST: Nanos = Nanos::from_micros(100);
/// Our own. A wake-up of ours takes some 70 us, and what a slice has left counts at the next: with the shortest one in ten ended before we
/// were through, and somebody else's of 3 ms came first.
const OURS: Nanos = Nanos::from_micros(400);

/// In `sched_attr`'s flags: what a thread starts does not have its priority.
const RESET_ON_FORK: u64 = 1;

/// What the kernel calls `struct sched_attr`, in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl SchedAttr {
    /// That of a thread of an ordinary policy, 0 being the calling one; `None` for any other.
    fn of(tid: i32) -> Option<Self> {
        let size = size_of::<Self>() as u32;
        let mut attr = Self { size, ..Self::default() };
        // SAFETY: the kernel writes at most `size` bytes to a struct of that size.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) };
        (got == 0 && attr.policy == libc::SCHED_OTHER as u32).then_some(attr)
    }

    fn apply(&self, tid: i32) -> bool {
        // SAFETY: the kernel reads `size` bytes of a struct of that size.
        unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const *self, 0) == 0 }
    }
}

/// The slice of a thread before it was changed.
#[derive(Clone, Copy, Debug)]
pub struct Slice(SchedAttr);

impl Slice {
    /// Gives the calling thread this slice. Only a system call: for use between fork and exec, since a process inherits its
    /// parent's.
    pub fn restore(self) {
        self.0.apply(0); // It was so before, so it can be so.
    }

    /// Makes the calling thread one of an ordinary policy, with the slice that [`ask_for_short_slices`] asks for; says whether it is.
    pub fn shorten_own(self) -> bool {
        let ours = SchedAttr { runtime: OURS.0, ..self.0 };
        // That what it starts is as others stays so where that cannot be taken back, without privilege.
        ours.apply(0) || SchedAttr { flags: ours.flags | RESET_ON_FORK, ..ours }.apply(0)
    }

    /// Whether it is of a thread that nobody has made nicer, or less so.
    pub fn is_of_usual_nice(self) -> bool {
        self.0.nice == 0
    }

    /// Gives thread `tid` the shortest slice there is, if it has this one and an ordinary policy; says whether it did.
    pub fn shorten(self, tid: Pid) -> bool {
        self.exchange(tid, self.0.runtime, SHORTEST.0)
    }

    /// Undoes [`Slice::shorten`].
    pub fn lengthen(self, tid: Pid) -> bool {
        self.exchange(tid, SHORTEST.0, self.0.runtime)
    }

    fn exchange(self, tid: Pid, from: u64, to: u64) -> bool {
        let tid = tid.as_raw_nonzero().get();
        let Some(mut attr) = SchedAttr::of(tid).filter(|attr| attr.runtime == from) else { return false };
        attr.runtime = to;
        attr.apply(tid)
    }
}

/// Asks for a short slice for the calling thread, so that waking up comes before others' longer slices. Needs no
/// privilege. What it was before, if it was changed.
pub fn ask_for_short_slices() -> Option<Slice> {
    let before = Slice(SchedAttr::of(0)?); // Whoever runs us under another policy knows better.
    before.shorten_own().then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_shortened_and_given_back() {
        // A thread of its own: the others keep theirs.
        std::thread::spawn(|| {
            let me = rustix::thread::gettid();
            let tid = me.as_raw_nonzero().get();
            let before = SchedAttr::of(tid).expect("an ordinary policy").runtime;
            let Some(slice) = ask_for_short_slices() else { return };
            if SchedAttr::of(tid).map(|a| a.runtime) != Some(OURS.0) {
                crate::skip::skip(
                    "a_slice_is_shortened_and_given_back",
                    "the kernel takes no slices (Linux 6.12)",
                );
                return;
            }
            assert!(!slice.lengthen(me), "it has ours, and not the shortest");
            slice.restore();
            assert!(slice.shorten(me));
            assert!(slice.lengthen(me));
            assert_eq!(SchedAttr::of(tid).map(|a| a.runtime), Some(before));
            assert!(!slice.lengthen(me), "it has not the shortest");
            assert!(slice.shorten(me));
            assert_eq!(SchedAttr::of(tid).map(|a| a.runtime), Some(SHORTEST.0));
        })
        .join()
        .expect("no panic");
    }
}
