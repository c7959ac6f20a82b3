//! The components of Kubernetes around containerd: a control plane and one node.

mod kubelet;
mod names;
mod papers;

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::Site;
use crate::containers;
use crate::inside::{ADDRESS, SERVICES};
use crate::kubectl::Kubectl;
use crate::program::{Daemon, PATIENCE, call, until};
use papers::{Papers, WHO};

/// Where the API server listens.
pub(crate) const API_PORT: u16 = 16_443;
/// The node's name.
pub(crate) const NODE: &str = "node";

/// What Pods and Services need of the namespace's own network.
pub(crate) const NETWORK_SETTINGS: [(&str, &str); 2] = [
    ("ipv4/ip_forward", "1"),
    ("bridge/bridge-nf-call-iptables", "1"),
];

/// A running Kubernetes.
pub(crate) struct Plane {
    /// In the order in which they are stopped.
    daemons: Vec<Daemon>,
    /// The process of the API server.
    pub(crate) api_server: u32,
    kubeconfig: PathBuf,
    components: PathBuf,
    logs: PathBuf,
}

impl Plane {
    /// Starts everything, and waits until the node is ready.
    pub(crate) fn start(site: &Site) -> Result<Self, String> {
        let made = |error: std::io::Error| format!("{}: {error}", site.folder.display());
        let logs = site.folder.join("logs");
        fs::create_dir_all(&logs).map_err(made)?;
        let papers = Papers::make(&site.folder.join("papers"))?;
        let start = |name: &str, arguments: Vec<String>| {
            Daemon::start(&site.components.join(name), &arguments, &[], &logs)
        };

        let etcd = start("etcd", etcd(&site.folder))?;
        let mut api_server = start("kube-apiserver", api_server(&papers))?;
        // Unpacking the images takes as long as the API server's start.
        let containerd = containers::start(site, &logs)?;
        let kubectl = Kubectl::new(&site.components, papers.kubeconfig("admin"));
        until("the API server is ready", PATIENCE, || {
            api_server.runs()?;
            kubectl.run("get --raw /readyz")
        })?;
        let manager = start("kube-controller-manager", manager(&papers))?;
        let scheduler = start("kube-scheduler", scheduler(&papers))?;
        let kubelet_config = kubelet::configure(&site.folder, &papers)?;
        let mut kubelet = start("kubelet", kubelet_config)?;
        let dns = start("coredns", names::serve(&site.folder, &papers)?)?;
        let proxy = start("kube-proxy", names::proxy(&site.folder, &papers)?)?;
        until("the node is ready", PATIENCE, || {
            kubelet.runs()?;
            let wait = format!("wait --for=condition=Ready node/{NODE} --timeout=1s");
            kubectl.run(&wait)
        })?;
        Ok(Self {
            api_server: api_server.id(),
            daemons: vec![
                kubelet, scheduler, manager, proxy, dns, api_server, etcd, containerd,
            ],
            kubeconfig: papers.kubeconfig("admin"),
            components: site.components.clone(),
            logs,
        })
    }

    /// kubectl for the administrator.
    pub(crate) fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.components, self.kubeconfig.clone())
    }

    /// Writes down what the API server knows, for a look at a failed run.
    pub(crate) fn keep_evidence(&self) {
        let kubectl = self.kubectl();
        let asked = [
            ("pods", "describe pods --all-namespaces"),
            (
                "objects",
                "get all,pvc,pv,pdb,leases --all-namespaces --output=wide",
            ),
            (
                "events",
                "get events --all-namespaces --sort-by=.lastTimestamp",
            ),
            (
                "ringfence",
                "logs --namespace=ringfence --selector=app.kubernetes.io/name=ringfence --prefix --tail=200",
            ),
            (
                "webhook",
                "logs --namespace=ringfence --selector=app.kubernetes.io/name=ringfence-webhook --prefix",
            ),
            (
                "canary",
                "logs --namespace=demo --selector=app.kubernetes.io/name=ringfence-canary --prefix",
            ),
            (
                "controller",
                "logs --namespace=shop --selector=app.kubernetes.io/name=controller --prefix",
            ),
        ];
        for (name, line) in asked {
            let told = kubectl.run(line).unwrap_or_else(|why| why);
            fs::write(self.logs.join(format!("told-{name}.txt")), told).ok();
        }
    }

    /// Stops everything: first those that would start Pods again, then the Pods.
    pub(crate) fn stop(self) {
        for daemon in self.daemons.into_iter() {
            daemon.stop("KILL");
        }
        // With this process everything in its namespaces ends, Pods and their keepers too.
        call("sync", &["--file-system", &self.logs.display().to_string()]).ok();
    }
}

fn flags(flags: &[(&str, String)]) -> Vec<String> {
    let flags = flags
        .iter()
        .map(|(name, value)| format!("--{name}={value}"));
    flags.collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn etcd(folder: &Path) -> Vec<String> {
    let mut arguments = flags(&[
        ("data-dir", shown(&folder.join("etcd"))),
        ("listen-client-urls", "http://127.0.0.1:2379".to_owned()),
        ("advertise-client-urls", "http://127.0.0.1:2379".to_owned()),
        ("listen-peer-urls", "http://127.0.0.1:2380".to_owned()),
    ]);
    // No test will need its data after a power cut.
    arguments.push("--unsafe-no-fsync".to_owned());
    arguments
}

fn api_server(papers: &Papers) -> Vec<String> {
    flags(&[
        ("etcd-servers", "http://127.0.0.1:2379".to_owned()),
        ("bind-address", ADDRESS.to_owned()),
        ("advertise-address", ADDRESS.to_owned()),
        ("secure-port", API_PORT.to_string()),
        ("tls-cert-file", papers.file("server.crt")),
        ("tls-private-key-file", papers.file("server.key")),
        ("client-ca-file", papers.file("ca.crt")),
        (
            "service-account-issuer",
            "https://kubernetes.default.svc".to_owned(),
        ),
        ("service-account-key-file", papers.file("accounts.pub")),
        (
            "service-account-signing-key-file",
            papers.file("accounts.key"),
        ),
        ("token-auth-file", papers.file("tokens.csv")),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("service-cluster-ip-range", SERVICES.to_owned()),
        ("kubelet-preferred-address-types", "InternalIP".to_owned()),
        ("kubelet-client-certificate", papers.file("caller.crt")),
        ("kubelet-client-key", papers.file("caller.key")),
    ])
}

fn manager(papers: &Papers) -> Vec<String> {
    flags(&[
        ("kubeconfig", shown(&papers.kubeconfig("manager"))),
        ("leader-elect", "false".to_owned()),
        ("bind-address", "127.0.0.1".to_owned()),
        (
            "service-account-private-key-file",
            papers.file("accounts.key"),
        ),
        ("root-ca-file", papers.file("ca.crt")),
        ("allocate-node-cidrs", "false".to_owned()),
        // The story stops the API server for a minute. What a node says reaches no reader then, and
        // a node that says nothing for less than that is taken for dead, and its Pods for not
        // ready.
        ("node-monitor-grace-period", "5m".to_owned()),
    ])
}

fn scheduler(papers: &Papers) -> Vec<String> {
    flags(&[
        ("kubeconfig", shown(&papers.kubeconfig("scheduler"))),
        ("leader-elect", "false".to_owned()),
        ("bind-address", "127.0.0.1".to_owned()),
    ])
}

/// All users have papers.
const _: () = assert!(WHO.len() == 5);
