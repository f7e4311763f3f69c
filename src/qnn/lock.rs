//! One lock for the whole process around every QNN call: some SDKs give wrong outputs, then hang, when two threads are
//! inside the library at once, even in different graphs.

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

static QNN: ReentrantMutex<()> = ReentrantMutex::new(());

/// Proof that this thread alone is inside QNN. Functions that call into a library ask for it.
pub struct QnnLock(#[allow(dead_code)] ReentrantMutexGuard<'static, ()>);

impl QnnLock {
    /// Waits for the lock. A thread that holds it gets it again, so handles may be dropped while it is held.
    pub fn acquire() -> Self {
        Self(QNN.lock())
    }
}
