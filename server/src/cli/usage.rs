//! The command line as clap sees it: what each help shows, and how a refused line is reported.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};

use super::exit;
use super::stderr::complain;
use crate::Cli;

/// Ends the help of every subcommand that talks to a cluster, in place of the options' own text.
const GLOBAL_OPTIONS: &str = "Global options: --endpoints, --json, --timeout, --cacert, --cert, \
                              --key, --server-name, --token-file; see `ringfence --help`";

/// Parses the command line of this process.
///
/// # Errors
/// Why it was refused, or the help that was asked for; [`refuse`] prints either.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let matches = command(&arguments).try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// The command with its global options explained once, in the help of the program itself: in the
/// help of each subcommand they would be longer than what the subcommand is about.
fn command(arguments: &[OsString]) -> Command {
    let whole = Cli::command();
    if !names_a_subcommand(&whole, arguments) {
        return whole;
    }
    // clap copies a global option into every subcommand as it is here.
    whole
        .mut_args(|argument| match argument.is_global_set() {
            true => argument.hide(true),
            false => argument,
        })
        .mut_subcommands(name_global_options)
}

fn names_a_subcommand(whole: &Command, arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    words.any(|word| word != "help" && whole.find_subcommand(word).is_some())
}

fn name_global_options(command: Command) -> Command {
    // A node's own options have nothing to do with those of clients.
    if command.get_name() == "serve" || command.is_hide_set() {
        return command;
    }
    let help = match command.get_after_help() {
        Some(help) => format!("{help}\n\n{GLOBAL_OPTIONS}"),
        None => GLOBAL_OPTIONS.to_owned(),
    };
    command
        .after_help(help)
        .mut_subcommands(name_global_options)
}

/// Prints why a command line was refused, or the help that was asked for.
pub(crate) fn refuse(mut error: clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::MissingSubcommand {
        name_visible_subcommands(&mut error);
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && json {
        let text = error.to_string();
        let message = text.split("\n\n").next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let error = serde_json::json!({ "reason": "INVALID_ARGUMENT", "message": message });
        complain(serde_json::json!({ "error": error }).to_string());
        return ExitCode::from(exit::USAGE);
    }
    // Help that cannot be printed has no reader.
    error.print().ok();
    ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 })
}

/// clap lists hidden subcommands, too, when one is missing.
fn name_visible_subcommands(error: &mut clap::Error) {
    let whole = Cli::command();
    let hidden = |name: &str| {
        whole
            .find_subcommand(name)
            .is_some_and(Command::is_hide_set)
    };
    let listed = match error.get(ContextKind::ValidSubcommand) {
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => return,
    };
    let visible = listed.into_iter().filter(|name| !hidden(name)).collect();
    error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(visible));
}
