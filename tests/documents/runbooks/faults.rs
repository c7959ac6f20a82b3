//! Runbooks whose faults take more than a kill: a disk, a clock, certificates.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::UNIX_EPOCH;

use ringfence_testkit::certificates::{Authority, Signed};
use ringfence_tests::Wall;

use super::stage::{Stage, has};
use super::waits::pause;

const DAY: i64 = 86_400;
/// Room for a log and its segments in reserve; little, so that it is soon full.
const DISK: &str = "24m";

/// A disk in a namespace of its own, which ends with this process.
struct Disk(Child);

impl Disk {
    /// A file system in memory at `n3`; none where this process may make no namespace.
    fn mount(stage: &Stage) -> Option<Self> {
        let script = format!("mount -t tmpfs -o size={DISK} none n3 && : > mounted && exec cat");
        let child = Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "bash",
                "-c",
                &script,
            ])
            .current_dir(stage.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut disk = Self(child.ok()?);
        loop {
            if stage.path("mounted").exists() {
                return Some(disk);
            }
            if disk.0.try_wait().ok()?.is_some() {
                return None;
            }
            pause();
        }
    }

    /// What makes a command see the disk. The directory is entered again: the one that the command comes
    /// from has no disk in it.
    fn enter(&self, stage: &Stage) -> Vec<String> {
        let pid = self.0.id().to_string();
        let folder = stage.path("").display().to_string();
        let enter = [
            "nsenter",
            "--target",
            &pid,
            "--user",
            "--preserve-credentials",
            "--mount",
        ];
        let shell = ["sh", "-c", "cd \"$0\" && exec \"$@\"", &folder];
        enter
            .iter()
            .chain(&shell)
            .map(|word| (*word).to_owned())
            .collect()
    }

    fn run(&self, stage: &Stage, script: &str) -> String {
        let enter = self.enter(stage);
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args(["bash", "-c", script]);
        let done = command.current_dir(stage.path("")).output();
        String::from_utf8_lossy(&done.expect("a shell").stdout).into_owned()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_disk_is_full() {
    let mut stage = Stage::new("");
    let disk = has("nsenter").then(|| Disk::mount(&stage)).flatten();
    let Some(disk) = disk else {
        println!("NOT TESTED: a full disk: it needs unshare and nsenter, and the right to mount");
        return;
    };
    stage.wrapper = disk.enter(&stage);
    for node in 1..=3 {
        stage.spawn(node);
    }
    stage.until("the cluster serves", |stage| {
        stage.ready(3).contains(" 200 ")
    });
    // A leader without room would refuse what fills the log of n3, and each grant.
    stage.until("n1 leads", |stage| {
        stage.does(&["cluster", "transfer-leader", "n1"])
    });
    // The file that is kept for this takes what is left, to the last page.
    disk.run(&stage, "head -c 1G /dev/zero > n3/reserve");
    stage.until("n3 finds no room", |stage| {
        stage.does(&["bench", "cycle", "--clients", "1", "--seconds", "1"]);
        stage.ready(3).contains("RECOVERY.md#a-disk-is-full")
    });
    stage.until("its log says so", |stage| {
        stage.log(3).contains("RECOVERY.md#a-disk-is-full")
    });
    let members = stage.ringfence(&["cluster", "members"]);
    let lines = members.lines().filter(|line| line.contains("NO ROOM"));
    let full: Vec<&str> = lines.collect();
    assert!(
        matches!(full[..], [line] if line.contains("n3")),
        "{members}"
    );
    let before = stage.grant();
    stage.run("A disk is full");
    assert!(stage.grant() > before);
}

#[test]
fn a_clock_is_wrong_by_a_day() {
    let wall = Wall::off_by(DAY);
    let mut stage = Stage::new("");
    let environment = wall.environment(env!("CARGO_TARGET_TMPDIR"));
    stage.environment = environment
        .map(|(name, path)| (name.to_owned(), path.to_owned()))
        .into();
    for node in 1..=3 {
        stage.spawn(node);
    }
    stage.until("the cluster serves", |stage| {
        stage.ready(3).contains(" 200 ")
    });
    stage.until("n3 leads", |stage| {
        stage.does(&["cluster", "transfer-leader", "n3"])
    });
    let ahead = stage.grant();
    // A token has the seconds of the clock that its term began with, in its upper bits.
    let begun = fs::metadata(stage.path("n1.toml")).and_then(|file| file.modified());
    let begun = begun.expect("a time").duration_since(UNIX_EPOCH);
    let begun = begun.expect("after 1970").as_secs();
    assert!(ahead >> 20 > begun + DAY.unsigned_abs() - 60, "{ahead}");

    stage.until("n1 shows that another clock is apart", |stage| {
        let metrics = stage.page(1, "/metrics");
        let shown = metrics.lines().find_map(|line| {
            let value = line.strip_prefix("ringfence_clock_offset_seconds ");
            value?.parse::<f64>().ok()
        });
        shown.is_some_and(|apart| apart > 86_000.0)
    });

    let mut running = stage.begin("A clock is wrong by a day");
    stage.until("the clocks are seen to be apart", |_| {
        running
            .said()
            .contains("RECOVERY.md#a-clock-is-wrong-by-a-day")
    });
    // What the operator does.
    wall.step_to(0);
    running.wait();
    stage.until("n1 leads", |stage| {
        stage.does(&["cluster", "transfer-leader", "n1"])
    });
    assert!(stage.grant() > ahead, "no token is given twice");
}

#[test]
fn a_certificate_has_expired() {
    let more = "cert-file = \"NAME.pem\"\nkey-file = \"NAME.key\"\npeer-cert-file = \"NAME.pem\"\n\
                peer-key-file = \"NAME.key\"\npeer-trusted-ca-file = \"ca.pem\"\npeer-tls-name = [\"localhost\"]";
    let mut stage = Stage::new(more);
    let authority = Authority::new("ca");
    fs::write(stage.path("ca.pem"), authority.pem()).expect("a file");
    fs::write(stage.path("ca.key"), authority.key()).expect("a file");
    let folder = stage.path("");
    let show = |sign: &dyn Fn(&[&str]) -> Signed| {
        for name in ["n1", "n2", "n3"] {
            let files = sign(&["localhost", "127.0.0.1"]).save(&folder, name);
            assert!(files.certificate.exists());
        }
    };
    show(&|names| authority.sign(names));
    for node in 1..=3 {
        stage.spawn(node);
    }
    stage.until("the cluster serves", |stage| {
        stage.ready(3).contains(" 200 ")
    });
    let before = stage.grant();
    // As if a year had passed, and each connection was made again.
    show(&|names| authority.sign_expired(names));
    for node in 1..=3 {
        stage.kill(node);
        stage.spawn(node);
    }
    stage.until("n1 says what it lacks", |stage| {
        let log = stage.log(1);
        log.contains("expired") && log.contains("RECOVERY.md#the-majority-is-down")
    });
    let said = stage.run("A certificate has expired");
    assert!(said.contains("has ended, on 2020-01-01"), "{said}");
    assert!(stage.grant() > before);
}
