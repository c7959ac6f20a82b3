//! Random faults.

use std::time::Duration;

use ringfence_core::Millis;

use crate::process::Process;
use crate::world::TestCluster;

/// Between two faults pass at least this long …
const PAUSE_MIN_MS: u64 = 200;
/// … and at most this long.
const PAUSE_MAX_MS: u64 = 4_000;
/// A service is taken to call its store about so often.
const CALLS_WITHIN: Duration = Duration::from_secs(1);
/// A call of a store has arrived by then, if nothing holds it up.
const TRAVEL: Duration = Duration::from_millis(20);
/// The TTL that faults are measured by while there is no session.
const TTL_STANDARD: Millis = Millis::from_secs(15);

impl TestCluster {
    /// Makes trouble for this long, in virtual time: pauses of processes at any moment and between
    /// a read and a write, shorter and longer than the TTL; calls of stores that are held up; links that are cut; leaders that are
    /// killed; grants that are revoked, with and without `--now`. All of it is drawn
    /// from the seed. It ends early when a store has taken a stale write, so that the story ends there. At the
    /// end all processes run, all links are there, and calls that were held up have arrived: that may take
    /// up to two and a half TTLs longer.
    pub async fn trouble(&self, length: Duration) {
        // Two at a time: many a story needs an old holder that goes on while the new one stands.
        let making = futures_util::future::join(self.faults(), self.faults());
        let found = tokio::select! {
            biased;
            () = self.inner.nodes.stale.notified() => true,
            _ = making => false,
            () = tokio::time::sleep(length) => false,
        };
        let processes = self.processes();
        for process in &processes {
            process.resume();
            process.cut(false);
            process.delay(0, Duration::ZERO);
        }
        let arrival = processes.iter().filter_map(|process| process.held_until());
        if let Some(arrival) = arrival.max().filter(|_| !found) {
            let left = arrival.saturating_sub(self.cluster().story.time());
            tokio::time::sleep(left + TRAVEL).await;
        }
    }

    async fn faults(&self) {
        loop {
            let pause = PAUSE_MIN_MS + self.draw(PAUSE_MAX_MS - PAUSE_MIN_MS);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.fault().await;
        }
    }

    async fn fault(&self) {
        let processes = self.processes();
        let Some(process) = processes.get(self.below(processes.len())) else {
            return;
        };
        let ttl = self.ttl().0;
        // Up to two and a half TTLs: some of each kind end before the lease does.
        let length = Duration::from_millis(ttl / 10 + self.draw(ttl * 5 / 2));
        match self.draw(10) {
            0..4 => {
                process.ambush();
                tokio::time::sleep(length).await;
                process.resume();
            }
            4 => {
                // What was sent before the pause arrives behind it.
                // A read, or the write behind it.
                process.delay(self.draw(2), length + CALLS_WITHIN);
                tokio::time::sleep(CALLS_WITHIN).await;
                process.pause();
                tokio::time::sleep(length).await;
                process.resume();
            }
            5 => {
                process.pause();
                tokio::time::sleep(length).await;
                process.resume();
            }
            6 => cut(process, length).await,
            7 => self.kill_leader(),
            turn => self.revoke_one(turn == 9),
        }
    }

    fn below(&self, end: usize) -> usize {
        usize::try_from(self.draw(end as u64)).unwrap_or(0)
    }

    /// The longest TTL of a living session.
    fn ttl(&self) -> Millis {
        self.cluster().read(|machine| {
            let ttls = machine.sessions(None).map(|session| session.ttl);
            ttls.max().unwrap_or(TTL_STANDARD)
        })
    }

    fn revoke_one(&self, now: bool) {
        let held: Vec<String> = self.cluster().read(|machine| {
            let names = machine.sessions(None).flat_map(|session| session.leases);
            names.map(|(name, _)| name.as_str().to_owned()).collect()
        });
        let Some(name) = held.get(self.below(held.len())) else {
            return;
        };
        if now {
            self.revoke_now(name);
        } else {
            self.revoke(name);
        }
    }
}

async fn cut(process: &Process, length: Duration) {
    process.cut(true);
    tokio::time::sleep(length).await;
    process.cut(false);
}
