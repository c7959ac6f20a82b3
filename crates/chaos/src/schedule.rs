//! The schedule of faults: made from a seed, kept as a file, replayed from one.

mod make;

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::plan::Kind;
pub(crate) use make::Means;

/// The version of the file's format.
const VERSION: u32 = 1;

/// What is done to whom, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The version of this format.
    pub version: u32,
    /// The seed it was made from.
    pub seed: u64,
    /// For so many first members.
    pub nodes: u32,
    /// For so many clients.
    pub clients: u32,
    /// How long the workload lasts.
    pub duration_ms: u64,
    /// The faults, in the order of their begins.
    pub faults: Vec<Planned>,
}

/// One fault of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// Its number, from 1.
    pub id: u32,
    /// Its kind.
    pub kind: Kind,
    /// When it begins, from the begin of the workload.
    pub begin_ms: u64,
    /// How long it lasts.
    pub lasts_ms: u64,
    /// What it does.
    pub fault: Fault,
}

/// A node to be hit: chosen in advance, or when the time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Victim {
    /// The node that leads then.
    Leader,
    /// The node at this place, from 0.
    Node(usize),
}

/// Which packets of a node are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// What it sends.
    Out,
    /// What is sent to it.
    In,
    /// Both.
    Both,
}

/// How a partition runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A majority and a minority.
    Sides,
    /// Two sides, and a node that reaches both.
    Bridge,
    /// Each node reaches its neighbours only, which are a majority with it.
    Ring,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Cuts the nodes into groups.
    Partition {
        /// How many sides there are, and how they overlap.
        shape: Shape,
        /// The nodes' places, in the order in which sides are filled; the smaller one first.
        order: Vec<usize>,
        /// Whether every other client is on the smaller side, too.
        clients_too: bool,
    },
    /// Loses a node's packets of one direction.
    Oneway {
        /// The node whose packets are lost.
        victim: Victim,
        /// Seen from the node.
        direction: Direction,
        /// Whether those from and to clients are lost, too; else only nodes notice.
        clients_too: bool,
    },
    /// Cuts a node off.
    Isolate {
        /// The node that is cut off.
        victim: Victim,
        /// Whether also from clients.
        clients_too: bool,
    },
    /// Cuts a client off.
    CutClient {
        /// Which, from 1.
        client: u32,
        /// Its packets of which direction.
        direction: Direction,
    },
    /// Kills nodes, and starts them again at the end.
    Kill {
        /// The nodes, each killed at the same time.
        victims: Vec<Victim>,
    },
    /// Stops nodes, and lets them go on at the end.
    Pause {
        /// The nodes, each stopped at the same time.
        victims: Vec<Victim>,
    },
    /// Stops a client.
    PauseClient {
        /// Which, from 1.
        client: u32,
    },
    /// Cuts a node's disk off its power, kills it, and starts it again at the end.
    PowerLoss {
        /// The node that is affected.
        victim: Victim,
    },
    /// Fills a node's disk, and frees it at the end.
    FullDisk {
        /// The node that is affected.
        victim: Victim,
    },
    /// Leaves a node's log no room, until it ends by that.
    FullLog {
        /// The node that is affected.
        victim: Victim,
    },
    /// Kills a node, leaves the beginning of a write behind its log, and starts it again.
    TornTail {
        /// The node that is affected.
        victim: Victim,
        /// How many bytes.
        bytes: u32,
    },
    /// Makes packets late, and some of them lost, doubled or reordered.
    Slow {
        /// Whose; all nodes' if left out.
        victim: Option<Victim>,
        /// By how much.
        delay_ms: u32,
        /// By how much more at most.
        jitter_ms: u32,
        /// How many of a hundred are lost.
        loss_percent: u32,
        /// How many of a hundred arrive twice.
        duplicate_percent: u32,
        /// How many of a hundred overtake others.
        reorder_percent: u32,
        /// How many bytes pass in a second, if that is limited.
        bytes_per_second: Option<u64>,
    },
    /// Adds a member, and removes it at the end.
    Grow,
    /// Removes a member and lets it join again with an empty disk.
    Replace {
        /// The node that is affected.
        victim: Victim,
    },
    /// Calls the user's script.
    Hook,
}

