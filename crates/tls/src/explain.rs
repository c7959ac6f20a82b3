//! What went wrong in a handshake, and what to do.

use std::error::Error as StdError;
use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, OtherError};

/// The error of TLS in an error of reading or writing.
fn fault(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

const SERVER_EXPIRED: &str = "its certificate has expired";
const CLIENT_EXPIRED: &str = "this client's certificate has expired";

/// What a client makes of a failed handshake, or of the first read after it: a server of TLS 1.3
/// looks at the client's certificate when the client is already through.
fn to_client(error: &io::Error) -> Option<String> {
    Some(match fault(error)? {
        Error::InvalidCertificate(fault) => of_server(fault),
        Error::AlertReceived(alert) => refused(*alert),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            "it does not speak TLS; use http://, or give it a certificate and a key".to_owned()
        }
        other => other.to_string(),
    })
}

/// A server is there and does not take the certificate that this side shows, or that it shows none.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
struct CertificateRefused(String);

/// What a server said of the certificate of this side, if that is why a connection or a call on it failed: in
/// words, with what to do. `None` of any other error, of a server that is not there too.
///
/// HTTP/2 keeps the text of an error that ends a connection and not its type, so the text is looked at.
#[must_use]
pub fn certificate_refused(error: &(dyn StdError + 'static)) -> Option<String> {
    let said = OF_CERTIFICATE.map(|alert| CertificateRefused(refused(alert)).to_string());
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut causes = causes.map(ToString::to_string);
    causes.find(|cause| said.contains(cause))
}

/// Whether a text of this crate says that a certificate has expired: the server's, or that of this side.
#[must_use]
pub fn says_expired(why: &str) -> bool {
    why.contains(SERVER_EXPIRED) || why.contains(CLIENT_EXPIRED)
}

/// The same error with what to do; `None` if it is none of TLS.
pub(crate) fn explained(error: &io::Error) -> Option<io::Error> {
    let why = to_client(error)?;
    let is_refusal =
        matches!(fault(error), Some(Error::AlertReceived(alert)) if OF_CERTIFICATE.contains(alert));
    Some(match is_refusal {
        true => io::Error::new(error.kind(), CertificateRefused(why)),
        false => io::Error::new(error.kind(), format!("TLS: {why}")),
    })
}

/// What a server says of a client's certificate.
const OF_CERTIFICATE: [AlertDescription; 9] = [
    AlertDescription::CertificateRequired,
    AlertDescription::UnknownCA,
    AlertDescription::CertificateExpired,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateUnknown,
    AlertDescription::AccessDenied,
    AlertDescription::DecryptError,
];

/// Why a server rejects a client, or what it notes of one that it admits, as far as its log lines are paced apart: a flood of one kind must
/// not hide another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    /// It came without TLS.
    Plain,
    /// The same, at a port that admits it.
    AdmittedPlain,
    /// It showed no certificate.
    NoCertificate,
    /// Its certificate is not good.
    Certificate,
    /// Its certificate is good, and not a peer's.
    NoPeer,
    /// Anything else.
    Other,
}

/// The kind of a failed handshake.
pub(crate) fn kind(error: &io::Error) -> Refusal {
    match fault(error) {
        Some(Error::NoCertificatesPresented) => Refusal::NoCertificate,
        Some(Error::InvalidCertificate(CertificateError::Other(_))) => Refusal::NoPeer,
        Some(Error::InvalidCertificate(_)) => Refusal::Certificate,
        _ => Refusal::Other,
    }
}

/// What a server notes about a client that it has rejected.
pub(crate) fn to_server(error: &io::Error) -> String {
    match fault(error) {
        Some(Error::NoCertificatesPresented) => "it showed no certificate".to_owned(),
        Some(Error::InvalidCertificate(CertificateError::Other(OtherError(why)))) => {
            format!("its certificate: {why}")
        }
        Some(Error::InvalidCertificate(fault)) => format!("its certificate: {fault}"),
        Some(Error::AlertReceived(alert)) => {
            format!("it refused this one's certificate: {alert:?}")
        }
        Some(other) => other.to_string(),
        None => error.to_string(),
    }
}

fn of_server(fault: &CertificateError) -> String {
    match fault {
        CertificateError::UnknownIssuer => {
            "its certificate is signed by none of the CAs that were named; name the one that \
             signed it"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{SERVER_EXPIRED}; give the server a new one, or set this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; set this machine's clock, or the server's".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "its certificate is not for {} but for {}; connect to such a name, or say which name to \
             expect",
            expected.to_str(),
            match presented.is_empty() {
                true => "no name at all".to_owned(),
                false => presented.join(", "),
            }
        ),
        CertificateError::NotValidForName => {
            "its certificate is not for this name; connect to a name that it is for, or say which \
             name to expect"
                .to_owned()
        }
        other => format!("its certificate is not good: {other}"),
    }
}

fn refused(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "it demands a client certificate; give one with its key".to_owned()
        }
        AlertDescription::UnknownCA => {
            "it does not trust the CA of this client's certificate; give one that its CA has signed"
                .to_owned()
        }
        // A CA of the same name that has another key: its signature proves nothing.
        AlertDescription::DecryptError => {
            "the key of its CA has not signed this client's certificate, though the CA's name is the \
             same; give one that its CA has signed"
                .to_owned()
        }
        AlertDescription::CertificateExpired => {
            format!("{CLIENT_EXPIRED}; give a new one")
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked => {
            format!("it refuses this client's certificate ({alert:?}); give another one")
        }
        // What this crate's servers say of a certificate without a name of peers.
        AlertDescription::CertificateUnknown => {
            "it refuses this client's certificate: a port of peers demands one of their names \
             (--peer-tls-name there); its log says which"
                .to_owned()
        }
        AlertDescription::NoApplicationProtocol => {
            "it speaks TLS, but not gRPC; is it a Ringfence port?".to_owned()
        }
        other => format!("it ended the handshake: {other:?}"),
    }
}
