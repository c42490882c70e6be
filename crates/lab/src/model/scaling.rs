//! The scaling model: how another network, memory, cache or CPU changes the costs on one machine.
//!
//! How: each parameter of the costs is dominated by one thing. The base's factor goes with the network, copyout's with memory,
//! copyin's with the second-level cache or memory, depending on what the cache still holds. All other parameters go with the
//! speed of the CPU in integer programs. Copying has fixed terms, too, but these are an artefact of the fit, and are
//! ignored.
//! Source: Brustoloni, section 8.2.2, tables 8.8 and 8.9.

use statrs::statistics::Statistics;

use crate::model::breakdown::{BASE, Costs};
use crate::model::fit::Line;

/// The row of copying from a client.
const COPYIN: &str = "Copyin";
/// The row of copying to a client.
const COPYOUT: &str = "Copyout";

/// A kind of parameter, by what dominates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// The base's factor.
    Network,
    /// Copyout's factor.
    Memory,
    /// Copyin's factor.
    Cache,
    /// The factors of all operations but copying.
    CpuFactor,
    /// The fixed terms of all operations but copying.
    CpuFixed,
}

impl Parameter {
    /// All parameters, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::Network, Self::Memory, Self::Cache, Self::CpuFactor, Self::CpuFixed];

    /// The name in our tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Cache => "cache",
            Self::CpuFactor => "cpu factor",
            Self::CpuFixed => "cpu fixed",
        }
    }

    /// This parameter's values among some costs: one value, or one for each operation.
    fn values(self, costs: &Costs) -> Vec<(&str, f64)> {
        let of_cpu = |row: &str| ![BASE, COPYIN, COPYOUT].contains(&row);
        let is_it = |row: &str| match self {
            Self::Network => row == BASE,
            Self::Memory => row == COPYOUT,
            Self::Cache => row == COPYIN,
            Self::CpuFactor | Self::CpuFixed => of_cpu(row),
        };
        let term = |cost: Line| if self == Self::CpuFixed { cost.fixed } else { cost.factor };
        costs.iter().filter(|(row, _)| is_it(row)).map(|(row, cost)| (row, term(cost))).collect()
    }
}

/// The figures of a machine; rates are those of copying.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// How much the machine does in a given time in integer programs, in any unit.
    pub integer: f64,
    /// Whether that is an upper bound, so that the machine may do less.
    pub integer_is_bound: bool,
    /// The rate of copying within the second-level cache, in bytes per time.
    pub cache: f64,
    /// The rate of copying in main memory, in bytes per time.
    pub memory: f64,
}

/// An expectation of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expected {
    /// This value.
    Exactly(f64),
    /// This value or more.
    AtLeast(f64),
    /// A value from the first to the second.
    Between(f64, f64),
}

impl Expected {
    /// The least value expected.
    pub fn least(self) -> f64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) | Self::Between(number, _) => number,
        }
    }

    /// The greatest value expected, if there is one.
    pub fn greatest(self) -> Option<f64> {
        match self {
            Self::AtLeast(_) => None,
            Self::Exactly(number) | Self::Between(_, number) => Some(number),
        }
    }
}

/// The rate at which data goes over an ATM link, whose cells of 53 bytes hold 48 of data.
pub fn atm_payload(rate: f64) -> f64 {
    rate * 48.0 / 53.0
}

/// The cost of a byte, as far as it follows from a machine's figures and its network's rate, in bytes per time; none for
/// parameters that depend on the CPU. Adapter and bus may be slower than the network.
///
/// # Source
/// Table 8.8.
pub fn expected_cost(parameter: Parameter, figures: &Figures, network: f64) -> Option<Expected> {
    match parameter {
        Parameter::Network => Some(Expected::AtLeast(1.0 / network)),
        Parameter::Memory => Some(Expected::Exactly(1.0 / figures.memory)),
        Parameter::Cache => Some(Expected::Between(1.0 / figures.cache, 1.0 / figures.memory)),
        Parameter::CpuFactor | Parameter::CpuFixed => None,
    }
}