impl Fault {
    /// Whether it hits clients only, so that it may coincide with faults of the cluster.
    #[must_use]
    pub const fn is_of_clients(&self) -> bool {
        matches!(self, Self::CutClient { .. } | Self::PauseClient { .. })
    }
}

/// Why a schedule cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The file cannot be read.
    #[error("cannot read the schedule {path}: {cause}")]
    Unreadable {
        /// The file, as it was named.
        path: String,
        /// The error of the file system.
        cause: io::Error,
    },
    /// The file is no schedule.
    #[error("{path} is no schedule: {why}")]
    Malformed {
        /// The file, as it was named.
        path: String,
        /// What is wrong in it, and where.
        why: String,
    },
    /// Not every kind has its turn.
    #[error(
        "{offered_ms} ms are too short for {kinds} kinds of faults; allowed is {least_ms} ms or more, \
         or fewer kinds"
    )]
    TooShort {
        /// What was given.
        offered_ms: u64,
        /// How many kinds are wanted.
        kinds: usize,
        /// What they need.
        least_ms: u64,
    },
}

impl Schedule {
    /// Reads a schedule from its file.
    ///
    /// # Errors
    /// [`ScheduleError`] says what is wrong with the file.
    pub fn read(path: &Path) -> Result<Self, ScheduleError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|cause| ScheduleError::Unreadable {
            path: shown.clone(),
            cause,
        })?;
        let malformed = |why: String| ScheduleError::Malformed {
            path: shown.clone(),
            why,
        };
        let schedule: Self =
            serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        if schedule.version != VERSION {
            let why = format!(
                "its version is {}, and this program reads {VERSION}",
                schedule.version
            );
            return Err(malformed(why));
        }
        schedule.check().map_err(malformed)?;
        Ok(schedule)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n")
    }

    /// A schedule may come from anywhere: what it names must be there.
    fn check(&self) -> Result<(), String> {
        if !crate::plan::NODES.contains(&self.nodes)
            || !crate::plan::CLIENTS.contains(&self.clients)
        {
            return Err(format!(
                "{} nodes and {} clients; allowed are {:?} and {:?}",
                self.nodes,
                self.clients,
                crate::plan::NODES,
                crate::plan::CLIENTS
            ));
        }
        for planned in &self.faults {
            let nodes = planned.fault.nodes();
            if nodes.iter().any(|place| *place >= self.nodes as usize) {
                return Err(format!(
                    "fault {} names a node at place {}, and there are {}",
                    planned.id,
                    nodes.iter().max().unwrap_or(&0),
                    self.nodes
                ));
            }
            if let Fault::CutClient { client, .. } | Fault::PauseClient { client } = planned.fault
                && !(1..=self.clients).contains(&client)
            {
                return Err(format!(
                    "fault {} names client {client}; allowed is 1 to {}",
                    planned.id, self.clients
                ));
            }
        }
        Ok(())
    }
}

impl Fault {
    /// The places that are named in advance.
    fn nodes(&self) -> Vec<usize> {
        let one = |victim: &Victim| match victim {
            Victim::Leader => None,
            Victim::Node(place) => Some(*place),
        };
        match self {
            Self::Partition { order, .. } => order.clone(),
            Self::Kill { victims } | Self::Pause { victims } => {
                victims.iter().filter_map(one).collect()
            }
            Self::Oneway { victim, .. }
            | Self::Isolate { victim, .. }
            | Self::PowerLoss { victim }
            | Self::FullDisk { victim }
            | Self::FullLog { victim }
            | Self::TornTail { victim, .. }
            | Self::Replace { victim } => one(victim).into_iter().collect(),
            Self::Slow { victim, .. } => victim.iter().filter_map(one).collect(),
            Self::CutClient { .. } | Self::PauseClient { .. } | Self::Grow | Self::Hook => {
                Vec::new()
            }
        }
    }
}
