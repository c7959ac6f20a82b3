//! What keeps an effect from ending its transaction, or from taking its journal away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

/// Whether a statement sets how the database is journaled.
fn sets_journal(action: &AuthAction<'_>) -> bool {
    matches!(
        action,
        AuthAction::Pragma { pragma_name, pragma_value: Some(_) }
            if pragma_name.eq_ignore_ascii_case("journal_mode")
    )
}

/// Refuses every commit of a connection while it stands, keeps its journal, and notes a rollback.
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
            if watched.stands.load(Ordering::SeqCst) && sets_journal(&context.action) {
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
