//! What a guarded transaction compares and changes.

use super::messages::{
    Compare as CompareMessage, DeleteRangeRequest, Operand, PutRequest, RangeRequest, Relation,
    Request, RequestOp, Target, TxnRequest,
};
use super::{EtcdError, MARK_PREFIX};

/// How many comparisons a guarded transaction may have, and how many operations in each branch. etcd
/// allows 128 (`--max-txn-ops`), of which the guard's own transaction takes 2.
pub const OPERATIONS_MAX: usize = 126;

/// A comparison of a key that decides which branch of a [`Txn`] is carried out.
#[derive(Clone, Debug)]
pub struct Compare(CompareMessage);

impl Compare {
    /// The key has exactly this value. False if there is no such key.
    pub fn value(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        let operand = Operand::Value(value.into());
        Self::new(key, Relation::Equal, Target::Value, operand)
    }

    /// There is no such key.
    pub fn absent(key: impl Into<Vec<u8>>) -> Self {
        let operand = Operand::CreateRevision(0);
        Self::new(key, Relation::Equal, Target::CreateRevision, operand)
    }

    /// There is such a key.
    pub fn present(key: impl Into<Vec<u8>>) -> Self {
        let operand = Operand::CreateRevision(0);
        Self::new(key, Relation::Greater, Target::CreateRevision, operand)
    }

    /// The key was last changed at this revision of etcd.
    pub fn mod_revision(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        let operand = Operand::ModRevision(revision);
        Self::new(key, Relation::Equal, Target::ModRevision, operand)
    }

    /// The key was written so often since it was made; 0: there is none.
    pub fn version(key: impl Into<Vec<u8>>, version: i64) -> Self {
        let operand = Operand::Version(version);
        Self::new(key, Relation::Equal, Target::Version, operand)
    }

    fn new(key: impl Into<Vec<u8>>, result: Relation, target: Target, operand: Operand) -> Self {
        Self(CompareMessage {
            result: result.into(),
            target: target.into(),
            key: key.into(),
            operand: Some(operand),
        })
    }

    pub(super) fn into_message(self) -> CompareMessage {
        self.0
    }
}

/// One operation of a branch.
#[derive(Clone, Debug)]
pub struct Operation(Request);

impl Operation {
    /// Sets a key.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::put_with_lease(key, value, 0)
    }

    /// Sets a key that goes with this lease of etcd.
    pub fn put_with_lease(
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
        etcd_lease: i64,
    ) -> Self {
        Self(Request::Put(PutRequest {
            key: key.into(),
            value: value.into(),
            lease: etcd_lease,
        }))
    }

    /// Deletes a key.
    pub fn delete(key: impl Into<Vec<u8>>) -> Self {
        Self::delete_range(key, Vec::new())
    }

    /// Deletes the keys from `key` up to and without `end`; an `end` of one zero byte: all from `key` on.
    pub fn delete_range(key: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self(Request::DeleteRange(DeleteRangeRequest {
            key: key.into(),
            range_end: end.into(),
        }))
    }

    /// Reads a key.
    pub fn get(key: impl Into<Vec<u8>>) -> Self {
        Self(Request::Range(RangeRequest {
            key: key.into(),
            range_end: Vec::new(),
        }))
    }

    /// Whether it would change a mark, of this lease or of another one.
    fn changes_a_mark(&self) -> bool {
        let marks = MARK_PREFIX.as_bytes();
        let is_mark = |key: &[u8]| key.starts_with(marks);
        match &self.0 {
            Request::Put(put) => is_mark(&put.key),
            Request::DeleteRange(range) => {
                let key = range.key.as_slice();
                // Marks are one run of keys: a range meets it if it begins in it, or before it and does
                // not end before it.
                match range.range_end.as_slice() {
                    [] => is_mark(key),
                    _ if is_mark(key) => true,
                    [0] => key < marks,
                    end => key < marks && marks < end,
                }
            }
            Request::Range(_) | Request::Txn(_) => false,
        }
    }
}

/// A guarded transaction: comparisons, and two branches of which etcd carries out one, wholly.
///
/// It is the caller's own; the guard puts it into one that compares and writes the mark. If the caller's
/// comparisons do not hold, the fence was admitted all the same, the mark is written, and the second
/// branch is carried out: see [`Branch`](super::Branch).
#[derive(Clone, Debug, Default)]
#[must_use = "a transaction does nothing until a guard admits it"]
pub struct Txn {
    compares: Vec<Compare>,
    then: Vec<Operation>,
    otherwise: Vec<Operation>,
}

impl Txn {
    /// Without a comparison: its first branch is carried out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a comparison; all of them must hold.
    pub fn when(mut self, compare: Compare) -> Self {
        self.compares.push(compare);
        self
    }

    /// Adds an operation to the first branch.
    pub fn then(mut self, operation: Operation) -> Self {
        self.then.push(operation);
        self
    }

    /// Adds an operation to the second branch.
    pub fn otherwise(mut self, operation: Operation) -> Self {
        self.otherwise.push(operation);
        self
    }

    /// Adds to the first branch that a key is set.
    pub fn put(self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.then(Operation::put(key, value))
    }

    /// Adds to the first branch that a key is deleted.
    pub fn delete(self, key: impl Into<Vec<u8>>) -> Self {
        self.then(Operation::delete(key))
    }

    /// Whether all of it may be sent.
    pub(super) fn check(&self) -> Result<(), EtcdError> {
        for (what, offered) in [
            ("comparisons", self.compares.len()),
            ("operations of the first branch", self.then.len()),
            ("operations of the second branch", self.otherwise.len()),
        ] {
            if offered > OPERATIONS_MAX {
                return Err(EtcdError::TooMany {
                    what,
                    offered,
                    max: OPERATIONS_MAX,
                });
            }
        }
        let mut all = self.then.iter().chain(&self.otherwise);
        if all.any(Operation::changes_a_mark) {
            return Err(EtcdError::MarkIsNoData);
        }
        Ok(())
    }

    pub(super) fn into_message(self) -> TxnRequest {
        let operations = |all: Vec<Operation>| -> Vec<RequestOp> {
            all.into_iter().map(|one| one.0.into()).collect()
        };
        TxnRequest {
            compare: self
                .compares
                .into_iter()
                .map(Compare::into_message)
                .collect(),
            success: operations(self.then),
            failure: operations(self.otherwise),
        }
    }
}
