//! What was found: of each promise, in each configuration.

use std::collections::BTreeMap;
use std::fmt;

use crate::machine::skip;
use crate::promise::Promise;
use crate::promises::PROMISES;
use crate::setup::Setup;

/// What came of trying a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It was kept.
    Kept,
    /// It was broken; this was seen.
    Broken(String),
    /// It was broken by not going on; this was seen. The thread in which it was tried is left behind, with what it holds.
    Stuck(String),
    /// It does not concern the subject, for this reason.
    NotApplicable(String),
    /// The machine cannot try it, for this reason.
    NotTried(String),
    /// The subject was not opened, and gave this reason: the machine has not what it needs, or it does not work.
    NotOpened(String),
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

impl Finding {
    /// The configuration, and why the promise could not be tried in it, if so.
    fn not_tried(&self) -> Option<(String, &str)> {
        match &self.verdict {
            Verdict::NotTried(why) | Verdict::NotOpened(why) => Some((self.setup.to_string(), why)),
            Verdict::Kept | Verdict::Broken(_) | Verdict::Stuck(_) | Verdict::NotApplicable(_) => None,
        }
    }
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

    /// Prints the report, and says SKIP of what could not be tried.
    ///
    /// # Panics
    /// A promise was broken, or none was kept, or the subject was opened for some promises of a configuration and not for others. What
    /// the machine cannot try is no reason to panic.
    #[track_caller]
    pub fn assert_kept(&self) {
        println!("{self}");
        let broken = self.count(|verdict| matches!(verdict, Verdict::Broken(_) | Verdict::Stuck(_)));
        assert_eq!(broken, 0, "{self}");
        assert!(self.is_enough(), "{self}: no promise was kept");
        if let Some(finding) = self.findings.iter().find(|finding| self.is_gone(finding)) {
            panic!("{self}: in {}, it was opened for some promises and not for others", finding.setup);
        }
        let mut not_tried = BTreeMap::<_, usize>::new();
        for reason in self.findings.iter().filter_map(Finding::not_tried) {
            *not_tried.entry(reason).or_default() += 1;
        }
        for ((setup, why), count) in &not_tried {
            let all = PROMISES.len();
            skip(&format!("{}, {setup} ({count} of {all} promises)", self.subject), why);
        }
    }

    /// Whether the subject was not opened, although the machine has what it needs: in the same configuration it was opened for another
    /// promise.
    fn is_gone(&self, finding: &Finding) -> bool {
        let was_opened = |other: &Finding| {
            let is_so = !matches!(other.verdict, Verdict::NotTried(_) | Verdict::NotOpened(_));
            other.setup == finding.setup && is_so
        };
        matches!(finding.verdict, Verdict::NotOpened(_)) && self.findings.iter().any(was_opened)
    }

    /// Whether a promise was kept, or the machine could try none.
    fn is_enough(&self) -> bool {
        let not_tried = self.count(|verdict| matches!(verdict, Verdict::NotTried(_)));
        let is_tried = not_tried < self.findings.len() || self.findings.is_empty();
        self.count(|verdict| *verdict == Verdict::Kept) > 0 || !is_tried
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("kept"),
            Self::Broken(seen) | Self::Stuck(seen) => write!(f, "BROKEN: {seen}"),
            Self::NotApplicable(why) => write!(f, "not applicable: {why}"),
            Self::NotTried(why) => write!(f, "not tried: {why}"),
            Self::NotOpened(why) => write!(f, "not opened: {why}"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{Buffering, Granules, Guard};

    fn report(verdicts: &[Verdict]) -> Report {
        let setup = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
        let finding = |verdict: &Verdict| Finding { promise: &PROMISES[0], setup, verdict: verdict.clone() };
        Report { subject: "a subject".to_owned(), findings: verdicts.iter().map(finding).collect() }
    }

    #[test]
    fn a_subject_must_be_opened_unless_the_machine_lacks_something() {
        let why = || "why".to_owned();
        let [kept, not_applicable] = [Verdict::Kept, Verdict::NotApplicable(why())];
        let [not_tried, not_opened] = [Verdict::NotTried(why()), Verdict::NotOpened(why())];
        for (verdicts, is_enough) in [
            (vec![], false),
            (vec![not_applicable.clone()], false),
            (vec![not_tried.clone()], true),
            (vec![not_tried.clone(), not_applicable], false),
            (vec![not_opened.clone()], false),
            (vec![not_opened.clone(), not_tried], false),
            (vec![not_opened, kept], true),
        ] {
            assert_eq!(report(&verdicts).is_enough(), is_enough, "{verdicts:?}");
        }
    }

    /// A server that died while the first promise was tried passed: all others were skipped.
    #[test]
    #[should_panic(expected = "it was opened for some promises and not for others")]
    fn a_subject_that_opens_once_must_open_again() {
        report(&[Verdict::Kept, Verdict::NotOpened("connection refused".to_owned())]).assert_kept();
    }
}
