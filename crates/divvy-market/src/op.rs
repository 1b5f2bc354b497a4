//! The operations on a market, what comes of them, and why one may be refused.

use crate::broker::{Broker, Permission};
use crate::resource::{Resource, Resources};
use alloc::vec::Vec;
use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};

/// How many tickets of one kind a ticket stands for: 1 to 4,294,967,295. Sums of amounts are 64 bits and there are
/// fewer than 2^32 tickets, so no sum overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Amount(NonZeroU32);

impl Amount {
    /// The largest amount.
    pub const MAX: Self = Self(NonZeroU32::MAX);

    /// `n` as an amount.
    ///
    /// # Errors
    /// [`Refusal::ZeroAmount`] and [`Refusal::AmountTooLarge`].
    pub const fn new(n: u64) -> Result<Self, Refusal> {
        if n > u32::MAX as u64 {
            return Err(Refusal::AmountTooLarge);
        }
        match NonZeroU32::new(n as u32) {
            Some(n) => Ok(Self(n)),
            None => Err(Refusal::ZeroAmount),
        }
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get() as u64
    }

    pub(crate) const fn raw(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! slot_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Never given twice. Written as `17`, or `17.2` where slot 17 is in its third use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(try_from = "alloc::string::String", into = "alloc::string::String"))]
        pub struct $name {
            pub(crate) slot: u32,
            pub(crate) generation: u32,
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.generation {
                    0 => write!(f, "{}", self.slot),
                    generation => write!(f, "{}.{generation}", self.slot),
                }
            }
        }

        impl core::str::FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                let (slot, generation) = text.split_once('.').unwrap_or((text, "0"));
                match (slot.parse(), generation.parse()) {
                    (Ok(slot), Ok(generation)) => Ok(Self { slot, generation }),
                    _ => Err(BadId),
                }
            }
        }

        impl TryFrom<alloc::string::String> for $name {
            type Error = BadId;
            fn try_from(text: alloc::string::String) -> Result<Self, BadId> {
                text.parse()
            }
        }

        impl From<$name> for alloc::string::String {
            fn from(id: $name) -> Self {
                alloc::format!("{id}")
            }
        }
    };
}

/// A text that is no id: ids look like `17` or `17.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadId;

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id looks like 17 or 17.2")
    }
}

impl core::error::Error for BadId {}

slot_id! {
    /// A currency. Clients are currencies too (section 4.1), and so is the base currency.
    CurrencyId
}
slot_id! {
    /// A ticket.
    TicketId
}

/// An exchange. Later exchanges have larger ids; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct ExchangeId(pub u64);

/// An offer at the dealer. Later offers have larger ids; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct OfferId(pub u64);

/// A moment, in nanoseconds since an epoch that the caller chose. The market only compares moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moment(pub u64);

/// What a ticket is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Kind {
    /// A share of what the issuer's active soft tickets have together.
    Soft,
    /// A fixed fraction of the issuer's rights: amount / hard total, whoever else is active (section 2.4).
    Hard,
    /// Issued by a waiting client to whom it waits for; goes when it wakes (section 4.3). A soft share.
    Transfer,
}

/// Whether a client competes for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Presence {
    /// It wants the resource: its tickets are active.
    Competing,
    /// It does not: its tickets count for nothing, and its siblings have their value.
    Idle,
}

/// What one party of an exchange gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Side {
    /// Which resource.
    pub resource: Resource,
    /// How many base tickets' worth of it.
    pub amount: Amount,
}

