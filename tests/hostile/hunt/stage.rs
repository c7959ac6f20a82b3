//! A cluster that enforces rights, with principals, their rules and tokens.

use std::time::Duration;

use ringfence_tests::{Cluster, Options};
use tokio::time::{sleep, timeout};

use super::bandit::OWN;
use super::known::HIDDEN;
use crate::measure::PATIENCE;
use crate::refused::local;

/// Elections of nodes that share two cores with those who attack them; and all of the log is kept,
/// since it is judged.
const FLAGS: [&str; 8] = [
    "--heartbeat-ms",
    "250",
    "--election-ms",
    "2000..3000",
    "--access",
    "enforced",
    "--snapshot-log-bytes",
    "1000000000000",
];

/// Three nodes, and the tokens of all principals.
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    /// Two honest principals with leases of their own, and one that shares the names of the raider.
    pub(super) honest: [String; 3],
    /// May hand over leadership.
    pub(super) operator: String,
    /// May acquire a few names.
    pub(super) raider: String,
    /// Has no rule.
    pub(super) idle: String,
    /// Had the raider's rule, and is banned.
    pub(super) banned: String,
    /// Was revoked.
    pub(super) revoked: String,
    /// Has no rule, and is valid for a minute.
    pub(super) brief: String,
}

impl Stage {
    /// Sets it; nodes get these further flags.
    pub(super) async fn set(more: &[String]) -> Self {
        let flags = FLAGS.iter().map(|flag| (*flag).to_owned());
        let cluster = Cluster::start(Options {
            flags: flags.chain(more.iter().cloned()).collect(),
            probed: false,
            ..Options::alone()
        })
        .await;
        let everywhere = async {
            for at in 0..cluster.len() {
                while !local(&cluster, at, &["access", "mode"]).contains("enforced") {
                    sleep(Duration::from_millis(100)).await;
                }
            }
        };
        let bound = timeout(PATIENCE, everywhere).await;
        bound.expect("rights bind in time");
        let token_for = |name: &str, ttl: &str| {
            let made = local(
                &cluster,
                0,
                &["access", "token", "create", name, "--ttl", ttl],
            );
            let made = made.trim().to_owned();
            assert!(!made.is_empty(), "no token for {name}");
            made
        };
        let token = |name| token_for(name, "90d");
        let bank = format!("{HIDDEN}-bank");
        let shop = format!("{HIDDEN}-shop");
        let honest = [token(&bank), token(&shop), token("mate")];
        let (operator, raider, idle) = (token("operator"), token("raider"), token("idle"));
        let (banned, revoked) = (token("banned"), token("revoked"));
        // And the leeway of a minute.
        let brief = token_for("brief", "1s");
        let (hidden, own) = (format!("{HIDDEN}/*"), format!("{OWN}*"));
        for (name, names) in [
            (bank.as_str(), &hidden),
            (&shop, &hidden),
            ("mate", &own),
            ("raider", &own),
            ("banned", &own),
            ("revoked", &own),
        ] {
            let principal = format!("token:{name}");
            local(
                &cluster,
                0,
                &["access", "grant", &principal, "acquire", names],
            );
        }
        local(
            &cluster,
            0,
            &["access", "grant", "token:operator", "operate"],
        );
        local(&cluster, 0, &["access", "ban", "token:banned"]);
        local(&cluster, 0, &["access", "token", "revoke", "revoked"]);
        let shown = local(&cluster, 0, &["access", "list"]);
        assert!(
            shown.contains("token:banned") && shown.contains(&own),
            "{shown}"
        );
        Self {
            cluster,
            honest,
            operator,
            raider,
            idle,
            banned,
            revoked,
            brief,
        }
    }
}
