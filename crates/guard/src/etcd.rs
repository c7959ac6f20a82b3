//! The guard of data in etcd: one transaction compares the mark, and writes mark and data.
//!
//! ```no_run
//! use ringfence_guard::Fence;
//! use ringfence_guard::etcd::{Branch, Compare, EtcdClient, EtcdGuard, Txn};
//! use tonic::transport::Endpoint;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = Endpoint::from_static("http://127.0.0.1:2379");
//! let limit = std::time::Duration::from_secs(5);
//! let endpoint = endpoint.timeout(limit).connect_timeout(limit);
//! let mut client = EtcdClient::new(endpoint.connect_lazy());
//!
//! let fence: Fence = "bank/balance#9".parse()?;
//! let guard = EtcdGuard::new(fence.name.clone());
//!
//! // A new holder advances the mark before its first read.
//! guard.advance(&mut client, &fence).await?;
//! let amount = client.get("balance").await?.unwrap_or_default();
//!
//! // Mark and data at once, or neither. An older holder: `STALE_TOKEN`, and nothing is written.
//! let txn = Txn::new()
//!     .when(Compare::value("balance", amount))
//!     .put("balance", "110");
//! let written = guard.admit(&mut client, &fence, txn).await?;
//! if written.branch == Branch::Otherwise {
//!     // The fence is admitted, and the caller's own comparison does not hold.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # How it compares
//! The mark of a lease is the key `ringfence/marks/NAME`. The guard's transaction compares that key and puts
//! it, also when it is equal, and carries the caller's transaction as one of its operations. So a comparison
//! of the caller never decides whether the fence is stale, and a stale fence never takes the caller's second
//! branch. A holder at work needs one round trip: the guard compares the whole value, which is the
//! one of its own token. If it is another one, the guard reads it from the answer, judges it, and compares
//! the revision at which the key was last changed. That is repeated while the mark moves in between, at
//! most [`ATTEMPTS`] times.
//!
//! # The key of the mark
//! Its value is three lines of text, each with a line feed at its end; the token has 19 digits:
//!
//! ```text
//! ringfence-mark 1
//! lease bank/balance
//! mark 0000000000000000009
//! ```
//!
//! The number in the first line is the version of this text. Another version is refused
//! ([`EtcdError::OtherVersion`]), and so is a value that is no mark ([`EtcdError::DamagedMark`]).
//! No lease of etcd is attached to the key, so it never expires.
//!
//! # What is not covered
//! | what | why | instead |
//! |---|---|---|
//! | writes that pass by the guard | etcd carries them out | roles of etcd: write access to the guarded keys and to `ringfence/marks/` for services that use guards alone |
//! | keys that go with a lease of etcd | etcd deletes them when that lease ends, whatever the mark is | no such lease on guarded keys, unless that is meant |
//! | `etcdutl snapshot restore`, `--force-new-cluster` | mark and data go back together, and a stale holder may be admitted again | [`EtcdGuard::advance_to`] with the lease's newest token before writes are served |
//! | reads of a member with `serializable` | they may be older than the mark | linearizable reads, etcd's default and that of [`EtcdClient::get`] |
//!
//! etcd 3.4 or later, since transactions in transactions are needed. Tested: 3.6.

mod client;
mod error;
mod messages;
mod seal;
mod txn;

use ringfence_core::{FencingToken, LeaseName};
use ringfence_planted::{Bug, planted};
use tokio::time::sleep;

use crate::mark_text::{self, Unreadable};
use crate::retries::{Conflict, Retries};
use crate::{Admitted, Ceiling, Fence};

pub use crate::retries::{ATTEMPTS, PAUSE_MAX, PAUSE_MIN};
pub use client::EtcdClient;
pub use error::EtcdError;
pub use seal::EtcdSeal;
pub use txn::{Compare, OPERATIONS_MAX, Operation, Txn};

use messages::{KeyValue, PutRequest, RangeRequest, Request, RequestOp, Response, TxnResponse};

/// What comes before a lease name in the key of its mark.
pub const MARK_PREFIX: &str = "ringfence/marks/";

/// Which branch of a [`Txn`] was carried out. In both the fence was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// The first one: the caller's comparisons held.
    Then,
    /// The second one: one of them did not hold.
    Otherwise,
}

/// What an operation of the branch answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The key was set.
    Put,
    /// So many keys were deleted.
    Deleted(u64),
    /// The value of the key; `None` if there is none.
    Value(Option<Vec<u8>>),
}

/// A guarded transaction that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the caller's comparisons may not have held"]
pub struct Written {
    /// The proof that the fence was admitted.
    pub admitted: Admitted,
    /// The branch.
    pub branch: Branch,
    /// What its operations answered, in their order.
    pub answers: Vec<Answer>,
    /// The revision of etcd behind it.
    pub revision: i64,
}

