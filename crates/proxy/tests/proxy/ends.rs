//! When a request is over: what the service has not been seen to end counts, whatever its caller does.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_proxy::Undrained;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::stage::{LONG, Served, Service, head, options};

const SHORT: Duration = Duration::from_millis(300);

/// A service whose answers do not follow the requests. It answers `/early` at once, without its body; of
/// `/half` it gives one half of the answer, and the other one for a permit; `/large` has 64 MiB; it breaks off
/// at `/broken`.
#[derive(Clone, Default)]
struct Odd {
    /// Paths, and `end` when a connection has ended.
    noted: Arc<Mutex<Vec<String>>>,
    gate: Arc<Gate>,
}

struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl Odd {
    async fn start() -> (Self, String) {
        let odd = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = odd.clone();
        tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                tokio::spawn(serving.clone().serve(connection));
            }
        });
        (odd, format!("http://{address}"))
    }

    async fn serve(self, mut connection: TcpStream) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = connection.read(&mut bytes).await {
            let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
            // Else it is the rest of a body.
            let Some(path) = text
                .strip_prefix("POST ")
                .and_then(|text| text.split(' ').next())
            else {
                continue;
            };
            self.noted.lock().unwrap().push(path.to_owned());
            if path == "/broken" {
                break;
            }
            let length = if path == "/large" { 64 << 20 } else { 8 };
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\nhalf");
            let mut written = connection.write_all(answer.as_bytes()).await;
            if path == "/half" {
                self.gate.0.acquire().await.unwrap().forget();
            }
            let part = vec![b'x'; 64 << 10];
            let mut rest = length - 4;
            while rest > 0 && written.is_ok() {
                let count = rest.min(part.len());
                written = connection.write_all(&part[..count]).await;
                rest -= count;
            }
        }
        self.noted.lock().unwrap().push("end".into());
    }

    fn noted(&self) -> Vec<String> {
        self.noted.lock().unwrap().clone()
    }

    async fn has(&self, count: usize) {
        let reached = async {
            while self.noted().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, reached).await.unwrap();
    }
}

