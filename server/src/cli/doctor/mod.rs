//! `ringfence doctor`: looks for what is wrong, or soon will be, and says what to do about it.

mod certificates;
mod clocks;
mod cluster;
mod machine;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::output::{Output, Table};
use super::own_node::OwnNode;
use super::visible::visible;
use super::{Failure, Global, exit};

pub(super) use cluster::{Answer, Said, ask_all};

/// Look for what is wrong with a cluster, and say what to do
///
/// Every endpoint, and every member that these name, is asked separately: who answers, quorum, leader,
/// lag, versions, clocks and ports. On the machine of a node, --data-dir adds its disk, and --config its
/// certificates, its CAs and the keys of issuers, too; in the Pod of a node its variables say where these
/// are. Without --endpoints it then asks over the node's own socket. Nothing is changed; the disk is
/// measured with a small file that is removed.
///
/// The exit code is 1 if there is a problem, 0 if there are warnings at most, and 69 if no node
/// answers.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence doctor --endpoints 10.0.0.1:7420,10.0.0.2:7420,10.0.0.3:7420
  ringfence doctor --config /etc/ringfence/ringfence.toml   # on the machine of a node
  kubectl exec ringfence-0 -- /ringfence doctor             # in its Pod")]
pub(crate) struct Doctor {
    /// The configuration file of the node on this machine: its data directory, its certificates and
    /// CAs, and the keys of its issuers are looked at
    #[arg(long, env = "RINGFENCE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory of the node on this machine, in place of the one in --config
    #[arg(long, env = "RINGFENCE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Nothing fails yet.
    Warning,
    Problem,
    /// It could not be looked at from here.
    Unknown,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Problem => "PROBLEM",
            Self::Unknown => "unknown",
        }
    }
}

/// What was looked at, how it is, and what to do.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    check: &'static str,
    /// The node, the file or the address.
    subject: String,
    verdict: Verdict,
    found: String,
    /// Empty if nothing is to be done.
    next: String,
}

impl Finding {
    fn good(check: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            check,
            subject: subject.into(),
            verdict: Verdict::Good,
            found: found.into(),
            next: String::new(),
        }
    }

    fn but(self, verdict: Verdict, next: impl Into<String>) -> Self {
        let next = next.into();
        Self {
            verdict,
            next,
            ..self
        }
    }

    /// As programs read it.
    pub(super) fn object(&self) -> Value {
        json!({
            "check": self.check,
            "subject": self.subject,
            "verdict": self.verdict.as_str().to_lowercase(),
            "found": self.found,
            "next": self.next,
        })
    }
}

/// Everything that is found, out of these answers and on this machine.
pub(super) async fn look(answers: &[Answer], own: &OwnNode, global: &Global) -> Vec<Finding> {
    let mut findings = cluster::findings(answers, global).await;
    findings.extend(clocks::findings(answers));
    findings.extend(machine::findings(own, global));
    findings
}

impl Doctor {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        global.tls.check(global)?;
        let own = OwnNode::of(self.config, self.data_dir);
        let global = &own.asked(global);
        let answers = ask_all(global).await;
        let findings = look(&answers, &own, global).await;

        let mut table = Table::new(&["CHECK", "OF", "RESULT", "FOUND"]);
        for finding in &findings {
            table.row(vec![
                finding.check.to_owned(),
                finding.subject.clone(),
                finding.verdict.as_str().to_owned(),
                finding.found.clone(),
            ]);
        }
        let objects: Vec<Value> = findings.iter().map(Finding::object).collect();
        let output = Output::new(global);
        output.list(&objects, &table, "")?;
        for finding in findings.iter().filter(|finding| !finding.next.is_empty()) {
            let Finding { check, subject, .. } = finding;
            let subject = visible(subject);
            output.note(format!("{check} of {subject}: {}", finding.next));
        }
        let is_problem = |finding: &Finding| finding.verdict == Verdict::Problem;
        let denied = |answer: &Answer| answer.said.as_ref().is_err_and(|why| why.denied.is_some());
        Ok(match answers.iter().any(|answer| answer.said.is_ok()) {
            false if answers.iter().any(denied) => ExitCode::from(exit::DENIED),
            false => ExitCode::from(exit::UNAVAILABLE),
            true if findings.iter().any(is_problem) => ExitCode::from(exit::NEGATIVE),
            true => ExitCode::SUCCESS,
        })
    }
}
