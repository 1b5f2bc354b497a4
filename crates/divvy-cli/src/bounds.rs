//! `--limit` and `--reserve` of one client, resource by resource: `cpu:1.5,memory:2G,disk:10M` and
//! `cpu:20%,memory:512M,disk:30%`; `--disk-share`.

use divvy_api::types::Bounds;
use divvy_market::Resource;
use divvy_policy::CpuLimit;

use crate::limit::{self, Limit};
use crate::{Code, Failure};

/// What a client may not exceed; of what is not given nothing is said, and 0 takes a limit back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) cpu: Option<Limit>,
    memory: Option<u64>,
    disk: Option<u64>,
}

impl Limits {
    /// That of CPU time in millionths of one CPU; 0 is none.
    pub(crate) fn cpu_ppm(&self) -> Option<u64> {
        self.cpu.map(|limit| limit.map_or(0, CpuLimit::ppm))
    }
}

/// How much memory is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Bytes(u64),
    /// Of all that can be had, in millionths.
    Part(u64),
}

/// What a client is sure of; 0 takes a reservation back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserve {
    /// Of all CPUs, in millionths.
    cpu_ppm: Option<u64>,
    memory: Option<Memory>,
    /// Of what all clients have of disks, in millionths.
    disk_ppm: Option<u64>,
}

impl Reserve {
    /// The resources of which something is reserved.
    pub(crate) fn resources(&self) -> Vec<Resource> {
        let of = |resource, is: bool| is.then_some(resource);
        let memory = self.memory.is_some_and(|m| !matches!(m, Memory::Bytes(0)));
        let disk = self.disk_ppm.is_some_and(|ppm| ppm > 0);
        [of(Resource::Memory, memory), of(Resource::Disk, disk)].into_iter().flatten().collect()
    }
}

/// `2G`, `512M`, `100K` or bytes; `none` is 0.
fn size(text: &str, what: &str) -> Result<u64, String> {
    let said = || format!("'{text}' is no {what}; write 512M, 2G or a number of bytes, or none");
    if text == "none" {
        return Ok(0);
    }
    let (digits, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        Some((at, _)) => text.split_at(at),
        None => (text, ""),
    };
    let factor = match unit {
        "" => 1_u64,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(said()),
    };
    let number: u64 = digits.parse().map_err(|_| said())?;
    number.checked_mul(factor).filter(|&bytes| bytes > 0).ok_or_else(said)
}

/// `20%`, or `12.5%`, of all of something; `none` is 0.
fn part(text: &str, what: &str) -> Result<u64, String> {
    let said = || format!("'{text}' is no part of {what}; write 20%, of all that is divided, or none");
    if text == "none" {
        return Ok(0);
    }
    let percent = text.strip_suffix('%').ok_or_else(said)?;
    // As a limit is written, of which 100 % is one.
    let ppm =
        percent.parse::<f64>().ok().filter(|p| (0.1..=100.0).contains(p)).map(|p| (p * 10_000.0).round());
    ppm.map(|ppm| ppm as u64).ok_or_else(said)
}

/// `RESOURCE:VALUE` by `RESOURCE:VALUE`.
fn each(text: &str, mut take: impl FnMut(Resource, &str) -> Result<bool, String>) -> Result<(), String> {
    for word in text.split(',').map(str::trim) {
        let (of, value) = word.split_once(':').ok_or_else(|| {
            format!("'{word}': write RESOURCE:VALUE, of cpu, memory and disk, as cpu:50%,memory:1G")
        })?;
        let resource: Resource =
            of.parse().map_err(|_| format!("'{of}' is no resource; there are cpu, memory and disk"))?;
        if !take(resource, value)? {
            return Err(format!("{of} is given twice"));
        }
    }
    Ok(())
}

/// Puts a value where none is yet.
fn put<T>(into: &mut Option<T>, value: T) -> bool {
    let free = into.is_none();
    *into = Some(value);
    free
}

