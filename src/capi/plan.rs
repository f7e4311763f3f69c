//! From options as they were set to options that have been found complete: what a runner is made of.

use crate::builtin::ProgramOptions;
use crate::error::{Error, Result, Status};
use crate::runner::{EvalMode, LookaheadConfig, RunnerOptions};
use crate::runtime::Host;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

/// Options as they were set, one by one.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    pub(super) model_path: Option<PathBuf>,
    pub(super) tokenizer_path: Option<PathBuf>,
    /// Takes the place of a model path.
    pub(super) host: Option<Arc<Host>>,
    pub(super) program: ProgramOptions,
    pub(super) runner: RunnerOptions,
    pub(super) ngram: Option<usize>,
    pub(super) window: Option<usize>,
    pub(super) gcap: Option<usize>,
}

/// Options that have been found complete and consistent.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// What runs the program, when that is the host.
    pub(super) host: Option<Arc<Host>>,
    /// `None`: the built-in one.
    pub(super) model_path: Option<PathBuf>,
    /// `None`, which only goes with the built-in model: that model's.
    pub(super) tokenizer_path: Option<PathBuf>,
    pub(super) program: ProgramOptions,
    pub(super) runner: RunnerOptions,
}

impl Settings {
    /// Checks everything that can be known without reading a file's content.
    pub(super) fn plan(&self) -> Result<Plan> {
        let chosen = |path: &Option<PathBuf>, what| path.as_deref().map(|path| chosen_file(path, what)).transpose();
        let model_path = chosen(&self.model_path, "model")?;
        let tokenizer_path = chosen(&self.tokenizer_path, "tokenizer")?;
        if model_path.is_some() && self.host.is_some() {
            return Err(invalid("the options name a model file beside a host module, which has its own".into()));
        }
        if (model_path.is_some() || self.host.is_some()) && tokenizer_path.is_none() {
            return Err(invalid("the options name no tokenizer file".into()));
        }
        if model_path.is_none() && self.host.is_none() && tokenizer_path.is_some() {
            return Err(invalid("the options name a tokenizer file and no model; the built-in one has its own".into()));
        }
        let runner = RunnerOptions { lookahead: self.lookahead()?, ..self.runner.clone() };
        Ok(Plan { host: self.host.clone(), model_path, tokenizer_path, program: self.program.clone(), runner })
    }

    fn lookahead(&self) -> Result<Option<LookaheadConfig>> {
        match (self.ngram, self.window, self.gcap) {
            (Some(ngram), Some(window), Some(gcap)) => Ok(Some(LookaheadConfig { ngram, window, gcap })),
            (None, None, None) if self.runner.eval_mode != Some(EvalMode::Lookahead) => Ok(None),
            _ => Err(invalid("lookahead decoding needs all three of ngram, window and gcap".into())),
        }
    }
}

pub(super) fn chosen_file(path: &Path, what: &str) -> Result<PathBuf> {
    // A missing file too, as with ExecuTorch's own loaders.
    let failed = |error: io::Error| {
        Error::from_source(Status::AccessFailed, error).context(format!("{what} file {}", path.display()))
    };
    // Opening comes second: opening a pipe would wait.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::new(Status::AccessFailed, format!("{what} file {}: not a file", path.display())));
    }
    fs::File::open(path).map_err(failed)?;
    Ok(path.to_owned())
}

pub(super) fn invalid(message: String) -> Error {
    Error::new(Status::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings whose two files exist, and that file.
    fn settings() -> (Settings, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = Some(file.path().to_owned());
        (Settings { model_path: path.clone(), tokenizer_path: path, ..Settings::default() }, file)
    }

    fn refused(change: impl FnOnce(&mut Settings, &Path)) -> (Status, String) {
        let (mut settings, file) = settings();
        assert!(settings.plan().is_ok());
        change(&mut settings, file.path());
        let error = settings.plan().unwrap_err();
        (error.status(), error.chain())
    }

    #[test]
    fn without_a_model_the_built_in_one_is_taken() {
        let plan = Settings::default().plan().unwrap();
        assert_eq!((plan.model_path, plan.tokenizer_path), (None, None));
    }

    #[test]
    fn a_model_without_a_tokenizer_is_refused() {
        let want = (Status::InvalidArgument, "the options name no tokenizer file".to_owned());
        assert_eq!(refused(|settings, _| settings.tokenizer_path = None), want);
    }

    #[test]
    fn a_tokenizer_without_a_model_is_refused() {
        let want = "the options name a tokenizer file and no model; the built-in one has its own".to_owned();
        assert_eq!(refused(|settings, _| settings.model_path = None), (Status::InvalidArgument, want));
    }

    #[test]
    fn missing_file_is_refused_by_name() {
        let (status, text) = refused(|settings, file| settings.model_path = Some(file.with_extension("none")));
        assert!(status == Status::AccessFailed && text.starts_with("model file") && text.contains(".none: "), "{text}");
    }

    #[test]
    fn directory_is_refused() {
        let (status, text) = refused(|settings, file| settings.tokenizer_path = file.parent().map(Path::to_owned));
        assert!(status == Status::AccessFailed && text.ends_with(": not a file"), "{text}");
    }

    #[test]
    fn lookahead_without_all_sizes_is_refused() {
        let want = "lookahead decoding needs all three of ngram, window and gcap";
        let some = refused(|settings, _| settings.ngram = Some(3));
        let none = refused(|settings, _| settings.runner.eval_mode = Some(EvalMode::Lookahead));
        assert_eq!((some.1.as_str(), none.1.as_str()), (want, want));
    }
}