/// One change of a market.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "op", rename_all = "snake_case")
)]
pub enum Op {
    /// Makes a currency. Table 1: owner and group must be the caller's.
    CreateCurrency {
        /// Who may do what with it.
        broker: Broker,
    },
    /// Makes a client: a leaf that competes. Same permission.
    CreateClient {
        /// Who may do what with it.
        broker: Broker,
        /// What it competes for from the start.
        competes: Resources,
    },
    /// Ends a currency or client with every ticket that it holds or issued. Table 1: `c`.
    Destroy {
        /// Which.
        currency: CurrencyId,
    },
    /// Sets a mode: the owner may, and a superuser.
    SetMode {
        /// Of which currency.
        currency: CurrencyId,
        /// The new mode.
        mode: crate::broker::Mode,
    },
    /// Sets owner and group. Only a superuser gives a currency away; its owner may choose another of its own groups.
    SetOwner {
        /// Of which currency.
        currency: CurrencyId,
        /// The new owner.
        owner: u32,
        /// The new group.
        group: u32,
    },
    /// Sets how many hard tickets are the whole of a currency's rights (1000 unless set). Needs `i`.
    SetHardTotal {
        /// Of which currency.
        currency: CurrencyId,
        /// For which resource.
        resource: Resource,
        /// The whole; not less than the hard tickets that are out.
        total: Amount,
    },
    /// Backs `holder` with a new ticket of `issuer`. Table 1: `f` on the holder and `i` on the issuer.
    Fund {
        /// Who gets the ticket.
        holder: CurrencyId,
        /// Whose ticket it is.
        issuer: CurrencyId,
        /// What it gives a right to.
        resource: Resource,
        /// How many.
        amount: Amount,
        /// Soft or hard.
        kind: Kind,
    },
    /// Changes a ticket's amount. More needs what funding needs; less needs what taking away needs.
    SetAmount {
        /// Which ticket.
        ticket: TicketId,
        /// The new amount.
        amount: Amount,
    },
    /// Takes a ticket away. Table 1: `c` on the holder or `i` on the issuer.
    Unfund {
        /// Which ticket.
        ticket: TicketId,
    },
    /// Funds `child` as `parent` is: per resource one soft ticket of the issuer of the parent's first soft ticket, of the
    /// same amount (section 4.2). Base tickets are not copied: a fork mints nothing. Permissions as for funding.
    Adopt {
        /// Who gets the tickets.
        child: CurrencyId,
        /// Whose are looked at.
        parent: CurrencyId,
    },
    /// Says whether a client competes. Waking takes its transfer tickets back. Needs `c`.
    SetPresence {
        /// Which client.
        client: CurrencyId,
        /// For which resource.
        resource: Resource,
        /// Whether it competes from now on.
        presence: Presence,
    },
    /// A client stops competing and lends its rights to `holder`, whom it waits for, until it wakes. Waiting for several
    /// divides the rights equally. Needs `i` on the client and `f` on the holder.
    Wait {
        /// Who waits.
        client: CurrencyId,
        /// For whom.
        holder: CurrencyId,
        /// Which rights are lent.
        resource: Resource,
    },
    /// Says that a client used `used` of its last `quantum`: its weight is `quantum / used` times its value until
    /// the next such word (compensation, section 4.3). Needs `c`.
    Compensate {
        /// Which client.
        client: CurrencyId,
        /// Of which resource.
        resource: Resource,
        /// What it used, more than 0 and at most `quantum`.
        used: NonZeroU64,
        /// What it could have used, in the same unit.
        quantum: NonZeroU64,
    },
    /// Lets user `uid` issue soft base tickets to currencies of its own, as long as what others fund these with is worth
    /// at most `bound`, were everybody active (section 3.4). `None` takes the permission back. Superuser only.
    SetBound {
        /// The user.
        uid: u32,
        /// For which resource.
        resource: Resource,
        /// At most so many base tickets.
        bound: Option<u64>,
    },
    /// Moves a client out of `from` to a new currency that has `amount` of the base funding of `from` (section 4.6).
    /// What the client holds of `from` is taken away. Needs `c` on both. When the new currency funds nobody any more, it
    /// ends, and the amount goes back.
    Nice {
        /// Who is moved.
        client: CurrencyId,
        /// Whose tickets it holds now.
        from: CurrencyId,
        /// Of which resource.
        resource: Resource,
        /// How many base tickets go with it.
        amount: Amount,
    },
    /// Gives a currency that `nice` made another amount of the base funding of the one that it was made of. Needs `c` on both.
    Renice {
        /// Which currency.
        currency: CurrencyId,
        /// How many base tickets it has of that from now on.
        amount: Amount,
    },
    /// Exchanges at once, without the dealer. Needs `f` and `c` on both parties.
    Exchange {
        /// One party.
        a: CurrencyId,
        /// What it gives.
        a_gives: Side,
        /// The other party.
        b: CurrencyId,
        /// What that gives.
        b_gives: Side,
    },
    /// Undoes an exchange: needs `c` on one of the parties.
    CancelExchange {
        /// Which exchange.
        exchange: ExchangeId,
    },
    /// Offers an exchange to the dealer. Needs `f` and `c` on the party.
    Offer {
        /// For whom.
        party: CurrencyId,
        /// What it gives.
        gives: Side,
        /// What it wants for it.
        wants: Side,
        /// Now. Offers whose time has come go first.
        now: Moment,
        /// When the offer ends if nobody took it; `None` is never.
        until: Option<Moment>,
    },
    /// Takes an offer back. Needs `c` on the party.
    Withdraw {
        /// Which offer.
        offer: OfferId,
    },
    /// Ends the offers whose time has come. Anybody may.
    Expire {
        /// Now.
        now: Moment,
    },
}

