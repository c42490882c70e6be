//! A number as a paper prints it: its value, and how far rounding may have moved it.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// A printed number.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Printed {
    value: f64,
    decimals: usize,
}

/// Which of the numbers that round to the same printed digits is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// The least number that rounds to these digits.
    Down,
    /// The printed number itself.
    Nearest,
    /// The greatest number that rounds to these digits.
    Up,
}

impl Rounding {
    /// The other end: where a quotient is to be greatest, its divisor is to be least.
    pub fn opposite(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Nearest => Self::Nearest,
            Self::Up => Self::Down,
        }
    }
}

impl Printed {
    /// The printed number itself.
    pub fn value(self) -> f64 {
        self.value
    }

    /// One of the numbers that round to these digits.
    pub fn at(self, rounding: Rounding) -> f64 {
        let half_unit = 0.5 * 0.1_f64.powi(self.decimals as i32);
        match rounding {
            Rounding::Down => self.value - half_unit,
            Rounding::Nearest => self.value,
            Rounding::Up => self.value + half_unit,
        }
    }

    /// The same number in a unit that is a thousandth, with the same digits: 0.0598 us are 59.8 ns.
    #[must_use]
    pub fn in_thousandths(self) -> Self {
        Self { value: self.value * 1e3, decimals: self.decimals.saturating_sub(3) }
    }

    /// Another number, printed with as many decimals.
    pub fn like(self, number: f64) -> String {
        // A number that rounds to zero has no sign.
        let text = format!("{number:.*}", self.decimals);
        if text.trim_start_matches('-').bytes().all(|digit| matches!(digit, b'0' | b'.')) {
            return text.trim_start_matches('-').to_owned();
        }
        text
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.*}", self.decimals, self.value)
    }
}

impl FromStr for Printed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let value = text.parse().map_err(|_| format!("\"{text}\" is not a number"))?;
        Ok(Self { value, decimals })
    }
}

impl TryFrom<String> for Printed {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Printed {
        text.parse().unwrap()
    }

    #[test]
    fn trailing_zeros_are_digits_too() {
        assert_eq!(printed("0.0180").to_string(), "0.0180");
        assert!((printed("0.0180").at(Rounding::Up) - 0.01805).abs() < 1e-12);
        assert!((printed("0.018").at(Rounding::Down) - 0.0175).abs() < 1e-12);
        assert!((printed("-3").at(Rounding::Down) + 3.5).abs() < 1e-12);
    }

    #[test]
    fn a_smaller_unit_keeps_the_digits() {
        for (us, ns) in [("0.0598", "59.8"), ("0.000363", "0.363"), ("0.0180", "18.0"), ("0.02", "20")] {
            assert_eq!(printed(us).in_thousandths().to_string(), ns);
        }
    }

    #[test]
    fn another_number_gets_as_many_decimals_and_zero_no_sign() {
        assert_eq!(printed("2.46").like(2.444_4), "2.44");
        assert_eq!(printed("0").like(-0.01), "0");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        assert!("about 5".parse::<Printed>().is_err());
    }
}