/// A guard whose mark is a key beside the data, bound to one lease. It holds no state of its own; any
/// number may exist.
#[derive(Clone, Debug)]
pub struct EtcdGuard {
    name: LeaseName,
    mark_key: String,
    ceiling: Ceiling,
}

/// The mark as it was seen, and the revision at which it was written; 0: there is none.
struct Seen {
    mark: Result<Option<FencingToken>, Unreadable>,
    mod_revision: i64,
    /// Whether a lease of etcd is attached to it.
    expires: bool,
}

impl EtcdGuard {
    /// A guard bound to `name`.
    #[must_use]
    pub fn new(name: LeaseName) -> Self {
        Self {
            mark_key: format!("{MARK_PREFIX}{name}"),
            name,
            ceiling: Ceiling::Clock,
        }
    }

    /// Sets the greatest token that raises the mark; [`Ceiling::Clock`] unless set otherwise.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Ceiling) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// The lease this guard is bound to.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// The key of the mark, to be named in the roles of etcd.
    #[must_use]
    pub fn mark_key(&self) -> &str {
        &self.mark_key
    }

    /// Admits the fence if no greater token was admitted before, and carries out `txn` together with
    /// the mark. One round trip if the token is the mark already, two if it raises it.
    ///
    /// # Errors
    /// [`EtcdError::Unknown`]: whether it was written is not known. After every other error nothing
    /// was; after [`Refused::StaleToken`](crate::Refused::StaleToken) the lease is lost.
    pub async fn admit(
        &self,
        client: &mut EtcdClient,
        fence: &Fence,
        txn: Txn,
    ) -> Result<Written, EtcdError> {
        fence.check_lease(&self.name)?;
        txn.check()?;
        self.run(client, fence, txn, None).await
    }

    /// Tells the guard that `fence` is the grant in force: once it has returned, every older token
    /// is refused. A new holder calls it **before its first read** of what is guarded. Advancing
    /// twice changes nothing. Two round trips.
    ///
    /// # Errors
    /// As [`EtcdGuard::admit`]; after [`EtcdError::Unknown`] advance again.
    pub async fn advance(
        &self,
        client: &mut EtcdClient,
        fence: &Fence,
    ) -> Result<Admitted, EtcdError> {
        fence.check_lease(&self.name)?;
        let seen = self.look(client).await?;
        let written = self.run(client, fence, Txn::new(), Some(seen)).await?;
        Ok(written.admitted)
    }

    /// Raises the mark to `floor` if it is lower, and repairs a damaged one; never lowers it. After a
    /// restore of etcd, call it with the lease's newest token before writes are served. The
    /// [`Ceiling`] does not judge it.
    ///
    /// # Errors
    /// As [`EtcdGuard::admit`]; never a refusal.
    pub async fn advance_to(
        &self,
        client: &mut EtcdClient,
        floor: FencingToken,
    ) -> Result<(), EtcdError> {
        let mut retries = Retries::new(ATTEMPTS);
        let mut seen = self.look(client).await?;
        loop {
            let raised = match seen.mark {
                // A mark that a lease of etcd is attached to would end with it.
                Ok(mark) if mark >= Some(floor) && !seen.expires => return Ok(()),
                Ok(mark) => mark.map_or(floor, |mark| mark.max(floor)),
                Err(Unreadable::Damaged(_)) => floor,
                Err(other) => return Err(EtcdError::unreadable(&self.name, other)),
            };
            let compare = Compare::mod_revision(self.mark_key.as_str(), seen.mod_revision);
            let answer = self.send(client, compare, raised, Txn::new()).await?;
            if answer.succeeded {
                return Ok(());
            }
            seen = self.seen(answer)?;
            self.pause(&mut retries).await?;
        }
    }

    /// The greatest token admitted so far. Advice for people: only a write decides.
    ///
    /// # Errors
    /// [`EtcdError::DamagedMark`], [`EtcdError::OtherVersion`], [`EtcdError::OtherLease`],
    /// [`EtcdError::Server`] or [`EtcdError::Unknown`].
    pub async fn mark(&self, client: &mut EtcdClient) -> Result<Option<FencingToken>, EtcdError> {
        let seen = self.look(client).await?;
        seen.mark
            .map_err(|why| EtcdError::unreadable(&self.name, why))
    }

