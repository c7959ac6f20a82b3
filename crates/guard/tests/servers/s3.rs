//! A server of S3.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use object_store::aws::AmazonS3Builder;
use ringfence_guard::s3::S3Store;
use ringfence_testkit::ports::Port;
use ringfence_testkit::s3::{KEY, READY, SECRET};
use rustix::fs::{XattrFlags, setxattr};
use rustix::process::Signal;
use tempfile::TempDir;

use super::http::PlainHttp;
use super::machine::Disk;
use super::process::{self, Process};
use super::proxy::{self, Hand};

const BUCKET: &str = "bucket";

/// How often to look whether it listens.
const LOOKS: u32 = 100_000;

/// A server with a bucket of its own. Dropping it ends it.
pub(crate) struct S3 {
    program: PathBuf,
    directory: TempDir,
    /// The same for its whole life: clients retry where they were.
    port: Port,
    /// `None` only while it is down.
    process: Option<Process>,
}

impl S3 {
    /// Starts one; `None` if it is not built and that is allowed.
    pub(crate) fn start(disk: Disk) -> Option<Self> {
        let program = ringfence_testkit::s3::program()?;
        let mut server = Self {
            program,
            directory: directory(disk),
            port: Port::any(),
            process: None,
        };
        fs::create_dir_all(server.bucket()).unwrap();
        fs::create_dir(server.versions_folder()).unwrap();
        server.up();
        Some(server)
    }

    fn up(&mut self) {
        let started = Process::start(self.command(), READY, Signal::KILL);
        let why = |told| panic!("the server did not start: {told}");
        self.process = Some(started.unwrap_or_else(why));
        // It says so a moment before.
        for _ in 0..LOOKS {
            if TcpStream::connect(self.port.address()).is_ok() {
                return;
            }
            thread::yield_now();
        }
        panic!("the server does not listen");
    }

    fn command(&self) -> Command {
        let mut command = process::command(&self.program, None, "KILL");
        let (root, versions) = (self.root(), self.versions_folder());
        ringfence_testkit::s3::arguments(&mut command, self.port.address(), &root, &versions);
        command.current_dir(self.directory.path());
        command
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Buckets are folders.
    fn bucket(&self) -> PathBuf {
        self.root().join(BUCKET)
    }

    /// Keeps each version of an object from now on, as `PutBucketVersioning` switches it on.
    pub(crate) fn keep_versions(&self) {
        let on = setxattr(self.bucket(), "user.versioning", &[1], XattrFlags::empty());
        on.unwrap();
    }

    /// How many versions there are behind the newest ones.
    pub(crate) fn versions(&self) -> usize {
        let mut folders = vec![self.versions_folder()];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => files += 1,
                }
            }
        }
        files
    }

    fn versions_folder(&self) -> PathBuf {
        self.directory.path().join("versions")
    }

    /// Kills the server, and starts it again on what is there.
    pub(crate) fn crash(&mut self) {
        self.process.take().expect("it is up").end(Signal::KILL);
        self.up();
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.address().port()
    }

    /// The bucket, through a client of its own.
    pub(crate) fn store(&self) -> S3Store {
        S3Store::new(builder(self.port())).unwrap()
    }

    /// The bucket, through a proxy that can disturb the requests.
    pub(crate) async fn store_through(&self) -> (S3Store, Hand) {
        let (port, hand) = proxy::serve(self.port(), proxy::HTTP).await;
        (S3Store::new(builder(port)).unwrap(), hand)
    }
}

/// A client of the bucket behind this port.
pub(crate) fn builder(port: u16) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_http_connector(PlainHttp)
        .with_endpoint(format!("http://127.0.0.1:{port}"))
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(BUCKET)
        .with_access_key_id(KEY)
        .with_secret_access_key(SECRET)
}

/// In memory if the server can keep ETags there: they are attributes of files.
fn directory(disk: Disk) -> TempDir {
    let directory = disk.directory();
    let attribute =
        |directory: &Path| setxattr(directory, "user.ringfence", b"1", XattrFlags::empty()).is_ok();
    if attribute(directory.path()) {
        return directory;
    }
    Disk::Real.directory()
}
