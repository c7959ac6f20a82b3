//! The name of a caller in its certificate. Whether the certificate is good was decided in the
//! handshake; here only its name and its times are read.

use std::fmt;
use std::str::FromStr;

use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::limits::LEEWAY;
use crate::not_proven::{Credential, NotProven};
use crate::proven::Proven;
use ringfence_core::Principal;

/// Which name of a client certificate counts. The kinds are apart: `cert:cn:X` is another principal
/// than `cert:uri:X`, and what is issued as one kind cannot pose as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CertificateKind {
    /// The URI among the alternative names, as SPIFFE has it.
    Uri,
    /// The DNS name among the alternative names.
    Dns,
    /// The e-mail address among the alternative names.
    Email,
    /// The common name of the subject.
    CommonName,
}

impl CertificateKind {
    /// The word for it in principals and flags.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uri => "uri",
            Self::Dns => "dns",
            Self::Email => "email",
            Self::CommonName => "cn",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Uri => "URI alternative name",
            Self::Dns => "DNS alternative name",
            Self::Email => "e-mail alternative name",
            Self::CommonName => "common name",
        }
    }

    /// The value of a name of this kind; `None` for one of another kind.
    fn value_of<'a>(self, name: &GeneralName<'a>) -> Option<&'a str> {
        match (self, name) {
            (Self::Uri, GeneralName::URI(value))
            | (Self::Dns, GeneralName::DNSName(value))
            | (Self::Email, GeneralName::RFC822Name(value)) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for CertificateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CertificateKind {
    type Err = &'static str;

    /// The error says what is allowed.
    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        [Self::Uri, Self::Dns, Self::Email, Self::CommonName]
            .into_iter()
            .find(|kind| kind.as_str() == raw)
            .ok_or("uri, dns, email or cn")
    }
}

/// What a certificate says of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FromCertificate {
    proven: Proven,
    /// In seconds since 1970.
    begins: u64,
}

impl FromCertificate {
    /// Reads a certificate in DER.
    pub(crate) fn read(der: &[u8], kind: CertificateKind) -> Result<Self, NotProven> {
        const UNREADABLE: NotProven = not("the client certificate cannot be read; expected X.509");
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| UNREADABLE)?;
        if !rest.is_empty() {
            return Err(UNREADABLE);
        }
        let value = match kind {
            CertificateKind::CommonName => common_name(&certificate)?,
            CertificateKind::Uri | CertificateKind::Dns | CertificateKind::Email => {
                alternative_name(&certificate, kind)?
            }
        };
        let principal = match value {
            "" => Err(ringfence_core::InvalidPrincipal::UnknownKind),
            value => Principal::parse(&format!("cert:{kind}:{value}")),
        };
        let unfit = |invalid| {
            let name = format!("the {} of the client certificate", kind.name());
            NotProven::unfit(Credential::Certificate, &name, &invalid)
        };
        let validity = certificate.validity();
        let seconds = |timestamp: i64| u64::try_from(timestamp).unwrap_or(0);
        let ends = seconds(validity.not_after.timestamp());
        let mut proven = Proven::of(principal.map_err(unfit)?);
        proven.expires_unix = Some(ends.saturating_add(LEEWAY));
        Ok(Self {
            proven,
            begins: seconds(validity.not_before.timestamp()),
        })
    }

    /// The caller, while the certificate is good: a connection may outlast it.
    pub(crate) fn proven(&self, now: u64) -> Result<Proven, NotProven> {
        if now.saturating_add(LEEWAY) < self.begins {
            return Err(not(
                "the client certificate is not valid yet; compare the clocks",
            ));
        }
        if !self.proven.holds_at(now) {
            return Err(not(
                "the client certificate has expired; connect with a new one",
            ));
        }
        Ok(self.proven.clone())
    }
}

const fn not(why: &'static str) -> NotProven {
    NotProven::new(Credential::Certificate, why)
}

fn absent(kind: CertificateKind) -> NotProven {
    let why = format!(
        "the client certificate has no {}; expected exactly one, since --client-cert-principal is \
         {kind}",
        kind.name()
    );
    NotProven::because(Credential::Certificate, why)
}

fn several(kind: CertificateKind) -> NotProven {
    let why = format!(
        "the client certificate has more than one {}; expected exactly one, since \
         --client-cert-principal is {kind}",
        kind.name()
    );
    NotProven::because(Credential::Certificate, why)
}

fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a str, NotProven> {
    let kind = CertificateKind::CommonName;
    let mut names = certificate.subject().iter_common_name();
    let first = names.next().ok_or_else(|| absent(kind))?;
    if names.next().is_some() {
        return Err(several(kind));
    }
    // Other encodings than those of ASCII and UTF-8 are refused here.
    first
        .as_str()
        .map_err(|_| not("the common name of the client certificate is no UTF-8 text"))
}

fn alternative_name<'a>(
    certificate: &X509Certificate<'a>,
    kind: CertificateKind,
) -> Result<&'a str, NotProven> {
    let names = certificate
        .subject_alternative_name()
        .map_err(|_| not("the client certificate's alternative names cannot be read"))?
        .ok_or_else(|| absent(kind))?;
    let names = &names.value.general_names;
    // One that cannot be read may be a second one of the kind.
    if names
        .iter()
        .any(|name| matches!(name, GeneralName::Invalid(..)))
    {
        return Err(not(
            "an alternative name of the client certificate cannot be read",
        ));
    }
    let mut of_kind = names.iter().filter_map(|name| kind.value_of(name));
    let first = of_kind.next().ok_or_else(|| absent(kind))?;
    match of_kind.next() {
        None => Ok(first),
        Some(_) => Err(several(kind)),
    }
}

/// From when until when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: u64,
    /// The last second.
    pub until: u64,
}

impl Validity {
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        let unix = |seconds: i64| u64::try_from(seconds).unwrap_or(0);
        Self {
            from: unix(validity.not_before.timestamp()),
            until: unix(validity.not_after.timestamp()),
        }
    }

    /// Those of the certificates in these PEM blocks; blocks that are none are left out.
    #[must_use]
    pub fn in_pem(pem: &[u8]) -> Vec<Self> {
        let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok);
        let validities = blocks.filter_map(|block| Some(Self::of(&block.parse_x509().ok()?)));
        validities.collect()
    }
}
