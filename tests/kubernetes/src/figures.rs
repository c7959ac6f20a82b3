//! What a `ringfence` process shows of itself.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What `/metrics` at an address (`HOST:PORT`) shows; `None` if no server answers.
pub async fn figures(address: &str) -> Option<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    };
    tokio::time::timeout(ANSWER_MAX, asked).await.ok()?
}

/// One figure, by its name with all labels; `None` if it is not shown.
pub async fn figure(address: &str, name: &str) -> Option<f64> {
    let shown = figures(address).await?;
    let mut lines = shown.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.parse().ok()
}
