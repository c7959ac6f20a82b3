//! A controller in several replicas, of which one leads. What it writes to Kubernetes carries the
//! fence of its lease, so the API server refuses a replica that was paused, overtaken, and wakes up.
//!
//! It keeps a counter in the ConfigMap `ledger`: each write is based on the one before, so a stale
//! one would be a lost update that everybody can see. See the README beside this package for how it
//! is deployed.

mod pause;
mod settings;

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Config;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use ringfence_client::{Client, Elector, Leading, Successor};
use ringfence_kube::fenced::{Carrier, Fencing, Verdict, own_user, stamp};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use pause::StopBeforeSending;
use settings::Settings;

/// What is guarded.
const LEDGER: &str = "ledger";
/// How long the leader rests between two writes.
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_env()?;
    let config = Config::infer().await?;
    // Who it impersonates when it adds its fence to who it is: itself.
    let user = own_user(&kube::Client::try_from(config.clone())?).await?;
    let carrier = Carrier::impersonate(user);

    let client = Client::connect(&settings.endpoints).await?;
    let elector = Elector::builder(&client).timings(settings.timings).build();
    println!("I am {}", elector.identity());
    let campaign = elector
        .campaign(&settings.lease)
        .on_new_leader(|leader| println!("leader: {}", leader.identity))
        .on_stopped(|stopped| println!("stopped: {}", stopped.cause));

    // A rolling update ends Pods with SIGTERM: the next replica leads before this one is gone.
    let handle = campaign.handle();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        handle.leave(Successor::Next);
    });

    let pause = StopBeforeSending::new(settings.stop_at);
    let namespace = settings.namespace.as_str();
    campaign
        .run(|leading| {
            println!("leading: {}", leading.fence());
            lead(&config, &carrier, &pause, namespace, leading)
        })
        .await?;
    Ok(())
}

/// One term.
async fn lead(
    config: &Config,
    carrier: &Carrier,
    pause: &StopBeforeSending,
    namespace: &str,
    leading: Leading,
) -> Result<(), Box<dyn Error>> {
    // A client of this term: its writes carry this token. Without the pause, which is here to show
    // the worst moment, `fenced::client(config, leading, carrier)` does it.
    let client = ClientBuilder::try_from(config.clone())?
        .with_layer(pause)
        .with_layer(&Fencing::new(leading.clone(), carrier.clone()))
        .build();
    let ledgers: Api<ConfigMap> = Api::namespaced(client, namespace);

    // Before the first read: from here on nobody who led before can change what is read.
    let stamped = stamp(&ledgers, [LEDGER]).await?;
    let mut ledger = match stamped.objects.into_iter().next() {
        Some(ledger) => ledger,
        None => {
            let metadata = ObjectMeta {
                name: Some(LEDGER.to_owned()),
                ..ObjectMeta::default()
            };
            let ledger = ConfigMap {
                metadata,
                ..ConfigMap::default()
            };
            ledgers.create(&PostParams::default(), &ledger).await?
        }
    };
    loop {
        let next = count(&ledger) + 1;
        let (ledgers, token) = (ledgers.clone(), leading.token());
        // In a task of its own, as a pool of workers has them: it goes on when the term is over,
        // which is what fences are for.
        let writing = tokio::spawn(async move { write(&ledgers, next, token.get()).await });
        ledger = writing.await??;
        tokio::time::sleep(PAUSE).await;
    }
}

fn count(ledger: &ConfigMap) -> u64 {
    let data = ledger.data.as_ref();
    let count = data.and_then(|data| data.get("count"));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

async fn write(ledgers: &Api<ConfigMap>, next: u64, token: u64) -> Result<ConfigMap, kube::Error> {
    let data = json!({"data": {"count": next.to_string(), "token": token.to_string()}});
    let written = ledgers
        .patch(LEDGER, &PatchParams::default(), &Patch::Merge(&data))
        .await;
    match &written {
        Ok(_) => println!("wrote {next} under token {token}"),
        Err(error) => match Verdict::of(error) {
            Verdict::Fenced(words) => println!("refused by the API server: {words}"),
            Verdict::Unsent(why) => println!("{why}"),
            Verdict::Other => println!("failed: {error}"),
        },
    }
    written
}
