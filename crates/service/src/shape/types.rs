//! The named types of a signature: which there are, and what is known of each.
//!
//! Invariants: a type is told from others by the visitor that serde reads it with, not by its name alone, so two types of one
//! name have two definitions, and only what really is within itself counts as such.

use std::any::TypeId;

use serde::de::Error as _;
use serde::de::value::Error;

/// How many types may be within each other, and how many of these within themselves. A type without an end is given up there.
const DEEPEST: usize = 512;
const DEEPEST_WITHIN: usize = 64;

/// How many types a pass visits, at most, and how many all passes over a parameter do.
const VISITS: usize = 10_000;
const VISITS_IN_ALL: usize = 200_000;

/// What tells types apart: the visitor, the name, and the names of the fields or variants.
pub(super) type Key = (TypeId, &'static str, &'static [&'static str]);

/// The named types that were found in a signature, and where a pass over a type is.
#[derive(Debug, Default)]
pub struct Types {
    /// In the order in which they were found.
    named: Vec<Named>,
    /// The types that are being visited, outermost first, and whether each is within itself.
    visiting: Vec<(Key, bool)>,
    /// How many of these are within themselves. Then nothing is written down.
    within: usize,
    /// How many visits there were of types within themselves.
    returns: usize,
    visits: usize,
    visits_in_all: usize,
    /// How many passes have found nothing new.
    quiet: usize,
}

/// A named type.
#[derive(Debug)]
struct Named {
    key: Key,
    /// Its name in the signature.
    text: String,
    /// An enum's variants, or what a struct consists of.
    parts: Vec<Part>,
    is_enum: bool,
    /// The variant to be visited next.
    next: usize,
    /// A variant in which the enum is not.
    end: Option<usize>,
}

/// A variant, or all of a struct.
#[derive(Debug, Default, Clone)]
struct Part {
    fields: String,
    /// Nothing in it has refused what it was given.
    is_whole: bool,
}

/// A visit of a named type.
pub(super) struct Visit {
    number: usize,
    pub(super) variant: usize,
    returns: usize,
}

impl Types {
    /// Begins with another parameter.
    pub(super) fn start(&mut self) {
        (self.quiet, self.visits_in_all) = (0, 0);
    }

    /// Begins another pass, if it may find what others have not. A variant may be found in one of several variants of one of
    /// several enums.
    pub(super) fn go_on(&mut self) -> bool {
        let choices: usize = self.named.iter().map(|named| named.parts.len().saturating_sub(1)).sum();
        let is_hopeful = self.quiet <= choices * choices && self.visits_in_all < VISITS_IN_ALL;
        self.quiet += 1;
        self.visits = 0;
        is_hopeful
    }

    pub(super) fn is_complete(&self) -> bool {
        self.named.iter().all(|named| named.parts.iter().all(|part| part.is_whole))
    }

    /// Whether lists are empty, so that a type within itself has an end.
    pub(super) fn is_within(&self) -> bool {
        self.within > 0
    }

    /// Notes that a type is being visited, until [`Types::leave`].
    pub(super) fn enter(&mut self, key: Key) -> Result<(), Error> {
        (self.visits, self.visits_in_all) = (self.visits + 1, self.visits_in_all + 1);
        let is_too_deep = self.visiting.len() == DEEPEST || self.within == DEEPEST_WITHIN;
        if is_too_deep || self.visits >= VISITS {
            return Err(Error::custom("the type is within itself everywhere, or is too large"));
        }
        let is_within_itself = self.visiting.iter().any(|(other, _)| *other == key);
        self.visiting.push((key, is_within_itself));
        self.within += usize::from(is_within_itself);
        self.returns += usize::from(is_within_itself);
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        let left = self.visiting.pop();
        self.within -= usize::from(left.is_some_and(|(_, is_within_itself)| is_within_itself));
    }

    /// Notes that a named type is being visited, until [`Types::leave_named`], and writes its name behind `text`.
    pub(super) fn enter_named(
        &mut self,
        key: Key,
        variants: Option<&'static [&'static str]>,
        text: &mut String,
    ) -> Result<Visit, Error> {
        let number = self.number(key, variants);
        *text += &self.named[number].text;
        if variants.is_some_and(<[_]>::is_empty) {
            return Err(Error::custom("the type has no values"));
        }
        self.enter(key)?;
        let is_first = !self.is_within();
        let named = &mut self.named[number];
        let variant = match named.end {
            _ if is_first => named.next,
            Some(end) => end,
            None => self.visiting.len() % named.parts.len(),
        };
        named.next = (named.next + usize::from(is_first)) % named.parts.len();
        Ok(Visit { number, variant, returns: self.returns })
    }

    /// Notes which fields a named type has, if it is not within itself.
    pub(super) fn leave_named(&mut self, visit: &Visit, fields: String, is_whole: bool) {
        let named = &mut self.named[visit.number];
        if is_whole && self.returns == visit.returns {
            named.end = Some(visit.variant);
        }
        let part = &mut named.parts[visit.variant];
        if self.within == 0 && !part.is_whole && (is_whole || fields.len() > part.fields.len()) {
            *part = Part { fields, is_whole };
            self.quiet = 0;
        }
        self.leave();
    }

    fn number(&mut self, key: Key, variants: Option<&'static [&'static str]>) -> usize {
        if let Some(number) = self.named.iter().position(|named| named.key == key) {
            return number;
        }
        let is_usual = key.1.starts_with(char::is_uppercase);
        let mut text = if is_usual { word(key.1) } else { format!("{:?}", key.1) };
        match self.named.iter().filter(|named| named.key.1 == key.1).count() {
            0 => {}
            others => text += &format!("#{}", others + 1),
        }
        let parts = vec![Part::default(); variants.map_or(1, <[_]>::len)];
        self.named.push(Named { key, text, parts, is_enum: variants.is_some(), next: 0, end: None });
        self.named.len() - 1
    }

    /// What the names stand for. What was not, or not all, found out ends with a question mark.
    pub(crate) fn definitions(&self) -> Vec<String> {
        let part = |part: &Part| part.fields.clone() + if part.is_whole { "" } else { "?" };
        let definition = |named: &Named| match named.is_enum {
            false => named.text.clone() + &part(&named.parts[0]),
            true => {
                let variants = named.key.2.iter().zip(&named.parts);
                let variants = variants.map(|(variant, found)| word(variant) + &part(found));
                format!("{} {{ {} }}", named.text, variants.collect::<Vec<_>>().join(", "))
            }
        };
        self.named.iter().map(definition).collect()
    }
}

/// A name, in quotation marks if it could be taken for something else.
pub(super) fn word(name: &str) -> String {
    match name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        true => name.to_owned(),
        false => format!("{name:?}"),
    }
}
