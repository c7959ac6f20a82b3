//! The certificates that a machine shows and trusts, and the keys of issuers: when they begin and end.

use std::path::Path;

use ringfence_access::{JwksSeen, now_unix};

use super::{Finding, Verdict};
use crate::certificates::{DAY, HOUR, Named, Role, Worth, judge, of_node};
use crate::cli::{Global, view};
use crate::config::Config;
use crate::metrics::validities;

/// How long before its end a certificate should be replaced, in seconds.
const SOON: u64 = 14 * DAY;

/// Whose the certificates are that the flags of this command name.
const OF_COMMAND: &str = "this command";

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
            of: OF_COMMAND.to_owned(),
            path: path?.to_owned(),
            role,
        })
    });
    named.collect()
}

fn look(file: &Named, now: u64) -> Finding {
    let subject = format!("{}: {}", file.of, file.path.display());
    let (found, verdict, next) = match validities(&file.path) {
        Ok(validities) => {
            let (found, worth) = judge(&validities, file.role, now, SOON);
            let (verdict, next) = match worth {
                Worth::Good => (Verdict::Good, ""),
                Worth::Warning => (Verdict::Warning, replacing(file)),
                Worth::Problem => (Verdict::Problem, replacing(file)),
            };
            let next = match validities.is_empty() {
                true => "name a PEM file with a certificate",
                false => next,
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

/// How a certificate is replaced.
fn replacing(file: &Named) -> &'static str {
    match (file.role, file.of == OF_COMMAND) {
        (Role::Shown, true) => {
            "name files with a certificate that is valid, and with its key: --cert and --key; if it is, set \
             this machine's clock"
        }
        (Role::Trusted, true) => {
            "name a file with the CA that has signed the certificates of the nodes now: --cacert"
        }
        (Role::Shown, false) => {
            "let the CA sign a new certificate with the same names, and put it and its key in the place of \
             the files: the node takes them up without a restart; if it is valid, set this machine's clock; \
             see deploy/RECOVERY.md#a-certificate-has-expired"
        }
        (Role::Trusted, false) => {
            "add the new CA to the file on every node and client, replace the certificates that the old \
             one has signed, then remove the old one: files are taken up without a restart; see \
             deploy/RECOVERY.md#a-certificate-has-expired"
        }
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
    let keys = view::counted(seen.keys as u64, "key");
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
