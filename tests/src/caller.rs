//! A caller that knows nothing but the `.proto`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_proto::Refusal;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{
    AcquireRequest, CheckRequest, CheckResponse, CloseRequest, GetRequest, Grant, KeepAliveRequest,
    KeepAliveResponse, Lease, OpenRequest, Reason, ReleaseRequest, SessionHandle,
};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// Why a call brought nothing.
#[derive(Debug)]
pub enum Failure {
    /// The cluster said no.
    Refused(Refusal),
    /// No answer came as long as the caller was patient: the outcome is not known.
    Unanswered(String),
}

impl Failure {
    /// The reason of a refusal.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused(refusal) => Some(refusal.reason),
            Self::Unanswered(_) => None,
        }
    }
}

/// A session and its next request number.
pub struct Session {
    /// Number and secret.
    pub handle: SessionHandle,
    /// The client's name for the session's opening.
    pub open_id: Vec<u8>,
    /// How long it lives without a keep-alive.
    pub ttl: Duration,
    next: AtomicU64,
}

impl Session {
    /// The next request number.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Shows a bearer token with every request, if there is one.
#[derive(Clone, Default)]
struct Shown(Option<MetadataValue<Ascii>>);

impl Interceptor for Shown {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// Calls any node of a cluster, and another one when one fails.
#[derive(Clone)]
pub struct Caller {
    channels: Arc<Vec<Channel>>,
    preferred: Arc<AtomicUsize>,
    shown: Shown,
    /// How long to go on asking before giving up.
    pub patience: Duration,
    /// How long to wait for one answer before asking again.
    pub try_for: Duration,
}

/// What to make of one try.
enum Tried<T> {
    Answer(T),
    Refused(Refusal),
    /// Ask again, with the same number.
    Again(String),
}

fn judge<T>(result: Result<T, Status>) -> Tried<T> {
    match result {
        Ok(answer) => Tried::Answer(answer),
        Err(status) => match Refusal::from_status(&status) {
            Some(refusal)
                if matches!(refusal.reason, Reason::Unavailable | Reason::OutcomeUnknown) =>
            {
                Tried::Again(refusal.message)
            }
            Some(refusal) => Tried::Refused(refusal),
            // Not one of ours: it says nothing about the outcome.
            None => Tried::Again(format!("{:?}: {}", status.code(), status.message())),
        },
    }
}

impl Caller {
    /// A caller that knows these `host:port`.
    ///
    /// # Panics
    /// If one of them is no address.
    #[must_use]
    pub fn new(endpoints: Vec<String>) -> Self {
        let channel = |endpoint: String| {
            Endpoint::from_shared(format!("http://{endpoint}"))
                .expect("an address")
                .connect_timeout(Duration::from_millis(500))
                .connect_lazy()
        };
        Self {
            channels: Arc::new(endpoints.into_iter().map(channel).collect()),
            preferred: Arc::default(),
            shown: Shown::default(),
            patience: Duration::from_secs(15),
            try_for: Duration::from_secs(2),
        }
    }

    /// The same caller, which proves itself with this token.
    ///
    /// # Panics
    /// If the token cannot be a header.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        let value = format!("Bearer {token}").parse().expect("a token is ASCII");
        Self {
            shown: Shown(Some(value)),
            ..self.clone()
        }
    }

