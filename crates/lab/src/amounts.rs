//! Numbers as tables and sentences show them: with as many digits as they are worth.

use crate::model::fit::Line;

/// Writes a number with three significant digits, or with all digits before its point, if there are more.
pub fn significant(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return format!("{number}");
    }
    let before = number.abs().log10().floor() as i32 + 1;
    let decimals = usize::try_from(3 - before).unwrap_or(0);
    format!("{number:.decimals$}")
}

/// Writes a cost that is a line, in microseconds, as a table's cells: the cost of each byte in nanoseconds, which makes
/// short numbers, and the fixed term in microseconds.
pub fn line(cost: Line) -> [String; 2] {
    [significant(cost.factor * 1e3), significant(cost.fixed)]
}

/// Writes a fraction as per cent, with its sign: `+3.1 %`.
pub fn signed_percent(fraction: f64) -> String {
    format!("{:+.1} %", fraction * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (number, text) in [
            (0.000_363, "0.000363"),
            (1.2345, "1.23"),
            (-63.04, "-63.0"),
            (123.4, "123"),
            (12345.6, "12346"),
            (0.0, "0"),
            (1.0, "1.00"),
        ] {
            assert_eq!(significant(number), text);
        }
    }

    #[test]
    fn lines_and_shares_have_their_sign() {
        assert_eq!(line(Line { factor: 0.044, fixed: -63.0 }), ["44.0", "-63.0"]);
        assert_eq!(line(Line { factor: 0.000_022, fixed: 15.0 }), ["0.0220", "15.0"]);
        assert_eq!(signed_percent(0.0312), "+3.1 %");
    }
}
