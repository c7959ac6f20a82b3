//! Ids and secrets: sixteen bytes, written as two numbers.

use ringfence_core::{ClusterId, OpenId, Secret};

use super::pb;
use crate::{DecodeError, fields};

macro_rules! id {
    ($($name:ident)*) => {$(
        impl From<&$name> for pb::Id {
            fn from(id: &$name) -> Self {
                let bits = u128::from_be_bytes(*id.as_bytes());
                Self { high: (bits >> 64) as u64, low: bits as u64 }
            }
        }

        impl From<pb::Id> for $name {
            fn from(id: pb::Id) -> Self {
                Self::new((u128::from(id.high) << 64 | u128::from(id.low)).to_be_bytes())
            }
        }
    )*};
}

id!(ClusterId OpenId Secret);

/// The id in a field that must be there.
pub(super) fn id<T: From<pb::Id>>(
    id: Option<pb::Id>,
    field: &'static str,
) -> Result<T, DecodeError> {
    fields::there(id, field).map(T::from)
}
