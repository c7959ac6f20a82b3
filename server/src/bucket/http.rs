//! What sends the requests of a bucket's client: HTTP/1.1, over TLS unless the environment allows
//! other connections. The authorities of the machine are trusted.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
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

use super::answers::{ANSWER_MAX, Secrets, Silent, decoded, whole};
use crate::{authorities, duration};

/// How long a connection may take. The client of a machine's identity asks for less: it is only there
/// in a cloud.
const CONNECT_MAX: Duration = Duration::from_secs(5);
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
    client: Client<HttpsConnector<Tcp>, HttpRequestBody>,
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
        let tls = tls.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).build(tls);
        let reads = self.reads.clone();
        Ok(HttpClient::new(Sender { client, reads }))
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

async fn answered(answer: ResponseFuture) -> Result<HttpResponse, HttpError> {
    let answered = timeout(ANSWER_MAX, answer).await;
    let answered =
        answered.map_err(|_| HttpError::new(HttpErrorKind::Timeout, Silent(ANSWER_MAX)))?;
    let response = answered.map_err(|error| {
        let kind = match error.is_connect() {
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
