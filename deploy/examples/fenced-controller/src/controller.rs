//! What the leader does: kube-runtime's `Controller`, with a client whose writes are fenced.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use ringfence_client::{FencingToken, Leading};
use ringfence_kube::fenced::{Verdict, stamp};
use serde_json::json;

/// What is guarded.
const LEDGER: &str = "ledger";
/// How long the leader rests between two writes.
const PAUSE: Duration = Duration::from_millis(100);

/// What belongs to one term.
struct Term {
    ledgers: Api<ConfigMap>,
    token: FencingToken,
}

/// Runs the controller of one term until that is over, or is to be given up. Nothing new is begun
/// from then on; what is under way comes to its end.
///
/// # Errors
/// If what it guards cannot be made its own.
pub(crate) async fn run(
    client: Client,
    namespace: &str,
    leading: Leading,
) -> Result<(), Box<dyn Error>> {
    let ledgers: Api<ConfigMap> = Api::namespaced(client, namespace);
    own(&ledgers, &leading).await?;

    let (lost, leaving) = (leading.lost(), leading.leaving());
    let over = tokio::spawn(async move {
        tokio::select! {
            _ = lost => {}
            () = leaving => {}
        }
    });
    let term = Term {
        ledgers: ledgers.clone(),
        token: leading.token(),
    };
    let chosen = watcher::Config::default().fields(&format!("metadata.name={LEDGER}"));
    let controlling = Controller::new(ledgers, chosen)
        .with_config(controller::Config::default().debounce(PAUSE))
        .graceful_shutdown_on(async move { drop(over.await) })
        .run(reconcile, error_policy, Arc::new(term))
        .for_each(async |done| match done {
            // Those that failed are reported by the error policy.
            Ok(_) | Err(controller::Error::ReconcilerFailed(..)) => {}
            Err(error) => println!("failed: {error}"),
        });
    // In a task of its own: at the loss of the lease this function is dropped, and a reconcile in the
    // middle of its writes shall not be. What it still sends is refused by the API server.
    tokio::spawn(controlling).await?;
    Ok(())
}

/// Before the first read, the watch's included: from here on no earlier leader can change what
/// is read.
async fn own(ledgers: &Api<ConfigMap>, leading: &Leading) -> Result<(), Box<dyn Error>> {
    let stamped = stamp(ledgers, leading, [LEDGER]).await?;
    if stamped.objects.is_empty() {
        let metadata = ObjectMeta {
            name: Some(LEDGER.to_owned()),
            ..ObjectMeta::default()
        };
        let ledger = ConfigMap {
            metadata,
            ..ConfigMap::default()
        };
        ledgers.create(&PostParams::default(), &ledger).await?;
    }
    Ok(())
}

/// Counts on by one. The write changes the ledger, so it is called again.
async fn reconcile(ledger: Arc<ConfigMap>, term: Arc<Term>) -> Result<Action, kube::Error> {
    let name = ledger.name_any();
    // The watch may be behind this controller's own last write.
    let ledger = term.ledgers.get(&name).await?;
    let next = count(&ledger) + 1;
    let (ledgers, token) = (&term.ledgers, term.token);
    let data = json!({"data": {"count": next.to_string(), "token": token.to_string()}});
    let params = PatchParams::default();
    ledgers.patch(&name, &params, &Patch::Merge(&data)).await?;
    println!("wrote {next} under token {token}");
    Ok(Action::await_change())
}

fn count(ledger: &ConfigMap) -> u64 {
    let data = ledger.data.as_ref();
    let count = data.and_then(|data| data.get("count"));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Tells what became of a write. If its token is stale the layer has ended the term, and with it the
/// controller; else it is tried again.
fn error_policy(_: Arc<ConfigMap>, error: &kube::Error, _: Arc<Term>) -> Action {
    match Verdict::of(error) {
        Verdict::Stale(words) => println!("refused by the API server: {words}"),
        Verdict::Refused(words) => println!("refused, and the term goes on: {words}"),
        Verdict::Unsent(why) => println!("{why}"),
        Verdict::Other => println!("failed: {error}"),
    }
    Action::requeue(PAUSE)
}
