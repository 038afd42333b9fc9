//! Chance from a seed: the same numbers on every run and every machine.

/// A splitmix64 generator.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Chance of its own for somebody, so that another agent more changes nothing for the others.
    pub(crate) fn of(seed: u64, name: &str, number: u64) -> Self {
        // FNV-1a: the names only need to be told apart.
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for byte in name.bytes().chain(number.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        let mut random = Self(seed ^ hash);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        let width = u128::from(most.saturating_sub(least)) + 1;
        let above = (u128::from(self.next()) * width) >> 64;
        least.saturating_add(u64::try_from(above).unwrap_or(0))
    }

    /// True so often.
    pub(crate) fn happens(&mut self, share: f64) -> bool {
        // No number is drawn where there is no choice: what always happens does not move the others.
        share >= 1.0 || (share > 0.0 && self.unit() < share)
    }

    /// An exponential amount with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(1.0 - self.unit())
    }

    /// A length of time of at most `longest` milliseconds.
    pub(crate) fn up_to(&mut self, longest: i64) -> i64 {
        let most = u64::try_from(longest).unwrap_or(0);
        if most == 0 { 0 } else { i64::try_from(self.between(0, most)).unwrap_or(0) }
    }
}

/// The natural logarithm of a number from above 0 to 1, by basic arithmetic only: what a machine's own
/// library gives may differ in the last digit, and one digit is enough to make another run of it.
fn ln(x: f64) -> f64 {
    let (mut mantissa, mut exponent) = (x, 0.0);
    while mantissa < 0.75 {
        mantissa *= 2.0;
        exponent -= 1.0;
    }
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let (mut power, mut sum) = (ratio, 0.0);
    for odd in 0..12 {
        sum += power / f64::from(2 * odd + 1);
        power *= square;
    }
    2.0 * sum + exponent * std::f64::consts::LN_2
}

#[cfg(test)]
#[path = "random_tests.rs"]
mod tests;
