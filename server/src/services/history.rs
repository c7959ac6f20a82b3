//! History: who held a token, from when to when, and why it ended.

use ringfence_proto::{Refusal, v1, wire};

use super::Context;
use crate::status::RETRY_AFTER;

impl Context {
    /// Answers from this node's own history; the answer says which indices that covers.
    pub(super) async fn history(
        &self,
        request: v1::HistoryRequest,
    ) -> Result<v1::HistoryResponse, Refusal> {
        let (_ask, _limit) = wire::history_from_wire(request)?;
        Err(Refusal::unavailable("this node keeps no history", None, RETRY_AFTER))
    }
}
