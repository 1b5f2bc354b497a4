//! Means with the room they leave for doubt, in constant memory.

/// Count, mean, spread and extremes of a stream of numbers (Welford 1962; merging after Chan et al. 1979).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welford {
    count: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
    min: f64,
    max: f64,
}

impl Default for Welford {
    fn default() -> Self {
        Self { count: 0, mean: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY }
    }
}

impl Welford {
    /// Adds a number.
    #[inline]
    pub fn push(&mut self, x: f64) {
        self.count += 1;
        let before = x - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (x - self.mean);
        self.min = self.min.min(x);
        self.max = self.max.max(x);
    }

    /// Adds all that `other` has seen.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let count = self.count + other.count;
        let apart = other.mean - self.mean;
        let weight = other.count as f64 / count as f64;
        self.squares += other.squares + apart * apart * self.count as f64 * weight;
        self.mean += apart * weight;
        self.count = count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many numbers.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; NaN if there are none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.mean }
    }

    /// Their standard deviation (n - 1 below the line); NaN for fewer than two.
    #[must_use]
    pub fn sd(&self) -> f64 {
        if self.count < 2 { f64::NAN } else { libm::sqrt(self.squares / (self.count - 1) as f64) }
    }

    /// The smallest; infinity if there are none.
    #[must_use]
    pub const fn min(&self) -> f64 {
        self.min
    }

    /// The largest; minus infinity if there are none.
    #[must_use]
    pub const fn max(&self) -> f64 {
        self.max
    }

    /// The mean with its 95 % confidence interval, if the numbers are independent (replications, batch means).
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let standard_error = self.sd() / libm::sqrt(self.count as f64);
        Estimate {
            mean: self.mean(),
            standard_error,
            half_width: standard_error * student_t_975(self.count.saturating_sub(1)),
            samples: self.count,
        }
    }
}

/// A mean and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean of the samples.
    pub mean: f64,
    /// Standard deviation of that mean; NaN for fewer than two samples.
    pub standard_error: f64,
    /// Half the width of the 95 % confidence interval (Student's t); NaN for fewer than two samples.
    pub half_width: f64,
    /// Independent samples.
    pub samples: u64,
}

/// The 97.5 % quantile of Student's t with `freedom` degrees of freedom; infinite for 0. Within 0.0005 of the exact
/// value: a table up to 30, then the Cornish-Fisher expansion to the third order.
#[must_use]
pub fn student_t_975(freedom: u64) -> f64 {
    const TABLE: [f64; 30] = [
        12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788,
        2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639,
        2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
    ];
    if freedom == 0 {
        return f64::INFINITY;
    }
    if let Some(&t) = TABLE.get(freedom as usize - 1) {
        return t;
    }
    let (z, v) = (1.959_963_985, freedom as f64);
    let (z3, z5) = (z * z * z, z * z * z * z * z);
    z + (z3 + z) / (4.0 * v) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * v * v)
}

/// Means of batches that grow, so that any length of stream fits in constant memory: at most `2 * batches` batches are
/// kept, and neighbours are joined when they are full (Law 2015, section 9.5.3, with doubling batches).
#[derive(Clone, Debug)]
pub struct BatchMeans {
    batches: usize,
    size: u64,
    means: Vec<f64>,
    sum: f64,
    filled: u64,
}

impl BatchMeans {
    /// Keeps between `batches` and twice as many batches.
    ///
    /// # Panics
    /// If `batches` is less than 2.
    #[must_use]
    pub fn new(batches: usize) -> Self {
        assert!(batches >= 2, "an interval needs two batches");
        Self { batches, size: 1, means: Vec::with_capacity(2 * batches), sum: 0.0, filled: 0 }
    }

    /// Adds a number.
    #[inline]
    pub fn push(&mut self, x: f64) {
        self.sum += x;
        self.filled += 1;
        if self.filled < self.size {
            return;
        }
        self.means.push(self.sum / self.size as f64);
        self.sum = 0.0;
        self.filled = 0;
        if self.means.len() == 2 * self.batches {
            self.means = self.means.chunks(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
            self.size *= 2;
        }
    }

    /// The mean of all full batches with its 95 % confidence interval.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let mut stats = Welford::default();
        for &mean in &self.means {
            stats.push(mean);
        }
        stats.estimate()
    }
}

