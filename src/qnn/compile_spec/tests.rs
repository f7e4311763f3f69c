//! Options are read from both generations of files, written, and never make loading fail.

use super::*;

/// From an export of July 2025 (prefill_forward of a hybrid model).
const OF_JULY_2025: &str = concat!(
    "2400000000001e00260008000c001000140018000000000000000700000000001c0020001e00000000000001a0000000",
    "640000004400000038000000020000001c0000000c00000000000600080004000600000004000000000000000c000000",
    "73617665725f6f757470757400000000000000000000000001000000040000000f00000070726566696c6c5f666f7277",
    "61726400bcffffff02000000180000001400100000000800000000000c00060000000700140000000000010102000000",
    "040000000000000000000000f4ffffff390000000c00000008000c0004000800080000004b00000008000000",
);
/// From an export of July 2026.
const OF_JULY_2026: &str = concat!(
    "2400000000001e00220008000c001000140000000000000000000000000018001c0007001e000000000000017c000000",
    "4c00000038000000010000001c0000000c00000000000600080004000600000004000000000000000c00000073617665",
    "725f6f757470757400000000000000000000000008000e0004000800080000000200000018000000000012000c000000",
    "080000000000060000000700120000000000010102000000f4ffffff390000000c00000008000c000400080008000000",
    "4b00000008000000",
);

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn options_of_both_generations_are_read() {
    let htp = HtpOptions { performance_mode: 2, ..HtpOptions::default() };
    let newer = CompileOptions {
        soc_model: Some(57),
        htp_arch: Some(75),
        vtcm_mb: Some(8),
        backend_type: Some(2),
        htp: Some(htp),
        log_level: Some(1),
        online_prepare: Some(false),
        shared_buffer: Some(false),
        from_context_binary: Some(false),
        use_mha2sha: Some(true),
        graph_names: vec![],
    };
    assert_eq!(CompileOptions::parse(&bytes(OF_JULY_2026)), newer);
    let older = CompileOptions {
        log_level: Some(2),
        shared_buffer: Some(true),
        use_mha2sha: Some(false),
        graph_names: vec!["prefill_forward".into()],
        ..newer
    };
    assert_eq!(CompileOptions::parse(&bytes(OF_JULY_2025)), older);
}

fn options() -> CompileOptions {
    CompileOptions {
        soc_model: Some(57),
        htp_arch: Some(75),
        vtcm_mb: Some(8),
        backend_type: Some(2),
        htp: Some(HtpOptions { performance_mode: 2, use_weight_sharing: true, ..HtpOptions::default() }),
        log_level: Some(1),
        online_prepare: Some(false),
        shared_buffer: Some(true),
        from_context_binary: Some(false),
        use_mha2sha: Some(true),
        graph_names: vec![],
    }
}

#[test]
fn what_is_written_is_read_back() {
    assert_eq!(CompileOptions::parse(&options().encode()), options());
}

#[test]
fn damaged_options_are_unknown_and_no_error() {
    let bytes = options().encode();
    assert_eq!(CompileOptions::parse(&[]), CompileOptions::default());
    assert_eq!(CompileOptions::parse(&[0xff; 40]), CompileOptions::default());
    for cut in 0..bytes.len() {
        CompileOptions::parse(&bytes[..cut]);
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            CompileOptions::parse(&bytes);
        }
    }
}

#[test]
fn target_says_what_is_unknown() {
    assert_eq!(options().target(), "SM8650 (57), V75, 8 MB VTCM");
    assert_eq!(
        CompileOptions { soc_model: Some(1234), ..Default::default() }.target(),
        "SoC model 1234, unknown, unknown"
    );
    assert_eq!(CompileOptions::default().target(), "unknown");
}
