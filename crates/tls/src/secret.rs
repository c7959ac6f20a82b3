//! TLS between nodes from one secret that all of them have, in place of files with certificates.
//!
//! ```text
//!   secret ── HKDF-SHA256 ──> Ed25519 seed ──> the CA, the same at every node
//!                                                │ signs
//!                             a fresh key ──> this node's certificate, in memory alone
//! ```
//!
//! Who has the secret can make any certificate of this CA, so no end of a certificate would protect
//! anything: they are valid at all times, and no node is kept out because its clock is wrong.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519, date_time_ymd,
};
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::material::{ClientTls, ServerTls};
use crate::peer_name::PeerName;
use crate::pem::Pem;

/// The name in the certificate of every node whose CA is made from a secret. No resolver knows it.
pub const NODE_NAME: &str = "node.ringfence.internal";

/// The most secrets at a time: the one in use and its successor, or its predecessor.
pub const CLUSTER_SECRETS_MAX: usize = 2;

/// What is derived from the secret here is for nothing else. Another way to derive needs another
/// version in both labels, or nodes of two releases would not know each other.
const SALT: &[u8] = b"ringfence cluster secret v1";
const SEED_OF_CA: &[u8] = b"ringfence peer CA ed25519 seed v1";

/// PKCS #8 of an Ed25519 key as far as its seed, which follows (RFC 8410, 7).
const PKCS8_BEFORE_SEED: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// The length of a seed, in bytes.
const SEED_BYTES: usize = 32;
/// How many bytes of the digest of a public key name a CA.
const FINGERPRINT_BYTES: usize = 16;

/// What the nodes of a cluster alone have: random bytes, from which each of them makes the same CA.
/// It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret {
    seed: [u8; SEED_BYTES],
    fingerprint: String,
}

impl ClusterSecret {
    /// The CA of these random bytes, of which there are enough; see
    /// [`read`](crate::ClusterSecret::read).
    pub(crate) fn of(random: &[u8]) -> Self {
        let mut seed = [0; SEED_BYTES];
        let derived = Salt::new(HKDF_SHA256, SALT).extract(random);
        let expanded = derived.expand(&[SEED_OF_CA], HKDF_SHA256);
        let filled = expanded.and_then(|expanded| expanded.fill(&mut seed));
        filled.expect("HKDF-SHA256 gives up to 255 times 32 bytes");
        let public = digest(&SHA256, ca_key(&seed).public_key_raw());
        let named = public.as_ref().iter().take(FINGERPRINT_BYTES);
        Self {
            seed,
            fingerprint: named.map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// The name of its CA: 32 hexadecimal digits of the digest of the public key. It tells two
    /// secrets apart, and may be shown.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What a node shows and whom it trusts, as a server and as a client. The first secret signs
    /// its certificate; the CA of each is trusted. The certificate is a new one at every call.
    ///
    /// # Panics
    /// Without a secret, or if the system gives no randomness.
    #[must_use]
    pub fn node(secrets: &[Self]) -> (ServerTls, ClientTls) {
        let (shown, _) = secrets.split_first().expect("at least one secret");
        let authorities: String = secrets.iter().map(|secret| secret.authority().1).collect();
        let (certificate, key) = shown.sign();
        let accept = ServerTls {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: Some(text(&authorities)),
            demand_client_certificate: true,
            peer_names: vec![PeerName::parse(NODE_NAME).expect("a DNS name")],
            admit_plain: false,
        };
        let connect = ClientTls {
            ca: vec![text(&authorities)],
            certificate: Some((certificate, key)),
            server_name: Some(NODE_NAME.to_owned()),
            fall_back_to_plain: false,
        };
        (accept, connect)
    }

    /// The CA, and its own certificate as PEM text: the same bytes at every node.
    fn authority(&self) -> (Issuer<'static, KeyPair>, String) {
        let mut params = params(&format!("ringfence cluster {}", self.fingerprint));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = ca_key(&self.seed);
        let certificate = params.self_signed(&key).expect("complete parameters");
        (Issuer::new(params, key), certificate.pem())
    }

    /// A certificate of a node, and its key.
    fn sign(&self) -> (Pem, Pem) {
        let mut params = params("ringfence node");
        let name = NODE_NAME.try_into().expect("a DNS name");
        params.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.authority().0);
        let certificate = certificate.expect("complete parameters");
        (text(&certificate.pem()), text(&key.serialize_pem()))
    }
}

/// Shows which secret it is, and not the secret.
impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterSecret({})", self.fingerprint)
    }
}

/// What the certificates have in common.
fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params
}

fn ca_key(seed: &[u8; SEED_BYTES]) -> KeyPair {
    let der = [&PKCS8_BEFORE_SEED[..], seed].concat();
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &PKCS_ED25519)
        .expect("every seed is a key")
}

fn text(pem: &str) -> Pem {
    Pem::Text(pem.as_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(first: u8) -> ClusterSecret {
        let random: Vec<u8> = (first..first + 32).collect();
        ClusterSecret::of(&random)
    }

    /// The digits were computed by another program, from RFC 5869 and RFC 8032.
    #[test]
    fn a_secret_makes_the_same_ca_in_every_release() {
        assert_eq!(secret(0).fingerprint(), "0533b9f9359a9c5fefd632de245bb955");
    }

    #[test]
    fn nodes_make_one_ca_and_certificates_of_their_own() {
        let (one, other) = (secret(0), secret(0));
        assert_eq!(one.authority().1, other.authority().1);
        assert_ne!(one.sign(), other.sign());
        assert_ne!(one.authority().1, secret(1).authority().1);
        assert_ne!(one.fingerprint(), secret(1).fingerprint());
    }

    #[test]
    fn what_is_shown_of_a_secret_does_not_betray_it() {
        let secret = secret(0);
        let seed: String = secret
            .seed
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let node = ClusterSecret::node(std::slice::from_ref(&secret));
        let shown = format!("{secret:?} {node:?}");
        assert!(
            !shown.contains(&seed) && !shown.contains("PRIVATE"),
            "{shown}"
        );
        assert!(!shown.contains(&format!("{:?}", secret.seed)), "{shown}");
        assert!(shown.contains(secret.fingerprint()), "{shown}");
    }
}
