//! Says what a failed QNN call was about, and what usually causes it.

use super::binary_info::BinaryInfo;
use super::compile_spec::CompileOptions;
use super::library::LibraryInfo;
use super::result::{CREATE_FROM_BINARY, QnnError};

/// What was at hand when the call failed.
pub(super) struct Facts<'a> {
    pub(super) library: &'a LibraryInfo,
    pub(super) method: &'a str,
    /// Which delegate of the method; with sharding, which shard.
    pub(super) delegate: usize,
    /// Size of the context binary.
    pub(super) size: usize,
    pub(super) options: &'a CompileOptions,
    /// What the binary holds, once known.
    pub(super) info: Option<&'a BinaryInfo>,
}

impl Facts<'_> {
    /// `error` with details and hint.
    pub(super) fn explain(&self, error: QnnError) -> QnnError {
        let hint = self.hint(&error);
        let Self { method, delegate, size, .. } = self;
        let mut error =
            error.detail(format!("method {method}, delegate (shard) {delegate}, context binary of {size} bytes"));
        if let Some(info) = self.info {
            error = error.detail(format!(
                "model build {}, core interface {}, backend {}, for {}",
                info.build_id,
                info.core,
                info.backend,
                self.options.target()
            ));
        } else {
            error = error.detail(format!("model for {}", self.options.target()));
        }
        error = error.detail(self.library.to_string());
        error.hint = error.hint.or(hint);
        error
    }

    fn hint(&self, error: &QnnError) -> Option<String> {
        let target = self.options.target();
        let older = self.info.filter(|info| info.core > self.library.core);
        Some(match (error.call, error.number()) {
            (_, 1002 | 1010 | 8003) => "the HTP is out of memory or address space (about 4 GB for a process): export \
                                         with more shards (num_sharding), and free other models first"
                .into(),
            ("QnnDevice_create" | "QnnBackend_create", 14001 | 14002 | 4000 | 1006..=1009) => {
                "the library could not open the device: libQnnHtpV<arch>Skel.so of the same SDK must be on \
                 ADSP_LIBRARY_PATH, libcdsprpc.so must be reachable, the process must be allowed an unsigned process \
                 domain, and the SoC must be the one that the model was compiled for"
                    .to_owned()
                    + &format!(" ({target})")
            }
            (CREATE_FROM_BINARY, 5000 | 5004 | 5008 | 5011) => match older {
                Some(info) => format!(
                    "the library is older than the model: it was built with core interface {}, the library has {}; use \
                     the QNN libraries of the SDK that exported the model, or later ones",
                    info.core, self.library.core
                ),
                None => format!("the library is older than the model, or the model is for another target ({target})"),
            },
            (CREATE_FROM_BINARY, 5005) => format!(
                "the model asks for what this device has not, often on-chip memory (VTCM); it was compiled for \
                 {target}: export it for this device's SoC"
            ),
            (CREATE_FROM_BINARY, 5007) => "the context binary is damaged: compare the file's checksum".into(),
            (_, 30_000..=30_999) => "the bytes are no QNN context binary that this libQnnSystem.so understands: the \
                                      program was exported for another backend, is damaged, or is newer than the \
                                      library"
                .into(),
            (_, 1008 | 1009) => "QNN libraries of different SDKs are mixed: take all from one".into(),
            (_, 1007 | 1011) => "the connection to the DSP broke; the model must be loaded anew".into(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qnn::Version;

    fn explained(call: &'static str, code: u64, info: Option<&BinaryInfo>) -> String {
        let core = Version { major: 2, minor: 36, patch: 0 };
        let library = LibraryInfo { build_id: "v2.47.0".into(), core, ..LibraryInfo::default() };
        let options =
            CompileOptions { soc_model: Some(57), htp_arch: Some(75), vtcm_mb: Some(8), ..CompileOptions::default() };
        let facts = Facts { library: &library, method: "kv_forward", delegate: 3, size: 817, options: &options, info };
        facts.explain(QnnError::new(call, code)).to_string()
    }

    #[test]
    fn every_known_fault_has_a_hint_that_names_its_cause() {
        for (call, code, words) in [
            ("QnnDevice_create", 14001, "ADSP_LIBRARY_PATH"),
            (CREATE_FROM_BINARY, 1002, "num_sharding"),
            (CREATE_FROM_BINARY, 1002, "delegate (shard) 3, context binary of 817 bytes"),
            (CREATE_FROM_BINARY, 5000, "older than the model, or the model is for another target"),
            (CREATE_FROM_BINARY, 5005, "SM8650 (57), V75, 8 MB VTCM"),
            ("QnnSystemContext_getMetaData", 30010, "another backend"),
        ] {
            let text = explained(call, code, None);
            assert!(text.contains(words), "{text}");
            assert!(text.contains("v2.47.0") && text.contains("2.36.0"), "{text}");
        }
    }

    #[test]
    fn o9_a_library_older_than_the_model_is_named_with_both_versions() {
        let info = BinaryInfo {
            version: 3,
            backend_id: 6,
            build_id: "v2.51.0".into(),
            core: Version { major: 2, minor: 40, patch: 0 },
            backend: Version::default(),
            blob_version: Version::default(),
            soc_version: String::new(),
            soc_model: Some(57),
            graphs: vec![],
        };
        let text = explained(CREATE_FROM_BINARY, 5000, Some(&info));
        assert!(text.contains("built with core interface 2.40.0, the library has 2.36.0"), "{text}");
        assert!(text.contains("model build v2.51.0") && text.contains("library build v2.47.0"), "{text}");
    }
}
