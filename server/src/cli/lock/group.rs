//! Whether anything of a process group still runs.

use rustix::process::{Pid, test_kill_process_group};

/// Whether a process of `group` runs. One that has ended and that its parent has not waited for does
/// not, though a signal reaches it: the first process of a container is the parent of whatever CMD
/// leaves behind, and often waits for none.
pub(super) fn runs(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else {
        // A process that is not seen may run.
        return true;
    };
    processes
        .filter_map(|process| std::fs::read_to_string(process.ok()?.path().join("stat")).ok())
        .filter_map(|stat| Stat::of(&stat))
        .any(|stat| stat.group == group.as_raw_pid() && stat.runs())
}

/// What the kernel says of a process.
struct Stat {
    state: char,
    group: i32,
    threads: u32,
}

impl Stat {
    /// Reads `/proc/PID/stat`: number and name, then state, parent, group, and the threads as the
    /// 20th. The name may have spaces and parentheses in it.
    fn of(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            group: fields.get(2)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
        })
    }

    /// A process whose first thread has ended looks like one that has ended, except for its others.
    const fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_process_that_has_ended_does_not_run_before_its_parent_has_waited() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let group = Pid::from_child(&child);
        assert!(runs(group));
        // It ends at the end of its input.
        drop(child.stdin.take());
        let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(group), unreaped).unwrap();
        assert!(!runs(group), "one that has ended counts as running");
        assert!(test_kill_process_group(group).is_ok(), "it was waited for");
        child.wait().unwrap();
        assert!(!runs(group));
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        let said = |state: char, threads: u32| {
            format!("7 (a) b (c) {state} 1 42 42 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 {threads} 0 9 0")
        };
        let read = |state, threads| {
            let stat = Stat::of(&said(state, threads)).unwrap();
            (stat.group, stat.runs())
        };
        assert_eq!(read('S', 1), (42, true));
        assert_eq!(read('T', 1), (42, true));
        assert_eq!(read('Z', 1), (42, false));
        assert_eq!(read('Z', 3), (42, true));
        assert!(Stat::of("").is_none());
        assert!(Stat::of("7 (a) Z 1 42").is_none());
    }
}
