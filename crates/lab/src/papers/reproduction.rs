//! A printed result beside the same result computed anew from the printed inputs.
//!
//! Why: the inputs that a paper prints are rounded; its authors computed with more digits. A printed result that comes out
//! differently here is still right if some inputs that round to the printed ones give it.

use crate::papers::{Printed, Rounding};

/// How a printed result and the computed one agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// They agree in every digit.
    Digits,
    /// Some inputs that round to the printed inputs give the printed result.
    Rounding,
    /// No such inputs give the printed result.
    None,
}

/// A printed result and what the model computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reproduction {
    /// The paper's result.
    pub printed: Printed,
    /// The result computed from the printed inputs.
    pub computed: f64,
    /// The least result of inputs that round to the printed ones.
    pub least: f64,
    /// The greatest result of inputs that round to the printed ones.
    pub greatest: f64,
}

impl Reproduction {
    /// Computes a result three times: as small as the inputs' rounding lets it be, from the inputs as printed, and as
    /// great as possible.
    pub fn of(printed: Printed, result: impl Fn(Rounding) -> f64) -> Self {
        let [least, computed, greatest] = [Rounding::Down, Rounding::Nearest, Rounding::Up].map(result);
        Self { printed, computed, least, greatest }
    }

    /// How the two agree.
    pub fn agreement(&self) -> Agreement {
        let below = self.least <= self.printed.at(Rounding::Up);
        let above = self.greatest >= self.printed.at(Rounding::Down);
        if self.printed.like(self.computed) == self.printed.to_string() {
            Agreement::Digits
        } else if below && above {
            Agreement::Rounding
        } else {
            Agreement::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(printed: &str, inputs: [&str; 2]) -> Agreement {
        let inputs: Vec<Printed> = inputs.iter().map(|input| input.parse().unwrap()).collect();
        let result = |rounding| inputs.iter().map(|input| input.at(rounding)).sum();
        Reproduction::of(printed.parse().unwrap(), result).agreement()
    }

    #[test]
    fn a_sum_agrees_to_the_digit_within_rounding_or_not_at_all() {
        assert_eq!(sum("7", ["3", "4"]), Agreement::Digits);
        assert_eq!(sum("8", ["3", "4"]), Agreement::Rounding);
        assert_eq!(sum("9", ["3", "4"]), Agreement::None);
        assert_eq!(sum("5", ["3", "4"]), Agreement::None);
    }
}
