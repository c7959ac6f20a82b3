//! The body of a request: room is made for each message before it is taken in, and a message that
//! does not come to its end breaks the call. What reads the messages keeps the largest buffer that one
//! of them took, for as long as the body lasts: so few streams of a connection may have large ones.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use ringfence_proto::wire::MESSAGE_BYTES_MAX;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::error::Elapsed;
use tokio::time::{Sleep, sleep, timeout};
use tonic::Status;

use super::account::{Account, Held};
use crate::limits::{LARGE_STREAM_WAIT_MAX, LARGE_STREAMS_PER_CONNECTION_MAX, MESSAGE_TIME_MAX};
use crate::rates::Meter;
use crate::status::limit;

/// The head of a gRPC message: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;
/// What fits one frame of HTTP/2 is not worth counting.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// A request's body.
pub(super) struct Question {
    body: tonic::body::Body,
    account: Arc<Account>,
    place: Place,
    /// Room for the message that has begun.
    held: Option<Held>,
    room: Option<Pin<Box<dyn Future<Output = Held> + Send>>>,
    /// The place of a body that carries a large message, or has.
    large: Option<OwnedSemaphorePermit>,
    place_of_large: Option<PlaceOfLarge>,
    /// The frame with the head of a message that has no room or no place yet: the decoder allocates
    /// the whole message when it reads the head.
    kept_back: Option<Frame<Bytes>>,
    /// What followed the end of a message in its frame: the head of a large one. It asks for room only
    /// when the message before has been read.
    unread: Option<Bytes>,
    /// When the message that has begun must have come.
    until: Option<Pin<Box<Sleep>>>,
    meter: Option<Meter>,
}

type PlaceOfLarge = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, Elapsed>> + Send>>;

/// Where in its messages a body is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    head: [u8; HEAD_BYTES],
    /// How much of the head there is.
    headed: usize,
    /// How much of the message is missing behind its head.
    missing: usize,
}

/// A message that some bytes begin and do not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    /// Where in the bytes its head begins; 0 also if that was before them.
    at: usize,
    /// How long it is behind its head.
    length: usize,
}

impl Begun {
    /// A longer one than is allowed is refused as soon as it is looked at.
    fn is_large(self) -> bool {
        self.length > UNCOUNTED_BYTES && self.length <= MESSAGE_BYTES_MAX
    }
}

impl Place {
    /// Moves on by these bytes.
    fn pass(&mut self, mut bytes: &[u8]) -> Option<Begun> {
        let all = bytes.len();
        let (mut begun, mut head_at) = (None, 0);
        while !bytes.is_empty() {
            if self.missing > 0 {
                let some = self.missing.min(bytes.len());
                self.missing -= some;
                bytes = &bytes[some..];
                continue;
            }
            if self.headed == 0 {
                head_at = all - bytes.len();
            }
            let some = (HEAD_BYTES - self.headed).min(bytes.len());
            self.head[self.headed..self.headed + some].copy_from_slice(&bytes[..some]);
            self.headed += some;
            bytes = &bytes[some..];
            if self.headed == HEAD_BYTES {
                self.headed = 0;
                let [_, a, b, c, d] = self.head;
                self.missing = u32::from_be_bytes([a, b, c, d]) as usize;
                begun = Some(Begun {
                    at: head_at,
                    length: self.missing,
                });
            }
        }
        begun.filter(|_| self.missing > 0)
    }

    fn is_within(&self) -> bool {
        self.missing > 0 || self.headed > 0
    }
}

impl Question {
    pub(super) fn new(body: tonic::body::Body, account: Arc<Account>) -> Self {
        Self {
            body,
            account,
            place: Place::default(),
            held: None,
            room: None,
            large: None,
            place_of_large: None,
            kept_back: None,
            unread: None,
            until: None,
            meter: None,
        }
    }

    /// The same, counted for its caller too.
    pub(super) fn metered(mut self, meter: Option<Meter>) -> Self {
        self.meter = meter;
        self
    }

