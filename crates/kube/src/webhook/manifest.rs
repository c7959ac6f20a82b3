//! The manifest that makes an API server ask.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::ByteString;

use super::TIMEOUT_SECONDS;
use crate::policy::{Resource, ServiceAccount};

/// The most accounts that one rule judges.
pub const ACCOUNTS_MAX: usize = 64;

/// What the API server does with a write if the webhook does not answer, or cannot ask the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The API server refuses the write.
    Fail,
    /// The API server admits the write: stale ones get through while the webhook is down.
    Ignore,
}

/// A text that names no [`FailurePolicy`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no failure policy; there are fail (refuse the write) and ignore (admit it)")]
pub struct UnknownFailurePolicy(String);

impl FromStr for FailurePolicy {
    type Err = UnknownFailurePolicy;

    fn from_str(text: &str) -> Result<Self, UnknownFailurePolicy> {
        match text {
            "fail" => Ok(Self::Fail),
            "ignore" => Ok(Self::Ignore),
            _ => Err(UnknownFailurePolicy(text.to_owned())),
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        })
    }
}

/// Where the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// A Service in the cluster, `NAMESPACE/NAME`, port 443.
    Service(ServiceAccount),
    /// An address that begins with `https://`.
    Url(String),
}

/// The parameters of the printed manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// What is judged; at least one.
    pub resources: Vec<Resource>,
    /// Whose writes are judged; at least one.
    pub accounts: Vec<ServiceAccount>,
    /// Where the API server finds the webhook.
    pub at: Where,
    /// Who signed its certificate, as PEM.
    pub authority: Vec<u8>,
    /// What is done without an answer.
    pub failure_policy: FailurePolicy,
}

/// Why no manifest is printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHook {
    /// No resource is named, so the webhook would judge nothing.
    #[error("no resource is named; name what is judged, as in deployments.apps or configmaps")]
    NoResource,
    /// No write is judged, or too many are.
    #[error(
        "{0} service accounts are named; name 1 to {ACCOUNTS_MAX}, those whose writes are judged"
    )]
    Accounts(usize),
    /// The API server could not connect to it.
    #[error(
        "{0:?} is no address for a webhook; it begins with https://, without blanks and quotes"
    )]
    Url(String),
    /// There is nothing by which to know it.
    #[error("no PEM text with a certificate stands in the CA file")]
    Authority,
}

impl Hook {
    /// The manifest.
    ///
    /// # Errors
    /// [`InvalidHook`] says what is missing.
    pub fn manifest(&self) -> Result<String, InvalidHook> {
        if self.resources.is_empty() {
            return Err(InvalidHook::NoResource);
        }
        if !(1..=ACCOUNTS_MAX).contains(&self.accounts.len()) {
            return Err(InvalidHook::Accounts(self.accounts.len()));
        }
        let pem = String::from_utf8_lossy(&self.authority);
        if !pem.contains("-----BEGIN CERTIFICATE-----") {
            return Err(InvalidHook::Authority);
        }
        let authority = serde_json::to_string(&ByteString(self.authority.clone()));
        let authority = authority.expect("bytes become a text");
        let users: Vec<String> = self.accounts.iter().map(ServiceAccount::user).collect();
        let users = users.join("', '");
        Ok(format!(
            "# Every write of these accounts has to carry the fence of a grant that is in force: the API\n\
             # server asks `ringfence kube webhook serve`, which asks the cluster. One rule for many\n\
             # leases. It is no guard, since time passes between the answer and the write: let it stand\n\
             # beside the policies of `ringfence kube policy`, not instead of them.\n\
             apiVersion: admissionregistration.k8s.io/v1\n\
             kind: ValidatingWebhookConfiguration\n\
             metadata:\n  name: fence.ringfence.io\n\
             webhooks:\n  - name: fence.ringfence.io\n    admissionReviewVersions: [v1]\n    \
             sideEffects: None\n    \
             # {}\n    failurePolicy: {}\n    \
             timeoutSeconds: {TIMEOUT_SECONDS}\n    matchPolicy: Equivalent\n    clientConfig:\n{}      \
             caBundle: {authority}\n    \
             # Of these accounts alone: no other account's writes wait for it.\n    matchConditions:\n      \
             - name: subject\n        expression: request.userInfo.username in ['{users}']\n    \
             # Never Leases: no election, and no heartbeat, can be stopped by it.\n    rules:\n{}",
            self.without_answer(),
            self.failure_policy,
            self.client_config()?,
            self.rules(),
        ))
    }

