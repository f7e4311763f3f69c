//! Worker threads for loops. A loop's tasks are dealt out evenly; who finishes early takes from the others, so a busy core
//! costs its own share only. Workers spin for a moment between loops, since decoding runs hundreds of short loops a token,
//! and then sleep. Where another program takes a worker's core in the middle of a task, the caller waits for it once, and
//! then works alone for a while, lest it wait at every loop.
#![allow(unsafe_code)]

use super::shared::SharedMut;
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an idle worker, or a caller that waits for the last task, spins before it sleeps.
const SPIN: Duration = Duration::from_micros(100);
/// A wait for a worker's last task that is longer says that the worker has lost its core to another program.
const STALL: Duration = Duration::from_millis(2);
/// After a stall the caller works alone, this many times as long as it was.
const ALONE: u32 = 8;
/// How long an idle worker spins before it gives its core away between looks.
const POLITE: Duration = Duration::from_micros(30);

const OPEN: u64 = 1 << 16;
const WORKERS: u64 = OPEN - 1;
const EPOCH: u64 = OPEN << 1;

/// A fixed number of threads: the caller and `threads − 1` workers. Dropping it joins them.
#[derive(Debug)]
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<Turn>,
}

/// Held by the caller of the running loop.
#[derive(Debug, Default)]
struct Turn {
    /// When workers are asked again, after one has kept a caller waiting.
    alone_until: Option<Instant>,
}

impl Turn {
    fn is_alone(&self) -> bool {
        self.alone_until.is_some_and(|until| Instant::now() < until)
    }

    /// Takes note of how long the caller had to wait for the last worker.
    fn waited(&mut self, wait: Duration) {
        if wait > STALL {
            self.alone_until = Some(Instant::now() + wait * ALONE);
        }
    }
}

/// A queue of task numbers, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Queue {
    next: AtomicUsize,
    end: AtomicUsize,
}

