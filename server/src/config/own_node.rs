//! The settings of the node on this machine, for commands that look at it and run none.

use std::path::PathBuf;

use clap::Parser;

use super::ServeArgs;
use super::given::Given;

impl ServeArgs {
    /// A configuration file alone, without flags and variables.
    pub(crate) fn of_file(path: PathBuf) -> Self {
        let (config, given) = (Some(path), Given::default());
        Self { config, given }
    }

    /// The variables of a node, as in its Pod; `None` if they do not name one.
    pub(crate) fn of_environment() -> Option<Result<Self, clap::Error>> {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            serve: ServeArgs,
        }
        std::env::var_os("RINGFENCE_NAME")?;
        Some(Alone::try_parse_from(["serve"]).map(|alone| alone.serve))
    }
}
