//! The kernel's own books, and its weights: a cgroup for each client, and one for the tool that divides.
//!
//! Version 1 is taken where it has the controllers (`cpuacct.usage`, `cpu.shares`), else version 2 (`cpu.stat`, which needs no
//! controller, and `cpu.weight`). Where the books and the weights are in hierarchies of their own, a client is put into
//! both, so that divvy's clients are counted without being weighed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use divvy_linux::{Pid, ProcessRef, Signal, clock};
use divvy_policy::Nanos;

/// Everybody has gone within this.
const PATIENCE: Nanos = Nanos::from_secs(20);

/// Where cgroups are made, and of what kind they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::paper) struct Hierarchies {
    accounts: PathBuf,
    weights: PathBuf,
    accounts_version: Version,
    weights_version: Version,
    /// Version 2, which freezes, where there is one.
    two: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Hierarchies {
    /// What this machine has.
    ///
    /// # Errors
    /// Says what is missing: the books are in the kernel's hands, so there is no page without them.
    pub(in crate::paper) fn find() -> Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
        let found = Self::of(&mounts).context(
            "the kernel's books are needed: a cgroup hierarchy with cpuacct and cpu (version 1), or version 2",
        )?;
        for dir in [&found.accounts, &found.weights] {
            let probe = dir.join(format!("divvy-real-{}-probe", std::process::id()));
            let made = std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe));
            made.with_context(|| format!("make a cgroup in {}: run this as root", dir.display()))?;
        }
        Ok(found)
    }

    fn of(mountinfo: &str) -> Option<Self> {
        let first = |wanted: &dyn Fn(&str, &[&str]) -> bool| {
            mountinfo.lines().find_map(|line| {
                let (mount, file_system) = line.split_once(" - ")?;
                let mut fields = file_system.split(' ');
                let (kind, options) = (fields.next()?, fields.nth(1).unwrap_or_default());
                let options: Vec<&str> = options.split(',').collect();
                wanted(kind, &options).then(|| mount.split(' ').nth(4).map(PathBuf::from))?
            })
        };
        let two = first(&|kind, _| kind == "cgroup2");
        let one =
            |controller: &str| first(&|kind, options| kind == "cgroup" && options.contains(&controller));
        let of = |controller| {
            one(controller).map(|dir| (dir, Version::One)).or_else(|| Some((two.clone()?, Version::Two)))
        };
        let ((accounts, accounts_version), (weights, weights_version)) = (of("cpuacct")?, of("cpu")?);
        Some(Self { accounts, weights, accounts_version, weights_version, two })
    }

    /// What the weights of a client are called.
    pub(in crate::paper) const fn knob(&self) -> &'static str {
        match self.weights_version {
            Version::One => "cpu.shares",
            Version::Two => "cpu.weight",
        }
    }
}

/// The cgroups of one run. Dropping them kills whoever is inside, and removes them.
#[derive(Debug)]
pub(in crate::paper) struct Cgroups {
    hierarchies: Hierarchies,
    name: String,
}

/// The tool's own member of the cgroups; clients are called by their numbers.
pub(in crate::paper) const OWN: &str = "own";

impl Cgroups {
    /// Makes the cgroups of `clients`, with `weights` where the kernel is to divide.
    ///
    /// # Errors
    /// Where one cannot be made.
    pub(in crate::paper) fn new(
        hierarchies: &Hierarchies,
        name: String,
        clients: usize,
        weights: Option<&[u64]>,
    ) -> Result<Self> {
        let groups = Self { hierarchies: hierarchies.clone(), name };
        make(&groups.accounts_root())?;
        let names = (0..clients).map(|i| i.to_string()).chain([OWN.to_owned()]);
        for name in names {
            make(&groups.accounts_root().join(name))?;
        }
        if let Some(shares) = weights {
            groups.weigh(shares)?;
        }
        Ok(groups)
    }

    fn accounts_root(&self) -> PathBuf {
        self.hierarchies.accounts.join(&self.name)
    }

    fn weights_root(&self) -> PathBuf {
        self.hierarchies.weights.join(&self.name)
    }

    fn freezers_root(&self) -> Option<PathBuf> {
        self.hierarchies.two.as_ref().map(|two| two.join(&self.name))
    }

    /// Whatever of the cgroups there may be.
    fn roots(&self) -> BTreeSet<PathBuf> {
        [self.accounts_root(), self.weights_root()].into_iter().chain(self.freezers_root()).collect()
    }

    /// Lets the first `clients` be frozen: their directories, in which `cgroup.freeze` is.
    ///
    /// # Errors
    /// Where there is no version 2.
    pub(in crate::paper) fn freezers(&self, clients: usize) -> Result<Vec<PathBuf>> {
        let root = self.freezers_root().context("no cgroup v2, which freezes")?;
        let dirs: Vec<PathBuf> = (0..clients).map(|k| root.join(k.to_string())).collect();
        let missing: Vec<&PathBuf> =
            std::iter::once(&root).chain(&dirs).filter(|dir| !dir.exists()).collect();
        missing.into_iter().try_for_each(|dir| make(dir))?;
        Ok(dirs)
    }

    /// The directories of the books of the first `clients`.
    pub(in crate::paper) fn accounts(&self, clients: usize) -> Vec<PathBuf> {
        (0..clients).map(|k| self.accounts_root().join(k.to_string())).collect()
    }

