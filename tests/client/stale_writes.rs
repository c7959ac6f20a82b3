//! S3.6: a leader that is paused makes two; what refuses its write is the guard, and nothing else.

use std::sync::{Arc, Mutex};

use ringfence_client::{Fence, LeaseName};
use ringfence_guard::Guard;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::support::{TTL, Worker, cluster};

/// A service with a store that answers `wrote` or `refused`, a line for a line.
struct Store {
    address: String,
    /// The tokens under which something was written, in this order.
    written: Arc<Mutex<Vec<u64>>>,
    serving: AbortHandle,
}

impl Store {
    async fn start(guard: Option<Guard>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (written, guard) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::new(guard));
        let tokens = Arc::clone(&written);
        let serving = tokio::spawn(async move {
            while let Ok((writer, _)) = listener.accept().await {
                tokio::spawn(serve(writer, Arc::clone(&tokens), Arc::clone(&guard)));
            }
        });
        Self {
            address,
            written,
            serving: serving.abort_handle(),
        }
    }

    fn written(&self) -> Vec<u64> {
        self.written.lock().unwrap().clone()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(writer: TcpStream, written: Arc<Mutex<Vec<u64>>>, guard: Arc<Option<Guard>>) {
    let (read, mut answer) = writer.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (fence, _value) = line.split_once(' ').unwrap();
        let fence: Fence = fence.parse().unwrap();
        let said = {
            // The mark and the data are one step.
            let mut written = written.lock().unwrap();
            match guard.as_ref().as_ref().map(|guard| guard.admit(&fence)) {
                Some(Err(refused)) => format!("refused: {refused}\n"),
                Some(Ok(_)) | None => {
                    written.push(fence.token.get());
                    "wrote\n".to_owned()
                }
            }
        };
        if answer.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Before which of its writes the first one stands still.
const STOP: &str = "3";

/// A writer stands still behind its look at the lease and before its write; another one takes the
/// lease and writes; the first one goes on. What it tells of that write, and the tokens of both.
async fn a_write_held_up_by_a_pause(store: &Store) -> (String, u64, u64) {
    let cluster = cluster(1).await;
    let ttl = TTL.as_millis().to_string();
    let writer = |stop| {
        let args = ["write", "db", &ttl, &store.address, stop];
        Worker::start(&cluster.endpoints(), &args, &[])
    };
    let first = writer(STOP);
    first.told(&format!("stops before {STOP}")).await;
    first.stopped().await;
    let second = writer("0");
    second.told("wrote ").await;
    first.signal(Signal::CONT);

    let told = first.outcome_of(STOP).await;
    assert!(!first.has_told("lost"), "it was to write, and not to look");
    let token = async |worker: &Worker| worker.told("holds ").await.parse().unwrap();
    (told, token(&first).await, token(&second).await)
}

#[tokio::test]
async fn s3_6_a_write_that_a_pause_held_up_is_refused_by_the_guard() {
    let store = Store::start(Some(Guard::new(LeaseName::parse("db").unwrap()))).await;
    let (told, old, new) = a_write_held_up_by_a_pause(&store).await;

    assert!(told.starts_with("refused: "), "{told}");
    assert!(told.contains(&old.to_string()), "{told}");
    let written = store.written();
    assert!(old < new && written.is_sorted(), "{written:?}");
    assert!(written.contains(&old) && written.contains(&new));
}

#[tokio::test]
async fn s3_6_without_a_guard_the_same_write_gets_in() {
    let store = Store::start(None).await;
    let (told, old, new) = a_write_held_up_by_a_pause(&store).await;

    assert!(told.starts_with("wrote"), "{told}");
    let written = store.written();
    assert!(old < new && !written.is_sorted(), "{written:?}");
}
