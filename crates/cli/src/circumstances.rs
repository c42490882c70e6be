//! How the costs were measured on which thresholds rest: what makes them doubtful, and what to do about it, in words.

use genie_passing::calibration::Circumstances;

/// What makes the costs doubtful, such as "measured under load (other programs had 65 % of the CPUs)"; none where nothing does.
pub(crate) fn doubt(circumstances: Circumstances) -> Option<String> {
    let Circumstances { load, optimized } = circumstances;
    let load = circumstances
        .is_loaded()
        .then(|| format!("under load (other programs had {:.0} % of the CPUs)", load * 100.0));
    let build = (!optimized).then(|| "by a build without optimization".to_owned());
    let doubts: Vec<_> = build.into_iter().chain(load).collect();
    (!doubts.is_empty()).then(|| format!("measured {}", doubts.join(" and ")))
}

/// What to do about doubtful costs.
pub(crate) fn remedy(circumstances: Circumstances) -> &'static str {
    // Each kind of build has costs of its own: to calibrate by another one would not change these.
    if circumstances.optimized {
        "repeat by `genie calibrate` when nothing else runs"
    } else {
        "use a release build, which measures costs of its own"
    }
}

/// The doubt and the remedy in one sentence; none where nothing is doubtful.
pub(crate) fn sentence(circumstances: Circumstances) -> Option<String> {
    doubt(circumstances).map(|doubt| format!("costs were {doubt}: {}", remedy(circumstances)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_and_debug_builds_are_doubts_and_a_little_load_is_none() {
        let said = |load, optimized| sentence(Circumstances { load, optimized });
        assert_eq!(said(0.1, true), None);
        assert_eq!(
            said(0.649, true).unwrap(),
            "costs were measured under load (other programs had 65 % of the CPUs): repeat by `genie calibrate` when nothing else runs"
        );
        assert_eq!(
            said(0.0, false).unwrap(),
            "costs were measured by a build without optimization: use a release build, which measures costs of its own"
        );
        assert!(said(0.5, false).unwrap().contains("by a build without optimization and under load (other"));
    }
}
