//! Holds a child back until it cannot outlive this process.
//!
//! Where the kernel has no death signal, a watchdog kills the child when this process ends. The
//! watchdog needs the child's process id, so the child starts first. This process may end in
//! between: the child therefore waits at a pipe, and gives up when the pipe is closed unopened.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};

/// The parent's side.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Every child that is started meanwhile inherits it. That does no harm: only a copy of the
    /// writer would keep a gate from being seen as closed.
    reader: PipeReader,
    writer: PipeWriter,
}

impl Gate {
    /// A gate that is shut.
    ///
    /// # Errors
    /// If this process has no descriptors left.
    pub(super) fn shut() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        fcntl_setfd(&reader, FdFlags::empty())?;
        Ok(Self { reader, writer })
    }

    /// The descriptor at which the child waits.
    pub(super) fn descriptor(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Lets the child go on. One that has ended does not mind.
    pub(crate) fn open(mut self) {
        self.writer.write_all(&[1]).ok();
    }
}

/// The child's side: waits until the parent opens the gate, and closes the descriptor.
///
/// # Errors
/// If the parent has ended before it opened the gate.
pub(super) fn wait(descriptor: RawFd) -> io::Result<()> {
    let mut gate = File::open(format!("/dev/fd/{descriptor}"))?;
    gate.read_exact(&mut [0])?;
    // The program to come must not inherit it.
    Ok(nix::unistd::close(descriptor)?)
}
