//! The dealer: offers wait in queues until somebody wants exactly what they give and gives exactly what they want.
//!
//! Source: section 3.2.1. Only exact complements are matched, oldest first; offers of the same two resources at other
//! rates are told to whoever offers, who may then try another rate. An offer that its party could not cover just now is
//! passed over and stays. An offer holds no tickets, so none can get lost with it.

use super::{Exchange, Market, Offer};
use crate::broker::{Caller, Permission};
use crate::op::{Conflict, CurrencyId, Made, Moment, OfferId, Refusal, Side};
use alloc::vec::Vec;

/// Conflicting offers that are told, at the most.
const CONFLICTS_MAX: usize = 64;

impl Market {
    pub(super) fn op_offer(
        &mut self,
        caller: &Caller,
        party: CurrencyId,
        gives: Side,
        wants: Side,
        now: Moment,
        until: Option<Moment>,
    ) -> Result<Made, Refusal> {
        let node = self.inner(party)?;
        if gives.resource == wants.resource {
            return Err(Refusal::SameResource);
        }
        self.check_trader(caller, node)?;
        self.check_clock(now)?;
        if until.is_some_and(|until| until <= now) {
            return Err(Refusal::EndsBeforeNow);
        }
        self.check_covered(node, gives)?;
        self.end_offers(now);
        if let Some(taken) = self.complement(node, gives, wants) {
            let offer = self.take_offer(taken);
            let exchange = Exchange { a: offer.party, a_gives: offer.gives, b: node, b_gives: gives };
            let exchange = self.make_exchange(exchange);
            return Ok(Made::Exchange { exchange, taken: Some(taken) });
        }
        let conflicts = self.conflicts(gives, wants);
        let offer = OfferId(self.offer_next);
        self.offer_next += 1;
        self.queues.insert((gives, wants, offer));
        self.endings.extend(until.map(|until| (until, offer)));
        self.offers.insert(offer, Offer { party: node, gives, wants, until });
        Ok(Made::Offer { offer, conflicts })
    }

    /// The oldest offer by somebody else that gives `wants`, wants `gives`, and is covered.
    fn complement(&mut self, node: u32, gives: Side, wants: Side) -> Option<OfferId> {
        let queue = (wants, gives, OfferId(0))..=(wants, gives, OfferId(u64::MAX));
        let queue: Vec<OfferId> = self.queues.range(queue).map(|&(.., offer)| offer).collect();
        queue.into_iter().find(|offer| {
            let party = self.offers[offer].party;
            party != node && self.check_covered(party, wants).is_ok()
        })
    }

    /// Offers of the same resources at other amounts, oldest first.
    fn conflicts(&self, gives: Side, wants: Side) -> Vec<Conflict> {
        let conflicts = self.offers.iter().filter(|(_, offer)| {
            let resources = offer.gives.resource == wants.resource && offer.wants.resource == gives.resource;
            resources && (offer.gives, offer.wants) != (wants, gives)
        });
        let told =
            |(&offer, &Offer { gives, wants, .. }): (&OfferId, &Offer)| Conflict { offer, gives, wants };
        conflicts.map(told).take(CONFLICTS_MAX).collect()
    }

    fn take_offer(&mut self, id: OfferId) -> Offer {
        let offer = self.offers.remove(&id).expect("only live offers are taken");
        self.queues.remove(&(offer.gives, offer.wants, id));
        if let Some(until) = offer.until {
            self.endings.remove(&(until, id));
        }
        offer
    }

    pub(super) fn op_withdraw(&mut self, caller: &Caller, id: OfferId) -> Result<(), Refusal> {
        let party = self.offers.get(&id).ok_or(Refusal::UnknownOffer(id))?.party;
        self.check_permission(caller, party, Permission::Change)?;
        self.take_offer(id);
        self.lapsed.push(id);
        Ok(())
    }

    pub(super) fn op_expire(&mut self, now: Moment) -> Result<(), Refusal> {
        self.check_clock(now)?;
        self.end_offers(now);
        Ok(())
    }

    const fn check_clock(&self, now: Moment) -> Result<(), Refusal> {
        if now.0 < self.now.0 { Err(Refusal::ClockWentBack) } else { Ok(()) }
    }

    fn end_offers(&mut self, now: Moment) {
        self.now = now;
        while let Some(&(until, offer)) = self.endings.first()
            && until <= now
        {
            self.take_offer(offer);
            self.lapsed.push(offer);
        }
    }

    /// Ends the offers of a party that is going.
    pub(super) fn lapse_offers_of(&mut self, node: u32) {
        let offers = self.offers.iter().filter(|(_, offer)| offer.party == node);
        let offers: Vec<OfferId> = offers.map(|(&id, _)| id).collect();
        for offer in offers {
            self.take_offer(offer);
            self.lapsed.push(offer);
        }
    }

    /// The next moment at which an offer ends by itself: when to apply [`crate::Op::Expire`].
    #[must_use]
    pub fn next_ending(&self) -> Option<Moment> {
        self.endings.first().map(|&(until, _)| until)
    }
}
