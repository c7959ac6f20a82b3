//! What goes wrong at a bucket, and how a caller proves itself there.

use std::io::{Read, Write};
use std::net::TcpListener;

use ringfence_testkit::ports::Port;
use ringfence_testkit::s3::KEY;

use super::*;

/// A port where nothing listens, as an endpoint.
fn closed(port: &Port) -> String {
    format!("http://{}", port.address())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_bucket_refuses_is_said_with_what_to_do() {
    let Some(s3) = S3::start() else { return };
    let mut cluster = one_node(&s3, Vec::new()).await;
    let url = s3.url("x.backup");
    let port = Port::any();
    let closed = closed(&port);
    // It takes connections, and answers no handshake.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}", mute.local_addr().unwrap());
    let take = ["backup", &url];
    let verify = ["backup", "verify", &url];
    let secret = [("AWS_SECRET_ACCESS_KEY", "hunter2")];
    let none = [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_METADATA_ENDPOINT", &*closed),
    ];
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], i32, &'a [&'a str]);
    let cases: [Case; 17] = [
        (
            &[],
            &["backup", "s3://elsewhere/x.backup"],
            71,
            &[
                "the bucket of s3://elsewhere/x.backup does not exist at http://",
                "; make it",
            ],
        ),
        (
            &[],
            &["backup", "verify", "s3://elsewhere/x"],
            71,
            &["the bucket of s3://elsewhere/x"],
        ),
        (
            &secret,
            &take,
            77,
            &[
                "SignatureDoesNotMatch",
                "check AWS_ACCESS_KEY_ID and AWS_SECRET",
            ],
        ),
        (
            &secret,
            &verify,
            77,
            &[
                "SignatureDoesNotMatch",
                "check AWS_ACCESS_KEY_ID and AWS_SECRET",
            ],
        ),
        // Amazon says `InvalidAccessKeyId`, with 403.
        (
            &[("AWS_ACCESS_KEY_ID", "other")],
            &take,
            69,
            &["No user exists", "check AWS_ACCESS"],
        ),
        (
            &none,
            &take,
            77,
            &[
                "no credentials for s3://backups/x.backup",
                "set AWS_ACCESS_KEY_ID",
            ],
        ),
        (
            &[("AWS_SECRET_ACCESS_KEY", "")],
            &take,
            69,
            &["AWS_SECRET_ACCESS_KEY"],
        ),
        (
            &[("AWS_REGION", "eu-west-1")],
            &take,
            69,
            &[
                "is not where it was looked for",
                "eu-west-1",
                "us-east-1",
                "correct AWS_REGION",
            ],
        ),
        (&[], &verify, 71, &["backups/x.backup does not exist"]),
        (
            &[("AWS_ALLOW_HTTP", "false")],
            &take,
            69,
            &["AWS_ALLOW_HTTP=true"],
        ),
        (
            &[("AWS_ENDPOINT_URL", &closed)],
            &take,
            69,
            &[
                "cannot be reached",
                &closed,
                "Connection refused",
                "check AWS_REGION and",
            ],
        ),
        (
            &[("AWS_ENDPOINT_URL", &silent)],
            &take,
            69,
            &["cannot be reached", &silent, "does it speak TLS?"],
        ),
        (
            &[("AWS_ENDPOINT_URL_S3", "http://id:hunter2@127.0.0.1:1")],
            &take,
            69,
            &[
                "AWS_ENDPOINT_URL_S3 is no URL of a server",
                "no user, password",
            ],
        ),
        // The library would panic.
        (
            &[("AWS_ENDPOINT_URL", "127.0.0.1:1")],
            &take,
            69,
            &["expected https://HOST"],
        ),
        (
            &[("AWS_ACCESS_KEY_ID", "hunter2\n")],
            &take,
            69,
            &["AWS_ACCESS_KEY_ID has a line break"],
        ),
        (
            &[],
            &["backup", "s3://id:hunter2@backups/x"],
            2,
            &["credentials come from the environment"],
        ),
        (
            &[],
            &["backup", "verify", "s3://backups/prod/"],
            2,
            &["names no object"],
        ),
    ];
    for (changed, arguments, code, expected) in cases {
        let output = with_bucket(&cluster, &s3, changed, arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {output:?}"
        );
        let said = refused(&output);
        for expected in expected {
            assert!(said.contains(expected), "{changed:?} {arguments:?}: {said}");
        }
    }
    assert_eq!(s3.files(), Vec::<PathBuf>::new(), "nothing was kept");

    // A node that has to be restored does not begin without what it is restored from.
    kill_all(&mut cluster);
    fs::remove_dir_all(cluster.data_dir(0)).unwrap();
    let zeros = "0".repeat(64);
    let mut node = cluster.command(0);
    node.args(["--restore", &url, "--digest", &zeros])
        .envs(secret);
    let output = node.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = refused(&output);
    assert!(
        said.contains("SignatureDoesNotMatch") && !said.contains("hunter2"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_a_store_has_to_be_trusted() {
    let Some(s3) = S3::start_with_tls() else {
        return;
    };
    let cluster = one_node(&s3, Vec::new()).await;
    let url = s3.url("x.backup");
    let digest = said(&with_bucket(&cluster, &s3, &[], &["backup", &url]));
    let verify = ["backup", "verify", &url, "--digest", &digest];
    said(&with_bucket(&cluster, &s3, &[], &verify));
    for (file, expected) in [
        ("", "invalid peer certificate: UnknownIssuer"),
        (
            "/no/such/file",
            "SSL_CERT_FILE and SSL_CERT_DIR name no certificate of an authority",
        ),
    ] {
        let output = with_bucket(&cluster, &s3, &[("SSL_CERT_FILE", file)], &verify);
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        let said = refused(&output);
        assert!(
            said.contains(expected) && said.contains("PEM file"),
            "{said}"
        );
    }
}

/// A workload of Kubernetes has a token in a file, and an agent of the machine takes it for the
/// credentials of a role.
#[tokio::test(flavor = "multi_thread")]
async fn the_identity_of_a_workload_is_enough() {
    let Some(s3) = S3::start() else { return };
    let cluster = one_node(&s3, Vec::new()).await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let agent = format!("http://{}/v1/credentials", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let count = stream.read(&mut request).unwrap();
        let body = serde_json::json!({
            "AccessKeyId": KEY,
            "SecretAccessKey": SECRET,
            "Token": "",
            "Expiration": "2100-01-01T00:00:00Z",
        })
        .to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..count]).into_owned()
    });
    let identity = [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*agent),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            token.to_str().unwrap(),
        ),
    ];
    let url = s3.url("x.backup");
    fs::write(&token, "of-the-workload\n").unwrap();
    let odd = refused(&with_bucket(&cluster, &s3, &identity, &["backup", &url]));
    assert!(
        odd.contains("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
        "{odd}"
    );
    fs::write(&token, "of-the-workload").unwrap();
    said(&with_bucket(&cluster, &s3, &identity, &["backup", &url]));
    let asked = asked.join().unwrap();
    assert!(asked.starts_with("GET /v1/credentials ") && asked.contains("of-the-workload"));
    assert!(s3.file("x.backup").exists());
}
