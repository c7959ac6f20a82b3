//! `ringfence guard http`: the proxy of `ringfence-proxy`, for services that cannot check fences themselves.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::Client;
use ringfence_core::LeaseName;
use ringfence_guard::follow::{self, Ended, FloorFollower};
use ringfence_guard::tower::{Policy, Routes};
use ringfence_proxy::{Limits, Marks, MarksError, Options, Proxy, Undrained, Upstream};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::cli::context::Context;
use crate::cli::stderr::log_to_stderr;
use crate::cli::{Failure, Global, exit, signals};
use crate::duration;

/// How long it waits before floors are followed again.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

const EXAMPLE: &str = "\
Examples:
  ringfence guard http --upstream http://127.0.0.1:8080 --marks /var/lib/bank/marks.db \\
    --prefix bank/ --safe-methods --route '/healthz=optional'
  curl -d amount=10 -H \"ringfence-lease: $RINGFENCE_LEASE\" -H \"ringfence-token: $RINGFENCE_TOKEN\" \\
    http://127.0.0.1:7480/deposit";

/// Stand before an HTTP or gRPC service that cannot check fences, and let only the present holder through
///
/// Each request shows its fence in the headers `ringfence-lease` and `ringfence-token`, as a fenced client
/// sends them. One under an older token than has passed before is answered 412, with the header
/// `ringfence-stale`; one without a fence, 428. The first request of a newer holder waits until the service
/// has answered all requests of the older one. Marks are in a file, which outlives the proxy.
///
/// Put it on the machine of the service, or in its Pod, so that nothing reaches the service another way. What
/// has been sent to the service and was not answered may be done later: the mark is not part of the service's
/// own transaction. It does not prove who a caller is.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{EXAMPLE}\n\n{}", crate::cli::EXIT_CODES_HELP))]
pub(crate) struct Http {
    /// The service
    #[arg(long, value_name = "http://HOST:PORT", value_parser = upstream)]
    upstream: Upstream,
    /// The file of the marks; it is created if there is none, and no other process may use it meanwhile
    #[arg(long, value_name = "FILE")]
    marks: PathBuf,
    /// Where callers connect
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7480")]
    listen: SocketAddr,
    /// What the names of the leases that guard this service begin with; others are refused
    #[arg(long, value_name = "PREFIX", default_value = "")]
    prefix: String,
    /// What a path needs: `required` (a fence; all paths, unless one says otherwise), `optional` (none), or
    /// `lease:NAME` (a fence of that lease). PATTERN is a path, or the beginning of one with a `*` behind it.
    /// The most exact one counts
    #[arg(long = "route", value_name = "PATTERN=POLICY", value_parser = route)]
    routes: Vec<(String, Policy)>,
    /// GET, HEAD and OPTIONS need no fence: the service changes nothing by them
    #[arg(long)]
    safe_methods: bool,
    /// How long the first request of a newer holder waits for the answers to the older one's
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    drain: Duration,
    /// And then: `refuse` it with 503, or `cut` what it waits for, of which is not known whether it is done
    #[arg(long, value_name = "WHAT", default_value = "refuse", value_parser = ["refuse", "cut"])]
    undrained: String,
    /// How long the service may take for a request under a fence
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    request_max: Duration,
    /// The service speaks HTTP/2 without TLS, as gRPC does
    #[arg(long)]
    upstream_http2: bool,
    /// Follow what the cluster grants, by --endpoints: older holders are refused before the newer one has
    /// sent anything, and tokens that were made up are refused while the cluster is heard
    #[arg(long)]
    follow: bool,
}

impl Http {
    pub(super) fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let runtime = crate::cli::runtime()?;
        let done = runtime.block_on(self.serve(global));
        runtime.shutdown_background();
        done
    }

    async fn serve(self, global: &Global) -> Result<ExitCode, Failure> {
        log_to_stderr();
        let marks = Marks::open(&self.marks).map_err(|error| marks_failure(&error))?;
        let listener = TcpListener::bind(self.listen).await.map_err(|cause| {
            let message = format!("cannot listen on {}: {cause}", self.listen);
            Failure::new(exit::SYSTEM, "PORT", message).hint("name another address with --listen")
        })?;
        let floors = match self.follow {
            true => Some(self.floors(global).await?),
            false => None,
        };
        let at = listener.local_addr().unwrap_or(self.listen);
        tracing::info!(%at, "listening");
        Proxy::new(self.options(), marks, floors)
            .serve(listener, async {
                signals::stop().await;
            })
            .await;
        Ok(ExitCode::SUCCESS)
    }

    fn options(self) -> Options {
        let mut routes = Routes::default();
        for (pattern, policy) in self.routes {
            routes.add(pattern, policy);
        }
        Options {
            upstream: self.upstream.http2(self.upstream_http2),
            prefix: self.prefix,
            routes,
            safe_methods: self.safe_methods,
            drain: self.drain,
            undrained: match self.undrained.as_str() {
                "cut" => Undrained::Cut,
                _ => Undrained::Refuse,
            },
            request_max: self.request_max,
            limits: Limits::default(),
        }
    }

    async fn floors(&self, global: &Global) -> Result<FloorFollower, Failure> {
        let client = Context::connect(global).await?.client;
        let options = follow::Options {
            clusters: global.cluster.into_iter().collect(),
            ..follow::Options::default()
        };
        let follower = FloorFollower::new(options);
        let following = follower.clone();
        let prefix = self.prefix.clone();
        drop(tokio::spawn(async move {
            keep_following(&client, &following, &prefix).await;
        }));
        Ok(follower)
    }
}

/// Follows floors for ever. While they are not heard, the marks decide alone.
async fn keep_following(client: &Client, follower: &FloorFollower, prefix: &str) {
    loop {
        match follower.follow(client.watch_floors(prefix)).await {
            Ended::OtherCluster { .. } => {
                tracing::warn!("the cluster at --endpoints is not that of --cluster: no floors");
            }
            _ => tracing::warn!("floors are not heard; the marks decide alone meanwhile"),
        }
        sleep(FOLLOW_AGAIN).await;
    }
}

fn upstream(text: &str) -> Result<Upstream, String> {
    Upstream::parse(text).map_err(|error| error.to_string())
}

fn route(text: &str) -> Result<(String, Policy), String> {
    let expected = "expected PATTERN=required, PATTERN=optional or PATTERN=lease:NAME, where PATTERN \
                    begins with `/`";
    let (pattern, policy) = text.rsplit_once('=').ok_or(expected)?;
    if !pattern.starts_with('/') {
        return Err(expected.to_owned());
    }
    let policy = match policy {
        "required" => Policy::Required,
        "optional" => Policy::Optional,
        policy => {
            let name = policy.strip_prefix("lease:").ok_or(expected)?;
            Policy::Lease(LeaseName::parse(name).map_err(|error| error.to_string())?)
        }
    };
    Ok((pattern.to_owned(), policy))
}

fn marks_failure(error: &MarksError) -> Failure {
    Failure::new(exit::SYSTEM, "MARKS", error.to_string())
        .hint("--marks names a file in a directory that this user may write")
}
