//! The gate of `tethered`, for systems without a death signal: a program starts when a watchdog is
//! there, and not at all if its parent has ended before.

use std::io::{PipeReader, Write, pipe};
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::harness::{Said, ringfence};

/// Starts a program that says whether it has inherited the gate.
fn tethered(gate: &PipeReader) -> Child {
    fcntl_setfd(gate, FdFlags::empty()).unwrap();
    let descriptor = gate.as_raw_fd().to_string();
    let script = format!("test -e /dev/fd/{descriptor} && echo open || echo closed");
    ringfence()
        .args(["tethered", "--parent", &std::process::id().to_string()])
        .args(["--gate", &descriptor, "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_program_waits_at_its_gate_and_does_not_inherit_it() {
    let (gate, mut opener) = pipe().unwrap();
    let mut program = tethered(&gate);
    assert!(program.try_wait().unwrap().is_none());

    opener.write_all(&[1]).unwrap();
    let said = Said::from(program.wait_with_output().unwrap());
    assert_eq!(said.out, "closed\n", "{said:?}");
}

#[test]
fn a_program_whose_gate_is_never_opened_never_runs() {
    let (gate, opener) = pipe().unwrap();
    let program = tethered(&gate);

    drop(opener);
    let said = Said::from(program.wait_with_output().unwrap());
    assert_eq!((said.code, &*said.out), (Some(126), ""), "{said:?}");
    assert!(said.err.contains("parent"), "{said:?}");
}
