//! The README's Python program, as it is printed, on a machine that has the package that it names.

use std::process::{Command, Stdio};

use crate::blocks::{Block, root, source};
use crate::fenced;
use crate::run::{Ends, Runner};

#[test]
fn the_readmes_python_program_runs_as_it_is_printed() {
    let readme = source("README.md");
    let blocks = fenced::blocks(&readme, &["python"]);
    let [(line, program)] = blocks.as_slice() else {
        panic!("{} blocks of Python; one is expected", blocks.len());
    };
    let place = format!("README.md:{line}");
    let begin = readme.find("python3 -m grpc_tools.protoc");
    let compile = begin.and_then(|begin| readme[begin..].split('`').next());
    let compile = compile.expect("the README says how the protocol is compiled");

    let mut look = Command::new("python3");
    look.args(["-c", "import grpc_tools"]).stderr(Stdio::null());
    if !look.status().is_ok_and(|status| status.success()) {
        println!("not run, since Python's package grpcio-tools is missing: {place}");
        return;
    }
    let proto = root().join("proto");
    let text = format!(
        "ln -s {} proto\n{compile}\npython3 - <<'END'\n{program}END\n",
        proto.display()
    );
    let document = "README.md".to_owned();
    let block = Block {
        document,
        place,
        text,
    };
    let ran = Runner::new().run(&block, Ends::WithDev, &["fence bank/interest#"]);
    ran.unwrap_or_else(|why| panic!("{}: {why}", block.place));
}