/// Reads `50%`, `1.5` and `none`, which are of the CPU, and `cpu:1.5,memory:2G,disk:10M`.
pub(crate) fn parse_limits(text: &str) -> Result<Limits, String> {
    let mut limits = Limits::default();
    if !text.contains(':') {
        limits.cpu = Some(limit::parse(text)?);
        return Ok(limits);
    }
    each(text, |resource, value| {
        Ok(match resource {
            Resource::Cpu => put(&mut limits.cpu, limit::parse(value)?),
            Resource::Memory => put(&mut limits.memory, size(value, "limit of memory")?),
            Resource::Disk => put(&mut limits.disk, size(value, "rate")?),
        })
    })?;
    Ok(limits)
}

/// Reads `cpu:20%,memory:512M,disk:30%`.
pub(crate) fn parse_reserve(text: &str) -> Result<Reserve, String> {
    let mut reserve = Reserve::default();
    each(text, |resource, value| {
        Ok(match resource {
            Resource::Cpu => put(&mut reserve.cpu_ppm, part(value, "the CPUs")?),
            Resource::Memory if value.ends_with('%') => {
                put(&mut reserve.memory, Memory::Part(part(value, "the memory")?))
            }
            Resource::Memory => put(&mut reserve.memory, Memory::Bytes(size(value, "amount of memory")?)),
            Resource::Disk => put(&mut reserve.disk_ppm, part(value, "the disks")?),
        })
    })?;
    Ok(reserve)
}

/// What a divvyd is asked for; the system's issues hard tickets for reservations, so much of all that a currency has.
pub(crate) fn bounds(
    limits: Option<Limits>,
    reserve: Option<Reserve>,
    disk_share: Option<u64>,
    system: bool,
) -> Result<Bounds, Failure> {
    let (limits, reserve) = (limits.unwrap_or_default(), reserve.unwrap_or_default());
    let mut bounds = Bounds {
        limit_memory_bytes: limits.memory,
        limit_disk_bytes: limits.disk,
        reserve_cpu_ppm: reserve.cpu_ppm,
        reserve_disk_ppm: reserve.disk_ppm,
        disk_share,
        ..Bounds::default()
    };
    match (reserve.memory, system) {
        (None, _) => {}
        (Some(Memory::Bytes(0)), true) => bounds.reserve_memory_ppm = Some(0),
        (Some(Memory::Bytes(bytes)), false) => bounds.reserve_memory_bytes = Some(bytes),
        (Some(Memory::Part(ppm)), true) => bounds.reserve_memory_ppm = Some(ppm),
        (Some(Memory::Bytes(_)), true) => {
            let text = "the system's divvyd reserves parts of what a currency has; write a part of the memory, as in --reserve memory:25%";
            return Err(Failure::new(Code::Usage, text));
        }
        (Some(Memory::Part(_)), false) => {
            let text = "only the system's divvyd reserves parts of the memory; write an amount, as in --reserve memory:512M";
            return Err(Failure::new(Code::Usage, text));
        }
    }
    Ok(bounds)
}

