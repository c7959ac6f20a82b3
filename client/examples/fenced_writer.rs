//! A fenced writer: two of these at once never both write, and one that was paused and became stale
//! is refused by the store.
//!
//! Start a cluster (`ringfence dev`), then this in two terminals:
//! `cargo run -p ringfence-client --example fenced_writer`. Stop the one that writes with Ctrl-Z:
//! the other takes over. Continue it with `fg`: it notices. It ends after 20 s, or the seconds given
//! as its argument, or at Ctrl-C.
//!
//! The store here is a file whose first number is the mark, the greatest token it has admitted. A
//! real store keeps the mark in the same transaction as the data; see the crate `ringfence-guard`.

mod common;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, process};

use ringfence_client::{
    Client, Fence, FencingToken, Seal, SealAnswer, SessionOptions, sealable_fn,
};

const WAIT: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = common::connect().await?;
    let path = env::var_os("RINGFENCE_EXAMPLE_FILE").map(PathBuf::from);
    let store = Store {
        path: path.unwrap_or_else(|| env::temp_dir().join("ringfence-fenced-writer")),
    };
    tokio::select! {
        result = write_for_ever(&client, &store) => result,
        // What it holds is released in the background, or else ends with its session.
        () = common::the_end() => Ok(()),
    }
}

async fn write_for_ever(client: &Client, store: &Store) -> Result<(), Box<dyn Error>> {
    let identity = format!("writer {}", process::id());
    loop {
        // A session that was lost stays lost: work goes on in a new one, with a new token.
        let options = SessionOptions {
            ttl: Duration::from_secs(5),
            identity: identity.clone(),
        };
        let session = client.open_session(options).await?;
        say(&format!("{identity} waits"));
        let lease = session
            .acquire("examples/fenced-writer")
            .wait(WAIT)
            // Before it is held: from then on the store refuses the holder before.
            .seal(seal(store))
            .send()
            .await?;
        say(&format!("{identity} holds {}", lease.fence()));
        match lease.run(count(store, lease.token())).await {
            Ok(refused) => say(&format!("the store refused: {}", refused?)),
            Err(loss) => say(&format!("lost: {loss}")),
        }
    }
}

/// Raises the store's mark to a new grant's token.
fn seal(store: &Store) -> Seal {
    let store = store.clone();
    Seal::at(sealable_fn("the file", move |fence: Fence| {
        let answer = match store.advance(fence.token) {
            Ok(None) => SealAnswer::Durable,
            Ok(Some(mark)) => SealAnswer::Refused(fence.overtaken_by(mark)),
            Err(error) => SealAnswer::Failed {
                why: error.to_string(),
            },
        };
        async { answer }
    }))
}

/// Counts until the store refuses.
async fn count(store: &Store, token: FencingToken) -> Result<String, std::io::Error> {
    loop {
        let (_, value) = store.read()?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        if let Err(stale) = store.write(token, value + 1)? {
            return Ok(stale);
        }
        say(&format!("wrote {} under token {token}", value + 1));
    }
}

/// A number in a file, and its mark.
#[derive(Clone)]
struct Store {
    path: PathBuf,
}

impl Store {
    fn read(&self) -> Result<(u64, u64), std::io::Error> {
        let text = read_if_there(&self.path)?;
        let mut numbers = text
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0));
        Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
    }

    /// Raises the mark; returns it if it is greater already.
    fn advance(&self, token: FencingToken) -> Result<Option<FencingToken>, std::io::Error> {
        let (mark, value) = self.read()?;
        if mark > token.get() {
            return Ok(FencingToken::new(mark));
        }
        fs::write(&self.path, format!("{token} {value}")).map(|()| None)
    }

    /// Writes, unless a greater token was here: then says so.
    fn write(&self, token: FencingToken, value: u64) -> Result<Result<(), String>, std::io::Error> {
        let (mark, _) = self.read()?;
        if token.get() < mark {
            return Ok(Err(format!("token {token} is below the mark {mark}")));
        }
        fs::write(&self.path, format!("{token} {value}")).map(Ok)
    }
}

fn read_if_there(path: &Path) -> Result<String, std::io::Error> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

fn say(text: &str) {
    println!("{text}");
}
