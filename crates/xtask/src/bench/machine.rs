//! What a figure holds for: the machine, and the versions of what was measured.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// All that is known; what cannot be read is `unknown`.
pub(super) fn described(root: &Path, etcd: &Path) -> Value {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    json!({
        "processor": of_proc("/proc/cpuinfo", "model name"),
        "cores": cores,
        "memory": gibibytes(&of_proc("/proc/meminfo", "MemTotal")),
        "kernel": first_line(root, "uname".as_ref(), &["-sr"]),
        // Of the last minute: the measurement itself is in it.
        "load": load,
        "ringfence": first_line(root, "git".as_ref(), &["rev-parse", "--short=12", "HEAD"]),
        "etcd": first_line(root, etcd.join("etcd").as_ref(), &["--version"]).replace("Version: ", ""),
        "rustc": first_line(root, "rustc".as_ref(), &["--version"]),
    })
}

/// The same in a line.
pub(super) fn line(machine: &Value) -> String {
    let part = |name: &str| match &machine[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!(
        "{}, {} cores, {}, {}; Ringfence at commit {}; {}; three nodes each, fsync on, load and nodes on \
         the same cores.",
        part("processor"),
        part("cores"),
        part("memory"),
        part("kernel"),
        part("ringfence"),
        part("etcd"),
    )
}

/// Of a number of the kernel, with its unit.
fn gibibytes(text: &str) -> String {
    let kibibytes = text
        .strip_suffix(" kB")
        .and_then(|number| number.parse::<f64>().ok());
    kibibytes.map_or_else(
        || text.to_owned(),
        |number| format!("{:.1} GiB", number / 1024.0 / 1024.0),
    )
}

fn of_proc(file: &str, field: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or_else(
        || "unknown".to_owned(),
        |(_, value)| value.trim().to_owned(),
    )
}

fn first_line(root: &Path, program: &OsStr, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let line = text
        .ok()
        .and_then(|text| text.lines().next().map(str::to_owned));
    line.unwrap_or_else(|| "unknown".to_owned())
}
