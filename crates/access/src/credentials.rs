//! Which credentials a node takes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::certificate::CertificateKind;
use crate::limits::{ISSUER_ALIAS_BYTES_MAX, ISSUERS_MAX};

/// The credentials that a node takes, beside cluster tokens and its admin socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Which name of a client certificate counts; `None`: a certificate names no caller.
    pub certificate: Option<CertificateKind>,
    /// The issuers of JWTs; at most [`ISSUERS_MAX`].
    pub issuers: Vec<Issuer>,
}

/// An issuer of JWTs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// What principals of this issuer are called by: `jwt:ALIAS:SUBJECT` or
    /// `sa:ALIAS:NAMESPACE/NAME`.
    pub alias: String,
    /// The exact `iss` of its tokens.
    pub issuer: String,
    /// What stands in the `aud` of the tokens that are meant for this cluster.
    pub audience: String,
    /// The file with its public keys (a JWKS). It is read again when it changes; nothing is fetched.
    pub keys: PathBuf,
    /// How its subjects are read.
    pub kind: IssuerKind,
}

/// How the subjects of an issuer are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IssuerKind {
    /// As they are.
    #[default]
    Jwt,
    /// As service accounts of Kubernetes; tokens of other subjects are refused.
    Kubernetes,
}

/// What the text of an [`Issuer`] looks like.
const FORM: &str = "ALIAS=ISSUER,audience=AUDIENCE,jwks=FILE[,kind=kubernetes]";

/// A text that describes no [`Issuer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{FORM}; {0}")]
pub struct InvalidIssuer(String);

/// Credentials that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCredentials {
    /// More issuers than allowed.
    #[error("got {offered} issuers of JWTs; at most {ISSUERS_MAX} are allowed")]
    TooManyIssuers {
        /// How many were offered.
        offered: usize,
    },
    /// Two issuers would make the same principals, or one issuer two.
    #[error("{what} `{value}` stands in two issuers of JWTs; each needs its own")]
    Repeated {
        /// `alias` or `issuer`.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// A file with keys cannot be used.
    #[error("the keys of issuer {alias} in {}: {why}", path.display())]
    Keys {
        /// The alias of the issuer.
        alias: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what is expected.
        why: String,
    },
}

impl Issuer {
    /// Parses `ALIAS=ISSUER,audience=AUDIENCE,jwks=FILE[,kind=kubernetes]`. No part contains a comma.
    ///
    /// # Errors
    /// [`InvalidIssuer`] says what is expected, and what is wrong.
    pub fn parse(raw: &str) -> Result<Self, InvalidIssuer> {
        let wrong = |why: &str| InvalidIssuer(why.to_owned());
        let (alias, rest) = raw
            .split_once('=')
            .ok_or_else(|| wrong("it has no ALIAS="))?;
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if alias.is_empty() || alias.len() > ISSUER_ALIAS_BYTES_MAX || !alias.bytes().all(allowed) {
            return Err(InvalidIssuer(format!(
                "the alias is 1 to {ISSUER_ALIAS_BYTES_MAX} of a-z, 0-9 and -"
            )));
        }
        let mut parts = rest.split(',');
        let issuer = parts.next().unwrap_or_default();
        if issuer.is_empty() {
            return Err(wrong(
                "the issuer is empty; it is the exact `iss` of its tokens",
            ));
        }
        let (mut audience, mut keys, mut kind) = (None, None, None);
        for part in parts {
            let (place, value) = match part.split_once('=') {
                Some(("audience", value)) => (&mut audience, value),
                Some(("jwks", value)) => (&mut keys, value),
                Some(("kind", value)) => (&mut kind, value),
                Some(_) | None => {
                    return Err(wrong(
                        "behind the issuer come audience=, jwks= and kind=, with commas between",
                    ));
                }
            };
            if value.is_empty() {
                return Err(wrong("a part has no value"));
            }
            if place.replace(value).is_some() {
                return Err(wrong("a part stands there twice"));
            }
        }
        Ok(Self {
            alias: alias.to_owned(),
            issuer: issuer.to_owned(),
            audience: audience
                .ok_or_else(|| {
                    wrong("audience= is missing; without it tokens for others are good")
                })?
                .to_owned(),
            keys: keys
                .ok_or_else(|| wrong("jwks= is missing: the file with its public keys"))?
                .into(),
            kind: match kind {
                None | Some("jwt") => IssuerKind::Jwt,
                Some("kubernetes") => IssuerKind::Kubernetes,
                Some(_) => return Err(wrong("kind= is jwt or kubernetes")),
            },
        })
    }
}

