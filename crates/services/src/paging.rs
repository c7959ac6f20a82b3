//! Room for answers that are large for their question, before they are made.

use std::sync::Arc;

use prost::Message;
use ringfence_proto::Refusal;
use tokio::time::timeout;
use tonic::Response;

use crate::clients::{Account, Reserved, crowded};
use crate::limits::{BYTES_PER_CALL, PAGE_BYTES_MAX, PAGE_BYTES_PER_ITEM, PAGE_ROOM_WAIT_MAX};

/// A page in its room.
#[derive(Debug)]
pub(super) struct Page<T> {
    room: Reserved,
    page: T,
}

impl<T> Page<T> {
    pub(super) fn new(room: Reserved, page: T) -> Self {
        Self { room, page }
    }

    /// The response, whose room is held until it is written.
    pub(super) fn response(self) -> Response<T> {
        self.room.with(self.page)
    }
}

/// Room for a page of so many items.
pub(super) async fn page_room(account: &Arc<Account>, items: usize) -> Result<Reserved, Refusal> {
    let bytes = items
        .saturating_mul(PAGE_BYTES_PER_ITEM)
        .min(PAGE_BYTES_MAX);
    let reserving = timeout(PAGE_ROOM_WAIT_MAX, account.reserve(bytes));
    reserving.await.map(Reserved::new).map_err(|_| crowded())
}

/// An answer that is seldom large: its room is made when it is known how much it takes.
pub(super) fn in_room<T: Message>(
    account: &Arc<Account>,
    answer: T,
) -> Result<Response<T>, Refusal> {
    let bytes = answer.encoded_len();
    if bytes <= BYTES_PER_CALL {
        return Ok(Response::new(answer));
    }
    let room = account.try_reserve(bytes).ok_or_else(crowded)?;
    Ok(Reserved::new(room).with(answer))
}
