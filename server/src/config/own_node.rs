//! The settings of the node on this machine, for commands that look at it and run none.

use std::path::PathBuf;

use clap::Parser;

use super::ServeArgs;

/// Variables that name a node, or what it serves with: others may be there for a command.
const NAMING: [&str; 10] = [
    "RINGFENCE_NAME",
    "RINGFENCE_INITIAL_CLUSTER",
    "RINGFENCE_JOIN",
    "RINGFENCE_LISTEN_CLIENT",
    "RINGFENCE_ACCESS",
    "RINGFENCE_CERT_FILE",
    "RINGFENCE_PEER_CERT_FILE",
    "RINGFENCE_HTTP_CERT_FILE",
    "RINGFENCE_CLUSTER_SECRET_FILE",
    "RINGFENCE_JWT_ISSUER",
];

impl ServeArgs {
    /// What `serve` would take here: this configuration file, and the variables, which win over it.
    /// `None` if there is no file, and no variable names a node.
    pub(crate) fn here(file: Option<PathBuf>) -> Option<Result<Self, clap::Error>> {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            serve: ServeArgs,
        }
        let is_given = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if file.is_none() && !NAMING.iter().any(is_given) {
            return None;
        }
        let parsed = Alone::try_parse_from(["serve"]).map(|alone| alone.serve);
        Some(parsed.map(|given| Self {
            config: file,
            ..given
        }))
    }
}
