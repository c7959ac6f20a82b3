//! The body of a request that is read as a whole, in room of its connection's account.

use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use ringfence_proto::Refusal;
use ringfence_proto::wire::MESSAGE_BYTES_MAX;
use tokio::time::timeout;

use super::account::{Account, Held};
use super::client::Client;
use super::metered::crowded;
use crate::limits::{BYTES_PER_CALL, MESSAGE_TIME_MAX};
use crate::status::limit;

/// A body that has arrived, with its room.
pub struct WholeBody {
    bytes: Bytes,
    /// Beyond what the call itself has.
    _held: Option<Held>,
}

/// Why a body has not arrived.
#[derive(Debug)]
pub enum NoBody {
    /// It is larger than 1 MiB.
    TooLarge(Refusal),
    /// It took longer than 30 s.
    TooSlow(Refusal),
    /// The connection holds as much as it may.
    Crowded(Refusal),
    /// The connection broke, or the bytes were not framed as HTTP says.
    Broken(Refusal),
}

impl WholeBody {
    /// What arrived.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Client {
    /// Reads a body of at most 1 MiB, for at most 30 s.
    ///
    /// # Errors
    /// [`NoBody`] says why there is none; nothing was done.
    pub async fn whole_body<B>(&self, body: B) -> Result<WholeBody, NoBody>
    where
        B: Body<Data = Bytes>,
    {
        let most = u64::try_from(MESSAGE_BYTES_MAX).unwrap_or(u64::MAX);
        // Before a byte of it is read: a client that expects `100 Continue` sends none of it then.
        if body.size_hint().lower() > most {
            return Err(too_large());
        }
        let reading = timeout(MESSAGE_TIME_MAX, read(self.account(), body));
        reading.await.unwrap_or_else(|_| Err(too_slow()))
    }
}

async fn read<B>(account: &Arc<Account>, body: B) -> Result<WholeBody, NoBody>
where
    B: Body<Data = Bytes>,
{
    let mut body = pin!(body);
    let (mut bytes, mut held) = (BytesMut::new(), None::<Held>);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(broken());
        };
        let Ok(some) = frame.into_data() else {
            continue;
        };
        if bytes.len() + some.len() > MESSAGE_BYTES_MAX {
            return Err(too_large());
        }
        // The call's own room has what is small.
        if bytes.len() + some.len() > BYTES_PER_CALL {
            let more = account.try_reserve(some.len());
            let more = more.ok_or_else(|| NoBody::Crowded(crowded()))?;
            match &mut held {
                Some(held) => held.join(more),
                None => held = Some(more),
            }
        }
        bytes.extend_from_slice(&some);
    }
    Ok(WholeBody {
        bytes: bytes.freeze(),
        _held: held,
    })
}

fn too_large() -> NoBody {
    let advice = "send a smaller request";
    NoBody::TooLarge(limit("message_bytes", MESSAGE_BYTES_MAX, advice))
}

fn too_slow() -> NoBody {
    let allowed = format!("all of it within {MESSAGE_TIME_MAX:?}");
    NoBody::TooSlow(Refusal::invalid("body", "a part of it", allowed))
}

fn broken() -> NoBody {
    let allowed = "as many bytes as Content-Length says, or chunks with their end";
    NoBody::Broken(Refusal::invalid("body", "a body without its end", allowed))
}
