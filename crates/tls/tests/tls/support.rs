//! A server that echoes, and clients of it.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Uri;
use hyper_util::rt::TokioIo;
use ringfence_testkit::certificates::{Authority, Signed};
use ringfence_tls::{Acceptor, ClientTls, Connector, Dialed, Pem, Port, PortLimits, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tower_service::Service;

pub(crate) fn text(text: &str) -> Pem {
    Pem::Text(text.as_bytes().into())
}

/// A server with this certificate that asks for none.
pub(crate) fn server(signed: &Signed) -> ServerTls {
    ServerTls {
        certificate: text(&signed.certificate),
        key: text(&signed.key),
        client_ca: None,
        demand_client_certificate: false,
        peer_names: Vec::new(),
        admit_plain: false,
    }
}

/// A client that trusts one authority.
pub(crate) fn trusting(authority: &Authority) -> ClientTls {
    ClientTls {
        ca: vec![text(authority.pem())],
        ..ClientTls::default()
    }
}

/// The same with a certificate to show.
pub(crate) fn showing(authority: &Authority, signed: &Signed) -> ClientTls {
    ClientTls {
        certificate: Some((text(&signed.certificate), text(&signed.key))),
        ..trusting(authority)
    }
}

/// Serves until the test ends.
pub(crate) async fn serve(tls: ServerTls) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = Acceptor::new(tls).unwrap();
    let limits = PortLimits::http2(64);
    let port = Port::new("test", listener, Some(tls), limits, Arc::default());
    let mut incoming = port.incoming();
    tokio::spawn(async move {
        while let Some(socket) = incoming.next().await {
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(socket.unwrap());
                tokio::io::copy(&mut from, &mut to).await.ok();
            });
        }
    });
    address
}

/// Connects, and hears back what it has said; or in words why not.
pub(crate) async fn echo(connector: &mut Connector, to: impl ToString) -> Result<(), String> {
    let uri: Uri = format!("http://{}", to.to_string()).parse().unwrap();
    let connected: TokioIo<Dialed> = connector.call(uri).await.map_err(|e| e.to_string())?;
    let mut stream = connected.into_inner();
    let said = stream.write_all(b"hello").await;
    let mut heard = [0; 5];
    // The server may have turned this client away, which is heard, not felt.
    stream
        .read_exact(&mut heard)
        .await
        .map_err(|error| error.to_string())?;
    said.map_err(|error| error.to_string())?;
    assert_eq!(&heard, b"hello");
    Ok(())
}

/// [`echo`] by a new client.
pub(crate) async fn echo_as(tls: ClientTls, to: impl ToString) -> Result<(), String> {
    echo(&mut Connector::new(tls).unwrap(), to).await
}
