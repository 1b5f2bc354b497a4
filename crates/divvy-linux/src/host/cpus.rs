//! Which CPUs are divided.

use crate::quota::quota_of;
use crate::{CpuMask, Error, Result};

/// Checks that this process may use every CPU of `cpus`.
///
/// # Errors
/// [`Error::Cpu`] names the first that it may not.
pub fn check_cpus(cpus: &CpuMask) -> Result<()> {
    let allowed = CpuMask::of_thread(rustix::process::getpid())?.unwrap_or_default();
    match cpus.iter().find(|&cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(Error::Cpu { cpu, allowed: allowed.to_string() }),
        None => Ok(()),
    }
}

/// The CPUs that a host made now would divide: `asked`, or all that this process may use, as far as the quota on the cgroup
/// around us reaches.
///
/// # Errors
/// As [`check_cpus`].
pub fn cpus_to_divide(asked: Option<CpuMask>) -> Result<Vec<u32>> {
    Ok(within_quota(&asked_or_all(asked)?))
}

/// `asked`, or all that this process may use.
pub(super) fn asked_or_all(asked: Option<CpuMask>) -> Result<CpuMask> {
    let allowed = CpuMask::of_thread(rustix::process::getpid())?.unwrap_or_default();
    let asked = asked.unwrap_or(allowed);
    check_cpus(&asked)?;
    Ok(asked)
}

/// As many of `cpus` as the quota on the cgroup around us is worth: to release more at once would only have all throttled.
pub(super) fn within_quota(cpus: &CpuMask) -> Vec<u32> {
    let most = quota_of(rustix::process::getpid()).map_or(usize::MAX, |quota| quota.cpus() as usize);
    cpus.iter().take(most).collect()
}
