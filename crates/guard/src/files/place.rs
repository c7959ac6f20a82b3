//! Which file system a directory is on.

use std::os::fd::OwnedFd;
use std::path::Path;

use super::FilesError;

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn failed(errno: rustix::io::Errno) -> FilesError {
    FilesError::Io {
        what: "ask for the file system of the guarded directory",
        source: errno.into(),
    }
}

/// Refuses a directory that other machines change as well.
pub(super) fn refuse_network(data: &OwnedFd, directory: &Path) -> Result<(), FilesError> {
    match network(data)? {
        None => Ok(()),
        Some(kind) => Err(FilesError::NetworkFileSystem {
            directory: directory.to_owned(),
            kind,
        }),
    }
}

/// The kinds of `statfs` by their numbers in `linux/magic.h`.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NETWORK: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
];

#[cfg(any(target_os = "linux", target_os = "android"))]
const LOST: &[u32] = &[0x0102_1994, 0x8584_58f6, 0x794c_7630];

#[cfg(any(target_os = "linux", target_os = "android"))]
fn kind(data: &OwnedFd) -> Result<u32, FilesError> {
    let stat = rustix::fs::fstatfs(data).map_err(failed)?;
    // The number has 32 bits, in a word that is signed or wider on some machines.
    let low = i128::from(stat.f_type) & i128::from(u32::MAX);
    Ok(u32::try_from(low).unwrap_or(0))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn network(data: &OwnedFd) -> Result<Option<&'static str>, FilesError> {
    Ok(named(kind(data)?))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn named(kind: u32) -> Option<&'static str> {
    let found = NETWORK.iter().find(|(number, _)| *number == kind);
    found.map(|(_, name)| *name)
}

/// Whether what is written there ends, or may end, with the machine's power: in tmpfs and ramfs, and in
/// overlays, whose upper directory cannot be seen from here.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn is_lost_with_power(data: &OwnedFd) -> Result<bool, FilesError> {
    Ok(LOST.contains(&kind(data)?))
}

#[cfg(target_vendor = "apple")]
fn network(data: &OwnedFd) -> Result<Option<&'static str>, FilesError> {
    let stat = rustix::fs::fstatfs(data).map_err(failed)?;
    let name: Vec<u8> = stat
        .f_fstypename
        .iter()
        .map(|letter| letter.to_ne_bytes()[0])
        .take_while(|letter| *letter != 0)
        .collect();
    let known = ["nfs", "smbfs", "afpfs", "webdav", "ftp"];
    Ok(known.into_iter().find(|known| known.as_bytes() == name))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn network(_: &OwnedFd) -> Result<Option<&'static str>, FilesError> {
    Ok(None)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn is_lost_with_power(_: &OwnedFd) -> Result<bool, FilesError> {
    Ok(false)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(named(0x6969), Some("NFS"));
        assert_eq!(named(0xff53_4d42), Some("CIFS"));
        // ext4, and one in memory.
        assert_eq!(named(0xef53), None);
        assert_eq!(named(0x0102_1994), None);
    }
}