/// What an operation made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Made {
    /// Nothing new.
    Nothing,
    /// A currency or client.
    Currency(CurrencyId),
    /// A ticket.
    Ticket(TicketId),
    /// Several tickets.
    Tickets(Vec<TicketId>),
    /// An exchange; where an offer was taken up, that offer.
    Exchange {
        /// The exchange.
        exchange: ExchangeId,
        /// The waiting offer that it was made of.
        taken: Option<OfferId>,
    },
    /// An offer that waits.
    Offer {
        /// The offer.
        offer: OfferId,
        /// Offers of the same two resources at other rates, oldest first, at most 64.
        conflicts: Vec<Conflict>,
    },
}

/// A waiting offer that wants and gives the right resources, at other amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Conflict {
    /// The offer.
    pub offer: OfferId,
    /// What its party gives.
    pub gives: Side,
    /// What it wants.
    pub wants: Side,
}

/// What came of an operation that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Outcome {
    /// What is new.
    pub made: Made,
    /// Exchanges that ended through it: cancelled, or no longer covered, in the order they ended.
    pub undone: Vec<ExchangeId>,
    /// Offers that ended through it without being taken up.
    pub lapsed: Vec<OfferId>,
    /// Currencies that ended through it beside the one that was named.
    pub ended: Vec<CurrencyId>,
}

