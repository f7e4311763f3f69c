//! Saved contexts: as bytes and as files, in runners of the same program and of others.

use crate::common;
use crate::host::*;
use crate::steps::filled;
use llama_runner::capi::decoding_options::*;
use llama_runner::capi::options::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::state::*;
use llama_runner::capi::status::llr_status;
use std::path::Path;
use std::ptr;

impl Host {
    pub fn save(&self) -> Vec<u8> {
        // SAFETY: live, and room as said.
        filled(|buffer, capacity, count| unsafe { llr_runner_save_state(self.0, buffer, capacity, count) })
    }

    pub fn restore(&self, bytes: &[u8]) -> llr_status {
        // SAFETY: live.
        unsafe { llr_runner_restore_state(self.0, bytes.as_ptr(), bytes.len()) }
    }

    fn save_file(&self, path: &Path) -> llr_status {
        let path = path.to_str().unwrap();
        // SAFETY: live.
        unsafe { llr_runner_save_state_file(self.0, path.as_ptr().cast(), path.len()) }
    }

    fn restore_file(&self, path: &Path) -> llr_status {
        let path = path.to_str().unwrap();
        // SAFETY: live.
        unsafe { llr_runner_restore_state_file(self.0, path.as_ptr().cast(), path.len()) }
    }

    /// The recorded model of the kind that both ways of updating suit, updated in this one.
    fn updating(updater: llr_kv_updater) -> Self {
        let mut runner = ptr::null_mut();
        let (model, tokenizer) = (common::model("qnn/00e3f99401.respec.pte"), common::model("tok512.et.bin"));
        let (model, tokenizer) = (model.to_str().unwrap(), tokenizer.to_str().unwrap());
        // SAFETY: live options and texts, a pointer to write to.
        unsafe {
            let options = llr_runner_options_new();
            llr_runner_options_set_model_path(options, model.as_ptr().cast(), model.len());
            llr_runner_options_set_tokenizer_path(options, tokenizer.as_ptr().cast(), tokenizer.len());
            llr_runner_options_set_kv_updater(options, updater as i32);
            assert_eq!(llr_runner_create(options, &mut runner), llr_status::Ok, "{}", message());
            llr_runner_options_free(options);
        }
        Self(runner)
    }
}

#[test]
fn a_saved_story_goes_on_in_another_runner_from_bytes_and_from_a_file() {
    let host = Host::without_model();
    let prompt = {
        host.load();
        host.encode(PROMPT)
    };
    host.by_hand(&prompt, 6, ptr::null());
    let (saved, position) = (host.save(), host.position());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("story.state");
    assert_eq!(host.save_file(&file), llr_status::Ok, "{}", message());
    assert_eq!(std::fs::read(&file).unwrap(), saved);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    let want = host.by_hand(&prompt[1..], 6, ptr::null());
    for from_file in [false, true] {
        let other = Host::without_model();
        let restored = if from_file { other.restore_file(&file) } else { other.restore(&saved) };
        assert_eq!((restored, other.position()), (llr_status::Ok, position), "{}", message());
        assert_eq!(other.by_hand(&prompt[1..], 6, ptr::null()), want);
    }
}

#[test]
fn what_cannot_be_restored_is_refused_with_a_reason_and_changes_nothing() {
    let host = Host::without_model();
    host.tokens(4);
    let (saved, position) = (host.save(), host.position());
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut damaged = saved.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for (bytes, reason) in [
        (&b""[..], "LLRSTATE"),
        (b"a text that is no context", "LLRSTATE"),
        (&saved[..saved.len() - 1], "cut off"),
        (&damaged, "checksum"),
        (&[&saved[..], b"x"].concat(), "cut off or too long"),
    ] {
        for status in [host.restore(bytes), host.restore_file(&file("bad", bytes))] {
            assert_eq!(status, llr_status::InvalidExternalData);
            assert!(message().contains(reason), "{}", message());
        }
    }
    assert_eq!(host.restore_file(&dir.path().join("none")), llr_status::AccessFailed);
    assert_eq!(host.restore_file(dir.path()), llr_status::AccessFailed);
    assert_eq!(host.save_file(&dir.path().join("no/such/folder")), llr_status::AccessFailed);
    let sparse = dir.path().join("sparse");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(host.restore_file(&sparse), llr_status::InvalidExternalData, "and not read");
    // SAFETY: NULL is refused.
    unsafe {
        assert_eq!(
            llr_runner_save_state(ptr::null_mut(), ptr::null_mut(), 0, ptr::null_mut()),
            llr_status::InvalidArgument
        );
        assert_eq!(llr_runner_save_state(host.0, ptr::null_mut(), 3, ptr::null_mut()), llr_status::InvalidArgument);
        assert_eq!(llr_runner_restore_state(host.0, ptr::null(), 3), llr_status::InvalidArgument);
        assert_eq!(llr_runner_save_state_file(host.0, ptr::null(), 0), llr_status::InvalidArgument);
        assert_eq!(llr_runner_restore_state_file(host.0, b"a\0b".as_ptr().cast(), 3), llr_status::InvalidArgument);
    }
    assert_eq!((host.save(), host.position()), (saved, position));
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn a_context_goes_from_one_way_of_updating_to_the_other() {
    let hosts = [llr_kv_updater::SmartMask, llr_kv_updater::ShiftPointer].map(Host::updating);
    hosts[0].by_hand(&PROMPT_TOKENS, 4, ptr::null());
    let saved = hosts[0].save();
    let want = hosts[0].by_hand(&PROMPT_TOKENS[1..], 4, ptr::null());
    assert_eq!(hosts[1].restore(&saved), llr_status::Ok, "{}", message());
    assert_eq!(hosts[1].save(), saved);
    assert_eq!(hosts[1].by_hand(&PROMPT_TOKENS[1..], 4, ptr::null()), want);
    assert_eq!(Host::new().restore(&saved), llr_status::InvalidArgument);
    assert!(message().contains("of another model"), "{}", message());
}

#[test]
fn files_are_replaced_where_a_link_leads_and_devices_are_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::without_model();
    host.tokens(3);
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    std::fs::write(&target, "before").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_eq!(host.save_file(&link), llr_status::Ok, "{}", message());
    assert!(link.is_symlink());
    assert_eq!(std::fs::read(&target).unwrap(), host.save());
    if Path::new("/dev/full").exists() {
        assert_eq!(host.save_file(Path::new("/dev/full")), llr_status::AccessFailed);
        assert!(!Path::new("/dev/full").is_file());
    }
    assert_eq!(host.save_file(dir.path()), llr_status::AccessFailed);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_larger_context_of_another_model_is_told_by_its_model_from_a_file_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state");
    let host = Host::without_model();
    host.tokens(3);
    assert_eq!(host.save_file(&file), llr_status::Ok);
    let other = Host::of("portable/portable_s260k_fp32_kv.pte");
    assert_eq!(other.restore_file(&file), llr_status::InvalidArgument, "{}", message());
    assert!(message().contains("of another model"), "{}", message());
    // SAFETY: live; NULL is refused.
    assert_eq!(unsafe { llr_runner_restore_state(other.0, ptr::null(), 0) }, llr_status::InvalidArgument);
}
