//! What needs no cluster: parsing, help, and what is said when no node answers.

use std::io::Write;
use std::net::TcpListener;

use crate::harness::{ringfence, run};

/// An address where no process listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn a_command_line_without_meaning_ends_with_2() {
    let refused: &[&[&str]] = &[
        &["frobnicate"],
        &["lock"],
        &["lock", "jobs/a"],
        &["lock", "jobs//a", "--", "true"],
        &["lock", "jobs/a", "--ttl", "15", "--", "true"],
        &["lock", "jobs/a", "--wait", "soon", "--", "true"],
        &["lease", "acquire", ""],
        &["lease", "acquire", "../a"],
        &["lease", "release", "a", "0", "--session", "1.00"],
        &["lease", "release", "a", "9223372036854775808"],
        &["lease", "revoke", "a", "1"],
        &["lease", "history"],
        &["lease", "history", "a", "--token", "1"],
        &["lease", "watch", "--from", "7"],
        &["check", "a", "0"],
        &["check", "a", "-1"],
        &["session", "close", "nonsense"],
        &["session", "get", "0"],
        &["cluster", "promote"],
        &["dev", "--nodes", "0"],
        &["dev", "--port", "65535"],
        &["bench", "everything"],
        &["--timeout", "5", "lease", "list"],
        &["--endpoints", "nowhere", "lease", "list"],
        &["completions", "tcl"],
        &["backup"],
        &["backup", "s3:/b/x"],
        &["backup", "s3://b//x"],
        &["backup", "verify"],
        &["backup", "verify", "b", "--digest", "77"],
        &["recover", "--data-dir", "d", "b"],
        &["recover", "--data-dir", "d", "--accept-loss", "77", "b"],
        &["--cluster", "77", "lease", "list"],
        &["access", "grant", "alice", "admin"],
        &["access", "grant", "jwt:ci:a", "own"],
        &["access", "grant", "jwt:ci:a", "acquire"],
        &["access", "grant", "jwt:ci:a", "admin", "a/*"],
        &["access", "grant", "jwt:ci:a*", "admin"],
        &["access", "mode", "on"],
        &["access", "token", "create", "a", "--ttl", "4000d"],
        &["access", "apply", "-f", "/nowhere/rules.toml"],
        &["--endpoints", "unix:", "access", "whoami"],
        &["--token-file", "/nowhere/token", "access", "whoami"],
    ];
    for arguments in refused {
        let said = run(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {said:?}");
        assert_eq!(said.out, "", "{arguments:?}");
        assert!(
            said.err.starts_with("error: "),
            "{arguments:?}: {}",
            said.err
        );
    }
}

#[test]
fn without_a_cluster_commands_end_with_69_and_say_so_twice() {
    let nobody = nobody();
    let commands: &[&[&str]] = &[
        &["lock", "jobs/a", "--", "true"],
        &["lease", "acquire", "a"],
        &["lease", "list"],
        &["lease", "watch"],
        &["check", "a", "1"],
        &["session", "open"],
        &[
            "session",
            "keep-alive",
            "1.000102030405060708090a0b0c0d0e0f",
        ],
        &["cluster", "status"],
        &["cluster", "members"],
        &["bench", "check", "--seconds", "1"],
    ];
    for command in commands {
        let asked = ["--endpoints", &nobody, "--timeout", "200ms"];

        let said = run(&[&asked[..], command].concat());
        assert_eq!(said.code, Some(69), "{command:?}: {said:?}");
        assert!(said.err.starts_with("error: "), "{command:?}: {}", said.err);
        assert!(
            said.err.contains("\n  try: "),
            "no next step: {command:?}: {}",
            said.err
        );

        let said = run(&[&asked[..], &["--json"], command].concat());
        assert_eq!(said.code, Some(69), "{command:?}: {said:?}");
        assert_eq!(said.reason(), "UNAVAILABLE", "{command:?}");
    }
}

#[test]
fn a_backup_that_cannot_be_read_ends_with_a_next_step() {
    let said = run(&["backup", "verify", "/nowhere/prod.backup"]);
    assert_eq!(said.code, Some(71), "{said:?}");
    assert!(said.err.contains("/nowhere/prod.backup"), "{said:?}");
    assert!(said.err.contains("\n  try: "), "{said:?}");
}

