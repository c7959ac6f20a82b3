//! Writes of Lease objects.

use ringfence_core::{
    Command, Identity, ObjectMetadata, ObjectSpec, ObjectWrite, OpenId, Revoke, Secret, WriteObject,
};

use super::resolve::{Resolver, lease_name, pod, sixteen, token};
use super::{Act, ObjectAct, Token, Version};
use crate::view::View;

impl Resolver {
    pub(super) fn write_object(&self, act: &Act, view: &View) -> Command {
        let Act::WriteObject {
            lease,
            pod: of,
            watched,
            version,
            write,
        } = act
        else {
            return Command::Tick;
        };
        let name = lease_name(*lease);
        let of = of.map(|number| pod(number / 2 * 2));
        let present = view.object(&name).map(|object| object.version);
        // No two writes open a session under one id, but where one is delivered again.
        let mut id = sixteen(0xEE);
        id[..8].copy_from_slice(&self.index.to_be_bytes());
        let metadata = |byte: u8| ObjectMetadata::new(&[byte][usize::from(byte == 0)..]);
        let write = match *write {
            ObjectAct::Metadata(byte) => ObjectWrite::Put {
                metadata: metadata(byte).expect("short"),
                spec: None,
            },
            ObjectAct::Spec {
                holder,
                seconds,
                new_term,
            } => ObjectWrite::Put {
                metadata: ObjectMetadata::default(),
                spec: Some(ObjectSpec {
                    holder: Identity::parse(["", "one", "two"][usize::from(holder % 3)])
                        .expect("a lawful identity"),
                    seconds,
                    new_term,
                    open: OpenId::new(id),
                    secret: Secret::new(id),
                }),
            },
            ObjectAct::Delete(revoke) => ObjectWrite::Delete {
                revoke: revoke.map(|now| Revoke {
                    name: name.clone(),
                    token: token(Token::Current, *lease, None, view),
                    now,
                    reason: "drill".into(),
                    operator: "olga".into(),
                }),
            },
        };
        Command::WriteObject(Box::new(WriteObject {
            version: match *version {
                Version::Present => present,
                Version::Older(back) => present.map(|version| version - u64::from(back)),
                Version::Absent => None,
            },
            name,
            pod: of.as_ref().map(|pod| pod.uid().clone()),
            watched: of.filter(|_| *watched),
            write,
        }))
    }
}
