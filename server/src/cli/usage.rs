//! The command line as clap sees it: what each help shows, and how a refused line is reported.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::StyledStr;
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
    let next = match error.kind() {
        ErrorKind::UnknownArgument => Some(where_options_are(&mut error)),
        _ => None,
    };
    let json = std::env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && json {
        let text = error.to_string();
        let message = text.split("\n\n").next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let mut error = serde_json::json!({ "reason": "INVALID_ARGUMENT", "message": message });
        if let Some(next) = next {
            error["hint"] = next.into();
        }
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

/// Says which help lists the options there are. What clap guesses instead is often another word: for
/// `--nope` it guesses `--endpoints`. Slips are seldom in the first letter.
fn where_options_are(error: &mut clap::Error) -> String {
    let first_letter = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.trim_start_matches('-').chars().next(),
        _ => None,
    };
    let [given, guess] =
        [ContextKind::InvalidArg, ContextKind::SuggestedArg].map(|kind| first_letter(error, kind));
    if given != guess {
        error.remove(ContextKind::SuggestedArg);
    }
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let usage = usage.unwrap_or_default();
    let words = usage
        .split_whitespace()
        .skip_while(|word| *word == "Usage:");
    let is_name = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_lowercase());
    let command: Vec<&str> = words.take_while(is_name).collect();
    let next = format!("`{} --help` lists the options", command.join(" "));
    let mut tips = vec![StyledStr::from(next.clone())];
    if let Some(ContextValue::StyledStrs(others)) = error.remove(ContextKind::Suggested) {
        tips.extend(others);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    next
}
