//! How Pods and this process find Services: names by CoreDNS, addresses by kube-proxy.

use std::fs;
use std::path::Path;

use super::papers::Papers;
use super::{flags, shown};
use crate::inside::ADDRESS;

/// Writes CoreDNS' configuration, and says how it is called. Answers are kept for a second, so that
/// a Pod that came back is found.
pub(super) fn serve(folder: &Path, papers: &Papers) -> Result<Vec<String>, String> {
    let path = folder.join("Corefile");
    let kubeconfig = shown(&papers.kubeconfig("names"));
    let text = format!(
        "cluster.local:53 {{\n  bind {ADDRESS}\n  errors\n  kubernetes cluster.local {{\n    kubeconfig {kubeconfig} it\n    ttl 1\n  }}\n  cache 1\n}}\n"
    );
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(vec!["-conf".to_owned(), shown(&path)])
}

/// Writes kube-proxy's configuration, and says how it is called. What it would set for the whole
/// machine stays as it is.
pub(super) fn proxy(folder: &Path, papers: &Papers) -> Result<Vec<String>, String> {
    let path = folder.join("kube-proxy.yaml");
    let kubeconfig = shown(&papers.kubeconfig("manager"));
    let text = format!(
        r#"apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: {ADDRESS}
clientConnection: {{kubeconfig: {kubeconfig}}}
clusterCIDR: 10.231.0.0/24
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
hostnameOverride: node
mode: nftables
conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
nftables: {{syncPeriod: 5s, minSyncPeriod: 100ms}}
"#
    );
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(flags(&[("config", shown(&path))]))
}
