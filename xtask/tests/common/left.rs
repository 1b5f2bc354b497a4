//! What a run over real programs, or services, has left behind.

use std::path::Path;

/// Processes that carry the mark of a run, and cgroups that bear its name.
pub fn left(pid: u32) -> Vec<String> {
    let mark = format!("DIVVY_REAL={pid}").into_bytes();
    let entries = |dir: &Path| {
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>()
    };
    let marked = |dir: &std::path::PathBuf| {
        std::fs::read(dir.join("environ")).is_ok_and(|env| env.split(|&b| b == 0).any(|v| v == mark))
    };
    let name = format!("divvy-real-{pid}");
    let named =
        |path: &std::path::PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&name));
    let hierarchies = entries(Path::new("/sys/fs/cgroup"));
    let around = ["/sys/fs/cgroup", "/tmp", "/dev/shm"].map(std::path::PathBuf::from);
    let dirs = hierarchies.iter().chain(&around).flat_map(|dir| entries(dir)).filter(named);
    let processes = entries(Path::new("/proc")).into_iter().filter(marked);
    processes.chain(dirs).map(|path| path.display().to_string()).collect()
}
