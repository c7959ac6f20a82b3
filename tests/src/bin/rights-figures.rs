//! What rights cost: cycles of two clusters in turns, one without rights and one that enforces 1,000
//! rules for 10,000 principals, each of which has a session open in it.
//!
//! `rights-figures [ROUNDS] [SECONDS]`: prints a line for each round, and the medians of the ratios. The
//! same caller with the same token asks at both, so the ratio is that of judging, not of proving. It is
//! allowed by a rule for all principals; the others are for one principal each.
//!
//! It starts the `ringfence` that lies in its own folder:
//!
//! ```sh
//! cargo build --release -p ringfence-tests --bin rights-figures -p ringfence --bin ringfence
//! target/release/rights-figures 10 4
//! ```
//!
//! The figures of a debug build mean nothing, and it says so.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use ringfence_tests::{Beside, Cluster, Options};
use serde_json::{Value, json};
use tokio::task::JoinSet;

type Fallible<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PRINCIPALS: usize = 10_000;
const RULES: usize = 1_000;
/// The longest TTL that a cluster allows by default: these sessions send no keep-alives.
const TTL: Duration = Duration::from_mins(5);
const CLIENTS: &str = "64";
const ISSUER: &str = "https://idp.example";
/// The rates of one principal, where rights bind: all that is measured is one's.
const UNLIMITED: [&str; 2] = [
    "--principal-requests-max=1000000000",
    "--principal-bytes-max=1000000000000",
];
/// How many sessions are opened at a time.
const OPENERS: usize = 32;

#[tokio::main]
async fn main() -> Fallible {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let (rounds, seconds) = (number(0, 10)?, number(1, 4)?);
    if rounds == 0 || seconds == 0 {
        return Err("there is nothing to measure in 0 rounds or 0 s".into());
    }
    let server = server()?;
    println!("{}", machine());
    let work = tempfile::tempdir()?;
    let issuer = Issuer::new(work.path())?;
    let caller = work.path().join("caller.jwt");
    fs::write(&caller, issuer.token("p0")?)?;

    let without = ["--access", "off", "--allow-anonymous"];
    let off = start(&server, &issuer, &without).await;
    let enforced = start(&server, &issuer, &["--access", "enforced"]).await;
    apply_rules(&server, &enforced, work.path())?;
    for cluster in [&off, &enforced] {
        open_sessions(cluster, &issuer).await?;
    }
    println!(
        "{PRINCIPALS} sessions of as many principals in each cluster, {RULES} rules in one; \
         {CLIENTS} clients, {rounds} rounds of {seconds} s each, in turns"
    );
    // What begins cold is not counted.
    for cluster in [&off, &enforced] {
        measure(&server, cluster, &caller, seconds)?;
    }
    println!("round     off/s  enforced/s   ratio   off us  enforced us   ratio");
    let (mut throughput, mut processor) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        // Who begins has a cooler machine, or a busier one.
        let mut pair = [None, None];
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let cluster = [&off, &enforced][at];
            pair[at] = Some(measure(&server, cluster, &caller, seconds)?);
        }
        let [Some(plain), Some(judged)] = pair else {
            return Err("both clusters were measured".into());
        };
        let (faster, dearer) = (
            judged.per_second / plain.per_second,
            judged.processor / plain.processor,
        );
        println!(
            "{round:5}  {:8.0}  {:10.0}  {faster:6.3}  {:7.1}  {:11.1}  {dearer:6.3}",
            plain.per_second, judged.per_second, plain.processor, judged.processor
        );
        throughput.push(faster);
        processor.push(dearer);
    }
    for cluster in [&off, &enforced] {
        let left = sessions(&server, cluster, &caller)?;
        if left < PRINCIPALS as u64 {
            let why = format!(
                "only {left} sessions were left of {PRINCIPALS}, so the rounds took longer than the \
                 TTL of {TTL:?}, and their figures do not count; measure in fewer or shorter rounds"
            );
            return Err(why.into());
        }
    }
    println!(
        "enforced to off: throughput {}, processor time of the nodes for a cycle {}",
        spread(&mut throughput),
        spread(&mut processor)
    );
    Ok(())
}

/// Median, and the lowest and the highest.
fn spread(ratios: &mut [f64]) -> String {
    ratios.sort_by(f64::total_cmp);
    let at = |part: usize| ratios.get(part).copied().unwrap_or(f64::NAN);
    let middle = f64::midpoint(at(ratios.len().saturating_sub(1) / 2), at(ratios.len() / 2));
    format!(
        "{middle:.3} ({:.3} to {:.3})",
        at(0),
        at(ratios.len().saturating_sub(1))
    )
}

/// The program that is measured: of the same build as this one.
fn server() -> Fallible<PathBuf> {
    let server = std::env::current_exe()?.with_file_name("ringfence");
    match server.is_file() {
        true => Ok(server),
        false => Err(format!(
            "there is no {}; build it, with --release if this is a release build: cargo build \
             --release -p ringfence --bin ringfence",
            server.display()
        )
        .into()),
    }
}

/// What the figures are of.
fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (processors, load) = (read("/proc/cpuinfo"), read("/proc/loadavg"));
    let mut named = processors.lines().filter_map(|line| line.split_once(':'));
    let model = named.find(|(name, _)| name.trim() == "model name");
    let model = model.map_or("a processor without a name", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = load.split(' ').next().unwrap_or_default();
    let build = match cfg!(debug_assertions) {
        true => "a DEBUG build, whose figures are no measure",
        false => "a release build",
    };
    format!("{model}, {cores} cores, load {load} before; {build}")
}

