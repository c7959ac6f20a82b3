//! S4.5: work outside of the election that leads the controllers, to be done once in all.

use std::sync::{Arc, Mutex};

use ringfence_client::{Client, Fence};
use ringfence_guard::Guard;
use tokio::sync::Notify;

use crate::raw_lock::revoke;
use crate::support::{Story, client, elector, long, one_node, within};

/// What is set up, and the record that it was: they stand in one store, behind one guard.
struct Store {
    guard: Guard,
    /// Under which tokens something was set up.
    done: Vec<u64>,
}

impl Store {
    /// Whether a holder has done it; none before this one does it from here on.
    fn begin(&self, fence: &Fence) -> bool {
        self.guard.advance(fence).unwrap();
        !self.done.is_empty()
    }

    fn set_up(&mut self, fence: &Fence) -> Result<(), String> {
        self.guard.admit(fence).map_err(|stale| stale.to_string())?;
        self.done.push(fence.token.get());
        Ok(())
    }
}

/// A process that starts: it sees to the bootstrap before anything else. Whether it was the one that
/// did it, and the token under which it looked.
async fn start(
    client: Client,
    identity: String,
    store: Arc<Mutex<Store>>,
    story: Story,
    go_on: Arc<Notify>,
) -> (bool, u64) {
    let elector = elector(&client, &identity, long());
    let once = elector.campaign("bootstrap").once(|leading| {
        let (store, story, go_on) = (Arc::clone(&store), story.clone(), Arc::clone(&go_on));
        async move {
            let fence = leading.fence();
            if store.lock().unwrap().begin(&fence) {
                return (false, fence.token.get());
            }
            story.tell(format!("begins {}", fence.token));
            go_on.notified().await;
            store.lock().unwrap().set_up(&fence).unwrap();
            (true, fence.token.get())
        }
    });
    once.await.unwrap()
}

#[tokio::test]
async fn s4_5_of_all_processes_one_does_the_bootstrap_and_it_is_done_once() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    // The election of the controllers has its own lease: neither waits for the other.
    let controllers = elector(&near, "leader", long()).campaign("controllers");
    let controllers = controllers.lead().await.unwrap();
    let store = Arc::new(Mutex::new(Store {
        guard: Guard::new(ringfence_client::LeaseName::parse("bootstrap").unwrap()),
        done: Vec::new(),
    }));
    let (story, go_on) = (Story::new(), Arc::new(Notify::new()));
    let mut processes = Vec::new();
    for n in 0..4 {
        let (store, story) = (Arc::clone(&store), story.clone());
        let (client, go_on) = (client(&cluster).await, Arc::clone(&go_on));
        processes.push(tokio::spawn(start(
            client,
            format!("n{n}"),
            store,
            story,
            go_on,
        )));
    }

    // The first one loses the lease in the middle of it: it is not done, and another one does it.
    story.until(1, "begins").await;
    let first: u64 = story.lines()[0]
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    revoke(&near, "bootstrap", first).await;
    story.until(2, "begins").await;
    assert!(store.lock().unwrap().done.is_empty());
    go_on.notify_one();

    let mut ended = Vec::new();
    for process in processes {
        ended.push(within("its bootstrap", process).await.unwrap());
    }
    let did: Vec<u64> = ended.iter().filter(|it| it.0).map(|it| it.1).collect();
    assert_eq!(did.len(), 1, "one says that it did it: {ended:?}");
    assert_eq!(
        store.lock().unwrap().done,
        did,
        "it was done, under its token"
    );
    assert!(did[0] > first);
    // All others looked behind it, each under a grant of its own, and found it done.
    let mut tokens: Vec<u64> = ended.iter().map(|it| it.1).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!((tokens.len(), tokens[0]), (4, did[0]));
    assert_eq!(story.count("begins"), 2);
    // What the first one was about to write when it lost the lease is refused by the store alone.
    let stale = format!("bootstrap#{first}").parse().unwrap();
    let refused = store.lock().unwrap().set_up(&stale).unwrap_err();
    assert!(refused.contains(&first.to_string()), "{refused}");
    assert!(controllers.is_valid());
}
