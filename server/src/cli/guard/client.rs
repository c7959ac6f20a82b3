//! A database's own client program, and what it says.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use rand::RngCore as _;

use super::{Failure, exit};
use crate::cli::tether;

/// How much of what a program says on stderr is kept, in bytes.
const SAID_BYTES_MAX: usize = 64 << 10;

/// How long a line of its stdout may be that says how far it has come, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A word that no script can contain, since it is drawn for one run.
pub(super) fn nonce() -> String {
    format!("ringfence_{:016x}", rand::rng().next_u64())
}

/// An option of a client program that a caller may pass on, since it is one of the connection. All others
/// are refused: a client has many that run SQL, and short ones can be written in one word.
pub(super) struct Passed {
    pub(super) long: &'static str,
    /// Empty if there is none.
    pub(super) short: &'static str,
    pub(super) value: Value,
}

/// The value of an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    No,
    /// In the same word, or in the next one.
    Needed,
    /// In the same word, or not at all.
    Optional,
}

/// Refuses arguments of the client that are not among `passed`. Long options count in full only: a client
/// takes the beginning of one for the whole of it.
pub(super) fn check_arguments(arguments: &[OsString], passed: &[Passed]) -> Result<(), Failure> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let argument = argument.to_string_lossy();
        let name = argument.split('=').next().unwrap_or_default();
        let found = passed.iter().find_map(|option| {
            let rest = match argument.starts_with("--") {
                true => argument.strip_prefix(name).filter(|_| name == option.long),
                false => match option.short {
                    "" => None,
                    short => argument.strip_prefix(short),
                },
            };
            Some((option.value, rest?.is_empty()))
        });
        match found {
            // The next word is its value, whatever it looks like.
            Some((Value::Needed, true)) if arguments.next().is_some() => {}
            Some((Value::Needed, true)) => {
                return Err(Failure::usage(format!(
                    "the argument {name:?} has no value"
                )));
            }
            Some((Value::No, true) | (Value::Needed, false) | (Value::Optional, _)) => {}
            Some((Value::No, false)) | None => return Err(not_passed(name, passed)),
        }
    }
    Ok(())
}

fn not_passed(name: &str, passed: &[Passed]) -> Failure {
    let allowed: Vec<_> = passed.iter().map(|option| option.long).collect();
    let message = format!(
        "got the argument {name:?} for the client, which could run SQL past the guard; expected options \
         of the connection alone"
    );
    Failure::usage(message).hint(format!(
        "give the script on stdin; these are passed on, short ones each in a word of its own: {}",
        allowed.join(", ")
    ))
}

/// How far a program has come, and how it ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The marks that it has printed: the lines that begin with the nonce, without it.
    pub(super) passed: Vec<String>,
    pub(super) stderr: String,
}

impl Ended {
    /// Whether it has printed this mark.
    pub(super) fn has_passed(&self, mark: &str) -> bool {
        self.passed.iter().any(|passed| passed == mark)
    }

    /// The first line of stderr that is an error, or the last one.
    pub(super) fn error(&self, is_error: impl Fn(&str) -> bool) -> &str {
        let found = self.stderr.lines().find(|line| is_error(line));
        let said = |line: &&str| !line.trim().is_empty();
        found
            .or_else(|| self.stderr.lines().rfind(said))
            .unwrap_or("it said nothing")
    }
}

/// Whether there is a program of this name on `PATH`.
pub(super) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The command that runs a client program. On Linux it ends with this process, also after a SIGKILL: the
/// client has most of its input by then, and would go on to the commit.
pub(super) fn command(program: &str) -> Result<Command, Failure> {
    if !cfg!(target_os = "linux") || !is_there(program) {
        return Ok(Command::new(program));
    }
    let tied = tether::command::<&str>(program.as_ref(), []);
    let (command, _no_gate) = tied.map_err(|cause| {
        Failure::new(
            exit::SYSTEM,
            "CLIENT",
            format!("cannot run {program}: {cause}"),
        )
    })?;
    Ok(command)
}

