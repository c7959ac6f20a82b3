//! The suite finds the layers that are wrong, and only those.

use http::{Request, Response, StatusCode};
use ringfence_guard::tower::{FenceLayer, Policy};
use ringfence_guard::{Fence, LeaseName};
use tower::{Layer, ServiceExt, service_fn};

use crate::suite::{Keeper, Log, Rule, Subject, handle, run};

/// The layer of this crate.
struct Right;

impl Subject for Right {
    async fn send(&self, log: &Log, request: Request<()>) -> Response<()> {
        let name = LeaseName::parse("db").unwrap();
        let layer = FenceLayer::new(Keeper(Log::clone(log)))
            .route("/read", Policy::Optional)
            .route("/db", Policy::Lease(name));
        let log = Log::clone(log);
        let handler = service_fn(move |request| std::future::ready(handle(&log, &request)));
        let response = layer.layer(handler).oneshot(request).await.unwrap();
        response.map(drop)
    }
}

/// What can be wrong with a layer.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It answers the refusal when the handler has done its work.
    HandlerFirst,
    StalePasses,
    StaleIsAnError,
    StaleUnnamed,
    MissingPasses,
    MissingIsMalformed,
    /// A caller that shows half a fence counts as one who shows none.
    HalfIsNone,
    /// The last of several headers counts.
    LastCounts,
    /// The route's lease is not looked at.
    AnyLease,
    OtherLeaseIsAConflict,
    OptionalIsNotAsked,
    NobodyPasses,
    OtherLeasePasses,
    OptionalIsRequired,
    ForgedFenceStays,
    FenceNotHandedOn,
    /// A door that cannot tell counts as one that lets pass.
    LaterPasses,
    LaterIsAConflict,
    GrpcInHttp,
}

struct Wrong(Fault);

impl Wrong {
    /// What reaches the right layer instead of what came.
    fn bend(&self, request: &mut Request<()>) {
        let path = request.uri().path().to_owned();
        let headers = request.headers_mut();
        let has = |name| headers.contains_key(name);
        let half = has("ringfence-lease") != has("ringfence-token");
        let text = |name| {
            headers
                .get(name)
                .map_or("", |value| value.to_str().unwrap())
        };
        let tokens = headers.get_all("ringfence-token").iter().count();
        let fence = match tokens {
            1 => format!("{}#{}", text("ringfence-lease"), text("ringfence-token")),
            _ => String::new(),
        };
        match self.0 {
            Fault::HalfIsNone if half && path == "/read" => headers.clear(),
            Fault::LastCounts => {
                if let Some(last) = headers
                    .get_all("ringfence-token")
                    .iter()
                    .next_back()
                    .cloned()
                {
                    headers.insert("ringfence-token", last);
                }
            }
            Fault::AnyLease if path == "/db" => *request.uri_mut() = "/write".parse().unwrap(),
            Fault::OptionalIsRequired if path == "/read" => {
                *request.uri_mut() = "/write".parse().unwrap();
            }
            Fault::OptionalIsNotAsked if path == "/read" && fence == "db#8" => headers.clear(),
            Fault::NobodyPasses if fence == "db#9" => headers.clear(),
            Fault::OtherLeasePasses if fence == "other#900" => {
                headers.insert("ringfence-lease", http::HeaderValue::from_static("db"));
            }
            Fault::GrpcInHttp => drop(headers.remove("content-type")),
            _ => {}
        }
    }

    /// What is answered instead of what the right layer says; `None`: the handler's answer.
    fn twist(&self, response: &mut Response<()>) -> Option<()> {
        let lost = response.headers().contains_key("ringfence-stale");
        let answer = match (self.0, response.status().as_u16()) {
            (Fault::StalePasses, 409) | (Fault::MissingPasses, 428) | (Fault::LaterPasses, 503) => {
                return None;
            }
            (Fault::StaleIsAnError, 409) => StatusCode::INTERNAL_SERVER_ERROR,
            (Fault::StaleUnnamed, 409) => {
                response.headers_mut().remove("ringfence-stale");
                StatusCode::CONFLICT
            }
            (Fault::MissingIsMalformed, 428) => StatusCode::BAD_REQUEST,
            (Fault::OtherLeaseIsAConflict, 400) if !lost => StatusCode::CONFLICT,
            (Fault::LaterIsAConflict, 503) => StatusCode::CONFLICT,
            _ => response.status(),
        };
        *response.status_mut() = answer;
        Some(())
    }
}

impl Subject for Wrong {
    async fn send(&self, log: &Log, mut request: Request<()>) -> Response<()> {
        let came = request.clone();
        self.bend(&mut request);
        match self.0 {
            Fault::HandlerFirst => drop(handle(log, &came)),
            Fault::ForgedFenceStays if came.extensions().get::<Fence>().is_some() => {
                return handle(log, &came).unwrap();
            }
            Fault::FenceNotHandedOn => {
                let mut bare = came.clone();
                bare.extensions_mut().clear();
                let unseen = Log::default();
                let response = Right.send(&unseen, request).await;
                if response.status().is_success() {
                    return handle(log, &bare).unwrap();
                }
                return response;
            }
            _ => {}
        }
        let mut response = Right.send(log, request).await;
        match self.twist(&mut response) {
            Some(()) => response,
            None => handle(log, &came).unwrap(),
        }
    }
}

#[tokio::test]
async fn the_layer_of_this_crate_passes_the_suite() {
    assert_eq!(run(&Right).await, Ok(()));
}

#[tokio::test]
async fn each_wrong_layer_is_found_by_the_rule_that_it_breaks() {
    let faults = [
        (Fault::HandlerFirst, Rule::DoorBeforeHandler),
        (Fault::FenceNotHandedOn, Rule::HandlerKnowsTheFence),
        (Fault::NobodyPasses, Rule::AdmittedReachesTheHandler),
        (Fault::OtherLeasePasses, Rule::OtherLeaseReachesNobody),
        (Fault::StalePasses, Rule::StaleReachesNobody),
        (Fault::StaleIsAnError, Rule::StaleIsAConflict),
        (Fault::StaleUnnamed, Rule::StaleIsNamed),
        (Fault::MissingPasses, Rule::MissingReachesNobody),
        (Fault::MissingIsMalformed, Rule::MissingIsTold),
        (Fault::HalfIsNone, Rule::MalformedReachesNobody),
        (Fault::LastCounts, Rule::MalformedReachesNobody),
        (Fault::LaterPasses, Rule::LaterReachesNobody),
        (Fault::LaterIsAConflict, Rule::LaterIsNoLoss),
        (Fault::AnyLease, Rule::OtherLeaseIsNoLoss),
        (Fault::OtherLeaseIsAConflict, Rule::MalformedIsTold),
        (Fault::OptionalIsRequired, Rule::OptionalMayBeMissing),
        (Fault::OptionalIsNotAsked, Rule::OptionalIsJudged),
        (Fault::ForgedFenceStays, Rule::NobodyForgesTheFence),
        (Fault::GrpcInHttp, Rule::GrpcIsAnsweredInGrpc),
    ];
    for (fault, rule) in faults {
        let found = run(&Wrong(fault)).await;
        assert_eq!(found, Err(rule), "{fault:?}");
    }
}
