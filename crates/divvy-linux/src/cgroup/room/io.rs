//! The io controller: weights (`io.weight` of iocost, `io.bfq.weight` of the BFQ scheduler), bounds, and what was done.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::text::{Hundredths, Limit, Parse, Pressure, Spell};
use super::{Attribute, Controller, ReadOnly};

/// Part of each disk among siblings, 1 to 10000, where iocost is on for the disk; 100 to begin with.
pub const IO_WEIGHT: Attribute<IoWeights, DeviceWeight> =
    Attribute::new("io.weight", Controller::Io, "1 to 10000, for a disk that is there");
/// Part of each disk among siblings, 1 to 1000, where BFQ schedules the disk; 100 to begin with.
pub const IO_BFQ_WEIGHT: Attribute<IoWeights, DeviceWeight> =
    Attribute::new("io.bfq.weight", Controller::Io, "1 to 1000, for a disk that BFQ schedules");
/// Most bytes and operations a second.
pub const IO_MAX: Attribute<PerDevice<IoMax>, DeviceIoMax> =
    Attribute::new("io.max", Controller::Io, "max or at least 1, for a whole disk");
/// What was read and written.
pub const IO_STAT: Attribute<PerDevice<IoStat>, ReadOnly> = Attribute::new("io.stat", Controller::Io, "");
/// How much of the time its processes waited for disks.
pub const IO_PRESSURE: Attribute<Pressure, ReadOnly> = Attribute::new("io.pressure", Controller::Io, "");
/// What one operation costs, for iocost. Of the root alone.
pub const IO_COST_MODEL: Attribute<PerDevice<CostModel>, CostSettings> =
    Attribute::new("io.cost.model", Controller::Io, "ctrl, model and rates above 0, for a whole disk");
/// Whether iocost is on, and how fast a disk may be driven. Of the root alone.
pub const IO_COST_QOS: Attribute<PerDevice<CostQos>, CostSettings> = Attribute::new(
    "io.cost.qos",
    Controller::Io,
    "enable, ctrl, percentages and latencies, for a whole disk",
);

/// A disk by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Of its driver.
    pub major: u32,
    /// Among that driver's.
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for Device {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.trim().split_once(':').ok_or(())?;
        Ok(Self { major: major.parse().map_err(|_| ())?, minor: minor.parse().map_err(|_| ())? })
    }
}

/// What a file says of each disk.
pub type PerDevice<T> = BTreeMap<Device, T>;

/// Lines of `DEVICE KEY=VALUE...`. A disk of which nothing is said has no keys, and may share its line with the next.
fn nested(text: &str) -> PerDevice<Vec<(&str, &str)>> {
    let mut all: PerDevice<Vec<(&str, &str)>> = BTreeMap::new();
    for line in text.lines() {
        let mut device = None;
        for word in line.split_whitespace() {
            match (word.split_once('='), word.parse::<Device>(), device) {
                (Some(pair), _, Some(device)) => all.entry(device).or_default().push(pair),
                (None, Ok(found), _) => device = Some(found),
                _ => {}
            }
        }
    }
    all
}

fn field<'a>(pairs: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
}

fn number(pairs: &[(&str, &str)], key: &str) -> u64 {
    field(pairs, key).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// `io.weight` and `io.bfq.weight`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoWeights {
    /// For disks without one of their own.
    pub default: u64,
    /// Disks with one of their own.
    pub devices: PerDevice<u64>,
}

impl Parse for IoWeights {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut weights = Self { default: 0, devices: BTreeMap::new() };
        for line in text.lines() {
            let (key, value) = line.trim().split_once(' ').ok_or("a weight")?;
            let value = value.trim().parse().map_err(|_| "a weight")?;
            if key == "default" {
                weights.default = value;
            } else {
                weights.devices.insert(key.parse().map_err(|()| "a disk")?, value);
            }
        }
        if weights.default == 0 { Err("the default") } else { Ok(weights) }
    }
}

