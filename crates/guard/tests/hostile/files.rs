//! Files whose guard fails at each of its steps, or whose process ends there.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ringfence_guard::conformance::{Disturbed, Fault, Held, Hit, HostileStore, Written};
use ringfence_guard::files::{Changes, FilesError, FilesGuard};
use ringfence_guard::{Fence, LeaseName};
use tempfile::TempDir;

use crate::{meets, run_to_end, scratch};

/// A step fails before it does anything, or the process ends there: nothing behind it is carried out, and
/// the lock is free.
const HITS: &[Hit] = &[Hit::TimesOut, Hit::Restart];

struct Part {
    directory: TempDir,
    name: LeaseName,
}

impl Part {
    fn guard(&self) -> FilesGuard {
        FilesGuard::new(self.directory.path(), self.name.clone()).unwrap()
    }
}

fn written(done: Result<(), FilesError>) -> Written {
    match done {
        Ok(()) => Written::Committed,
        Err(FilesError::Refused(refused)) => Written::Refused(refused),
        Err(error @ FilesError::Unknown { .. }) => Written::Unknown(format!("{error:?}")),
        Err(error) => Written::Failed(format!("{error:?}")),
    }
}

impl HostileStore for Part {
    fn hits(&self) -> Vec<Hit> {
        HITS.to_vec()
    }

    async fn write(&self, fence: &Fence, datum: u64, fault: Option<Fault>) -> Disturbed {
        let reached = Arc::new(AtomicBool::new(false));
        let (seen, hit) = (AtomicU32::new(0), Arc::clone(&reached));
        let guard = self.guard().steps(move |_| {
            let step = seen.fetch_add(1, Ordering::SeqCst);
            let Some(fault) = fault.filter(|fault| fault.step == step) else {
                return Ok(());
            };
            hit.store(true, Ordering::SeqCst);
            match fault.hit {
                Hit::TimesOut => Err(io::Error::other("no space left")),
                _ => resume_unwind(Box::new("the process ended")),
            }
        });
        let changes = Changes::new()
            .put("first", datum.to_string())
            .put("second", datum.to_string());
        let done = catch_unwind(AssertUnwindSafe(|| guard.admit(fence, changes)));
        Disturbed {
            written: match done {
                Ok(done) => written(done.map(drop)),
                Err(_) => Written::Unknown("the process ended".into()),
            },
            reached: reached.load(Ordering::SeqCst),
        }
    }

    async fn look(&self) -> Held {
        let guard = self.guard();
        let read = |name: &str| {
            let content = guard.read(name).unwrap();
            content.map(|content| str::from_utf8(&content).unwrap().parse().unwrap())
        };
        Held {
            mark: guard.mark().unwrap(),
            first: read("first"),
            second: read("second"),
        }
    }
}

#[test]
fn a_write_of_files_that_fails_at_any_step_has_committed_nothing() {
    run_to_end(async {
        let parts = async |name: &LeaseName| Part {
            directory: scratch(),
            name: name.clone(),
        };
        let report = meets(parts, HITS).await;
        assert!(report.failed > 0 && report.unknown > 0, "{report:?}");
    });
}
