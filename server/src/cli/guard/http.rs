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
use crate::{descriptors, duration};

/// Files that are no connections of callers or to the service for them.
const FILES_RESERVED: u64 = 160;

/// How long it waits before floors are followed again.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

const EXAMPLE: &str = "\
Examples:
  ringfence guard http --upstream http://127.0.0.1:8080 --marks /var/lib/bank/marks.db \\
    --prefix bank/ --safe-methods --route '/healthz=optional'
  curl -d amount=10 -H \"ringfence-lease: $RINGFENCE_LEASE\" -H \"ringfence-token: $RINGFENCE_TOKEN\" \\
    http://127.0.0.1:7480/deposit";

/// Stand before an HTTP service that cannot check fences, and let only the present holder through
///
/// Each request shows its fence in the headers `ringfence-lease` and `ringfence-token`, as a fenced client
/// sends them. One under an older token than has come before is answered 412, with the header
/// `ringfence-stale`; one without a fence, 428. The first request of a newer holder waits until all requests
/// of the older one are over: the service has answered, or --request-max has passed since the connection was
/// severed. Marks are in a file, which outlives the proxy.
///
/// Put it on the machine of the service, or in its Pod, so that nothing reaches the service another way. A
/// service that works on for longer than --request-max can write behind a newer holder: the mark is not part
/// of its own transaction. It does not prove who a caller is.
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
    /// The most exact one counts. With a route, paths that a service could read as others (`%`, `//`, `..`) are
    /// refused
    #[arg(long = "route", value_name = "PATTERN=POLICY", value_parser = route)]
    routes: Vec<(String, Policy)>,
    /// GET, HEAD and OPTIONS without a body need no fence: the service changes nothing by them. Not those that
    /// name another method in a header or a parameter
    #[arg(long)]
    safe_methods: bool,
    /// How long a request of a newer holder waits for the end of the older one's
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    drain: Duration,
    /// And then: `refuse` it with 503, or `cut` what it waits for, which the service may carry out later
    #[arg(long, value_name = "WHAT", default_value = "refuse", value_parser = ["refuse", "cut"])]
    undrained: String,
    /// How long a request may take; then it is severed, and a newer holder waits as long again. Set it above
    /// what the service takes. Behind a crash of the proxy leases wait for as long, or for --drain if that is
    /// longer
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = request_max)]
    request_max: Duration,
    /// Follow what the cluster grants, by --endpoints: older holders are refused before the newer one has
    /// sent anything, and tokens that were made up are refused. While the cluster is not heard, also at the
    /// start, the marks decide alone
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
        let proxy = Proxy::new(self.options(), marks, floors);
        let proxy = proxy.map_err(|error| marks_failure(&error))?;
        tracing::info!(%at, "listening");
        let stop = async {
            signals::stop().await;
        };
        if proxy.serve(listener, stop).await {
            tracing::info!("stopped with nothing inside");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(self) -> Options {
        let mut routes = Routes::default();
        for (pattern, policy) in self.routes {
            routes.add(pattern, policy);
        }
        Options {
            upstream: self.upstream,
            prefix: self.prefix,
            routes,
            safe_methods: self.safe_methods,
            drain: self.drain,
            undrained: match self.undrained.as_str() {
                "cut" => Undrained::Cut,
                _ => Undrained::Refuse,
            },
            request_max: self.request_max,
            limits: limits(descriptors::raise()),
        }
    }

    /// A cluster that is not there now is asked again. A command line that cannot be right is refused.
    async fn floors(&self, global: &Global) -> Result<FloorFollower, Failure> {
        let options = follow::Options {
            clusters: global.cluster.into_iter().collect(),
            ..follow::Options::default()
        };
        let follower = FloorFollower::new(options);
        let first = match Context::connect(global).await {
            Ok(context) => Some(context.client),
            Err(failure) if failure.exit == exit::UNAVAILABLE => {
                tracing::warn!("no floors yet, the marks decide alone: {}", failure.message);
                None
            }
            Err(failure) => return Err(failure),
        };
        let (following, prefix, global) = (follower.clone(), self.prefix.clone(), global.clone());
        drop(tokio::spawn(async move {
            keep_following(first, &following, &prefix, &global).await;
        }));
        Ok(follower)
    }
}

/// Follows floors for ever. While they are not heard, the marks decide alone.
async fn keep_following(
    mut client: Option<Client>,
    follower: &FloorFollower,
    prefix: &str,
    global: &Global,
) {
    loop {
        match &client {
            Some(client) => match follower.follow(client.watch_floors(prefix)).await {
                Ended::OtherCluster { .. } => {
                    tracing::warn!(
                        "the cluster at --endpoints is not that of --cluster: no floors"
                    );
                }
                _ => tracing::warn!("floors are not heard; the marks decide alone meanwhile"),
            },
            None => {
                client = Context::connect(global)
                    .await
                    .ok()
                    .map(|context| context.client);
                if client.is_some() {
                    tracing::info!(
                        "the cluster has answered; its floors are followed from here on"
                    );
                    continue;
                }
            }
        }
        sleep(FOLLOW_AGAIN).await;
    }
}

/// As many as this process may have files open for: a request has two connections.
fn limits(descriptors: Option<u64>) -> Limits {
    let limits = Limits::default();
    let room = descriptors.map_or(u64::MAX, |all| all.saturating_sub(FILES_RESERVED) / 2);
    let room = usize::try_from(room).unwrap_or(usize::MAX).max(1);
    if room < limits.connections {
        tracing::warn!(
            room,
            "fewer connections, since few files may be open: raise ulimit -n"
        );
    }
    Limits {
        connections: limits.connections.min(room),
        requests: limits.requests.min(room),
        ..limits
    }
}

fn request_max(text: &str) -> Result<Duration, String> {
    let request_max = duration::parse(text).map_err(|error| error.to_string())?;
    match request_max.is_zero() {
        true => Err(
            "no request takes no time; name what the service may take, 60s for example".to_owned(),
        ),
        false => Ok(request_max),
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
        .hint("--marks names a file of this proxy alone, in a directory that this user may write")
}
