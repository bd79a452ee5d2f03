//! Whole numbers as they are typed on a command line.

use std::ops::RangeInclusive;

/// A reader of whole numbers in a range, for clap. What is none is refused in words that say what is expected.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.trim().parse().ok();
        let number = number.filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| match (range.start(), range.end()) {
            (least, &u64::MAX) => format!("expected a whole number, {least} or more"),
            (least, most) => format!("expected a whole number from {least} to {most}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_the_range_are_read_and_others_are_told_what_is_expected() {
        let small = whole::<u8>(1..=2);
        assert_eq!(small("2"), Ok(2));
        for text in ["", "0", "3", "-1", "many", "1.5", "99999999999999999999"] {
            let said = small(text).expect_err("it is refused");
            assert_eq!(said, "expected a whole number from 1 to 2", "{text}");
        }
        let any = whole::<u64>(0..=u64::MAX);
        assert_eq!(any("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(
            any("-1"),
            Err("expected a whole number, 0 or more".to_owned())
        );
    }
}
