//! Offers in queues: exact complements are matched, the oldest first, where every node of both has been heard of late.
//!
//! Source: Sullivan & Seltzer, section 3.2.1, as in `divvy-market`. We differ: an offer whose node is away waits, and an offer
//! that its user could not cover ends once a node says so, for the dealer itself knows nobody's rights.

use super::{Dealer, Offer, OfferError};
use crate::record::{Lapse, Record};
use crate::terms::{OfferId, PlaceId, Side, UserId};
use alloc::vec::Vec;
use divvy_market::{Amount, Moment};

/// Conflicting offers that are told, at the most.
const CONFLICTS_MAX: usize = 64;

impl Dealer {
    /// Offers an exchange; it waits until somebody wants exactly this. [`Dealer::take_records`] says whether somebody did.
    ///
    /// # Errors
    /// [`OfferError`].
    pub fn offer(
        &mut self,
        now: Moment,
        user: UserId,
        gives: Side,
        wants: Side,
        until: Option<Moment>,
    ) -> Result<OfferId, OfferError> {
        self.on_time(now);
        for place in [gives.place, wants.place] {
            if self.places.get(&place).is_none_or(Vec::is_empty) {
                return Err(OfferError::UnknownPlace(place));
            }
        }
        if (gives.place, gives.resource) == (wants.place, wants.resource) {
            return Err(OfferError::SameResource);
        }
        if until.is_some_and(|until| until <= self.now) {
            return Err(OfferError::EndsBeforeNow);
        }
        let offer = OfferId(self.offer_next);
        self.record(Record::Offered { offer, user, gives, wants, until });
        self.match_offer(offer);
        Ok(offer)
    }

    /// Takes an offer back that still waits.
    ///
    /// # Errors
    /// [`OfferError::UnknownOffer`] and [`OfferError::NotYours`].
    pub fn withdraw(&mut self, now: Moment, user: UserId, offer: OfferId) -> Result<(), OfferError> {
        self.on_time(now);
        if self.offers.get(&offer).ok_or(OfferError::UnknownOffer(offer))?.user != user {
            return Err(OfferError::NotYours);
        }
        self.record(Record::Lapsed { offer, why: Lapse::Withdrawn });
        Ok(())
    }

    /// Offers by others that give and want the same in the same places at other amounts, at most 64.
    #[must_use]
    pub fn conflicts(&self, offer: &Offer) -> Vec<OfferId> {
        let side = |side: Side, amount| Side { amount, ..side };
        let least = Amount::new(1).expect("1 is an amount");
        let from = (side(offer.wants, least), offer.gives, OfferId(0));
        let to = (side(offer.wants, Amount::MAX), offer.gives, OfferId(u64::MAX));
        let conflicts = self.queues.range(from..=to).filter(|(gives, wants, id)| {
            let same = (wants.place, wants.resource) == (offer.gives.place, offer.gives.resource);
            same && (*gives, *wants) != (offer.wants, offer.gives) && self.offers[id].user != offer.user
        });
        conflicts.map(|&(.., id)| id).take(CONFLICTS_MAX).collect()
    }

    /// Looks through all offers again after a node came back.
    pub(super) fn look_through(&mut self) {
        if !core::mem::take(&mut self.returned) {
            return;
        }
        let offers: Vec<OfferId> = self.offers.keys().copied().collect();
        for offer in offers {
            self.match_offer(offer);
        }
    }

    fn match_offer(&mut self, id: OfferId) {
        let Some(&offer) = self.offers.get(&id) else { return };
        if !self.is_place_here(offer.gives.place) || !self.is_place_here(offer.wants.place) {
            return;
        }
        let queue = (offer.wants, offer.gives, OfferId(0))..=(offer.wants, offer.gives, OfferId(u64::MAX));
        let mut others = self.queues.range(queue).map(|&(.., other)| other);
        let Some(other) = others.find(|other| self.offers[other].user != offer.user) else { return };
        let (exchange, at) = (self.exchange_next, self.now);
        self.record(Record::Matched { exchange, offers: [id.min(other), id.max(other)], at });
    }

    fn is_place_here(&self, place: PlaceId) -> bool {
        self.places
            .get(&place)
            .is_some_and(|nodes| !nodes.is_empty() && nodes.iter().all(|&n| self.is_here(n)))
    }

    pub(super) fn queue(&mut self, id: OfferId, offer: Offer) {
        self.queues.insert((offer.gives, offer.wants, id));
        self.endings.extend(offer.until.map(|until| (until, id)));
        self.offers.insert(id, offer);
    }

    pub(super) fn unqueue(&mut self, id: OfferId) -> Offer {
        let offer = self.offers.remove(&id).expect("a record is of an offer that waits");
        self.queues.remove(&(offer.gives, offer.wants, id));
        if let Some(until) = offer.until {
            self.endings.remove(&(until, id));
        }
        offer
    }
}
