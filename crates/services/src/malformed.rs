//! Messages that the transport refuses before a service sees them: bytes that are no message, text
//! that is not UTF-8, too many bytes. The transport says so with a bare status; a caller who goes
//! by our reasons would take that for an unknown outcome, although nothing was done.

use ringfence_proto::Refusal;
use ringfence_proto::wire::MESSAGE_BYTES_MAX;
use tonic::{Code, Status};

use crate::status::limit;

/// How `prost` begins when bytes are no message, followed by `Message.field: ` and the reason.
const UNDECODABLE: &str = "failed to decode Protobuf message";
/// How `tonic` speaks of a message above the limit.
const TOO_LARGE: &str = "decoded message length too large";

/// The response with a reason of ours if the transport refused the request.
#[must_use]
pub fn name_malformed<B>(mut response: http::Response<B>) -> http::Response<B> {
    let Some(status) = Status::from_header_map(response.headers()) else {
        return response;
    };
    if status.code() != Code::Ok && status.details().is_empty() {
        let named = name_malformed_status(status);
        if !named.details().is_empty() {
            // The headers hold a status already, so that this one fits too.
            let _fits = named.add_header(response.headers_mut()).is_ok();
        }
    }
    response
}

/// The status with a reason of ours if the transport made it of a malformed message.
pub(super) fn name_malformed_status(status: Status) -> Status {
    let message = status.message();
    match status.code() {
        Code::Internal if message.starts_with(UNDECODABLE) => {
            let why = message[UNDECODABLE.len()..].trim_start_matches(": ");
            let (field, offered) = why.rsplit_once(": ").unwrap_or(("message", why));
            Refusal::invalid(field, offered, "what the .proto files say, texts in UTF-8").into()
        }
        Code::OutOfRange if message.contains(TOO_LARGE) => {
            let mut refusal = limit(
                "message_bytes",
                MESSAGE_BYTES_MAX,
                "split the message into smaller ones",
            );
            refusal.message = format!("{message}; {}", refusal.message);
            refusal.into()
        }
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use ringfence_proto::v1::Reason;

    use super::*;

    #[test]
    fn text_that_is_not_utf_8_is_an_invalid_argument_that_names_its_field() {
        let bare = "failed to decode Protobuf message: GetRequest.name: invalid string value: data \
                    is not UTF-8 encoded";

        let named = name_malformed_status(Status::internal(bare));

        let refusal = Refusal::from_status(&named).expect("a reason of ours");
        assert_eq!(named.code(), Code::InvalidArgument);
        assert_eq!(refusal.reason, Reason::InvalidArgument);
        assert!(
            refusal.metadata["field"].contains("GetRequest.name"),
            "{refusal:?}"
        );
        assert!(refusal.metadata["offered"].contains("UTF-8"), "{refusal:?}");
    }

    #[test]
    fn other_statuses_stay_as_they_are() {
        let kept = name_malformed_status(Status::internal("something else"));

        assert_eq!(kept.code(), Code::Internal);
        assert!(Refusal::from_status(&kept).is_none());
    }
}
