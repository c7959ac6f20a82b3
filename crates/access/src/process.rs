//! Principals that one process has at a time.

use std::fmt::Write;

use ringfence_core::Principal;

use crate::cluster_token::sha256;

/// How many bytes of a digest name a process: more than chance or effort makes two principals share.
const DIGEST_BYTES: usize = 24;

/// What stands for the one process behind a principal, where the UID of its Pod would stand if its
/// credential named one. Two principals never have the same: where rights do not bind, Lease objects
/// are compared by nothing else.
#[must_use]
pub fn process_of(principal: &Principal) -> String {
    let digest = sha256(principal.as_str().as_bytes());
    let mut name = "principal-".to_owned();
    for byte in &digest[..DIGEST_BYTES] {
        write!(name, "{byte:02x}").ok();
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_core::PodUid;

    use super::*;

    #[test]
    fn each_principal_has_a_process_of_its_own_whose_name_may_stand_for_a_pods() {
        let of = |principal| process_of(&Principal::parse(principal).unwrap());
        assert_eq!(of("cert:cn:shop"), of("cert:cn:shop"));
        assert_ne!(of("cert:cn:shop"), of("cert:cn:shop2"));
        assert!(PodUid::parse(&of("cert:cn:shop")).is_ok());
    }
}
