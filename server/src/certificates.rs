//! The certificates in the files of a node: which there are, when they end, and what the log says of that.

use std::path::PathBuf;
use std::time::Duration;

use ringfence_access::{Validity, now_unix};
use ringfence_tls::{Pem, ServerTls};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::cli::{counted, wall};
use crate::config::Config;
use crate::metrics::validities;

pub(crate) const DAY: u64 = 86_400;
pub(crate) const HOUR: u64 = 3_600;

/// From when on the log warns of an end, in seconds before it: as the alarm
/// `RingfenceCertificateExpires` does.
const WARN_BEFORE: u64 = 7 * DAY;
/// How often the files are looked at: what replaces them is in use by then.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// After how many looks the log says again what it has said: a day.
const SAY_AGAIN: u64 = DAY / LOOK_EVERY.as_secs();

/// What the certificates of a file are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// They are shown as one chain: each of them must be valid.
    Shown,
    /// They sign those of others: one that has ended proves nothing, and the others go on.
    Trusted,
}

/// A file of certificates, with whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The port or the command that uses it.
    pub(crate) of: String,
    pub(crate) path: PathBuf,
    pub(crate) role: Role,
}

/// How good they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    Good,
    /// They soon are not, or some of those that are trusted are not.
    Warning,
    /// Who is shown them, or is to be proven by them, refuses.
    Problem,
}

/// The files of certificates that a node with this configuration shows, and those that it trusts.
pub(crate) fn of_node(config: &Config) -> Vec<Named> {
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

/// What certificates with these times are worth now, and in words; `soon` is how many seconds before its end
/// one is to be replaced.
pub(crate) fn judge(validities: &[Validity], role: Role, now: u64, soon: u64) -> (String, Worth) {
    let in_force = |validity: &&Validity| validity.from <= now && now < validity.until;
    let count = validities.iter().filter(in_force).count();
    let Some(until) = validities.iter().map(|validity| validity.until).min() else {
        return ("no certificate is in it".to_owned(), Worth::Problem);
    };
    if count == validities.len() {
        return match until - now {
            left if left < soon => (
                format!("it ends in {} h", left.div_ceil(HOUR)),
                Worth::Warning,
            ),
            left => {
                let days = counted(left / DAY, "day");
                (format!("valid for {days}"), Worth::Good)
            }
        };
    }
    let of_all = match validities.len() {
        1 => "it".to_owned(),
        all => format!("one of {all}"),
    };
    let found = match validities.iter().find(|validity| validity.until <= now) {
        Some(ended) => format!("{of_all} has ended, on {}", shown(ended.until)),
        None => {
            let from = validities.iter().map(|validity| validity.from).max();
            let from = shown(from.unwrap_or_default());
            format!("{of_all} is valid from {from} only")
        }
    };
    match (role, count) {
        (Role::Trusted, 1..) => (found, Worth::Warning),
        _ => (found, Worth::Problem),
    }
}

fn shown(seconds: u64) -> String {
    wall(seconds.saturating_mul(1_000))
}

/// Says in the log when a certificate has ended, or soon will, for as long as the node runs: at once, when
/// that changes, and once a day. The node goes on with it.
pub(crate) async fn watch(files: Vec<Named>, mut stopping: watch::Receiver<bool>) {
    let mut heard: Vec<Heard> = files.iter().map(|_| Heard::default()).collect();
    loop {
        for (file, heard) in files.iter().zip(&mut heard) {
            let path = file.path.clone();
            let read = tokio::task::spawn_blocking(move || validities(&path));
            // The port says itself that it cannot read it, and shows what it could read last.
            if let Ok(Ok(found)) = read.await {
                heard.hear(file, &found, now_unix());
            }
        }
        let stopped = stopping.wait_for(|stopping| *stopping);
        if timeout(LOOK_EVERY, stopped).await.is_ok() {
            return;
        }
    }
}

/// What was last heard of a file.
#[derive(Default)]
struct Heard {
    last: Option<(Worth, Vec<Validity>)>,
    /// Looks since the log said it.
    looks: u64,
}

impl Heard {
    fn hear(&mut self, file: &Named, found: &[Validity], now: u64) {
        let (text, worth) = judge(found, file.role, now, WARN_BEFORE);
        if !self.is_due(worth, found) {
            return;
        }
        let (of, file) = (&file.of, file.path.display());
        let next = "replace the file: it is taken up without a restart; see \
                    deploy/RECOVERY.md#a-certificate-has-expired";
        match worth {
            Worth::Problem => error!(of, %file, "a certificate is refused: {text}; {next}"),
            Worth::Warning => warn!(of, %file, "a certificate ends: {text}; {next}"),
            Worth::Good => info!(of, %file, "the certificate is valid again: {text}"),
        }
    }

    /// Whether the log is to say it: news, or of old what is not good.
    fn is_due(&mut self, worth: Worth, found: &[Validity]) -> bool {
        let was_good = self
            .last
            .as_ref()
            .is_none_or(|(was, _)| *was == Worth::Good);
        let is_new = self
            .last
            .as_ref()
            .is_none_or(|(was, of)| *was != worth || of != found);
        self.looks += 1;
        let is_due = match worth {
            Worth::Good => !was_good,
            Worth::Warning | Worth::Problem => is_new || self.looks >= SAY_AGAIN,
        };
        self.last = Some((worth, found.to_vec()));
        if is_due {
            self.looks = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    #[test]
    fn what_is_not_good_is_said_at_once_and_once_a_day() {
        let until = |until| vec![Validity { from: 0, until }];
        let mut heard = Heard::default();
        assert!(!heard.is_due(Worth::Good, &until(9)));
        assert!(heard.is_due(Worth::Warning, &until(9)));
        assert!(heard.is_due(Worth::Problem, &until(9)));
        let said = (1..=2 * SAY_AGAIN).filter(|_| heard.is_due(Worth::Problem, &until(9)));
        assert_eq!(said.count(), 2);
        assert!(heard.is_due(Worth::Problem, &until(8)), "another one");
        assert!(heard.is_due(Worth::Good, &until(99)));
        assert!(!heard.is_due(Worth::Good, &until(99)));
    }

    #[test]
    fn a_certificate_is_judged_by_its_begin_and_its_end() {
        use Role::{Shown, Trusted};
        use Worth::{Good, Problem, Warning};
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
        let cases: [(&[Validity], Role, Worth, &str); 8] = [
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
            let judged = judge(validities, role, NOW, 14 * DAY);
            assert_eq!(
                judged,
                (found.to_owned(), expected),
                "{validities:?} {role:?}"
            );
        }
    }
}
