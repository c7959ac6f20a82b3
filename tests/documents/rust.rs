//! Every Rust example, run from an empty folder against `ringfence dev`: the README's, and those of
//! the client as their heads and the README print them. The one thing that is not as printed:
//! `cargo run` is a program that this test has built, with `target/` where this build has it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::blocks::{Block, of_all_documents, source};
use crate::run::{Group, Runner, ports};

/// Each example ends on its own after 20 s; in the end a release may have to wait for a request.
const TAKES_MAX: Duration = Duration::from_secs(60);

/// What each example of the client prints once it works.
const EXAMPLES: [(&str, &str); 4] = [
    (
        "cron_singleton",
        "the job runs, show the store examples/cron#",
    ),
    ("elector", "work 1 as examples/elector#"),
    ("fenced_writer", "wrote 1 under token "),
    ("work_shards", "works on examples/shards/"),
];

#[test]
fn every_rust_example_runs_as_it_is_printed() {
    let mut what = vec!["--example", "readme"];
    what.extend(EXAMPLES.iter().flat_map(|(name, _)| ["--example", name]));
    let programs = ringfence_tests::built(&what).join("examples");
    let runner = Runner::new();
    let _one_at_a_time = ports();
    let place = tempfile::tempdir().expect("a temporary folder");
    let _dev = runner.dev(place.path());

    // The README's program says of its database what it finds, so the second run finds the first.
    let bank = tempfile::tempdir().expect("an empty folder");
    for balance in ["balance 101", "balance 102"] {
        let started = start(programs.join("readme"), &bank);
        let said = ended("readme", started);
        assert!(said.contains(balance), "{said}");
    }

    // "In two terminals", all examples side by side.
    let folders: Vec<_> = EXAMPLES.map(|_| tempfile::tempdir()).into_iter().collect();
    let mut running = Vec::new();
    for ((name, line), folder) in EXAMPLES.iter().zip(&folders) {
        let folder = folder.as_ref().expect("an empty folder");
        let two = [0; 2].map(|_| start(programs.join(name), folder));
        running.push((name, line, two));
    }
    for (name, line, two) in running {
        let said = two.map(|one| ended(name, one));
        let works = said.iter().any(|said| said.contains(line));
        assert!(works, "{name} never said {line:?}: {said:#?}");
    }
}

fn start(program: PathBuf, folder: &tempfile::TempDir) -> Group {
    let mut command = Command::new(program);
    command
        .env_remove("RINGFENCE_ENDPOINTS")
        // Where an example keeps its store unless it is set otherwise.
        .env("TMPDIR", folder.path())
        .env_remove("RINGFENCE_EXAMPLE_FILE")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Group::start(&mut command)
}

/// What a program has said, which has to end well on its own.
fn ended(name: &str, mut program: Group) -> String {
    let well = program.wait(TAKES_MAX);
    let said = program.said();
    assert_eq!(well, Some(true), "{name} did not end well: {said}");
    said
}

#[test]
fn heads_and_readme_print_the_commands_of_all_examples() {
    let command = |name: &str| format!("cargo run -p ringfence-client --example {name}");
    let files = std::fs::read_dir(crate::blocks::root().join("client/examples"));
    let files = files
        .expect("the examples")
        .map(|file| file.expect("a file"));
    let files = files.filter(|file| file.path().is_file());
    let stems = files.map(|file| file.path().file_stem().map(|stem| stem.to_owned()));
    let there: BTreeSet<_> = stems.flatten().collect();
    let known = EXAMPLES.map(|(name, _)| name.into());
    assert_eq!(there, BTreeSet::from(known), "an example is not run");

    for (name, _) in EXAMPLES {
        let head = source(&format!("client/examples/{name}.rs"));
        let printed = format!("`{}`", command(name));
        assert!(head.contains("(`ringfence dev`)"), "{name}");
        assert!(head.contains(&printed), "{name} does not print {printed}");
    }
    let blocks = of_all_documents(crate::SHELL);
    let block = blocks
        .iter()
        .find(|block| block.document == "README.md" && block.text.contains("--example"))
        .expect("the README prints how to run the examples");
    let lines = block.text.lines();
    let printed = lines.map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
    let printed: BTreeSet<_> = printed.collect();
    assert_eq!(
        printed,
        BTreeSet::from(EXAMPLES.map(|(name, _)| command(name)))
    );
}

/// How a block of Rust in a document is shown to be right.
enum Shown {
    /// The test above runs it.
    Run,
    /// It needs a Kubernetes or a store; this file has it compiled, or run.
    Compiled(&'static str),
    /// It contrasts two lines, and is no program.
    Contrast,
}

const TABLE: &[(&str, Shown)] = &[
    ("README.md", Shown::Run),
    (
        "client/FROM-CLIENT-GO.md",
        Shown::Compiled("crates/kube/src/lib.rs"),
    ),
    ("client/TOKENS.md", Shown::Compiled("client/recipes/check")),
    (
        "crates/guard/README.md",
        Shown::Compiled("crates/guard/tests/suite/readme.rs"),
    ),
    (
        "crates/test-cluster/README.md",
        Shown::Compiled("crates/test-cluster/tests/kit/readme.rs"),
    ),
    ("CONTRIBUTING.md", Shown::Contrast),
];

#[test]
fn every_rust_block_of_every_document_is_run_or_says_why_not() {
    let languages = &["rust", "rust,no_run", "rust,ignore", "rs"];
    for Block {
        document,
        place,
        text,
    } in of_all_documents(languages)
    {
        let row = TABLE.iter().find(|(of, _)| *of == document);
        match row.map(|(_, shown)| shown) {
            None => panic!("{place}: no row of the table shows this block; add one"),
            // What the example is made of, and there is one such block: see `build.rs`.
            Some(Shown::Run) => assert!(text.contains("fn main()"), "{place} is no program"),
            Some(Shown::Compiled(file)) => {
                let name = document.rsplit('/').next().unwrap_or_default();
                assert!(source(file).contains(name), "{place}: {file} has no {name}");
            }
            Some(Shown::Contrast) => assert!(text.contains("// bad"), "{place} is no contrast"),
        }
    }
}