impl Credentials {
    /// Checks what can be checked without the files.
    ///
    /// # Errors
    /// [`InvalidCredentials`], but for [`InvalidCredentials::Keys`].
    pub fn check(&self) -> Result<(), InvalidCredentials> {
        let offered = self.issuers.len();
        if offered > ISSUERS_MAX {
            return Err(InvalidCredentials::TooManyIssuers { offered });
        }
        let (mut aliases, mut issuers) = (BTreeSet::new(), BTreeSet::new());
        for issuer in &self.issuers {
            for (what, seen, value) in [
                ("alias", &mut aliases, &issuer.alias),
                ("issuer", &mut issuers, &issuer.issuer),
            ] {
                if !seen.insert(value) {
                    let value = value.clone();
                    return Err(InvalidCredentials::Repeated { what, value });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_issuer_is_written_on_one_line() {
        let parsed =
            Issuer::parse("corp=https://idp.example/a=b,audience=ringfence,jwks=/etc/k.json");
        let expected = Issuer {
            alias: "corp".to_owned(),
            issuer: "https://idp.example/a=b".to_owned(),
            audience: "ringfence".to_owned(),
            keys: "/etc/k.json".into(),
            kind: IssuerKind::Jwt,
        };
        assert_eq!(parsed, Ok(expected));
        let parsed = Issuer::parse("k=https://x,kind=kubernetes,jwks=f,audience=a").unwrap();
        assert_eq!(parsed.kind, IssuerKind::Kubernetes);
    }

    #[test]
    fn what_is_missing_in_an_issuer_is_named() {
        for (raw, why) in [
            ("corp", "no ALIAS="),
            ("co:rp=https://x,audience=a,jwks=f", "the alias is 1 to 32"),
            ("=https://x,audience=a,jwks=f", "the alias is 1 to 32"),
            ("corp=,audience=a,jwks=f", "the issuer is empty"),
            ("corp=https://x,jwks=f", "audience= is missing"),
            ("corp=https://x,audience=,jwks=f", "a part has no value"),
            ("corp=https://x,audience=a", "jwks= is missing"),
            ("corp=https://x,audience=a,jwks=f,jwks=g", "twice"),
            (
                "corp=https://x,audience=a,jwks=f,aud=b",
                "behind the issuer come",
            ),
            (
                "corp=https://x,audience=a,jwks=f,kind=oidc",
                "jwt or kubernetes",
            ),
        ] {
            let refused = Issuer::parse(raw).unwrap_err().to_string();
            assert!(refused.contains(why), "{raw}: {refused}");
            assert!(refused.starts_with("ALIAS=ISSUER,audience="), "{refused}");
        }
    }

    #[test]
    fn two_issuers_share_neither_alias_nor_issuer() {
        let issuer = |alias: &str, issuer: &str| {
            Issuer::parse(&format!("{alias}={issuer},audience=a,jwks=f")).unwrap()
        };
        let check = |issuers: Vec<Issuer>| {
            let certificate = None;
            Credentials {
                certificate,
                issuers,
            }
            .check()
        };
        assert_eq!(check(vec![issuer("a", "x"), issuer("b", "y")]), Ok(()));
        for twice in [
            vec![issuer("a", "x"), issuer("a", "y")],
            vec![issuer("a", "x"), issuer("b", "x")],
        ] {
            let refused = check(twice).unwrap_err().to_string();
            assert!(refused.contains("stands in two issuers"), "{refused}");
        }
        let many = (0..=ISSUERS_MAX).map(|n| issuer(&format!("a{n}"), &format!("x{n}")));
        let refused = check(many.collect()).unwrap_err().to_string();
        assert!(refused.contains("got 17 issuers"), "{refused}");
    }
}
