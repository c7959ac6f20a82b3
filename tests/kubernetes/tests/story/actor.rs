//! A process of a story, and what it prints.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::site::{Site, within};

/// A line, and when it came.
pub(crate) type Line = (Instant, String);

/// A running process; it ends with this value.
pub(crate) struct Actor {
    child: Child,
    lines: Arc<watch::Sender<Vec<Line>>>,
}

impl Actor {
    /// Starts a program in a site's namespace.
    pub(crate) fn start(
        program: &Path,
        site: &Site,
        kubeconfig: &Path,
        env: &[(&str, &str)],
    ) -> Self {
        let mut child = Command::new(program)
            .env("RINGFENCE_ENDPOINTS", site.cluster.endpoints().join(","))
            .env("NAMESPACE", &site.namespace)
            .env("KUBECONFIG", kubeconfig)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = Arc::new(watch::Sender::new(Vec::new()));
        let (told, out) = (Arc::clone(&lines), child.stdout.take().unwrap());
        tokio::spawn(async move {
            let mut out = BufReader::new(out).lines();
            while let Ok(Some(line)) = out.next_line().await {
                told.send_modify(|lines: &mut Vec<Line>| lines.push((now(), line)));
            }
        });
        Self { child, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// What it has printed that begins so.
    pub(crate) fn said(&self, begins: &str) -> Vec<Line> {
        let lines = self.lines.borrow();
        let found = lines.iter().filter(|(_, line)| line.starts_with(begins));
        found.cloned().collect()
    }

    /// Waits until that many lines begin so; the last of them.
    pub(crate) async fn until(&self, count: usize, begins: &str) -> Line {
        let what = format!("{count} times {begins:?}");
        let mut lines = self.lines.subscribe();
        let waiting = lines.wait_for(|lines| {
            lines
                .iter()
                .filter(|(_, line)| line.starts_with(begins))
                .count()
                >= count
        });
        let outcome = tokio::time::timeout(crate::site::LONG, waiting).await;
        if !matches!(outcome, Ok(Ok(_))) {
            panic!("{what} in {:#?}", self.lines.borrow());
        }
        drop(outcome);
        self.said(begins)[count - 1].clone()
    }

    /// The numbers that it wrote.
    pub(crate) fn wrote(&self) -> Vec<u64> {
        let said = self.said("wrote ").into_iter();
        said.map(|(_, line)| line.split(' ').nth(1).unwrap().parse().unwrap())
            .collect()
    }

    /// Waits until it stands still.
    pub(crate) async fn until_stopped(&self) {
        let stat = format!("/proc/{}/stat", self.id());
        within("the process stops itself", async {
            loop {
                let read = std::fs::read_to_string(&stat).unwrap_or_default();
                let state = read
                    .rsplit(") ")
                    .next()
                    .and_then(|rest| rest.chars().next());
                if state == Some('T') {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a takeover took, for people; it decides nothing"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The example, brought up to date once per process.
pub(crate) fn fenced_controller() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let program = "fenced-controller";
        ringfence_tests::built(&["--bin", program]).join(program)
    })
}
