//! When first members may restore a cluster: all of them from the same backup, by clocks that agree.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence_core::{Mode, WallTime};
use ringfence_proto::text::hex;

use crate::shared::hello::Asked;
use crate::shared::inner::Inner;
use crate::store::identity::digest_to_pb;

/// How far the wall clocks of first members may be apart. Whichever leads first raises the tokens to
/// its own.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(1);

/// Whether the first members, which are all empty and have answered, agree on what the cluster begins
/// with, and may take their seats in a restored cluster, if it is to be one.
///
/// # Errors
/// What the founder waits for, and what an operator can do.
pub(crate) fn check_restore(
    inner: &Inner,
    first: &[(String, String)],
    answers: &BTreeMap<&String, Asked>,
) -> Result<(), String> {
    let config = &inner.config;
    let mine = digest_to_pb(inner.begins_with().as_ref());
    let others = first.iter().filter(|(name, _)| *name != config.name);
    let others = others.filter_map(|(name, address)| Some((name, answers.get(address)?)));
    for (name, asked) in others.clone() {
        if asked.answer.restores != mine && !asked.answer.cluster.is_empty() {
            return Err(format!(
                "an operator to empty the data directory of {name} and to start it again: it took its \
                 seat when it {}, and this node {}; nothing was ever written there",
                begins_how(&asked.answer.restores),
                begins_how(&mine),
            ));
        }
        if asked.answer.restores != mine {
            return Err(format!(
                "{name} to be started by the same release, with the same --restore, --digest, --rules, \
                 --drill, --access, --quiet-time and --token-floor: it {}, this node {}",
                begins_how(&asked.answer.restores),
                begins_how(&mine),
            ));
        }
    }
    let Some(restore) = &config.restore else {
        return Ok(());
    };
    check_port(inner)?;
    let wall = WallTime((config.hooks.wall_millis)());
    restore.check_clock(wall, config.token_floor)?;
    if restore.drill {
        return Ok(());
    }
    for (name, asked) in others {
        let Some(apart) = asked.apart() else {
            return Err(format!(
                "{name} to show its clock, which is compared when a cluster is restored: start it by \
                 the same release as this node"
            ));
        };
        if apart > CLOCKS_APART_MAX {
            return Err(format!(
                "the clock of {name} to agree with this node's: they are {} ms apart, at most {} are \
                 allowed when a cluster is restored; set both",
                apart.as_millis(),
                CLOCKS_APART_MAX.as_millis(),
            ));
        }
    }
    Ok(())
}

/// Whether this node's peer port may be that of a first member of the restored cluster. The first
/// leader cannot ask a member that is lost by then.
///
/// # Errors
/// What is wrong with it, and what an operator can do.
pub(crate) fn check_port(inner: &Inner) -> Result<(), String> {
    let config = &inner.config;
    let restore = config.restore.as_ref();
    let enforced = restore.is_some_and(|restore| restore.mode() == Mode::Enforced);
    if !enforced || config.peer_authenticated() {
        return Ok(());
    }
    Err(format!(
        "an authenticated peer port on {}, since rights are enforced in the restored cluster: start \
         it with --cluster-secret-file, or with certificates and --peer-tls-name, and without \
         --peer-tls-mode permissive",
        config.name
    ))
}

/// What the cluster of a node with this digest begins with, for people: a backup, by its own digest if
/// no other flag changes the beginning, or a quiet time.
pub(crate) fn begins_how(digest: &[u8]) -> String {
    match digest {
        [] => "begins without a backup and without a quiet time".to_owned(),
        digest => format!("begins with {}", hex(digest)),
    }
}
