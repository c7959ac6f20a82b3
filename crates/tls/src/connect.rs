//! The client's side: what gRPC connects with.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

use crate::error::{Part, TlsError};
use crate::explain;
use crate::material::ClientTls;
use crate::watched::Watched;

/// The most addresses of which a failure is remembered.
const TOLD_MAX: usize = 64;

/// Connects over TCP and makes the client's side of a handshake, for tonic's
/// `Endpoint::connect_with_connector`. The URI names host and port; its scheme does not matter.
#[derive(Clone)]
pub struct Connector {
    config: Arc<Watched<ClientConfig>>,
    server_name: Option<ServerName<'static>>,
    tcp: HttpConnector,
    teller: Option<Arc<Teller>>,
}

impl Connector {
    /// Reads the files once, so that what is wrong with them is reported at once.
    ///
    /// # Errors
    /// [`TlsError`] names the file, what is wrong with it, and what is expected.
    pub fn new(tls: ClientTls) -> Result<Self, TlsError> {
        let server_name = tls.server_name.as_deref().map(server_name).transpose()?;
        let config = Watched::new(tls.sources(), move || tls.config())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Ok(Self {
            config: Arc::new(config),
            server_name,
            tcp,
            teller: None,
        })
    }

    /// The same, and failed handshakes are logged, each the first time that it comes. For a
    /// process that connects automatically, with no caller that would hear of an error.
    #[must_use]
    pub fn telling(mut self) -> Self {
        self.teller = Some(Arc::default());
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
        let teller = self.teller.clone();
        let to: Arc<str> = uri.authority().map_or("", |to| to.as_str()).into();
        let connecting = self.tcp.call(uri);
        Box::pin(async move {
            let name = expected?;
            let stream = connecting.await?.into_inner();
            // It looks at files, and may read them: a slow disk must hold up no other task, such as
            // the keep-alives of a client that has one thread for all.
            let config = tokio::task::spawn_blocking(move || config.current()).await?;
            let stream = TlsConnector::from(config).connect(name, stream).await;
            let stream = stream.map_err(explained).inspect_err(|error| {
                if let Some(teller) = &teller {
                    teller.tell(&to, &error.to_string());
                }
            })?;
            Ok(TokioIo::new(Dialed { stream, teller, to }))
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
    match explain::to_client(&error) {
        Some(why) => io::Error::new(error.kind(), format!("TLS: {why}")),
        None if error.kind() == io::ErrorKind::UnexpectedEof => io::Error::new(
            error.kind(),
            "TLS: it closed the connection during the handshake; does it speak TLS?",
        ),
        None => error,
    }
}

/// A connection with TLS that this side has made.
pub struct Dialed {
    stream: TlsStream<TcpStream>,
    teller: Option<Arc<Teller>>,
    to: Arc<str>,
}

/// Logs what keeps from connecting, and does not repeat itself.
#[derive(Default)]
struct Teller(Mutex<BTreeMap<Arc<str>, String>>);

impl Teller {
    fn tell(&self, to: &Arc<str>, why: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(to).is_some_and(|before| before == why) {
            return;
        }
        tracing::warn!(%to, %why, "not connected");
        if told.len() == TOLD_MAX {
            told.clear();
        }
        told.insert(Arc::clone(to), why.to_owned());
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        read.map_err(|error| {
            let Some(why) = explain::to_client(&error) else {
                return error;
            };
            let why = format!("TLS: {why}");
            if let Some(teller) = &self.teller {
                teller.tell(&self.to, &why);
            }
            io::Error::new(error.kind(), why)
        })
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
