//! Which clients take part in a run, and what each is given.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::cluster::{CLIENT_PORT, without_settings};
use crate::crew::Crew;
use crate::plan::Plan;
use crate::stage::{MEMORY_SOCKET, Stage};
use crate::sys;

/// Sets the dice of clients apart from those of the schedule.
const SALT: u64 = 0xc11e_7475;

/// Starts the clients of a run. To be called on the thread that lives as long as the run.
///
/// # Errors
/// If one cannot be started.
pub(super) fn cast(stage: &Stage, prefix: &str) -> io::Result<Crew> {
    let mut crew = Crew::default();
    let logs = stage.plan.report.join("clients");
    std::fs::remove_dir_all(&logs).ok();
    std::fs::create_dir_all(&logs)?;
    for number in 1..=stage.plan.clients {
        let client = client(stage, prefix, number, &logs)?;
        crew.join(number, client, &stage.tally)?;
    }
    Ok(crew)
}

/// What a client is run by: the last ones by the programs that were named. A shell reads those, so
/// that they may have arguments of their own.
fn program(plan: &Plan, number: u32) -> Command {
    let ours = plan.clients as usize - plan.foreign.len().min(plan.clients as usize);
    let foreign = (number as usize)
        .checked_sub(ours + 1)
        .and_then(|place| plan.foreign.get(place));
    match foreign {
        Some(given) => {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &format!("exec {given} \"$@\""), "client"]);
            command
        }
        None => {
            let mut command = Command::new(&plan.program);
            command.arg("chaos-client");
            command
        }
    }
}

fn client(stage: &Stage, prefix: &str, number: u32, logs: &Path) -> io::Result<Command> {
    let plan = &stage.plan;
    let log = std::fs::File::create(logs.join(format!("c{number}.log")))?;
    let endpoints: Vec<String> = match &plan.target {
        Some(target) => target.endpoints.clone(),
        None => (0..plan.nodes as usize)
            .map(|place| format!("{}:{CLIENT_PORT}", stage.home(place).address))
            .collect(),
    };
    let mut command = program(plan, number);
    command
        .arg(format!("--number={number}"))
        .arg(format!(
            "--seed={}",
            plan.seed ^ SALT ^ u64::from(number) << 32
        ))
        .arg(format!("--nodes={}", endpoints.join(",")))
        .arg(format!(
            "--stores={}",
            stage.scratch.path("stores").display()
        ))
        .arg(format!("--memory={MEMORY_SOCKET}"))
        .arg(format!("--prefix={prefix}"))
        .arg(format!("--leases={}", plan.leases()))
        .current_dir(stage.scratch.path(""))
        .stderr(log);
    if plan.control {
        command.arg("--control");
    }
    if plan.open_guard {
        command.arg("--open-guard");
    }
    without_settings(&mut command);
    if let Some(target) = &plan.target {
        command.envs(target.environment.iter().cloned());
    }
    let network = stage.fabric.as_ref();
    let network = network.map(|fabric| fabric.namespace(stage.client_port(number)));
    sys::confine(&mut command, network);
    Ok(command)
}