#[derive(Debug)]
struct Shared {
    /// Epoch of the loop (upper bits), whether workers may join it, and how many are in it.
    state: AtomicU64,
    /// The running loop; valid while `state` is open or workers are in it.
    job: AtomicPtr<Job<'static>>,
    queues: Vec<Queue>, // one for each thread; 0 is the caller's
    sleepers: Mutex<Sleepers>,
    work: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Sleepers {
    workers: usize,
    caller: bool,
    stop: bool,
}

struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl ThreadPool {
    /// A pool of `threads` threads, the caller among them. When the system refuses a thread, the pool is smaller.
    pub fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, 256);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            queues: (0..threads).map(|_| Queue::default()).collect(),
            sleepers: Mutex::new(Sleepers::default()),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let workers = (1..threads)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                let name = format!("llr-worker-{index}");
                let spawned = std::thread::Builder::new().name(name).spawn(move || shared.worker(index));
                spawned.inspect_err(|e| crate::log_warning!("kernels: thread {index} of {threads}: {e}")).ok()
            })
            .collect();
        Self { shared, workers, turn: Mutex::default() }
    }

    /// Number of threads that work, the caller among them.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` once for each `i` in `0..tasks`, on all threads; returns when all have returned. Each thread
    /// begins with a contiguous share of its own, in order.
    ///
    /// A loop inside a task, or from a second thread while one is running, runs on its calling thread alone.
    ///
    /// # Panics
    /// When a task panics: the remaining tasks are dropped, and the first panic goes on in the caller.
    pub fn parallel_for(&self, tasks: usize, task: impl Fn(usize) + Sync) {
        let turn = if tasks > 1 && !self.workers.is_empty() { self.turn.try_lock() } else { None };
        let Some(mut turn) = turn.filter(|turn| !turn.is_alone()) else {
            return (0..tasks).for_each(task);
        };
        let shared = &*self.shared;
        let job = Job { task: &task, panic: Mutex::new(None) };
        let threads = self.threads();
        for (i, queue) in shared.queues[..threads].iter().enumerate() {
            queue.next.store(tasks * i / threads, Ordering::Relaxed);
            queue.end.store(tasks * (i + 1) / threads, Ordering::Relaxed);
        }
        shared.job.store(std::ptr::from_ref(&job).cast_mut().cast(), Ordering::Relaxed);
        let epoch = shared.state.load(Ordering::Relaxed) & !(EPOCH - 1);
        // SeqCst here and in `sleep`: either this store is seen by a worker about to sleep, or its registration is seen here.
        shared.state.store(epoch.wrapping_add(EPOCH) | OPEN, Ordering::SeqCst);
        shared.wake();
        shared.take_tasks(0, &job);
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        turn.waited(shared.wait_for_workers());
        drop(turn);
        if let Some(panic) = job.panic.into_inner() {
            resume_unwind(panic);
        }
    }

    /// Splits `0..len` into ranges of at least `grain` (the last may be shorter), a few for each thread, and calls
    /// `task` with each.
    pub fn parallel_ranges(&self, len: usize, grain: usize, task: impl Fn(Range<usize>) + Sync) {
        let size = len.div_ceil(self.threads() * 4).max(grain).max(1);
        self.parallel_for(len.div_ceil(size), |i| task(i * size..len.min((i + 1) * size)));
    }

    /// Calls `task(i, chunk)` with each chunk of `size` elements of `slice` (the last may be shorter).
    ///
    /// # Panics
    /// When `size` is zero; otherwise as [`parallel_for`](Self::parallel_for).
    pub fn parallel_chunks<T: Send>(&self, slice: &mut [T], size: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        let len = slice.len();
        let slice = SharedMut::new(slice);
        self.parallel_for(len.div_ceil(size), |i| {
            // SAFETY: each index comes once, and chunks of different indices do not overlap.
            task(i, unsafe { slice.part(i * size..len.min((i + 1) * size)) });
        });
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        {
            let mut sleepers = self.shared.sleepers.lock();
            sleepers.stop = true;
            self.shared.state.fetch_add(EPOCH, Ordering::SeqCst);
        }
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches its tasks' panics, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Runs tasks, of queue `own` first and then of the others, until there are none.
    fn take_tasks(&self, own: usize, job: &Job<'_>) {
        let queues = &self.queues;
        let result = catch_unwind(AssertUnwindSafe(|| {
            for i in 0..queues.len() {
                let queue = &queues[(own + i) % queues.len()];
                let end = queue.end.load(Ordering::Relaxed);
                // The look before the add keeps a finished queue's counter from growing without bound.
                while queue.next.load(Ordering::Relaxed) < end {
                    let index = queue.next.fetch_add(1, Ordering::Relaxed);
                    if index < end {
                        (job.task)(index);
                    }
                }
            }
        }));
        if let Err(panic) = result {
            for queue in queues {
                queue.next.store(usize::MAX / 2, Ordering::Relaxed);
            }
            job.panic.lock().get_or_insert(panic);
        }
    }

    fn wake(&self) {
        // Looked at under the lock: a worker registers, looks at the state once more and sleeps, all under it.
        let sleepers = self.sleepers.lock();
        if sleepers.workers > 0 {
            self.work.notify_all();
        }
    }

    /// Says how long it took, if that was long.
    fn wait_for_workers(&self) -> Duration {
        let gone = || self.state.load(Ordering::Acquire) & WORKERS == 0;
        // Never politely: on a full machine who gives its core away gets it back after everybody else.
        if spin_until(gone, |_| {}) {
            return Duration::ZERO;
        }
        let begin = Instant::now();
        let mut sleepers = self.sleepers.lock();
        sleepers.caller = true;
        while !gone() {
            self.done.wait(&mut sleepers);
        }
        sleepers.caller = false;
        begin.elapsed()
    }

    fn worker(&self, index: usize) {
        let mut seen = 0;
        loop {
            let fresh = || self.state.load(Ordering::SeqCst) / EPOCH != seen;
            // On an idle machine yielding costs nothing. On a full one it keeps a worker from taking a task just before its
            // time is up, for which the caller would have to wait.
            let politely = |spun| {
                if spun > POLITE {
                    std::thread::yield_now()
                }
            };
            if !spin_until(fresh, politely) {
                let mut sleepers = self.sleepers.lock();
                sleepers.workers += 1;
                while !fresh() {
                    self.work.wait(&mut sleepers);
                }
                sleepers.workers -= 1;
            }
            let state = self.state.load(Ordering::Acquire);
            seen = state / EPOCH;
            if self.sleepers_stop(state) {
                return;
            }
            if self.join(seen) {
                // SAFETY: `join` counted this worker into an open loop. The caller of that loop, which owns the job, does
                // not return before the count is back at zero, and `job` was stored before the loop was opened.
                let job = unsafe { &*self.job.load(Ordering::Relaxed) };
                self.take_tasks(index, job);
                if self.state.fetch_sub(1, Ordering::AcqRel) & (OPEN | WORKERS) == 1 {
                    let sleepers = self.sleepers.lock();
                    if sleepers.caller {
                        self.done.notify_one();
                    }
                }
            }
        }
    }

    /// True when the pool is being dropped: a new epoch that was never open.
    fn sleepers_stop(&self, state: u64) -> bool {
        state & OPEN == 0 && self.sleepers.lock().stop
    }

    /// Counts this worker into loop `epoch` if that is still open.
    fn join(&self, epoch: u64) -> bool {
        let joined = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state / EPOCH == epoch && state & OPEN != 0).then_some(state + 1)
        });
        joined.is_ok()
    }
}

