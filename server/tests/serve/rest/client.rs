//! A client of HTTP/1.1 that hides nothing: bytes out, bytes in.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::schema;
use crate::process::{PATIENCE, Process};

/// Where requests go, and what proves them.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    pub(crate) address: String,
    /// Lines of headers, each with its end.
    pub(crate) headers: String,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    /// Lines of the head, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Told {
    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// The body of a refusal; the parts that all have agree with each other.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, reason: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert!(
            self.head.contains("content-type: application/problem+json"),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["reason"], reason, "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        assert!(
            problem["detail"].is_string() && problem["title"].is_string(),
            "{self:?}"
        );
        let unknown = ["OUTCOME_UNKNOWN", "FAULT"].contains(&reason);
        let outcome = if unknown { "unknown" } else { "not_done" };
        assert_eq!(problem["outcome"], outcome, "{self:?}");
        problem
    }

    /// The body of an answer.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!([200, 201].contains(&self.status), "{self:?}");
        self.json()
    }
}

impl Http {
    pub(crate) fn of(node: &Process) -> Self {
        Self::at(&format!("127.0.0.1:{}", node.ports.client))
    }

    pub(crate) fn at(address: &str) -> Self {
        let (address, headers) = (address.to_owned(), String::new());
        Self { address, headers }
    }

    /// The same with one more header.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let headers = format!("{}{name}: {value}\r\n", self.headers);
        let address = self.address.clone();
        Self { address, headers }
    }

    pub(crate) async fn get(&self, path: &str) -> Told {
        self.ask("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Told {
        self.ask("POST", path, Some(body.to_string())).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<String>) -> Told {
        let kind = match &body {
            Some(body) => {
                let bytes = body.len();
                format!("Content-Type: application/json\r\nContent-Length: {bytes}\r\n")
            }
            None => String::new(),
        };
        let headers = &self.headers;
        let raw = format!(
            "{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{headers}{kind}\r\n{}",
            body.unwrap_or_default()
        );
        self.send(raw.as_bytes()).await
    }

    /// Sends these bytes, and reads until the node closes the connection. What it answers has to be
    /// as the description of all calls has it.
    pub(crate) async fn send(&self, raw: &[u8]) -> Told {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(raw).await.unwrap();
        let told = told(&mut stream).await;
        schema::check(raw, &told);
        told
    }
}

/// What a connection says until it ends.
pub(crate) async fn told(stream: &mut TcpStream) -> Told {
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let read = read.unwrap_or_else(|_| panic!("no end: {}", String::from_utf8_lossy(&answer)));
    // A node that does not read all of a request resets the connection behind its answer.
    let _reset = read.is_err();
    parsed(&String::from_utf8(answer).unwrap())
}

/// A response as text.
pub(crate) fn parsed(text: &str) -> Told {
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {text:?}"));
    let head = head.to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = match head.contains("transfer-encoding: chunked") {
        true => unchunked(body),
        false => body.to_owned(),
    };
    Told { status, head, body }
}

/// The text of chunks.
pub(crate) fn unchunked(mut chunks: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        let some = size.min(rest.len());
        text.push_str(&rest[..some]);
        chunks = rest.get(some + 2..).unwrap_or_default();
    }
    text
}
