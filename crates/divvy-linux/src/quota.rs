//! How many CPUs a process may use at once: its affinity and cpuset, and the CPU quota of the cgroups around it.

use std::path::{Path, PathBuf};

use crate::{CpuMask, Pid};
use crate::{mounts, procfs};

/// A limit of CPU time: so much in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time in each period, us.
    pub quota_us: u64,
    /// The period, us. Never 0.
    pub period_us: u64,
}

impl Quota {
    /// CPUs that the quota comes to, rounded up; at least 1.
    #[must_use]
    pub const fn cpus(self) -> u32 {
        let cpus = self.quota_us.div_ceil(self.period_us);
        if cpus == 0 {
            1
        } else if cpus > u32::MAX as u64 {
            u32::MAX
        } else {
            cpus as u32
        }
    }

    /// Whether this is less than `other`.
    const fn is_tighter(self, other: Self) -> bool {
        self.quota_us as u128 * (other.period_us as u128) < other.quota_us as u128 * (self.period_us as u128)
    }

    /// A cgroup v2 `cpu.max`: `50000 100000`, or `max 100000` for none.
    fn of_v2(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let quota_us = words.next()?.parse().ok()?;
        let period_us = words.next().map_or(Some(100_000), |w| w.parse().ok())?;
        (period_us > 0).then_some(Self { quota_us, period_us })
    }

    /// A cgroup v1 `cpu.cfs_quota_us` (-1 for none) and `cpu.cfs_period_us`.
    fn of_v1(quota: &str, period: &str) -> Option<Self> {
        let quota_us = quota.trim().parse().ok()?; // No quota is below zero.
        let period_us = period.trim().parse().ok()?;
        (period_us > 0).then_some(Self { quota_us, period_us })
    }
}

/// Where the hierarchies that can limit CPU time are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Directories and the cgroup that each shows at its root.
    roots: Vec<(PathBuf, PathBuf)>,
}

impl Mounts {
    /// Those that this process sees.
    #[must_use]
    pub fn read() -> Self {
        Self::parse(&mounts::own())
    }

    /// Those in the text of a `mountinfo`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let limits = mounts::parse(text).filter(|mount| mount.kind == "cgroup2" || mount.is_v1_with("cpu"));
        let roots = limits.map(|mount| (mount.point, mount.root)).collect();
        Self { roots }
    }

    /// The tightest quota on the cgroups at `paths` and those around them; `None` where nothing limits them.
    #[must_use]
    pub fn tightest(&self, paths: &[String]) -> Option<Quota> {
        let mut tightest: Option<Quota> = None;
        for (mount, root) in &self.roots {
            for path in paths {
                // A path outside of what the mount shows (`/..`) has only the mount's own root around it.
                let inside = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
                for dir in inside.ancestors().map(|up| mount.join(up)) {
                    let found = quota_in(&dir);
                    if let Some(quota) = found.filter(|q| tightest.is_none_or(|t| q.is_tighter(t))) {
                        tightest = Some(quota);
                    }
                }
            }
        }
        tightest
    }
}

fn quota_in(dir: &Path) -> Option<Quota> {
    let read = |name| std::fs::read_to_string(dir.join(name)).ok();
    match read("cpu.max") {
        Some(text) => Quota::of_v2(&text),
        None => Quota::of_v1(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?),
    }
}

/// The tightest CPU quota on `pid`; `None` where there is none, or it cannot be read.
#[must_use]
pub fn quota_of(pid: Pid) -> Option<Quota> {
    Mounts::read().tightest(&procfs::cgroups(pid))
}

/// How many of `cpus` the processes `pids` may use together: those in the affinity of one of them (which a cpuset narrows
/// too), but no more than `quota`. At least 1.
#[must_use]
pub fn usable(pids: impl Iterator<Item = Pid>, cpus: &[u32], quota: Option<Quota>) -> u32 {
    let mut open: Vec<u32> = cpus.to_vec();
    let all = open.len();
    for pid in pids {
        if open.is_empty() {
            break;
        }
        if let Ok(Some(mask)) = CpuMask::of_thread(pid) {
            open.retain(|&cpu| !mask.contains(cpu));
        }
    }
    let most = quota.map_or(u32::MAX, Quota::cpus);
    ((all - open.len()) as u32).min(most).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_read_as_the_kernel_writes_them() {
        let quota = |quota_us, period_us| Some(Quota { quota_us, period_us });
        assert_eq!(Quota::of_v2("150000 100000\n"), quota(150_000, 100_000));
        assert_eq!(Quota::of_v2("max 100000\n"), None);
        assert_eq!(Quota::of_v2("50000\n"), quota(50_000, 100_000));
        assert_eq!(Quota::of_v2("1 0"), None);
        assert_eq!(Quota::of_v1("-1\n", "100000\n"), None);
        assert_eq!(Quota::of_v1("200000\n", "100000\n"), quota(200_000, 100_000));
        for (quota_us, cpus) in [(1, 1), (0, 1), (100_000, 1), (100_001, 2), (250_000, 3)] {
            assert_eq!(Quota { quota_us, period_us: 100_000 }.cpus(), cpus, "{quota_us}");
        }
    }

    #[test]
    fn the_tightest_of_all_levels_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let (two, one) = (dir.path().join("v2"), dir.path().join("v1"));
        for path in ["v2/a/b/c", "v1/x"] {
            std::fs::create_dir_all(dir.path().join(path)).expect("directories");
        }
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
        write("v2/a/cpu.max", "300000 100000");
        write("v2/a/b/cpu.max", "150000 100000");
        write("v2/a/b/c/cpu.max", "max 100000");
        let mounts = Mounts::parse(&format!(
            "30 20 0:1 / /elsewhere rw - tmpfs tmpfs rw\n\
             31 20 0:26 / {} rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
             32 20 0:27 /docker {} rw - cgroup cgroup rw,cpu,cpuacct\n\
             33 20 0:28 / /memory rw - cgroup cgroup rw,memory\n",
            two.display(),
            one.display(),
        ));
        assert_eq!(mounts.roots, [(two, "/".into()), (one, "/docker".into())]);
        let tightest = |path: &str| mounts.tightest(&[path.to_owned()]).map(|q| q.quota_us);
        assert_eq!(tightest("/a/b/c"), Some(150_000));
        assert_eq!(tightest("/a"), Some(300_000));
        assert_eq!(tightest("/"), None);
        assert_eq!(tightest("/../outside"), None);
        write("v1/x/cpu.cfs_quota_us", "50000");
        write("v1/x/cpu.cfs_period_us", "100000");
        assert_eq!(tightest("/docker/x"), Some(50_000));
        // Half a CPU for each 100 ms is less than one and a half.
        let both = ["/a/b".to_owned(), "/docker/x".to_owned()];
        assert_eq!(mounts.tightest(&both).map(Quota::cpus), Some(1));
    }

    #[test]
    fn usable_cpus_are_those_of_all_members_together() {
        let own = rustix::process::getpid();
        let mask = CpuMask::of_thread(own).expect("readable").expect("alive");
        let cpus: Vec<u32> = mask.iter().collect();
        let all = cpus.len() as u32;
        assert_eq!(usable([own].into_iter(), &cpus, None), all);
        assert_eq!(usable(std::iter::empty(), &cpus, None), 1);
        assert_eq!(usable([own].into_iter(), &cpus, Some(Quota { quota_us: 10, period_us: 1000 })), 1);
        assert_eq!(usable([own].into_iter(), &cpus[..1], None), 1);
        assert_eq!(usable([own].into_iter(), &[CpuMask::CPUS - 1], None), 1, "not one, and yet it runs");
    }
}
