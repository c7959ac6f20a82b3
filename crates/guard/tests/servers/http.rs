//! What sends the requests of S3's client: HTTP/1.1 without TLS.

use std::future::Future;
use std::pin::Pin;

use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};

/// Makes clients with connections of their own.
#[derive(Debug)]
pub(crate) struct PlainHttp;

#[derive(Debug)]
struct Sender(Client<Tcp, HttpRequestBody>);

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpConnector for PlainHttp {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut tcp = Tcp::new();
        tcp.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(tcp);
        Ok(HttpClient::new(Sender(client)))
    }
}

impl HttpService for Sender {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let sent = self.0.request(request).await;
            let response = sent.map_err(|error| {
                let kind = match error.is_connect() {
                    true => HttpErrorKind::Connect,
                    false => HttpErrorKind::Interrupted,
                };
                HttpError::new(kind, error)
            })?;
            let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            Ok(response.map(|body| HttpResponseBody::new(body.map_err(broken))))
        })
    }
}
