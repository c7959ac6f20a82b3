//! A store that takes an object and whose answer is lost.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use super::*;

/// The head of a request and what came behind it.
fn head(from: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut came = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        if let Some(end) = came.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = came.split_off(end + 4);
            return Some((String::from_utf8(came).unwrap(), body));
        }
        match from.read(&mut buffer) {
            Ok(count) if count > 0 => came.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
}

/// Passes one request on, and its answer back unless that is of a `PUT`.
fn pass(mut caller: TcpStream, store: &str) -> Option<()> {
    let (head, mut body) = head(&mut caller)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().unwrap())
    });
    let came = body.len();
    body.resize(length.unwrap_or(0), 0);
    caller.read_exact(&mut body[came..]).ok()?;
    let (line, fields) = head.split_once("\r\n")?;
    let mut stream = TcpStream::connect(store).ok()?;
    let head = format!("{line}\r\nConnection: close\r\n{fields}");
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    match line.starts_with("PUT ") {
        true => caller.shutdown(Shutdown::Both).ok(),
        false => caller.write_all(&answer).ok(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_whose_answer_is_lost_is_there_and_said_to_be() {
    let Some(s3) = S3::start() else { return };
    let cluster = one_node(&s3, Vec::new()).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = format!("http://{}", listener.local_addr().unwrap());
    let endpoint = s3.variables().into_iter();
    let store = endpoint
        .filter(|(name, _)| name == "AWS_ENDPOINT_URL")
        .find_map(|(_, url)| url.strip_prefix("http://").map(str::to_owned));
    let store = store.unwrap();
    std::thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            let store = store.clone();
            std::thread::spawn(move || pass(caller, &store));
        }
    });
    let changed = [("AWS_ENDPOINT_URL", &*between)];
    let url = s3.url("x.backup");
    let digest = said(&with_bucket(&cluster, &s3, &changed, &["backup", &url]));
    let verify = ["backup", "verify", &url, "--digest", &digest];
    said(&with_bucket(&cluster, &s3, &[], &verify));

    // What is there and is another backup is not this one.
    let other = refused(&with_bucket(&cluster, &s3, &changed, &["backup", &url]));
    assert!(other.contains("exists already"), "{other}");
}