/// `, memory 2G` and so on, of a client that has such bounds; for a line about it.
pub(crate) fn shown(bounds: Bounds) -> String {
    let size = |bytes: u64| match bytes {
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{}G", b >> 30),
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => b.to_string(),
    };
    let percent = |ppm: u64| format!("{}%", ppm as f64 / 10_000.0);
    let parts = [
        bounds.reserve_cpu_ppm.map(|ppm| format!("reserved cpu {}", percent(ppm))),
        bounds.reserve_memory_bytes.map(|bytes| format!("reserved memory {}", size(bytes))),
        bounds.reserve_memory_ppm.map(|ppm| format!("reserved memory {}", percent(ppm))),
        bounds.reserve_disk_ppm.map(|ppm| format!("reserved disk {}", percent(ppm))),
        bounds.disk_share.map(|share| format!("share of disks {share}")),
        bounds.limit_memory_bytes.map(|bytes| format!("limit of memory {}", size(bytes))),
        bounds.limit_disk_bytes.map(|bytes| format!("limit of each disk {} a second", size(bytes))),
        bounds.cpus.map(|cpus| format!("CPUs {cpus}")),
    ];
    parts.into_iter().flatten().map(|part| format!(", {part}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ppm(limits: Limits) -> (Option<u64>, Option<u64>, Option<u64>) {
        (limits.cpu_ppm(), limits.memory, limits.disk)
    }

    #[test]
    fn limits_are_read_resource_by_resource() {
        for (text, read) in [
            ("50%", (Some(500_000), None, None)),
            ("none", (Some(0), None, None)),
            ("cpu:50%", (Some(500_000), None, None)),
            ("cpu:0.5,memory:2G", (Some(500_000), Some(2 << 30), None)),
            ("memory:none, disk:10M", (None, Some(0), Some(10 << 20))),
            ("disk:4096", (None, None, Some(4096))),
        ] {
            assert_eq!(parse_limits(text).map(ppm), Ok(read), "{text}");
        }
        for (text, why) in [
            ("memory:2X", "'2X' is no limit of memory"),
            ("memory:0", "'0' is no limit of memory"),
            ("memory:99999999999T", "is no limit of memory"),
            ("disk:fast", "'fast' is no rate"),
            ("net:1M", "'net' is no resource"),
            ("cpu:50%,cpu:20%", "cpu is given twice"),
            ("memory:1G,2", "'2': write RESOURCE:VALUE"),
            ("cpu:half", "'half' is no limit"),
        ] {
            let said = parse_limits(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn reservations_are_read_resource_by_resource() {
        let read = |text| parse_reserve(text).map(|r| (r.cpu_ppm, r.memory));
        assert_eq!(read("cpu:20%"), Ok((Some(200_000), None)));
        assert_eq!(read("cpu:12.5%,memory:512M"), Ok((Some(125_000), Some(Memory::Bytes(512 << 20)))));
        assert_eq!(read("memory:25%"), Ok((None, Some(Memory::Part(250_000)))));
        assert_eq!(read("cpu:none,memory:none"), Ok((Some(0), Some(Memory::Bytes(0)))));
        for (text, why) in [
            ("cpu:0.5", "'0.5' is no part of the CPUs; write 20%"),
            ("cpu:120%", "is no part of the CPUs"),
            ("cpu:0%", "is no part of the CPUs"),
            ("disk:10M", "'10M' is no part of the disks; write 20%"),
            ("20%", "'20%': write RESOURCE:VALUE"),
        ] {
            let said = parse_reserve(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn bounds_are_of_whom_they_are_asked() {
        let (limits, reserved) = (parse_limits("memory:1G").ok(), parse_reserve("cpu:20%,memory:256M").ok());
        let own = bounds(limits, reserved, Some(7), false).expect("possible");
        assert_eq!(
            shown(own),
            ", reserved cpu 20%, reserved memory 256M, share of disks 7, limit of memory 1G"
        );
        assert!(bounds(limits, reserved, None, true).is_err(), "no bytes");
        let parts = parse_reserve("cpu:20%,memory:25%,disk:5%").ok();
        let system = bounds(limits, parts, None, true).expect("possible");
        assert_eq!((system.reserve_cpu_ppm, system.reserve_memory_ppm), (Some(200_000), Some(250_000)));
        assert_eq!(system.reserve_disk_ppm, Some(50_000));
        let back = bounds(None, parse_reserve("memory:none").ok(), None, true).expect("possible");
        assert_eq!((back.reserve_memory_ppm, back.reserve_memory_bytes), (Some(0), None));
        let part = parse_reserve("memory:20%").ok();
        assert!(bounds(None, part, None, false).is_err() && bounds(None, part, None, true).is_ok());
    }
}