/// Why an operation was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Refusal {
    /// No such currency or client, or it has ended.
    UnknownCurrency(CurrencyId),
    /// No such ticket, or it is gone.
    UnknownTicket(TicketId),
    /// No such exchange, or it has ended.
    UnknownExchange(ExchangeId),
    /// No such offer, or it has ended.
    UnknownOffer(OfferId),
    /// An amount of 0.
    ZeroAmount,
    /// An amount above [`Amount::MAX`].
    AmountTooLarge,
    /// The caller lacks `permission` on `currency`.
    Denied {
        /// Where.
        currency: CurrencyId,
        /// Which.
        permission: Permission,
    },
    /// Taking a ticket needs `c` on its holder or `i` on its issuer, and the caller has neither.
    MayNotTake(TicketId),
    /// Owner and group of something new must be the caller's own.
    NotYourIds,
    /// Only the owner and superusers may.
    NotOwner(CurrencyId),
    /// Only superusers may.
    SuperuserOnly,
    /// The base currency cannot be funded, traded or destroyed.
    BaseCurrency,
    /// That needs a client, and `0` is a currency.
    NotAClient(CurrencyId),
    /// A client issues no tickets but transfer tickets.
    ClientsDoNotIssue(CurrencyId),
    /// The issuer is backed by the holder already, through `through`.
    Cycle {
        /// The currency that would come to back itself.
        through: CurrencyId,
    },
    /// More than [`crate::CURRENCY_DEPTH_MAX`] currencies on a path from the base.
    TooDeep,
    /// The issuer has only `left` hard tickets left.
    HardExhausted {
        /// How many are left.
        left: u64,
    },
    /// Transfer tickets come from [`Op::Wait`] alone, and have no amount to set.
    TransferTicket,
    /// The bound on the caller's base tickets would be passed.
    AboveBound {
        /// The bound.
        bound: u64,
    },
    /// The party does not have what it would give.
    NotEnough(CurrencyId),
    /// An exchange is between two parties.
    SameParty,
    /// An exchange is of two resources.
    SameResource,
    /// `used` is more than `quantum`.
    UsedTooMuch,
    /// The offer ends before it begins.
    EndsBeforeNow,
    /// The clock went back: `now` is before an earlier operation's.
    ClockWentBack,
    /// 2^32 tickets or currencies: there is no room for another.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCurrency(id) => write!(f, "no currency or client {id}: it has ended or never was"),
            Self::UnknownTicket(id) => write!(f, "no ticket {id}: it is gone or never was"),
            Self::UnknownExchange(id) => write!(f, "no exchange {}: it has ended or never was", id.0),
            Self::UnknownOffer(id) => write!(f, "no offer {}: it has ended or never was", id.0),
            Self::ZeroAmount => f.write_str("an amount must be at least 1"),
            Self::AmountTooLarge => write!(f, "an amount must be at most {}", Amount::MAX),
            Self::Denied { currency, permission } => {
                write!(f, "not permitted: needs {permission} on {currency}; its owner can set its mode")
            }
            Self::MayNotTake(id) => {
                write!(f, "not permitted: ticket {id} needs c on its holder or i on its issuer")
            }
            Self::NotYourIds => f.write_str("not permitted: owner and group must be your own"),
            Self::NotOwner(id) => write!(f, "not permitted: only the owner of {id} may"),
            Self::SuperuserOnly => f.write_str("not permitted: only a superuser may"),
            Self::BaseCurrency => f.write_str(
                "not of the base currency, of which all others are parts: it is neither funded, traded, changed nor ended, and has no value",
            ),
            Self::NotAClient(id) => write!(f, "{id} is a currency, and that needs a client"),
            Self::ClientsDoNotIssue(id) => write!(f, "{id} is a client, and only currencies issue tickets"),
            Self::Cycle { through } => write!(f, "a cycle: {through} would come to back itself"),
            Self::TooDeep => {
                write!(f, "more than {} currencies on a path from the base", crate::CURRENCY_DEPTH_MAX)
            }
            Self::HardExhausted { left } => write!(f, "only {left} hard tickets are left to issue"),
            Self::TransferTicket => f.write_str("a transfer ticket comes and goes with its client's waiting"),
            Self::AboveBound { bound } => {
                write!(f, "more than the {bound} base tickets that this user may have")
            }
            Self::NotEnough(id) => write!(f, "{id} does not have what it would give"),
            Self::SameParty => f.write_str("an exchange is between two parties"),
            Self::SameResource => f.write_str("an exchange is of two different resources"),
            Self::UsedTooMuch => f.write_str("no more than the quantum can have been used"),
            Self::EndsBeforeNow => f.write_str("the offer ends before it begins"),
            Self::ClockWentBack => f.write_str("the clock went back: a moment is before an earlier one"),
            Self::Full => f.write_str("no room for another ticket or currency"),
        }
    }
}

impl core::error::Error for Refusal {}
