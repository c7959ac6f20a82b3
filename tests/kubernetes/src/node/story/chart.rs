//! The Helm chart, by the commands of `deploy/KUBERNETES.md` as they stand there: two installations
//! side by side, of which one is upgraded, and the other one is lost and restored; and one whose
//! certificates cert-manager issues.

mod authorities;
mod issued;
mod restored;
mod stuck;
mod two;
mod uninstalled;
mod upgraded;

use ringfence_client::{Client, Tls};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::cli::Charts;
use crate::cluster::Cluster;
use crate::operator::Operator;

/// The two, by their namespaces.
const TEAMS: [&str; 2] = ["blue", "green"];

/// The values of the document are those of production; this is one machine, with little time.
const ONE_MACHINE: &str = r#"
minReadySeconds: 0
spread: {hosts: "off", zones: "off"}
storage: {size: 1Gi}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 512Mi}
"#;

/// What the chapters act on.
struct Stage<'a> {
    cluster: &'a Cluster,
    charts: &'a Charts,
    runtime: &'a Runtime,
    operator: Operator,
}

/// Tells all of it.
pub(super) fn tell(cluster: &Cluster, charts: &Charts, runtime: &Runtime) -> Result<(), String> {
    let stage = Stage {
        cluster,
        charts,
        runtime,
        operator: Operator::of(cluster)?,
    };
    type Chapter = fn(&Stage<'_>) -> Result<(), String>;
    let chapters: [(&str, Chapter); 7] = [
        (
            "two installations, by the document, serve side by side",
            two::side_by_side,
        ),
        (
            "a cluster that is lost is installed again from a backup",
            restored::from_a_backup,
        ),
        (
            "`helm upgrade` loses no session",
            upgraded::no_session_is_lost,
        ),
        (
            "`helm uninstall` keeps what the notes say",
            uninstalled::keeps_what_the_notes_say,
        ),
        (
            "certificates by cert-manager are renewed under load",
            issued::by_cert_manager,
        ),
        (
            "both CAs of that installation are replaced under load",
            authorities::replaced,
        ),
        (
            "a full volume, a wrong clock and expired certificates, by the document",
            stuck::by_the_document,
        ),
    ];
    for (claim, chapter) in chapters {
        chapter(&stage).map_err(|why| format!("{claim}: {why}"))?;
    }
    Ok(())
}

impl Stage<'_> {
    /// Types the one block of shell under a heading that has these words.
    fn block(&self, heading: &str, words: &str) -> Result<String, String> {
        let blocks = self.operator.blocks(heading, "sh")?;
        let mut blocks = blocks.iter().filter(|block| block.contains(words));
        match (blocks.next(), blocks.next()) {
            (Some(block), None) => self.operator.types(block),
            _ => Err(format!("{heading}: not one block has {words:?}")),
        }
    }

    /// What a command prints in the first Pod of a team.
    fn ringfence(&self, team: &str, line: &str) -> Result<String, String> {
        let line = format!("exec --namespace={team} ringfence-0 -- /ringfence {line}");
        self.cluster.kubectl.run(&line)
    }

    /// What the first Pod of a team knows.
    fn status(&self, team: &str) -> Result<Value, String> {
        let told = self.ringfence(team, "cluster status --json")?;
        let status: Result<Value, _> = serde_json::from_str(told.trim());
        status.map_err(|error| format!("{error} in {told}"))
    }

    /// A client outside the Pods: of a team, with the authority and the token of these.
    async fn client(&self, team: &str, authority: &str, token: &str) -> Result<Client, String> {
        let authority = self
            .operator
            .reads(&format!("{authority}-clients-ca.crt"))?;
        let token = self.operator.reads(&format!("{token}-web.token"))?;
        let client = Client::builder()
            .endpoints([format!("https://ringfence.{team}.svc:7420")])
            .tls(Tls::new().ca_pem(authority))
            .token(token.trim());
        client.connect().await.map_err(|error| error.to_string())
    }
}
