//! What people apply: each overlay as a whole, judged by a real API server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ringfence_kubernetes::{ControlPlane, User, kubectl};

const OVERLAYS: [&str; 2] = ["overlays/dev", "overlays/production"];

/// How many objects each of them has; `dev` may watch Pods.
const OBJECTS: [usize; 2] = [16, 14];

fn manifests(of: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
    folder.join(of)
}

/// kubectl as the administrator; `None` if there is none.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    async fn of_a_plane() -> Option<(Arc<ControlPlane>, Self)> {
        let plane = ControlPlane::shared().await?;
        let kubeconfig = plane.kubeconfig(User::Admin, &plane.address());
        let program = kubectl()?;
        let own = Self {
            program,
            kubeconfig,
        };
        Some((plane, own))
    }

    /// What it prints, and nothing beside it: a warning is one too many.
    fn run(&self, words: &[&str], path: &Path) -> String {
        let output = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(words)
            .arg(path)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?} {path:?}: {told}");
        assert_eq!(told, "", "{words:?} {path:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_overlay_is_taken_by_a_real_api_server_without_a_warning() {
    let Some((_plane, kubectl)) = Kubectl::of_a_plane().await else {
        return;
    };
    // What is only tried does not exist for what is tried after it. With the namespace the rules
    // for its Pods are there, and say what they think of ours.
    kubectl.run(&["apply", "--filename"], &manifests("base/namespace.yaml"));
    for (overlay, objects) in OVERLAYS.into_iter().zip(OBJECTS) {
        let words = ["apply", "--dry-run=server", "--kustomize"];
        let told = kubectl.run(&words, &manifests(overlay));
        assert_eq!(told.lines().count(), objects, "{overlay}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_is_as_confined_as_it_can_be_and_knows_its_name() {
    let Some((_plane, kubectl)) = Kubectl::of_a_plane().await else {
        return;
    };
    for overlay in OVERLAYS {
        let rendered = kubectl.run(&["kustomize"], &manifests(overlay));
        for line in [
            "allowPrivilegeEscalation: false",
            "enableServiceLinks: false",
            "podManagementPolicy: Parallel",
            "publishNotReadyAddresses: true",
            "readOnlyRootFilesystem: true",
            "runAsNonRoot: true",
            "maxUnavailable: 1",
            "type: RuntimeDefault",
            "fieldPath: metadata.name",
        ] {
            let lines = rendered.lines().map(str::trim);
            let found = lines.filter(|found| *found == line).count();
            assert_eq!(found, 1, "{overlay}: {line}");
        }
        // In production nodes know each other by a secret, and clients need rights.
        let production = overlay == "overlays/production";
        for part in [
            "secretName: ringfence-cluster-secret",
            "defaultMode: 256",
            "value: /etc/ringfence/cluster/cluster.secret",
            "value: enforced",
        ] {
            assert_eq!(rendered.contains(part), production, "{overlay}: {part}");
        }
        let anonymous = rendered.contains("RINGFENCE_ALLOW_ANONYMOUS");
        assert_eq!(anonymous, !production, "{overlay}");
        // Taking a lost member's place is for the process that asks for it.
        let replaces = rendered.contains("RINGFENCE_REPLACE_ON_DATA_LOSS");
        assert_eq!(replaces, overlay == "overlays/dev", "{overlay}");
    }
}
