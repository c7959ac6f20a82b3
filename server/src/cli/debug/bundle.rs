//! `ringfence debug bundle`: one file with what explains a problem, without secrets.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_access::now_unix;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::archive::Archive;
use super::redact::Redactor;
use crate::cli::doctor::{Answer, ask_all, look};
use crate::cli::output::Output;
use crate::cli::own_node::OwnNode;
use crate::cli::{Failure, Global, cluster, exit};

/// The most bytes of one file in the bundle. Of a longer log the end is taken.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The most entries of a directory that are listed.
const ENTRIES_MAX: usize = 1_000;

/// Gather status, findings, configuration, metrics and the log's end in one file, without secrets
///
/// The file is a tar archive in gzip that its owner alone may read. In each file of it, values behind
/// the names of secrets, PEM blocks, passwords in addresses and words with the form of a credential are
/// replaced. Names of leases, identities and addresses are not: look into the file before it goes to
/// others.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence debug bundle --config /etc/ringfence/ringfence.toml --log /var/log/ringfence.log
  journalctl -u ringfence -n 20000 > n1.log; ringfence debug bundle --log n1.log --output n1.tar.gz")]
pub(crate) struct Bundle {
    /// Where the bundle is written; a file that is there is not replaced [default:
    /// ringfence-debug-SECONDS.tar.gz]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The configuration file of the node on this machine
    #[arg(long, env = "RINGFENCE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory of the node on this machine, in place of the one in --config; its files are
    /// listed and not read
    #[arg(long, env = "RINGFENCE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The log of a node; the last 4 MiB are taken
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The HTTP port of a node without TLS, for its metrics [default: the one in --config]
    #[arg(long, value_name = "IP:PORT")]
    http: Option<SocketAddr>,
}

/// The files of a bundle, and why others are missing. Nothing gets in without the redactor.
#[derive(Default)]
struct Contents {
    files: Vec<(&'static str, String)>,
    missing: Vec<String>,
    redactor: Redactor,
}

impl Contents {
    fn add(
        &mut self,
        name: &'static str,
        made: Result<String, String>,
        shown: impl FnOnce(&mut Redactor, &str) -> String,
    ) {
        match made {
            Ok(text) => self.files.push((name, shown(&mut self.redactor, &text))),
            Err(why) => {
                let why = self.redactor.text(&format!("{name}: {why}"));
                self.missing.push(why);
            }
        }
    }

    fn add_text(&mut self, name: &'static str, made: Result<String, String>) {
        self.add(name, made, |redactor, text| redactor.text(text));
    }

    fn add_objects(&mut self, name: &'static str, objects: impl Iterator<Item = Value>) {
        let line = |object| format!("{}\n", self.redactor.object(object));
        self.files.push((name, objects.map(line).collect()));
    }
}

impl Bundle {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        global.tls.check(global)?;
        let now = now_unix();
        let path = self.output.clone();
        let path = path.unwrap_or_else(|| format!("ringfence-debug-{now}.tar.gz").into());
        let unwritten = |why: &io::Error| {
            Failure::new(exit::SYSTEM, "FAULT", format!("{}: {why}", path.display()))
                .hint("name a new file in a directory that you may write to, with --output")
        };
        // First of all: the rest takes its time.
        let file = create(&path).map_err(|why| unwritten(&why))?;
        let contents = self.gather(global).await;
        let written = write(file, &contents, now);
        if let Err(why) = &written {
            std::fs::remove_file(&path).ok();
            return Err(unwritten(why));
        }
        let names: Vec<&str> = contents.files.iter().map(|(name, _)| *name).collect();
        let object = json!({
            "file": path.display().to_string(),
            "contents": names,
            "missing": contents.missing,
        });
        let mut text = format!("{}: {}", path.display(), names.join(", "));
        for missing in &contents.missing {
            text.push_str(&format!("\nwithout {missing}"));
        }
        text.push_str("\nlook into it before it goes to others: names and addresses are in it");
        Output::new(global).result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }

    async fn gather(self, global: &Global) -> Contents {
        let mut contents = Contents::default();
        // What is known to be secret comes first: it is looked for in all that follows.
        if let Some(Ok(token)) = global.tls.token() {
            contents.redactor.know(&token);
        }
        let of_config = self
            .config
            .as_deref()
            .map_or_else(|| Err("name the file with --config".to_owned()), text);
        contents.add("config.toml", of_config, Redactor::configuration);
        let own = OwnNode::of(self.config, self.data_dir);
        let global = &own.asked(global);
        let answers = ask_all(global).await;
        contents.add_objects("status.jsonl", answers.iter().map(status));

        let found = look(&answers, &own, global).await;
        contents.add_objects("doctor.jsonl", found.iter().map(|finding| finding.object()));
        let of_log = self
            .log
            .as_deref()
            .map_or_else(|| Err("name the file with --log".to_owned()), text);
        contents.add_text("log.txt", of_log);

        let listen = own.config().filter(|config| config.http_tls.is_none());
        let address = self.http.or(listen.map(|config| here(config.listen_http)));
        let metrics = match address {
            Some(address) => metrics(address, global).await,
            None => Err("name the HTTP port of a node with --http".to_owned()),
        };
        contents.add("metrics.txt", metrics, |redactor, text| {
            redactor.figures(text)
        });
        let listed = own.data_dir.map_or_else(
            || Err("name the directory with --data-dir".to_owned()),
            |path| list(&path),
        );
        contents.add_text("data-dir.txt", listed);
        contents
    }
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn write(file: File, contents: &Contents, now: u64) -> io::Result<()> {
    let mut archive = Archive::new(io::BufWriter::new(file), now);
    for (name, text) in &contents.files {
        archive.add(name, text.as_bytes())?;
    }
    let about = format!(
        "ringfence {}\nmade at {now} seconds since 1970\n{}",
        env!("CARGO_PKG_VERSION"),
        contents
            .missing
            .iter()
            .fold(String::new(), |text, missing| text
                + "without "
                + missing
                + "\n"),
    );
    archive.add("about.txt", about.as_bytes())?;
    archive.finish()?.into_inner()?.sync_all()
}

fn status(answer: &Answer) -> Value {
    match &answer.said {
        Err(silence) => json!({ "endpoint": answer.endpoint, "why": silence.why }),
        Ok(said) => {
            let mut object = cluster::status_object(&answer.endpoint, &said.status);
            let members = said.members.iter().map(|member| {
                json!({
                    "node": member.node_id,
                    "name": member.name,
                    "peer_address": member.peer_address,
                    "client_address": member.client_address,
                    "voter": member.voter,
                    "matched_index": member.matched_index,
                })
            });
            object["members"] = members.collect();
            object
        }
    }
}

/// The end of a file, as text.
fn text(path: &Path) -> Result<String, String> {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let cut = length.saturating_sub(FILE_BYTES_MAX);
        file.seek(SeekFrom::Start(cut))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // The first line is a part of one: half a credential would not be found in it.
        Ok(match cut {
            0 => text,
            _ => text
                .split_once('\n')
                .map_or(String::new(), |(_, rest)| rest.to_owned()),
        })
    };
    read().map_err(|why: io::Error| format!("{}: {why}", path.display()))
}

/// Names and sizes of the files in a directory.
fn list(path: &Path) -> Result<String, String> {
    let entries = std::fs::read_dir(path).map_err(|why| format!("{}: {why}", path.display()))?;
    let mut lines: Vec<String> = entries
        .filter_map(Result::ok)
        .take(ENTRIES_MAX)
        .map(|entry| {
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            format!("{bytes:>14} {}\n", entry.file_name().to_string_lossy())
        })
        .collect();
    lines.sort_unstable();
    Ok(lines.concat())
}

/// Where a port of this machine that listens there is reached.
fn here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listen.port())
}

/// What `/metrics` shows. A token goes to this machine alone, since the port has no TLS.
async fn metrics(address: SocketAddr, global: &Global) -> Result<String, String> {
    let token = match global.tls.token() {
        Some(token) if address.ip().is_loopback() => {
            format!("Authorization: Bearer {}\r\n", token?)
        }
        _ => String::new(),
    };
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(FILE_BYTES_MAX).read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer = timeout(global.timeout, asking).await;
    let answer = answer.map_err(|_| format!("{address}: no answer in time"))?;
    let answer = answer.map_err(|why| format!("{address}: {why}"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => Ok(body.to_owned()),
        _ => Err(format!("{address}: HTTP status {status}: {}", body.trim())),
    }
}