/// A weight to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceWeight {
    /// For all disks that have none of their own.
    Default(u64),
    /// For one.
    Of(Device, u64),
    /// The default again, for one.
    Unset(Device),
}

impl Spell for DeviceWeight {
    fn spell(&self) -> String {
        match self {
            Self::Default(weight) => format!("default {weight}"),
            Self::Of(device, weight) => format!("{device} {weight}"),
            Self::Unset(device) => format!("{device} default"),
        }
    }
}

/// A line of `io.max`: bytes and operations a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoMax {
    /// Bytes read.
    pub rbps: Limit,
    /// Bytes written.
    pub wbps: Limit,
    /// Reads.
    pub riops: Limit,
    /// Writes.
    pub wiops: Limit,
}

impl IoMax {
    /// No bound.
    pub const NONE: Self = Self { rbps: Limit::Max, wbps: Limit::Max, riops: Limit::Max, wiops: Limit::Max };
}

impl Parse for PerDevice<IoMax> {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let of = |pairs: Vec<(&str, &str)>| {
            let limit = |key| field(&pairs, key).and_then(Limit::word);
            Some(IoMax {
                rbps: limit("rbps")?,
                wbps: limit("wbps")?,
                riops: limit("riops")?,
                wiops: limit("wiops")?,
            })
        };
        let all = nested(text).into_iter();
        all.map(|(device, pairs)| Ok((device, of(pairs).ok_or("a bound of a disk")?))).collect()
    }
}

/// Bounds of one disk to be set, all four at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIoMax(pub Device, pub IoMax);

impl Spell for DeviceIoMax {
    fn spell(&self) -> String {
        let Self(device, IoMax { rbps, wbps, riops, wiops }) = self;
        format!("{device} rbps={rbps} wbps={wbps} riops={riops} wiops={wiops}")
    }
}

/// A line of `io.stat`. What the kernel does not tell is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStat {
    /// Bytes read.
    pub rbytes: u64,
    /// Bytes written.
    pub wbytes: u64,
    /// Reads.
    pub rios: u64,
    /// Writes.
    pub wios: u64,
    /// Bytes discarded.
    pub dbytes: u64,
    /// Discards.
    pub dios: u64,
}

impl Parse for PerDevice<IoStat> {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let of = |pairs: Vec<(&str, &str)>| IoStat {
            rbytes: number(&pairs, "rbytes"),
            wbytes: number(&pairs, "wbytes"),
            rios: number(&pairs, "rios"),
            wios: number(&pairs, "wios"),
            dbytes: number(&pairs, "dbytes"),
            dios: number(&pairs, "dios"),
        };
        Ok(nested(text).into_iter().map(|(device, pairs)| (device, of(pairs))).collect())
    }
}

/// Who says what a disk's operations cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// The kernel, from what it knows of such disks.
    #[default]
    Auto,
    /// We do.
    User,
}

impl Cost {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::User => "user",
        }
    }

    fn of(pairs: &[(&str, &str)]) -> Option<Self> {
        match field(pairs, "ctrl")? {
            "auto" => Some(Self::Auto),
            "user" => Some(Self::User),
            _ => None,
        }
    }
}

/// A line of `io.cost.model`: what the disk can do, each alone, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostModel {
    /// Who says so.
    pub ctrl: Cost,
    /// Bytes read.
    pub rbps: u64,
    /// Sequential reads of 4 KiB.
    pub rseqiops: u64,
    /// Random ones.
    pub rrandiops: u64,
    /// Bytes written.
    pub wbps: u64,
    /// Sequential writes of 4 KiB.
    pub wseqiops: u64,
    /// Random ones.
    pub wrandiops: u64,
}

impl CostModel {
    /// A disk that does so many bytes and operations a second, whichever they are.
    #[must_use]
    pub const fn uniform(bytes: u64, operations: u64) -> Self {
        Self {
            ctrl: Cost::User,
            rbps: bytes,
            rseqiops: operations,
            rrandiops: operations,
            wbps: bytes,
            wseqiops: operations,
            wrandiops: operations,
        }
    }
}

