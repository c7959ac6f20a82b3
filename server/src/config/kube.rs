//! The mirror to Kubernetes: which leases, and who the node is there.

use std::path::PathBuf;

use ringfence_kube::{FLOORS, InvalidNaming, Naming, PREFIX};

use super::{ConfigError, Given};
use crate::leave::Ordinal;
use crate::unshown::is_content;

/// How leases are mirrored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KubeMirror {
    /// Which leases are which objects.
    pub(crate) naming: Naming,
}

/// How the API server is reached, refused where nothing asks it.
pub(super) fn kubeconfig(given: &Given) -> Result<Option<PathBuf>, ConfigError> {
    let asks = [given.kube_mirror, given.kube_pods, given.kube_leave];
    match &given.kubeconfig {
        Some(path) if !asks.contains(&Some(true)) => {
            let allowed = "together with --kube-mirror, --kube-pods or --kube-leave, without which \
                           nothing is asked of Kubernetes";
            let offered = path.display().to_string();
            Err(ConfigError::value("kubeconfig", offered, allowed))
        }
        Some(path) if is_content(&path.to_string_lossy()) => {
            let offered = path.display().to_string();
            Err(ConfigError::value(
                "kubeconfig",
                offered,
                "the path of a kubeconfig file",
            ))
        }
        given => Ok(given.clone()),
    }
}

/// The Pod that has this node's name.
pub(super) fn pod(name: &str) -> Result<Ordinal, ConfigError> {
    Ordinal::of(name).ok_or_else(|| {
        let allowed = "with --kube-leave, the name of a Pod of a StatefulSet, as ringfence-0";
        ConfigError::value("name", name, allowed)
    })
}

/// The mirror; `None` if there is none.
pub(super) fn mirror(given: &Given) -> Result<Option<KubeMirror>, ConfigError> {
    if !given.kube_mirror.unwrap_or(false) {
        let idle = [
            ("kube-namespace", given.kube_namespace.clone()),
            ("kube-floors", given.kube_floors.clone()),
            ("kube-prefix", given.kube_prefix.clone()),
        ];
        let idle = idle
            .into_iter()
            .find_map(|(flag, value)| Some((flag, value?)));
        return match idle {
            None => Ok(None),
            Some((flag, value)) => {
                let allowed = "together with --kube-mirror, without which nothing is mirrored";
                Err(ConfigError::value(flag, value, allowed))
            }
        };
    }
    let prefix = given.kube_prefix.as_deref().unwrap_or(PREFIX);
    let namespace = given.kube_namespace.as_deref();
    let floors = given.kube_floors.as_deref().unwrap_or(FLOORS);
    let naming = Naming::new(prefix, namespace);
    let naming = naming.and_then(|naming| naming.with_floors_in(floors));
    let naming = naming.map_err(|invalid| match invalid {
        InvalidNaming::Prefix(prefix) => {
            let allowed = "what can begin the name of a lease, as k8s";
            ConfigError::value("kube-prefix", prefix, allowed)
        }
        InvalidNaming::Namespace(unfit) => {
            let offered = namespace.unwrap_or_default();
            ConfigError::value("kube-namespace", offered, format!("a namespace ({unfit})"))
        }
        InvalidNaming::Floors { offered, why } => {
            let allowed = format!("a namespace, not that of --kube-namespace ({why})");
            ConfigError::value("kube-floors", offered, allowed)
        }
    })?;
    Ok(Some(KubeMirror { naming }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::config::tests::{config, refusal};
    use crate::leave::Ordinal;

    #[test]
    fn nothing_is_mirrored_unless_it_is_asked_for() {
        assert_eq!(config("").kube_mirror, None);
        assert_eq!(config("--kube-mirror=false").kube_mirror, None);
    }

    #[test]
    fn pods_are_watched_with_or_without_a_mirror() {
        let pods = config("--kube-pods --kubeconfig a.yaml");
        assert!(pods.kube_pods && pods.kube_mirror.is_none());
        assert!(!config("--kube-mirror").kube_pods);
    }

    #[test]
    fn all_namespaces_are_mirrored_or_one() {
        let mirror = config("--kube-mirror").kube_mirror.unwrap();
        assert_eq!(mirror.naming.leases(), "k8s/");
        assert_eq!(config("--kube-mirror").kubeconfig, None);
        let one = "--kube-mirror --kubeconfig a.yaml --kube-namespace team --kube-prefix here";
        assert_eq!(config(one).kubeconfig, Some("a.yaml".into()));
        let mirror = config(one).kube_mirror.unwrap();
        assert_eq!(mirror.naming.leases(), "here/team/");
    }

    #[test]
    fn a_pod_of_a_stateful_set_can_leave_with_it_and_nobody_else() {
        let pod = config("--kube-leave --kubeconfig a.yaml --name ringfence-3");
        assert_eq!(pod.leaves_as, Ordinal::of("ringfence-3"));
        assert_eq!(config("--name ringfence-3").leaves_as, None);
        let refused = refusal("--kube-leave --name n1");
        assert!(refused.contains("as ringfence-0"), "{refused}");
    }

    #[test]
    fn what_cannot_be_mirrored_is_refused() {
        for (line, expected) in [
            (
                "--kubeconfig a.yaml",
                "--kubeconfig is `a.yaml`; allowed: together with --kube-mirror, --kube-pods",
            ),
            (
                "--kube-namespace team",
                "--kube-namespace is `team`; allowed: together with --kube-mirror",
            ),
            (
                "--kube-mirror --kube-namespace Team",
                "--kube-namespace is `Team`; allowed: a namespace",
            ),
            (
                "--kube-mirror --kube-namespace kube-system",
                "belong to Kubernetes",
            ),
            (
                "--kube-floors locks",
                "--kube-floors is `locks`; allowed: together with --kube-mirror",
            ),
            (
                "--kube-mirror --kube-floors kube-system",
                "--kube-floors is `kube-system`; allowed: a namespace",
            ),
            (
                "--kube-mirror --kube-namespace team --kube-floors team",
                "its leases are mirrored",
            ),
            (
                "--kube-mirror --kube-prefix a//b",
                "--kube-prefix is `a//b`",
            ),
        ] {
            let refused = refusal(line);
            assert!(refused.contains(expected), "{line}: {refused}");
        }
    }
}
