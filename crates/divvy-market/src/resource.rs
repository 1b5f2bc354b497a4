//! What is divided: CPU time, memory and disk bandwidth. Tickets are specific to one of them.

use core::fmt;
use core::str::FromStr;

/// A resource that tickets give a right to.
///
/// Source: section 2.2. Tickets that fit any resource would let one client change what all the others' tickets are
/// worth, so each ticket names its resource, and every currency keeps its books per resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Resource {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Disk bandwidth.
    Disk,
}

impl Resource {
    /// Every resource, in the order of their indices.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Disk];

    /// Its place in [`Resource::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Disk => "disk",
        })
    }
}

/// A word that names no resource; the names are `cpu`, `memory` and `disk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownResource;

impl fmt::Display for UnknownResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a resource is one of cpu, memory, disk")
    }
}

impl core::error::Error for UnknownResource {}

impl FromStr for Resource {
    type Err = UnknownResource;

    fn from_str(word: &str) -> Result<Self, UnknownResource> {
        match word {
            "cpu" => Ok(Self::Cpu),
            "memory" | "mem" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            _ => Err(UnknownResource),
        }
    }
}

/// A set of resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Resources(u8);

impl Resources {
    /// No resource.
    pub const NONE: Self = Self(0);
    /// CPU, memory and disk.
    pub const ALL: Self = Self(0b111);

    /// This set and `resource`.
    #[must_use]
    pub const fn with(self, resource: Resource) -> Self {
        Self(self.0 | 1 << resource.index())
    }

    /// This set without `resource`.
    #[must_use]
    pub const fn without(self, resource: Resource) -> Self {
        Self(self.0 & !(1 << resource.index()))
    }

    /// Whether `resource` is in the set.
    #[must_use]
    pub const fn contains(self, resource: Resource) -> bool {
        self.0 & 1 << resource.index() != 0
    }
}
