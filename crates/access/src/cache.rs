//! Proofs by JWT that were made already, so that a caller with many requests costs one verification
//! and not one for each.

use std::collections::HashMap;

use crate::jwt::VerifiedBy;
use crate::limits::CACHED_PROOFS_MAX;
use crate::proven::Proven;

/// A proof, and the keys that it is by.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    pub(crate) proven: Proven,
    pub(crate) by: VerifiedBy,
}

/// The SHA-256 of a token.
type Digest = [u8; 32];

/// At most [`CACHED_PROOFS_MAX`] proofs, by the digests of their tokens: the tokens are not kept. Two
/// halves, so that what was not used for as long as the younger one took to fill is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    young: HashMap<Digest, Proof>,
    old: HashMap<Digest, Proof>,
}

const HALF: usize = CACHED_PROOFS_MAX / 2;

impl Cache {
    pub(crate) fn get(&mut self, token: &Digest) -> Option<Proof> {
        if let Some(proof) = self.young.get(token) {
            return Some(proof.clone());
        }
        let proof = self.old.remove(token)?;
        self.insert(*token, proof.clone());
        Some(proof)
    }

    pub(crate) fn insert(&mut self, token: Digest, proof: Proof) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token, proof);
    }

    pub(crate) fn remove(&mut self, token: &Digest) {
        self.young.remove(token);
        self.old.remove(token);
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
