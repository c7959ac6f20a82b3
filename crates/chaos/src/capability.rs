//! What this machine lets the run do, tried out before anything is started.

use std::path::{Path, PathBuf};

use crate::cluster::Ext4;
use crate::net::Fabric;
use crate::plan::Kind;
use crate::record::CapabilityRecord;
use crate::sys::{self, Leave};

/// What can be had; else why not, for people.
pub(crate) type Had = Result<(), String>;

/// Where the run stands: what it may do on this machine.
///
/// Taking it moves the calling process into namespaces of its own, so it is taken first, while
/// the process has one thread.
#[derive(Debug)]
pub struct Ground {
    /// Whether the process had to make itself root of a user namespace.
    pub(crate) unrooted: bool,
    pub(crate) network: Had,
    pub(crate) mounts: Had,
    pub(crate) power: Had,
}

impl Ground {
    /// Finds out what this machine lets the process do, and takes it.
    #[must_use]
    pub fn take() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        // Root of a container may lack the right, and be granted a user namespace all the same.
        let (unrooted, rights, mounts) = match own_mounts() {
            Ok(()) if is_root => (false, Ok(()), Ok(())),
            _ => {
                let rights = become_root();
                let mounts = rights.clone().and_then(|()| own_mounts());
                (true, rights, mounts)
            }
        };
        let network = rights.and_then(|()| {
            let tried = Fabric::build(1, 0).map(drop);
            tried.map_err(|cause| cause.to_string())
        });
        let power = match (&mounts, unrooted) {
            (Err(why), _) => Err(why.clone()),
            (Ok(()), true) => Err("needs root: a user namespace may not mount ext4".to_owned()),
            (Ok(()), false) => Ext4::try_out(),
        };
        Self {
            unrooted,
            network,
            mounts,
            power,
        }
    }

    /// Takes nothing: for a run on a cluster that is there already.
    #[must_use]
    pub fn untouched() -> Self {
        let nothing = || Err("the cluster is not ours".to_owned());
        Self {
            unrooted: false,
            network: nothing(),
            mounts: nothing(),
            power: nothing(),
        }
    }

    /// Why faults of this kind cannot be had; `None` if they can, at least in part.
    pub(crate) fn lacks(&self, kind: Kind) -> Option<&str> {
        match &self.network {
            Err(why) if kind.needs_network() => Some(why),
            _ => None,
        }
    }

    /// The table for people and for the report.
    pub(crate) fn table(&self) -> Vec<CapabilityRecord> {
        let row = |name: &str, had: &Had, how: &str| CapabilityRecord {
            name: name.to_owned(),
            available: had.is_ok(),
            why: match had {
                Ok(()) => how.to_owned(),
                Err(why) => why.clone(),
            },
        };
        let who = match self.unrooted {
            true => "as root of a user namespace",
            false => "as root",
        };
        vec![
            row(
                "partition, oneway, isolate, slow",
                &self.network,
                &format!("a packet switch between network namespaces, {who}"),
            ),
            row("kill, pause", &Ok(()), "signals"),
            row(
                "membership",
                &Ok(()),
                "`ringfence cluster`, and a node more",
            ),
            row("disk: a torn write", &Ok(()), "written behind a node's log"),
            row(
                "disk: no room for the log",
                &Ok(()),
                "a limit for a node's files",
            ),
            row(
                "disk: full",
                &self.mounts,
                &format!("small file systems in a private mount namespace, {who}"),
            ),
            row(
                "disk: power loss",
                &self.power,
                "ext4 on loop devices, shut down with unsynced data lost",
            ),
        ]
    }
}

/// Enters a user namespace in which this process is root.
fn become_root() -> Had {
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    sys::unshare(Leave::User).map_err(|cause| {
        format!("needs root, and the kernel grants no user namespace here: {cause}")
    })?;
    let write = |file: &str, text: String| {
        let path = format!("/proc/self/{file}");
        std::fs::write(&path, text).map_err(|cause| format!("cannot write {path}: {cause}"))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {user} 1"))?;
    write("gid_map", format!("0 {group} 1"))
}

/// Enters a mount namespace whose mounts no other process sees, and which end with the run.
fn own_mounts() -> Had {
    let entered = sys::unshare(Leave::Mounts).and_then(|()| sys::keep_mounts_private());
    entered.map_err(|cause| format!("the kernel grants no mounts of its own here: {cause}"))
}

/// The program of this name, if it is where programs are.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    // Tools for disks are often on the path of root alone.
    let folders = folders.chain(["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).into()));
    let mut programs = folders.map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}
