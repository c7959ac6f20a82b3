//! Why bytes have no meaning.

/// Why bytes, or a message of the wire, could not be turned into a type of the core.
///
/// For a log command every one of these means the same to a node: it cannot apply the entry as its
/// peers do, so it must stop before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are no message at all.
    #[error("the bytes of {what} are no message: {source}")]
    Malformed {
        /// What they should have been.
        what: &'static str,
        /// What the decoder stumbled over.
        source: prost::DecodeError,
    },
    /// A log command of a kind that this version does not know.
    #[error("log command of kind {kind} is unknown to this version; a newer one wrote it")]
    UnknownCommand {
        /// Its kind: the number of its field in `Command`.
        kind: u32,
    },
    /// A kind of something else that this version does not know.
    #[error("{what} of kind {kind} is unknown to this version; a newer one wrote it")]
    UnknownKind {
        /// Of what.
        what: &'static str,
        /// The number of its field.
        kind: u32,
    },
    /// Fields inside a known kind that this version does not know, or that stand there twice.
    #[error(
        "{what} has {bytes} bytes, of which this version understands {understood}; a newer one \
         wrote it"
    )]
    UnknownFields {
        /// In what.
        what: &'static str,
        /// How many bytes there are.
        bytes: usize,
        /// How many bytes the known fields take.
        understood: usize,
    },
    /// A level that this version does not know: what it would make of the log from there on is not
    /// what the level says.
    #[error(
        "level {level} is unknown to this version, whose newest is {newest}; a newer one raised it"
    )]
    UnknownLevel {
        /// The level in the log, above `newest`.
        level: u32,
        /// The newest level that this version knows.
        newest: u32,
    },
    /// A field that must be there is not.
    #[error("{field} is missing")]
    Missing {
        /// The field's name in the schema.
        field: &'static str,
    },
    /// A field has a value that it cannot have.
    #[error("{field}: {why}")]
    Invalid {
        /// The field's name in the schema.
        field: &'static str,
        /// What is wrong, and what is allowed.
        why: String,
    },
}

impl DecodeError {
    /// Whether a newer version may have written this, and will read it. What is damaged may look so too.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::UnknownCommand { .. }
                | Self::UnknownKind { .. }
                | Self::UnknownFields { .. }
                | Self::UnknownLevel { .. }
        )
    }

    pub(crate) fn invalid(field: &'static str, why: impl ToString) -> Self {
        Self::Invalid {
            field,
            why: why.to_string(),
        }
    }
}
