//! containerd, and the images in it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::Site;
use crate::clocked;
use crate::inside::{ADDRESS, BRIDGE};
use crate::outside::PLUGIN_FOLDERS;
use crate::program::{Daemon, PATIENCE, call, find, until};

/// Where containerd listens, short enough for a socket.
pub(crate) const SOCKET: &str = "/run/ringfence-node/containerd.sock";
/// What a Pod's sandbox runs.
const SANDBOX: &str = "ringfence.test/pause:1";

/// An archive in the folder of the images, and one for the overlays alone.
const OURS: &str = "ringfence-dev.tar";
const CONTROLLER: &str = "fenced-controller.tar";

/// The programs of cert-manager, each with an image of its name, for the chart alone.
const ISSUERS: [&str; 3] = ["controller", "webhook", "cainjector"];
pub(crate) const ISSUERS_REGISTRY: &str = "ringfence.test";
pub(crate) const ISSUERS_TAG: &str = "v1";

/// Starts containerd with all images.
pub(crate) fn start(site: &Site, logs: &Path) -> Result<Daemon, String> {
    let folder = site.folder.join("containerd");
    let write = |path: &Path, text: &str| {
        let parent = path.parent().unwrap_or(path);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(path, text))
            .map_err(|error| format!("{}: {error}", path.display()))
    };
    let network = folder.join("net.d");
    write(&network.join("10-bridge.conflist"), &bridge())?;
    let config = folder.join("config.toml");
    write(&config, &configuration(&folder, &network))?;

    let program = find("containerd").ok_or("no containerd")?;
    let arguments = ["--config".to_owned(), config.display().to_string()];
    let mut containerd = Daemon::start(&program, &arguments, &[], logs)?;
    until("containerd answers", PATIENCE, || {
        containerd.runs()?;
        call("ctr", &["--address", SOCKET, "version"])
    })?;
    let mut images = vec![image(site, &site.components.join("pause"), SANDBOX)?];
    images.push(site.images.join(OURS));
    match &site.charts {
        None => images.push(site.images.join(CONTROLLER)),
        Some(charts) => {
            for program in ISSUERS {
                let tag = format!("{ISSUERS_REGISTRY}/{program}:{ISSUERS_TAG}");
                images.push(image(site, &charts.issuers.join(program), &tag)?);
            }
            images.push(clocked::image(site)?);
        }
    }
    for image in images {
        let image = image.display().to_string();
        call(
            "ctr",
            &[
                "--address",
                SOCKET,
                "--namespace",
                "k8s.io",
                "images",
                "import",
                &image,
            ],
        )?;
    }
    Ok(containerd)
}

/// Makes an image of a static program.
fn image(site: &Site, program: &Path, tag: &str) -> Result<PathBuf, String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let image = site.folder.join(format!("{name}.tar"));
    let builder = site.root.join("deploy/image/build");
    call(
        &builder.display().to_string(),
        &[
            "--binary",
            &program.display().to_string(),
            "--tag",
            tag,
            "--output",
            &image.display().to_string(),
        ],
    )?;
    Ok(image)
}

/// Everything that matters stands in the folder; what processes meet by lies in `/run`.
fn configuration(folder: &Path, network: &Path) -> String {
    let folder = folder.display();
    let network = network.display();
    let plugins = PLUGIN_FOLDERS
        .into_iter()
        .find(|folder| Path::new(folder).join("bridge").is_file())
        .unwrap_or(PLUGIN_FOLDERS[0]);
    // A machine may not let even root lower a process's chance to be ended for lack of memory, and
    // has cgroups that only we manage.
    format!(
        r#"version = 2
root = "{folder}/root"
state = "/run/ringfence-node/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{SANDBOX}"
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{network}"
"#
    )
}

fn bridge() -> String {
    format!(
        r#"{{"cniVersion": "1.0.0", "name": "pods", "plugins": [{{
  "type": "bridge", "bridge": "{BRIDGE}", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {{"type": "host-local",
    "ranges": [[{{"subnet": "10.231.0.0/24", "rangeStart": "10.231.0.10", "rangeEnd": "10.231.0.250", "gateway": "{ADDRESS}"}}]],
    "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}
"#
    )
}
