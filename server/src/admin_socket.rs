//! The admin socket: `admin.sock` in a node's data directory. A process that can open it owns the
//! node's files, so it is `local`, with the right to change rights. It is the way in when there are
//! no rules yet, and the way back when no credential is left.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;
use tracing::warn;

/// The name of the socket in the data directory.
const NAME: &str = "admin.sock";
/// The folder that it is made in, as `s`. What fits under its name fits there, too.
const FOLDER: &str = "admin.d";
const _: () = assert!(FOLDER.len() + "/s".len() <= NAME.len());
/// The longest path of a socket, in bytes; `sun_path` of Linux has room for it and a zero.
const PATH_BYTES_MAX: usize = 107;

/// The pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Where the socket of the node with this data directory is.
pub(crate) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}

/// The socket of a node, which is removed with this.
pub(crate) struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl AdminSocket {
    /// Makes the socket, in the place of an old one. A node without one works all the same, so what is wrong is logged.
    pub(crate) fn bind(data_dir: &Path) -> Option<Self> {
        let path = path(data_dir);
        match Self::listen(&path) {
            Ok(listener) => Some(Self { listener, path }),
            Err(error) => {
                warn!(
                    socket = %path.display(),
                    %error,
                    "no admin socket: `ringfence access` over it will not work on this node; its \
                     path must have at most {PATH_BYTES_MAX} bytes, on a file system with sockets"
                );
                None
            }
        }
    }

    fn listen(path: &Path) -> io::Result<UnixListener> {
        let bytes = path.as_os_str().len();
        if bytes > PATH_BYTES_MAX {
            let why = format!("the path has {bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // Left over from a node that was killed; the directory is locked by this one.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Bound under another name in a folder of its own that only this user may enter: between
        // `bind` and `chmod` others could open it.
        let folder = path.with_file_name(FOLDER);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
        let bound = folder.join("s");
        let listener = UnixListener::bind(&bound)?;
        fs::set_permissions(&bound, Permissions::from_mode(0o600))?;
        fs::rename(&bound, path)?;
        fs::remove_dir(&folder)?;
        Ok(listener)
    }

    /// Its connections. Dropping them removes the socket.
    pub(crate) fn connections(self) -> impl Stream<Item = UnixStream> + Send {
        stream::unfold(self, |socket| async {
            loop {
                match socket.listener.accept().await {
                    Ok((stream, _)) => return Some((stream, socket)),
                    // Too many open files, mostly: it is a way in for operators, so it waits.
                    Err(error) => {
                        warn!(%error, "the admin socket could not accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // What remains of it is removed at the next start.
        let _removed = fs::remove_file(&self.path).is_ok();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn the_socket_is_its_owners_and_replaces_an_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        for _ in 0..2 {
            let socket = AdminSocket::bind(folder.path()).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let mut connections = Box::pin(socket.connections());
            let (connected, accepted) =
                tokio::join!(UnixStream::connect(&path), connections.next());
            assert!(connected.is_ok() && accepted.is_some());
            // As if the node was killed.
            std::mem::forget(connections);
        }
        drop(AdminSocket::bind(folder.path()).unwrap());
        assert!(!path.exists(), "a node that stops takes it along");
    }

    #[tokio::test]
    async fn the_longest_path_that_a_socket_can_have_works() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("d").join(NAME).as_os_str().len();
        for (more, fits) in [
            (PATH_BYTES_MAX - taken, true),
            (PATH_BYTES_MAX - taken + 1, false),
        ] {
            let deep = folder.path().join("d".repeat(1 + more));
            fs::create_dir(&deep).unwrap();
            let socket = AdminSocket::bind(&deep);
            assert_eq!(socket.is_some(), fits, "{}", deep.display());
            let path = deep.join(NAME);
            assert_eq!(UnixStream::connect(&path).await.is_ok(), fits);
        }
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_no_reason_not_to_start() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(PATH_BYTES_MAX));
        fs::create_dir(&deep).unwrap();
        assert!(AdminSocket::bind(&deep).is_none());
    }
}
