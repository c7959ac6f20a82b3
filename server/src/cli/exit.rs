//! The exit codes of all commands.

/// A negative answer: held, stale, superseded, ended, unknown; a script that a store rejected.
pub(crate) const NEGATIVE: u8 = 1;
/// The command line, or a value in it, is wrong. The same number as clap's own.
pub(crate) const USAGE: u8 = 2;
/// `check-history` and `chaos` cannot say whether every promise was kept. The same number as a wrong
/// command line: in both cases nothing was found out.
pub(crate) const NO_VERDICT: u8 = 2;
/// No node answered, or none could reach a quorum in time; a store did not answer (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// This machine refused: a port is in use, a file cannot be opened, stdout not written (`EX_OSERR`).
pub(crate) const SYSTEM: u8 = 71;
/// The lease was not obtained within `--wait`, or a store's lock within `--timeout` (`EX_TEMPFAIL`).
pub(crate) const NOT_OBTAINED: u8 = 75;
/// The lease was lost while CMD ran, or a guard refused its token as stale.
pub(crate) const LOST: u8 = 76;
/// The caller is not who it says, or may not do this (`EX_NOPERM`).
pub(crate) const DENIED: u8 = 77;
/// CMD could not be executed, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// CMD was not found, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that killed CMD, as in a shell.
pub(crate) const SIGNAL_BASE: u8 = 128;

/// The table for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
    0  done
    1  a negative answer: held, stale, superseded, ended, unknown; a history that is invalid; a script
       that failed, and of which nothing was written
    2  usage; no verdict on a history
   69  cluster or store unavailable
   71  this machine refused: a port or the data directory is in use, or stdout cannot be written, for
       example
   75  not obtained within --wait; a store's lock, within --timeout
   76  lease lost while CMD ran, or a guard refused its token as stale
   77  permission denied, or the credential that was shown proves nothing
    n  `lock` else ends with CMD's own code: 128+s if signal s killed it, 126 if CMD cannot be
       executed, 127 if it was not found";
