//! How many CPUs this machine has, and may have.

/// CPUs of the machine that are there now, whichever of them this program may use itself: they come and go.
#[must_use]
pub fn online() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    count_of(&text).filter(|&cpus| cpus > 0).unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
    })
}

/// How many CPUs a list such as `0,2-3` has.
fn count_of(list: &str) -> Option<u32> {
    let of = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    list.trim().split(',').map(of).sum()
}

/// CPUs that this machine may ever have; as many as can be if the kernel does not say.
#[must_use]
pub fn possible() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    last_of(&text).map_or(u32::MAX, |last| last.saturating_add(1))
}

/// The last number of a list like `0-3,5`.
fn last_of(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_of_a_list_is_found() {
        for (list, last) in
            [("0\n", Some(0)), ("0-3\n", Some(3)), ("0,2-5,9", Some(9)), ("", None), ("x", None)]
        {
            assert_eq!(last_of(list), last, "{list}");
        }
    }

    #[test]
    fn the_cpus_of_a_list_are_counted() {
        for (list, count) in [
            ("0\n", Some(1)),
            ("0-3\n", Some(4)),
            ("0,2-5,9", Some(6)),
            ("", None),
            ("3-1", None),
            ("x", None),
        ] {
            assert_eq!(count_of(list), count, "{list}");
        }
    }
}