/// Runs a program with `input` on its stdin. `package` is what to install if there is no such program.
pub(super) fn run(
    mut command: Command,
    input: String,
    nonce: &str,
    package: &str,
) -> Result<Ended, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |what: &str, cause: std::io::Error| {
        let message = format!("cannot {what} {program}: {cause}");
        Failure::new(exit::SYSTEM, "CLIENT", message).hint(format!(
            "install the client program, for example: apt-get install {package}"
        ))
    };
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // What it says is read here.
    command.env("LC_ALL", "C");
    let mut child = command.spawn().map_err(|cause| failed("run", cause))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        unreachable!("all three were asked for");
    };
    let (passed, stderr) = thread::scope(|scope| {
        // It stops reading at the first error.
        scope.spawn(move || stdin.write_all(input.as_bytes()).ok());
        let said = scope.spawn(|| said(stderr));
        let passed = marks(stdout, nonce);
        (passed, said.join().unwrap_or_default())
    });
    let status = child.wait().map_err(|cause| failed("wait for", cause))?;
    Ok(Ended {
        status,
        passed,
        stderr,
    })
}

/// The marks among the lines; what else a script prints is passed over.
fn marks(stdout: impl Read, nonce: &str) -> Vec<String> {
    let mut reader = BufReader::new(stdout);
    let (mut passed, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        let read = reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return passed;
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(mark) = text.trim().strip_prefix(nonce) {
            passed.push(mark.trim().to_owned());
        }
    }
}

/// The beginning of what it says. The rest is read, too, so that it never waits.
fn said(mut stderr: impl Read) -> String {
    let (mut said, mut part) = (Vec::new(), [0; 4_096]);
    while let Ok(read @ 1..) = stderr.read(&mut part) {
        let room = SAID_BYTES_MAX.saturating_sub(said.len());
        said.extend_from_slice(&part[..read.min(room)]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn marks_are_found_among_what_a_script_prints() {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "echo row; echo n1 one; echo ' n1 two '; cat; echo ERROR one >&2; echo late >&2; exit 3",
        ]);
        let ended = run(shell, "n1 three\nx n1 no\n".to_owned(), "n1", "dash").unwrap();
        assert_eq!(ended.passed, ["one", "two", "three"]);
        assert!(ended.has_passed("two") && !ended.has_passed("no"));
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(ended.error(|line| line.starts_with("ERROR")), "ERROR one");
        assert_eq!(ended.error(|line| line.is_empty()), "late");
    }

    #[test]
    fn only_options_of_the_connection_are_passed_on() {
        const fn option(long: &'static str, short: &'static str, value: Value) -> Passed {
            Passed { long, short, value }
        }
        let passed = [
            option("--host", "-h", Value::Needed),
            option("--no-password", "-w", Value::No),
            option("--password", "-p", Value::Optional),
            option("--ssl-ca", "", Value::Needed),
        ];
        let check = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
            check_arguments(&arguments, &passed).map_err(|failure| failure.exit)
        };
        for good in [
            &["--host=db1", "-w", "-p"][..],
            &["--host", "-c", "-hdb1", "-h", "-f"],
            &["-psecret=1", "--password=x", "--no-password"],
            &["--ssl-ca", "ca.pem"],
            &[],
        ] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for bad in [
            &["-c", "SELECT 1"][..],
            &["-wc", "SELECT 1"],
            &["-wf", "x.sql"],
            &["-w="],
            &["--no-password=1"],
            &["--hos=db1"],
            &["--host-x=db1"],
            &["--host"],
            &["--"],
            &["-"],
            &["bank"],
            &[""],
            &["--ssl-ca=x", "-e"],
        ] {
            assert_eq!(check(bad), Err(exit::USAGE), "{bad:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let missing = Command::new("/nowhere/psql");
        let failure = run(missing, String::new(), "n", "postgresql-client")
            .err()
            .unwrap();
        assert_eq!(failure.exit, exit::SYSTEM);
        assert!(failure.hint.contains("postgresql-client"), "{failure:?}");
    }
}
