//! What Pods can have as volumes: directories of this machine, and small disks that can grow.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::{Cluster, LONG};
use crate::plane::NODE;
use crate::program::{call, until};

/// Five members, some that are lost, and three of the last cluster; or three of each of the chart's
/// installations that have directories, and three of one that is restored.
const DIRECTORIES: usize = 12;
/// One of each node of an installation.
const SMALL: usize = 3;
/// The class of small disks.
pub(crate) const SMALL_CLASS: &str = "small";
/// Their size, and that to which they grow: `doctor` finds a disk with less than 256 MiB too full.
pub(crate) const SMALL_SIZE: &str = "400Mi";
const GROWN_SIZE: &str = "size=1g";

/// Directories, by a storage class that is the standard one.
pub(crate) fn offer(cluster: &Cluster) -> Result<(), String> {
    let standard = "storageclass.kubernetes.io/is-default-class: 'true'";
    let mut text = class("local", standard, false);
    for number in 0..DIRECTORIES {
        let path = directory(cluster, &number.to_string())?;
        text += &volume(&format!("volume-{number}"), "local", "100Gi", &path);
    }
    apply(cluster, "volumes.yaml", &text)
}

/// Disks that are small: file systems in memory.
pub(crate) struct Small {
    folders: Vec<PathBuf>,
}

impl Small {
    /// Offers them to Pods.
    pub(crate) fn offer(cluster: &Cluster) -> Result<Self, String> {
        let mut text = class(SMALL_CLASS, "", true);
        let mut folders = Vec::new();
        for number in 0..SMALL {
            let path = directory(cluster, &format!("small-{number}"))?;
            let size = format!("size={}", SMALL_SIZE.trim_end_matches('i'));
            let mounted = path.display().to_string();
            call("mount", &["-t", "tmpfs", "-o", &size, "small", &mounted])?;
            text += &volume(&format!("small-{number}"), SMALL_CLASS, SMALL_SIZE, &path);
            folders.push(path);
        }
        apply(cluster, "small.yaml", &text)?;
        Ok(Self { folders })
    }

    /// All of them.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// That of a Pod.
    pub(crate) fn of(&self, cluster: &Cluster, team: &str, pod: &str) -> Result<&Path, String> {
        let claim = cluster
            .kubectl
            .get(&format!("pvc data-{pod} --namespace={team}"))?;
        let bound = claim["spec"]["volumeName"].as_str().unwrap_or_default();
        let folder = self.folders.iter().find(|folder| folder.ends_with(bound));
        let folder = folder.map(PathBuf::as_path);
        folder.ok_or_else(|| format!("data-{pod} is bound to {bound:?}, which is no small disk"))
    }

    /// Grows the disk of a Pod once its claim asks for more, as the driver of a storage does.
    pub(crate) fn grow_when_asked(
        &self,
        cluster: &Cluster,
        team: &str,
        pod: &str,
    ) -> Result<(), String> {
        let disk = self.of(cluster, team, pod)?.display().to_string();
        until("a claim asks for more", LONG, || {
            let claim = cluster
                .kubectl
                .get(&format!("pvc data-{pod} --namespace={team}"))?;
            let asked = &claim["spec"]["resources"]["requests"]["storage"];
            (asked != SMALL_SIZE).then_some(()).ok_or(asked.to_string())
        })?;
        call("mount", &["-o", &format!("remount,{GROWN_SIZE}"), &disk]).map(drop)
    }
}

fn class(name: &str, annotation: &str, grows: bool) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata:\n  name: {name}\n  \
         annotations: {{{annotation}}}\nprovisioner: kubernetes.io/no-provisioner\n\
         volumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: {grows}\n"
    )
}

fn volume(name: &str, class: &str, size: &str, path: &Path) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\n\
         spec:\n  capacity: {{storage: {size}}}\n  accessModes: [ReadWriteOnce]\n  \
         persistentVolumeReclaimPolicy: Retain\n  storageClassName: {class}\n  \
         local: {{path: {}}}\n  nodeAffinity: {{required: {{nodeSelectorTerms: \
         [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{NODE}]}}]}}]}}}}\n",
        path.display()
    )
}

fn directory(cluster: &Cluster, name: &str) -> Result<PathBuf, String> {
    let path = cluster.folder().join("volumes").join(name);
    let made = fs::create_dir_all(&path);
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn apply(cluster: &Cluster, name: &str, text: &str) -> Result<(), String> {
    let file = cluster.folder().join(name);
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let apply = format!("apply --filename={}", file.display());
    cluster.kubectl.run(&apply).map(drop)
}
