//! The exporter's options of a QnnBackend delegate: the flatbuffer `QnnExecuTorchOptions` under the key
//! `qnn_compile_spec`, in today's field numbering and in that of 2025 (which had a list of graph names as third field).
//!
//! Nothing in it is needed to run a context binary, so what cannot be read is `None`, and loading goes on.

use super::soc::Soc;
use crate::base::flatbuffer::{Buffer, Fields, Scalar, Table, build};
use crate::pte::CompileSpec;

/// The key of the compile spec.
pub const COMPILE_SPEC_KEY: &str = "qnn_compile_spec";

/// What the delegate was compiled for. `None`: the file does not say, or not readably.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompileOptions {
    /// QNN's number of the SoC; see [`soc_name`].
    pub soc_model: Option<u32>,
    /// Hexagon version: 75 for V75.
    pub htp_arch: Option<u32>,
    /// On-chip memory that the graphs may use, in MB.
    pub vtcm_mb: Option<u32>,
    /// Which QNN library: 1 GPU, 2 HTP, 3 DSP, 4 LPAI.
    pub backend_type: Option<u32>,
    /// Options of the HTP library.
    pub htp: Option<HtpOptions>,
    /// QNN log level the exporter asked for, 0 (off) to 5.
    pub log_level: Option<u32>,
    /// Whether the graph is to be compiled on the device.
    pub online_prepare: Option<bool>,
    /// Whether inputs and outputs are to lie in memory shared with the device.
    pub shared_buffer: Option<bool>,
    /// Whether the blob came from a context binary made elsewhere.
    pub from_context_binary: Option<bool>,
    /// Whether attention heads were separated.
    pub use_mha2sha: Option<bool>,
    /// Names of the graphs, which files of 2025 state here.
    pub graph_names: Vec<String>,
}

/// The part for the HTP library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HtpOptions {
    /// Largest spill-fill buffer of all contexts in bytes, which they then share; 0 where it is not known.
    pub max_spill_fill: u32,
    /// Power mode, 0 (default) to 8; 2 is burst.
    pub performance_mode: u32,
    /// 0 quantized, 1 half precision.
    pub precision: u32,
    /// 0 unsigned process domain, 1 signed.
    pub pd_session: u32,
    /// Whether several contexts share one spill-fill buffer.
    pub use_multi_contexts: bool,
    /// Whether graphs of one context share weights.
    pub use_weight_sharing: bool,
}

/// Field numbers of the root table that moved when the list of graph names went.
struct Numbering {
    log_level: u16,
    online_prepare: u16,
    shared_buffer: u16,
    from_context_binary: u16,
    use_mha2sha: u16,
    /// Of the HTP table, which lost the skel library's directory at the same time.
    use_multi_contexts: u16,
    use_weight_sharing: u16,
}

const TODAY: Numbering = Numbering {
    log_level: 3,
    online_prepare: 4,
    shared_buffer: 7,
    from_context_binary: 8,
    use_mha2sha: 12,
    use_multi_contexts: 7,
    use_weight_sharing: 8,
};

const OF_2025: Numbering = Numbering {
    log_level: 4,
    online_prepare: 5,
    shared_buffer: 8,
    from_context_binary: 9,
    use_mha2sha: 13,
    use_multi_contexts: 8,
    use_weight_sharing: 9,
};

/// Fields of today's root table that are written empty.
const LIBRARY_PATH: u16 = 2;
const SAVER_FOLDER: u16 = 10;
const OPERATOR_PACKAGES: u16 = 11;

impl CompileOptions {
    /// The options among a delegate's compile specs; all unknown when they are not there.
    pub fn find(specs: &[CompileSpec]) -> Self {
        specs.iter().find(|spec| spec.key == COMPILE_SPEC_KEY).map(|spec| Self::parse(&spec.value)).unwrap_or_default()
    }