async fn start(server: &Path, issuer: &Issuer, flags: &[&str]) -> Cluster {
    let flags = flags.iter().map(|flag| (*flag).to_owned());
    Cluster::start(Options {
        server: Some(server.to_owned()),
        flags: flags
            .chain(["--jwt-issuer".to_owned(), issuer.flag.clone()])
            .chain(UNLIMITED.map(str::to_owned))
            .collect(),
        // The two stand beside each other.
        beside: Beside::Anything,
        probed: false,
        ..Options::default()
    })
    .await
}

/// One identity provider, and the flag that makes a node know it.
struct Issuer {
    key: EcdsaKeyPair,
    random: SystemRandom,
    flag: String,
}

impl Issuer {
    fn new(folder: &Path) -> Fallible<Self> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| "no key was made")?;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random)
            .map_err(|_| "a key that was made is one")?;
        // 4, and both coordinates.
        let point = key.public_key().as_ref();
        let jwk = json!({
            "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "one",
            "x": base64url(&point[1..33]), "y": base64url(&point[33..]),
        });
        let jwks = folder.join("jwks.json");
        fs::write(&jwks, json!({ "keys": [jwk] }).to_string())?;
        let flag = format!("idp={ISSUER},audience=ringfence,jwks={}", jwks.display());
        Ok(Self { key, random, flag })
    }

    /// A token that is good for an hour.
    #[expect(
        clippy::disallowed_methods,
        reason = "the end of a token is a wall time, by RFC 7519"
    )]
    fn token(&self, subject: &str) -> Fallible<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let header = json!({ "alg": "ES256", "kid": "one" });
        let claims =
            json!({ "iss": ISSUER, "aud": "ringfence", "sub": subject, "exp": now + 3_600 });
        let part = |value: &Value| base64url(value.to_string().as_bytes());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(&self.random, signed.as_bytes());
        let signature = signature.map_err(|_| "a token is signed")?;
        Ok(format!("{signed}.{}", base64url(signature.as_ref())))
    }
}

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// One rule for all principals, and others for one principal each.
fn apply_rules(server: &Path, cluster: &Cluster, folder: &Path) -> Fallible {
    let rule = |principal: &str, names: &str| {
        format!(
            "[[rule]]\nprincipals = [\"{principal}\"]\nverb = \"acquire\"\nnames = [\"{names}\"]\n"
        )
    };
    let mut rules = rule("jwt:idp:*", "bench/*");
    for at in 1..RULES {
        rules += &rule(&format!("jwt:idp:p{at}"), &format!("team-{at}/*"));
    }
    let file = folder.join("rules.toml");
    fs::write(&file, rules)?;
    let socket = format!("unix:{}", cluster.data_dir(0).join("admin.sock").display());
    let mut apply = Command::new(server);
    apply.args(["--endpoints", &socket, "access", "apply", "-f"]);
    let made = apply.arg(&file).output()?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into());
    }
    Ok(())
}

async fn open_sessions(cluster: &Cluster, issuer: &Issuer) -> Fallible {
    let caller = cluster.caller();
    let mut openers = JoinSet::new();
    for part in 0..OPENERS {
        let tokens = (part..PRINCIPALS).step_by(OPENERS);
        let tokens: Vec<_> = tokens
            .map(|at| issuer.token(&format!("p{at}")))
            .collect::<Result<_, _>>()?;
        let caller = caller.clone();
        openers.spawn(async move {
            for token in tokens {
                let opened = caller.with_token(&token).open("figures", TTL).await;
                opened.map_err(|failure| format!("{failure:?}"))?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(opened) = openers.join_next().await {
        opened??;
    }
    Ok(())
}

struct Measured {
    /// Cycles in a second.
    per_second: f64,
    /// Processor time of all nodes for a cycle, in microseconds.
    processor: f64,
}

fn measure(server: &Path, cluster: &Cluster, token: &Path, seconds: u64) -> Fallible<Measured> {
    let before = processor_time(cluster)?;
    let mut bench = Command::new(server);
    bench.args([
        "--json",
        "bench",
        "cycle",
        "--clients",
        CLIENTS,
        "--seconds",
    ]);
    bench.arg(seconds.to_string());
    bench.args(["--endpoints", &cluster.endpoints().join(",")]);
    let said = bench.arg("--token-file").arg(token).output()?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).into());
    }
    let spent = processor_time(cluster)?.saturating_sub(before);
    let sheet: Value = serde_json::from_slice(&said.stdout)?;
    let figure = |name: &str| sheet[name].as_f64().ok_or("a sheet has figures");
    Ok(Measured {
        per_second: figure("per_second")?,
        processor: spent.as_secs_f64() * 1e6 / figure("done")?,
    })
}

/// How many sessions a cluster has: those that a node of it knows least of.
fn sessions(server: &Path, cluster: &Cluster, token: &Path) -> Fallible<u64> {
    let mut status = Command::new(server);
    status.args(["--json", "--endpoints", &cluster.endpoints().join(",")]);
    status.arg("--token-file").arg(token);
    let said = status.args(["cluster", "status"]).output()?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).into());
    }
    let lines = String::from_utf8(said.stdout)?;
    let nodes = lines.lines().map(serde_json::from_str::<Value>);
    let nodes: Vec<Value> = nodes.collect::<Result<_, _>>()?;
    let counts = nodes.iter().map(|node| node["sessions"].as_u64());
    let least = counts.min().flatten();
    Ok(least.ok_or("each node says how many sessions there are")?)
}

/// Processor time of all nodes so far.
fn processor_time(cluster: &Cluster) -> Fallible<Duration> {
    let mut sum = Duration::ZERO;
    for at in 0..cluster.len() {
        let pid = cluster.pid(at).ok_or("every node runs")?;
        sum += ringfence_tests::processor_time(pid)?;
    }
    Ok(sum)
}
