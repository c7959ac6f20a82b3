//! kubectl beside a control plane, as people use it.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::binaries;
use crate::control_plane::{ControlPlane, User};

/// Held while manifests are applied. `kubectl apply` looks first and creates then: of two that bring
/// an object of the whole cluster, such as the keeper of the fencing policies, at the same time, one
/// hears that it already exists.
static APPLYING: Mutex<()> = Mutex::new(());

impl ControlPlane {
    /// Runs kubectl as an admin; gives what it printed.
    ///
    /// # Panics
    ///
    /// Where there is no kubectl, and where it fails, with what it said.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let _alone = match arguments.first() {
            Some(&"apply") => Some(APPLYING.lock().unwrap_or_else(PoisonError::into_inner)),
            _ => None,
        };
        let mut child = Command::new(binaries::kubectl().expect("there is a kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig(User::Admin, &self.address()))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let written = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("kubectl ends");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {told}");
        written.expect("kubectl reads what it is given");
        String::from_utf8(output.stdout).expect("kubectl prints text")
    }
}
