//! Clients that ignore their loss: what a holder remembers, written long after it has lost the
//! right to.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringfence_check::history::{Admission, GuardAct};
use ringfence_guard::Fence;
use tokio::sync::mpsc;

use super::ClientOptions;
use super::recorder::Recorder;
use super::stores::Stores;

/// How long one sleeps before it wakes up and writes.
const SLEEP_MS: std::ops::Range<u64> = 100..3_000;
/// Between two of its writes.
const PAUSE_MS: std::ops::Range<u64> = 50..400;
/// How often it writes, unless all guards refuse it before.
const TRIES: u32 = 5;
/// Sets its dice apart from those of its client.
const SALT: u64 = 0x5a0b_1e55;

/// A grant that is over, and what its holder remembers of the data.
#[derive(Debug)]
pub(super) struct Zombie {
    pub(super) fence: Fence,
    /// What each store held when the holder looked; nothing if it does not know.
    pub(super) remembered: Vec<Option<i64>>,
}

/// Where to send those who shall haunt the stores.
pub(super) type Zombies = mpsc::UnboundedSender<Zombie>;

/// Lets them walk, each on its own.
pub(super) fn start(options: &ClientOptions, recorder: Recorder) -> Zombies {
    let (zombies, mut coming) = mpsc::unbounded_channel();
    // Stores of their own: they do not wait for their client's writes, nor it for theirs.
    let stores = Stores::new(options, recorder);
    let mut rng = StdRng::seed_from_u64(options.seed ^ SALT);
    tokio::spawn(async move {
        while let Some(zombie) = coming.recv().await {
            let own = StdRng::from_rng(&mut rng);
            tokio::spawn(walk(zombie, stores.clone(), own));
        }
    });
    zombies
}

async fn walk(mut zombie: Zombie, stores: Stores, mut rng: StdRng) {
    tokio::time::sleep(Duration::from_millis(rng.random_range(SLEEP_MS))).await;
    for _ in 0..TRIES {
        for place in 0..stores.count() {
            let Some(remembered) = zombie.remembered[place] else {
                continue;
            };
            let value = remembered + 1;
            let answer = stores
                .ask(place, &zombie.fence, GuardAct::Write, value)
                .await;
            zombie.remembered[place] = match answer.admission {
                Admission::Admitted => Some(value),
                Admission::Failed => Some(remembered),
                Admission::Refused { .. } | Admission::Unknown => None,
            };
        }
        if zombie.remembered.iter().all(Option::is_none) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(PAUSE_MS))).await;
    }
}
