//! What a store must show of itself to be tested.

use std::future;

use ringfence_core::FencingToken;

use super::Step;

/// A fresh guarded store with one datum, absent at first, and no mark.
pub trait Store {
    /// One of its connections.
    type Connection: Connection + 'static;
    /// A copy of everything that a backup of this store holds: the datum and the mark.
    type Backup;

    /// Opens another connection.
    fn connect(&self) -> Self::Connection;

    /// Closes the store and opens it again, as after a crash of its process. Called without
    /// connections. A store that lives and dies with its data, mark included, does nothing.
    fn reopen(&mut self);

    /// Copies the store. Called without open transactions.
    fn backup(&self) -> Self::Backup;

    /// Replaces the store's content with the copy, mark included. Called without connections.
    fn restore(&mut self, backup: Self::Backup);

    /// Raises the mark to `floor` if it is lower, as an operator must after a restore, before
    /// writes are served.
    fn advance_to(&mut self, floor: FencingToken);
}

/// One connection, with at most one transaction open. Dropping it rolls back.
pub trait Connection {
    /// Begins a transaction and admits the fence in it, given as a request would carry it: `None`
    /// if it carried none.
    ///
    /// # Errors
    /// [`Stop`](super::Stop); no transaction is open then, or [`Connection::abort`] closes it.
    fn admit(&mut self, fence: Option<&str>) -> Step;

    /// Begins a transaction and raises the mark in it, for a holder that has just been granted the
    /// lease. [`Connection::commit`] follows; if the store commits at once, that does nothing.
    ///
    /// # Errors
    /// As [`Connection::admit`].
    fn advance(&mut self, fence: &str) -> Step;

    /// Reads the datum: within the open transaction if there is one, else on its own.
    ///
    /// # Errors
    /// [`Stop`](super::Stop); the transaction stays open unless it is
    /// [`Stop::Restart`](super::Stop::Restart).
    fn read(&mut self) -> Step<Option<u64>>;

    /// Sets the datum within the open transaction; `None` deletes it. A store whose check is part
    /// of its commit may only note it here.
    ///
    /// # Errors
    /// As [`Connection::read`].
    fn write(&mut self, datum: Option<u64>) -> Step;

    /// Commits the open transaction.
    ///
    /// # Errors
    /// As [`Connection::read`]; nothing was committed then.
    fn commit(&mut self) -> Step;

    /// Gives up the open transaction, if there is one.
    fn abort(&mut self);
}

/// A [`Store`] that is reached by futures. Implementations may write `async fn`.
pub trait AsyncStore {
    /// One of its connections.
    type Connection: AsyncConnection + 'static;
    /// A copy of everything that a backup of this store holds: the datum and the mark.
    type Backup;

    /// As [`Store::connect`].
    fn connect(&self) -> impl Future<Output = Self::Connection>;

    /// As [`Store::reopen`].
    fn reopen(&mut self) -> impl Future<Output = ()>;

    /// As [`Store::backup`].
    fn backup(&self) -> impl Future<Output = Self::Backup>;

    /// As [`Store::restore`].
    fn restore(&mut self, backup: Self::Backup) -> impl Future<Output = ()>;

    /// As [`Store::advance_to`].
    fn advance_to(&mut self, floor: FencingToken) -> impl Future<Output = ()>;

    /// Completes as soon as the connection with that [`AsyncConnection::id`] waits for another one
    /// inside the store, and does not complete while it does not. Without this method no connection
    /// ever waits.
    ///
    /// It should look at the store's own lock table, about every millisecond. A time limit (“not
    /// done after 50 ms”) would do as well, and is slower.
    fn until_blocked(&self, connection: u64) -> impl Future<Output = ()> {
        let _ = connection;
        future::pending()
    }
}

/// A [`Connection`] that is reached by futures. Implementations may write `async fn`.
pub trait AsyncConnection {
    /// What [`AsyncStore::until_blocked`] knows this connection by.
    fn id(&self) -> u64 {
        0
    }

    /// As [`Connection::admit`].
    ///
    /// # Errors
    /// As [`Connection::admit`].
    fn admit(&mut self, fence: Option<&str>) -> impl Future<Output = Step>;

    /// As [`Connection::advance`].
    ///
    /// # Errors
    /// As [`Connection::advance`].
    fn advance(&mut self, fence: &str) -> impl Future<Output = Step>;

    /// As [`Connection::read`].
    ///
    /// # Errors
    /// As [`Connection::read`].
    fn read(&mut self) -> impl Future<Output = Step<Option<u64>>>;

    /// As [`Connection::write`].
    ///
    /// # Errors
    /// As [`Connection::write`].
    fn write(&mut self, datum: Option<u64>) -> impl Future<Output = Step>;

    /// As [`Connection::commit`].
    ///
    /// # Errors
    /// As [`Connection::commit`].
    fn commit(&mut self) -> impl Future<Output = Step>;

    /// As [`Connection::abort`].
    fn abort(&mut self) -> impl Future<Output = ()>;
}
