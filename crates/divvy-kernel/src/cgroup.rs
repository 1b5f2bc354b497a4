//! Cgroups as the kernel numbers them, and processes with their descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

/// Where cgroup v2 is mounted.
///
/// # Errors
/// That it is not.
pub fn mount() -> Result<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    for line in text.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        if kind.starts_with("cgroup2 ")
            && let Some(path) = place.split(' ').nth(4)
        {
            return Ok(PathBuf::from(path));
        }
    }
    bail!("cgroup v2 is not mounted here: mount -t cgroup2 none /sys/fs/cgroup")
}

/// The directory of a cgroup that is named from the root (`/build`), with the cpu controller on.
///
/// # Errors
/// That there is none, or that the kernel does not tell its tasks' CPU time apart.
pub fn directory(root: &Path, name: &str) -> Result<PathBuf> {
    ensure!(name.starts_with('/'), "cgroup {name}: give its path from the root, such as /build");
    let dir = root.join(name.trim_start_matches('/'));
    let controllers = fs::read_to_string(dir.join("cgroup.controllers"))
        .with_context(|| format!("cgroup {name}: there is none at {}", dir.display()))?;
    ensure!(
        dir == root || controllers.split_whitespace().any(|name| name == "cpu"),
        "cgroup {name}: it has no cpu controller, so the kernel counts its tasks as its parent's; write +cpu to \
         cgroup.subtree_control of its parent"
    );
    Ok(dir)
}

/// The kernel's number of a cgroup: that of its directory.
///
/// # Errors
/// Where it is gone.
pub fn id(dir: &Path) -> Result<u64> {
    Ok(fs::metadata(dir).with_context(|| format!("look at {}", dir.display()))?.ino())
}

/// Tells the numbers of a cgroup and of all below it, but for those in `others`, with all below them. Each is told before its children are
/// looked for: one that is made later can know from it whose it is. One that goes meanwhile is left out.
///
/// # Errors
/// What `tell` answers.
pub fn walk(dir: &Path, others: &BTreeSet<PathBuf>, mut tell: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        let Ok(id) = id(&dir) else { continue };
        tell(id)?;
        todo.extend(children(&dir).into_iter().filter(|child| !others.contains(child)));
    }
    Ok(())
}

/// The directories of the cgroups directly in this one, in the order of their names.
pub fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut all: Vec<PathBuf> = dirs.map(|entry| entry.path()).collect();
    all.sort();
    all
}

/// `cpu.weight`, 1 to 10000.
///
/// # Errors
/// Where there is none: the cpu controller is off, or the cgroup is gone.
pub fn weight(dir: &Path) -> Result<u64> {
    let path = dir.join("cpu.weight");
    let text = fs::read_to_string(&path).with_context(|| {
        format!("read {}; is +cpu in cgroup.subtree_control of the cgroup above?", path.display())
    })?;
    text.trim().parse().with_context(|| format!("understand {}: {text}", path.display()))
}

/// The parent of a process, and when it began, in clock ticks since the machine did.
fn parent_and_beginning(pid: i32) -> Option<(i32, u64)> {
    // Its name may hold anything but ends with the last parenthesis.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1);
    Some((fields.next()?.parse().ok()?, fields.nth(17)?.parse().ok()?))
}

/// When a process began, by which it is told from another of the same number; `None`: there is none.
#[must_use]
pub fn began(pid: i32) -> Option<u64> {
    Some(parent_and_beginning(pid)?.1)
}

/// All processes, as they were at a look.
#[derive(Debug)]
pub struct Processes {
    /// By parent.
    children: BTreeMap<i32, Vec<i32>>,
    began: BTreeMap<i32, u64>,
}

impl Processes {
    /// Looks at them.
    ///
    /// # Errors
    /// Where `/proc` cannot be read.
    pub fn look() -> Result<Self> {
        let mut all = Self { children: BTreeMap::new(), began: BTreeMap::new() };
        for entry in fs::read_dir("/proc").context("read /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            // One may vanish meanwhile.
            if let Some((parent, began)) = parent_and_beginning(pid) {
                all.began.insert(pid, began);
                all.children.entry(parent).or_default().push(pid);
            }
        }
        Ok(all)
    }

    /// A process and all that descend from it, but for those in `others`, with all below them; each with the time at which it began. None if
    /// there is no such process.
    #[must_use]
    pub fn below(&self, pid: i32, others: &BTreeSet<i32>) -> Vec<(i32, u64)> {
        let Some(&began) = self.began.get(&pid) else { return Vec::new() };
        let mut found = vec![(pid, began)];
        // A number may be another's in the middle of a look, and so its own grandparent.
        let mut known = BTreeSet::from([pid]);
        let mut at = 0;
        while at < found.len() {
            let children = self.children.get(&found[at].0).into_iter().flatten();
            let own = children.filter(|child| !others.contains(child) && known.insert(**child));
            let with_beginning: Vec<_> = own.filter_map(|&pid| Some((pid, *self.began.get(&pid)?))).collect();
            found.extend(with_beginning);
            at += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_below_its_parent() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = i32::try_from(child.id()).expect("a pid");
        let processes = Processes::look().expect("/proc");
        let found = processes.below(own, &BTreeSet::new());
        let without = processes.below(own, &BTreeSet::from([pid]));
        let began_before = began(pid);
        child.kill().expect("ours");
        child.wait().expect("ours");
        assert_eq!(found[0].0, own);
        assert_eq!(found.iter().find(|(id, _)| *id == pid).map(|(_, at)| *at), began_before, "{found:?}");
        assert!(began_before >= began(own) && began_before.is_some(), "{began_before:?}");
        // Another client's.
        assert!(without.iter().all(|(id, _)| *id != pid), "{without:?}");
        assert_eq!(processes.below(i32::MAX, &BTreeSet::new()), [], "beyond pid_max");
        assert_eq!(began(i32::MAX), None);
    }

    #[test]
    fn a_directory_is_told_before_its_children_and_without_those_of_others() {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);
        for name in ["a/b/c", "a/d", "e"] {
            fs::create_dir_all(path(name)).expect("in it");
        }
        let others = BTreeSet::from([path("a"), path("a/b")]);
        let mut told = Vec::new();
        walk(&path("a"), &others, |id| {
            // Made as soon as its parent is told: it is found.
            fs::create_dir_all(path("a/late")).expect("in it");
            told.push(id);
            Ok(())
        })
        .expect("nothing fails");
        told.sort_unstable();
        let mut want = ["a", "a/d", "a/late"].map(|name| id(&path(name)).expect("there"));
        want.sort_unstable();
        assert_eq!(told, want);
    }
}
