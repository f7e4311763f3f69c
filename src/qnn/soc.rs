//! The systems on chip that programs can be compiled for (table of ExecuTorch's `qc_schema.py`).

/// A SoC with an HTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Soc {
    /// `SM8650`
    pub name: &'static str,
    /// QNN's number of it.
    pub model: u32,
    /// Hexagon version: 75 for V75.
    pub htp_arch: u32,
    /// On-chip memory of the HTP, in MB.
    pub vtcm_mb: u32,
}

/// A name that no SoC of the table has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no SoC {name:?}; known are {}", names())]
pub struct UnknownSoc {
    /// What was asked for.
    pub name: String,
}

impl From<UnknownSoc> for crate::Error {
    fn from(error: UnknownSoc) -> Self {
        Self::from_source(crate::Status::InvalidArgument, error)
    }
}

fn names() -> String {
    SOCS.iter().map(|soc| soc.name).collect::<Vec<_>>().join(", ")
}

impl Soc {
    /// The SoC of this name, in upper or lower case.
    pub fn named(name: &str) -> Result<Self, UnknownSoc> {
        let found = SOCS.iter().find(|soc| soc.name.eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| UnknownSoc { name: name.to_owned() })
    }

    /// The SoC with this number.
    pub fn of_model(model: u32) -> Option<Self> {
        SOCS.iter().find(|soc| soc.model == model).copied()
    }
}

const fn soc(name: &'static str, model: u32, htp_arch: u32, vtcm_mb: u32) -> Soc {
    Soc { name, model, htp_arch, vtcm_mb }
}

/// All of them.
pub const SOCS: &[Soc] = &[
    soc("SM8350", 30, 68, 4),
    soc("SM8450", 36, 69, 8),
    soc("SA8295", 39, 68, 8),
    soc("SM8475", 42, 69, 8),
    soc("SM8550", 43, 73, 8),
    soc("SXR1230P", 45, 73, 2),
    soc("SSG2115P", 46, 73, 2),
    soc("SA8255", 52, 73, 8),
    soc("SXR2230P", 53, 69, 8),
    soc("SM8650", 57, 75, 8),
    soc("SSG2125P", 58, 73, 2),
    soc("SC8380XP", 60, 73, 8),
    soc("SM8750", 69, 79, 8),
    soc("SA8797", 72, 81, 16),
    soc("SXR2330P", 75, 79, 8),
    soc("QCS9100", 77, 73, 8),
    soc("SM8850", 87, 81, 8),
    soc("QCM6490", 93, 68, 2),
    soc("SAR2230P", 95, 81, 4),
    soc("SW6100", 96, 81, 4),
    soc("SM8845", 97, 81, 8),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socs_are_found_by_name_and_by_number() {
        assert!(SOCS.is_sorted_by(|a, b| a.model < b.model));
        for soc in SOCS {
            assert_eq!(Soc::named(&soc.name.to_lowercase()), Ok(*soc));
            assert_eq!(Soc::of_model(soc.model), Some(*soc));
        }
        assert_eq!(Soc::of_model(1), None);
    }

    #[test]
    fn an_unknown_soc_is_refused_with_the_names_there_are() {
        let error = Soc::named("SM9999").unwrap_err().to_string();
        assert!(error.contains("SM9999") && error.contains("SM8650"), "{error}");
    }
}
