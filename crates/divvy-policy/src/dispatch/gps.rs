//! `gps`: generalized processor sharing, the ideal fluid that every proportional-share policy is held against.
//!
//! **Problem.** "In proportion to shares at every instant" is what is promised and what no real schedule does; errors need
//! the exact service that it would give. **Idea.** One CPU divided among the active clients in proportion to their shares,
//! continuously. **Terms.** *Virtual time* V advances by dt / (sum of active shares); a client's *entitlement* grows by
//! share * dV while it is active. A client is active while it is runnable, or while it has *work* left.
//!
//! **Algorithm.** Event driven: V is brought up to date at every event; the next client to run out of work is the first of
//! an ordered set by the V at which it does. **Numbers.** Time, service and V are integers in units of 2^-64 ns. The
//! remainder of dt / shares is carried until the sum of shares changes. A change of it, and each start of work,
//! loses less than one unit of V, so an entitlement is low by less than (changes) * share * 2^-64 ns: with a
//! million changes and a share of a thousand by less than a ten-thousandth of a nanosecond. Clients that never change are exact
//! to a unit times the share.
//!
//! **Properties** (`tests/gps.rs`): `shares_divide_every_interval`, `nothing_is_lost`, `work_ends_where_the_closed_form_says`,
//! `splitting_an_interval_changes_nothing`.
//!
//! **Weak spots.** One CPU. Not a policy: it grants nothing.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{ClientId, Event, EventError, Instant, Nanos, PolicyInfo, Share};

/// What `divvy policies` says of GPS.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "gps",
    summary: "the ideal: every active client gets its fraction at every instant (a model, not a schedule)",
    complexity: "O(log n) an event",
    source: "VTRR, section 2; PBS, section 5.6",
    params: &[],
    ..PolicyInfo::MODEL
};

/// Bits behind the point of a [`Fluid`].
pub const FLUID_BITS: u32 = 64;

/// An amount of time or service in units of 2^-64 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fluid(pub u128);

impl Fluid {
    /// Whole nanoseconds, rounded down.
    #[must_use]
    pub const fn floor(self) -> Nanos {
        Nanos((self.0 >> FLUID_BITS) as u64)
    }

    /// Nanoseconds, rounded to the nearest.
    #[must_use]
    pub const fn round(self) -> Nanos {
        Nanos((self.0.saturating_add(1 << (FLUID_BITS - 1)) >> FLUID_BITS) as u64)
    }

    /// Seconds, for printing only.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9 / (1u128 << FLUID_BITS) as f64
    }
}

impl From<Nanos> for Fluid {
    fn from(nanos: Nanos) -> Self {
        Self(u128::from(nanos.0) << FLUID_BITS)
    }
}

/// A client that ran out of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Who.
    pub client: ClientId,
    /// When, since the epoch.
    pub at: Fluid,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    share: Share,
    /// Runnable by [`Event::Wake`].
    awake: bool,
    /// Entitlement up to the client's last change.
    service: Fluid,
    /// V at that change; `None` while inactive.
    since: Option<u128>,
    /// Where submitted work ends: entitlement at which it does, and V at which that is.
    work: Option<(Fluid, u128)>,
}

/// The fluid model. Events as for a policy; [`Event::Charge`], [`Event::Free`] and [`Event::Width`] change nothing, so
/// that one log of events drives a policy and its ideal.
///
/// ```
/// use divvy_policy::dispatch::gps::Gps;
/// use divvy_policy::{ClientId, Event, Instant, Nanos, Share};
/// let mut gps = Gps::new();
/// for (id, share) in [(0, 3), (1, 1)] {
///     let client = ClientId(id);
///     gps.on_event(Instant(0), Event::Join { client, share: Share::new(share).unwrap() }).unwrap();
///     gps.on_event(Instant(0), Event::Wake { client }).unwrap();
/// }
/// gps.advance(Instant(1000));
/// assert_eq!(gps.entitlement(ClientId(0)).unwrap().round(), Nanos(750));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Gps {
    now: u128,
    virtual_time: u128,
    /// Carried remainder of time over shares.
    rest: u128,
    shares: u128,
    clients: BTreeMap<ClientId, Client>,
    /// (V at which work ends, id).
    ends: BTreeSet<(u128, ClientId)>,
    completions: VecDeque<Completion>,
    /// Every id that ever joined.
    joined: BTreeSet<ClientId>,
}

