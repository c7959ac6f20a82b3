//! The fence of a held lease on every write of a Kubernetes client: the holder's side of the
//! policies that `ringfence kube policy` prints.
//!
//! ```text
//!  controller ── kube::Client ── Fencing ──────────────▶ API server
//!                                  │ lost? not sent        │ policy: stale? refused
//!                                  └ fence on the write    └ mark on the object
//! ```
//!
//! A client made with [`client`] belongs to one grant, a term of a leader: a process that leads
//! again makes a new one, with the new token. Reads pass through it as they are; what opens a
//! connection (exec, attach, portforward, proxy) is no read, though it looks like one.
//!
//! - **It stops at loss.** The clock is asked for each write at the moment of sending; once the lease
//!   is lost nothing is sent any more, and the call fails with [`Unsent`], see [`Verdict::of`].
//! - **It believes a refusal.** When the API server says that this very token is stale, by a policy or
//!   by the webhook, belief in the lease ends here, too, and with it the leader's work. A refusal for
//!   another reason ends nothing; [`Verdict`] tells the two apart.
//! - **It sends once.** kube's own repetition of what was answered with 429, 503 or 504 is turned off:
//!   it would ask no clock. A caller that wants a call repeated makes it again, and it is judged
//!   again.
//! - **It hides nothing.** What was under way at the loss goes on, and its answer comes through.
//!
//! Between the question to the clock and the arrival of a write any time can pass. What makes that
//! harmless is the policy in the API server, which compares the token with the mark on the object
//! itself. That mark is of this term only once the object was stamped: a new leader calls
//! [`stamp`] for what it guards, *before its first read*, and reads what comes back. Where no policy
//! judges it fails, since nothing would be guarded there.
//!
//! Below Kubernetes 1.36 no policy writes marks: print them with `--without-mutation`, and let the
//! layer write the mark with [`Carrier::SequenceWithMark`].
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, Patch, PatchParams};
//! use ringfence_client::Leading;
//! use ringfence_kube::fenced::{self, Carrier, Verdict};
//! use serde_json::json;
//!
//! async fn lead(config: kube::Config, leading: Leading) -> Result<(), fenced::StampError> {
//!     let carrier = Carrier::impersonate("system:serviceaccount:shop:controller");
//!     let client = fenced::client(config, leading.clone(), carrier)?;
//!     let prices: Api<ConfigMap> = Api::default_namespaced(client);
//!     // From here on the API server refuses earlier leaders, for this object.
//!     fenced::stamp(&prices, &leading, ["prices"]).await?;
//!
//!     let patch = Patch::Merge(json!({"data": {"apple": "3"}}));
//!     match prices.patch("prices", &PatchParams::default(), &patch).await {
//!         Ok(_) => {}
//!         Err(error) => match Verdict::of(&error) {
//!             Verdict::Stale(why) => println!("this term is over: {why}"),
//!             Verdict::Refused(why) => println!("the write does not fit the rules: {why}"),
//!             Verdict::Unsent(lost) => println!("{lost}"),
//!             Verdict::Other => return Err(error.into()),
//!         },
//!     }
//!     Ok(())
//! }
//! ```

mod carrier;
mod held;
mod layer;
mod refusal;
mod request;
mod sequence;
mod stamp;

pub use carrier::{Carrier, own_user};
pub use held::Held;
pub use layer::{Fenced, Fencing, client};
pub use refusal::{Unsent, Verdict};
pub use stamp::{StampError, Stamped, stamp, stamp_all};
