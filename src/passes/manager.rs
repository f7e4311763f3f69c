//! Sorts passes by their dependencies and runs them.

use super::Pass;
use crate::base::text::edit_distance;
use crate::error::{Context, Error, Result, Status};
use crate::graph::Graph;

/// Why a list of passes cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// Two passes have one name.
    #[error("two passes are named {0}")]
    Duplicate(&'static str),
    /// A name that no pass has.
    #[error("there is no pass {name:?}; the nearest is {nearest:?}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// A pass with a similar name.
        nearest: &'static str,
    },
    /// The dependencies go round.
    #[error("the passes depend on each other in a circle: {}", .0.join(" after "))]
    Cycle(Vec<&'static str>),
    /// A pass that is needed was switched off.
    #[error("pass {pass} cannot run without {missing}, which is switched off")]
    Disabled {
        /// The pass that stays.
        pass: &'static str,
        /// The pass that it needs.
        missing: &'static str,
    },
}

impl From<PassError> for Error {
    fn from(error: PassError) -> Self {
        Error::from_source(Status::InvalidArgument, error)
    }
}

/// Looks at the graph after each pass; an error ends the run.
pub type Observer<'a> = &'a mut dyn FnMut(&'static str, &Graph) -> Result<()>;

/// A list of passes in a valid order.
pub struct PassManager {
    passes: Vec<Box<dyn Pass>>,
}

impl PassManager {
    /// Sorts `passes`.
    pub fn new(passes: Vec<Box<dyn Pass>>) -> Result<Self, PassError> {
        for (index, pass) in passes.iter().enumerate() {
            if passes[..index].iter().any(|other| other.name() == pass.name()) {
                return Err(PassError::Duplicate(pass.name()));
            }
        }
        let manager = Self { passes: sort(passes)? };
        manager.check_requirements()?;
        Ok(manager)
    }

    /// Leaves out the named passes; refused when another pass needs one of them.
    pub fn without(self, names: &[&str]) -> Result<Self, PassError> {
        for name in names {
            self.find(name)?;
        }
        let manager = Self { passes: self.passes.into_iter().filter(|pass| !names.contains(&pass.name())).collect() };
        manager.check_requirements()?;
        Ok(manager)
    }

    /// # Errors
    /// [`PassError::Unknown`] when no pass has this name.
    pub fn check(&self, name: &str) -> Result<(), PassError> {
        self.find(name).map(|_| ())
    }

    /// The order.
    pub fn names(&self) -> Vec<&'static str> {
        self.passes.iter().map(|pass| pass.name()).collect()
    }

    /// Runs every pass, up to and including `last` when it is given, verifying the graph after each.
    pub fn run(&self, graph: &mut Graph, last: Option<&str>, observer: Observer<'_>) -> Result<()> {
        let end = match last {
            Some(name) => self.find(name)? + 1,
            None => self.passes.len(),
        };
        for pass in &self.passes[..end] {
            let name = pass.name();
            pass.run(graph).with_context(|| format!("pass {name}"))?;
            graph.verify().with_context(|| format!("after pass {name}"))?;
            observer(name, graph)?;
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, PassError> {
        self.passes.iter().position(|pass| pass.name() == name).ok_or_else(|| PassError::Unknown {
            name: name.to_owned(),
            nearest: self.names().into_iter().min_by_key(|known| edit_distance(known, name)).unwrap_or("(none)"),
        })
    }

    fn check_requirements(&self) -> Result<(), PassError> {
        let names = self.names();
        for pass in &self.passes {
            if let Some(&missing) = pass.requires().iter().find(|name| !names.contains(name)) {
                return Err(PassError::Disabled { pass: pass.name(), missing });
            }
        }
        Ok(())
    }
}

/// Repeatedly takes the first listed pass that waits for none of those still left.
fn sort(mut left: Vec<Box<dyn Pass>>) -> Result<Vec<Box<dyn Pass>>, PassError> {
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let ready = left.iter().position(|pass| waits_for(pass.as_ref(), &left).is_none());
        let Some(ready) = ready else { return Err(PassError::Cycle(cycle(&left))) };
        sorted.push(left.remove(ready));
    }
    Ok(sorted)
}

/// A pass among `left` that `pass` must come after.
fn waits_for(pass: &dyn Pass, left: &[Box<dyn Pass>]) -> Option<usize> {
    left.iter().position(|other| pass.after().contains(&other.name()) || pass.requires().contains(&other.name()))
}

/// Follows dependencies until a pass comes again; all of `left` wait for one of `left`.
fn cycle(left: &[Box<dyn Pass>]) -> Vec<&'static str> {
    let mut path = vec![0usize];
    loop {
        let next = waits_for(left[path[path.len() - 1]].as_ref(), left).expect("no pass of a cycle is ready");
        if let Some(start) = path.iter().position(|&seen| seen == next) {
            let mut names: Vec<_> = path[start..].iter().map(|&index| left[index].name()).collect();
            names.push(left[next].name());
            return names;
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str, &'static [&'static str], &'static [&'static str]);

    impl Pass for Named {
        fn name(&self) -> &'static str {
            self.0
        }
        fn after(&self) -> &'static [&'static str] {
            self.1
        }
        fn requires(&self) -> &'static [&'static str] {
            self.2
        }
        fn run(&self, _: &mut Graph) -> Result<usize> {
            Ok(0)
        }
    }

    fn manager(passes: &[Named]) -> Result<PassManager, PassError> {
        PassManager::new(passes.iter().map(|p| Box::new(Named(p.0, p.1, p.2)) as Box<dyn Pass>).collect())
    }

    #[test]
    fn order_is_topological_and_stable() {
        let sorted =
            manager(&[Named("d", &["c"], &[]), Named("a", &[], &[]), Named("c", &["a"], &[]), Named("b", &[], &[])]);
        assert_eq!(sorted.unwrap().names(), ["a", "c", "d", "b"]);
    }

    #[test]
    fn a_cycle_is_named() {
        let error =
            manager(&[Named("x", &[], &[]), Named("a", &["b"], &[]), Named("b", &["c"], &[]), Named("c", &["a"], &[])]);
        assert_eq!(
            error.err().unwrap().to_string(),
            "the passes depend on each other in a circle: a after b after c after a"
        );
    }

    #[test]
    fn a_missing_requirement_is_refused_by_name() {
        let passes = || manager(&[Named("fold", &[], &[]), Named("fuse", &[], &["fold"])]).unwrap();
        assert_eq!(passes().without(&["fuse"]).unwrap().names(), ["fold"]);
        let error = passes().without(&["fold"]).err().unwrap();
        assert_eq!(error, PassError::Disabled { pass: "fuse", missing: "fold" });
        let error = passes().without(&["fuze"]).err().unwrap();
        assert_eq!(error, PassError::Unknown { name: "fuze".into(), nearest: "fuse" });
    }

    #[test]
    fn two_passes_of_one_name_are_refused() {
        assert_eq!(manager(&[Named("a", &[], &[]), Named("a", &[], &[])]).err(), Some(PassError::Duplicate("a")));
    }
}
