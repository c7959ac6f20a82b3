//! The client's side: what gRPC connects with.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

use crate::dialed::{Dialed, Stream};
use crate::error::{Part, TlsError};
use crate::explain;
use crate::first_bytes::FirstBytes;
use crate::material::ClientTls;
use crate::refusals::Refusals;
use crate::watched::Watched;

/// What is logged of a connection without TLS that should have had it.
const NO_TLS_THERE: &str =
    "connected without TLS, which it does not speak (--peer-tls-mode permissive)";

/// Connects over TCP and makes the client's side of a handshake, for tonic's
/// `Endpoint::connect_with_connector`. The URI names host and port; its scheme does not matter.
#[derive(Clone)]
pub struct Connector {
    config: Arc<Watched<ClientConfig>>,
    server_name: Option<ServerName<'static>>,
    tcp: HttpConnector,
    falls_back_to_plain: bool,
    refusals: Option<Arc<Refusals>>,
    heard: Option<Arc<OnceLock<String>>>,
}

impl Connector {
    /// Reads the files once, so that what is wrong with them is reported at once.
    ///
    /// # Errors
    /// [`TlsError`] names the file, what is wrong with it, and what is expected.
    pub fn new(tls: ClientTls) -> Result<Self, TlsError> {
        let server_name = tls.server_name.as_deref().map(server_name).transpose()?;
        let falls_back_to_plain = tls.fall_back_to_plain;
        let config = Watched::new(tls.sources(), move || tls.config())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Ok(Self {
            config: Arc::new(config),
            server_name,
            tcp,
            falls_back_to_plain,
            refusals: None,
            heard: None,
        })
    }

    /// The same for a process that connects automatically, with no caller that would hear of an
    /// error: failed handshakes are logged, each kind at most once in 10 s for an address, and
    /// behind one nothing connects to the address for a while: 50 ms, twice as long after each
    /// further one, and 1 s at most. Clones share what they have heard.
    #[must_use]
    pub fn telling(mut self) -> Self {
        self.refusals = Some(Arc::default());
        self
    }

    /// The same, and a server's refusal of the certificate is put into `heard`, once, for who makes one
    /// connection: it comes behind the handshake, and a call that waits then may hear only that the
    /// connection is closed.
    #[must_use]
    pub fn hearing(mut self, heard: Arc<OnceLock<String>>) -> Self {
        self.heard = Some(heard);
        self
    }

    /// The same with a limit on how long connecting over TCP may take, spread over the addresses
    /// of a name.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.tcp.set_connect_timeout(Some(limit));
        self
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Dialed>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let expected = match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => server_name(uri.host().unwrap_or_default()),
        };
        let config = Arc::clone(&self.config);
        let (refusals, heard) = (self.refusals.clone(), self.heard.clone());
        let to: Arc<str> = uri.authority().map_or("", |to| to.as_str()).into();
        if let Some(why) = refusals.as_ref().and_then(|refusals| refusals.pausing(&to)) {
            return Box::pin(async move { Err(why.into()) });
        }
        let mut plain = self
            .falls_back_to_plain
            .then(|| (self.tcp.clone(), uri.clone()));
        let connecting = self.tcp.call(uri);
        Box::pin(async move {
            let name = expected?;
            let stream = connecting.await?.into_inner();
            // It looks at files, and may read them: a slow disk must hold up no other task, such as
            // the keep-alives of a client that has one thread for all.
            let config = tokio::task::spawn_blocking(move || config.current()).await?;
            let shaking = TlsConnector::from(config).connect(name, FirstBytes::of(stream));
            let (error, answer) = match shaking.into_fallible().await {
                Ok(stream) => {
                    let stream = Stream::Tls(Box::new(stream));
                    return Ok(TokioIo::new(Dialed::new(stream, refusals, to, heard)));
                }
                Err(failed) => failed,
            };
            let plain = plain.take_if(|_| answer.prove_plain(&error));
            drop(answer);
            if let Some((mut tcp, uri)) = plain {
                if let Some(refusals) = &refusals {
                    refusals.tell(&to, NO_TLS_THERE);
                }
                let stream = Stream::Plain(tcp.call(uri).await?.into_inner());
                return Ok(TokioIo::new(Dialed::new(stream, refusals, to, heard)));
            }
            let error = explained(error);
            if let Some(refusals) = &refusals {
                refusals.refused(&to, &error.to_string());
            }
            Err(error.into())
        })
    }
}

/// A host as it stands in a URI, or a name that a user gave.
fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    ServerName::try_from(bare.unwrap_or(host).to_owned()).map_err(|_| {
        let why = "a certificate cannot be for it; expected a host name or an IP address";
        TlsError::new(Part::ServerName, format!("{host:?}"), why)
    })
}

fn explained(error: io::Error) -> io::Error {
    match explain::explained(&error) {
        Some(explained) => explained,
        None if error.kind() == io::ErrorKind::UnexpectedEof => io::Error::new(
            error.kind(),
            "TLS: it closed the connection during the handshake; does it speak TLS?",
        ),
        None => error,
    }
}
