//! Binary logarithm and exponential of floats without a mathematics library, for the fluid model only.

/// log2 of a positive, finite, normal `x`, with an error below 4e-16 * max(1, |log2 x|): the exponent, and the series of
/// the inverse hyperbolic tangent on the mantissa in [sqrt(1/2), sqrt(2)).
///
/// Zero and negative numbers answer minus infinity.
pub(super) fn log2(x: f64) -> f64 {
    if x <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut m = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if m > core::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    // ln m = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1)/(m + 1), |s| < 0.1716: twelve terms reach 1e-19.
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let mut sum = 0.0;
    for k in (0..12).rev() {
        sum = sum * s2 + 1.0 / f64::from(2 * k + 1);
    }
    exponent as f64 + 2.0 * s * sum * core::f64::consts::LOG2_E
}

/// 2^x with a relative error below 1e-15; 0 below -1000, infinite from 1024.
pub(super) fn exp2(x: f64) -> f64 {
    if x < -1000.0 {
        return 0.0;
    }
    if x >= 1024.0 {
        return f64::INFINITY;
    }
    // x = n + f with f in [-1/2, 1/2]; 2^f = e^y with |y| < 0.3466: Taylor to y^15 reaches 1e-20.
    let n = (x + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let y = (x - n as f64) * core::f64::consts::LN_2;
    let mut sum = 1.0;
    for k in (1..16).rev() {
        sum = 1.0 + sum * y / f64::from(k);
    }
    // n may be 1024 with f < 0: two steps keep the power of two representable.
    let half = n / 2;
    let power = |n: i64| f64::from_bits(((n + 1023) as u64) << 52);
    sum * power(half) * power(n - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log2_and_exp2_agree_with_the_mathematics_library() {
        let mut x = 0x1234_5678_9abc_def1u64;
        for _ in 0..200_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Positive normal numbers of every magnitude.
            let y = f64::from_bits((x >> 1).clamp(1 << 52, 0x7fe << 52));
            let (have, want) = (log2(y), y.log2());
            assert!((have - want).abs() <= 4e-16 * want.abs().max(1.0), "log2({y:e}) = {have}, want {want}");
            let z = (x >> 11) as f64 / (1u64 << 53) as f64 * 2000.0 - 990.0;
            let (have, want) = (exp2(z), z.exp2());
            assert!(have == want || (have / want - 1.0).abs() < 1e-15, "exp2({z}) = {have:e}, want {want:e}");
        }
        assert_eq!(log2(0.0), f64::NEG_INFINITY);
        assert_eq!((exp2(0.0), exp2(10.0), exp2(-1001.0)), (1.0, 1024.0, 0.0));
    }
}