impl Gps {
    /// No clients, at the epoch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one event after moving on to `now`.
    ///
    /// # Errors
    /// As for a policy; nothing changes on error, but that time has moved on.
    pub fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        self.advance(now);
        if let Event::Join { client, share } = event {
            if !self.joined.insert(client) {
                return Err(EventError::DuplicateClient(client));
            }
            let fresh = Client { share, awake: false, service: Fluid(0), since: None, work: None };
            self.clients.insert(client, fresh);
            return Ok(());
        }
        let Some(id) = event.client() else { return Ok(()) };
        if !self.clients.contains_key(&id) {
            return Err(EventError::UnknownClient(id));
        }
        match event {
            Event::Wake { .. } => self.change(id, |client| client.awake = true),
            Event::Block { .. } => self.change(id, |client| client.awake = false),
            Event::Reshare { share, .. } => self.change(id, |client| client.share = share),
            Event::Leave { .. } => {
                self.change(id, |client| {
                    client.awake = false;
                    client.work = None;
                });
                self.clients.remove(&id);
            }
            Event::Width { client, cpus: 0 } => return Err(EventError::ZeroWidth(client)),
            Event::Join { .. } | Event::Charge { .. } | Event::Width { .. } | Event::Free { .. } => {}
        }
        Ok(())
    }

    /// Gives `client` `work` more to do from `now` on; it is active until that is done, asleep or not.
    ///
    /// # Errors
    /// [`EventError::UnknownClient`].
    pub fn submit(&mut self, now: Instant, client: ClientId, work: Nanos) -> Result<(), EventError> {
        self.advance(now);
        if !self.clients.contains_key(&client) {
            return Err(EventError::UnknownClient(client));
        }
        if work > Nanos::ZERO {
            self.change(client, |client| {
                let from = client.work.map_or(client.service, |(end, _)| end);
                client.work = Some((Fluid(from.0.saturating_add(Fluid::from(work).0)), 0));
            });
        }
        Ok(())
    }

    /// Moves on to `now`, through every end of work on the way. No effect if that is past.
    pub fn advance(&mut self, now: Instant) {
        let target = u128::from(now.0) << FLUID_BITS;
        while self.now < target {
            let step = self.time_to_end().map_or(target - self.now, |left| left.min(target - self.now));
            self.step(step);
            while let Some(&(end, client)) = self.ends.first()
                && end <= self.virtual_time
            {
                let at = Fluid(self.now);
                self.change(client, |client| {
                    // What rounding left undone is less than a share of units; it is given.
                    if let Some((service, _)) = client.work.take() {
                        client.service = service;
                    }
                });
                self.completions.push_back(Completion { client, at });
            }
        }
    }

    /// What `client` was entitled to until now; `None` where it is unknown.
    #[must_use]
    pub fn entitlement(&self, client: ClientId) -> Option<Fluid> {
        self.clients.get(&client).map(|client| self.service(client))
    }

    /// The next client that ran out of work, in order of time, then id.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// When the next client runs out of work if nothing happens first, rounded up; `None` for never.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let at = self.now.checked_add(self.time_to_end()?)?;
        Some(Instant(u64::try_from(at.div_ceil(1 << FLUID_BITS)).unwrap_or(u64::MAX)))
    }

    fn service(&self, client: &Client) -> Fluid {
        let Some(since) = client.since else { return client.service };
        // share * dV is at most the time that passed, which fits.
        let grown = u128::from(client.share.get()) * (self.virtual_time - since);
        Fluid(client.service.0.saturating_add(grown))
    }

    /// Time until the first end of work, if it can be told.
    fn time_to_end(&self) -> Option<u128> {
        let &(end, _) = self.ends.first()?;
        end.saturating_sub(self.virtual_time)
            .checked_mul(self.shares)
            .map(|time| time.saturating_sub(self.rest))
    }

    fn step(&mut self, time: u128) {
        self.now += time;
        let total = time + self.rest;
        if let Some(whole) = total.checked_div(self.shares) {
            self.virtual_time += whole;
            self.rest = total % self.shares;
        }
    }

    /// Brings a client's account up to date, changes it, and puts it back among the active ones if it is one.
    fn change(&mut self, id: ClientId, change: impl FnOnce(&mut Client)) {
        let Some(mut client) = self.clients.get(&id).copied() else { return };
        client.service = self.service(&client);
        if client.since.take().is_some() {
            self.shares -= u128::from(client.share.get());
            self.rest = 0;
        }
        if let Some((_, end)) = client.work {
            self.ends.remove(&(end, id));
        }
        change(&mut client);
        if let Some((service, end)) = &mut client.work {
            // Rounded down: what is left of less than one unit of V counts as done.
            let left = service.0.saturating_sub(client.service.0);
            *end = self.virtual_time.saturating_add(left / u128::from(client.share.get()));
            self.ends.insert((*end, id));
        }
        if client.awake || client.work.is_some() {
            client.since = Some(self.virtual_time);
            self.shares += u128::from(client.share.get());
            self.rest = 0;
        }
        self.clients.insert(id, client);
    }
}
