//! What every layer before a service has to do, as a suite that can be held against any: it tells
//! the first rule that is broken.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use ringfence_guard::tower::{Door, TurnedAway};
use ringfence_guard::{Fence, FencingToken, LeaseName, Refused};

/// A rule of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    AdmittedReachesTheHandler,
    HandlerKnowsTheFence,
    DoorBeforeHandler,
    StaleReachesNobody,
    StaleIsAConflict,
    StaleIsNamed,
    MissingReachesNobody,
    MissingIsTold,
    MalformedReachesNobody,
    MalformedIsTold,
    OtherLeaseReachesNobody,
    OtherLeaseIsNoLoss,
    OptionalMayBeMissing,
    OptionalIsJudged,
    NobodyForgesTheFence,
    LaterReachesNobody,
    LaterIsNoLoss,
    GrpcIsAnsweredInGrpc,
}

/// What happened to one request, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// The door was asked about this.
    Asked(String),
    /// The handler was reached under this fence.
    Reached(Option<String>),
}

/// What happened, shared by door and handler.
pub(crate) type Log = Arc<Mutex<Vec<Happened>>>;

/// The suite's door: admits `db#9` and what is newer, and no other lease; `busy#…` comes at a bad
/// time.
#[derive(Clone)]
pub(crate) struct Keeper(pub(crate) Log);

impl Door for Keeper {
    fn admit(&self, fence: &Fence) -> impl Future<Output = Result<(), TurnedAway>> + Send {
        self.0
            .lock()
            .unwrap()
            .push(Happened::Asked(fence.to_string()));
        ready(judge(fence))
    }
}

fn judge(fence: &Fence) -> Result<(), TurnedAway> {
    let mark = FencingToken::new(9).unwrap();
    match fence.name.as_str() {
        "db" if fence.token >= mark => Ok(()),
        "db" => Err(TurnedAway::Refused(Refused::StaleToken {
            name: fence.name.clone(),
            offered: fence.token,
            mark,
        })),
        "busy" => Err(TurnedAway::Later {
            reason: "UNAVAILABLE",
            message: "come again".into(),
        }),
        _ => Err(TurnedAway::Refused(Refused::WrongLease {
            offered: fence.name.clone(),
            expected: LeaseName::parse("db").unwrap(),
        })),
    }
}

/// The handler behind the layer.
pub(crate) fn handle(log: &Log, request: &Request<()>) -> Result<Response<()>, Infallible> {
    let fence = request.extensions().get::<Fence>().map(ToString::to_string);
    log.lock().unwrap().push(Happened::Reached(fence));
    Ok(Response::new(()))
}

/// A layer under test. Its routes: `/read` may come without a fence, `/db` needs one of the lease
/// `db`, everything else needs one.
pub(crate) trait Subject {
    /// Sends a request through the layer, with this door before and [`handle`] behind it.
    async fn send(&self, log: &Log, request: Request<()>) -> Response<()>;
}

struct Seen {
    response: Response<()>,
    happened: Vec<Happened>,
}

