//! A server of S3, for backups in buckets.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringfence_testkit::certificates::{Authority, SignedFiles};
use ringfence_testkit::ports::Port;
use ringfence_testkit::s3::{KEY, SECRET, arguments, program};
use tempfile::TempDir;

/// The bucket that is there.
const BUCKET: &str = "backups";
/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a bucket. Dropping it ends it.
pub struct S3 {
    folder: TempDir,
    port: Port,
    child: Child,
    /// The authority of its certificate, if it has one.
    authority: Option<PathBuf>,
}

impl S3 {
    /// Starts one without TLS; `None` if it is not built and that is allowed, which is printed.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_in(
            tempfile::tempdir().expect("a temporary folder can be made"),
            None,
        )
    }

    /// The same with TLS, and with an authority of its own.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start_with_tls() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let authority = Authority::new("of a store");
        let signed = authority.sign(&["127.0.0.1"]).save(folder.path(), "store");
        let authority = authority.save(folder.path(), "authority");
        Self::start_in(folder, Some((authority, signed)))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "one thread waits for another process; it is over in a moment"
    )]
    fn start_in(folder: TempDir, tls: Option<(PathBuf, SignedFiles)>) -> Option<Self> {
        let program = program()?;
        let (root, versions) = (folder.path().join("root"), folder.path().join("versions"));
        fs::create_dir_all(root.join(BUCKET)).expect("a bucket is a folder");
        fs::create_dir(&versions).expect("a folder for versions");
        let port = Port::any();
        // It ends with the thread that starts it, also where that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "--"]).arg(program);
        arguments(&mut command, port.address(), &root, &versions);
        command.current_dir(folder.path());
        let (authority, signed) = tls.unzip();
        if let Some(signed) = signed {
            command.env("VGW_CERT", signed.certificate);
            command.env("VGW_KEY", signed.key);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("the server starts");
        let server = Self {
            folder,
            port,
            child,
            authority,
        };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(server.port.address()).is_err() {
            assert!(Instant::now() < until, "the server of S3 listens in time");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    /// What a program has to find in its environment.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let scheme = match self.authority {
            Some(_) => "https",
            None => "http",
        };
        let endpoint = format!("{scheme}://{}", self.port.address());
        let way = match &self.authority {
            Some(authority) => ("SSL_CERT_FILE", authority.display().to_string()),
            None => ("AWS_ALLOW_HTTP", "true".to_owned()),
        };
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint),
            way,
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// The URL of an object in its bucket.
    #[must_use]
    pub fn url(&self, key: &str) -> String {
        format!("s3://{BUCKET}/{key}")
    }

    /// The file that an object is, and the folder that keys with a prefix are in.
    #[must_use]
    pub fn file(&self, key: &str) -> PathBuf {
        self.folder.path().join("root").join(BUCKET).join(key)
    }

    /// All files that are in the bucket, also of what is not finished.
    ///
    /// # Panics
    /// If a folder cannot be read.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.file("")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder can be read") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => files.push(path),
                }
            }
        }
        files
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
