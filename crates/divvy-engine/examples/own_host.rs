//! The engine over a host of one's own: `cargo run -p divvy-engine --example own_host`.
//!
//! A host is a machine that can let clients run and keep them from it, and that tells how far they got. This one is a toy with
//! one CPU and a clock of its own, on which whoever is released shares the CPU evenly; the gate `exact` makes of that what
//! the shares say.

use std::collections::BTreeSet;

use divvy_engine::policies::{GateSpec, SpecError};
use divvy_engine::{Host, HostError, News, Observed, SelfCost, Session};
use divvy_policy::{ClientId, CpuId, Instant, Nanos, Share};

#[derive(Default)]
struct Toy {
    now: Instant,
    used: Vec<Nanos>,
    released: BTreeSet<ClientId>,
    decided: u64,
}

impl Host for Toy {
    fn now(&mut self) -> Instant {
        self.now
    }

    /// Time passes until the policy wants to be asked again, and whoever is released uses it.
    fn wait(&mut self, until: Option<Instant>) -> Result<(), HostError> {
        let until = until.ok_or_else(|| HostError::Broken("nobody will ever be asked again".into()))?;
        let part = Nanos(until.since(self.now).0 / self.released.len().max(1) as u64);
        for client in &self.released {
            self.used[client.index()] += part;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Nobody ends, sleeps or is stopped here.
    fn next_news(&mut self) -> Option<News> {
        None
    }

    fn release(&mut self, client: ClientId, _: Option<CpuId>) -> Result<(), HostError> {
        self.decided += 1;
        self.released.insert(client);
        Ok(())
    }

    fn hold(&mut self, client: ClientId) -> Result<(), HostError> {
        self.decided += 1;
        self.released.remove(&client);
        Ok(())
    }

    fn measure(&mut self, client: ClientId) -> Result<Nanos, HostError> {
        Ok(self.used[client.index()])
    }

    fn observe(&mut self, _: ClientId) -> Result<Observed, HostError> {
        Ok(Observed::Runnable)
    }

    fn self_cost(&mut self) -> SelfCost {
        SelfCost { signals: self.decided, ..SelfCost::default() }
    }
}

/// What clients of these shares have received after `length`.
fn divide(policy: &str, shares: &[Share], length: Nanos) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let host = Toy { used: vec![Nanos::ZERO; shares.len()], ..Toy::default() };
    let spec = GateSpec { policy: policy.into(), ..GateSpec::default() };
    let mut run = Session::new(&spec, host).map_err(|e: SpecError| e.to_string())?;
    for &share in shares {
        run.join(share)?;
    }
    let end = Instant(length.0);
    while run.host_mut().now() < end {
        run.turn(Some(end))?;
    }
    run.audit();
    let standings = run.ledger().standings(|_, _| true, |_, client| client.service);
    Ok(standings.iter().map(|standing| standing.achieved_fraction).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shares = [Share::new(1)?, Share::new(2)?, Share::new(3)?];
    let fractions = divide("exact", &shares, Nanos::from_secs(60))?;
    println!("shares 1, 2, 3 received {fractions:.4?}");
    for (fraction, due) in fractions.iter().zip([1.0, 2.0, 3.0]) {
        assert!((fraction / (due / 6.0) - 1.0).abs() < 0.01, "{fractions:?}");
    }
    Ok(())
}
