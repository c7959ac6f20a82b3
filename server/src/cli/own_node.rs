//! The node on the machine of a command, for those that look at it: `doctor` and `debug bundle`.

use std::path::PathBuf;

use super::Global;
use crate::admin_socket;
use crate::config::{Config, ServeArgs};

/// What is known of it.
pub(super) struct OwnNode {
    /// Its settings, and where they stand: in the file that is named, with the variables that win over it,
    /// or in the variables of a Pod alone.
    pub(super) settings: Option<(String, Result<Config, String>)>,
    /// Whether that is a file.
    pub(super) is_file: bool,
    /// Its data directory.
    pub(super) data_dir: Option<PathBuf>,
}

impl OwnNode {
    /// By what --config and --data-dir name.
    pub(super) fn of(file: Option<PathBuf>, data_dir: Option<PathBuf>) -> Self {
        let is_file = file.is_some();
        let source = file.as_ref().map(|path| path.display().to_string());
        let source = source.unwrap_or_else(|| "environment".to_owned());
        let settings = ServeArgs::here(file).map(|given| {
            let config = given
                .map_err(|why| first_line(&why))
                .and_then(|given| Config::load(given).map_err(|why| why.to_string()));
            (source, config)
        });
        let mut own = Self {
            settings,
            is_file,
            data_dir,
        };
        if own.data_dir.is_none() {
            own.data_dir = own.config().map(|config| config.data_dir.clone());
        }
        own
    }

    /// Its settings, if they can be used.
    pub(super) fn config(&self) -> Option<&Config> {
        self.settings.as_ref()?.1.as_ref().ok()
    }

    /// How its cluster is asked: over its own socket unless --endpoints says where; and the members that a
    /// socket names, with TLS if the client port of this one has it.
    pub(super) fn asked(&self, global: &Global) -> Global {
        let mut asked = global.clone();
        let socket = self.data_dir.as_deref().map(admin_socket::path);
        if let Some(socket) = socket.filter(|path| !global.endpoints_given() && path.exists()) {
            asked.endpoints = vec![format!("unix:{}", socket.display())];
        }
        let by_socket = asked
            .endpoints
            .iter()
            .all(|endpoint| endpoint.starts_with("unix:"));
        let has_tls = self
            .config()
            .is_some_and(|config| config.client_tls.is_some());
        if has_tls && by_socket {
            asked.tls.encrypt();
        }
        asked
    }
}

/// What is wrong, without how the command is used.
fn first_line(why: &clap::Error) -> String {
    let text = why.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}
