//! Kubernetes quantities, compared by value: the API server writes `1024Mi` as `1Gi` and `0.1` as `100m`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Whether both name the same amount. Texts that are no quantity are equal only to themselves.
pub(crate) fn equal(a: &Quantity, b: &Quantity) -> bool {
    match (nanos(&a.0), nanos(&b.0)) {
        (Some(a), Some(b)) => a == b,
        _ => a.0 == b.0,
    }
}

/// Whether it is an amount that an overhead can have.
pub(crate) fn is_not_negative(quantity: &Quantity) -> bool {
    nanos(&quantity.0).is_some_and(|nanos| nanos >= 0)
}

/// How much it is, in billionths.
pub(crate) fn amount(quantity: &Quantity) -> Option<i128> {
    nanos(&quantity.0)
}

/// Billionths, the finest that Kubernetes keeps. `None` for what is no quantity or too large to count.
fn nanos(text: &str) -> Option<i128> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (mantissa, decimals) = decimal(number)?;
    let (base, exponent): (i128, u32) = match suffix {
        "n" => return scale(mantissa, decimals, 10, 0),
        "u" => (10, 3),
        "m" => (10, 6),
        "" => (10, 9),
        "k" => (10, 12),
        "M" => (10, 15),
        "G" => (10, 18),
        "T" => (10, 21),
        "P" => (10, 24),
        "E" => (10, 27),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            return scale(mantissa, decimals, 10, u32::try_from(exponent.checked_add(9)?).ok()?);
        }
    };
    let mantissa = if base == 2 { mantissa.checked_mul(1_000_000_000)? } else { mantissa };
    scale(mantissa, decimals, base, exponent)
}

/// `mantissa × base^exponent ÷ 10^decimals`, if that is a whole number.
fn scale(mantissa: i128, decimals: u32, base: i128, exponent: u32) -> Option<i128> {
    let value = mantissa.checked_mul(base.checked_pow(exponent)?)?;
    let divisor = 10i128.checked_pow(decimals)?;
    (value % divisor == 0).then_some(value / divisor)
}

/// The digits without the point, and how many of them stood behind it.
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
        ] {
            assert!(same(a, b), "{a} {b}");
        }
        for (a, b) in [("1Gi", "1G"), ("100m", "100"), ("1", "2"), ("x", "y"), ("1Ki", "1k"), ("", "0")] {
            assert!(!same(a, b), "{a} {b}");
        }
        assert!(same("many", "many"));
    }
}
