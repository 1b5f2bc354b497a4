//! How much of the time the processes of a cgroup waited for a resource: the kernel's pressure stall information (PSI).

use std::path::Path;

use super::room::{CPU_PRESSURE, IO_PRESSURE, MEMORY_PRESSURE, Parse as _, Pressure};

/// Of the CPU, memory and disks in the cgroup at `dir`, as far as the kernel tells: not where it was built or booted without
/// PSI (`psi=1`), and not in version 1. Cost: a read of each file, some 20 us.
#[must_use]
pub fn pressures(dir: &Path) -> Vec<(&'static str, Pressure)> {
    let files =
        [("cpu", CPU_PRESSURE.name()), ("memory", MEMORY_PRESSURE.name()), ("disk", IO_PRESSURE.name())];
    let of = |(resource, file): (&'static str, &str)| {
        let text = std::fs::read_to_string(dir.join(file)).ok()?;
        Some((resource, Pressure::parse(&text).ok()?))
    };
    files.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::room::Hundredths;
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(pressures(dir.path()), []);
        let line = |what: &str| format!("{what} avg10=12.50 avg60=3.00 avg300=0.10 total=4000\n");
        std::fs::write(dir.path().join("cpu.pressure"), line("some")).expect("a file");
        std::fs::write(dir.path().join("io.pressure"), line("some") + &line("full")).expect("a file");
        std::fs::write(dir.path().join("memory.pressure"), "garbage").expect("a file");
        let found = pressures(dir.path());
        assert_eq!(found.iter().map(|(of, _)| *of).collect::<Vec<_>>(), ["cpu", "disk"]);
        assert_eq!(found[0].1.some.avg10, Hundredths(1_250));
        assert!(found[0].1.full.is_none() && found[1].1.full.is_some());
    }
}
