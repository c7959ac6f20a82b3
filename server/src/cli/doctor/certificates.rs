//! The certificates that a machine shows and trusts, and the keys of issuers: when they begin and end.

use std::path::{Path, PathBuf};

use ringfence_access::{JwksSeen, Validity, now_unix};
use ringfence_tls::{Pem, ServerTls};

use super::{Finding, Verdict};
use crate::cli::{Global, view};
use crate::config::Config;
use crate::metrics::validities;

/// How long before its end a certificate should be replaced, in seconds.
const SOON: u64 = 14 * DAY;
const DAY: u64 = 86_400;
const HOUR: u64 = 3_600;

/// What the certificates of a file are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// They are shown as one chain: each of them must be valid.
    Shown,
    /// They sign those of others: one that has ended proves nothing, and the others go on.
    Trusted,
}

/// A file of certificates, with whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    of: String,
    path: PathBuf,
    role: Role,
}

/// The certificates of this command, and those of the node with this configuration.
pub(super) fn findings(config: Option<&Config>, global: &Global) -> Vec<Finding> {
    let now = now_unix();
    let mut files = of_command(global);
    files.extend(config.into_iter().flat_map(of_node));
    let mut findings: Vec<Finding> = files.iter().map(|file| look(file, now)).collect();
    let issuers = config.map_or(&[][..], |config| {
        config.access.credentials.issuers.as_slice()
    });
    findings.extend(
        issuers
            .iter()
            .map(|issuer| keys(&issuer.alias, &issuer.keys, now)),
    );
    findings
}

fn of_command(global: &Global) -> Vec<Named> {
    let files = [
        (global.tls.certificate_file(), Role::Shown),
        (global.tls.authority_file(), Role::Trusted),
    ];
    let named = files.into_iter().filter_map(|(path, role)| {
        Some(Named {
            of: "this command".to_owned(),
            path: path?.to_owned(),
            role,
        })
    });
    named.collect()
}

fn of_node(config: &Config) -> Vec<Named> {
    let mut files = Vec::new();
    let mut add = |of: &str, pem: &Pem, role: Role| {
        let Pem::File(path) = pem else { return };
        let (of, path) = (of.to_owned(), path.clone());
        let named = Named { of, path, role };
        // Both sides of a handshake between nodes name the same files.
        if !files.contains(&named) {
            files.push(named);
        }
    };
    let peer = config.peer_tls.as_ref();
    let ports: [(&str, Option<&ServerTls>); 3] = [
        ("client", config.client_tls.as_ref()),
        ("http", config.http_tls.as_ref()),
        ("peer", peer.map(|tls| &tls.accept)),
    ];
    for (port, tls) in ports {
        let Some(tls) = tls else { continue };
        add(port, &tls.certificate, Role::Shown);
        if let Some(authority) = &tls.client_ca {
            add(&format!("{port} CA"), authority, Role::Trusted);
        }
    }
    if let Some(tls) = peer {
        if let Some((certificate, _)) = &tls.connect.certificate {
            add("peer", certificate, Role::Shown);
        }
        for authority in &tls.connect.ca {
            add("peer CA", authority, Role::Trusted);
        }
    }
    files
}

fn look(file: &Named, now: u64) -> Finding {
    let subject = format!("{}: {}", file.of, file.path.display());
    let (found, verdict, next) = match validities(&file.path) {
        Ok(validities) => {
            let (found, verdict) = judge(&validities, file.role, now);
            let next = match (verdict, validities.is_empty()) {
                (Verdict::Good, _) => "",
                (_, true) => "name a PEM file with a certificate",
                (_, false) => {
                    "replace the file: a node takes up the new one without a restart; see \
                     deploy/RECOVERY.md#a-certificate-has-expired"
                }
            };
            (found, verdict, next)
        }
        Err(why) => {
            let next = "let the account of the node, and of this command, read the file";
            (why.to_string(), Verdict::Problem, next)
        }
    };
    Finding::good("certificate", subject, found).but(verdict, next)
}

