//! A leg as operations on a node's market: base tickets of the giver's become the taker's, and go back.
//!
//! What all base tickets are together is the same before and after, so nobody else's part changes. The tickets of an
//! exchange on one machine are four, two of them negative, and a party must be active to give; here a giver may well have
//! nothing to run on this node, which is why it trades.

use crate::terms::Leg;
use alloc::vec::Vec;
use divvy_market::{Amount, CurrencyId, Kind, Market, Op, Resource, TicketId, TicketView};

/// The soft base tickets of a currency that it did not get by a leg.
fn own(
    market: &Market,
    of: CurrencyId,
    resource: Resource,
    is_of_leg: impl Fn(TicketId) -> bool,
) -> Vec<TicketView> {
    let mut tickets = market.backing_of(of, resource);
    let base = market.base();
    tickets.retain(|ticket| ticket.issuer == base && ticket.kind == Kind::Soft && !is_of_leg(ticket.id));
    tickets
}

/// How many base tickets a currency can give: its soft ones, without what it got by legs itself.
#[must_use]
pub fn movable(
    market: &Market,
    of: CurrencyId,
    resource: Resource,
    is_of_leg: impl Fn(TicketId) -> bool,
) -> u64 {
    own(market, of, resource, is_of_leg).iter().map(|ticket| ticket.amount).sum()
}

/// The operations that move a leg's tickets. The first makes the taker's ticket and may be refused; the others, a superuser's,
/// are not. `None` where the giver has too few.
#[must_use]
pub fn give(
    market: &Market,
    leg: &Leg,
    giver: CurrencyId,
    taker: CurrencyId,
    is_of_leg: impl Fn(TicketId) -> bool,
) -> Option<Vec<Op>> {
    let Leg { resource, amount, .. } = *leg;
    let fund = Op::Fund { holder: taker, issuer: market.base(), resource, amount, kind: Kind::Soft };
    let mut ops = Vec::from([fund]);
    let mut rest = amount.get();
    for ticket in own(market, giver, resource, is_of_leg) {
        if rest == 0 {
            break;
        }
        ops.push(match Amount::new(ticket.amount.saturating_sub(rest)) {
            Ok(amount) => Op::SetAmount { ticket: ticket.id, amount },
            Err(_) => Op::Unfund { ticket: ticket.id },
        });
        rest -= rest.min(ticket.amount);
    }
    (rest == 0).then_some(ops)
}

/// The operations that move them back: `ticket` is the taker's. A party that has ended meanwhile is passed over, with what it
/// had. A superuser is refused none of them, unless the giver would have more tickets than fit.
#[must_use]
pub fn take_back(
    market: &Market,
    leg: &Leg,
    giver: CurrencyId,
    ticket: TicketId,
    is_of_leg: impl Fn(TicketId) -> bool,
) -> Vec<Op> {
    let mut ops = Vec::new();
    if market.ticket_view(ticket).is_some() {
        ops.push(Op::Unfund { ticket });
    }
    if market.currency(giver).is_none() {
        return ops;
    }
    let Leg { resource, amount, .. } = *leg;
    let sum =
        |ticket: &TicketView| Amount::new(ticket.amount + amount.get()).ok().map(|sum| (ticket.id, sum));
    ops.push(match own(market, giver, resource, is_of_leg).iter().find_map(sum) {
        Some((ticket, amount)) => Op::SetAmount { ticket, amount },
        None => Op::Fund { holder: giver, issuer: market.base(), resource, amount, kind: Kind::Soft },
    });
    ops
}
