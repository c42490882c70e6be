//! What was found: of each promise, in each configuration.

use std::fmt;

use crate::promise::Promise;
use crate::setup::Setup;

/// What came of trying a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It was kept.
    Kept,
    /// It was broken; this was seen.
    Broken(String),
    /// It does not concern the subject, for this reason.
    NotApplicable(String),
    /// The machine cannot try it, for this reason.
    NotTried(String),
}

/// What was found of one promise in one configuration.
pub struct Finding {
    /// The promise.
    pub promise: &'static Promise,
    /// The configuration.
    pub setup: Setup,
    /// What came of it.
    pub verdict: Verdict,
}

/// What was found of all promises. Its `Display` has a line for each promise and verdict.
pub struct Report {
    pub(crate) subject: String,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    /// Each finding, promise by promise.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many findings are so.
    fn count(&self, is_so: fn(&Verdict) -> bool) -> usize {
        self.findings.iter().filter(|finding| is_so(&finding.verdict)).count()
    }

    /// Prints the report, and fails where a promise was broken or none was kept.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn assert_kept(&self) {
        println!("{self}");
        let broken = self.count(|verdict| matches!(verdict, Verdict::Broken(_)));
        assert_eq!(broken, 0, "{self}");
        let [kept, not_tried] =
            [|v: &Verdict| *v == Verdict::Kept, |v: &Verdict| matches!(v, Verdict::NotTried(_))]
                .map(|is_so| self.count(is_so));
        assert!(kept + not_tried > 0, "{self}: nothing was tried");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("kept"),
            Self::Broken(seen) => write!(f, "BROKEN: {seen}"),
            Self::NotApplicable(why) => write!(f, "not applicable: {why}"),
            Self::NotTried(why) => write!(f, "not tried: {why}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.count(|verdict| *verdict == Verdict::Kept);
        writeln!(f, "{}: {kept} of {} findings are of promises kept", self.subject, self.findings.len())?;
        for of_one in self.findings.chunk_by(|one, other| one.promise.name == other.promise.name) {
            let Promise { name, source, .. } = of_one[0].promise;
            let is_one = of_one.iter().all(|finding| finding.verdict == of_one[0].verdict);
            for Finding { setup, verdict, .. } in &of_one[..if is_one { 1 } else { of_one.len() }] {
                match is_one {
                    true => writeln!(f, "  {name} ({source}): {verdict}")?,
                    false => writeln!(f, "  {name} ({source}), {setup}: {verdict}")?,
                }
            }
        }
        Ok(())
    }
}