    /// Reads what can be read.
    pub fn parse(bytes: &[u8]) -> Self {
        let buffer = Buffer::new(bytes);
        let Ok(root) = buffer.root() else {
            return Self::default();
        };
        let graph_names = root.strings(2).unwrap_or_default();
        let numbering = if graph_names.is_empty() { TODAY } else { OF_2025 };
        let root = Some(root);
        let soc = table(root, 0);
        let htp_info = table(soc, 1);
        let backend = table(root, 1);
        let htp = table(backend, 1);
        let htp_options = || {
            Some(HtpOptions {
                max_spill_fill: number(htp, 0)?,
                performance_mode: number(htp, 1)?,
                precision: number(htp, 2)?,
                pd_session: number(htp, 3)?,
                use_multi_contexts: flag(htp, numbering.use_multi_contexts)?,
                use_weight_sharing: flag(htp, numbering.use_weight_sharing)?,
            })
        };
        Self {
            soc_model: number(soc, 0),
            htp_arch: number(htp_info, 0),
            vtcm_mb: number(htp_info, 1),
            backend_type: number(backend, 0),
            htp: htp_options(),
            log_level: number(root, numbering.log_level),
            online_prepare: flag(root, numbering.online_prepare),
            shared_buffer: flag(root, numbering.shared_buffer),
            from_context_binary: flag(root, numbering.from_context_binary),
            use_mha2sha: flag(root, numbering.use_mha2sha),
            graph_names: graph_names.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Writes them in today's numbering; unknown options are left out, and graph names have no place there. ExecuTorch
    /// reads two paths and a list of operator packages without asking whether they are there, so they are, and empty.
    pub fn encode(&self) -> Vec<u8> {
        let htp_info = with(with(Fields::new(), 0, self.htp_arch), 1, self.vtcm_mb);
        let soc = with(Fields::new(), 0, self.soc_model).table(1, htp_info);
        let mut backend = with(Fields::new(), 0, self.backend_type);
        if let Some(htp) = self.htp {
            let fields = Fields::new()
                .scalar(0, htp.max_spill_fill)
                .scalar(1, htp.performance_mode)
                .scalar(2, htp.precision)
                .scalar(3, htp.pd_session)
                .scalar(TODAY.use_multi_contexts, htp.use_multi_contexts)
                .scalar(TODAY.use_weight_sharing, htp.use_weight_sharing);
            backend = backend.table(1, fields);
        }
        let root = Fields::new().table(0, soc).table(1, backend).string(LIBRARY_PATH, "").string(SAVER_FOLDER, "");
        let root = root.table(OPERATOR_PACKAGES, Fields::new().tables(0, []));
        let mut root = with(root, TODAY.log_level, self.log_level);
        for (id, value) in [
            (TODAY.online_prepare, self.online_prepare),
            (TODAY.shared_buffer, self.shared_buffer),
            (TODAY.from_context_binary, self.from_context_binary),
            (TODAY.use_mha2sha, self.use_mha2sha),
        ] {
            root = with(root, id, value);
        }
        build(root, [0; 4], 0)
    }

    /// `SM8650 (57), V75, 8 MB VTCM`, with `unknown` where the file is silent.
    pub fn target(&self) -> String {
        let unknown = || "unknown".to_owned();
        let soc = self.soc_model.map(|model| match soc_name(model) {
            Some(name) => format!("{name} ({model})"),
            None => format!("SoC model {model}"),
        });
        let arch = self.htp_arch.map(|arch| format!("V{arch}"));
        let vtcm = self.vtcm_mb.map(|mb| format!("{mb} MB VTCM"));
        match (&soc, &arch, &vtcm) {
            (None, None, None) => unknown(),
            _ => [soc, arch, vtcm].map(|part| part.unwrap_or_else(unknown)).join(", "),
        }
    }
}

/// A child that is there and readable.
fn table<'a>(parent: Option<Table<'a>>, id: u16) -> Option<Table<'a>> {
    parent?.table(id).ok().flatten()
}

/// 0 when not stored, `None` when unreadable.
fn number(parent: Option<Table<'_>>, id: u16) -> Option<u32> {
    parent?.scalar(id, 0).ok()
}

/// False when not stored, `None` when unreadable.
fn flag(parent: Option<Table<'_>>, id: u16) -> Option<bool> {
    parent?.scalar(id, false).ok()
}

/// `fields` with `value`, if there is one.
fn with<'a, T: Scalar>(fields: Fields<'a>, id: u16, value: Option<T>) -> Fields<'a> {
    match value {
        Some(value) => fields.scalar(id, value),
        None => fields,
    }
}

/// Name of a SoC model.
pub fn soc_name(model: u32) -> Option<&'static str> {
    Soc::of_model(model).map(|soc| soc.name)
}

#[cfg(test)]
mod tests;
