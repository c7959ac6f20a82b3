//! Clients that work until the time is over, and the samples they take.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use ringfence_client::{BootClock, Clock, Moment};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::numbers::count;
use crate::cli::output::Output;
use crate::cli::{Failure, exit};

/// The longest duration that is distinguished from longer ones, a minute in microseconds.
const SAMPLE_MAX_US: u64 = 60_000_000;

/// How much is asked for.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) clients: u32,
    pub(super) lasting: Duration,
    pub(super) output: Output,
}

/// Durations, in microseconds.
pub(super) type Samples = Histogram<u64>;

/// An empty set of samples.
pub(super) fn samples() -> Samples {
    Histogram::new_with_bounds(1, SAMPLE_MAX_US, 3).expect("the bounds are constants that fit")
}

/// Adds a duration.
pub(super) fn record(samples: &mut Samples, took: Duration) {
    samples.saturating_record(
        u64::try_from(took.as_micros())
            .unwrap_or(SAMPLE_MAX_US)
            .max(1),
    );
}

/// What one client has.
pub(super) struct Client {
    /// Its number, from 0.
    pub(super) number: u32,
    lasting: Duration,
    until: Moment,
    start: Arc<Barrier>,
    done: Arc<AtomicU64>,
    samples: Vec<Samples>,
}

impl Client {
    /// Waits until every client has prepared what it needs; the time runs from here.
    pub(super) async fn ready(&mut self) {
        self.start.wait().await;
        self.until = BootClock.now() + self.lasting;
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        BootClock.now() >= self.until
    }

    /// The present moment.
    pub(super) fn now(&self) -> Moment {
        BootClock.now()
    }

    /// Counts `units` of work that took so long, as a sample of `series`.
    pub(super) fn took(&mut self, series: usize, since: Moment, units: u64) {
        self.sample(series, BootClock.now().saturating_since(since), units);
    }

    /// The same, of a time that was measured elsewhere.
    pub(super) fn sample(&mut self, series: usize, took: Duration, units: u64) {
        record(&mut self.samples[series], took);
        // Only a progress line reads it meanwhile.
        self.done.fetch_add(units, Ordering::Relaxed);
    }
}

impl Load {
    /// Runs `work` for every client until the time is over. Each takes samples of `series` kinds,
    /// and calls [`Client::ready`] once.
    ///
    /// # Errors
    /// The first failure of any client: a measurement with failures measures something else.
    pub(super) async fn drive<F, Fut>(&self, series: usize, work: F) -> Result<Measured, Failure>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = Result<Client, Failure>> + Send + 'static,
    {
        let mut began = BootClock.now();
        let done = Arc::new(AtomicU64::new(0));
        let start = Arc::new(Barrier::new(self.clients as usize + 1));
        let started = Arc::clone(&start);
        let mut all_ready = std::pin::pin!(async move { started.wait().await });
        let mut running = false;
        let mut clients = JoinSet::new();
        for number in 0..self.clients {
            let samples = std::iter::repeat_with(samples).take(series).collect();
            clients.spawn(work(Client {
                number,
                lasting: self.lasting,
                until: began,
                start: Arc::clone(&start),
                done: Arc::clone(&done),
                samples,
            }));
        }
        let mut all: Vec<Samples> = std::iter::repeat_with(samples).take(series).collect();
        let mut every_second = tokio::time::interval(Duration::from_secs(1));
        let mut before = 0;
        loop {
            tokio::select! {
                client = clients.join_next() => match client {
                    None => break,
                    Some(client) => {
                        let client = client.map_err(|cause| crashed(&cause))??;
                        for (sum, part) in all.iter_mut().zip(client.samples) {
                            sum.add(part).map_err(|cause| crashed(&cause))?;
                        }
                    }
                },
                _ = &mut all_ready, if !running => {
                    running = true;
                    began = BootClock.now();
                    every_second.reset();
                }
                _ = every_second.tick() => {
                    let now = done.load(Ordering::Relaxed);
                    let elapsed = BootClock.now().saturating_since(began);
                    progress(&format!("{:>3} s  {}/s", elapsed.as_secs(), count(now - before)));
                    before = now;
                }
            }
        }
        progress("");
        let elapsed = BootClock.now().saturating_since(began);
        Ok(Measured {
            done: done.load(Ordering::Relaxed),
            elapsed,
            samples: all,
        })
    }
}

fn crashed(cause: &dyn std::error::Error) -> Failure {
    Failure::new(
        exit::UNAVAILABLE,
        "FAULT",
        format!("a client of the benchmark failed: {cause}"),
    )
}

/// Replaces the progress line on a terminal; an empty one takes it away.
pub(super) fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // A progress line that cannot be shown is no reason to stop.
        write!(stderr, "\r\x1b[K{text}")
            .and_then(|()| stderr.flush())
            .ok();
    }
}

/// What was measured.
pub(super) struct Measured {
    /// Units of work.
    pub(super) done: u64,
    /// In this time.
    pub(super) elapsed: Duration,
    /// How long each took, by series.
    pub(super) samples: Vec<Samples>,
}

impl Measured {
    /// Units per second.
    pub(super) fn per_second(&self) -> f64 {
        self.done as f64 / self.elapsed.as_secs_f64()
    }
}
