//! Which experiments a run consists of: those asked for, and those that they need.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::experiment::Experiment;

/// The word that stands for all experiments.
pub const ALL: &str = "all";

/// The experiments of these ids and those that they need, in the order of `known`.
///
/// # Errors
/// An id is not known.
pub fn plan<'e>(known: &[&'e dyn Experiment], ids: &[String]) -> Result<Vec<&'e dyn Experiment>> {
    let mut wanted = BTreeSet::new();
    for id in ids {
        if id == ALL {
            wanted.extend(known.iter().map(|experiment| experiment.declaration().id));
        } else {
            want(known, id, &mut wanted)?;
        }
    }
    Ok(known.iter().copied().filter(|experiment| wanted.contains(experiment.declaration().id)).collect())
}

fn want(known: &[&dyn Experiment], id: &str, wanted: &mut BTreeSet<&'static str>) -> Result<()> {
    let Some(experiment) = known.iter().find(|experiment| experiment.declaration().id == id) else {
        let known = known.iter().map(|experiment| experiment.declaration().id).collect();
        return Err(Error::NoExperiment { id: id.to_owned(), known });
    };
    let declaration = experiment.declaration();
    if wanted.insert(declaration.id) {
        // An experiment that is needed but not known is left out: when the other experiment concludes, it reports what is
        // missing.
        let is_known = |need: &&&str| known.iter().any(|other| other.declaration().id == **need);
        declaration.needs.iter().filter(is_known).try_for_each(|need| want(known, need, wanted))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::experiments;

    #[test]
    fn what_an_experiment_needs_comes_before_it() {
        let ids: Vec<_> = experiments::ALL.iter().map(|one| one.declaration().id).collect();
        for (index, one) in experiments::ALL.iter().enumerate() {
            for need in one.declaration().needs {
                assert!(!ids[index..].contains(need), "{} needs {need}, which comes after it", ids[index]);
            }
        }
    }
}
