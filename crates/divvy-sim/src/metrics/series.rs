//! Service over time, as pictures need it.

use serde::Serialize;

/// What each client had received at some moments. Between two moments service grows in a straight line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// The moments, in nanoseconds, rising.
    pub times_ns: Vec<u64>,
    /// Service in nanoseconds: one list for each client, one entry a moment. Lists of clients that came later are
    /// filled with zeros in front.
    pub service_ns: Vec<Vec<u64>>,
}

impl Series {
    /// Adds a moment. Clients that are not named have what they had.
    pub fn push(&mut self, time_ns: u64, services: impl IntoIterator<Item = (u32, u64)>) {
        let before = self.times_ns.len();
        self.times_ns.push(time_ns);
        for (client, service) in services {
            let client = client as usize;
            if self.service_ns.len() <= client {
                self.service_ns.resize(client + 1, vec![0; before]);
            }
            let list = &mut self.service_ns[client];
            list.resize(before + 1, service);
            list[before] = service;
        }
        for list in &mut self.service_ns {
            let last = list.last().copied().unwrap_or(0);
            list.resize(before + 1, last);
        }
    }

    /// The part that each client received of each of `nr` windows of equal length: client by client, then window by
    /// window.
    #[must_use]
    pub fn windows(&self, nr: usize) -> Vec<Vec<f64>> {
        let end = self.times_ns.last().copied().unwrap_or(0) as f64;
        let length = end / nr.max(1) as f64;
        if length <= 0.0 {
            return vec![Vec::new(); self.service_ns.len()];
        }
        let at = |list: &[u64], time: f64| {
            let after = self.times_ns.partition_point(|&t| (t as f64) <= time);
            if after == 0 || after >= self.times_ns.len() {
                return list.get(after.saturating_sub(1)).copied().unwrap_or(0) as f64;
            }
            let (t0, t1) = (self.times_ns[after - 1] as f64, self.times_ns[after] as f64);
            let (s0, s1) = (list[after - 1] as f64, list[after] as f64);
            s0 + (s1 - s0) * (time - t0) / (t1 - t0)
        };
        self.service_ns
            .iter()
            .map(|list| {
                let edges: Vec<f64> = (0..=nr).map(|i| at(list, length * i as f64)).collect();
                edges.windows(2).map(|pair| ((pair[1] - pair[0]) / length).max(0.0)).collect()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_come_later_start_at_zero() {
        let mut series = Series::default();
        series.push(0, [(0, 0)]);
        series.push(5, [(0, 5)]);
        series.push(9, [(2, 1)]);
        assert_eq!(series.service_ns, [vec![0, 5, 5], vec![0, 0, 0], vec![0, 0, 1]]);
        // Windows of 3: client 0 runs all through the first, for 2 of the second; client 2 has 1/4 of [5, 9).
        assert_eq!(series.windows(3)[0], [1.0, 2.0 / 3.0, 0.0]);
        assert_eq!(series.windows(3)[2], [0.0, 0.25 / 3.0, 0.75 / 3.0]);
    }
}
