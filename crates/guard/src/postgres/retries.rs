//! Which errors are conflicts with another transaction, and the pause behind one.

use std::error::Error;

use tokio_postgres::Client;
use tokio_postgres::error::{DbError, SqlState};

use super::PostgresError;
use crate::retries::{Conflict, Retries};

/// The conflict that the server means by this error.
fn conflict(error: &DbError) -> Option<Conflict> {
    let code = error.code();
    if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED {
        Some(Conflict::Transaction)
    } else if *code == SqlState::LOCK_NOT_AVAILABLE {
        Some(Conflict::Lock)
    } else {
        None
    }
}

/// Whether the server means a conflict by this error.
pub(super) fn is_conflict(error: &DbError) -> bool {
    conflict(error).is_some()
}

/// The conflict that an error stems from, however deep it is wrapped.
pub(super) fn conflict_in(error: &(dyn Error + 'static)) -> Option<Conflict> {
    let mut next = Some(error);
    while let Some(error) = next {
        let found = match error.downcast_ref::<PostgresError>() {
            Some(PostgresError::Conflict { source }) => source.as_db_error(),
            _ => error.downcast_ref::<DbError>(),
        };
        if let Some(conflict) = found.and_then(conflict) {
            return Some(conflict);
        }
        next = error.source();
    }
    None
}

/// Whether an attempt that met `conflict` is to be repeated; then it has paused.
///
/// The server pauses, on the connection that has nothing else to do: so no timer is needed, of
/// whatever executor this runs on. A pause that fails is shorter, and the next attempt says why.
pub(super) async fn again(retries: &mut Retries, client: &Client, conflict: Conflict) -> bool {
    let Some(pause) = retries.pause_after(conflict) else {
        return false;
    };
    let pause = pause.as_secs_f64();
    client
        .batch_execute(&format!("SELECT pg_catalog.pg_sleep({pause})"))
        .await
        .ok();
    true
}