impl Parse for PerDevice<CostModel> {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let of = |pairs: Vec<(&str, &str)>| {
            Some(CostModel {
                ctrl: Cost::of(&pairs)?,
                rbps: number(&pairs, "rbps"),
                rseqiops: number(&pairs, "rseqiops"),
                rrandiops: number(&pairs, "rrandiops"),
                wbps: number(&pairs, "wbps"),
                wseqiops: number(&pairs, "wseqiops"),
                wrandiops: number(&pairs, "wrandiops"),
            })
        };
        nested(text).into_iter().map(|(d, pairs)| Ok((d, of(pairs).ok_or("ctrl of a disk")?))).collect()
    }
}

/// A line of `io.cost.qos`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostQos {
    /// Whether iocost is on for the disk.
    pub enable: bool,
    /// Who says the rest.
    pub ctrl: Cost,
    /// The percentile of reads that counts.
    pub rpct: Hundredths,
    /// Its latency above which the disk is saturated, us.
    pub rlat: u64,
    /// The percentile of writes that counts.
    pub wpct: Hundredths,
    /// Its latency above which the disk is saturated, us.
    pub wlat: u64,
    /// The least that the model is scaled to, percent.
    pub min: Hundredths,
    /// The most.
    pub max: Hundredths,
}

impl CostQos {
    /// The disk is as fast as its model says, whatever the latencies. Every two times `latency`, us, iocost looks at what
    /// was used.
    #[must_use]
    pub const fn as_modelled(latency: u64) -> Self {
        let (percentile, all) = (Hundredths(9_500), Hundredths(10_000));
        Self {
            enable: true,
            ctrl: Cost::User,
            rpct: percentile,
            rlat: latency,
            wpct: percentile,
            wlat: latency,
            min: all,
            max: all,
        }
    }
}

impl Parse for PerDevice<CostQos> {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let of = |pairs: Vec<(&str, &str)>| {
            let percent = |key| field(&pairs, key).and_then(Hundredths::word);
            Some(CostQos {
                enable: field(&pairs, "enable")? == "1",
                ctrl: Cost::of(&pairs)?,
                rpct: percent("rpct")?,
                rlat: number(&pairs, "rlat"),
                wpct: percent("wpct")?,
                wlat: number(&pairs, "wlat"),
                min: percent("min")?,
                max: percent("max")?,
            })
        };
        nested(text).into_iter().map(|(d, pairs)| Ok((d, of(pairs).ok_or("a setting of a disk")?))).collect()
    }
}

/// What `io.cost.model` or `io.cost.qos` is set to for one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostSettings {
    /// For `io.cost.model`. With [`Cost::Auto`] the kernel's own rates.
    Model(Device, CostModel),
    /// For `io.cost.qos`. With [`Cost::Auto`] the kernel's own latencies.
    Qos(Device, CostQos),
}

impl Spell for CostSettings {
    fn spell(&self) -> String {
        match self {
            Self::Model(device, m) if m.ctrl == Cost::User => format!(
                "{device} ctrl=user model=linear rbps={} rseqiops={} rrandiops={} wbps={} wseqiops={} wrandiops={}",
                m.rbps, m.rseqiops, m.rrandiops, m.wbps, m.wseqiops, m.wrandiops
            ),
            Self::Model(device, _) => format!("{device} ctrl=auto"),
            Self::Qos(device, q) if q.ctrl == Cost::User => format!(
                "{device} enable={} ctrl=user rpct={} rlat={} wpct={} wlat={} min={} max={}",
                u8::from(q.enable),
                q.rpct,
                q.rlat,
                q.wpct,
                q.wlat,
                q.min,
                q.max
            ),
            Self::Qos(device, q) => format!("{device} enable={} ctrl={}", u8::from(q.enable), q.ctrl.name()),
        }
    }
}