async fn sent(proxy: &Served, request: &str) -> TcpStream {
    let mut connection = TcpStream::connect(proxy.address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_end_of_the_body_does_not_end_the_request() {
    let (odd, upstream) = Odd::start().await;
    let proxy = Served::start(options(&upstream)).await;
    let begun = format!(
        "{}first",
        head("POST", "/early", 8, "content-length: 15\r\n")
    );
    let mut uploading = sent(&proxy, &begun).await;
    let mut answer = [0; 12];
    uploading.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");

    let mut newer = pin!(proxy.post("/newer", Some(9)));
    assert!(
        timeout(SHORT, &mut newer).await.is_err(),
        "its body is on its way"
    );
    uploading.write_all(b"second").await.unwrap();
    assert!(
        timeout(SHORT, &mut newer).await.is_err(),
        "its body is on its way"
    );
    uploading.write_all(b"last").await.unwrap();
    assert_eq!(timeout(LONG / 3, newer).await.unwrap().status, 200);
    assert!(odd.noted().contains(&"/newer".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_end_is_severed_in_time() {
    let (odd, upstream) = Odd::start().await;
    let mut options = options(&upstream);
    options.request_max = Duration::from_secs(2);
    let proxy = Served::start(options).await;
    let more = "content-length: 100\r\n";
    let _slow = sent(&proxy, &format!("{}half", head("POST", "/early", 8, more))).await;
    odd.has(1).await;
    let mut newer = pin!(proxy.post("/newer", Some(9)));
    assert!(timeout(SHORT, &mut newer).await.is_err());
    assert_eq!(timeout(LONG / 3, newer).await.unwrap().status, 200);
    odd.has(3).await;
    assert!(odd.noted().contains(&"end".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_does_not_read_holds_the_lease_for_its_time_and_no_longer() {
    let (odd, upstream) = Odd::start().await;
    let mut options = options(&upstream);
    options.request_max = Duration::from_secs(2);
    let proxy = Served::start(options).await;
    let _unread = sent(&proxy, &head("POST", "/large", 8, "content-length: 0\r\n")).await;
    odd.has(1).await;
    let mut newer = pin!(proxy.post("/newer", Some(9)));
    assert!(timeout(SHORT, &mut newer).await.is_err(), "it is not over");
    assert_eq!(timeout(LONG / 3, newer).await.unwrap().status, 200);
    odd.has(3).await;
    assert!(odd.noted().contains(&"end".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_behind_the_head_of_the_answer_ends_nothing() {
    let (odd, upstream) = Odd::start().await;
    let proxy = Served::start(options(&upstream)).await;
    let mut gone = sent(&proxy, &head("POST", "/half", 8, "content-length: 0\r\n")).await;
    let mut begun = [0; 12];
    gone.read_exact(&mut begun).await.unwrap();
    drop(gone);
    let mut newer = pin!(proxy.post("/newer", Some(9)));
    assert!(
        timeout(SHORT, &mut newer).await.is_err(),
        "the service is at work"
    );
    odd.gate.0.add_permits(1);
    assert_eq!(timeout(LONG / 3, newer).await.unwrap().status, 200);
    assert_eq!(odd.noted(), ["/half", "/newer"]);
}

/// The service may be at work on what it has received, though its connection has gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_end_was_not_seen_counts_until_its_time_is_over() {
    for goes_first in ["service", "caller"] {
        let (odd, upstream) = Odd::start().await;
        let mut options = options(&upstream);
        options.request_max = Duration::from_secs(2);
        let proxy = Served::start(options).await;
        let _connection = if goes_first == "service" {
            assert_eq!(proxy.post("/broken", Some(8)).await.status, 502);
            None
        } else {
            let half = format!("{}half", head("POST", "/early", 8, "content-length: 9\r\n"));
            let gone = sent(&proxy, &half).await;
            odd.has(1).await;
            drop(gone);
            odd.has(2).await;
            None::<TcpStream>
        };
        // Its own holder goes on.
        assert_eq!(
            timeout(SHORT * 2, proxy.post("/same", Some(8)))
                .await
                .unwrap()
                .status,
            200
        );
        let mut newer = pin!(proxy.post("/newer", Some(9)));
        assert!(timeout(SHORT, &mut newer).await.is_err(), "{goes_first}");
        assert_eq!(timeout(LONG / 3, newer).await.unwrap().status, 200);
    }
}

/// What the service has received last, it has as long for as anything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_late_leaves_the_service_its_time() {
    let (service, upstream) = Service::start().await;
    let mut options = options(&upstream);
    options.request_max = Duration::from_secs(2);
    let proxy = Served::start(options).await;
    let more = "content-length: 5\r\n";
    let mut late = sent(&proxy, &format!("{}half", head("POST", "/slow", 8, more))).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    late.write_all(b"!").await.unwrap();
    service.has(1).await;
    let mut newer = pin!(proxy.post("/newer", Some(9)));
    // It is severed within half a second, and the service works on for one.
    assert!(
        timeout(Duration::from_millis(1_500), &mut newer)
            .await
            .is_err()
    );
    assert_eq!(service.paths(), ["/slow"]);
    assert_eq!(timeout(LONG / 3, newer).await.unwrap().status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_kill_a_mark_that_was_never_let_in_waits_like_all_others() {
    for undrained in [Undrained::Refuse, Undrained::Cut] {
        let (service, upstream) = Service::start().await;
        let mut options = options(&upstream);
        options.undrained = undrained;
        options.drain = Duration::from_secs(10);
        options.request_max = Duration::from_secs(2);
        let proxy = Served::start(options.clone()).await;
        let _older = sent(&proxy, &head("POST", "/slow", 8, "content-length: 0\r\n")).await;
        service.has(1).await;
        // It raises the mark, and is not let in.
        let _newer = sent(&proxy, &head("POST", "/newer", 9, "content-length: 0\r\n")).await;
        let raised = async {
            while proxy.post("/probe", Some(8)).await.status != 412 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, raised).await.unwrap();
        let (folder, before) = (Arc::clone(&proxy.folder), service.paths().len());
        proxy.kill().await;

        options.drain = Duration::from_secs(1);
        let proxy = Served::start_in(folder, options).await;
        for token in [9, 10] {
            // The greater limit of the process before and of this one: ten seconds.
            let answer = proxy.post("/early", Some(token)).await;
            assert_eq!(answer.problem().0, "DRAINING", "{undrained:?} {token}");
        }
        assert_eq!(service.paths().len(), before);
        // The service is at work on the older one all the while.
        service.gate.add_permits(1);
        let mut last = proxy.post("/late", Some(10)).await.status;
        for _ in 0..20 {
            if last != 503 {
                break;
            }
            last = proxy.post("/late", Some(10)).await.status;
        }
        assert_eq!(last, 201);
    }
}