/// What certificates with these times are worth now.
fn judge(validities: &[Validity], role: Role, now: u64) -> (String, Verdict) {
    let in_force = |validity: &&Validity| validity.from <= now && now < validity.until;
    let count = validities.iter().filter(in_force).count();
    let Some(until) = validities.iter().map(|validity| validity.until).min() else {
        return ("no certificate is in it".to_owned(), Verdict::Problem);
    };
    if count == validities.len() {
        return match until - now {
            left @ 0..SOON => (
                format!("it ends in {} h", left.div_ceil(HOUR)),
                Verdict::Warning,
            ),
            left => (format!("valid for {} days", left / DAY), Verdict::Good),
        };
    }
    let of_all = match validities.len() {
        1 => "it".to_owned(),
        all => format!("one of {all}"),
    };
    let found = match validities.iter().find(|validity| validity.until <= now) {
        Some(ended) => format!("{of_all} has ended, on {}", wall(ended.until)),
        None => {
            let from = validities.iter().map(|validity| validity.from).max();
            let from = wall(from.unwrap_or_default());
            format!("{of_all} is valid from {from} only")
        }
    };
    match (role, count) {
        (Role::Trusted, 1..) => (found, Verdict::Warning),
        _ => (found, Verdict::Problem),
    }
}

fn keys(alias: &str, path: &Path, now: u64) -> Finding {
    let finding = |found: String| {
        let subject = format!("issuer {alias}: {}", path.display());
        Finding::good("keys", subject, found)
    };
    let seen = match JwksSeen::of(path) {
        Ok(seen) => seen,
        Err(why) => {
            let next = "fetch the JWKS of the issuer again: a node does not start with this file, and \
                        one that runs goes on with the keys that it had";
            return finding(why).but(Verdict::Problem, next);
        }
    };
    let keys = match seen.keys {
        1 => "1 key".to_owned(),
        keys => format!("{keys} keys"),
    };
    let next = "fetch the JWKS of the issuer again: it signs by other keys then, which this node does not \
                know";
    match seen.validities.iter().map(|validity| validity.until).min() {
        Some(end) if end <= now => {
            let found = format!("{keys}; one has ended, on {}", wall(end));
            finding(found).but(Verdict::Warning, next)
        }
        Some(end) if end - now < SOON => {
            let found = format!("{keys}; one ends in {} h", (end - now).div_ceil(HOUR));
            finding(found).but(Verdict::Warning, next)
        }
        _ => finding(keys),
    }
}

fn wall(seconds: u64) -> String {
    view::wall(seconds.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    #[test]
    fn a_certificate_is_judged_by_its_begin_and_its_end() {
        use Role::{Shown, Trusted};
        use Verdict::{Good, Problem, Warning};
        let valid = Validity {
            from: NOW - DAY,
            until: NOW + 100 * DAY,
        };
        let soon = Validity {
            until: NOW + DAY,
            ..valid
        };
        let ended = Validity {
            until: NOW - DAY,
            ..valid
        };
        let future = Validity {
            from: NOW + 30 * DAY,
            ..valid
        };
        let cases: [(&[Validity], Role, Verdict, &str); 8] = [
            (&[], Shown, Problem, "no certificate is in it"),
            (&[valid], Shown, Good, "valid for 100 days"),
            (&[valid, soon], Shown, Warning, "it ends in 24 h"),
            (
                &[ended],
                Shown,
                Problem,
                "it has ended, on 2023-11-13 22:13:20Z",
            ),
            (
                &[valid, future],
                Shown,
                Problem,
                "one of 2 is valid from 2023-12-14 22:13:20Z only",
            ),
            (&[valid, valid], Trusted, Good, "valid for 100 days"),
            (
                &[valid, ended],
                Trusted,
                Warning,
                "one of 2 has ended, on 2023-11-13 22:13:20Z",
            ),
            (
                &[ended, future],
                Trusted,
                Problem,
                "one of 2 has ended, on 2023-11-13 22:13:20Z",
            ),
        ];
        for (validities, role, expected, found) in cases {
            let judged = judge(validities, role, NOW);
            assert_eq!(
                judged,
                (found.to_owned(), expected),
                "{validities:?} {role:?}"
            );
        }
    }
}
