//! The door of the webhook's port: how many questions are inside at a time, and for how long.
//!
//! Every client that reaches the port may ask. A call that finds no place is refused at once, and
//! does not wait: for the API server no answer is an answer, too, by the failure policy of the
//! manifest.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use ringfence_kube::webhook::TIMEOUT_SECONDS;
use tokio::sync::Semaphore;

use super::reviews::Reviews;

/// The largest review: an object before and after the write, each at most 1.5 MB in etcd, as text.
pub(super) const REVIEW_BYTES_MAX: usize = 8 << 20;

/// A review takes one place for each of these bytes that it has begun. Most take one.
const PLACE_BYTES: usize = 64 << 10;

/// The most reviews at a time, and [`PLACE_BYTES`] as often the most bytes of all of them: 32 MiB.
/// API servers have some hundred writes under way at a time, those of all clients.
const PLACES: usize = 512;

/// How long a review may take, from its head to its answer: then the API server has gone.
const REVIEW_TIME_MAX: Duration = Duration::from_secs(TIMEOUT_SECONDS as u64);

/// Lets reviews in.
#[derive(Clone)]
pub(super) struct Door {
    places: Arc<Semaphore>,
    places_max: usize,
    time_max: Duration,
    reviews: Reviews,
}

impl Door {
    pub(super) fn new(reviews: Reviews) -> Self {
        Self::with(reviews, PLACES, REVIEW_TIME_MAX)
    }

    fn with(reviews: Reviews, places_max: usize, time_max: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places_max)),
            places_max,
            time_max,
            reviews,
        }
    }

    /// Before the body is read.
    pub(super) async fn enter(State(door): State<Self>, request: Request, next: Next) -> Response {
        let bytes = announced(&request);
        if bytes > REVIEW_BYTES_MAX {
            door.reviews.count("malformed");
            let told = format!(
                "ringfence: this review has {bytes} bytes; allowed: up to {REVIEW_BYTES_MAX}\n"
            );
            return (StatusCode::PAYLOAD_TOO_LARGE, told).into_response();
        }
        let wanted = bytes.div_ceil(PLACE_BYTES).max(1);
        let places = u32::try_from(wanted).ok();
        let place = places.and_then(|places| door.places.try_acquire_many(places).ok());
        let Some(_place) = place else {
            door.reviews.count("crowded");
            tokio::time::timeout(door.time_max, hear_out(request))
                .await
                .ok();
            let told = format!(
                "ringfence: no place for this review, which takes {wanted} of {}; allowed at a time: \
                 {} reviews of {PLACE_BYTES} bytes, fewer of larger ones; ask again later\n",
                door.places_max, door.places_max
            );
            return (StatusCode::SERVICE_UNAVAILABLE, told).into_response();
        };
        match tokio::time::timeout(door.time_max, next.run(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                door.reviews.count("late");
                let told = format!(
                    "ringfence: this review was not read and answered within {:?}, and no caller waits \
                     for longer; ask again\n",
                    door.time_max
                );
                (StatusCode::SERVICE_UNAVAILABLE, told).into_response()
            }
        }
    }
}

/// Takes the rest of a question and keeps nothing of it: who is cut off while he speaks may not hear
/// the answer.
async fn hear_out(request: Request) {
    let mut body = request.into_body().into_data_stream();
    while let Some(Ok(_)) = body.next().await {}
}

/// How long the body says that it is; as long as it may be if it does not say so.
fn announced(request: &Request) -> usize {
    let Some(length) = request.headers().get(header::CONTENT_LENGTH) else {
        return REVIEW_BYTES_MAX;
    };
    let length = length.to_str().ok().and_then(|length| length.parse().ok());
    length.unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::body::Bytes;
    use axum::routing::post;
    use axum::{Router, middleware};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Longer than any of these tests.
    const LONG: Duration = Duration::from_secs(60);

    /// A port with four places that answers as soon as it has read the body.
    async fn port(time_max: Duration) -> SocketAddr {
        let door = Door::with(Reviews::default(), 4, time_max);
        let routes = Router::new()
            .route(
                "/judge",
                post(|body: Bytes| async move { body.len().to_string() }),
            )
            .layer(middleware::from_fn_with_state(door, Door::enter));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, routes).into_future());
        address
    }

    /// Asks with a body of which so much is announced, and only this much comes.
    async fn ask(port: SocketAddr, announced: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(port).await.unwrap();
        let head = format!(
            "POST /judge HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{announced}\r\nexpect: \
             100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream
    }

    /// The same from a client that is inside: the body is asked for.
    async fn inside(port: SocketAddr, announced: &str) -> TcpStream {
        let mut stream = ask(port, announced, b"").await;
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).await.unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(LONG, read).await.unwrap().ok();
        let answer = String::from_utf8(answer).unwrap();
        answer.replace("HTTP/1.1 100 Continue\r\n\r\n", "")
    }

    const SMALL: &str = "content-length: 2";

    #[tokio::test]
    async fn who_finds_no_place_is_told_at_once_and_the_next_finds_one() {
        let port = port(LONG).await;
        let mut slow = Vec::new();
        for _ in 0..4 {
            slow.push(inside(port, SMALL).await);
        }
        let turned_away = answer(ask(port, SMALL, b"{}").await).await;
        assert!(turned_away.starts_with("HTTP/1.1 503 "), "{turned_away}");
        assert!(
            turned_away.contains("no place for this review, which takes 1 of 4"),
            "{turned_away}"
        );
        let mut first = slow.remove(0);
        first.write_all(b"{}").await.unwrap();
        assert!(answer(first).await.starts_with("HTTP/1.1 200 "));
        let served = answer(ask(port, SMALL, b"{}").await).await;
        assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
    }

    #[tokio::test]
    async fn a_large_one_takes_the_places_of_many() {
        let port = port(LONG).await;
        let large = format!("content-length: {}", 3 * PLACE_BYTES + 1);
        let slow = inside(port, &large).await;
        let turned_away = answer(ask(port, SMALL, b"{}").await).await;
        assert!(turned_away.starts_with("HTTP/1.1 503 "), "{turned_away}");
        drop(slow);
        // One that does not say how large it is counts as the largest.
        let unsaid = answer(ask(port, "transfer-encoding: chunked", b"0\r\n\r\n").await).await;
        assert!(unsaid.contains("takes 128 of 4"), "{unsaid}");
        let larger = format!("content-length: {}", REVIEW_BYTES_MAX + 1);
        let refused = answer(ask(port, &larger, b"").await).await;
        assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
        assert!(refused.contains("allowed: up to 8388608"), "{refused}");
    }

    #[tokio::test]
    async fn who_does_not_come_to_an_end_is_sent_away() {
        let port = port(Duration::from_millis(100)).await;
        let mut slow = Vec::new();
        for _ in 0..4 {
            slow.push(ask(port, SMALL, b"{").await);
        }
        for slow in slow {
            let told = answer(slow).await;
            assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
            assert!(told.contains("within 100ms"), "{told}");
        }
        let served = answer(ask(port, SMALL, b"{}").await).await;
        assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
    }
}
