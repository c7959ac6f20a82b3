//! What keeps an effect from ending its transaction, from taking its journal away, and from lowering or
//! hiding the marks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

/// The settings that an effect leaves alone: without a journal nothing is rolled back, and with a writable
/// schema a table goes without a statement that names it.
const KEPT: [&str; 2] = ["journal_mode", "writable_schema"];

/// Whether a statement takes away what the guard needs: the journal, the marks or their triggers. To insert
/// and to update marks is left to the triggers, since an effect may admit the fence of another lease.
fn harms(action: &AuthAction<'_>) -> bool {
    let is_marks = |name: &str| name.eq_ignore_ascii_case("ringfence_marks");
    match action {
        AuthAction::Pragma {
            pragma_name,
            pragma_value: Some(_),
        } => KEPT
            .iter()
            .any(|kept| pragma_name.eq_ignore_ascii_case(kept)),
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => true,
        AuthAction::AlterTable { table_name, .. }
        | AuthAction::CreateIndex { table_name, .. }
        | AuthAction::CreateTempIndex { table_name, .. }
        | AuthAction::CreateTempTable { table_name }
        | AuthAction::CreateTempTrigger { table_name, .. }
        | AuthAction::CreateTrigger { table_name, .. }
        | AuthAction::Delete { table_name }
        | AuthAction::DropIndex { table_name, .. }
        | AuthAction::DropTable { table_name }
        | AuthAction::DropTrigger { table_name, .. } => is_marks(table_name),
        AuthAction::CreateTempView { view_name } => is_marks(view_name),
        _ => false,
    }
}

/// Refuses every commit of a connection while it stands, keeps its journal and its marks, and notes a
/// rollback.
#[derive(Default)]
pub(super) struct Wall(Arc<Watched>);

#[derive(Default)]
struct Watched {
    stands: AtomicBool,
    /// What is open, if anything is, is not the transaction in which the wall was raised.
    ended: AtomicBool,
}

impl Wall {
    pub(super) fn raise(&self, connection: &Connection) {
        self.0.stands.store(true, Ordering::SeqCst);
        let watched = Arc::clone(&self.0);
        connection.commit_hook(Some(move || watched.stands.load(Ordering::SeqCst)));
        let watched = Arc::clone(&self.0);
        connection.rollback_hook(Some(move || watched.ended.store(true, Ordering::SeqCst)));
        let watched = Arc::clone(&self.0);
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            if watched.stands.load(Ordering::SeqCst) && harms(&context.action) {
                Authorization::Deny
            } else {
                Authorization::Allow
            }
        }));
    }

    pub(super) fn lower(&self) {
        self.0.stands.store(false, Ordering::SeqCst);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::SeqCst)
    }
}

/// Also when an effect panics: the connection is fit for other work.
impl Drop for Wall {
    fn drop(&mut self) {
        self.lower();
    }
}
