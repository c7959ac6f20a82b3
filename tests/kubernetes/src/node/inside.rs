//! The half in the namespaces: it makes a machine of them, a node of the machine, and tells the
//! story.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::cli::Site;
use crate::cluster::Cluster;
use crate::plane::{self, Plane};
use crate::program::call;
use crate::say::{self, Watch};
use crate::story;

/// The node's own address, and that of everything on it which is no Pod.
pub(crate) const ADDRESS: &str = "10.231.0.1";
/// The addresses of Services.
pub(crate) const SERVICES: &str = "10.0.0.0/24";
/// The bridge that Pods are on.
pub(crate) const BRIDGE: &str = "rfbr0";

/// Settings of the whole machine that a kubelet insists on. It finds them as it wants them, and the
/// machine keeps its own.
const SETTINGS: [(&str, &str); 6] = [
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
];

/// Folders that programs of a node write to whatever their configuration is, and what they are
/// here.
const FOLDERS: [(&str, &str); 3] = [
    ("kubelet", "/var/lib/kubelet"),
    ("cni", "/var/lib/cni"),
    ("log", "/var/log"),
];

/// Runs everything.
pub(crate) fn run(site: &Site) -> Result<(), String> {
    let watch = Watch::start();
    mounts(site)?;
    network()?;
    let plane = Plane::start(site)?;
    say::shown(watch, "a node is ready");
    let told = story::tell(&Cluster::of(site, &plane)?);
    if told.is_err() {
        plane.keep_evidence();
    }
    plane.stop();
    told
}

fn mounts(site: &Site) -> Result<(), String> {
    let made = |error: std::io::Error| format!("{}: {error}", site.folder.display());
    call("mount", &["-t", "tmpfs", "-o", "mode=755", "run", "/run"])?;
    for (own, standard) in FOLDERS {
        let own = site.folder.join(own);
        fs::create_dir_all(&own).map_err(made)?;
        // The machine may never have had one.
        fs::create_dir_all(standard).map_err(|error| format!("{standard}: {error}"))?;
        bind(&own, standard)?;
    }
    let settings = site.folder.join("settings");
    fs::create_dir_all(&settings).map_err(made)?;
    for (setting, value) in SETTINGS {
        let own = settings.join(setting.replace('/', "."));
        fs::write(&own, format!("{value}\n")).map_err(made)?;
        bind(&own, &format!("/proc/sys/{setting}"))?;
    }
    // Names are looked up as in a Pod: what runs here is the client next to the cluster.
    let names = site.folder.join("resolv.conf");
    let text = format!("nameserver {ADDRESS}\nsearch svc.cluster.local cluster.local\n");
    fs::write(&names, text).map_err(made)?;
    fs::set_permissions(&names, fs::Permissions::from_mode(0o644)).map_err(made)?;
    if let Ok(target) = fs::read_link("/etc/resolv.conf") {
        let target = Path::new("/etc").join(target);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).ok();
        }
        fs::File::options()
            .create(true)
            .append(true)
            .open(&target)
            .ok();
    }
    bind(&names, "/etc/resolv.conf")
}

fn bind(own: &Path, standard: &str) -> Result<(), String> {
    let own = own.display().to_string();
    call("mount", &["--bind", &own, standard]).map(drop)
}

fn network() -> Result<(), String> {
    let address = format!("{ADDRESS}/24");
    let steps: [&[&str]; 5] = [
        &["link", "set", "lo", "up"],
        &["link", "add", BRIDGE, "type", "bridge"],
        &["addr", "add", &address, "dev", BRIDGE],
        &["link", "set", BRIDGE, "up"],
        // Services have no interface; without a way there no packet would come to be sent
        // elsewhere.
        &["route", "add", SERVICES, "dev", BRIDGE],
    ];
    for step in steps {
        call("ip", step)?;
    }
    for (setting, value) in plane::NETWORK_SETTINGS {
        let path = format!("/proc/sys/net/{setting}");
        if Path::new(&path).exists() {
            fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
        }
    }
    Ok(())
}
