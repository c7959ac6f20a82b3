//! How the commands connect: with TLS and a token if they are configured to.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use ringfence_client::unstable::{Channel, Credential};
use ringfence_client::{ClientBuilder, ConnectError, Tls};
use ringfence_tls::{ClientTls, Connector, Pem};
use tonic::transport::Endpoint;
use tonic::{Response, Status};

use super::{Failure, Global};
use crate::unshown::{is_content, shown};

/// Whom a command trusts, and what it shows.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TlsArgs {
    /// Connect with TLS, and trust the CAs in this PEM file
    #[arg(
        long,
        global = true,
        env = "RINGFENCE_CACERT",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    cacert: Option<PathBuf>,
    /// The certificate to show, if the servers ask for one: a PEM file
    #[arg(
        long,
        global = true,
        env = "RINGFENCE_CERT",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    cert: Option<PathBuf>,
    /// The key of --cert, not encrypted: a PEM file
    #[arg(
        long,
        global = true,
        env = "RINGFENCE_KEY",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    key: Option<PathBuf>,
    /// The name that the servers' certificates have, if it is not the host of --endpoints
    #[arg(
        long,
        global = true,
        env = "RINGFENCE_SERVER_NAME",
        value_name = "NAME",
        help_heading = "Global options"
    )]
    server_name: Option<String>,
    /// The file of a token that proves who asks: a cluster token, or one of an identity provider
    #[arg(
        long,
        global = true,
        env = "RINGFENCE_TOKEN_FILE",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    token_file: Option<PathBuf>,
    /// See [`TlsArgs::encrypt`].
    #[arg(skip)]
    encrypted: bool,
}

impl TlsArgs {
    /// Connects with TLS, also if nothing was said of it: the servers are known to have it.
    pub(super) fn encrypt(&mut self) {
        self.encrypted = true;
    }

    /// Whether anything was said of TLS.
    pub(super) fn given(&self) -> bool {
        let Self {
            cacert,
            cert,
            key,
            server_name,
            token_file: _,
            encrypted: _,
        } = self;
        cacert.is_some() || cert.is_some() || key.is_some() || server_name.is_some()
    }

    /// The file with the certificate that this command shows, if one was named.
    pub(super) fn certificate_file(&self) -> Option<&Path> {
        self.cert.as_deref()
    }

    /// The file with the CAs that sign the certificates of servers, if one was named.
    pub(super) fn authority_file(&self) -> Option<&Path> {
        self.cacert.as_deref()
    }

    /// Refuses the content of a file in the place of its path: messages repeat paths.
    ///
    /// # Errors
    /// Which flag has it.
    pub(super) fn check_paths(&self) -> Result<(), Failure> {
        let paths = [
            ("--cacert", &self.cacert),
            ("--cert", &self.cert),
            ("--key", &self.key),
            ("--token-file", &self.token_file),
        ];
        for (flag, path) in paths {
            let Some(path) = path.as_ref().filter(|path| !path.exists()) else {
                continue;
            };
            let offered = path.to_string_lossy();
            if is_content(&offered) {
                let why = format!("{flag} is {}", shown(&offered));
                return Err(Failure::usage(why).hint("name a file with it"));
            }
        }
        Ok(())
    }