    /// What these bytes mean to the room that is held.
    fn passed(&mut self, bytes: &[u8]) {
        let before = self.place.is_within();
        let begun = self.place.pass(bytes);
        if !self.place.is_within() {
            (self.held, self.until) = (None, None);
            return;
        }
        // Within a head nothing is missing: the message before it has ended.
        if begun.is_some() || self.place.missing == 0 || !before {
            self.until = Some(Box::pin(sleep(MESSAGE_TIME_MAX)));
            self.held = None;
        }
        if let Some(Begun { length, .. }) = begun.filter(|begun| begun.is_large()) {
            let account = Arc::clone(&self.account);
            self.room = Some(Box::pin(async move { account.reserve(length).await }));
            if self.large.is_none() {
                let account = Arc::clone(&self.account);
                let place = async move { account.large_stream().await };
                self.place_of_large = Some(Box::pin(timeout(LARGE_STREAM_WAIT_MAX, place)));
            }
        }
    }

    /// Takes up a frame: what of it may be read. The end of a message waits for no room of a large one
    /// that begins behind it, or the two could wait for each other; that is taken up when it is read.
    fn take_up(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let mut bytes = match frame.into_data() {
            Ok(bytes) => bytes,
            Err(trailers) => return trailers,
        };
        let begun = self.place.clone().pass(&bytes);
        if let Some(begun) = begun.filter(|begun| begun.is_large() && begun.at > 0) {
            self.unread = Some(bytes.split_off(begun.at));
        }
        self.passed(&bytes);
        Frame::data(bytes)
    }

    /// Waits for what the message that has begun needs, if it needs something.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if let Some(place) = &mut self.place_of_large {
            let place = ready!(place.as_mut().poll(cx));
            self.place_of_large = None;
            self.large = Some(place.map_err(|_| too_many_large())?);
        }
        if let Some(room) = &mut self.room {
            let held = ready!(room.as_mut().poll(cx));
            (self.held, self.room) = (Some(held), None);
        }
        Poll::Ready(Ok(()))
    }
}

fn too_many_large() -> Status {
    let advice = "send large messages on one stream, or on another connection";
    let max = LARGE_STREAMS_PER_CONNECTION_MAX;
    limit("large_streams_per_connection", max, advice).into()
}

