//! A node's disk: a directory, a small file system that can be filled, or one on a device that
//! can lose its power.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::capability::{Had, find_program};
use crate::sys;

/// Room for a node's log, snapshots and history of a long run.
const BYTES: u64 = 96 << 20;
const TRIAL_BYTES: u64 = 8 << 20;
/// What fills a disk.
const BALLAST: &str = "ballast";
/// What was written and never synced.
const CANARY: &str = "canary";
/// How often a file system that is still in use is asked for again.
const UNMOUNT_TRIES: u32 = 200;

/// A node's disk.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Where it is mounted.
    root: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A directory among others.
    Directory,
    /// A file system in memory with a limit.
    Memory,
    /// ext4 on a loop device over this file.
    Ext4(Ext4),
}

impl Disk {
    pub(crate) fn directory(root: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        let kind = Kind::Directory;
        Ok(Self { root, kind })
    }

    pub(crate) fn memory(root: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        sys::mount(Path::new("tmpfs"), &root, "tmpfs", &format!("size={BYTES}"))?;
        let kind = Kind::Memory;
        Ok(Self { root, kind })
    }

    /// `image` is made, and becomes the disk's medium.
    pub(crate) fn ext4(root: PathBuf, image: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        let ext4 = Ext4::format(image, BYTES)?;
        ext4.mount(&root)?;
        let kind = Kind::Ext4(ext4);
        Ok(Self { root, kind })
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(crate) fn can_be_filled(&self) -> bool {
        !matches!(self.kind, Kind::Directory)
    }

    pub(crate) fn can_lose_power(&self) -> bool {
        matches!(self.kind, Kind::Ext4(_))
    }

    /// Removes everything on it; the node must be down.
    pub(crate) fn wipe(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(self.data()) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
            _ => Ok(()),
        }
    }

    /// Fills it to the last byte; says how many bytes were left free.
    pub(crate) fn fill(&self) -> io::Result<u64> {
        let mut ballast = File::options()
            .create(true)
            .append(true)
            .open(self.root.join(BALLAST))?;
        let mut block = vec![b'x'; 1 << 20];
        loop {
            match ballast.write_all(&block) {
                Ok(()) => {}
                // Then the smaller gaps.
                Err(_) if block.len() > 512 => block.truncate(block.len() / 2),
                Err(_) => break,
            }
        }
        self.free()
    }

    /// How many bytes are free.
    pub(crate) fn free(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// Makes room again.
    pub(crate) fn empty(&self) -> io::Result<()> {
        std::fs::remove_file(self.root.join(BALLAST))
    }

    /// Cuts its power: what was not synced is lost. The node is to be killed right behind.
    pub(crate) fn cut_power(&self) -> io::Result<()> {
        std::fs::write(self.root.join(CANARY), "never synced")?;
        let root = File::open(&self.root)?;
        sys::cut_power(root.as_fd())
    }

    /// Gives the power back; the node must be down. Says whether what was not synced is gone.
    pub(crate) fn restore_power(&self) -> io::Result<bool> {
        let Kind::Ext4(ext4) = &self.kind else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        unmount(&self.root)?;
        ext4.mount(&self.root)?;
        Ok(!self.root.join(CANARY).exists())
    }
}

/// Unmounts what a process that was just killed may still be holding for an instant.
fn unmount(target: &Path) -> io::Result<()> {
    let (quiet, pause) = std::sync::mpsc::channel::<()>();
    for _ in 0..UNMOUNT_TRIES {
        match sys::unmount(target, false) {
            Err(cause) if cause.kind() == io::ErrorKind::ResourceBusy => {
                // No thread sends: this is a pause.
                let gap = std::time::Duration::from_millis(5);
                pause.recv_timeout(gap).ok();
            }
            done => return done,
        }
    }
    drop(quiet);
    sys::unmount(target, true)
}

/// An ext4 file system in a file.
#[derive(Debug)]
pub(crate) struct Ext4 {
    image: PathBuf,
}

impl Ext4 {
    fn format(image: PathBuf, bytes: u64) -> io::Result<Self> {
        let program = find_program("mkfs.ext4")
            .ok_or_else(|| io::Error::other("there is no mkfs.ext4 on this machine"))?;
        File::create(&image)?.set_len(bytes)?;
        let done = Command::new(program)
            .args(["-q", "-F", "-E", "lazy_itable_init=1,nodiscard"])
            .arg(&image)
            .stdin(Stdio::null())
            .output()?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(io::Error::other(format!("mkfs.ext4: {}", said.trim())));
        }
        Ok(Self { image })
    }

    /// Mounts it from a loop device that goes away with the mount.
    fn mount(&self, target: &Path) -> io::Result<()> {
        let control = File::open("/dev/loop-control")?;
        let file = File::options().read(true).write(true).open(&self.image)?;
        for _ in 0..UNMOUNT_TRIES {
            let number = sys::free_loop_device(control.as_fd())?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = File::options().read(true).write(true).open(&path)?;
            match sys::attach_loop(device.as_fd(), file.as_fd()) {
                // Another process has taken it in between.
                Err(cause) if cause.kind() == io::ErrorKind::ResourceBusy => {}
                Err(cause) => return Err(cause),
                // The device is open until it is mounted: it lives as long as it is used.
                Ok(()) => return sys::mount(&path, target, "ext4", ""),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Makes one, cuts its power, and looks whether what was not synced is gone.
    pub(crate) fn try_out() -> Had {
        let trial = || -> io::Result<bool> {
            let dir = tempfile::tempdir()?;
            let root = dir.path().join("disk");
            std::fs::create_dir(&root)?;
            let ext4 = Self::format(dir.path().join("image"), TRIAL_BYTES)?;
            ext4.mount(&root)?;
            let kind = Kind::Ext4(ext4);
            let disk = Disk { root, kind };
            let gone = disk.cut_power().and_then(|()| disk.restore_power());
            unmount(&disk.root)?;
            gone
        };
        match trial() {
            Ok(true) => Ok(()),
            Ok(false) => Err("what was not synced outlived a shut-down ext4".to_owned()),
            Err(cause) => Err(format!("no ext4 on a loop device here: {cause}")),
        }
    }
}
