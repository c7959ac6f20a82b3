//! How tasks are begun, and what openraft runs on: tokio, through the place of the node if it has
//! one.

use std::convert::Infallible;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::AsyncRuntime;
use openraft_rt_tokio::TokioRuntime;
use rand::RngCore;
use rand::rngs::ThreadRng;
use tokio::task::JoinHandle;

use crate::platform::place;

/// Begins a task. It runs at the place of its caller, if that has one, and ends with it.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match place::current() {
        None => tokio::spawn(future),
        Some(place) => place::spawn(&place, future),
    }
}

/// Does work that may wait for the disk, where it keeps no task from running. A simulated disk
/// is read, and changed a little, in no time.
pub(crate) fn blocking<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match place::current() {
        None => tokio::task::spawn_blocking(work),
        Some(place) => place::spawn(&place, async move { work() }),
    }
}

/// The same for work that writes much. A simulated disk that stalls holds it up before it begins,
/// so that other things happen there meanwhile, as they do where threads are short.
pub(crate) fn writing<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let stalls = place::ask(|place| place.disk_stalls()).unwrap_or_default();
    if stalls.is_zero() {
        return blocking(work);
    }
    spawn(async move {
        tokio::time::sleep(stalls).await;
        work()
    })
}

/// Fills `bytes` at random: from the operating system's generator, or from that of the place.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    Rng::here().fill(bytes);
}

/// 16 random bytes, from the same.
pub(crate) fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    fill_random(&mut bytes);
    bytes
}

/// A random number, from the same.
pub(crate) fn random() -> u64 {
    Rng::here().next()
}

/// A generator of random numbers.
pub(crate) enum Rng {
    Thread(ThreadRng),
    Place,
}

impl Rng {
    fn here() -> Self {
        match place::ask(|_| ()) {
            None => Self::Thread(rand::rng()),
            Some(()) => Self::Place,
        }
    }
}

impl Rng {
    fn next(&mut self) -> u64 {
        match self {
            Self::Thread(thread) => thread.next_u64(),
            // It was drawn at a place, and is used there.
            Self::Place => place::ask(|place| place.random()).unwrap_or_default(),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        match self {
            Self::Thread(thread) => thread.fill_bytes(bytes),
            Self::Place => {
                for part in bytes.chunks_mut(8) {
                    let drawn = self.next().to_le_bytes();
                    part.copy_from_slice(&drawn[..part.len()]);
                }
            }
        }
    }
}

/// As openraft asks for it.
impl rand_core::TryRng for Rng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.fill(bytes);
        Ok(())
    }
}

/// What openraft runs on.
#[derive(Debug)]
pub(crate) struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = Rng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Rng {
        Rng::here()
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(f: F) -> impl Future<Output = Result<T, std::io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let work = blocking(f);
        async { work.await.map_err(std::io::Error::other) }
    }
}
