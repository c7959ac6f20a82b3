//! How a node answers calls with large headers, frame by frame, as `LIMITS.md` says.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::process::{PATIENCE, Process, single};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
/// The largest frame that is sent.
const FRAME_BYTES: usize = 16_000;
/// `:status: 200`, by its place in HPACK's table.
const OK: &[u8] = &[0x88];
/// `:status: 431`, in Huffman's code.
const TOO_LARGE: &[u8] = &[0x48, 0x83, 0x69, 0x90, 0xff];
const ENHANCE_YOUR_CALM: u8 = 11;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags, 0, 0, 0, stream]].concat();
    [&head, payload].concat()
}

/// A text of HPACK: its length behind a prefix of seven bits, and its bytes.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match bytes.len().checked_sub(127) {
        None => out.push(bytes.len() as u8),
        Some(mut rest) => {
            out.push(127);
            while rest >= 128 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
        }
    }
    out.extend(bytes);
    out
}

fn header(name: &str, value: &str) -> Vec<u8> {
    [vec![0], text(name.as_bytes()), text(value.as_bytes())].concat()
}

/// The first frame of one of these kinds that answers a health check with a header of so many bytes.
fn answer(node: &Process, bytes: usize, kinds: &[u8]) -> (u8, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", node.ports.client)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // POST, http.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", "n"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("large", &"a".repeat(bytes)),
    ] {
        block.extend(header(name, value));
    }
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    let parts: Vec<&[u8]> = block.chunks(FRAME_BYTES).collect();
    for (at, part) in parts.iter().enumerate() {
        let kind = if at == 0 { HEADERS } else { CONTINUATION };
        let ends = if at + 1 == parts.len() { 4 } else { 0 };
        sent.extend(frame(kind, ends, 1, part));
    }
    // An empty message, which ends the call.
    sent.extend(frame(0, 1, 1, &[0; 5]));
    // A node that has seen enough may close before it has read all.
    stream.write_all(&sent).ok();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).unwrap();
        if kinds.contains(&head[3]) {
            return (head[3], payload);
        }
    }
}

#[tokio::test]
async fn large_headers_end_the_call_and_very_large_ones_the_connection() {
    let (node, _dir) = single().await;
    let answered = |bytes, kind, begins: &[u8]| {
        let (got, payload) = answer(&node, bytes, &[HEADERS, GOAWAY]);
        assert_eq!(got, kind, "{bytes}: {payload:?}");
        let part = match got {
            GOAWAY => &payload[7..8],
            _ => &payload[..],
        };
        assert!(part.starts_with(begins), "{bytes}: {payload:?}");
    };
    for bytes in [10, 16_000] {
        answered(bytes, HEADERS, OK);
    }
    for bytes in [16_400, 65_000] {
        answered(bytes, HEADERS, TOO_LARGE);
    }
    // The call is over, and the connection is not.
    assert_eq!(answer(&node, 16_400, &[RST_STREAM, GOAWAY]).0, RST_STREAM);
    for bytes in [66_000, 100_000] {
        answered(bytes, GOAWAY, &[ENHANCE_YOUR_CALM]);
    }
}