/// Jain's index of fairness: (sum x)^2 / (n * sum x^2). 1 is perfectly fair, 1/n is one that has it all; 1 for nobody.
#[must_use]
pub fn jain(xs: impl IntoIterator<Item = f64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for x in xs {
        n += 1.0;
        sum += x;
        squares += x * x;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}

/// Counts by size, 64 classes to each power of two: quantiles within 1.6 % in constant memory.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

const CLASS_BITS: u32 = 6;

impl Histogram {
    /// Adds a number.
    #[inline]
    pub fn push(&mut self, x: u64) {
        let class = Self::class(x);
        if self.counts.len() <= class {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.total += 1;
    }

    fn class(x: u64) -> usize {
        let top = 63 - (x | 1).leading_zeros();
        if top < CLASS_BITS {
            return x as usize;
        }
        let shift = top - CLASS_BITS;
        (((shift as usize) + 1) << CLASS_BITS) + ((x >> shift) as usize - (1 << CLASS_BITS))
    }

    /// The largest number of `class`.
    const fn upper(class: usize) -> u64 {
        let (shift, low) = (class >> CLASS_BITS, (class & ((1 << CLASS_BITS) - 1)) as u64);
        if shift == 0 {
            return low;
        }
        let shift = shift as u32 - 1;
        let first = ((1u64 << CLASS_BITS) + low) << shift;
        first + ((1u64 << shift) - 1)
    }

    /// A number that at least `part` (0 to 1) of the numbers do not exceed; `None` if there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let rank = ((part * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(class, &count)| {
            seen += count;
            (seen >= rank && count > 0).then(|| Self::upper(class))
        })
    }

    /// Adds all that `other` has seen.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn welford_merges_as_if_it_had_seen_all() {
        let xs = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        let (mut all, mut left, mut right) = (Welford::default(), Welford::default(), Welford::default());
        for (i, &x) in xs.iter().enumerate() {
            all.push(x);
            if i < 3 { left.push(x) } else { right.push(x) }
        }
        left.merge(&right);
        // Sum 31, mean 31/8; squares 173 - 31^2/8 = 52.875; variance 52.875/7.
        assert_eq!(all.count(), 8);
        assert!((all.mean() - 3.875).abs() < 1e-12);
        assert!((all.sd() - (52.875f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((left.mean() - all.mean()).abs() < 1e-12);
        assert!((left.sd() - all.sd()).abs() < 1e-12);
        assert_eq!((left.min(), left.max()), (1.0, 9.0));
        let half = all.estimate().half_width;
        assert!((half - 2.3646 * all.sd() / 8f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn student_t_joins_its_table_and_tends_to_the_normal() {
        for (freedom, exact) in
            [(1, 12.7062), (10, 2.2281), (31, 2.0395), (40, 2.0211), (60, 2.0003), (120, 1.9799)]
        {
            assert!((student_t_975(freedom) - exact).abs() < 5e-4, "{freedom}");
        }
        assert!((student_t_975(1_000_000) - 1.96).abs() < 1e-3);
        assert_eq!(student_t_975(0), f64::INFINITY);
    }

    #[test]
    fn jain_spans_one_to_one_over_n() {
        assert_eq!(jain([2.0, 2.0, 2.0]), 1.0);
        assert!((jain([5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(jain([]), 1.0);
    }

    #[test]
    fn quantiles_are_within_their_class() {
        let mut h = Histogram::default();
        for x in 1..=100_000u64 {
            h.push(x);
        }
        for (part, exact) in [(0.5, 50_000.0), (0.95, 95_000.0), (0.999, 99_900.0)] {
            let got = h.quantile(part).unwrap() as f64;
            assert!(got >= exact && got <= exact * (1.0 + 1.0 / 64.0), "{part}: {got}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
        let mut top = Histogram::default();
        top.push(u64::MAX);
        top.push(0);
        assert_eq!(top.quantile(1.0), Some(u64::MAX));
        assert_eq!(top.quantile(0.1), Some(0));
    }

    #[test]
    fn batches_double_and_keep_the_mean() {
        let mut batches = BatchMeans::new(10);
        for x in 0..1280 {
            batches.push(f64::from(x));
        }
        let estimate = batches.estimate();
        assert!((estimate.mean - 639.5).abs() < 1e-9);
        assert!((10..20).contains(&estimate.samples));
    }
}
