//! Kubernetes' quantities: `250m`, `1.5`, `64Mi`, `1e3`. Owns reading, adding and writing them; knows no resource.

use std::fmt;
use std::ops::Add;

/// The suffixes as powers of two and of ten.
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18), ("", 0)];
/// More digits than any quantity of an API server has.
const MAX_DIGITS: usize = 24;

/// An amount of a resource, in thousandths. A finer one is rounded up, as Kubernetes counts processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    thousandths: u128,
}

impl Quantity {
    /// Reads a quantity; `None` if the API server would refuse it, or if it is below 0.
    pub fn parse(text: &str) -> Option<Self> {
        let number_ends = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(number_ends);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        let is_number = !digits.is_empty() && digits.len() <= MAX_DIGITS && !fraction.contains('.');
        let value: u128 = is_number.then(|| digits.parse().ok())??;
        let fraction = i32::try_from(fraction.len()).ok()?;
        let thousandths = match BINARY.iter().find(|(word, _)| *word == suffix) {
            Some((_, power)) => scaled(value.checked_mul(1 << power)?, 3 - fraction)?,
            None => scaled(value, 3 - fraction + exponent(suffix)?)?,
        };
        Some(Self { thousandths })
    }

    /// As processors are written: `2`, `250m`.
    pub fn in_thousandths(self) -> String {
        match self.thousandths % 1000 {
            0 => (self.thousandths / 1000).to_string(),
            _ => format!("{}m", self.thousandths),
        }
    }
}

/// `k`, `e3`, `E3`: the power of ten.
fn exponent(suffix: &str) -> Option<i32> {
    if let Some((_, power)) = DECIMAL.iter().find(|(word, _)| *word == suffix) {
        return Some(*power);
    }
    let power = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-18..=18).contains(&power).then_some(power)
}

fn scaled(value: u128, power_of_ten: i32) -> Option<u128> {
    let factor = 10_u128.checked_pow(power_of_ten.unsigned_abs())?;
    if power_of_ten < 0 { Some(value.div_ceil(factor)) } else { value.checked_mul(factor) }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { thousandths: self.thousandths.saturating_add(other.thousandths) }
    }
}

/// With the largest suffix that leaves a whole number, as Kubernetes writes it.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.thousandths.div_ceil(1000);
        let binary = BINARY.iter().rev().find(|(_, power)| whole > 0 && whole.is_multiple_of(1 << power));
        match binary {
            Some((suffix, power)) => write!(f, "{}{suffix}", whole >> power),
            None => write!(f, "{whole}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thousandths(text: &str) -> Option<u128> {
        Quantity::parse(text).map(|quantity| quantity.thousandths)
    }

    #[test]
    fn quantities_are_read_as_an_api_server_reads_them() {
        let valid = [
            ("0", 0),
            ("2", 2_000),
            ("250m", 250),
            ("0.1", 100),
            (".5", 500),
            ("1.", 1_000),
            ("100u", 1),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("15E-1", 1_500),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
        ];
        for (text, value) in valid {
            assert_eq!(thousandths(text), Some(value), "{text}");
        }
        for text in
            ["", ".", "1.2.3", "-1", "1 Gi", "1GiB", "Mi", "1e", "1e99", "1Kim", "9999999999999999999999999"]
        {
            assert_eq!(thousandths(text), None, "{text}");
        }
    }

    #[test]
    fn quantities_are_written_with_the_largest_suffix_that_fits() {
        let written = |text: &str| Quantity::parse(text).map(|quantity| quantity.to_string());
        for (text, shown) in
            [("1024Mi", "1Gi"), ("1536Mi", "1536Mi"), ("1000", "1000"), ("0", "0"), ("128M", "125000Ki")]
        {
            assert_eq!(written(text).as_deref(), Some(shown), "{text}");
        }
        let processors = |text: &str| Quantity::parse(text).map(Quantity::in_thousandths);
        for (text, shown) in [("2000m", "2"), ("1500m", "1500m"), ("0.25", "250m")] {
            assert_eq!(processors(text).as_deref(), Some(shown), "{text}");
        }
    }
}