    /// Asks node after node until one answers.
    async fn ask<T, F>(
        &self,
        try_for: Duration,
        mut one: impl FnMut(InterceptedService<Channel, Shown>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut last = String::from("nobody was asked");
        let asking = async {
            loop {
                let at = self.preferred.load(Ordering::Relaxed) % self.channels.len();
                let channel =
                    InterceptedService::new(self.channels[at].clone(), self.shown.clone());
                let tried = tokio::time::timeout(try_for, one(channel)).await;
                let late = || Err(Status::new(Code::DeadlineExceeded, "no answer in time"));
                match judge(tried.unwrap_or_else(|_| late())) {
                    Tried::Answer(answer) => return Ok(answer),
                    Tried::Refused(refusal) => return Err(Failure::Refused(refusal)),
                    Tried::Again(why) => last = why,
                }
                self.preferred.store(at + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(self.patience, asking).await {
            Ok(done) => done,
            Err(_) => Err(Failure::Unanswered(last)),
        }
    }

    /// Opens a session.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn open(&self, identity: &str, ttl: Duration) -> Result<Session, Failure> {
        let secret = sixteen_random_bytes();
        let open_id = sixteen_random_bytes();
        let request = OpenRequest {
            id: open_id.clone().into(),
            secret: secret.clone().into(),
            seen_cluster_time_ms: None,
            ttl_ms: Some(ttl.as_millis() as u64),
            identity: identity.into(),
            pod: None,
        };
        let opened = self
            .ask(self.try_for, |channel| {
                let request = request.clone();
                async move { SessionsClient::new(channel).open(request).await }
            })
            .await?
            .into_inner();
        let handle = SessionHandle {
            session: opened.session,
            secret: secret.into(),
        };
        Ok(Session {
            handle,
            open_id,
            ttl,
            next: AtomicU64::new(1),
        })
    }

    /// Closes a session.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn close(&self, session: &Session) -> Result<(), Failure> {
        let request = CloseRequest {
            session: Some(session.handle.clone()),
        };
        self.ask(self.try_for, |channel| {
            let request = request.clone();
            async move { SessionsClient::new(channel).close(request).await }
        })
        .await?;
        Ok(())
    }

    /// Sends one keep-alive and waits for its answer.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn keep_alive(&self, session: &Session) -> Result<KeepAliveResponse, Failure> {
        let sessions = vec![session.handle.clone()];
        let request = KeepAliveRequest {
            id: 1,
            sessions,
            acknowledged: Vec::new(),
        };
        self.ask(self.try_for, |channel| {
            let request = request.clone();
            async move {
                let mut client = SessionsClient::new(channel);
                let mut replies = client
                    .keep_alive(tokio_stream::once(request))
                    .await?
                    .into_inner();
                let reply = replies.message().await?;
                let reply = reply.ok_or_else(|| Status::unknown("the stream ended"))?;
                match reply.refusal {
                    Some(refusal) => Err(Status::unknown(refusal.message)),
                    None => Ok(reply),
                }
            }
        })
        .await
    }

    /// Acquires a lease under a number of the caller's choice.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn acquire(
        &self,
        session: &Session,
        number: u64,
        name: &str,
        wait: Option<Duration>,
    ) -> Result<Grant, Failure> {
        let (grant, _) = self.acquire_at(session, number, name, wait).await?;
        Ok(grant)
    }

    /// Acquires a lease, and tells at which cluster time that was answered: right behind the grant, if
    /// it was waited for without a break.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn acquire_at(
        &self,
        session: &Session,
        number: u64,
        name: &str,
        wait: Option<Duration>,
    ) -> Result<(Grant, Duration), Failure> {
        let request = AcquireRequest {
            session: Some(session.handle.clone()),
            number,
            lowest: number,
            name: name.into(),
            wait_ms: wait.map(|wait| wait.as_millis() as u64),
            ..AcquireRequest::default()
        };
        let try_for = self.try_for + wait.unwrap_or_default();
        let answer = self.ask(try_for, |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).acquire(request).await }
        });
        let answer = answer.await?.into_inner();
        let missing = || Failure::Unanswered("an answer without a grant".into());
        let time = Duration::from_millis(answer.cluster_time_ms);
        Ok((answer.grant.ok_or_else(missing)?, time))
    }

    /// Releases a lease under a number of the caller's choice.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn release(
        &self,
        session: &Session,
        number: u64,
        name: &str,
        token: u64,
    ) -> Result<(), Failure> {
        let request = ReleaseRequest {
            session: Some(session.handle.clone()),
            number,
            lowest: number,
            name: name.into(),
            token,
            close_session: false,
        };
        self.ask(self.try_for, |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).release(request).await }
        })
        .await?;
        Ok(())
    }

    /// What a token is worth.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn check(&self, name: &str, token: u64) -> Result<CheckResponse, Failure> {
        let request = CheckRequest {
            name: name.into(),
            token,
            read: None,
        };
        let answer = self.ask(self.try_for, |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).check(request).await }
        });
        Ok(answer.await?.into_inner())
    }

    /// One lease; `None` if the name is not known.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn get(&self, name: &str) -> Result<Option<Lease>, Failure> {
        let request = GetRequest {
            name: name.into(),
            read: None,
        };
        let answer = self.ask(self.try_for, |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).get(request).await }
        });
        match answer.await {
            Ok(found) => Ok(found.into_inner().lease),
            Err(failure) if failure.reason() == Some(Reason::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// A channel to one node.
    #[must_use]
    pub fn channel(&self, at: usize) -> Channel {
        self.channels[at].clone()
    }
}

/// For ids and secrets.
#[must_use]
pub fn sixteen_random_bytes() -> Vec<u8> {
    rand::random::<[u8; 16]>().to_vec()
}
