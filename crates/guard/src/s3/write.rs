//! One guarded write, from the first look at the object to an outcome that is known.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use object_store::{Error, PutMode};
use ringfence_core::FencingToken;
use ringfence_planted::{Bug, planted};
use tokio::time::sleep;

use super::base::{Base, Fate};
use super::head::{Head, WriteId};
use super::store::{Failure, Part};
use super::{ATTEMPTS, BODY_MAX, Change, FAILURES_MAX, S3Error, S3Guard};
use crate::retries::{Conflict, Retries};
use crate::{Admitted, Fence, Refused};

/// How long to wait after the first failure of a write's request; after each further one it is as
/// much longer.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// What a write makes of the object that it sees.
pub(super) enum Next {
    /// It is as it should be.
    Keep,
    Write(Change),
}

impl Next {
    /// What raises the mark to `token` and keeps the body, of an object that was read as a whole. A
    /// mark that is there already need not be written again: no write of a smaller token can follow
    /// it, since that would be put over an object with a smaller mark.
    pub(super) fn raise(base: &Base, token: FencingToken) -> Self {
        if base.mark() >= Some(token) {
            return Self::Keep;
        }
        Self::Write(base.body().map_or(Change::Delete, Change::Put))
    }
}

/// What became of one object that was sent.
enum Sent {
    /// It was written; its ETag, if it is known.
    Written(Option<String>),
    /// It was not written and will not be, over what there was. This is there now.
    Lost(Base),
}

impl S3Guard {
    /// Writes what `make` makes of the object, under the token of `fence`.
    pub(super) async fn run<E: From<S3Error>>(
        &self,
        fence: &Fence,
        part: Part,
        known: Option<Base>,
        make: impl FnMut(&Base) -> Result<Next, E>,
    ) -> Result<Admitted, E> {
        let judge = |base: &Base| {
            fence.judge(&self.name, base.mark())?;
            self.ceiling.judge(fence, base.mark())
        };
        fence.check_lease(&self.name).map_err(S3Error::from)?;
        self.run_judged(fence.token, part, known, judge, make)
            .await?;
        Ok(Admitted::new(fence.token))
    }

    /// As [`S3Guard::run`], with a mark that `judge` decides about.
    pub(super) async fn run_judged<E: From<S3Error>>(
        &self,
        mark: FencingToken,
        part: Part,
        known: Option<Base>,
        judge: impl Fn(&Base) -> Result<(), Refused>,
        mut make: impl FnMut(&Base) -> Result<Next, E>,
    ) -> Result<(), E> {
        self.store.check().await?;
        let id = WriteId::random().ok_or(S3Error::NoRandomNumbers)?;
        let mut retries = Retries::new(ATTEMPTS);
        let mut judged = false;
        // What is remembered may be out of date: good enough to try, not to refuse.
        let mut seen = known.filter(|known| judge(known).is_ok());
        loop {
            let base = match seen.take() {
                Some(base) => base,
                None => self.look(part).await?,
            };
            if !(judged && planted(Bug::S3ConflictRetriedBlindly)) {
                judge(&base).map_err(S3Error::from)?;
                judged = true;
            }
            let Next::Write(change) = make(&base)? else {
                return Ok(());
            };
            let body = body_of(change)?;
            let length = body.as_ref().map(|body| body.len() as u64);
            let head = Head::next(base.head(), self.name.clone(), mark, length, &id);
            let content = content(&head, body.as_ref());
            match self.send(&base, &id, content, part).await? {
                Sent::Written(etag) => {
                    if let Some(etag) = etag {
                        self.remember(Base::written(head, etag));
                    }
                    return Ok(());
                }
                Sent::Lost(now) => seen = Some(now),
            }
            let Some(pause) = retries.pause_after(Conflict::Transaction) else {
                return Err(self.contended().into());
            };
            sleep(pause).await;
        }
    }

    /// Sends one object to be put over `base`, again if need be, until it is known what became of it.
    async fn send(
        &self,
        base: &Base,
        id: &WriteId,
        content: Bytes,
        part: Part,
    ) -> Result<Sent, S3Error> {
        let mut failures = 0;
        let mode = match base.condition()? {
            _ if planted(Bug::S3MarkWithoutCondition) => PutMode::Overwrite,
            condition => condition,
        };
        // The first failure after which the object may have been written.
        let mut uncertain: Option<Error> = None;
        loop {
            let put = self.store.put(&self.key, mode.clone(), content.clone());
            let source = match put.await {
                Ok(etag) => return Ok(Sent::Written(etag)),
                Err(source) => source,
            };
            let answered = match (Failure::of(&source), &uncertain) {
                (Failure::Refused, None) => return Err(S3Error::Store { source }),
                (Failure::Uncertain, None) if planted(Bug::S3LostAnswerMeansNotWritten) => {
                    return Err(S3Error::Store { source });
                }
                (Failure::Conflict, None) => true,
                _ => false,
            };
            let source = uncertain.take().unwrap_or(source);
            // Also behind a conflict: what is in between may have sent the request twice, and the
            // second one then met what the first one wrote.
            match self.look(part).await {
                Ok(now) => match base.fate(&now, id) {
                    Fate::Written => return Ok(Sent::Written(None)),
                    Fate::Lost => return Ok(Sent::Lost(now)),
                    Fate::Unclear => return Err(S3Error::Unknown { source }),
                    // It met a write that is under way.
                    Fate::Open if answered => return Ok(Sent::Lost(now)),
                    // It may be under way itself. Sent again, either comes first, and the other
                    // finds that its condition does not hold.
                    Fate::Open => {}
                },
                Err(S3Error::Store { .. }) => {}
                // What is there now is none of a guard's objects.
                Err(other) if answered => return Err(other),
                Err(_) => return Err(S3Error::Unknown { source }),
            }
            failures += 1;
            if failures == FAILURES_MAX {
                return Err(S3Error::Unknown { source });
            }
            uncertain = Some(source);
            sleep(FAILURE_PAUSE * failures).await;
        }
    }

    fn contended(&self) -> S3Error {
        S3Error::Contended {
            key: self.key().to_owned(),
            attempts: ATTEMPTS,
        }
    }
}

fn body_of(change: Change) -> Result<Option<Bytes>, S3Error> {
    let Change::Put(body) = change else {
        return Ok(None);
    };
    let offered = body.len() as u64;
    if offered > BODY_MAX {
        return Err(S3Error::TooLarge {
            offered,
            max: BODY_MAX,
        });
    }
    Ok(Some(body))
}

fn content(head: &Head, body: Option<&Bytes>) -> Bytes {
    let mut content = BytesMut::from(head.encode().as_bytes());
    content.extend_from_slice(body.map_or(&[], |body| body));
    content.freeze()
}