/// The ratio of costs on another machine to those on the machine of reference that the machines' figures let one expect;
/// none for the network, which belongs to no machine.
///
/// # Source
/// Table 8.9.
pub fn expected_ratio(parameter: Parameter, reference: &Figures, other: &Figures) -> Option<Expected> {
    match parameter {
        Parameter::Network => None,
        Parameter::Memory => Some(Expected::Exactly(reference.memory / other.memory)),
        Parameter::Cache => {
            // The least ratio: only the other machine copies within its cache. The greatest: only the machine of reference
            // does.
            Some(Expected::Between(reference.memory / other.cache, reference.cache / other.memory))
        }
        Parameter::CpuFactor | Parameter::CpuFixed => {
            let ratio = reference.integer / other.integer;
            Some(if other.integer_is_bound { Expected::AtLeast(ratio) } else { Expected::Exactly(ratio) })
        }
    }
}

/// The actual ratios of the parameters of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratios {
    /// How many operations have two costs above zero; for others a ratio says nothing.
    pub count: usize,
    /// Their geometric mean.
    pub geometric_mean: f64,
    /// The least ratio.
    pub least: f64,
    /// The greatest ratio.
    pub greatest: f64,
}

/// Compares the costs on another machine with those on the machine of reference; none if no operation was priced on both.
///
/// # Source
/// Table 8.9.
pub fn actual_ratios(parameter: Parameter, reference: &Costs, other: &Costs) -> Option<Ratios> {
    let theirs = parameter.values(other);
    let ratio = |(row, mine): (&str, f64)| {
        let (_, their) = theirs.iter().find(|(other, _)| *other == row)?;
        (mine > 0.0 && *their > 0.0).then_some(their / mine)
    };
    let ratios: Vec<f64> = parameter.values(reference).into_iter().filter_map(ratio).collect();
    (!ratios.is_empty()).then(|| Ratios {
        count: ratios.len(),
        geometric_mean: Statistics::geometric_mean(&ratios),
        least: Statistics::min(&ratios),
        greatest: Statistics::max(&ratios),
    })
}

/// The actual cost of a byte; none where the parameter has several costs, or where no such operation was priced.
pub fn actual_cost(parameter: Parameter, costs: &Costs) -> Option<f64> {
    match parameter.values(costs).as_slice() {
        [(_, cost)] => Some(*cost),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_without_cost_on_either_side_have_no_ratio() {
        let (mut one, mut other) = (Costs::new(), Costs::new());
        one.set("Reference", Line { factor: 2.0, fixed: 0.0 });
        one.set("Swap", Line { factor: 2.0, fixed: 4.0 });
        one.set("Wire", Line { factor: 9.0, fixed: 9.0 });
        other.set("Reference", Line { factor: 8.0, fixed: 5.0 });
        other.set("Swap", Line { factor: 4.0, fixed: -1.0 });
        let factor = actual_ratios(Parameter::CpuFactor, &one, &other).unwrap();
        assert_eq!((factor.count, factor.least, factor.greatest), (2, 2.0, 4.0));
        assert!((factor.geometric_mean - 8.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(actual_ratios(Parameter::CpuFixed, &one, &other), None);
        assert_eq!(actual_ratios(Parameter::Cache, &one, &other), None);
    }

    #[test]
    fn a_bound_of_the_rating_bounds_the_ratio_from_below() {
        let known = Figures { integer: 4.52, integer_is_bound: false, cache: 60.0, memory: 40.0 };
        let bounded = Figures { integer: 2.88, integer_is_bound: true, cache: 30.0, memory: 20.0 };
        let expected = |one, other| expected_ratio(Parameter::CpuFixed, one, other);
        assert!(matches!(expected(&known, &bounded), Some(Expected::AtLeast(_))));
        assert!(matches!(expected(&bounded, &known), Some(Expected::Exactly(_))));
    }
}
