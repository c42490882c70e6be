//! Projections onto faster systems: Thadani and Khalidi, section 6.3 and appendix A.

use crate::model::projection::{Cost, Speedup, advantage, break_even, latency};
use crate::model::reproduced::{Cell, Reproduced};
use crate::papers::thadani::{self, Framework};
use crate::papers::{Rounding, row};

/// 8 KiB, in bits.
const BITS: f64 = 65_536.0;

/// A printed rate, in bits per microsecond.
fn rate(mbits: f64) -> f64 {
    mbits * 1.048_576
}

/// The cost that was measured with a framework: CC. No part of the cost of `fbufs` is copying.
pub fn cost(framework: &Framework, rounding: Rounding) -> Cost {
    let throughput = rate(framework.throughput.at(rounding.opposite()));
    let utilization = framework.utilization.at(rounding) / 100.0;
    Cost::measured(BITS, throughput, utilization, framework.copying.value())
}

/// The costs as printed, of fbufs and of a single copy: the paper goes on with these.
pub fn printed_costs(rounding: Rounding) -> (Cost, Cost) {
    let of = |name: &str| {
        let framework = row(thadani::frameworks(), |framework| framework.framework == name);
        Cost { total: framework.cost.at(rounding), copying: framework.copying.value() }
    };
    (of("fbufs"), of("single-copy"))
}

/// The copy speed-up at which nothing is left of the advantage, for the paper's CPU speed-up.
pub fn vanishing() -> Option<f64> {
    let (avoiding, copying) = printed_costs(Rounding::Nearest);
    break_even(avoiding, copying, 4.0)
}

/// Appendix A: latencies and costs from throughputs.
pub fn measured() -> Reproduced {
    let title = "Thadani and Khalidi, appendix A: latency and CPU time of 8 KiB, in µs";
    let frameworks = thadani::frameworks();
    let of_frameworks = frameworks.iter().flat_map(|framework| {
        let name = framework.framework.as_str();
        let slowest = |rounding: Rounding| rate(framework.throughput.at(rounding.opposite()));
        let el = |rounding| latency(BITS, slowest(rounding));
        let cc = |rounding| cost(framework, rounding).total;
        [
            Cell::of(name, "end-to-end latency", framework.latency, el),
            Cell::of(name, "computational cost", framework.cost, cc),
        ]
    });
    let of_networks = thadani::networks().into_iter().map(|network| {
        let bits = network.bytes.value() * 8.0;
        let nl = |rounding: Rounding| latency(bits, rate(network.rate.at(rounding.opposite())));
        Cell::of(format!("{} network", network.network), "network latency", network.latency, nl)
    });
    Reproduced { title, cells: of_frameworks.chain(of_networks).collect() }
}

/// Section 6.3: advantages on faster systems.
pub fn projected() -> Reproduced {
    let title = "Thadani and Khalidi, section 6.3: advantage of fbufs over a single copy, in per cent";
    let cells = thadani::projections().into_iter().map(|projection| {
        let speedup = Speedup { cpu: projection.cpu.value(), copy: projection.copy.value() };
        let percent = |rounding: Rounding| {
            let (avoiding, copying) = (printed_costs(rounding.opposite()).0, printed_costs(rounding).1);
            advantage(avoiding, copying, speedup) * 100.0
        };
        let row = format!("CPU {} times, copying {} times as fast", projection.cpu, projection.copy);
        Cell::of(row, "advantage", projection.advantage, percent)
    });
    Reproduced { title, cells: cells.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::Agreement;

    /// 8 KiB at 83.7 Mbit/s take 746.7 us; the printed 746 corresponds to 83.75 Mbit/s.
    #[test]
    fn appendix_a_is_reproduced_to_the_digit_but_for_one_latency() {
        let table = measured();
        assert_eq!(table.names(Agreement::Rounding), ["single-copy, end-to-end latency"]);
        assert_eq!((table.count(Agreement::Digits), table.count(Agreement::None)), (5, 0));
    }

    #[test]
    fn advantages_of_50_16_and_0_per_cent_are_reproduced_to_the_digit() {
        let table = projected();
        assert_eq!(table.count(Agreement::Digits), 3, "{:#?}", table.table());
    }

    #[test]
    fn nothing_is_left_at_a_copy_speedup_of_about_34() {
        assert_eq!(vanishing().unwrap().round(), 34.0);
    }

    /// Up to a CPU speed-up of 4 the CPU is slower than the network of 622 Mbit/s, as the projection assumes.
    #[test]
    fn projected_costs_stay_above_the_latency_of_the_faster_network() {
        let oc12 = row(thadani::networks(), |network| network.network == "OC12");
        let (avoiding, _) = printed_costs(Rounding::Nearest);
        assert!(avoiding.projected(Speedup { cpu: 4.0, copy: 4.0 }) > oc12.latency.value());
    }
}
