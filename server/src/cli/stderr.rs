//! What is said to people on stderr. Nothing depends on a reader there: it may have gone away, not read,
//! or be a disk that is full.

use std::io::{self, Write};
use std::os::fd::AsFd;

use ringfence_planted::{Bug, planted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Prints a line if stderr takes it at once, and drops it otherwise: the caller may hold a lease, and
/// must not wait for a reader.
pub(crate) fn aside(text: impl AsRef<str>) {
    remark(&mut io::stderr(), text.as_ref());
}

fn remark(to: &mut (impl Write + AsFd), text: &str) {
    if is_writable(to) || planted(Bug::RemarksHoldUp) {
        print(to, text);
    }
}

/// What the libraries log goes to stderr.
pub(crate) fn log_to_stderr() {
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr);
    // Otherwise a line that cannot be written any more ends the process.
    let lines = lines.log_internal_errors(false);
    // In tests another one may have been first.
    lines.with_target(false).try_init().ok();
}

/// Prints a last line. If that cannot be written, the exit code says it alone.
pub(crate) fn complain(text: impl AsRef<str>) {
    print(&mut io::stderr(), text.as_ref());
}

fn print(to: &mut impl Write, text: &str) {
    to.write_all(format!("{text}\n").as_bytes()).ok();
}

/// Whether a pipe, terminal or file takes a line of up to 4 KiB without a pause.
pub(super) fn is_writable(stream: &impl AsFd) -> bool {
    let mut ready = [PollFd::new(stream, PollFlags::OUT)];
    match poll(&mut ready, Some(&Timespec::default())) {
        Ok(0) | Err(Errno::INTR) => false,
        // The write itself says what is wrong, if anything is.
        Ok(_) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{PipeReader, PipeWriter, Read, pipe};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A full pipe.
    fn stuffed() -> (PipeReader, PipeWriter) {
        let (reader, mut writer) = pipe().unwrap();
        while is_writable(&writer) {
            writer.write_all(&[b'x'; 4_096]).unwrap();
        }
        (reader, writer)
    }

    #[test]
    fn a_remark_waits_for_no_reader() {
        let (_reader, mut writer) = stuffed();
        let (done, ends) = mpsc::channel();
        let _detached = thread::spawn(move || {
            remark(&mut writer, "it waits");
            done.send(()).ok();
        });
        ends.recv_timeout(Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn a_remark_that_can_be_read_is_printed() {
        let (mut reader, mut writer) = pipe().unwrap();
        remark(&mut writer, "it waits");
        drop(writer);
        let mut printed = String::new();
        reader.read_to_string(&mut printed).unwrap();
        assert_eq!(printed, "it waits\n");
    }
}
