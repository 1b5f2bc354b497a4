//! What queueing theory says, to hold simulations against. Times in seconds, rates per second; all functions are exact
//! up to floating point, [`mg1_las`] up to its numerical integral (relative error under 1e-5 for the distributions here).
//!
//! Sources: Kleinrock, *Queueing Systems* I and II; Schrage 1967 for LAS; Reiser and Lavenberg 1980 for MVA.

use crate::workload::Dist;

/// Mean response time of M/M/1 under every blind work-conserving policy; infinite where the load is 1 or more.
#[must_use]
pub fn mm1(arrival_rate: f64, mean_size: f64) -> f64 {
    let load = arrival_rate * mean_size;
    if load >= 1.0 { f64::INFINITY } else { mean_size / (1.0 - load) }
}

/// Mean response time of M/M/k FCFS (Erlang C); infinite where the load is k or more.
#[must_use]
pub fn mmk(arrival_rate: f64, mean_size: f64, servers: u32) -> f64 {
    let (load, k) = (arrival_rate * mean_size, f64::from(servers));
    if load >= k {
        return f64::INFINITY;
    }
    // Erlang B by its recursion, then C = B / (1 - (load / k) (1 - B)).
    let blocking = (1..=servers).fold(1.0, |b, i| load * b / (f64::from(i) + load * b));
    let waiting = blocking / (1.0 - load / k * (1.0 - blocking));
    mean_size + waiting * mean_size / (k - load)
}

/// Mean response time of M/G/1 FCFS (Pollaczek and Khinchine); infinite where the load is 1 or more.
#[must_use]
pub fn mg1_fcfs(arrival_rate: f64, size: &Dist) -> f64 {
    let load = arrival_rate * size.mean();
    if load >= 1.0 {
        return f64::INFINITY;
    }
    size.mean() + arrival_rate * size.second_moment() / (2.0 * (1.0 - load))
}

/// Mean response time of M/G/1 PS; infinite where the load is 1 or more. It depends on the mean size alone.
#[must_use]
pub fn mg1_ps(arrival_rate: f64, size: &Dist) -> f64 {
    mm1(arrival_rate, size.mean())
}

/// Mean response time of a job of size `x` in M/G/1 LAS (Schrage 1967).
///
/// With load(x) that of sizes cut at x: (x + W(x)) / (1 - load(x)), W(x) = rate E[min(X, x)^2] / (2 (1 - load(x))).
#[must_use]
pub fn mg1_las_of_size(arrival_rate: f64, size: &Dist, x: f64) -> f64 {
    let (first, second) = size.truncated_moments(x);
    let left = 1.0 - arrival_rate * first;
    if left <= 0.0 { f64::INFINITY } else { (x + arrival_rate * second / (2.0 * left)) / left }
}

/// Mean response time of M/G/1 LAS, over all sizes.
#[must_use]
pub fn mg1_las(arrival_rate: f64, size: &Dist) -> f64 {
    const CELLS: u32 = 50_000;
    let (low, high) = size.support();
    if low == high {
        return mg1_las_of_size(arrival_rate, size, low);
    }
    // Cells of equal ratio; each is weighed with its exact probability and looked at in its geometric middle.
    let ratio = libm::pow(high / low, 1.0 / f64::from(CELLS));
    let (mut x, mut below, mut mean) = (low, 0.0, 0.0);
    for _ in 0..CELLS {
        let next = x * ratio;
        let upto = size.cdf(next);
        mean += (upto - below) * mg1_las_of_size(arrival_rate, size, libm::sqrt(x * next));
        (x, below) = (next, upto);
    }
    mean
}

/// One closed class at one PS (or exponential FCFS) centre with thinking time, by exact mean value analysis.
///
/// `customers` users think `think` on average and then ask for `demand` of CPU time.
#[must_use]
pub fn mva(customers: u32, demand: f64, think: f64) -> Closed {
    let (mut queue, mut response, mut throughput) = (0.0, 0.0, 0.0);
    for n in 1..=customers {
        response = demand * (1.0 + queue);
        throughput = f64::from(n) / (think + response);
        queue = throughput * response;
    }
    Closed { response, throughput, queue }
}

/// The answer of [`mva`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closed {
    /// Mean time at the centre for each request.
    pub response: f64,
    /// Requests answered per second.
    pub throughput: f64,
    /// Mean number of requests at the centre.
    pub queue: f64,
}
