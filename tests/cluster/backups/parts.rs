//! A backup of many parts on its way into a bucket: there as a whole or not at all.

use std::pin::Pin;

use bytes::Bytes;
use ringfence_proto::text::hex;
use ringfence_proto::v1;
use ringfence_proto::v1::cluster_server::{Cluster as Rpcs, ClusterServer};
use ringfence_proto::v1::connection_server::{Connection, ConnectionServer};
use ringfence_tests::S3;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::*;

/// A part, in bytes, as a node sends it.
const PART: usize = 256 << 10;
/// How many parts there are: 128 MiB, and some bytes in a last one.
const PARTS: usize = 512;

/// How the stream of a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// The last part has the digest of other bytes.
    OtherDigest,
    /// The node is gone before its last part.
    Torn,
    /// It says nothing any more.
    Silent,
}

/// A node that sends bytes as the backup of a large cluster.
#[derive(Clone, Copy)]
struct Sender(End);

fn parts(end: End) -> Vec<Bytes> {
    let mut parts: Vec<Bytes> = (0..PARTS)
        .map(|at| vec![u8::try_from(at % 251).unwrap(); PART].into())
        .collect();
    parts.push(Bytes::from_static(b"the last one"));
    if matches!(end, End::Torn | End::Silent) {
        parts.truncate(PARTS / 2);
    }
    parts
}

fn digest(parts: &[Bytes]) -> Bytes {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    Bytes::copy_from_slice(context.finish().as_ref())
}

type Answered<T> = Result<Response<T>, Status>;

fn unasked<T>() -> Answered<T> {
    Err(Status::unimplemented("no test asks for it"))
}

#[tonic::async_trait]
impl Rpcs for Sender {
    type BackupStream = Pin<Box<dyn Stream<Item = Result<v1::BackupResponse, Status>> + Send>>;

    async fn backup(&self, _: Request<v1::BackupRequest>) -> Answered<Self::BackupStream> {
        let parts = parts(self.0);
        let digest = match self.0 {
            End::Whole => digest(&parts),
            End::OtherDigest => Bytes::from_static(&[7; 32]),
            End::Torn | End::Silent => Bytes::new(),
        };
        let count = parts.len();
        let numbered = parts.into_iter().enumerate();
        let answers = numbered.map(|(at, data)| {
            Ok(v1::BackupResponse {
                cluster_id: vec![7; 16].into(),
                data,
                digest: match at + 1 == count {
                    true => digest.clone(),
                    false => Bytes::new(),
                },
                ..Default::default()
            })
        });
        let answers: Vec<_> = answers.collect();
        let answers = tokio_stream::iter(answers);
        Ok(Response::new(match self.0 {
            End::Silent => Box::pin(answers.chain(tokio_stream::pending())),
            _ => Box::pin(answers),
        }))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answered<v1::StatusResponse> {
        unasked()
    }

    async fn list_members(
        &self,
        _: Request<v1::ListMembersRequest>,
    ) -> Answered<v1::ListMembersResponse> {
        unasked()
    }

    async fn add_member(
        &self,
        _: Request<v1::AddMemberRequest>,
    ) -> Answered<v1::AddMemberResponse> {
        unasked()
    }

    async fn promote_member(
        &self,
        _: Request<v1::PromoteMemberRequest>,
    ) -> Answered<v1::PromoteMemberResponse> {
        unasked()
    }

    async fn remove_member(
        &self,
        _: Request<v1::RemoveMemberRequest>,
    ) -> Answered<v1::RemoveMemberResponse> {
        unasked()
    }

    async fn transfer_leader(
        &self,
        _: Request<v1::TransferLeaderRequest>,
    ) -> Answered<v1::TransferLeaderResponse> {
        unasked()
    }

    async fn configure(&self, _: Request<v1::ConfigureRequest>) -> Answered<v1::ConfigureResponse> {
        unasked()
    }
}

/// A node greets each client on a stream that stays open.
#[tonic::async_trait]
impl Connection for Sender {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<v1::ServerMessage, Status>> + Send>>;

