//! What is behind every C pointer that can change: a lock that never waits, so that misuse is an error, not a data race.

use crate::error::{Error, Result, Status};
use std::sync::{RwLock, TryLockError};

/// A value lent to one changing call at a time. A panic during such a call poisons it for good: it can only be freed.
#[derive(Debug, Default)]
pub(super) struct Handle<T>(RwLock<T>);

impl<T> Handle<T> {
    pub(super) fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Runs a call that may change the value. [`Status::InvalidState`] when another call is using it, be it on another
    /// thread or the one whose callback we are in; [`Status::Poisoned`] after a panic.
    pub(super) fn write<R>(&self, body: impl FnOnce(&mut T) -> Result<R>) -> Result<R>
    where
        T: Send,
    {
        body(&mut *self.0.try_write().map_err(refused)?)
    }

    /// Runs a call that only reads; several may run at once. Errors as [`write`](Self::write).
    pub(super) fn read<R>(&self, body: impl FnOnce(&T) -> Result<R>) -> Result<R>
    where
        T: Sync,
    {
        body(&*self.0.try_read().map_err(refused)?)
    }

    /// True after a panic inside [`write`](Self::write).
    pub(super) fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }
}

fn refused<G>(error: TryLockError<G>) -> Error {
    match error {
        TryLockError::WouldBlock => Error::new(
            Status::InvalidState,
            "the object is in use: by a call on another thread, or by the call whose callback made this one",
        ),
        TryLockError::Poisoned(_) => {
            Error::new(Status::Poisoned, "an earlier panic left the object unusable; it can only be freed")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::guard::guard;
    use crate::capi::status::llr_status;

    #[test]
    fn reentry_is_refused_and_does_not_wait() {
        let handle = Handle::new(1);
        let inner = handle.write(|_| Ok((handle.write(|_| Ok(())), handle.read(|_| Ok(())))));
        let (write, read) = inner.unwrap();
        assert_eq!(write.unwrap_err().status(), Status::InvalidState);
        assert_eq!(read.unwrap_err().status(), Status::InvalidState);
        assert!(handle.write(|_| Ok(())).is_ok());
    }

    #[test]
    fn readers_share() {
        let handle = Handle::new(1);
        assert_eq!(handle.read(|a| handle.read(|b| Ok(a + b))).unwrap(), 2);
    }

    #[test]
    fn panic_poisons_and_an_error_does_not() {
        let handle = Handle::new(1);
        assert_eq!(guard(|| handle.write(|_| Err(Error::new(Status::NotFound, "x")))), llr_status::NotFound);
        assert!(handle.write(|_| Ok(())).is_ok() && !handle.is_poisoned());
        assert_eq!(guard(|| handle.write(|_| panic!("half changed"))), llr_status::Panic);
        assert_eq!(guard(|| handle.write(|_| Ok(()))), llr_status::Poisoned);
        assert_eq!(guard(|| handle.read(|_| Ok(()))), llr_status::Poisoned);
        assert!(handle.is_poisoned());
    }
}
