//! What a measurement cost, by process: who used the processor, who was switched, what was written.
//!
//! Everything is read from `/proc` while the processes run, and the last look counts. So the start of the nodes
//! is in it, and what a process did in its last tenth of a second is not.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use std::{io, process};

use serde_json::{Value, json};

const LOOK: Duration = Duration::from_millis(100);
/// Of the kernel's clock ticks that `/proc` counts in, on every Linux that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// What one process used.
#[derive(Clone, Debug, PartialEq)]
struct Used {
    is_node: bool,
    seconds: f64,
    switches: u64,
    written_bytes: u64,
    write_calls: u64,
}

/// What the processes of a measurement used: the load, and the nodes from the busiest on.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    load: Vec<Used>,
    nodes: Vec<Used>,
}

/// Runs a command to its end and looks at it and its descendants meanwhile.
///
/// # Errors
/// If it does not start.
pub(super) fn watched(command: &mut process::Command) -> io::Result<(process::Output, Profile)> {
    let child = command.stdout(process::Stdio::piped()).spawn()?;
    let root = child.id();
    let (end, ended) = channel();
    thread::spawn(move || end.send(child.wait_with_output()).ok());
    let mut used = BTreeMap::new();
    loop {
        match ended.recv_timeout(LOOK) {
            Ok(output) => return Ok((output?, Profile::of(used.into_values()))),
            Err(RecvTimeoutError::Timeout) => look(root, &mut used),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the thread that waits for it has ended"));
            }
        }
    }
}

/// Reads all descendants of `root`, and itself.
fn look(root: u32, used: &mut BTreeMap<u32, Used>) {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Some((parent, seconds)) = stat(pid) {
            parents.insert(pid, (parent, seconds));
        }
    }
    for (pid, (_, seconds)) in &parents {
        if descends(*pid, root, &parents) {
            let before = used.remove(pid);
            let now = read(*pid, *seconds);
            used.extend(now.or(before).map(|now| (*pid, now)));
        }
    }
}

fn descends(pid: u32, root: u32, parents: &BTreeMap<u32, (u32, f64)>) -> bool {
    // A process that ended meanwhile may leave a gap, never a circle.
    let mut at = pid;
    while at != root {
        match parents.get(&at) {
            Some((parent, _)) => at = *parent,
            None => return false,
        }
    }
    true
}

/// The parent, and the processor's seconds.
fn stat(pid: u32) -> Option<(u32, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some((fields.get(1)?.parse().ok()?, ticks / TICKS_PER_SECOND))
}

fn read(pid: u32, seconds: f64) -> Option<Used> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0);
    let program = words.next()?;
    let is_node = program.ends_with(b"etcd") || words.any(|word| word == b"serve");
    let written = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let mut switches = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        switches += sum(&status, "ctxt_switches:");
    }
    Some(Used {
        is_node,
        seconds,
        switches,
        written_bytes: sum(&written, "\nwrite_bytes:"),
        write_calls: sum(&written, "syscw:"),
    })
}

/// The sum of the numbers behind `name`.
fn sum(text: &str, name: &str) -> u64 {
    let numbers = text.split(name).skip(1);
    let numbers = numbers.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    numbers.sum()
}

impl Profile {
    fn of(used: impl Iterator<Item = Used>) -> Self {
        let (mut nodes, load): (Vec<_>, Vec<_>) = used.partition(|used| used.is_node);
        nodes.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        Self { load, nodes }
    }

    /// For programs.
    pub(super) fn object(&self) -> Value {
        let object = |used: &Used| {
            json!({
                "processor_seconds": used.seconds,
                "context_switches": used.switches,
                "written_bytes": used.written_bytes,
                "write_calls": used.write_calls,
            })
        };
        let load: Vec<Value> = self.load.iter().map(object).collect();
        let nodes: Vec<Value> = self.nodes.iter().map(object).collect();
        json!({"load": load, "nodes": nodes})
    }
}

/// The cells of a row: shares of the processor time, and what a unit of work cost on all nodes.
pub(super) fn cells(profile: &Value, done: f64) -> String {
    let of = |group: &str, what: &str| -> Vec<f64> {
        let all = profile[group].as_array().into_iter().flatten();
        all.filter_map(|used| used[what].as_f64()).collect()
    };
    let nodes = of("nodes", "processor_seconds");
    let load: f64 = of("load", "processor_seconds").iter().sum();
    let all = nodes.iter().sum::<f64>() + load;
    let first = nodes.first().copied().unwrap_or_default();
    let share = |part: f64| format!("{:.0} %", 100.0 * part / all.max(f64::MIN_POSITIVE));
    let each = |what: &str| of("nodes", what).iter().sum::<f64>() / done.max(1.0);
    format!(
        "{} | {} | {} | {:.0} µs | {:.1} | {:.1} | {:.0} B",
        share(first),
        share(nodes.iter().skip(1).sum()),
        share(load),
        1e6 * all / done.max(1.0),
        each("context_switches"),
        each("write_calls"),
        each("written_bytes"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_its_child_are_seen_with_what_they_used() {
        let script =
            "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; sleep 0.3' serve";
        let mut command = process::Command::new("sh");
        command.args(["-c", &format!("{script}; true")]);
        let (output, profile) = watched(&mut command).unwrap();

        assert_eq!(output.stdout, b"done\n");
        let [node] = &profile.nodes[..] else {
            panic!("{profile:?}");
        };
        assert!(node.seconds > 0.0 && node.switches > 0, "{profile:?}");
        assert!(!profile.load.is_empty(), "{profile:?}");
    }

    #[test]
    fn the_busiest_node_comes_first_and_shares_are_of_all() {
        let used = |is_node, seconds, switches| Used {
            is_node,
            seconds,
            switches,
            written_bytes: 1_000,
            write_calls: 10,
        };
        let all = [
            used(true, 1.0, 30),
            used(false, 2.0, 5),
            used(true, 5.0, 70),
        ];
        let profile = Profile::of(all.into_iter()).object();
        assert_eq!(
            cells(&profile, 10.0),
            "62 % | 12 % | 25 % | 800000 µs | 10.0 | 2.0 | 200 B"
        );
    }

    #[test]
    fn numbers_behind_a_name_are_added() {
        let text = "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(sum(text, "ctxt_switches:"), 12);
        let io = "wchar: 9\nsyscw: 3\nread_bytes: 4\nwrite_bytes: 8\ncancelled_write_bytes: 2\n";
        assert_eq!((sum(io, "\nwrite_bytes:"), sum(io, "syscw:")), (8, 3));
    }
}
