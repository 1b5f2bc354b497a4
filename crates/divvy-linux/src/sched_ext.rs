//! Whether this kernel takes schedulers from programs (sched_ext), as `divvy-scx` needs it.

use std::fs;
use std::path::Path;

const STATE: &str = "/sys/kernel/sched_ext/state";
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
/// The kernel's own types, by which programs that were compiled elsewhere find their way in it.
const BTF: &str = "/sys/kernel/btf/vmlinux";
const OPTION: &str = "CONFIG_SCHED_CLASS_EXT";
/// The first kernel with sched_ext, and the first with the calls that `divvy-scx` makes.
const FIRST: (u32, u32) = (6, 12);
const FIRST_USABLE: (u32, u32) = (6, 13);
/// Bits of `CapEff`.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// What `divvy-scx` lacks here, and what would bring it.
#[derive(Debug)]
pub(crate) struct Lack {
    pub(crate) found: String,
    pub(crate) fix: String,
}

/// Major and minor version of the kernel that calls itself `release`.
pub(crate) fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// What is looked at.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// As `uname -r` says it.
    release: String,
    /// What the kernel was built with, where it is written down.
    config: Option<String>,
    state: Option<String>,
    ops: Option<String>,
    has_btf: bool,
    capabilities: u64,
}

impl Facts {
    fn of_this_machine() -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let read = |path: &str| Some(fs::read_to_string(path).ok()?.trim().to_owned());
        let config = read(&format!("/boot/config-{release}"));
        Self {
            config: config.or_else(|| read(&format!("/lib/modules/{release}/config"))),
            release,
            state: read(STATE),
            ops: read(OPS),
            has_btf: Path::new(BTF).exists(),
            capabilities: capabilities(&read("/proc/self/status").unwrap_or_default()),
        }
    }

    fn version(&self) -> Option<(u32, u32)> {
        version_of(&self.release)
    }

    fn judge(&self) -> Result<String, Lack> {
        let limited = |found: String, fix: &str| Err(Lack { found, fix: fix.to_owned() });
        let Some(state) = &self.state else { return limited(self.why_there_is_none(), &self.way_to_it()) };
        if !self.has_btf {
            let found = format!("Linux {} has it, but does not describe its types ({BTF})", self.release);
            return limited(found, "a kernel with CONFIG_DEBUG_INFO_BTF");
        }
        if self.version().is_some_and(|version| version < FIRST_USABLE) {
            let found = format!("Linux {} has it, without the calls that divvy-scx makes", self.release);
            return limited(found, "Linux 6.13 or later");
        }
        if state != "disabled" {
            let whose = self.ops.as_deref().unwrap_or("one without a name");
            let found = format!("the kernel has a scheduler already ({whose}, {state})");
            if whose.starts_with("divvy_") {
                return Ok(found);
            }
            return limited(found, "end that one first; there can be one at a time");
        }
        let may = self.capabilities & CAP_SYS_ADMIN != 0
            && (self.capabilities & (CAP_BPF | CAP_PERFMON)) == CAP_BPF | CAP_PERFMON;
        if !may {
            let found = format!("Linux {} takes schedulers from programs, but not from us", self.release);
            return limited(found, "root, outside of a container");
        }
        Ok(format!("Linux {} takes schedulers from programs: divvy-scx can run", self.release))
    }

    fn why_there_is_none(&self) -> String {
        let why = match (&self.config, self.version()) {
            (_, Some(version)) if version < FIRST => "it came with 6.12".to_owned(),
            (Some(config), _) if !config.lines().any(|line| line == format!("{OPTION}=y")) => {
                format!("it was built without {OPTION}")
            }
            (Some(_), _) => format!("{STATE} cannot be read: is /sys mounted?"),
            (None, _) => format!("it was built without {OPTION}, or /sys is not mounted"),
        };
        format!("Linux {} takes no schedulers from programs: {why}", self.release)
    }

    fn way_to_it(&self) -> String {
        match self.version() {
            Some(version) if version < FIRST => "Linux 6.13 or later".to_owned(),
            _ => format!("a kernel with {OPTION}, as Debian's and Fedora's newer ones are"),
        }
    }
}

/// The effective capabilities in a `/proc/PID/status`.
fn capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// Whether `divvy-scx` can give this kernel a scheduler, and if not, why.
pub(crate) fn support() -> Result<String, Lack> {
    Facts::of_this_machine().judge()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = CAP_SYS_ADMIN | CAP_BPF | CAP_PERFMON;

    fn facts(release: &str, state: Option<&str>) -> Facts {
        let (release, state) = (release.to_owned(), state.map(str::to_owned));
        Facts { release, state, has_btf: true, capabilities: ALL, ..Facts::default() }
    }

    #[test]
    fn each_lack_is_told_by_its_cause() {
        let with = "CONFIG_SMP=y\nCONFIG_SCHED_CLASS_EXT=y\n".to_owned();
        let without = "CONFIG_SMP=y\n# CONFIG_SCHED_CLASS_EXT is not set\n".to_owned();
        let disabled = Some("disabled");
        for (facts, good, found, fix) in [
            (facts("6.18.15+deb13-amd64", disabled), true, "divvy-scx can run", ""),
            (facts("6.1.0-30-amd64", None), false, "it came with 6.12", "Linux 6.13 or later"),
            (facts("6.18.1", None), false, "without CONFIG_SCHED_CLASS_EXT, or /sys", "a kernel with"),
            (
                Facts { config: Some(without), ..facts("6.18.1", None) },
                false,
                "it was built without CONFIG_SCHED_CLASS_EXT",
                "a kernel with CONFIG_SCHED_CLASS_EXT",
            ),
            (Facts { config: Some(with), ..facts("6.18.1", None) }, false, "is /sys mounted?", ""),
            (facts("6.12.9", disabled), false, "without the calls", "6.13 or later"),
            (
                Facts { has_btf: false, ..facts("6.18.1", disabled) },
                false,
                "does not describe its types",
                "CONFIG_DEBUG_INFO_BTF",
            ),
            (
                Facts { capabilities: CAP_BPF, ..facts("6.18.1", disabled) },
                false,
                "but not from us",
                "root, outside of a container",
            ),
            (
                Facts { ops: Some("rusty_1.0".to_owned()), ..facts("6.18.1", Some("enabled")) },
                false,
                "already (rusty_1.0, enabled)",
                "end that one first",
            ),
            (
                Facts { ops: Some("divvy_vtrr".to_owned()), ..facts("6.18.1", Some("enabled")) },
                true,
                "already (divvy_vtrr, enabled)",
                "",
            ),
        ] {
            let judged = facts.judge();
            let (is_good, told, way) = match &judged {
                Ok(told) => (true, told, ""),
                Err(lack) => (false, &lack.found, lack.fix.as_str()),
            };
            assert_eq!(is_good, good, "{facts:?}: {judged:?}");
            assert!(told.contains(found) && way.contains(fix), "{facts:?}: {judged:?}");
        }
    }

    #[test]
    fn capabilities_are_the_effective_ones() {
        let status = "CapPrm:\t0000000000000001\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n";
        assert_eq!(capabilities(status) & ALL, ALL);
        assert_eq!(capabilities("Name:\tx\n"), 0);
    }
}