    /// The token of --token-file, if it was given.
    pub(super) fn token(&self) -> Option<Result<String, String>> {
        let path = self.token_file.as_ref()?;
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|why| format!("{}: {why}", path.display()));
        Some(text.map(|text| text.trim().to_owned()))
    }

    /// A client that is set up so.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub(super) fn set_up(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, String> {
        if let Some(tls) = self.client()? {
            builder = builder.tls(tls);
        }
        if let Some(path) = &self.token_file {
            builder = builder.token_file(path);
        }
        Ok(builder)
    }

    /// As the client crate takes it; `None` if nothing was said.
    ///
    /// # Errors
    /// In words, if a certificate comes without its key or a key without its certificate.
    pub(super) fn client(&self) -> Result<Option<Tls>, String> {
        if !self.given() {
            return Ok(None);
        }
        let mut tls = Tls::new();
        if let Some(path) = &self.cacert {
            tls = tls.ca_file(path);
        }
        if let Some((certificate, key)) = self.certificate()? {
            tls = tls.certificate_files(certificate, key);
        }
        if let Some(name) = &self.server_name {
            tls = tls.server_name(name);
        }
        Ok(Some(tls))
    }

    /// What a child process needs to connect in the same way, wherever it runs.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        let file = |path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Some(path.display().to_string())
        };
        let said = [
            ("RINGFENCE_CACERT", file(&self.cacert)),
            ("RINGFENCE_CERT", file(&self.cert)),
            ("RINGFENCE_KEY", file(&self.key)),
            ("RINGFENCE_SERVER_NAME", self.server_name.clone()),
            ("RINGFENCE_TOKEN_FILE", file(&self.token_file)),
        ];
        let said = said.into_iter();
        said.filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// That it can be used, for what asks each node separately: it would fail at each of them alike.
    ///
    /// # Errors
    /// As [`Failure::connect`] for a client that is set up so.
    pub(super) fn check(&self, global: &Global) -> Result<(), Failure> {
        let wrong = |cause| Failure::connect(&cause, global);
        if let Some(path) = &self.token_file {
            Credential::of_file(path).map_err(wrong)?;
        }
        self.certificate().map_err(Failure::usage)?;
        if self.given() {
            let tls = self.connector();
            tls.map_err(|why| wrong(ConnectError::Tls { why }))?;
        }
        Ok(())
    }

    /// What encrypts connections.
    fn connector(&self) -> Result<Connector, String> {
        let certificate = self.certificate()?;
        let tls = ClientTls {
            ca: self.cacert.iter().cloned().map(Pem::File).collect(),
            certificate: certificate.map(|(of, key)| (of.into(), key.into())),
            server_name: self.server_name.clone(),
            fall_back_to_plain: false,
        };
        Connector::new(tls).map_err(|error| error.to_string())
    }

    /// A connection to one node, for what asks each separately.
    ///
    /// # Errors
    /// In words, what is wrong with the address, the certificates, or the node.
    pub(super) async fn connect(&self, address: &str, limit: Duration) -> Result<Node, Silence> {
        let credential = match &self.token_file {
            Some(path) => Credential::of_file(path).map_err(|error| error.to_string())?,
            None => Credential::default(),
        };
        if address.starts_with("unix:") {
            let endpoint = Endpoint::from_shared(address.to_owned());
            let endpoint = endpoint.map_err(|error| root_cause(&error))?;
            let channel = endpoint.connect_timeout(limit).connect().await?;
            return Ok(Node::at(credential.on(channel)));
        }
        let encrypted = self.given() || self.encrypted || address.starts_with("https://");
        let host = address.rsplit("://").next().unwrap_or(address);
        let endpoint = Endpoint::from_shared(format!("http://{host}"));
        let endpoint = endpoint.map_err(|error| root_cause(&error))?;
        let endpoint = endpoint.tcp_nodelay(true).connect_timeout(limit);
        let heard = Arc::default();
        let connected = match encrypted {
            false => endpoint.connect().await,
            true => {
                let connector = self.connector()?.hearing(Arc::clone(&heard));
                let origin = format!("https://{host}").parse();
                let origin = origin.map_err(|_| "it is no address".to_owned())?;
                let endpoint = endpoint.origin(origin);
                endpoint.connect_with_connector(connector).await
            }
        };
        let channel = credential.on(connected?);
        Ok(Node { channel, heard })
    }

    fn certificate(&self) -> Result<Option<(PathBuf, PathBuf)>, String> {
        match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate.clone(), key.clone()))),
            (None, None) => Ok(None),
            (Some(_), None) => Err("--cert is given without --key".to_owned()),
            (None, Some(_)) => Err("--key is given without --cert".to_owned()),
        }
    }
}

/// A connection to one node.
pub(super) struct Node {
    pub(super) channel: Channel,
    /// Its refusal of the certificate, which comes behind the handshake.
    heard: Arc<OnceLock<String>>,
}

impl Node {
    fn at(channel: Channel) -> Self {
        let heard = Arc::default();
        Self { channel, heard }
    }

    /// The answer to a call on the connection, or why there is none.
    pub(super) async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Response<T>, Silence> {
        call.await.map_err(|status| match self.heard.get() {
            Some(why) => Silence {
                why: why.clone(),
                denied: Some(Failure::unauthenticated(why)),
            },
            None => Silence {
                why: said(&status),
                denied: Failure::denied(&status),
            },
        })
    }
}

/// Why a node does not say what it was asked.
#[derive(Debug)]
pub(super) struct Silence {
    pub(super) why: String,
    /// It refuses this caller.
    pub(super) denied: Option<Failure>,
}

impl From<String> for Silence {
    fn from(why: String) -> Self {
        Self { why, denied: None }
    }
}

impl From<tonic::transport::Error> for Silence {
    fn from(error: tonic::transport::Error) -> Self {
        Self {
            why: root_cause(&error),
            denied: Failure::certificate_refused(&error),
        }
    }
}

/// The innermost error: the outer ones say "transport error".
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Why a call failed: what the server said, or what became of the connection.
fn said(status: &Status) -> String {
    match status.source() {
        Some(cause) => root_cause(cause),
        None => status.message().to_owned(),
    }
}
