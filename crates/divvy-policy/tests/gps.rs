//! The ideal fluid model against closed forms.

use divvy_policy::dispatch::gps::{FLUID_BITS, Fluid, Gps};
use divvy_policy::{ClientId, Event, EventError, Instant, Nanos, Share};
use proptest::prelude::*;

fn with_clients(shares: &[u64]) -> Gps {
    let mut gps = Gps::new();
    for (id, &share) in shares.iter().enumerate() {
        let client = ClientId(id as u32);
        gps.on_event(Instant(0), Event::Join { client, share: Share::new(share).unwrap() }).unwrap();
    }
    gps
}

fn wake(gps: &mut Gps, now: u64, client: u32) {
    gps.on_event(Instant(now), Event::Wake { client: ClientId(client) }).unwrap();
}

fn entitlement(gps: &Gps, client: usize) -> u128 {
    gps.entitlement(ClientId(client as u32)).unwrap().0
}

/// Equal shares, work of 1, 2 and 3 s: all run until 3 s, two until 5 s, one until 6 s.
/// Shares 1:2 with 1 s and 4 s: at 3 s the first is done, the second has had 2 s and ends at 5 s.
#[test]
fn work_ends_where_the_closed_form_says() {
    for (shares, work, ends) in [
        (vec![1, 1, 1], vec![1, 2, 3], vec![3, 5, 6]),
        (vec![1, 2], vec![1, 4], vec![3, 5]),
        (vec![7], vec![2], vec![2]),
    ] {
        let mut gps = with_clients(&shares);
        for (id, &work) in work.iter().enumerate() {
            gps.submit(Instant(0), ClientId(id as u32), Nanos::from_secs(work)).unwrap();
        }
        assert_eq!(gps.poll_timeout(), Some(Instant(ends[0] * 1_000_000_000)));
        gps.advance(Instant(100_000_000_000));
        for (id, (&end, &work)) in ends.iter().zip(&work).enumerate() {
            let completion = gps.poll_completion().unwrap();
            assert_eq!(completion.client, ClientId(id as u32));
            assert_eq!(completion.at.round(), Nanos::from_secs(end));
            assert_eq!(entitlement(&gps, id), Fluid::from(Nanos::from_secs(work)).0);
        }
        assert_eq!((gps.poll_completion(), gps.poll_timeout()), (None, None));
    }
}

#[test]
fn unknown_and_duplicate_clients_are_refused() {
    let mut gps = with_clients(&[1]);
    let (old, new) = (ClientId(0), ClientId(1));
    let join = |client| Event::Join { client, share: Share::ONE };
    assert_eq!(gps.on_event(Instant(0), join(old)), Err(EventError::DuplicateClient(old)));
    assert_eq!(gps.on_event(Instant(0), Event::Wake { client: new }), Err(EventError::UnknownClient(new)));
    assert_eq!(gps.submit(Instant(0), new, Nanos(1)), Err(EventError::UnknownClient(new)));
    gps.on_event(Instant(0), Event::Leave { client: old }).unwrap();
    assert_eq!(gps.entitlement(old), None);
    assert_eq!(gps.on_event(Instant(0), join(old)), Err(EventError::DuplicateClient(old)));
}

proptest! {
    /// While nobody changes, each gets share / sum of every interval, to a unit times its share.
    #[test]
    fn shares_divide_every_interval(
        shares in prop::collection::vec(1u64..1_000_000, 1..8),
        span in 1u64..1_000_000_000_000,
    ) {
        let mut gps = with_clients(&shares);
        (0..shares.len()).for_each(|id| wake(&mut gps, 0, id as u32));
        gps.advance(Instant(span));
        let sum: u128 = shares.iter().map(|&s| u128::from(s)).sum();
        for (id, &share) in shares.iter().enumerate() {
            let virtual_time = (u128::from(span) << FLUID_BITS) / sum;
            prop_assert_eq!(entitlement(&gps, id), virtual_time * u128::from(share));
        }
    }

    /// Entitlements add up to the time during which anyone was active, less the stated rounding.
    #[test]
    fn nothing_is_lost(events in prop::collection::vec((0u64..1_000_000, 0u32..5, 0u32..4, 1u64..100), 1..100)) {
        let mut gps = with_clients(&[1, 2, 3, 50, 1000]);
        let (mut now, mut busy, mut changes) = (0, 0u128, 0u128);
        let mut awake = [false; 5];
        for (wait, client, what, share) in events {
            if awake.contains(&true) {
                busy += u128::from(wait);
            }
            now += wait;
            let id = ClientId(client);
            let event = match what {
                0 => Event::Block { client: id },
                1 => Event::Reshare { client: id, share: Share::new(share).unwrap() },
                _ => Event::Wake { client: id },
            };
            match what {
                0 => awake[client as usize] = false,
                1 => {}
                _ => awake[client as usize] = true,
            }
            gps.on_event(Instant(now), event).unwrap();
            changes += 1;
        }
        let total: u128 = (0..5).map(|id| entitlement(&gps, id)).sum();
        let missing = (busy << FLUID_BITS) - total;
        prop_assert!(missing <= changes * 1200, "{} units of 2^-64 ns are missing", missing);
    }

    #[test]
    fn splitting_an_interval_changes_nothing(
        shares in prop::collection::vec(1u64..1000, 1..6),
        cuts in prop::collection::vec(1u64..1_000_000, 1..20),
    ) {
        let (mut whole, mut split) = (with_clients(&shares), with_clients(&shares));
        for id in 0..shares.len() as u32 {
            wake(&mut whole, 0, id);
            wake(&mut split, 0, id);
        }
        let mut now = 0;
        for cut in cuts {
            now += cut;
            split.advance(Instant(now));
        }
        whole.advance(Instant(now));
        for id in 0..shares.len() {
            prop_assert_eq!(entitlement(&whole, id), entitlement(&split, id));
        }
    }
}
