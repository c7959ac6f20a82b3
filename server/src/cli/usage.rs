//! The command line as clap sees it: what each help shows, and how a refused line is reported.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};

use super::exit;
use super::failure::Failure;
use super::handles::without_secrets;
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
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && !json;
    if !error.use_stderr() || is_help {
        // Help that cannot be printed has no reader.
        error.print().ok();
        return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
    }
    let next = next_step(&error);
    Failure::usage(what_is_wrong(&error))
        .hint(next)
        .report(json)
}

/// What clap says first, in one line. Behind it stand guesses, the usage and the name of the help. It
/// repeats what was typed or set in the environment, and logs keep it.
fn what_is_wrong(error: &clap::Error) -> String {
    let text = without_secrets(&error.to_string());
    let first = text.split("\n\n").next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let mut lines = first.lines().map(str::trim);
    let heading = lines.next().unwrap_or_default();
    match lines.collect::<Vec<_>>().join(", ") {
        listed if listed.is_empty() => heading.to_owned(),
        listed => format!("{heading} {listed}"),
    }
}

/// What was meant, if it is another word by a slip, and which help lists what there is.
fn next_step(error: &clap::Error) -> String {
    let (given, guess, what) = match error.kind() {
        ErrorKind::UnknownArgument => (
            ContextKind::InvalidArg,
            ContextKind::SuggestedArg,
            "lists the options",
        ),
        ErrorKind::InvalidSubcommand | ErrorKind::MissingSubcommand => (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
            "lists the commands",
        ),
        _ => (
            ContextKind::InvalidArg,
            ContextKind::SuggestedArg,
            "says what each takes",
        ),
    };
    let [given, guess] = [given, guess].map(|kind| words(error, kind));
    let given = given.first().and_then(|word| first_letter(word));
    // What clap guesses is often another word: for `--nope` it guesses `--endpoints`. Slips are seldom in
    // the first letter.
    let meant = guess.iter().find(|word| first_letter(word) == given);
    let meant = meant.map_or_else(String::new, |word| format!("did you mean '{word}'? "));
    format!("{meant}`{} --help` {what}", command_given().join(" "))
}

/// What an error has of this kind.
fn words(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(word)) => vec![word.clone()],
        Some(ContextValue::Strings(words)) => words.clone(),
        _ => Vec::new(),
    }
}

fn first_letter(word: &str) -> Option<char> {
    word.trim_start_matches('-').chars().next()
}

/// The program and the subcommands that this command line names.
fn command_given() -> Vec<String> {
    let mut present = Cli::command();
    let mut path = vec![present.get_name().to_owned()];
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| word.to_string_lossy().into_owned());
    for word in words.take_while(|word| word != "--") {
        if let Some(below) = present.find_subcommand(&word).cloned() {
            path.push(word);
            present = below;
        }
    }
    path
}

/// clap lists hidden subcommands, too, when one is missing.
fn name_visible_subcommands(error: &mut clap::Error) {
    let whole = Cli::command();
    let hidden = |name: &str| {
        whole
            .find_subcommand(name)
            .is_some_and(Command::is_hide_set)
    };
    let listed = words(error, ContextKind::ValidSubcommand);
    let visible = listed.into_iter().filter(|name| !hidden(name)).collect();
    error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(visible));
}
