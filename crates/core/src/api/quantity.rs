//! Kubernetes quantities, compared by value: the API server stores `1024Mi` as `1Gi` and `0.1` as `100m`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// From billionths on, each a thousand times the one before.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Each 1024 times the one before.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// True if both are the same amount. Texts that are not quantities are equal only to themselves.
pub fn equal(a: &Quantity, b: &Quantity) -> bool {
    amount(a).zip(amount(b)).map_or(a.0 == b.0, |(a, b)| a == b)
}

/// The amount in billionths, the finest unit of Kubernetes. As in Kubernetes, finer amounts are rounded up, and those
/// above a 64-bit number are capped. `None` for a text that is not a quantity or has too many digits.
pub fn amount(Quantity(text): &Quantity) -> Option<i128> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (mantissa, decimals) = decimal(number)?;
    let place =
        |suffixes: &[&str]| (0_i64..).zip(suffixes).find(|(_, known)| **known == suffix).map(|(place, _)| place);
    let (factor, exponent): (i128, i64) = match (place(&DECIMAL), place(&BINARY)) {
        (Some(place), _) => (1, 3 * place),
        (None, Some(place)) => (1 << (10 * (place + 1)), 9),
        (None, None) => (1, i64::from(suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?) + 9),
    };
    let largest = i128::from(i64::MAX) * 1_000_000_000;
    let Some(amount) = mantissa.checked_mul(factor) else { return Some(largest * mantissa.signum()) };
    Some(scale(amount, exponent - i64::from(decimals)).clamp(-largest, largest))
}

/// Returns `amount × 10^exponent`, rounded away from zero and capped at the largest number.
fn scale(amount: i128, exponent: i64) -> i128 {
    let power = u32::try_from(exponent.unsigned_abs()).ok().and_then(|exponent| 10i128.checked_pow(exponent));
    match power {
        Some(power) if exponent >= 0 => amount.saturating_mul(power),
        Some(power) => amount / power + if amount % power == 0 { 0 } else { amount.signum() },
        None if exponent >= 0 => amount.signum() * i128::MAX,
        None => amount.signum(),
    }
}

/// The digits without the point, and the number of digits after it.
fn decimal(text: &str) -> Option<(i128, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mantissa = format!("{whole}{fraction}").parse().ok()?;
    Some((mantissa, u32::try_from(fraction.len()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        equal(&Quantity(a.to_owned()), &Quantity(b.to_owned()))
    }

    #[test]
    fn amounts_are_compared_and_not_texts() {
        for (a, b) in [
            ("1024Mi", "1Gi"),
            ("0.1", "100m"),
            ("1000", "1k"),
            ("1e3", "1k"),
            ("512Mi", "536870912"),
            ("1.5Gi", "1536Mi"),
            ("500m", "0.5"),
            ("1E3", "1000"),
            ("100000n", "100u"),
            ("+1", "1"),
            ("1e-30", "1n"),
            ("0.0000000001", "1n"),
            ("1.0000000001n", "2n"),
            ("0e-30", "0"),
            ("1e999", "9223372036854775807"),
            ("99999999999999999999E", "8Ei"),
            ("99999999999999999999999Ei", "1e20"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
        for (a, b) in [("1Gi", "1G"), ("100m", "100"), ("1", "2"), ("x", "y"), ("1Ki", "1k"), ("", "0")] {
            assert!(!same(a, b), "{a} {b}");
        }
        assert!(same("many", "many"));
    }
}