impl Seen {
    fn reached(&self) -> bool {
        let mut happened = self.happened.iter();
        happened.any(|one| matches!(one, Happened::Reached(_)))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    fn status(&self) -> u16 {
        self.response.status().as_u16()
    }
}

fn check(rule: Rule, holds: bool) -> Result<(), Rule> {
    holds.then_some(()).ok_or(rule)
}

fn post(path: &str, fence: &[(&str, &str)]) -> Request<()> {
    crate::support::request(path, fence)
}

fn shown(path: &str, fence: &str) -> Request<()> {
    crate::support::under(path, fence)
}

async fn send(subject: &impl Subject, request: Request<()>) -> Seen {
    let log = Log::default();
    let response = subject.send(&log, request).await;
    let happened = log.lock().unwrap().clone();
    Seen { response, happened }
}

/// Holds a layer against all rules.
pub(crate) async fn run(subject: &impl Subject) -> Result<(), Rule> {
    passing(subject).await?;
    turned_away(subject).await?;
    routes(subject).await?;
    grpc(subject).await
}

async fn passing(subject: &impl Subject) -> Result<(), Rule> {
    for fence in ["db#9", "db#10", "db#9223372036854775807"] {
        let seen = send(subject, shown("/write", fence)).await;
        check(Rule::AdmittedReachesTheHandler, seen.reached())?;
        let reached = Happened::Reached(Some(fence.to_owned()));
        check(Rule::HandlerKnowsTheFence, seen.happened.contains(&reached))?;
        let in_order = [Happened::Asked(fence.to_owned()), reached];
        check(Rule::DoorBeforeHandler, seen.happened == in_order)?;
    }
    Ok(())
}

async fn turned_away(subject: &impl Subject) -> Result<(), Rule> {
    let seen = send(subject, shown("/write", "db#8")).await;
    check(Rule::StaleReachesNobody, !seen.reached())?;
    check(Rule::StaleIsAConflict, seen.status() == 409)?;
    let named = seen.header("ringfence-stale") == Some("db#8");
    check(Rule::StaleIsNamed, named)?;

    for path in ["/write", "/db", "/elsewhere"] {
        let seen = send(subject, post(path, &[])).await;
        check(Rule::MissingReachesNobody, !seen.reached())?;
        check(Rule::MissingIsTold, seen.status() == 428)?;
    }
    let malformed: &[&[(&str, &str)]] = &[
        &[("ringfence-lease", "db")],
        &[("ringfence-token", "9")],
        &[("ringfence-lease", "db"), ("ringfence-token", "0")],
        &[("ringfence-lease", "db"), ("ringfence-token", "+9")],
        &[
            ("ringfence-lease", "db"),
            ("ringfence-token", "9223372036854775808"),
        ],
        &[("ringfence-lease", "d b"), ("ringfence-token", "9")],
        &[
            ("ringfence-lease", "db"),
            ("ringfence-token", "8"),
            ("ringfence-token", "9"),
        ],
    ];
    for headers in malformed {
        for path in ["/write", "/read"] {
            let seen = send(subject, post(path, headers)).await;
            check(Rule::MalformedReachesNobody, !seen.reached())?;
            check(Rule::MalformedIsTold, seen.status() == 400)?;
        }
    }

    let seen = send(subject, shown("/write", "busy#9")).await;
    check(Rule::LaterReachesNobody, !seen.reached())?;
    let later = seen.status() == 503 && seen.header("ringfence-stale").is_none();
    check(Rule::LaterIsNoLoss, later)
}

async fn routes(subject: &impl Subject) -> Result<(), Rule> {
    // Newer than what the door lets pass, and of a lease that this route has nothing to do with.
    for path in ["/db", "/write"] {
        let seen = send(subject, shown(path, "other#900")).await;
        check(Rule::OtherLeaseReachesNobody, !seen.reached())?;
        let no_loss = seen.status() == 400 && seen.header("ringfence-stale").is_none();
        check(Rule::OtherLeaseIsNoLoss, no_loss)?;
    }
    // The door would call it busy: the route is asked first.
    let seen = send(subject, shown("/db", "busy#9")).await;
    check(Rule::OtherLeaseReachesNobody, !seen.reached())?;
    check(Rule::OtherLeaseIsNoLoss, seen.status() == 400)?;

    let seen = send(subject, post("/read", &[])).await;
    check(Rule::OptionalMayBeMissing, seen.reached())?;
    let seen = send(subject, shown("/read", "db#8")).await;
    check(Rule::OptionalIsJudged, !seen.reached())?;

    let mut forged = post("/read", &[]);
    let fence: Fence = "db#900".parse().unwrap();
    forged.extensions_mut().insert(fence);
    let seen = send(subject, forged).await;
    let bare = seen.happened == [Happened::Reached(None)];
    check(Rule::NobodyForgesTheFence, bare)
}

async fn grpc(subject: &impl Subject) -> Result<(), Rule> {
    let cases = [
        (shown("/bank.Ledger/Add", "db#8"), "9"),
        (shown("/bank.Ledger/Add", "other#9"), "3"),
        (shown("/bank.Ledger/Add", "busy#9"), "14"),
        (post("/bank.Ledger/Add", &[]), "3"),
    ];
    for (mut request, code) in cases {
        let grpc = http::HeaderValue::from_static("application/grpc");
        request.headers_mut().insert("content-type", grpc);
        let seen = send(subject, request).await;
        let answered = seen.status() == 200 && seen.header("grpc-status") == Some(code);
        check(Rule::GrpcIsAnsweredInGrpc, answered && !seen.reached())?;
    }
    Ok(())
}