impl Body for Question {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(until) = &mut self.until
            && until.as_mut().poll(cx).is_ready()
        {
            self.until = None;
            let why = format!("a message did not arrive within {MESSAGE_TIME_MAX:?}");
            // The decoder takes a body that ends as cancelled for one that ends well.
            return Poll::Ready(Some(Err(Status::deadline_exceeded(why))));
        }
        loop {
            ready!(self.poll_room(cx))?;
            if let Some(frame) = self.kept_back.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let frame = match self.unread.take() {
                Some(bytes) => Frame::data(bytes),
                None => match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        if let (Some(meter), Some(bytes)) = (&self.meter, frame.data_ref()) {
                            meter.passed(bytes.len());
                        }
                        frame
                    }
                    end => return Poll::Ready(end),
                },
            };
            self.kept_back = Some(self.take_up(frame));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.kept_back.is_none() && self.unread.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::poll_fn;
    use std::time::Duration;

    use http_body_util::StreamBody;
    use proptest::prelude::*;

    use super::super::account::Pool;
    use super::*;
    use crate::limits::BYTES_PER_CONNECTION_SHARE;

    fn message(length: usize) -> Vec<u8> {
        let head = u32::try_from(length).unwrap().to_be_bytes();
        let mut bytes = vec![0];
        bytes.extend(head);
        bytes.extend(vec![7; length]);
        bytes
    }

    proptest! {
        /// However messages are cut into pieces, the place is within one just where one is cut.
        #[test]
        fn a_place_knows_whether_a_message_is_whole(
            lengths in proptest::collection::vec(0..50_usize, 0..10),
            cuts in proptest::collection::vec(1..30_usize, 1..20),
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let ends: Vec<usize> = lengths.iter().scan(0, |at, length| { *at += 5 + length; Some(*at) }).collect();
            let mut place = Place::default();
            let (mut at, mut cut) = (0, cuts.iter().cycle());
            while at < bytes.len() {
                let (from, next) = (at, (at + cut.next().unwrap()).min(bytes.len()));
                let begun = place.pass(&bytes[from..next]);
                at = next;
                prop_assert_eq!(place.is_within(), !ends.contains(&at));
                if let Some(begun) = begun {
                    prop_assert!(place.missing > 0 && place.missing <= begun.length);
                    // What stands before it ends with a message.
                    prop_assert!(begun.at == 0 || ends.contains(&(from + begun.at)));
                }
            }
            prop_assert!(!place.is_within());
        }
    }

    fn body(frames: Vec<Vec<u8>>) -> tonic::body::Body {
        let frames = frames
            .into_iter()
            .map(|bytes| Ok::<_, Status>(Frame::data(Bytes::from(bytes))));
        let frames = tokio_stream::iter(frames.collect::<Vec<_>>());
        tonic::body::Body::new(StreamBody::new(frames))
    }

    async fn next(question: &mut Question) -> Option<Bytes> {
        let frame = poll_fn(|cx| Pin::new(&mut *question).poll_frame(cx)).await;
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// The handler of the first message needs room for its answer, in the same account.
    #[tokio::test]
    async fn the_end_of_a_message_waits_for_no_room_of_the_next() {
        let (small, large) = (message(10), message(100 << 10));
        let mut together = small.clone();
        together.extend(&large[..20]);
        let account = Account::new(Pool::empty());
        let all = account.try_reserve(BYTES_PER_CONNECTION_SHARE).unwrap();
        let frames = vec![together, large[20..].to_vec()];
        let mut question = Question::new(body(frames), Arc::clone(&account));
        assert_eq!(next(&mut question).await.unwrap(), small);

        let early = timeout(Duration::from_millis(50), next(&mut question)).await;
        assert!(early.is_err(), "there is no room for it");
        assert!(!question.is_end_stream());
        drop(all);
        assert_eq!(next(&mut question).await.unwrap(), large[..20]);
        assert!(account.try_reserve(BYTES_PER_CONNECTION_SHARE).is_none());
        assert_eq!(next(&mut question).await.unwrap(), large[20..]);
        assert_eq!(next(&mut question).await, None);
        assert!(account.try_reserve(BYTES_PER_CONNECTION_SHARE).is_some());
    }

    #[tokio::test]
    async fn a_stream_keeps_its_place_among_the_large_ones_and_the_next_one_is_refused() {
        tokio::time::pause();
        let account = Account::new(Pool::new());
        let large = message(20 << 10);
        let one = || {
            let frames = vec![large[..100].to_vec(), large[100..].to_vec()];
            Question::new(body(frames), Arc::clone(&account))
        };
        let mut all = Vec::new();
        for _ in 0..LARGE_STREAMS_PER_CONNECTION_MAX {
            let mut question = one();
            next(&mut question).await.unwrap();
            next(&mut question).await.unwrap();
            all.push(question);
        }
        let mut late = one();
        let refused = poll_fn(|cx| Pin::new(&mut late).poll_frame(cx)).await;
        let refused = refused.unwrap().unwrap_err();
        let words = "large_streams_per_connection: at most 16 are allowed";
        assert!(refused.message().contains(words), "{refused}");
        drop((late, all.pop()));
        assert!(next(&mut one()).await.is_some());
    }

    /// The head of the next one is cut off behind it.
    #[tokio::test]
    async fn a_message_that_has_ended_holds_no_room() {
        let account = Account::new(Pool::empty());
        let mut large = message(100 << 10);
        large.extend([0; 3]);
        let frames = vec![large[..100].to_vec(), large[100..].to_vec()];
        let mut question = Question::new(body(frames), Arc::clone(&account));
        next(&mut question).await.unwrap();
        let all = || account.try_reserve(BYTES_PER_CONNECTION_SHARE);
        assert!(all().is_none());
        next(&mut question).await.unwrap();
        assert!(all().is_some());
    }

    #[tokio::test]
    async fn a_message_that_does_not_end_breaks_its_call() {
        tokio::time::pause();
        let begun = Frame::data(Bytes::from(message(100)).slice(..20));
        let begun = tokio_stream::iter([Ok::<_, Status>(begun)]);
        let silent = tokio_stream::StreamExt::chain(begun, tokio_stream::pending());
        let silent = tonic::body::Body::new(StreamBody::new(silent));
        let mut question = Question::new(silent, Account::new(Pool::new()));
        next(&mut question).await.unwrap();
        let broken = poll_fn(|cx| Pin::new(&mut question).poll_frame(cx)).await;
        let broken = broken.unwrap().unwrap_err();
        assert_eq!(broken.code(), tonic::Code::DeadlineExceeded, "{broken}");
    }
}
