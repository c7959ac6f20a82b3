//! What a machine has that a node could leave behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the hierarchies of cgroups are.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Folders that a node's programs write to wherever they are to work.
const FOLDERS: [&str; 8] = [
    "/etc/cni/net.d",
    "/run/containerd",
    "/run/netns",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
];
/// The node's share of the processors while others want them too, by the file that sets it: as a
/// group it would have no more than any one process beside it.
const SHARES: [(&str, &str); 2] = [("cpu.shares", "65536"), ("cpu.weight", "10000")];
/// Settings of the whole machine that a kubelet or a kube-proxy would make.
const SETTINGS: [&str; 8] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// A look at a machine.
pub(crate) struct Machine {
    mounts: BTreeSet<String>,
    interfaces: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    folders: BTreeSet<String>,
    settings: BTreeSet<String>,
    rules: BTreeSet<String>,
}

impl Machine {
    /// Looks.
    pub(crate) fn look() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let hierarchies = hierarchies();
        let cgroups = hierarchies.iter().flat_map(|path| entries(path));
        let settings = SETTINGS.iter().map(|setting| {
            let value = fs::read_to_string(Path::new("/proc/sys").join(setting));
            format!("{setting} = {}", value.unwrap_or_default().trim())
        });
        // A machine that has no such rules has no such program either.
        let rules = crate::program::call("nft", &["list", "tables"]).unwrap_or_default();
        Self {
            mounts: mounts.map(str::to_owned).collect(),
            interfaces: entries(Path::new("/sys/class/net")).collect(),
            cgroups: cgroups.filter(|path| Path::new(path).is_dir()).collect(),
            folders: FOLDERS
                .iter()
                .flat_map(|folder| entries(Path::new(folder)))
                .collect(),
            settings: settings.collect(),
            rules: rules.lines().map(str::to_owned).collect(),
        }
    }

    /// What was compared, if nothing is there that was not before; `folder` was the run's own.
    pub(crate) fn compare(&self, after: &Self, folder: &Path) -> Result<String, String> {
        let pairs = [
            ("mounts", &self.mounts, &after.mounts),
            ("interfaces", &self.interfaces, &after.interfaces),
            ("cgroups", &self.cgroups, &after.cgroups),
            ("files", &self.folders, &after.folders),
            ("settings", &self.settings, &after.settings),
            ("tables of rules", &self.rules, &after.rules),
        ];
        let left = pairs.iter().flat_map(|(kind, before, after)| {
            after
                .difference(before)
                .map(move |new| format!("{kind}: {new}"))
        });
        let mut left: Vec<String> = left.collect();
        left.extend(processes_of(folder));
        if folder.exists() {
            left.push(format!("folder {}", folder.display()));
        }
        if !left.is_empty() {
            return Err(left.join(", "));
        }
        let counts = pairs.map(|(kind, before, _)| format!("{} {kind}", before.len()));
        Ok(format!("{} and no process, as before", counts.join(", ")))
    }
}

/// Processes that were started with something of this folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let own = std::process::id().to_string();
    let processes = entries(Path::new("/proc")).filter_map(|path| {
        let pid = path.strip_prefix("/proc/")?.to_owned();
        let numeric = pid.bytes().all(|byte| byte.is_ascii_digit());
        if !numeric || pid == own {
            return None;
        }
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        // Who called this program names the folder too, and is still there.
        let ours = line.contains(&folder) && !line.contains(" outside ");
        ours.then(|| format!("process {pid} {line}"))
    });
    processes.collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.path().display().to_string())
}

/// The roots of all cgroups: one, or one for each controller.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(CGROUPS);
    if root.join("cgroup.procs").exists() {
        return vec![root];
    }
    let folders = entries(&root).map(PathBuf::from);
    folders
        .filter(|path| path.join("cgroup.procs").exists())
        .collect()
}

/// Makes a cgroup of this name in each hierarchy.
pub(crate) fn make_cgroups(name: &str) -> Result<(), String> {
    for root in hierarchies() {
        let path = root.join(name);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        for (file, share) in SHARES {
            let file = path.join(file);
            if file.exists() {
                // A node that others starve is slower, and no less right.
                fs::write(file, share).ok();
            }
        }
    }
    Ok(())
}

/// Removes the cgroup of this name from each hierarchy, with all below it.
pub(crate) fn remove_cgroups(name: &str) -> Result<(), String> {
    for root in hierarchies() {
        remove_cgroup(&root.join(name))?;
    }
    Ok(())
}

fn remove_cgroup(path: &Path) -> Result<(), String> {
    if !path.is_dir() {
        return Ok(());
    }
    let below: Vec<PathBuf> = entries(path).map(PathBuf::from).collect();
    for child in below.iter().filter(|child| child.is_dir()) {
        remove_cgroup(child)?;
    }
    fs::remove_dir(path).map_err(|error| format!("cgroup {}: {error}", path.display()))
}
