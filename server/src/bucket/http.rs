//! What sends the requests of a bucket's client: HTTP/1.1, over TLS unless the environment allows
//! other connections. The authorities of the machine are trusted.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http::Uri;
use http_body_util::{BodyExt as _, StreamBody};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use tokio::time::timeout;
use tower::Service;

use super::answers::{ANSWER_MAX, Secrets, Silent, decoded, whole};
use crate::{authorities, duration};

/// How long a connection may take. The client of a machine's identity asks for less: it is only there
/// in a cloud.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a connection with its handshake of TLS may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long no byte of an answer's body may come.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Makes clients with connections of their own.
#[derive(Debug)]
pub(super) struct Connections {
    /// The last part of the key of the object that is read. It comes in pieces, of whatever size it is; all
    /// other answers are of a few bytes, or pages of a list.
    pub(super) reads: Option<String>,
}

#[derive(Debug)]
struct Sender {
    client: Client<Patient, HttpRequestBody>,
    reads: Option<String>,
}

impl HttpConnector for Connections {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        let within = options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let within = within.and_then(|text| duration::parse(&text).ok());
        let mut tcp = Tcp::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(within.unwrap_or(CONNECT_MAX).min(CONNECT_MAX)));
        // `https://` is for what is around it.
        tcp.enforce_http(false);
        let tls = authorities::trusting().map_err(|error| object_store::Error::Generic {
            store: "bucket",
            source: Box::new(error),
        })?;
        let tls = match plain.is_some_and(|allowed| allowed == "true") {
            true => tls.https_or_http(),
            false => tls.https_only(),
        };
        let tls = Patient(tls.enable_http1().wrap_connector(tcp));
        let client = Client::builder(TokioExecutor::new()).build(tls);
        let reads = self.reads.clone();
        Ok(HttpClient::new(Sender { client, reads }))
    }
}

/// Connects within [`HANDSHAKE_MAX`]: what speaks no TLS may take the first message of a handshake for the
/// begin of something longer, and wait for it.
#[derive(Clone, Debug)]
struct Patient(HttpsConnector<Tcp>);

/// A handshake that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("no handshake of TLS within {HANDSHAKE_MAX:?}; does it speak TLS?")]
struct NoHandshake;

type Dialed = <HttpsConnector<Tcp> as Service<Uri>>::Response;
type DialError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Patient {
    type Response = Dialed;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Dialed, DialError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialing = self.0.call(uri);
        Box::pin(async move {
            match timeout(HANDSHAKE_MAX, dialing).await {
                Ok(dialed) => dialed,
                Err(_) => Err(NoHandshake.into()),
            }
        })
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Sender {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        let path = request.uri().path().to_owned();
        let is_object = request.method() == http::Method::GET && self.is_of_object(&path);
        let secrets = Secrets::of(&request);
        let answer = self.client.request(request);
        Box::pin(async move {
            let answer = answered(answer).await?;
            match is_object && answer.status().is_success() {
                true => Ok(answer),
                false => whole(answer, &path, &secrets).await,
            }
        })
    }
}

impl Sender {
    /// Whether this is the path of the object that is read.
    fn is_of_object(&self, path: &str) -> bool {
        let last = path.rsplit('/').next().unwrap_or_default();
        let reads = self.reads.as_ref().map(String::as_bytes);
        reads == Some(&decoded(last)[..])
    }
}

fn is_no_handshake(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source())
        .any(|error| error.is::<NoHandshake>())
}

async fn answered(answer: ResponseFuture) -> Result<HttpResponse, HttpError> {
    let answered = timeout(ANSWER_MAX, answer).await;
    let answered =
        answered.map_err(|_| HttpError::new(HttpErrorKind::Timeout, Silent(ANSWER_MAX)))?;
    let response = answered.map_err(|error| {
        let kind = match error.is_connect() {
            // The next one would take as long, and come to nothing either.
            true if is_no_handshake(&error) => HttpErrorKind::Unknown,
            true => HttpErrorKind::Connect,
            false => HttpErrorKind::Interrupted,
        };
        HttpError::new(kind, error)
    })?;
    Ok(response.map(|body| {
        let frames = stream::unfold(body, async |mut body| {
            let frame = match timeout(SILENCE_MAX, body.frame()).await {
                Ok(frame) => {
                    frame?.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))
                }
                Err(_) => {
                    let silent = Silent(SILENCE_MAX);
                    Err(HttpError::new(HttpErrorKind::Timeout, silent))
                }
            };
            Some((frame, body))
        });
        // The end of a body is looked for more than once.
        HttpResponseBody::new(StreamBody::new(Box::pin(frames.fuse())))
    }))
}
