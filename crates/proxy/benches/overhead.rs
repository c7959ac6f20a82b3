//! What a request costs more by the way through the proxy, beside that through a plain reverse proxy and none,
//! in turns in one run: microseconds at the median, and requests a second.
//!
//! `cargo bench -p ringfence-proxy`. Under `cargo test` it only shows that it runs. If there is an `nginx` on
//! `PATH`, that is measured as well.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ringfence_guard::tower::Routes;
use ringfence_proxy::{Limits, Marks, Options, Proxy, Undrained, Upstream};
use tokio::net::{TcpListener, TcpStream};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// How many callers ask at a time, for latency and for throughput.
const CALLERS: [usize; 2] = [1, 32];

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures this machine's time"
)]
fn now() -> Instant {
    Instant::now()
}

async fn listener() -> Result<(TcpListener, SocketAddr), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Answers each request with two bytes.
async fn service() -> Result<SocketAddr, Failed> {
    let (listener, address) = listener().await?;
    let answer = |request: Request<Incoming>| async move {
        request.into_body().collect().await?;
        Ok::<_, hyper::Error>(Response::new(Full::<Bytes>::from("ok")))
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).ok();
            let served =
                server::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(served);
        }
    });
    Ok(address)
}

/// The least that a reverse proxy does, with the same libraries.
async fn plain(upstream: SocketAddr) -> Result<SocketAddr, Failed> {
    let (listener, address) = listener().await?;
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build_http();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).ok();
            let client = client.clone();
            let forward = service_fn(move |mut request: Request<Incoming>| {
                let path = request.uri().path().to_owned();
                let to: Result<Uri, _> = format!("http://{upstream}{path}").parse();
                *request.uri_mut() = to.unwrap_or_default();
                client.request(request)
            });
            let served = server::Builder::new().serve_connection(TokioIo::new(stream), forward);
            tokio::spawn(served);
        }
    });
    Ok(address)
}

async fn guarded(upstream: SocketAddr, folder: &std::path::Path) -> Result<SocketAddr, Failed> {
    let (listener, address) = listener().await?;
    let options = Options {
        upstream: Upstream::parse(&format!("http://{upstream}"))?,
        prefix: "bank/".into(),
        routes: Routes::default(),
        safe_methods: false,
        drain: Duration::from_secs(30),
        undrained: Undrained::Refuse,
        request_max: Duration::from_secs(60),
        limits: Limits::default(),
    };
    let proxy = Proxy::new(options, Marks::open(&folder.join("marks.db"))?, None)?;
    tokio::spawn(proxy.serve(listener, std::future::pending()));
    Ok(address)
}

/// An nginx that ends with this.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

async fn nginx(
    upstream: SocketAddr,
    folder: &std::path::Path,
) -> Result<Option<(Nginx, SocketAddr)>, Failed> {
    let (free, address) = listener().await?;
    drop(free);
    let at = folder.display();
    let configuration = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 100000000;\n\
         client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;\n\
         uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         upstream s {{ server {upstream}; keepalive 64; keepalive_requests 100000000; }}\n\
         server {{ listen {address}; location / {{ proxy_pass http://s; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, configuration)?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&file).stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        return Ok(None);
    };
    let nginx = Nginx(child);
    for _ in 0..200 {
        if TcpStream::connect(address).await.is_ok() {
            return Ok(Some((nginx, address)));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(None)
}

/// Nanoseconds of each request of one caller.
async fn ask(to: SocketAddr, count: usize) -> Result<Vec<u64>, Failed> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let request = Request::post("/deposit")
            .header("host", "bank")
            .header("ringfence-lease", "bank/x")
            .header("ringfence-token", "8")
            .body(Empty::<Bytes>::new())?;
        sender.ready().await?;
        let begun = now();
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        took.push(u64::try_from(begun.elapsed().as_nanos())?);
        if status != 200 {
            return Err(format!("answered {status}").into());
        }
    }
    Ok(took)
}

/// Microseconds at the median, and requests a second.
async fn measure(to: SocketAddr, callers: usize, count: usize) -> Result<(f64, f64), Failed> {
    let begun = now();
    let asking: Vec<_> = (0..callers)
        .map(|_| tokio::spawn(ask(to, count / callers)))
        .collect();
    let mut took = Vec::new();
    for one in asking {
        took.extend(one.await??);
    }
    let rate = took.len() as f64 / begun.elapsed().as_secs_f64();
    took.sort_unstable();
    Ok((took[took.len() / 2] as f64 / 1e3, rate))
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    // Only `cargo bench` says this; anything else just wants to see it run.
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (rounds, count) = if measured { (5, 4_000) } else { (1, 64) };
    let folder = std::env::temp_dir().join(format!("ringfence-overhead-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let upstream = service().await?;
    let mut ways = vec![
        ("none", upstream),
        ("plain, hyper", plain(upstream).await?),
        ("guard http", guarded(upstream, &folder).await?),
    ];
    let nginx = nginx(upstream, &folder).await?;
    if let Some((_, address)) = &nginx {
        ways.push(("nginx", *address));
    }
    for callers in CALLERS {
        let mut found = vec![(Vec::new(), Vec::new()); ways.len()];
        for _ in 0..rounds {
            for ((_, to), (medians, rates)) in ways.iter().zip(&mut found) {
                let (median, rate) = measure(*to, callers, count).await?;
                medians.push(median);
                rates.push(rate);
            }
        }
        for ((name, _), (medians, rates)) in ways.iter().zip(&mut found) {
            let [median, rate] = [medians, rates].map(|values| {
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            });
            println!(
                "{callers:>3} callers, {name:<13} p50 {median:>7.0} us {rate:>8.0} requests/s"
            );
        }
    }
    drop(nginx);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