    async fn stream(
        &self,
        _: Request<tonic::Streaming<v1::ClientMessage>>,
    ) -> Answered<Self::StreamStream> {
        let greeting = v1::Greeting {
            cluster_id: vec![7; 16].into(),
            node_id: 1,
            leader_id: 1,
            term: 1,
            ..Default::default()
        };
        let frame = v1::ServerFrame {
            id: 0,
            body: Some(v1::server_frame::Body::Greeting(greeting)),
        };
        let first = Ok(v1::ServerMessage {
            frames: vec![frame],
        });
        let stream = tokio_stream::once(first).chain(tokio_stream::pending());
        Ok(Response::new(Box::pin(stream)))
    }
}

/// A node whose stream ends so, until it is aborted; and its address.
async fn sender(end: End) -> (JoinHandle<()>, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sender = Sender(end);
    let served = Server::builder()
        .add_service(ClusterServer::new(sender))
        .add_service(ConnectionServer::new(sender))
        .serve_with_incoming(TcpListenerStream::new(listener));
    let serving = tokio::spawn(async { served.await.unwrap() });
    (serving, address)
}

/// Takes a backup of a node whose stream ends so. Also the most memory that the command had, in bytes.
async fn taken(s3: &S3, end: End, key: &str) -> (Output, u64) {
    let (serving, address) = sender(end).await;
    let url = s3.url(key);
    // Python says how much memory its largest child had.
    let mut command = Command::new("python3");
    command
        .env_clear()
        .envs(s3.variables())
        .args(["-c", MEASURED])
        .arg(ringfence_tests::server())
        .args(["--timeout", "60s", "--endpoints", &address, "backup", &url]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    serving.abort();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let most = errors.lines().find_map(|line| line.strip_prefix("MOST "));
    let most: u64 = most.unwrap_or_else(|| panic!("{errors}")).parse().unwrap();
    (output, most * 1024)
}

/// Runs a command, and says how many KiB it had at most.
const MEASURED: &str = "import resource, subprocess, sys\n\
    code = subprocess.run(sys.argv[1:]).returncode\n\
    print('MOST', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\n\
    sys.exit(code)";

#[tokio::test(flavor = "multi_thread")]
async fn a_large_backup_is_streamed_and_nothing_of_a_broken_one_is_seen() {
    let Some(s3) = S3::start() else { return };
    let (output, most) = taken(&s3, End::Whole, "whole").await;
    let expected = parts(End::Whole);
    let hex = hex(&digest(&expected));
    assert_eq!(said(&output), hex);
    assert!(fs::read(s3.file("whole")).unwrap() == expected.concat());
    // Without optimization the command has 40 MiB before it does anything.
    let bytes = (PART * PARTS) as u64 / 4 * 3;
    assert!(most < bytes, "{most} bytes of memory, of at most {bytes}");

    for end in [End::Torn, End::OtherDigest] {
        let (output, _) = taken(&s3, end, "broken").await;
        assert_eq!(output.status.code(), Some(69), "{end:?}: {output:?}");
        assert!(!s3.file("broken").exists(), "{end:?}");
        assert_eq!(s3.files(), [s3.file("whole")], "{end:?}: no part is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_killed_in_the_middle_leaves_nothing_that_looks_like_a_backup() {
    let Some(s3) = S3::start() else { return };
    let (serving, address) = sender(End::Silent).await;
    let url = s3.url("prod/killed");
    let mut command = Command::new(ringfence_tests::server());
    command.env_clear().envs(s3.variables()).args([
        "--timeout",
        "60s",
        "--endpoints",
        &address,
        "backup",
        &url,
    ]);
    let mut child = command.spawn().unwrap();
    let has_parts = async {
        while s3.files().len() < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let has_parts = tokio::time::timeout(LONG, has_parts).await;
    has_parts.expect("parts arrive");
    child.kill().unwrap();
    child.wait().unwrap();
    serving.abort();
    assert!(!s3.file("prod/killed").exists());
    let mut verify = Command::new(ringfence_tests::server());
    verify.env_clear().envs(s3.variables());
    let verified = verify.args(["backup", "verify", &url]).output().unwrap();
    assert!(refused(&verified).contains("prod/killed does not exist"));
}
