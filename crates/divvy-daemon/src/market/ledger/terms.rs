//! What a client gets together: a share, reservations as hard tickets, limits and CPUs, all of them or none.

use divvy_market::{CurrencyId, Kind, Made, Op, Resource, TicketView};

use super::users::Limited;
use super::{Work, amount};
use crate::market::message::{Said, Terms};
use crate::market::record::{Charge, Step};
use crate::message::Refusal;
use divvy_api::types::ErrorCode;

/// All that an issuer has, in millionths.
const WHOLE_PPM: u64 = 1_000_000;

impl Work<'_> {
    pub(super) fn set_terms(&mut self, client: CurrencyId, terms: &Terms) -> Result<Said, Refusal> {
        self.check_client(client)?;
        if !self.caller.superuser && self.ledger.clients.get(&client).is_none_or(|c| c.uid != self.caller.uid)
        {
            let text = format!("client {} is not yours", self.name(client));
            return Err(Refusal::new(ErrorCode::NotPermitted, text, "ask its owner, or an administrator"));
        }
        // What is refused after something was done is undone with it.
        if self.before.is_none() && !terms.reserve.is_empty() {
            self.before = Some(Box::new(self.ledger.clone()));
        }
        if let Some(share) = terms.share {
            self.set_share(client, share)?;
        }
        if !terms.reserve.is_empty() {
            let issuer = match &terms.from {
                Some(word) => self.find_to_change(word)?,
                None => {
                    let uid = self.ledger.clients.get(&client).map_or(self.caller.uid, |client| client.uid);
                    match self.ledger.users.get(&uid) {
                        Some(user) => user.currency,
                        None => self.first_use(uid)?,
                    }
                }
            };
            for &(resource, ppm) in &terms.reserve {
                self.reserve(client, issuer, resource, ppm)?;
            }
        }
        if let Some(limits) = terms.limits {
            self.note(Step::Limits { client, limits });
        }
        if let Some(cpus) = terms.cpus {
            self.note(Step::Cpus { client, cpus });
        }
        Ok(Said::Done)
    }

    /// Makes the hard tickets that a client has of an issuer so many millionths of all that this can issue.
    fn reserve(
        &mut self,
        client: CurrencyId,
        issuer: CurrencyId,
        resource: Resource,
        ppm: u64,
    ) -> Result<(), Refusal> {
        if ppm > WHOLE_PPM {
            let text = format!("a reservation of {ppm} millionths of {resource}: there are {WHOLE_PPM}");
            return Err(Refusal::new(ErrorCode::BadRequest, text, "reserve less"));
        }
        let of_issuer = |ticket: &TicketView| ticket.issuer == issuer && ticket.kind == Kind::Hard;
        let backing = self.ledger.market.backing_of(client, resource);
        let mut had = backing.into_iter().filter(of_issuer);
        let first = had.next().filter(|_| ppm > 0);
        let total = self.ledger.market.hard_tickets(issuer, resource).unwrap_or_default().1;
        let n = u128::from(total) * u128::from(ppm);
        let n = u64::try_from(n.div_ceil(u128::from(WHOLE_PPM))).unwrap_or(u64::MAX).max(1);
        match &first {
            Some(ticket) => {
                self.op(Op::SetAmount { ticket: ticket.id, amount: amount(n)? })?;
            }
            None if ppm > 0 => {
                self.check_limit(Limited::Tickets)?;
                let fund =
                    Op::Fund { holder: client, issuer, resource, amount: amount(n)?, kind: Kind::Hard };
                let Made::Ticket(id) = self.op(fund)? else { return Err(super::asks::unexpected()) };
                self.charge(Charge::Ticket(id));
            }
            None => {}
        }
        let keeps = first.map(|ticket| ticket.id);
        let all = self.ledger.market.backing_of(client, resource);
        let kept =
            |ticket: &TicketView| keeps.is_some_and(|id| id == ticket.id) || (keeps.is_none() && ppm > 0);
        for ticket in all.into_iter().filter(of_issuer).filter(|ticket| !kept(ticket)) {
            self.check_not_granted(ticket.id)?;
            self.op(Op::Unfund { ticket: ticket.id })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ALICE, BOB, Bench, ROOT, who};
    use super::super::{Ask, Ledger};
    use super::*;
    use crate::market::message::{Cpus, Limits};
    use crate::market::names::scripted::Scripted;

    const NONE: [Vec<u64>; 2] = [Vec::new(), Vec::new()];

    /// A client's hard tickets of cpu and of memory.
    fn hard(bench: &Bench, client: CurrencyId) -> [Vec<u64>; 2] {
        [Resource::Cpu, Resource::Memory].map(|resource| {
            let all = bench.ledger.market.backing_of(client, resource);
            all.into_iter().filter(|ticket| ticket.kind == Kind::Hard).map(|ticket| ticket.amount).collect()
        })
    }

    fn share(bench: &Bench, client: CurrencyId) -> u64 {
        bench.ledger.share_ticket(client).expect("it was admitted with one").amount
    }

    /// `Bench::ask` looks that what is refused has changed nothing, and that what was done can be replayed.
    #[test]
    fn share_reservation_and_limits_are_taken_over_together_or_not_at_all() {
        let mut bench = Bench::new("");
        let client = bench.admit(ALICE, "task", 1).currency;
        let other = bench.admit(ALICE, "other", 1).currency;
        let limits = Limits { cpu_ppm: Some(500_000), memory: Some(1 << 30), disk: None };
        let cpus = Cpus("1,3".parse().unwrap());
        let terms = |share, reserve: &[(Resource, u64)]| Terms {
            share,
            reserve: reserve.to_vec(),
            from: None,
            limits: Some(limits),
            cpus: Some(cpus),
        };
        let set = |client, terms| Ask::SetTerms { client, terms: Box::new(terms) };
        let (cpu, memory) = (Resource::Cpu, Resource::Memory);
        bench.ask(ALICE, set(client, terms(Some(3), &[(cpu, 200_000), (memory, 250_000)]))).unwrap();
        // Of 1000 hard tickets of hers.
        assert_eq!((hard(&bench, client), share(&bench, client)), ([vec![200], vec![250]], 3));
        let bounds = |bench: &Bench, client| {
            let admitted = bench.ledger.admitted(&Scripted, client).unwrap();
            (admitted.limits, admitted.cpus)
        };
        assert_eq!(bounds(&bench, client), (limits, cpus));
        // What it had is replaced: less than all is free beside it, and more than what is free fits in its place.
        bench.ask(ALICE, set(client, terms(None, &[(cpu, 900_000)]))).unwrap();
        assert_eq!(hard(&bench, client), [vec![900], vec![250]]);
        // The second reservation is too much: the share and the first are as they were.
        let code = bench.code(ALICE, set(other, terms(Some(7), &[(memory, 100_000), (cpu, 200_000)])));
        assert_eq!(code, ErrorCode::Refused);
        assert_eq!((hard(&bench, other), share(&bench, other)), (NONE, 1));
        assert_eq!(bounds(&bench, other), Default::default());
        // Nobody else's, and no more than all.
        assert_eq!(bench.code(BOB, set(client, terms(None, &[]))), ErrorCode::NotPermitted);
        assert_eq!(bench.code(ALICE, set(client, terms(None, &[(cpu, 1_000_001)]))), ErrorCode::BadRequest);
        let from = Terms { from: Some("nobody".to_owned()), ..terms(None, &[(cpu, 1)]) };
        assert_eq!(bench.code(ALICE, set(client, from)), ErrorCode::NoSuchCurrency);
        // Taken back, by the administrator, who reserves of the base instead.
        bench.ask(ROOT, set(client, terms(None, &[(cpu, 0), (memory, 0)]))).unwrap();
        assert_eq!(hard(&bench, client), NONE);
        let of_base = Terms { from: Some("base".to_owned()), ..terms(None, &[(memory, 100_000)]) };
        bench.ask(ROOT, set(client, of_base)).unwrap();
        assert_eq!(hard(&bench, client), [Vec::new(), vec![100]]);
        // They are there again after a restart, and gone with the client.
        let bytes = bench.ledger.to_bytes().unwrap();
        let mut again = Ledger::from_bytes(&bytes, crate::market::policy::Policy::default()).unwrap();
        let bounds_of = |ledger: &Ledger| -> Vec<(Limits, Cpus)> {
            ledger.clients(&Scripted).into_iter().map(|client| (client.limits, client.cpus)).collect()
        };
        assert_eq!(bounds_of(&again), [(limits, cpus), Default::default()]);
        again.apply(&Scripted, &who(ROOT), &Ask::Leave { client }, 99_000).unwrap();
        assert_eq!(bounds_of(&again), [Default::default()]);
        again.audit().unwrap();
        // All CPUs again, which the limits outlive; and whoever says nothing about them changes nothing.
        let all = Terms { cpus: Some(Cpus::default()), ..Terms::default() };
        for (terms, cpus) in [(Terms::default(), cpus), (all, Cpus::default())] {
            bench.ask(ALICE, set(client, terms)).unwrap();
            assert_eq!(bounds(&bench, client), (limits, cpus));
        }
    }
}
