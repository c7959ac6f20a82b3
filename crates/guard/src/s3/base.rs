//! The object that a write is put over, and what a later look at it says about that write.

use bytes::Bytes;
use object_store::PutMode;
use ringfence_core::FencingToken;

use super::head::{Head, WriteId};
use super::store::{Part, Seen, if_match, is_strong};
use super::{S3Error, S3Guard};

/// How often an object is read again whose parts do not fit together: some servers read size,
/// ETag and content one after the other, while the object is replaced.
const READS: u32 = 3;

/// The object under the key of a guard, as it was seen.
#[derive(Debug)]
pub(super) enum Base {
    /// There is none.
    Absent,
    /// There is one that a guard has written.
    Object {
        head: Head,
        /// `None` if it has none that conditions can name.
        etag: Option<String>,
        /// `None` if it is deleted, or if only the head was read.
        body: Option<Bytes>,
    },
}

/// What became of a write that was put over a [`Base`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    /// Another write took its place.
    Lost,
    /// What it was put over is still there.
    Open,
    /// The object has gone on too far, or back, to say.
    Unclear,
}

impl Base {
    /// What this guard wrote itself, without the body.
    pub(super) fn written(head: Head, etag: String) -> Self {
        Self::Object {
            head,
            etag: Some(etag),
            body: None,
        }
    }

    pub(super) const fn head(&self) -> Option<&Head> {
        match self {
            Self::Absent => None,
            Self::Object { head, .. } => Some(head),
        }
    }

    pub(super) fn mark(&self) -> Option<FencingToken> {
        self.head().map(|head| head.mark)
    }

    /// The body of an object that was read as a whole.
    pub(super) fn body(&self) -> Option<Bytes> {
        match self {
            Self::Absent => None,
            Self::Object { body, .. } => body.clone(),
        }
    }

    /// The condition that this is still there.
    pub(super) fn condition(&self) -> Result<PutMode, S3Error> {
        match self {
            Self::Absent => Ok(PutMode::Create),
            Self::Object { etag, .. } => match etag {
                Some(etag) => Ok(if_match(etag.clone())),
                None => Err(S3Error::Unfit {
                    why: "its answers carry no strong ETag, so no condition can name an object",
                }),
            },
        }
    }

    /// What became of the write `id` that was put over this, seen what is there now.
    pub(super) fn fate(&self, now: &Self, id: &WriteId) -> Fate {
        let revision = |base: &Self| base.head().map_or(0, |head| head.revision);
        let newest = now.head().map_or(&[][..], |head| &head.writes);
        if newest.contains(id) {
            return Fate::Written;
        }
        match (self, now) {
            (Self::Absent, Self::Absent) => return Fate::Open,
            (Self::Object { etag, .. }, Self::Object { etag: now, .. })
                if etag.is_some() && etag == now =>
            {
                return Fate::Open;
            }
            _ => {}
        }
        // The one that took its place counts one more than what it was put over.
        let behind = revision(now).saturating_sub(revision(self));
        match usize::try_from(behind) {
            Ok(behind @ 1..) if behind <= newest.len() => Fate::Lost,
            _ => Fate::Unclear,
        }
    }
}

impl S3Guard {
    /// What is under the key now.
    pub(super) async fn look(&self, part: Part) -> Result<Base, S3Error> {
        let mut reads = 0;
        loop {
            let Some(seen) = self.store.get(&self.key, part).await? else {
                return Ok(Base::Absent);
            };
            reads += 1;
            match self.understand(seen) {
                Err(S3Error::Damaged { .. } | S3Error::NotGuarded { .. }) if reads < READS => {}
                understood => return understood,
            }
        }
    }

    fn understand(&self, seen: Seen) -> Result<Base, S3Error> {
        let key = || self.key().to_owned();
        let damaged = |why| S3Error::Damaged { key: key(), why };
        let decoded = Head::decode(&seen.content).map_err(damaged)?;
        let (head, length) = decoded.ok_or_else(|| S3Error::NotGuarded { key: key() })?;
        if head.lease != self.name {
            return Err(S3Error::OtherLease {
                key: key(),
                expected: self.name.clone(),
                found: head.lease,
            });
        }
        if head.body.unwrap_or(0) != seen.size - length as u64 {
            return Err(damaged("its body is not as long as its head says"));
        }
        let whole = seen.size == seen.content.len() as u64;
        let body = head.body.filter(|_| whole);
        Ok(Base::Object {
            body: body.map(|_| seen.content.slice(length..)),
            head,
            etag: seen.etag.filter(|etag| is_strong(etag)),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_core::LeaseName;

    use super::super::head::WRITES_KEPT;
    use super::*;

    fn id() -> WriteId {
        WriteId::random().unwrap()
    }

    /// What is there once `id` was written over `before`.
    fn over(before: &Base, id: &WriteId) -> Base {
        let lease = LeaseName::parse("a").unwrap();
        let mark = FencingToken::new(1).unwrap();
        let head = Head::next(before.head(), lease, mark, None, id);
        let etag = format!("\"{}\"", head.revision);
        Base::written(head, etag)
    }

    #[test]
    fn a_write_is_found_as_long_as_its_id_is_there_and_unclear_behind_that() {
        let ours = id();
        for base in [Base::Absent, over(&Base::Absent, &id())] {
            assert_eq!(base.fate(&over(&base, &ours), &ours), Fate::Written);
            let (mut with, mut without) = (over(&base, &ours), over(&base, &id()));
            for _ in 1..WRITES_KEPT {
                assert_eq!(base.fate(&with, &ours), Fate::Written);
                assert_eq!(base.fate(&without, &ours), Fate::Lost);
                (with, without) = (over(&with, &id()), over(&without, &id()));
            }
            for now in [with, without] {
                let now = over(&now, &id());
                assert_eq!(base.fate(&now, &ours), Fate::Unclear);
            }
        }
    }

    #[test]
    fn an_object_that_is_as_it_was_leaves_the_write_open_and_one_that_went_back_unclear() {
        let first = over(&Base::Absent, &id());
        let second = over(&first, &id());
        assert_eq!(Base::Absent.fate(&Base::Absent, &id()), Fate::Open);
        let again = Base::written(second.head().unwrap().clone(), "\"2\"".to_owned());
        assert_eq!(second.fate(&again, &id()), Fate::Open);
        assert_eq!(second.fate(&Base::Absent, &id()), Fate::Unclear);
        assert_eq!(second.fate(&first, &id()), Fate::Unclear);
    }
}