/// Spins until `ready` or until [`SPIN`] has passed; says which. Now and then calls `between` with how long it has spun.
fn spin_until(ready: impl Fn() -> bool, between: impl Fn(Duration)) -> bool {
    for _ in 0..256 {
        if ready() {
            return true;
        }
        std::hint::spin_loop();
    }
    let begin = Instant::now();
    loop {
        for _ in 0..32 {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        match begin.elapsed() {
            elapsed if elapsed > SPIN => return ready(),
            elapsed => between(elapsed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_task_runs_exactly_once() {
        for threads in [1, 2, 3, 5] {
            let pool = ThreadPool::new(threads);
            for tasks in [0, 1, 2, 7, 1000] {
                for _ in 0..50 {
                    let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
                    pool.parallel_for(tasks, |i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{threads} {tasks}");
                }
            }
        }
    }

    #[test]
    fn ranges_cover_and_respect_the_grain() {
        let pool = ThreadPool::new(3);
        for (len, grain) in [(0, 1), (1, 1), (10, 100), (1000, 1), (1000, 64)] {
            let seen = Mutex::new(Vec::new());
            pool.parallel_ranges(len, grain, |range| seen.lock().push(range));
            let mut seen = seen.into_inner();
            seen.sort_by_key(|range| range.start);
            assert_eq!(seen.iter().cloned().flatten().collect::<Vec<_>>(), (0..len).collect::<Vec<_>>());
            assert!(seen.iter().rev().skip(1).all(|range| range.len() >= grain));
        }
    }

    #[test]
    fn workers_wake_after_sleep() {
        let pool = ThreadPool::new(2);
        for _ in 0..3 {
            std::thread::sleep(SPIN * 50);
            wait_for_company(&pool);
            let threads = Mutex::new(std::collections::HashSet::new());
            pool.parallel_for(2, |_| {
                threads.lock().insert(std::thread::current().id());
                std::thread::sleep(Duration::from_millis(30));
            });
            assert_eq!(threads.into_inner().len(), 2);
        }
    }

    /// Until workers are asked again.
    fn wait_for_company(pool: &ThreadPool) {
        while pool.turn.lock().is_alone() {
            std::thread::sleep(SPIN);
        }
    }

    /// Runs a loop of two tasks on two threads; the worker's takes so much longer.
    fn stall(pool: &ThreadPool, time: Duration) {
        let (caller, begun) = (std::thread::current().id(), AtomicU32::new(0));
        pool.parallel_for(2, |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            while begun.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            if std::thread::current().id() != caller {
                std::thread::sleep(time);
            }
        });
    }

    #[test]
    fn a_worker_that_lost_its_core_is_left_alone_for_a_while() {
        let pool = ThreadPool::new(2);
        stall(&pool, Duration::from_millis(200));
        let caller = std::thread::current().id();
        pool.parallel_for(100, |_| assert_eq!(std::thread::current().id(), caller));
        wait_for_company(&pool);
        stall(&pool, Duration::ZERO);
    }

    #[test]
    fn idle_workers_use_no_time() {
        let pool = ThreadPool::new(2);
        pool.parallel_for(2, |_| {});
        let deadline = Instant::now() + Duration::from_secs(10);
        while pool.shared.sleepers.lock().workers != 1 {
            assert!(Instant::now() < deadline, "the worker still spins");
            std::thread::sleep(SPIN);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = ThreadPool::new(3);
        for bad in [0, 50, 99] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.parallel_for(100, |i| assert!(i != bad, "task {i}"));
            }));
            let message = caught.unwrap_err().downcast::<String>().unwrap();
            assert!(message.contains(&format!("task {bad}")));
            let count = AtomicU32::new(0);
            pool.parallel_for(10, |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 10);
        }
    }

    #[test]
    fn nested_and_concurrent_loops_finish() {
        let pool = ThreadPool::new(2);
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.parallel_for(4, |_| {
                            pool.parallel_for(4, |_| {
                                count.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 4 * 100 * 16);
    }
}
