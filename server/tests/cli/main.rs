//! The command line as people and scripts meet it: the real binary, and real nodes where needed.
#![allow(clippy::unwrap_used)]

mod access;
mod administering;
mod audit;
mod bench;
mod calls;
mod chaos;
mod commands;
mod console;
mod credentials;
mod databases;
mod demo;
mod dev;
mod doctor;
mod fake_node;
mod gate;
mod guard;
mod guard_hostile;
mod guard_shared_mysql;
mod guard_strangers;
mod harness;
mod history;
mod http;
mod kube;
mod lock;
mod members;
mod rates;
mod refusals;
mod rules;
mod secrets;
mod terminal;
mod top;
mod unread;
mod usage;
mod without_bugs;
mod working;
