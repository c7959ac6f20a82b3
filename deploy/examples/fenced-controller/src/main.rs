//! A controller in several replicas, of which one leads. What it writes to Kubernetes carries the
//! fence of its lease, so the API server refuses a replica that was paused, became stale, and wakes
//! up.
//!
//! It keeps a counter in the ConfigMap `ledger`: each write is based on the one before, so a stale
//! one would be a lost update that is easy to see. See the README beside this package for how it
//! is deployed.

mod controller;
mod pause;
mod settings;

use std::error::Error;
use std::time::Duration;

use kube::Config;
use kube::client::ClientBuilder;
use ringfence_client::{Client, Elector, Leading, Successor};
use ringfence_kube::fenced::{Carrier, Fencing, own_user};
use tokio::signal::unix::{SignalKind, signal};

use pause::StopBeforeSending;
use settings::Settings;

/// How long reconciles may take to come to their end when the leader is asked to leave.
const GRACE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_env()?;
    let config = Config::infer().await?;
    // Who it impersonates when it adds its fence to who it is: itself.
    let user = own_user(&kube::Client::try_from(config.clone())?).await?;
    let carrier = Carrier::impersonate(user);

    let mut client = Client::builder().endpoints(&settings.endpoints);
    if let Some(file) = &settings.token_file {
        client = client.token_file(file);
    }
    let client = client.connect().await?;
    let elector = Elector::builder(&client).timings(settings.timings).build();
    println!("I am {}", elector.identity());
    let campaign = elector
        .campaign(&settings.lease)
        .grace(GRACE)
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
    let mut config = config.clone();
    // What is repeated below the layer is sent without a look at the lease.
    config.default_retry = false;
    let client = ClientBuilder::try_from(config)?
        .with_layer(pause)
        .with_layer(&Fencing::new(leading.clone(), carrier.clone()))
        .build();
    controller::run(client, namespace, leading).await
}
