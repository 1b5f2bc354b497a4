//! The table of the fixed-point logarithm in `bpf/pbs.h`.

/// Leading bits of a number that select a row.
const ROW_BITS: u32 = 8;
/// Bits behind the point of a row's logarithm.
const WORK_BITS: u32 = 40;

/// For the midpoint c of every 1/256th of [1, 2): log2(c) in units of 2^-40, and 1/c in units of 2^-63.
#[must_use]
pub fn log_rows() -> Vec<(u64, u64)> {
    let row = |k: u64| {
        // c = 1 + (k + 1/2) / 256 in units of 2^-63.
        let c = (1_u64 << 63) + ((2 * k + 1) << (63 - ROW_BITS - 1));
        let reciprocal = (1_u128 << 126) / u128::from(c);
        (log2_of_mantissa(c), u64::try_from(reciprocal).unwrap_or(u64::MAX))
    };
    (0..1 << ROW_BITS).map(row).collect()
}

/// log2 of `m` / 2^63 for `m` in [2^63, 2^64), in units of 2^-40, rounded down: one squaring a bit.
fn log2_of_mantissa(mut m: u64) -> u64 {
    let mut bits = 0;
    for _ in 0..WORK_BITS {
        // m in [1, 2) squared is in [1, 4): a 1 bit where it reaches 2.
        let square = u128::from(m) * u128::from(m);
        let reaches_two = (square >> 127) as u64;
        m = (square >> (63 + reaches_two)) as u64;
        bits = (bits << 1) | reaches_two;
    }
    bits
}
