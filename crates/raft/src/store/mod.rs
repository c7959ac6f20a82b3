//! What a node keeps: its identity, its log, its snapshots and the applied state.
//!
//! [`log_store`] is openraft's log on top of the WAL, with its newest entries in the [`ring`].
//! [`state`] applies committed entries to the state machine, feeds [`events`] and [`waiters`], and
//! takes snapshots by way of [`snapshot_file`] and [`snapshot_frames`]. [`backup_file`] is the form of a
//! backup, [`backup_output`] how one gets to its place; both kinds of files consist of [`frames`].
//! [`identity`] is the file that says whose directory it is; [`data_dir`] names everything that may lie there, [`stored_log`]
//! reads the log of a stopped node, and [`recovery`] makes a backup of one that survived its cluster. No module here talks to another node.

pub(crate) mod backup_file;
pub(crate) mod backup_output;
pub(crate) mod data_dir;
pub(crate) mod events;
pub(crate) mod frames;
pub(crate) mod identity;
pub(crate) mod log_store;
pub(crate) mod recovery;
pub(crate) mod ring;
pub(crate) mod snapshot_error;
pub(crate) mod snapshot_file;
pub(crate) mod snapshot_frames;
pub(crate) mod state;
pub(crate) mod stored_log;
pub(crate) mod waiters;
