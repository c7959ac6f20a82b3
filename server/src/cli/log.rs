//! `ringfence log dump`: the committed log of a stopped node, for `check-history --log`.

use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_check::log::{DUMP_VERSION, DumpWriter, LogHeader, Logged};
use ringfence_raft::read_log;

use super::{Failure, exit};

/// Commands about the log.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum LogCommand {
    Dump(Dump),
}

/// Print the log of a stopped node, an entry per line, with secrets replaced
///
/// A node that runs keeps its directory locked: stop it, or dump a copy that was made while it was
/// stopped. The log is read and not changed. It begins at the first entry that was not purged; to
/// judge a history by it, let the node keep all of it (--snapshot-log-bytes).
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence log dump --data-dir /tmp/rf/n1 > n1.log")]
pub(crate) struct Dump {
    /// The node's data directory
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

impl LogCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Self::Dump(dump) = self;
        dump.run()
    }
}

impl Dump {
    fn run(self) -> Result<ExitCode, Failure> {
        let log = read_log(&self.data_dir);
        let log = log.map_err(|cause| {
            Failure::new(exit::USAGE, "UNUSABLE_LOG", cause.to_string())
                .hint("name the data directory of a node that is stopped")
        })?;
        let header = LogHeader {
            version: DUMP_VERSION,
            node: log.node,
            committed: log.committed,
        };
        let entries = log.entries.into_iter().map(|stored| Logged {
            index: stored.index,
            term: stored.term,
            entry: stored.entry,
        });
        match write(&header, entries) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::silent()),
            Err(error) => {
                let message = format!("cannot write to stdout: {error}");
                Err(Failure::new(exit::USAGE, "OUTPUT", message))
            }
        }
    }
}

fn write(header: &LogHeader, entries: impl Iterator<Item = Logged>) -> io::Result<()> {
    let to = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let mut writer = DumpWriter::new(to, header)?;
    for logged in entries {
        writer.append(&logged)?;
    }
    drop(writer.finish()?);
    Ok(())
}
