//! What holds for each text as a configuration file.

use std::path::PathBuf;

use ringfence_core::TOKEN_FLOOR_MAX;

use super::*;

/// Any bytes as a configuration file: refused in words, or a configuration within all limits. A
/// fuzz target of `crates/fuzz`, and a property of the tests.
pub(crate) fn any_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut given = match file::parse_file(text) {
        Ok(given) => given,
        Err(why) => return assert!(!why.is_empty()),
    };
    // A file of any name may be a device that never ends.
    let Given {
        cert_file,
        key_file,
        trusted_ca_file,
        http_cert_file,
        http_key_file,
        http_trusted_ca_file,
        peer_cert_file,
        peer_key_file,
        peer_trusted_ca_file,
        cluster_secret_file,
        ..
    } = &mut given;
    let clients = [cert_file, key_file, trusted_ca_file];
    let http = [http_cert_file, http_key_file, http_trusted_ca_file];
    let peers = [peer_cert_file, peer_key_file, peer_trusted_ca_file];
    let single = clients.into_iter().chain(http).chain(peers).flatten();
    for file in single.chain(cluster_secret_file) {
        *file = PathBuf::from("/nowhere/file");
    }
    match Config::check(given.clone()) {
        Ok(config) => {
            assert!(!config.name.is_empty() && config.name.len() <= NODE_NAME_BYTES_MAX);
            assert!(config.initial_cluster.len() <= FIRST_MEMBERS_MAX);
            assert!(config.heartbeat < config.election.0 && config.election.0 < config.election.1);
            assert_eq!(config.settings.check(), Ok(()));
            assert!(
                config
                    .token_floor
                    .is_none_or(|floor| floor <= TOKEN_FLOOR_MAX)
            );
            assert!(WAL_SEGMENT_BYTES.contains(&config.wal_segment_bytes));
            assert!(SNAPSHOT_LOG_BYTES.contains(&config.snapshot_log_bytes));
            assert_eq!(Config::check(given).ok(), Some(config), "checked twice");
        }
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}
