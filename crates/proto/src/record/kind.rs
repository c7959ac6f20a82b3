//! The kind of a command, read off its first bytes.

use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use ringfence_core::Command;

/// What kind of command an entry holds: a variant of [`Command`] without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// [`Command::Form`].
    Form,
    /// [`Command::TermStart`].
    TermStart,
    /// [`Command::Tick`].
    Tick,
    /// [`Command::Configure`].
    Configure,
    /// [`Command::Open`].
    Open,
    /// [`Command::Request`].
    Request,
    /// [`Command::Close`].
    Close,
    /// [`Command::Renew`].
    Renew,
    /// [`Command::Revoke`].
    Revoke,
    /// [`Command::Evict`].
    Evict,
    /// [`Command::DrawNodeId`].
    DrawNodeId,
    /// [`Command::OpenForPod`].
    OpenForPod,
    /// [`Command::PodEnded`].
    PodEnded,
    /// [`Command::RaiseLevel`].
    RaiseLevel,
    /// [`Command::Called`].
    Called,
    /// [`Command::ChangeAccess`].
    ChangeAccess,
    /// [`Command::Adopt`].
    Adopt,
    /// [`Command::Operate`].
    Operate,
    /// [`Command::WriteObject`].
    WriteObject,
    /// [`Command::Seed`].
    Seed,
}

/// The kind of the command in `bytes`, in constant time: it does not decode the command. `None` if
/// this release does not know the kind, or if the bytes are not exactly one field. Bytes with more
/// than one could otherwise show one kind here, and another where they are decoded.
#[must_use]
pub fn kind_of(mut bytes: &[u8]) -> Option<CommandKind> {
    let (field, wire) = decode_key(&mut bytes).ok()?;
    let length = decode_varint(&mut bytes).ok()?;
    if wire != WireType::LengthDelimited || length != bytes.remaining() as u64 {
        return None;
    }
    Some(match field {
        1 => CommandKind::Form,
        2 => CommandKind::TermStart,
        3 => CommandKind::Tick,
        4 => CommandKind::Configure,
        5 => CommandKind::Open,
        6 => CommandKind::Request,
        7 => CommandKind::Close,
        8 => CommandKind::Renew,
        9 => CommandKind::Revoke,
        10 => CommandKind::Evict,
        11 => CommandKind::DrawNodeId,
        12 => CommandKind::OpenForPod,
        13 => CommandKind::PodEnded,
        14 => CommandKind::RaiseLevel,
        15 => CommandKind::Called,
        16 => CommandKind::ChangeAccess,
        17 => CommandKind::Adopt,
        18 => CommandKind::Operate,
        19 => CommandKind::WriteObject,
        20 => CommandKind::Seed,
        _ => return None,
    })
}

/// The kind of what is called for in `bytes`, a `Called`, without decoding it. `None` if there is no
/// such command, or this release does not know its kind.
pub(super) fn called_kind_of(mut bytes: &[u8]) -> Option<CommandKind> {
    let (_, mut called) = field(&mut bytes)?;
    while let Some((number, message)) = field(&mut called) {
        if number == 2 {
            return kind_of(message);
        }
    }
    None
}

/// Takes the next field off `bytes`: its number and its message.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    let (number, wire) = decode_key(bytes).ok()?;
    let length = decode_varint(bytes).ok()?;
    let length = usize::try_from(length).ok()?;
    let (message, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    (wire == WireType::LengthDelimited).then_some((number, message))
}

impl From<&Command> for CommandKind {
    fn from(command: &Command) -> Self {
        match command {
            Command::Form(_) => Self::Form,
            Command::TermStart { .. } => Self::TermStart,
            Command::Tick => Self::Tick,
            Command::Configure(_) => Self::Configure,
            Command::Open(_) => Self::Open,
            Command::Request(_) => Self::Request,
            Command::Close { .. } => Self::Close,
            Command::Renew(_) => Self::Renew,
            Command::Revoke(_) => Self::Revoke,
            Command::Evict(_) => Self::Evict,
            Command::DrawNodeId => Self::DrawNodeId,
            Command::OpenForPod(_) => Self::OpenForPod,
            Command::PodEnded(_) => Self::PodEnded,
            Command::RaiseLevel { .. } => Self::RaiseLevel,
            Command::Called(_) => Self::Called,
            Command::ChangeAccess(_) => Self::ChangeAccess,
            Command::Adopt { .. } => Self::Adopt,
            Command::Operate { .. } => Self::Operate,
            Command::WriteObject(_) => Self::WriteObject,
            Command::Seed(_) => Self::Seed,
        }
    }
}
