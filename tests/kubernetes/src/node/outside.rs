//! The half that stays on the machine: it lets no other run in, starts the node in namespaces of
//! its own, and sees to it that the machine is afterwards as it was.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cli::{Charts, Request, Story};
use crate::machine::{self, Machine};
use crate::program::{self, until};
use crate::say::{self, Watch};

/// One run at a time: a kubelet's cgroups belong to the machine.
const LOCK: &str = "/tmp/ringfence-node.lock";
/// The parent of all cgroups of the node.
pub(crate) const CGROUP: &str = "ringfence-node";
/// How long the machine may take to forget what has ended.
const FORGET_MAX: Duration = Duration::from_secs(20);

/// What the node is made of, and the package of Debian that has it.
const PROGRAMS: [(&str, &str); 10] = [
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("iptables", "iptables"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("openssl", "openssl"),
];
/// Where packages put the plugins of the container network.
pub(crate) const PLUGIN_FOLDERS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

/// Runs the story and compares the machine.
pub(crate) fn run(request: &Request) -> Result<(), String> {
    let whole = Watch::start();
    if !rustix::process::geteuid().is_root() {
        return Err("a node needs root: run it as root, or let sudo do so".to_owned());
    }
    has_programs()?;
    let components = ringfence_kubernetes::build()?;
    for needed in ["kubelet", "kube-proxy", "coredns", "pause"] {
        let path = components.join(needed);
        if !path.is_file() {
            return Err(format!(
                "there is no {}: unset KUBEBUILDER_ASSETS",
                path.display()
            ));
        }
    }
    let charts = match request.story {
        Story::Overlays => None,
        Story::Chart => Some(charts()?),
    };
    let _lock = only_one()?;
    machine::remove_cgroups(CGROUP)?;
    let before = Machine::look();
    let fresh = |error| format!("{}: {error}", request.folder.display());
    fs::remove_dir_all(&request.folder).ok();
    fs::create_dir_all(&request.folder).map_err(fresh)?;

    let told =
        machine::make_cgroups(CGROUP).and_then(|()| live(request, &components, charts.as_ref()));
    let watch = Watch::start();
    let cleared = until("its cgroups are gone", FORGET_MAX, || {
        machine::remove_cgroups(CGROUP)
    });
    if told.is_err() {
        say::note(&format!("its logs are in {}", request.folder.display()));
    } else {
        fs::remove_dir_all(&request.folder).map_err(fresh)?;
    }
    told?;
    cleared?;
    let alike = until("the machine is as it was", FORGET_MAX, || {
        before.compare(&Machine::look(), &request.folder)
    })?;
    say::shown(watch, &format!("nothing is left behind: {alike}"));
    say::shown(whole, "all of it");
    Ok(())
}

/// Built unless they are there.
fn charts() -> Result<Charts, String> {
    let helm = ringfence_kubernetes::build_helm()?;
    let issuers = ringfence_kubernetes::build_cert_manager()?;
    Ok(Charts {
        helm,
        issuers: issuers.programs,
        issuers_chart: issuers.chart,
    })
}

fn has_programs() -> Result<(), String> {
    let lacking: Vec<&str> = PROGRAMS
        .into_iter()
        .filter(|(program, _)| program::find(program).is_none())
        .map(|(_, package)| package)
        .collect();
    let plugins = PLUGIN_FOLDERS
        .iter()
        .any(|folder| Path::new(folder).join("bridge").is_file());
    let plugins = (!plugins).then_some("containernetworking-plugins");
    let mut packages: Vec<&str> = lacking.into_iter().chain(plugins).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    Err(format!(
        "a node lacks programs here: apt-get install -y {}",
        packages.join(" ")
    ))
}

fn only_one() -> Result<File, String> {
    let made = |error| format!("{LOCK}: {error}");
    let lock = File::options()
        .create(true)
        .append(true)
        .open(LOCK)
        .map_err(made)?;
    if lock.try_lock().is_err() {
        say::note("another node runs on this machine: waiting for its end");
        lock.lock().map_err(made)?;
    }
    Ok(lock)
}

/// Runs the other half, which is the first process of its namespaces: with it everything ends in
/// them, and with this process it.
fn live(request: &Request, components: &Path, charts: Option<&Charts>) -> Result<(), String> {
    let charts = charts.map(|charts| [&charts.helm, &charts.issuers, &charts.issuers_chart]);
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--net", "--pid", "--ipc", "--uts"])
        .args(["--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation", "private"])
        .arg(own)
        .arg("inside")
        .args([&request.folder, components, &request.images, &request.root])
        .args(charts.into_iter().flatten())
        .stdin(Stdio::null())
        .status();
    let status = status.map_err(|error| format!("cannot start unshare: {error}"))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(1) => Err("see above".to_owned()),
        _ => Err(format!(
            "the node ended with {status}; if no line above says why, this machine does not let \
             root make namespaces, and a node cannot be tested here"
        )),
    }
}
