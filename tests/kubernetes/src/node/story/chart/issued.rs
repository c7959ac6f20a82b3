//! An installation whose certificates cert-manager issues, by a CA for nodes and another one for
//! clients, and renews while leases are held.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Stage, TEAMS};
use crate::cluster::LONG;
use crate::containers::{ISSUERS_REGISTRY, ISSUERS_TAG};
use crate::load::Load;
use crate::program::until;
use crate::say::{self, Watch};

/// The part of the document.
const HEADING: &str = "Certificates by cert-manager";
/// The namespace.
pub(super) const TEAM: &str = "red";
const PODS: [&str; 3] = ["ringfence-0", "ringfence-1", "ringfence-2"];
/// Each port by the name of its certificate, with its number.
pub(super) const PORTS: [(&str, u16); 2] = [("peers", 7421), ("clients", 7420)];
/// A kubelet puts a changed Secret into a Pod when it looks at the Pod again: after 60 to 90 s.
const RENEWED_MAX: Duration = Duration::from_secs(240);

pub(super) fn by_cert_manager(stage: &Stage<'_>) -> Result<(), String> {
    // One machine serves three installations slowly.
    for team in TEAMS {
        let uninstall = format!("helm uninstall ringfence --namespace {team} --wait");
        stage.operator.types(&uninstall)?;
    }
    install_cert_manager(stage)?;

    let watch = Watch::start();
    stage.block(HEADING, "helm install")?;
    let rights = stage.operator.blocks(super::two::HEADING, "sh")?;
    let rights = rights.iter().find(|block| block.contains("helm test"));
    let rights = rights.ok_or("no block has rights")?;
    let printed = stage.operator.types(&rights.replace("blue green", TEAM))?;
    if printed.matches("Succeeded").count() != 1 {
        return Err(format!("`helm test`: {printed}"));
    }
    say::shown(
        watch,
        "cert-manager issued all certificates of a release, and `helm test` passed",
    );
    two_authorities(stage)?;
    renewed_under_load(stage)
}

/// By its own chart, with the images that were built of its packages.
fn install_cert_manager(stage: &Stage<'_>) -> Result<(), String> {
    let watch = Watch::start();
    let mut line = format!(
        "helm install cert-manager {} --namespace cert-manager --create-namespace --wait \
         --timeout 5m --set crds.enabled=true,startupapicheck.enabled=false,prometheus.enabled=false",
        stage.charts.issuers_chart.display()
    );
    for (values, program) in [
        ("", "controller"),
        ("webhook.", "webhook"),
        ("cainjector.", "cainjector"),
    ] {
        line += &format!(
            " --set {values}image.repository={ISSUERS_REGISTRY}/{program},{values}image.tag={ISSUERS_TAG}"
        );
    }
    stage.operator.types(&line)?;
    // As the Job of the chart does whose image is not here: the API server asks the webhook, and trusts it
    // once the injector has put its CA into the configuration.
    stage.operator.writes(
        "issuer.yaml",
        "apiVersion: cert-manager.io/v1\nkind: Issuer\nmetadata: {name: asked}\nspec: {selfSigned: {}}\n",
    )?;
    until("cert-manager's webhook is trusted", LONG, || {
        let ask = "kubectl --namespace cert-manager create --dry-run=server --filename issuer.yaml";
        stage.operator.types(ask)
    })?;
    say::shown(
        watch,
        "cert-manager is installed by its own chart, and its webhook answers",
    );
    Ok(())
}

/// What a certificate says, as `openssl` prints it: a line for its serial and one for its issuer.
const SHOW: &str = "openssl x509 -noout -serial -issuer";

/// What a port of a Pod serves.
fn served(stage: &Stage<'_>, pod: &str, port: u16) -> Result<String, String> {
    let address = address(stage, pod)?;
    stage.operator.types(&format!(
        "openssl s_client -connect {address}:{port} </dev/null 2>/dev/null | {SHOW}"
    ))
}

/// What cert-manager has put into the Secret of a port.
fn issued(stage: &Stage<'_>, name: &str) -> Result<String, String> {
    stage.operator.types(&format!(
        "kubectl --namespace {TEAM} get secret ringfence-{name}-tls \
         --output jsonpath='{{.data.tls\\.crt}}' | base64 --decode | {SHOW}"
    ))
}

fn address(stage: &Stage<'_>, pod: &str) -> Result<String, String> {
    let found = stage
        .cluster
        .kubectl
        .get(&format!("pod {pod} --namespace={TEAM}"))?;
    let address = found["status"]["podIP"].as_str().map(str::to_owned);
    address.ok_or_else(|| format!("{pod} has no address"))
}

