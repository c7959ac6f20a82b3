//! A hostile client at work: random RPCs with random fields, each answer judged.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringfence_proto::v1::{ClientMessage, KeepAliveRequest};
use ringfence_tests::Journal;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use super::bandit::{Bandit, Shown};
use super::calls::call;
use super::figures::Figures;
use super::judge::Asked;
use super::known::Known;
use super::messages::{Draw, Method, Schema};

/// How long it waits for an answer, in milliseconds.
const PATIENCE: Range<u64> = 300..3_000;
/// How long its streams stay open.
const STREAM: Range<u64> = 50..700;
/// Nearly as much as a header may have, in bytes; what is longer never arrives.
const LONG_HEADER: usize = 11 << 10;

/// What all hostile clients of a hunt share.
pub(super) struct Raid {
    pub(super) endpoints: Vec<String>,
    pub(super) schema: Schema,
    pub(super) known: Known,
    pub(super) figures: Arc<Figures>,
    /// Tokens of others, which are shown damaged.
    pub(super) tokens: Vec<String>,
    pub(super) until: Duration,
}

type Headers = Vec<(&'static str, MetadataValue<Ascii>)>;

impl Raid {
    /// Attacks until the end.
    pub(super) async fn attack(self: Arc<Self>, bandit: Bandit, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut channels: Vec<Channel> = self.endpoints.iter().map(|to| connect(to)).collect();
        while Journal::now() < self.until {
            let at = random.random_range(0..channels.len());
            if random.random_range(0..200) == 0 {
                channels[at] = connect(&self.endpoints[at]);
            }
            let method = self.method(&mut random);
            let sent = self.requests(&mut random, method, &bandit);
            let headers = self.headers(&mut random, &bandit);
            let patience = match method.is_stream {
                true => random.random_range(STREAM),
                false => random.random_range(PATIENCE),
            };
            let patience = Duration::from_millis(patience);
            let path = format!("/ringfence.v1.{}", method.name);
            let channel = channels[at].clone();
            let answer = call(channel, path, sent.clone(), &headers, patience).await;

            let (what, word) = (bandit.name, Asked::word(&answer));
            self.figures
                .count(&format!("{what}: {}", method.name), &word);
            self.figures.count(&format!("all of {what}"), &word);
            let asked = Asked {
                bandit: &bandit,
                known: &self.known,
                rpc: &method.name,
                sent: &sent,
            };
            if let Err(wrong) = asked.judge(&answer) {
                let (rpc, sent) = (&method.name, shown(&sent));
                let found = format!("{} by {what}: {wrong}\n  it sent {sent}", rpc);
                self.figures.found(&found);
            }
            self.known.tidy();
        }
    }

    fn method(&self, random: &mut StdRng) -> &Method {
        let often = [
            "Leases/Acquire",
            "Sessions/Open",
            "Sessions/KeepAlive",
            "Connection/Stream",
        ];
        let methods = &self.schema.methods;
        let wanted = often[random.random_range(0..often.len())];
        let found = methods.iter().find(|method| method.name == wanted);
        match (random.random_range(0..3), found) {
            (0, Some(method)) => method,
            _ => &methods[random.random_range(0..methods.len())],
        }
    }

    fn requests(&self, random: &mut StdRng, method: &Method, bandit: &Bandit) -> Vec<Bytes> {
        let count = match method.takes_stream {
            // A stream of one message is closed behind it.
            true => random.random_range(1..5),
            false => 1 + usize::from(random.random_range(0..60) == 0),
        };
        let mut draw = Draw {
            random,
            known: &self.known,
            of: bandit.name,
        };
        let drawn = (0..count).map(|_| {
            let bytes = self.schema.request(&mut draw, method);
            self.numbered(draw.random, method, bytes)
        });
        drawn.collect()
    }

    /// Mostly each frame has a number of its own, so that each answer can be judged.
    fn numbered(&self, random: &mut StdRng, method: &Method, bytes: Bytes) -> Bytes {
        if random.random_range(0..20) == 0 {
            return bytes;
        }
        match method.name.as_str() {
            "Connection/Stream" => match ClientMessage::decode(bytes.clone()) {
                Ok(mut message) => {
                    for frame in &mut message.frames {
                        frame.id = self.known.number();
                    }
                    message.encode_to_vec().into()
                }
                Err(_) => bytes,
            },
            "Sessions/KeepAlive" => match KeepAliveRequest::decode(bytes.clone()) {
                Ok(mut request) => {
                    request.id = self.known.number();
                    request.encode_to_vec().into()
                }
                Err(_) => bytes,
            },
            _ => bytes,
        }
    }

    fn headers(&self, random: &mut StdRng, bandit: &Bandit) -> Headers {
        let mut headers = Headers::new();
        let shown = match &bandit.shown {
            Shown::Nothing => match random.random_range(0..10) {
                0 => Some("Basic bWFsbG9yeQ==".to_owned()),
                _ => None,
            },
            Shown::Token(token) | Shown::Barred(token) => Some(format!("Bearer {token}")),
            Shown::Garbage => Some(format!("Bearer {}", self.garbage(random))),
        };
        let shown = shown.and_then(|text| text.parse().ok());
        headers.extend(shown.map(|value| ("authorization", value)));
        if random.random_range(0..40) == 0 {
            let long = "h".repeat(random.random_range(0..LONG_HEADER));
            headers.push(("x-forwarded-for", long.parse().unwrap()));
        }
        headers
    }

    /// A credential that is none.
    fn garbage(&self, random: &mut StdRng) -> String {
        let letter = |random: &mut StdRng| char::from(random.random_range(b'!'..=b'~'));
        match random.random_range(0..7) {
            0 => "e30.e30.".to_owned(),
            1 => format!(
                "eyJhbGciOiJub25lIn0.{}.",
                "e30".repeat(random.random_range(0..3_000))
            ),
            2 => (0..random.random_range(1..LONG_HEADER))
                .map(|_| letter(random))
                .collect(),
            3 => "a.b".repeat(random.random_range(1..40)),
            _ => {
                // The token of another, with one letter changed: mostly its secret is wrong.
                let token = &self.tokens[random.random_range(0..self.tokens.len())];
                let mut letters: Vec<char> = token.chars().collect();
                let at = random.random_range(0..letters.len());
                letters[at] = match letters[at] {
                    'x' => 'y',
                    _ => 'x',
                };
                letters.into_iter().collect()
            }
        }
    }
}

fn connect(to: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{to}")).unwrap();
    endpoint
        .connect_timeout(Duration::from_millis(500))
        .connect_lazy()
}

fn shown(sent: &[Bytes]) -> String {
    let shown = sent.iter().map(|bytes| {
        let begin = &bytes[..bytes.len().min(300)];
        format!("{begin:?} ({} bytes)", bytes.len())
    });
    shown.collect::<Vec<_>>().join(", ")
}
