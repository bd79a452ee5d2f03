//! Kubernetes quantities, exact: `100m`, `1.5Gi`, `2e3`.
//!
//! Source: `apimachinery/pkg/api/resource/quantity.go`. A value is kept in nano units in an `i128`;
//! finer fractions round up, magnitudes beyond 2^63-1 are capped as upstream caps them, and the way
//! to an integer rounds up too, so that a request is never taken for less than it is.

use std::str::FromStr;

/// An amount in nano units (10^-9), within ±(2^63-1) whole units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nano: i128,
}

/// A text that is no Kubernetes quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a quantity: expected a decimal number with an optional suffix \
     (n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3)"
)]
pub struct QuantityError {
    text: String,
}

const NANO: i128 = 1_000_000_000;
const MAX_UNITS: i128 = i64::MAX as i128;
/// Digits beyond this many cannot matter: the value is capped or rounded long before.
const MAX_DIGITS: usize = 64;

impl Quantity {
    /// The amount in thousandths, rounded up (`100m` is 100; `1n` is 1).
    pub fn milli(self) -> i64 {
        clamp(div_ceil(self.nano, 1_000_000))
    }

    /// The amount in whole units, rounded up (`1.5Gi` is 1610612736; `100m` is 1).
    pub fn units(self) -> i64 {
        clamp(div_ceil(self.nano, NANO))
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN + 1 } else { i64::MAX })
}

fn div_ceil(value: i128, by: i128) -> i128 {
    let quotient = value.div_euclid(by);
    if value.rem_euclid(by) == 0 {
        quotient
    } else {
        quotient + 1
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        parse(text)
            .map(|nano| Quantity { nano })
            .ok_or_else(|| QuantityError {
                text: text.to_owned(),
            })
    }
}

fn parse(text: &str) -> Option<i128> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty()
        || fraction.contains('.')
        || number.len() > MAX_DIGITS
    {
        return None;
    }
    let (numerator, denominator) = multiplier(suffix)?;
    // value = digits * numerator / (denominator * 10^|fraction|), in nano units, rounded up
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let magnitude = if significant.is_empty() {
        0
    } else {
        scaled(significant, numerator, denominator, fraction.len())
    };
    let capped = magnitude.min(MAX_UNITS * NANO);
    Some(if negative { -capped } else { capped })
}

/// `digits * numerator * 10^9 / (denominator * 10^decimals)`, rounded up, saturating.
fn scaled(digits: &str, numerator: Exponents, denominator: Exponents, decimals: usize) -> i128 {
    let decimals = i32::try_from(decimals).unwrap_or(i32::MAX);
    let tens = numerator.ten - denominator.ten - decimals + 9;
    let kept = digits.len().min(30);
    let dropped = i32::try_from(digits.len() - kept).unwrap_or(i32::MAX);
    let lost = digits[kept..].bytes().any(|b| b != b'0');
    let mut value: i128 = digits[..kept].parse().unwrap_or(i128::MAX);
    if lost {
        value = value.saturating_add(1);
    }
    for _ in 0..numerator.two {
        value = value.saturating_mul(2);
    }
    let tens = tens.saturating_add(dropped);
    for _ in 0..tens.clamp(0, 60) {
        value = value.saturating_mul(10);
    }
    for _ in 0..tens.saturating_neg().clamp(0, 60) {
        value = div_ceil(value, 10);
    }
    value
}

#[derive(Clone, Copy)]
struct Exponents {
    ten: i32,
    two: i32,
}

/// The factor a suffix stands for, as numerator and denominator.
fn multiplier(suffix: &str) -> Option<(Exponents, Exponents)> {
    let one = Exponents { ten: 0, two: 0 };
    let ten = |ten: i32| Some((Exponents { ten, two: 0 }, one));
    let two = |two: i32| Some((Exponents { ten: 0, two }, one));
    match suffix {
        "" => Some((one, one)),
        "n" => ten(-9),
        "u" => ten(-6),
        "m" => ten(-3),
        "k" => ten(3),
        "M" => ten(6),
        "G" => ten(9),
        "T" => ten(12),
        "P" => ten(15),
        "E" => ten(18),
        "Ki" => two(10),
        "Mi" => two(20),
        "Gi" => two(30),
        "Ti" => two(40),
        "Pi" => two(50),
        "Ei" => two(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let value: i32 =
                exponent
                    .parse()
                    .unwrap_or(if exponent.starts_with('-') { -99 } else { 99 });
            ten(value.clamp(-99, 99))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> i64 {
        text.parse::<Quantity>()
            .unwrap_or_else(|e| panic!("{e}"))
            .units()
    }

    fn milli(text: &str) -> i64 {
        text.parse::<Quantity>()
            .unwrap_or_else(|e| panic!("{e}"))
            .milli()
    }

    #[test]
    fn what_other_parsers_get_wrong() {
        assert_eq!(units("1.5Gi"), 1_610_612_736);
        assert_eq!(units("0.3Gi"), 322_122_548);
        assert_eq!(milli("100m"), 100);
        assert_eq!(units("100m"), 1);
        assert_eq!(units("2Ei"), 2_305_843_009_213_693_952);
        assert_eq!(units("1E"), 1_000_000_000_000_000_000);
        assert_eq!(units("9007199254740993"), 9_007_199_254_740_993);
        assert_eq!(units("1e3"), 1000);
        assert_eq!(units("1E3"), 1000);
        assert_eq!(milli("0.1n"), 1);
        assert_eq!(units("-5"), -5);
        assert_eq!(milli(".5"), 500);
        assert_eq!(milli("1."), 1000);
        assert_eq!(units("9223372036854775808"), i64::MAX);
        assert_eq!(units("100Ei"), i64::MAX);
        assert_eq!(milli("9223372036854775807"), i64::MAX);
        assert_eq!(units("0e99999999999"), 0);
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "", "Ki", "1.2.3", "one", "1 Gi", "1e", "1ee3", "0x10", "--1", "1Kib", ".",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?} was accepted");
        }
    }

    proptest::proptest! {
        #[test]
        fn whole_numbers_are_exact(value in 0..=i64::MAX) {
            assert_eq!(units(&value.to_string()), value);
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Quantity>().map(|q| (q.milli(), q.units()));
        }

        #[test]
        fn number_like_text_never_panics(text in "[-+]?[0-9]{0,40}\\.?[0-9]{0,40}(e[-+]?[0-9]{1,12}|[KMGTPE]i?|[numk])?") {
            let _ = text.parse::<Quantity>().map(|q| (q.milli(), q.units()));
        }
    }
}
