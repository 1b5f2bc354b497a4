//! Brokers: who may do what with a currency.

use alloc::vec::Vec;
use core::fmt;

/// One of the three things a broker guards.
///
/// Source: section 2.3. The paper compares `fci` with `rxw`; as digits we count them in the order they are written:
/// `f` is 4, `c` is 2, `i` is 1, so that 0o740 lets the owner do everything and the group fund.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Permission {
    /// `f`: fund the currency.
    Fund,
    /// `c`: take funding away from it, destroy it, say when a client competes, trade its rights.
    Change,
    /// `i`: issue the currency's own tickets and take them back.
    Issue,
}

impl Permission {
    const fn bit(self) -> u16 {
        match self {
            Self::Fund => 4,
            Self::Change => 2,
            Self::Issue => 1,
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fund => "f (fund)",
            Self::Change => "c (change)",
            Self::Issue => "i (issue)",
        })
    }
}

/// Three sets of `fci` bits: for the owner, the group and all others. 0o000 to 0o777.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "u16", into = "u16")
)]
pub struct Mode(u16);

/// More than the nine bits that a [`Mode`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMode;

impl fmt::Display for BadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mode is three octal digits, 000 to 777: f is 4, c is 2, i is 1")
    }
}

impl core::error::Error for BadMode {}

impl TryFrom<u16> for Mode {
    type Error = BadMode;

    fn try_from(bits: u16) -> Result<Self, BadMode> {
        if bits > 0o777 { Err(BadMode) } else { Ok(Self(bits)) }
    }
}

impl From<Mode> for u16 {
    fn from(mode: Mode) -> Self {
        mode.0
    }
}

impl Mode {
    /// Everything for the owner, nothing for anybody else: 0o700.
    pub const PRIVATE: Self = Self(0o700);
}

impl fmt::Display for Mode {
    /// `fci------` for 0o700.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in (0..9).rev() {
            let letter = ["i", "c", "f"][place % 3];
            f.write_str(if self.0 & 1 << place == 0 { "-" } else { letter })?;
        }
        Ok(())
    }
}

/// Owner, group and mode of a currency: what its access checks go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Broker {
    /// User id of the owner.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// Who may do what.
    pub mode: Mode,
}

impl Broker {
    /// A broker that lets `owner` do everything and nobody else anything.
    #[must_use]
    pub const fn private(owner: u32, group: u32) -> Self {
        Self { owner, group, mode: Mode::PRIVATE }
    }

    /// Whether `caller` has `permission`. The first class that fits decides, as for UNIX files: an owner whose bit
    /// is off is not helped by the group's. A superuser has every permission.
    #[must_use]
    pub fn allows(&self, caller: &Caller, permission: Permission) -> bool {
        let shift = if caller.uid == self.owner {
            6
        } else if caller.groups.contains(&self.group) {
            3
        } else {
            0
        };
        caller.superuser || self.mode.0 >> shift & permission.bit() != 0
    }
}

/// Who asks for an operation: identity as the daemon learnt it from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Every group the caller is in.
    pub groups: Vec<u32>,
    /// Whether access checks are waived. Rules that are no access checks (cycles, amounts) hold for everybody.
    pub superuser: bool,
}

impl Caller {
    /// User 0 with every access check waived.
    #[must_use]
    pub const fn superuser() -> Self {
        Self { uid: 0, groups: Vec::new(), superuser: true }
    }

    /// An ordinary user in `groups`.
    #[must_use]
    pub const fn user(uid: u32, groups: Vec<u32>) -> Self {
        Self { uid, groups, superuser: false }
    }

    /// Whether the caller may make a currency for `broker`'s owner and group: both must be its own (Table 1, row 1).
    #[must_use]
    pub fn may_create(&self, broker: &Broker) -> bool {
        self.superuser || self.uid == broker.owner && self.groups.contains(&broker.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn the_first_class_that_fits_decides() {
        let broker = Broker { owner: 5, group: 50, mode: Mode::try_from(0o074).unwrap() };
        let owner = Caller::user(5, vec![50]);
        let member = Caller::user(6, vec![9, 50]);
        let other = Caller::user(7, vec![]);
        for permission in [Permission::Fund, Permission::Change, Permission::Issue] {
            assert!(!broker.allows(&owner, permission), "the owner's own bits are off");
            assert!(broker.allows(&member, permission));
            assert!(broker.allows(&Caller::superuser(), permission));
        }
        assert!(broker.allows(&other, Permission::Fund));
        assert!(!broker.allows(&other, Permission::Change) && !broker.allows(&other, Permission::Issue));
    }

    #[test]
    fn modes_are_nine_bits() {
        assert_eq!(Mode::try_from(0o1000), Err(BadMode));
        assert_eq!(Mode::try_from(0o741).unwrap().to_string(), "fcif----i");
        assert_eq!(Mode::PRIVATE.to_string(), "fci------");
    }
}
