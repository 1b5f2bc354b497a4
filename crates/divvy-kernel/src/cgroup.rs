//! Cgroups as the kernel numbers them, and processes with their descendants.

use std::collections::BTreeMap;
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

/// The numbers of a cgroup and of all below it. One that goes meanwhile is left out.
pub fn tree(dir: &Path) -> Vec<u64> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        found.extend(id(&dir));
        todo.extend(children(&dir));
    }
    found
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

/// A process and all that descend from it.
///
/// # Errors
/// That there is no such process.
pub fn descendants(pid: i32) -> Result<Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let mut exists = false;
    for entry in fs::read_dir("/proc").context("read /proc")?.flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process may vanish meanwhile. Its name may hold anything but ends with the last parenthesis.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        let Some(parent) = parent else { continue };
        exists |= child == pid;
        children.entry(parent).or_default().push(child);
    }
    ensure!(exists, "there is no process {pid}");
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        found.extend(children.remove(&found[at]).unwrap_or_default());
        at += 1;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_below_its_parent() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let found = descendants(own).expect("we live");
        child.kill().expect("ours");
        child.wait().expect("ours");
        assert_eq!(found[0], own);
        assert!(found.contains(&i32::try_from(child.id()).expect("a pid")), "{found:?}");
        let error = descendants(i32::MAX).expect_err("beyond pid_max");
        assert_eq!(error.to_string(), format!("there is no process {}", i32::MAX));
    }
}
