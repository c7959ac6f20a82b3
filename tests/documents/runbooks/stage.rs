//! Three nodes as the document has them: in one directory, by their configuration files.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringfence_testkit::ports::Port;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use super::commands;
use super::holders::{Holders, write};
use super::waits::{comes_true, texts};

/// n1 to n3, and n4, which is not started.
const NODES: usize = 4;

struct Place {
    client: Port,
    peer: Port,
    http: Port,
    /// The process that the test has started, until it was killed.
    process: Option<(Pid, JoinHandle<()>)>,
}

/// The nodes, and all that was started by the commands of a runbook; it ends with the test.
pub(super) struct Stage {
    folder: TempDir,
    places: Vec<Place>,
    /// Process groups of commands.
    groups: Vec<Pid>,
    /// Stands before the commands and n3: enters the namespace in which n3 has its disk.
    pub(super) wrapper: Vec<String>,
    /// The environment of n3.
    pub(super) environment: Vec<(String, PathBuf)>,
    /// In the addresses of clients, for TLS.
    scheme: &'static str,
    granted: u64,
}

impl Stage {
    /// Starts nodes with these further lines in their configuration, and waits until they serve.
    pub(super) fn start(more: &str) -> Self {
        let mut stage = Self::new(more);
        for node in 1..=3 {
            stage.spawn(node);
        }
        stage.until_served();
        stage
    }

    /// The files alone. `NAME` in the lines stands for the name of the node.
    pub(super) fn new(more: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ringfence-runbook-")
            .tempdir();
        let folder = folder.expect("a temporary folder");
        let places: Vec<Place> = (0..NODES)
            .map(|_| Place {
                client: Port::any(),
                peer: Port::any(),
                http: Port::any(),
                process: None,
            })
            .collect();
        let peer = |at: usize| places[at].peer.address();
        let first = format!(
            "[\"n1={}\", \"n2={}\", \"n3={}\"]",
            peer(0),
            peer(1),
            peer(2)
        );
        for (at, place) in places.iter().enumerate() {
            let name = format!("n{}", at + 1);
            let cluster = match at {
                0..3 => format!("initial-cluster = {first}"),
                _ => format!("join = [\"{}\"]", peer(0)),
            };
            let text = format!(
                "name = \"{name}\"\ndata-dir = \"{name}/data\"\nlisten-client = \"{}\"\n\
                 listen-peer = \"{}\"\nlisten-http = \"{}\"\n{cluster}\n\
                 wal-segment-bytes = 1048576\n{}\n",
                place.client.address(),
                place.peer.address(),
                place.http.address(),
                more.replace("NAME", &name),
            );
            fs::write(folder.path().join(format!("{name}.toml")), text).expect("a file");
            fs::create_dir(folder.path().join(&name)).expect("a folder");
        }
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).expect("a folder");
        let server = ringfence_tests::server();
        std::os::unix::fs::symlink(server, bin.join("ringfence")).expect("a link");
        let scheme = if more.contains("cert-file") {
            "https://"
        } else {
            ""
        };
        Self {
            folder,
            places,
            groups: Vec::new(),
            wrapper: Vec::new(),
            environment: Vec::new(),
            scheme,
            granted: 0,
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a runbook's commands find in their environment.
    fn command(&self, program: &str) -> Command {
        let mut command = match self.wrapper.split_first() {
            None => Command::new(program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.path("bin").display());
        let home = std::env::var("HOME").unwrap_or_default();
        command
            .env_clear()
            .envs([("PATH", path), ("HOME", home)])
            .env("RINGFENCE_ENDPOINTS", self.endpoints())
            .current_dir(self.folder.path());
        if !self.scheme.is_empty() {
            command.env("RINGFENCE_CACERT", "ca.pem");
        }
        for (at, place) in self.places.iter().enumerate() {
            let name = format!("n{}", at + 1);
            let client = format!("{}{}", self.scheme, address(&place.client, self.scheme));
            command.env(format!("{name}_client"), client);
            command.env(format!("{name}_http"), place.http.address().to_string());
            if let Some((pid, _)) = &place.process {
                command.env(name, pid.as_raw_nonzero().to_string());
            }
        }
        command
    }

    fn endpoints(&self) -> String {
        let endpoints = self.places.iter().take(3);
        let endpoints = endpoints
            .map(|place| format!("{}{}", self.scheme, address(&place.client, self.scheme)));
        endpoints.collect::<Vec<_>>().join(",")
    }

    /// Starts a node.
    pub(super) fn spawn(&mut self, node: usize) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("n{node}.log")));
        let mut command = match node {
            3 => self.command("ringfence"),
            _ => {
                let wrapper = std::mem::take(&mut self.wrapper);
                let command = self.command("ringfence");
                self.wrapper = wrapper;
                command
            }
        };
        if node == 3 {
            command.envs(self.environment.iter().map(|(name, path)| (name, path)));
        }
        command
            .args(["serve", "--config", &format!("n{node}.toml")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        let mut child = command.spawn().expect("the node starts");
        let pid = pid_of(&child);
        // A process that no parent waits for would seem to run on.
        let reaped = thread::spawn(move || {
            child.wait().ok();
        });
        self.places[node - 1].process = Some((pid, reaped));
    }

    /// Kills a node with SIGKILL.
    pub(super) fn kill(&mut self, node: usize) {
        if let Some((pid, reaped)) = self.places[node - 1].process.take() {
            // The number of one that has ended may be another process's by now.
            if !reaped.is_finished() {
                kill_process(pid, Signal::KILL).ok();
            }
            reaped.join().ok();
        }
    }

    /// Empties the disk of a node that does not run.
    pub(super) fn lose_disk(&self, node: usize) {
        let disk = self.path(&format!("n{node}"));
        fs::remove_dir_all(&disk).expect("a disk");
        fs::create_dir(&disk).expect("an empty one");
    }

    /// Runs the commands of a runbook, and returns what they have said.
    pub(super) fn run(&mut self, heading: &str) -> String {
        let mut running = self.begin(heading);
        running.wait();
        running.said()
    }

    /// Begins to run the commands of a runbook.
    pub(super) fn begin(&mut self, heading: &str) -> Running {
        let text = commands(heading);
        let said = self.path(&format!("said-{}", self.groups.len()));
        let mut shell = self.command("bash");
        shell
            .args(["-eu", "-c", &text])
            .stdin(Stdio::null())
            .stdout(File::create(&said).expect("a file"))
            .stderr(File::options().append(true).open(&said).expect("a file"))
            .process_group(0);
        let child = shell.spawn().expect("a shell");
        self.groups.push(pid_of(&child));
        Running {
            heading: heading.to_owned(),
            child,
            said,
        }
    }

    /// Runs `ringfence` to its end, which is to be good.
    pub(super) fn ringfence(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let said = texts(&output);
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    }

    /// Runs `ringfence`, which is to be refused, and returns why.
    pub(super) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let said = texts(&output);
        assert!(!output.status.success(), "{arguments:?}: {said}");
        said
    }

