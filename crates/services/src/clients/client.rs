//! What the services know of a connection.

use std::sync::Arc;

use super::account::Account;

/// What every request on a connection knows of it, as an extension of the request.
#[derive(Clone)]
pub struct Client {
    account: Arc<Account>,
}

impl Client {
    /// The client behind the connection with this account.
    #[must_use]
    pub fn new(account: Arc<Account>) -> Self {
        Self { account }
    }

    /// The account of the connection that a request came by.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}
