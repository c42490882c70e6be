//! `ID.csv`: one line for each point of each sitting, for programs that draw or calculate.

use crate::measurement::StepResult;
use crate::placement::Placement;
use crate::samples::Samples;

/// The columns.
const COLUMNS: [&str; 12] = [
    "experiment",
    "setting",
    "series",
    "x",
    "quantity",
    "sitting",
    "placement",
    "steal",
    "median",
    "p5",
    "p95",
    "samples",
];

/// The lines of all steps, under a heading. Medians and percentiles are in the quantity's unit.
pub fn text(steps: &[StepResult]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail, and all records are equally long.
    let _ = writer.write_record(COLUMNS);
    for step in steps {
        for one in &step.measured {
            let samples: Samples = one.samples.iter().collect();
            let [p5, median, p95] = [0.05, 0.5, 0.95].map(|quantile| samples.quantile(quantile).to_string());
            let _ = writer.write_record([
                step.experiment.as_str(),
                &one.setting,
                &one.series,
                &one.x.to_string(),
                one.quantity.name(),
                &step.sitting.to_string(),
                step.placement.map_or("", Placement::name),
                &step.steal.map_or(String::new(), |steal| format!("{steal:.4}")),
                &median,
                &p5,
                &p95,
                &one.samples.len().to_string(),
            ]);
        }
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Measured, Quantity};

    #[test]
    fn a_line_has_the_median_and_what_it_is_of() {
        let measured = Measured {
            series: "copy, \"cold\"".to_owned(),
            setting: String::new(),
            x: 64,
            quantity: Quantity::CpuTime,
            samples: (1..=100).collect(),
        };
        let step = StepResult {
            experiment: "latency".to_owned(),
            step: "64 B".to_owned(),
            sitting: 1,
            placement: None,
            steal: Some(0.25),
            measured: vec![measured],
        };
        let text = text(&[step]);
        assert_eq!(text.lines().next(), Some(COLUMNS.join(",").as_str()));
        assert_eq!(
            text.lines().nth(1),
            Some("latency,,\"copy, \"\"cold\"\"\",64,cpu-time,1,,0.2500,50,5,95,100")
        );
    }
}