    fn without_answer(&self) -> &'static str {
        match self.failure_policy {
            FailurePolicy::Fail => {
                "Without an answer, also of the cluster, the write is refused: nothing of theirs is \
                 written while the cluster is away."
            }
            FailurePolicy::Ignore => {
                "Without an answer, also of the cluster, the write is admitted: a party that keeps the \
                 cluster away can write with a stale fence."
            }
        }
    }

    fn client_config(&self) -> Result<String, InvalidHook> {
        match &self.at {
            Where::Service(service) => Ok(format!(
                "      service:\n        namespace: \"{}\"\n        name: \"{}\"\n        path: /judge\n",
                service.namespace, service.name
            )),
            Where::Url(url) => {
                let forbidden = |letter: char| letter.is_whitespace() || "\"\\#?".contains(letter);
                if !url.starts_with("https://") || url.contains(forbidden) {
                    return Err(InvalidHook::Url(url.clone()));
                }
                let url = url.trim_end_matches('/');
                Ok(format!("      url: \"{url}/judge\"\n"))
            }
        }
    }

    fn rules(&self) -> String {
        let rules = self.resources.iter().map(|resource| {
            let Resource { group, plural } = resource;
            format!(
                "      - apiGroups: [\"{group}\"]\n        apiVersions: [\"*\"]\n        resources: \
                 [\"{plural}\", \"{plural}/*\"]\n        operations: [CREATE, UPDATE, DELETE, CONNECT]\n        \
                 scope: \"*\"\n"
            )
        });
        rules.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook() -> Hook {
        Hook {
            resources: vec!["configmaps".parse().unwrap()],
            accounts: vec!["demo/a".parse().unwrap(), "demo/b".parse().unwrap()],
            at: Where::Url("https://127.0.0.1:7443/".to_owned()),
            authority: b"-----BEGIN CERTIFICATE-----\n".to_vec(),
            failure_policy: FailurePolicy::Fail,
        }
    }

    #[test]
    fn the_manifest_states_what_happens_without_an_answer() {
        let printed = hook().manifest().unwrap();
        for line in [
            "failurePolicy: Fail",
            "timeoutSeconds: 2",
            "url: \"https://127.0.0.1:7443/judge\"",
            "['system:serviceaccount:demo:a', 'system:serviceaccount:demo:b']",
        ] {
            assert!(printed.contains(line), "{printed}");
        }
        let ignoring = Hook {
            failure_policy: "ignore".parse().unwrap(),
            ..hook()
        };
        let printed = ignoring.manifest().unwrap();
        assert!(printed.contains("failurePolicy: Ignore"), "{printed}");
    }

    #[test]
    fn what_could_not_be_applied_is_refused() {
        let refused = |change: fn(&mut Hook)| {
            let mut hook = hook();
            change(&mut hook);
            hook.manifest().unwrap_err()
        };
        assert_eq!(
            refused(|hook| hook.resources.clear()),
            InvalidHook::NoResource
        );
        assert_eq!(
            refused(|hook| hook.accounts.clear()),
            InvalidHook::Accounts(0)
        );
        assert_eq!(
            refused(|hook| hook.authority.clear()),
            InvalidHook::Authority
        );
        let url = refused(|hook| hook.at = Where::Url("http://a".to_owned()));
        assert!(matches!(url, InvalidHook::Url(_)));
        assert!("maybe".parse::<FailurePolicy>().is_err());
    }
}
