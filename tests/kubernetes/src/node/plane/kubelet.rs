//! The kubelet, on a machine that it does not own.

use std::fs;
use std::path::Path;

use super::papers::Papers;
use super::{NODE, flags, shown};
use crate::containers::SOCKET;
use crate::inside::ADDRESS;
use crate::outside::CGROUP;

/// Writes its configuration, and says how it is called.
pub(super) fn configure(folder: &Path, papers: &Papers) -> Result<Vec<String>, String> {
    let config = folder.join("kubelet.yaml");
    let names = folder.join("resolv.empty");
    let written = fs::write(&names, "").and_then(|()| {
        fs::write(
            &config,
            configuration(&papers.file("ca.crt"), &shown(&names)),
        )
    });
    written.map_err(|error| format!("{}: {error}", config.display()))?;
    Ok(flags(&[
        ("kubeconfig", shown(&papers.kubeconfig("node"))),
        ("config", shown(&config)),
        ("cert-dir", shown(&folder.join("kubelet-papers"))),
        ("hostname-override", NODE.to_owned()),
        ("node-ip", ADDRESS.to_owned()),
    ]))
}

/// It keeps to its part of the cgroups and to its network, measures no disks, evicts no Pod, and
/// takes old kernels and runtimes as they are.
fn configuration(authority: &str, names: &str) -> String {
    format!(
        r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {ADDRESS}
healthzBindAddress: 127.0.0.1
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {authority}}}
authorization: {{mode: Webhook}}
cgroupDriver: cgroupfs
cgroupRoot: /{CGROUP}
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix://{SOCKET}
clusterDNS: [{ADDRESS}]
clusterDomain: cluster.local
resolvConf: {names}
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
evictionHard: {{memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 60
nodeStatusUpdateFrequency: 5s
"#
    )
}
