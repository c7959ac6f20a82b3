//! Who may read the pages of the HTTP port that do not tell health.

use std::sync::Arc;
use std::{fmt, io};

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::{IncomingStream, Listener};
use futures_util::StreamExt;
use ringfence_access::Peer;
use ringfence_core::Principal;
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_services::{Client, Context};
use ringfence_tls::{Connection, Incoming, Port};

use crate::client_connection::ConnectionInfo;
use crate::identify::IdentifyLayer;

/// What is asked of a caller that has shown nothing.
const CHALLENGE: &str = "Bearer realm=\"ringfence\"";
/// What is asked of one whose credential proves nothing (RFC 6750).
const INVALID: &str = "Bearer realm=\"ringfence\", error=\"invalid_token\"";

/// Proves the callers of a port, and judges them by the rights of the cluster.
#[derive(Clone)]
pub(crate) struct Judge {
    pub(super) identify: IdentifyLayer,
    pub(super) context: Context,
}

impl Judge {
    /// One that knows callers as the client port does, and the rights of the services.
    pub(crate) fn new(identify: IdentifyLayer, context: Context) -> Self {
        Self { identify, context }
    }

    /// What requests on a connection know of it, which shows this of its caller.
    fn shown(&self, peer: Peer) -> Shown {
        Shown(Arc::new(ConnectionInfo {
            client: Client::new(self.context.new_account()),
            peer: Arc::new(peer),
            principals: Arc::new(self.context.connection_principals()),
        }))
    }

    fn admit(&self, peer: &Peer, request: &Request) -> Result<(), Refusal> {
        let caller = self.identify.identify(peer, request.headers())?;
        self.context.admit_to_figures(caller)
    }
}

/// The connections of a port, each with what it shows of its caller.
pub(super) struct Door {
    incoming: Incoming,
    judge: Judge,
}

impl Door {
    pub(super) fn new(port: Port, judge: Judge) -> Self {
        let incoming = port.incoming();
        Self { incoming, judge }
    }
}

impl Listener for Door {
    type Io = Connection;
    type Addr = Shown;

    async fn accept(&mut self) -> (Connection, Shown) {
        match self.incoming.next().await {
            Some(Ok(connection)) => {
                let peer = self.judge.identify.peer(&connection);
                (connection, self.judge.shown(peer))
            }
            // The port accepts for as long as it is asked, and logs its failures itself.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Shown> {
        Ok(self.judge.shown(Peer::bare()))
    }
}

/// A connection as its requests know it.
#[derive(Clone)]
pub(super) struct Shown(pub(super) Arc<ConnectionInfo>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.0.peer).finish()
    }
}

impl Connected<IncomingStream<'_, Door>> for Shown {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.remote_addr().clone()
    }
}

/// Answers what is allowed, and says of everything else what it lacks.
pub(super) async fn judged(
    State(judge): State<Judge>,
    ConnectInfo(Shown(connection)): ConnectInfo<Shown>,
    request: Request,
    next: Next,
) -> Response {
    match judge.admit(&connection.peer, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(&refusal),
    }
}

/// A refusal in the words of HTTP, with its message as the only line.
fn refused(refusal: &Refusal) -> Response {
    let is_anonymous = || {
        let principal = refusal.metadata.get("principal");
        principal.is_some_and(|who| who == Principal::ANONYMOUS)
    };
    let (status, challenge) = match refusal.reason {
        Reason::Unauthenticated => (StatusCode::UNAUTHORIZED, Some(INVALID)),
        // A credential may help.
        Reason::PermissionDenied if is_anonymous() => (StatusCode::UNAUTHORIZED, Some(CHALLENGE)),
        Reason::PermissionDenied => (StatusCode::FORBIDDEN, None),
        Reason::Limit => (StatusCode::TOO_MANY_REQUESTS, None),
        _ => (StatusCode::SERVICE_UNAVAILABLE, None),
    };
    let mut response = (status, format!("{}\n", refusal.message)).into_response();
    if let Some(challenge) = challenge {
        let challenge = HeaderValue::from_static(challenge);
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
    }
    if let Some(after) = refusal.retry_after {
        // Whole seconds, and never too early.
        let seconds = after.as_millis().div_ceil(1_000);
        if let Ok(seconds) = HeaderValue::from_str(&seconds.to_string()) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn answer(refusal: &Refusal) -> (u16, Option<String>, Option<String>) {
        let response = refused(refusal);
        let header = |name| {
            let value: Option<&HeaderValue> = response.headers().get(name);
            value.and_then(|value| value.to_str().ok().map(str::to_owned))
        };
        let challenge = header(header::WWW_AUTHENTICATE);
        let after = header(header::RETRY_AFTER);
        (response.status().as_u16(), challenge, after)
    }

    #[test]
    fn a_refusal_says_whether_a_credential_or_a_rule_is_missing() {
        let denied =
            |who: &str| Refusal::new(Reason::PermissionDenied, "no").with("principal", who);
        let challenge = |text: &str| Some(text.to_owned());
        assert_eq!(
            answer(&denied("anonymous")),
            (401, challenge(CHALLENGE), None)
        );
        assert_eq!(answer(&denied("token:a")), (403, None, None));
        let unproven = Refusal::new(Reason::Unauthenticated, "no");
        assert_eq!(answer(&unproven), (401, challenge(INVALID), None));
        let limited = Refusal::new(Reason::Limit, "no").retry_after(Duration::from_millis(1_001));
        assert_eq!(answer(&limited), (429, None, Some("2".to_owned())));
    }
}
