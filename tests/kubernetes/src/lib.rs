//! A real Kubernetes for tests: etcd and an API server on loopback, without root, in four seconds.
//!
//! The components are linked into one binary by the Go module in `components`, built on demand and
//! kept outside the repository. What a run starts ends with it, however it ends: the kernel kills
//! the processes, and a janitor that outlives them removes their files.

mod binaries;
mod certificates;
mod control_plane;
mod figures;
mod janitor;
mod kubectl;
mod process;

pub use binaries::{
    CertManager, VERSION, build, build_cert_manager, build_helm, build_older, helm, is_newest,
    kubectl, version,
};
pub use control_plane::{ControlPlane, SecondApiServer, User};
pub use figures::{figure, figures};
pub use ringfence_testkit::programs::cache;
