//! The doctor's findings, each about one facility.

use super::remedy::Remedy;

/// How well a facility serves Genie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Nothing is lost.
    Ok,
    /// Something is slower, or works for some users or up to some size only.
    Degraded,
    /// The facility is not there.
    Missing,
}

impl State {
    /// The word for the state.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// One facility: its state, what was found, what that means for Genie, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Finding {
    /// The facility.
    pub(crate) subject: &'static str,
    /// How well it serves.
    pub(crate) state: State,
    /// What the kernel said, with its numbers.
    pub(crate) found: String,
    /// Which schemes gain or lose something, and what.
    pub(crate) meaning: String,
    /// What to do, where something can be done. Reports print the remedy's commands instead.
    #[serde(skip)]
    pub(crate) remedy: Option<Remedy>,
}

impl Finding {
    /// Says that nothing is lost.
    pub(crate) fn ok(subject: &'static str, found: impl Into<String>, meaning: &str) -> Self {
        Self { subject, state: State::Ok, found: found.into(), meaning: meaning.to_owned(), remedy: None }
    }

    /// Says that the facility serves only in part.
    pub(crate) fn degraded(subject: &'static str, found: impl Into<String>, meaning: &str) -> Self {
        Self { state: State::Degraded, ..Self::ok(subject, found, meaning) }
    }

    /// Says that the facility is not there.
    pub(crate) fn missing(subject: &'static str, found: impl Into<String>, meaning: &str) -> Self {
        Self { state: State::Missing, ..Self::ok(subject, found, meaning) }
    }

    /// Adds a remedy.
    pub(crate) fn with(self, remedy: Remedy) -> Self {
        Self { remedy: Some(remedy), ..self }
    }
}