#[test]
fn endpoints_that_are_no_cluster_are_named_with_what_is_wrong() {
    // No server listens; a server listens and says nothing; a server speaks another protocol.
    let down = nobody();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|at| (at.to_string(), silent));
    let (half_open, _listening) = silent.unwrap();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = web.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in web.incoming() {
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            // The caller may have gone away.
            stream.and_then(|mut stream| stream.write_all(answer)).ok();
        }
    });
    for endpoint in [&down, &half_open, &other] {
        for command in [&["lease", "list"][..], &["cluster", "status"]] {
            let asked = ["--endpoints", endpoint, "--timeout", "500ms"];
            let said = run(&[&asked[..], command].concat());

            assert_eq!(said.code, Some(69), "{endpoint}: {said:?}");
            let told = format!("{}{}", said.out, said.err);
            assert!(told.contains(endpoint.as_str()), "{endpoint}: {said:?}");
            assert!(said.err.contains("\n  try: "), "{endpoint}: {said:?}");
            assert!(!told.contains("panicked"), "{said:?}");
        }
    }
}

#[test]
fn a_refused_command_line_is_an_object_with_json() {
    let said = run(&["--json", "lease", "release", "a", "1"]);
    assert_eq!(
        (said.code, said.reason().as_str()),
        (Some(2), "INVALID_ARGUMENT"),
        "{said:?}"
    );
    assert!(said.err.contains("--session <HANDLE>"), "{}", said.err);
}

#[test]
fn an_unknown_flag_is_answered_with_the_help_that_lists_the_known_ones() {
    let cases = [
        (
            &["guard", "postgres", "--nope"][..],
            "ringfence guard postgres",
        ),
        (&["lease", "list", "--nope"], "ringfence lease list"),
        (&["serve", "--nope"], "ringfence serve"),
        (&["lock", "a", "--nope", "--", "true"], "ringfence lock"),
        (&["--nope"], "ringfence"),
    ];
    for (arguments, command) in cases {
        let next = format!("`{command} --help` lists the options");
        let said = run(arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(&next), "{}", said.err);
        assert!(!said.err.contains("'--endpoints'"), "{}", said.err);
        let said = run(&[&["--json"], arguments].concat());
        assert!(said.err.contains(&next), "{}", said.err);
    }
}