    /// Whether `ringfence` does this now.
    pub(super) fn does(&self, arguments: &[&str]) -> bool {
        self.output(arguments).status.success()
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = self.command("ringfence");
        command.args(["--timeout", "20s"]).args(arguments);
        command.output().expect("it runs")
    }

    /// The token of a grant of a name that has none yet.
    pub(super) fn grant(&mut self) -> u64 {
        self.granted += 1;
        self.grant_of(&format!("check/{}", self.granted))
    }

    pub(super) fn grant_of(&self, name: &str) -> u64 {
        let said = self.ringfence(&["--json", "lease", "acquire", name, "--ttl", "60s"]);
        number(&said, "token")
    }

    pub(super) fn last_token(&self) -> u64 {
        number(
            &self.ringfence(&["--json", "cluster", "status"]),
            "last_token",
        )
    }

    pub(super) fn back_up(&mut self) {
        // The first block of that part; the rest is shown by another test.
        let text = commands("Be prepared");
        let text = text.lines().take(2).collect::<Vec<_>>().join("\n");
        let done = self.command("bash").args(["-eu", "-c", &text]).output();
        let done = done.expect("a shell");
        assert!(done.status.success(), "{text}: {}", texts(&done));
    }

    /// Starts a node in another data directory, which does not run for long.
    pub(super) fn serve_again(&self, data_dir: &str) -> String {
        // By the ports of n4, since n3 runs.
        let node = [
            "--config",
            "n4.toml",
            "--name",
            "n3",
            "--data-dir",
            data_dir,
        ];
        self.refused(&[&["serve"], &node[..]].concat())
    }

    pub(super) fn log(&self, node: usize) -> String {
        fs::read_to_string(self.path(&format!("n{node}.log"))).unwrap_or_default()
    }

    /// What a node says at `/readyz`; nothing if it does not answer.
    pub(super) fn ready(&self, node: usize) -> String {
        self.page(node, "/readyz")
    }

    /// The same of another page of its HTTP port.
    pub(super) fn page(&self, node: usize, path: &str) -> String {
        let address = self.places[node - 1].http.address();
        let asked = || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: n\r\n\r\n").as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        asked().unwrap_or_default()
    }

    fn until_served(&self) {
        self.until("the cluster serves", |stage| stage.does(&["doctor"]));
    }

    pub(super) fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let came = comes_true(|| holds(self));
        let logs: Vec<String> = (1..=3).map(|node| self.log(node)).collect();
        assert!(came, "waited in vain: {what}\n{}", logs.join("\n"));
    }

    /// Whether the guard of the store admits a write under this token.
    pub(super) fn write(&self, token: u64) -> bool {
        write(self.command("ringfence"), token)
    }

    /// Holders that write under these tokens, again and again.
    pub(super) fn holders(&self, tokens: &[u64]) -> Holders {
        let (folder, store) = (self.folder.path(), self.path("store.db"));
        Holders::start(folder, store, &self.path("bin/ringfence"), tokens)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for group in &self.groups {
            // One that has ended does not mind.
            kill_process_group(*group, Signal::KILL).ok();
        }
        for node in 1..=NODES {
            self.kill(node);
        }
    }
}

/// The commands of a runbook, under way.
pub(super) struct Running {
    heading: String,
    child: Child,
    said: PathBuf,
}

impl Running {
    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Waits for their good end.
    pub(super) fn wait(&mut self) {
        let mut status = None;
        let ended = comes_true(|| {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        assert!(ended, "{} takes too long: {}", self.heading, self.said());
        let is_good = status.is_some_and(|status| status.success());
        assert!(is_good, "{}: {}", self.heading, self.said());
    }
}

/// A certificate has the name.
fn address(port: &Port, scheme: &str) -> String {
    match scheme {
        "" => port.address().to_string(),
        _ => format!("localhost:{}", port.number()),
    }
}

fn number(said: &str, name: &str) -> u64 {
    let mark = format!("\"{name}\":");
    let behind = said.split(&mark).nth(1);
    let digits = behind.map(|text| text.split(|letter: char| !letter.is_ascii_digit()).next());
    let digits = digits.flatten().unwrap_or_default();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no {name}: {said}"))
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Whether a program is on the path.
pub(super) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).exists())
}