    fn weigh(&self, shares: &[u64]) -> Result<()> {
        let root = self.weights_root();
        if self.hierarchies.weights_version == Version::Two {
            write(&self.hierarchies.weights.join("cgroup.subtree_control"), "+cpu")?;
        }
        if !root.exists() {
            make(&root)?;
        }
        if self.hierarchies.weights_version == Version::Two {
            write(&root.join("cgroup.subtree_control"), "+cpu")?;
        }
        let ordinary = if self.hierarchies.weights_version == Version::One { 1024 } else { 100 };
        for (i, share) in shares.iter().enumerate() {
            let dir = root.join(i.to_string());
            if !dir.exists() {
                make(&dir)?;
            }
            write(&dir.join(self.hierarchies.knob()), &(share * ordinary).to_string())?;
        }
        Ok(())
    }

    /// Has the member called `name`, which has a weight, run only while nobody else wants the CPU.
    ///
    /// # Errors
    /// Where the kernel has no such class for cgroups (before 5.15).
    pub(in crate::paper) fn idle(&self, name: &str) -> Result<()> {
        write(&self.weights_root().join(name).join("cpu.idle"), "1")
    }

    /// What a shell has to do first to be the member called `name`.
    pub(in crate::paper) fn enter(&self, name: &str) -> String {
        let dirs: BTreeSet<PathBuf> = self.roots().into_iter().map(|root| root.join(name)).collect();
        let enter = |dir: &PathBuf| format!("echo $$ >{}/cgroup.procs; ", dir.display());
        dirs.iter().filter(|dir| dir.exists()).map(enter).collect()
    }

    /// CPU time of the member called `name` and of all its descendants, those gone included.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub(in crate::paper) fn used(&self, name: &str) -> Result<Nanos> {
        let dir = self.accounts_root().join(name);
        let read = |file: &str| {
            std::fs::read_to_string(dir.join(file)).with_context(|| format!("read {}/{file}", dir.display()))
        };
        match self.hierarchies.accounts_version {
            Version::One => Ok(Nanos(read("cpuacct.usage")?.trim().parse()?)),
            Version::Two => {
                let text = read("cpu.stat")?;
                let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
                Ok(Nanos::from_micros(line.context("cpu.stat has no usage_usec")?.trim().parse()?))
            }
        }
    }

    /// The processes of the member called `name`.
    pub(in crate::paper) fn processes(&self, name: &str) -> Vec<Pid> {
        processes(&self.accounts_root().join(name))
    }

    /// Kills everybody and removes the cgroups.
    ///
    /// # Errors
    /// Says which cgroup could not be emptied.
    pub(in crate::paper) fn end(&self) -> Result<()> {
        self.roots().iter().filter(|root| root.exists()).try_for_each(|root| remove(root))
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // Whoever asked for the end by name has heard of its failure.
        let _ = self.end();
    }
}

/// Removes what a process that was killed has left in `hierarchies` under names that begin with `prefix`.
///
/// # Errors
/// As [`Cgroups::end`].
pub(in crate::paper) fn sweep(prefix: &str) -> Result<()> {
    let hierarchies = Hierarchies::find()?;
    for mount in [hierarchies.accounts, hierarchies.weights]
        .into_iter()
        .chain(hierarchies.two)
        .collect::<BTreeSet<_>>()
    {
        for entry in std::fs::read_dir(&mount).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                remove(&entry.path())?;
            }
        }
    }
    Ok(())
}

fn make(dir: &Path) -> Result<()> {
    std::fs::create_dir(dir).with_context(|| format!("make {}", dir.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {text} to {}", path.display()))
}

fn processes(dir: &Path) -> Vec<Pid> {
    let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
}

/// Kills until nobody is left, for a process that forks may be faster than one round, and removes the directories.
fn remove(root: &Path) -> Result<()> {
    let begun = clock::now();
    let mut dirs: Vec<PathBuf> =
        std::fs::read_dir(root).into_iter().flatten().flatten().map(|e| e.path()).collect();
    dirs.retain(|path| path.is_dir());
    dirs.push(root.to_owned());
    loop {
        for pid in dirs.iter().flat_map(|dir| processes(dir)) {
            // What cannot be signalled has ended.
            if let Ok(Some(process)) = ProcessRef::open(pid) {
                let _ = process.signal(Signal::KILL);
            }
        }
        dirs.retain(|dir| dir.exists() && std::fs::remove_dir(dir).is_err());
        if dirs.is_empty() {
            return Ok(());
        }
        if clock::now().since(begun) > PATIENCE {
            bail!("{} cannot be emptied", root.display());
        }
        clock::sleep(Nanos::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "\
33 31 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
34 31 0:29 / /sys/fs/cgroup/cpuacct rw,relatime shared:4 - cgroup cgroup rw,cpuacct
45 31 0:40 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn version_1_is_taken_where_it_has_the_controllers() {
        let found = Hierarchies::of(ONE).expect("both");
        assert_eq!(found.accounts, Path::new("/sys/fs/cgroup/cpuacct"));
        assert_eq!((found.weights.as_path(), found.knob()), (Path::new("/sys/fs/cgroup/cpu"), "cpu.shares"));
        let two = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let found = Hierarchies::of(two).expect("one for both");
        assert_eq!((found.accounts.as_path(), found.knob()), (Path::new("/sys/fs/cgroup"), "cpu.weight"));
        assert_eq!(found.accounts, found.weights);
        assert_eq!(Hierarchies::of("22 1 0:20 / /proc rw - proc proc rw"), None);
    }

    #[test]
    fn both_controllers_in_one_hierarchy() {
        let both = "33 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct";
        let found = Hierarchies::of(both).expect("both");
        assert_eq!(found.accounts, found.weights);
        assert_eq!(found.accounts_version, Version::One);
    }
}