/// Each port is signed by a CA of its own, and a certificate of the one for clients makes no node.
fn two_authorities(stage: &Stage<'_>) -> Result<(), String> {
    let watch = Watch::start();
    for (name, port) in PORTS {
        let (issued, authority) = (issued(stage, name)?, format!("ringfence-{name}-ca"));
        if !issued.contains(&authority) {
            return Err(format!("{authority} did not sign: {issued}"));
        }
        for pod in PODS {
            let served = served(stage, pod, port)?;
            if served != issued {
                return Err(format!("{pod} serves {served}, and issued is {issued}"));
            }
        }
    }
    for (name, accepted) in [("peers", true), ("clients", false)] {
        let told = as_node(stage, name)?;
        if told.contains("alert") == accepted {
            return Err(format!(
                "a certificate of {name} at the port of peers: {told}"
            ));
        }
    }
    say::shown(
        watch,
        "each port is signed by a CA of its own, and the peer port refuses a certificate of the \
         clients' CA",
    );
    Ok(())
}

/// What a node says to the certificate of a port, shown as another node would show it.
fn as_node(stage: &Stage<'_>, name: &str) -> Result<String, String> {
    keep(stage, name)?;
    let told = shown(stage, name);
    stage.operator.types(&format!("rm {name}.kept*"))?;
    told
}

/// Puts the certificate of a port, with its key, into files of the operator.
pub(super) fn keep(stage: &Stage<'_>, name: &str) -> Result<(), String> {
    let secret = format!("kubectl --namespace {TEAM} get secret ringfence-{name}-tls --output");
    let typed = stage.operator.types(&format!(
        "umask 077\n{secret} jsonpath='{{.data.tls\\.crt}}' | base64 --decode > {name}.kept\n\
         {secret} jsonpath='{{.data.tls\\.key}}' | base64 --decode > {name}.kept.key"
    ));
    typed.map(drop)
}

/// What a node says to the certificate that was kept.
pub(super) fn shown(stage: &Stage<'_>, name: &str) -> Result<String, String> {
    let address = address(stage, PODS[0])?;
    stage.operator.types(&format!(
        "sleep 2 | openssl s_client -connect {address}:7421 -alpn h2 -cert {name}.kept \
         -key {name}.kept.key 2>&1 || true"
    ))
}

/// The serial of every port of every Pod, and what tells the Pod's process from a later one.
pub(super) fn everywhere(stage: &Stage<'_>) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    for pod in PODS {
        for (name, port) in PORTS {
            all.insert(format!("{pod} {name}"), served(stage, pod, port)?);
        }
    }
    Ok(all)
}

/// The processes of all Pods.
pub(super) fn processes(stage: &Stage<'_>) -> Result<Vec<String>, String> {
    let process = |pod: &str| {
        let found = stage
            .cluster
            .kubectl
            .get(&format!("pod {pod} --namespace={TEAM}"))?;
        Ok(found["status"]["containerStatuses"][0]["containerID"].to_string())
    };
    PODS.into_iter().map(process).collect()
}

fn renewed_under_load(stage: &Stage<'_>) -> Result<(), String> {
    for name in ["held/*", "busy/*"] {
        stage.ringfence(TEAM, &format!("access grant token:web acquire {name}"))?;
    }
    let ran = processes(stage)?;
    let connect = async || stage.client(TEAM, TEAM, TEAM).await;
    let load = Load::start(stage.runtime, connect)?;
    let watch = Watch::start();
    let renewed = renewed(stage);
    let took = watch.so_far();
    let outcome = load.end(stage.runtime)?;
    renewed?;
    if processes(stage)? != ran {
        return Err("a node was restarted".to_owned());
    }
    // A client that comes now, with the CA that it has.
    let connected = stage.runtime.block_on(connect());
    connected.map_err(|why| format!("a client behind the renewal: {why}"))?;
    say::shown(
        watch,
        &format!(
            "after {:.0} s all ports served renewed certificates, without a restart; no session was \
             lost, longest gap in a client's grants {} ms, {} grants",
            took.as_secs_f64(),
            outcome.gap.as_millis(),
            outcome.grants
        ),
    );
    Ok(())
}

/// Renews both certificates by the document, and waits until every port serves its new one.
fn renewed(stage: &Stage<'_>) -> Result<(), String> {
    let before = everywhere(stage)?;
    stage.block(HEADING, "patch certificate")?;
    until("each port serves its new certificate", RENEWED_MAX, || {
        for (place, served) in served_as_issued(stage)? {
            if served == before[&place] {
                return Err(format!("{place} serves {served} still"));
            }
        }
        Ok(())
    })
}

/// Waits until every port serves what the CAs signed whose names end so.
pub(super) fn served_everywhere(stage: &Stage<'_>, authorities: &str) -> Result<(), String> {
    until("each port serves its new certificate", RENEWED_MAX, || {
        for (place, served) in served_as_issued(stage)? {
            if !served.trim_end().ends_with(authorities) {
                return Err(format!("{place} serves {served} still"));
            }
        }
        Ok(())
    })
}

/// What every port serves, if it is what was issued last.
fn served_as_issued(stage: &Stage<'_>) -> Result<BTreeMap<String, String>, String> {
    let now = everywhere(stage)?;
    for (name, _) in PORTS {
        let issued = issued(stage, name)?;
        for (place, served) in now.iter().filter(|(place, _)| place.ends_with(name)) {
            if *served != issued {
                return Err(format!("{place} serves {served}, and issued is {issued}"));
            }
        }
    }
    Ok(now)
}
