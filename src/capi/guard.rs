//! The fence around every `extern "C"` body: no panic crosses it, and the thread's last error describes what happened.

use super::error::{self, LastError};
use super::handle::Handle;
use super::pointer::reference;
use super::status::llr_status;
use crate::error::{Error, Result, Status};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a fallible body. When this returns, the thread's last error describes this very call: none after success.
///
/// The panic hook has run by then; Rust's own writes to stderr, and it belongs to the process, so it stays as it is. An
/// object that the body changes when it panics is left half changed; that is why handles poison themselves.
pub(super) fn guard(body: impl FnOnce() -> Result<()>) -> llr_status {
    error::replace(None);
    let outcome = catch_unwind(AssertUnwindSafe(|| body().map_err(|error| LastError::from(&error))));
    let failure = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(payload) => Some(LastError::from(&panic_error(payload.as_ref()))),
    };
    // Callbacks may have made calls of their own; their errors end here.
    let status = failure.as_ref().map_or(llr_status::Ok, LastError::status);
    error::replace(failure);
    status
}

/// An object of options, whose setters differ only in the field that they change.
pub(super) trait Options {
    /// What the setters change.
    type Value: Send;
    /// The parameter's name in every setter, for messages.
    const PARAMETER: &'static str;
    /// Where the value is.
    fn handle(&self) -> &Handle<Self::Value>;
}

/// Runs a setter as [`guard`] does. `change` must not change anything when it fails.
///
/// # Safety
/// `options` is NULL, or points to an object that lives.
pub(super) unsafe fn guard_set<O: Options>(
    options: *const O,
    change: impl FnOnce(&mut O::Value) -> Result<()>,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, O::PARAMETER) }?;
        options.handle().write(change)
    })
}

/// Runs the body of a function that cannot fail; a panic gives `default`. The last error stays as it is.
pub(super) fn guard_value<T>(default: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(default)
}

fn panic_error(payload: &(dyn Any + Send)) -> Error {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message");
    Error::new(Status::Panic, format!("a fault of this library was caught: panic: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::error::llr_last_error_code;

    fn message() -> String {
        error::message_of_this_thread().unwrap_or_default()
    }

    #[test]
    fn panic_becomes_a_status_with_its_text() {
        assert_eq!(guard(|| panic!("index {}", 7)), llr_status::Panic);
        assert_eq!(llr_last_error_code(), llr_status::Panic);
        assert!(message().ends_with("panic: index 7"), "{}", message());
    }

    #[test]
    fn success_clears_an_earlier_error() {
        guard(|| Err(Error::new(Status::NotFound, "x")));
        assert_eq!(guard(|| Ok(())), llr_status::Ok);
        assert_eq!(llr_last_error_code(), llr_status::Ok);
        assert_eq!(message(), "");
    }

    #[test]
    fn error_of_a_call_inside_a_callback_does_not_outlive_the_outer_call() {
        let status = guard(|| {
            assert_eq!(guard(|| Err(Error::new(Status::NotFound, "inner"))), llr_status::NotFound);
            Ok(())
        });
        assert_eq!((status, llr_last_error_code()), (llr_status::Ok, llr_status::Ok));
    }

    #[test]
    fn infallible_function_gives_its_default_and_keeps_the_last_error() {
        guard(|| Err(Error::new(Status::NotFound, "kept")));
        assert_eq!(guard_value(3, || panic!("x")), 3);
        assert_eq!(message(), "kept");
    }
}