/// What was got, and what to do next: the usage and the name of the help besides are noise.
#[test]
fn a_refused_command_line_is_answered_in_two_lines() {
    let cases: [(&[&str], &str, &str); 8] = [
        (
            &["lease", "list", "--endpoint", "a"],
            "unexpected argument '--endpoint' found",
            "did you mean '--endpoints'? `ringfence lease list --help` lists the options",
        ),
        (
            &["--nope"],
            "unexpected argument '--nope' found",
            "`ringfence --help` lists the options",
        ),
        (
            &["nope"],
            "unrecognized subcommand 'nope'",
            "`ringfence --help` lists the commands",
        ),
        (
            &["acces", "list"],
            "unrecognized subcommand 'acces'",
            "did you mean 'access'? `ringfence --help` lists the commands",
        ),
        (
            &["lease", "acqire", "a"],
            "unrecognized subcommand 'acqire'",
            "did you mean 'acquire'? `ringfence lease --help` lists the commands",
        ),
        (
            &["session", "evict"],
            "the following required arguments were not provided: --reason <TEXT>, <SESSION>",
            "`ringfence session evict --help` says what each takes",
        ),
        (
            &["access", "mode", "on"],
            "invalid value 'on' for '[MODE]': expected off, permissive or enforced",
            "`ringfence access mode --help` says what each takes",
        ),
        (
            &["lease", "acquire", "a", "--", "lock", "b"],
            "unexpected argument 'lock' found",
            "`ringfence lease acquire --help` lists the options",
        ),
    ];
    for (arguments, error, next) in cases {
        let said = run(arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert_eq!(said.err, format!("error: {error}\n  try: {next}\n"));
        let said = run(&[&["--json"], arguments].concat()).error();
        assert_eq!(
            (&said["message"], &said["hint"]),
            (&error.into(), &next.into())
        );
    }
}

#[test]
fn help_tells_the_exit_codes() {
    for arguments in [&["--help"][..], &["lock", "--help"]] {
        let said = run(arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
        for code in [
            " 1  a negative answer",
            "69  cluster",
            "75  not obtained",
            "76  lease lost",
        ] {
            assert!(said.out.contains(code), "{code} is missing in {}", said.out);
        }
    }
}

/// The names of the commands below `path`, as its help lists them.
pub(crate) fn commands_below(path: &[&str]) -> Vec<String> {
    let help = run(&[path, &["--help"]].concat()).out;
    let listed = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = listed.lines().take_while(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_shows_an_example_of_itself() {
    let mut seen = 0;
    for command in commands_below(&[]) {
        let below = commands_below(&[&command]);
        let paths: Vec<Vec<&str>> = match &below[..] {
            [] => vec![vec![&command]],
            below => below.iter().map(|last| vec![&*command, last]).collect(),
        };
        for path in paths {
            let help = run(&[&path[..], &["--help"]].concat()).out;
            let examples = help.split_once("\nExample").unwrap_or_default().1;
            let own = format!("  ringfence {}", path.join(" "));
            assert!(examples.contains(&own), "{path:?} has no example:\n{help}");
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen} commands");
}

#[test]
fn help_does_not_show_a_session_of_the_environment() {
    let mut command = ringfence();
    let secret = "000102030405060708090a0b0c0d0e0f";
    command
        .env("RINGFENCE_SESSION", format!("1.{secret}"))
        .args(["lease", "release", "--help"]);
    let help = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(
        help.contains("RINGFENCE_SESSION") && !help.contains(secret),
        "{help}"
    );
}

#[test]
fn every_shell_gets_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(&["completions", shell]);
        assert_eq!(said.code, Some(0), "{said:?}");
        for word in ["lock", "transfer-leader", "serve"] {
            assert!(said.out.contains(word), "{shell} does not complete {word}");
        }
        assert!(
            !said.out.contains("demo-worker"),
            "{shell} offers what is hidden"
        );
    }
}

/// Whether a program of this machine takes a page without a word; `None` if it is not there.
fn accepted(program: &str, words: &[&str], page: &std::path::Path) -> Option<String> {
    let output = std::process::Command::new(program)
        .args(words)
        .arg(page)
        .env("MANPAGER", "cat")
        .output();
    match output {
        Ok(output) => {
            let said = [output.stderr, output.stdout].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            assert!(output.status.success(), "{}: {said}", page.display());
            Some(said)
        }
        Err(error) => {
            let ci = std::env::var("CI").is_ok_and(|value| value == "true");
            // `man` is no package of its own everywhere, and `mandoc` reads the same pages.
            assert!(!ci || program == "man", "{program}: {error}");
            eprintln!("NOT TESTED: no {program}: {error}");
            None
        }
    }
}

#[test]
fn every_command_that_is_not_hidden_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(&["man", folder.path().to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let pages = std::fs::read_dir(folder.path()).unwrap();
    let pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
    let named = |name: &str| pages.iter().any(|page| page.ends_with(name));
    for name in [
        "ringfence.1",
        "ringfence-serve.1",
        "ringfence-lease-acquire.1",
        "ringfence-access-token-create.1",
    ] {
        assert!(named(name), "{name} is missing in {pages:?}");
    }
    for hidden in [
        "ringfence-tethered.1",
        "ringfence-demo-worker.1",
        "ringfence-help.1",
    ] {
        assert!(!named(hidden), "{hidden}");
    }
    let text = std::fs::read_to_string(folder.path().join("ringfence.1")).unwrap();
    assert!(!text.contains("tethered"), "{text}");
    for page in &pages {
        let words = ["-T", "lint", "-W", "error"];
        let said = accepted("mandoc", &words, page).unwrap_or_default();
        assert_eq!(said, "", "{}", page.display());
    }
    let serve = folder.path().join("ringfence-serve.1");
    if let Some(shown) = accepted("man", &["--warnings", "-l"], &serve) {
        assert!(shown.contains("--initial-cluster"), "{shown}");
    }
}

#[test]
fn manual_pages_need_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let refused = run(&["man", absent.to_str().unwrap()]);
    assert_eq!(refused.code, Some(71), "{refused:?}");
    assert!(
        refused.err.contains("name a folder to write to"),
        "{refused:?}"
    );
}

#[test]
fn a_subcommand_explains_itself_and_names_the_global_options_once() {
    let own = run(&["lock", "--help"]).out;
    assert!(own.contains("Global options: --endpoints"), "{own}");
    assert!(!own.contains("RINGFENCE_ENDPOINTS"), "{own}");
    let nested = run(&["help", "lease", "get"]).out;
    assert_eq!(nested.matches("--endpoints").count(), 1, "{nested}");

    let whole = run(&["--help"]).out;
    for option in ["--endpoints", "--json", "--timeout", "--cacert"] {
        assert!(whole.contains(option), "{option} is missing in {whole}");
    }
}

#[test]
fn a_missing_subcommand_is_answered_with_the_visible_ones() {
    let refused = run(&["--json"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("serve"), "{refused:?}");
    for hidden in ["tethered", "chaos-client", "demo-worker"] {
        assert!(!refused.err.contains(hidden), "{hidden} in {refused:?}");
    }
}

#[test]
fn a_password_in_an_address_is_refused_and_not_repeated() {
    for address in [
        "http://user:hunter2@127.0.0.1:1",
        "127.0.0.1:1,https://hunter2@[::1]:1/x",
    ] {
        let said = run(&["cluster", "status", "--endpoints", address]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("before `@`"), "{said:?}");
        assert!(!format!("{said:?}").contains("hunter2"), "{said:?}");
    }
}
