//! The numbers of docs/market.md are those of the market.

mod build;

use build::{CPU, DISK, MEMORY, amount, client, currency, exchange, fund, idle, part, side, value, wake};
use divvy_market::{CurrencyId, Market, Op, Ratio, Refusal, Resource};

const PAGE: &str = include_str!("../../../docs/market.md");

fn check_row(cells: &[String]) {
    let row = format!("| {} |", cells.join(" | "));
    assert!(PAGE.lines().any(|line| line == row), "docs/market.md has no line {row}");
}

fn fraction(market: &mut Market, id: CurrencyId, resource: Resource) -> String {
    part(market, id, resource).unwrap_or(Ratio::ZERO).to_string()
}

/// Figs. 5 and 6. The parts are the paper's: A1 : A2 = 1 : 2, B1 : B2 : B3 = 1 : 2 : 3, A and B half each.
#[test]
fn five_tasks_in_two_currencies() {
    let mut market = Market::new();
    let base = market.base();
    let [a, b] = [1, 2].map(|uid| currency(&mut market, uid));
    fund(&mut market, a, base, CPU, 1000);
    fund(&mut market, b, base, CPU, 1000);
    let plan = [("A1", a, 100), ("A2", a, 200), ("B1", b, 100), ("B2", b, 200), ("B3", b, 300)];
    let tasks: Vec<CurrencyId> = plan
        .iter()
        .map(|&(_, issuer, n)| {
            let task = client(&mut market, 1);
            fund(&mut market, task, issuer, CPU, n);
            task
        })
        .collect();
    let mut rows: Vec<Vec<String>> = plan.iter().map(|(name, ..)| vec![(*name).to_owned()]).collect();
    for asleep in [true, false] {
        if asleep {
            idle(&mut market, tasks[4], CPU);
        } else {
            wake(&mut market, tasks[4], CPU);
        }
        let shares = market.apportion(CPU, 12);
        for (row, &task) in rows.iter_mut().zip(&tasks) {
            let share = shares.iter().find(|&&(id, _)| id == task).map_or(0, |&(_, share)| share);
            row.extend([value(&mut market, task, CPU), fraction(&mut market, task, CPU), share.to_string()]);
        }
    }
    rows.iter().for_each(|row| check_row(row));
}

/// Fig. 3 and section 3.2.2: 50 disk for 20 memory, and the last ticket that A must keep.
#[test]
fn an_exchange_and_who_takes_no_part() {
    let mut market = Market::new();
    let base = market.base();
    let tasks = [0; 3].map(|_| client(&mut market, 1));
    let mut tickets = Vec::new();
    for &task in &tasks {
        for resource in [MEMORY, DISK] {
            tickets.push(fund(&mut market, task, base, resource, 100));
        }
    }
    exchange(&mut market, tasks[0], side(DISK, 50), tasks[1], side(MEMORY, 20));
    for (name, task) in ["A", "B", "C"].into_iter().zip(tasks) {
        let mut row = vec![name.to_owned()];
        for resource in [MEMORY, DISK] {
            let after = value(&mut market, task, resource);
            row.extend(["100".to_owned(), after, fraction(&mut market, task, resource)]);
        }
        check_row(&row);
    }
    for (n, left) in [(50, 1), (49, 0)] {
        build::apply(&mut market, Op::SetAmount { ticket: tickets[1], amount: amount(n) });
        assert_eq!(market.exchanges().count(), left);
    }
}

/// What the page says of sums and depths is what the crate says.
#[test]
fn limits_are_told_as_they_are() {
    assert!(PAGE.contains("1 to 4,294,967,295") && divvy_market::Amount::MAX.get() == 4_294_967_295);
    assert!(PAGE.contains("at most 64 currencies") && divvy_market::CURRENCY_DEPTH_MAX == 64);
    assert!(PAGE.contains("(1000 unless set)") && divvy_market::HARD_TOTAL_DEFAULT == 1000);
    assert!(PAGE.contains("a millionth of a ticket") && divvy_market::PARTS_PER_TICKET == 1_000_000);
    assert_eq!(divvy_market::Amount::new(4_294_967_296), Err(Refusal::AmountTooLarge));
}