    /// Carries out `txn` under the fence; `seen` is what is known of the mark, if it was looked at.
    async fn run(
        &self,
        client: &mut EtcdClient,
        fence: &Fence,
        txn: Txn,
        mut seen: Option<Seen>,
    ) -> Result<Written, EtcdError> {
        let mut retries = Retries::new(ATTEMPTS);
        loop {
            let compare = match &seen {
                // The holder at work. What else stands there is in the answer.
                None => {
                    let own = mark_text::encode(&self.name, fence.token);
                    Compare::value(self.mark_key.as_str(), own)
                }
                Some(seen) => {
                    self.judge(fence, seen)?;
                    Compare::mod_revision(self.mark_key.as_str(), seen.mod_revision)
                }
            };
            let answer = self.send(client, compare, fence.token, txn.clone()).await?;
            if answer.succeeded {
                return written(Admitted::new(fence.token), answer);
            }
            // The first attempt only looked, unless the mark was its own.
            let moved = seen.is_some();
            seen = Some(self.seen(answer)?);
            if moved {
                self.pause(&mut retries).await?;
            }
        }
    }

    fn judge(&self, fence: &Fence, seen: &Seen) -> Result<(), EtcdError> {
        let mark = match &seen.mark {
            Ok(mark) => *mark,
            Err(why) => return Err(EtcdError::unreadable(&self.name, why.clone())),
        };
        fence.judge(&self.name, mark)?;
        self.ceiling.judge(fence, mark)?;
        Ok(())
    }

    async fn pause(&self, retries: &mut Retries) -> Result<(), EtcdError> {
        let Some(pause) = retries.pause_after(Conflict::Transaction) else {
            return Err(EtcdError::Contended {
                name: self.name.clone(),
                attempts: ATTEMPTS,
            });
        };
        sleep(pause).await;
        Ok(())
    }

    async fn look(&self, client: &mut EtcdClient) -> Result<Seen, EtcdError> {
        Ok(self.read(client.look(self.mark_key.as_bytes()).await?))
    }

    /// The mark in the answer to a transaction whose comparison of it did not hold.
    fn seen(&self, answer: TxnResponse) -> Result<Seen, EtcdError> {
        let only = answer.responses.into_iter().next();
        match only.and_then(|only| only.response) {
            Some(Response::Range(range)) => Ok(self.read(range.kvs.into_iter().next())),
            _ => Err(EtcdError::garbled()),
        }
    }

    fn read(&self, found: Option<KeyValue>) -> Seen {
        let Some(found) = found else {
            return Seen {
                mark: Ok(None),
                mod_revision: 0,
                expires: false,
            };
        };
        let mark = match mark_text::decode(&found.value, &self.name) {
            Ok((mark, "")) => Ok(Some(mark)),
            Ok(_) => Err(Unreadable::Damaged("more than three lines")),
            Err(why) => Err(why),
        };
        Seen {
            mark,
            mod_revision: found.mod_revision,
            expires: found.lease != 0,
        }
    }

    /// Sends the transaction that writes `mark` and carries `txn`, if `compare` holds; else it reads the
    /// mark.
    async fn send(
        &self,
        client: &mut EtcdClient,
        compare: Compare,
        mark: FencingToken,
        txn: Txn,
    ) -> Result<TxnResponse, EtcdError> {
        let key = self.mark_key.clone().into_bytes();
        let put = Request::Put(PutRequest {
            key: key.clone(),
            value: mark_text::encode(&self.name, mark).into_bytes(),
            lease: 0,
        });
        let read = Request::Range(RangeRequest {
            key,
            range_end: Vec::new(),
        });
        let success: Vec<RequestOp> = vec![put.into(), Request::Txn(txn.into_message()).into()];
        let compare = match planted(Bug::EtcdMarkNotCompared) {
            true => vec![],
            false => vec![compare.into_message()],
        };
        let request = messages::TxnRequest {
            compare,
            success,
            failure: vec![read.into()],
        };
        client.txn(request).await
    }
}

/// What the caller's own transaction answered, inside of the guard's.
fn written(admitted: Admitted, answer: TxnResponse) -> Result<Written, EtcdError> {
    let revision = answer.header.map_or(0, |header| header.revision);
    let inner = answer.responses.into_iter().nth(1);
    let Some(Response::Txn(inner)) = inner.and_then(|inner| inner.response) else {
        return Err(EtcdError::garbled());
    };
    let answers = inner.responses.into_iter().map(|one| match one.response {
        Some(Response::Put(_)) => Ok(Answer::Put),
        Some(Response::DeleteRange(gone)) => {
            Ok(Answer::Deleted(gone.deleted.try_into().unwrap_or(0)))
        }
        Some(Response::Range(range)) => {
            let found = range.kvs.into_iter().next();
            Ok(Answer::Value(found.map(|found| found.value)))
        }
        Some(Response::Txn(_)) | None => Err(EtcdError::garbled()),
    });
    Ok(Written {
        admitted,
        branch: match inner.succeeded {
            true => Branch::Then,
            false => Branch::Otherwise,
        },
        answers: answers.collect::<Result<_, _>>()?,
        revision,
    })
}
