//! No circles between modules: a reader of one file needs those below it, and never all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::code;
use super::source::Package;
use super::{SourceFile, Violation};

const REMEDY: &str = "move what is shared into the lower module or a file of its own (a re-export \
                      only hides the circle), so that it can do without one of these:";

/// One module names another.
struct Edge {
    line: usize,
    /// What it names, as it is written there, without braces.
    path: String,
}

/// For each module those that it names, its own descendants left out: a parent declares its
/// children and shows what is in them.
type Graph = BTreeMap<String, BTreeMap<String, Edge>>;

/// Checks the modules of every package. They are called by their path without `crate`, and the root
/// by the empty name.
pub(super) fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let modules = modules(package.folder(), files);
        let graph = graph(&modules);
        for circle in circles(&graph) {
            violations.extend(fault(&circle, &modules, &graph));
        }
    }
    violations
}

/// Names the modules of a circle, and a line of each edge.
fn fault(
    circle: &BTreeSet<&str>,
    modules: &BTreeMap<String, Module<'_>>,
    graph: &Graph,
) -> Option<Violation> {
    let first = modules.get(*circle.first()?)?;
    let wrong = format!("modules in a circle: {}", quoted(circle));
    let mut at = 1;
    let mut remedy = REMEDY.to_owned();
    for from in circle {
        for (to, edge) in graph.get(*from).into_iter().flatten() {
            if circle.contains(to.as_str()) {
                let path = &modules.get(*from)?.path;
                write!(remedy, "\n    {path}:{}: {}", edge.line, edge.path).ok();
                if *path == first.path && at == 1 {
                    at = edge.line;
                }
            }
        }
    }
    Some(Violation::new(first.path, at, wrong, remedy))
}

fn quoted(modules: &BTreeSet<&str>) -> String {
    let quoted: Vec<String> = modules.iter().map(|module| format!("`{module}`")).collect();
    quoted.join(", ")
}

/// A file as the rule sees it.
struct Module<'a> {
    path: &'a str,
    /// Its text; comments and what is built for tests alone are blank.
    code: String,
}

/// The modules of the library or program in `folder`, without those of tests.
fn modules<'a>(folder: &str, files: &'a [SourceFile]) -> BTreeMap<String, Module<'a>> {
    let mut modules = BTreeMap::new();
    let mut of_tests = Vec::new();
    for file in files {
        let Some(name) = module_name(folder, &file.path) else {
            continue;
        };
        let (code, test_modules) = code::without_tests(&file.text);
        of_tests.extend(test_modules.iter().map(|child| joined(&name, child)));
        let path = &file.path;
        modules.insert(name, Module { path, code });
    }
    modules.retain(|name, _| !of_tests.iter().any(|tests| is_within(name, tests)));
    modules
}

/// `crates/wal/src/sim/disk.rs` is `sim::disk`, and `lib.rs` is the empty name.
fn module_name(folder: &str, path: &str) -> Option<String> {
    let inside = path.strip_prefix(folder)?.strip_prefix("/src/")?;
    let name = inside.strip_suffix(".rs")?;
    // Each file there is a crate of its own.
    if name.starts_with("bin/") {
        return None;
    }
    let name = name.strip_suffix("/mod").unwrap_or(name);
    Some(match name {
        "lib" | "main" => String::new(),
        name => name.replace('/', "::"),
    })
}

fn joined(parent: &str, child: &str) -> String {
    if parent.is_empty() {
        child.to_owned()
    } else {
        format!("{parent}::{child}")
    }
}

fn is_within(module: &str, ancestor: &str) -> bool {
    ancestor.is_empty()
        || module
            .strip_prefix(ancestor)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn graph(modules: &BTreeMap<String, Module<'_>>) -> Graph {
    let mut graph = Graph::new();
    for (name, module) in modules {
        let edges = graph.entry(name.clone()).or_default();
        for (line, path) in code::paths(&module.code) {
            let to = resolve(name, &path, modules);
            if !is_within(&to, name) {
                edges.entry(to).or_insert(Edge { line, path });
            }
        }
    }
    graph
}

/// The module of a file in which the path ends: the rest of it is what stands in that file.
fn resolve(module: &str, path: &str, modules: &BTreeMap<String, Module<'_>>) -> String {
    let mut found = module.to_owned();
    for word in path.split("::") {
        match word {
            "crate" => found.clear(),
            "super" => found.truncate(found.rfind("::").unwrap_or(0)),
            word => {
                let child = joined(&found, word);
                if !modules.contains_key(&child) {
                    break;
                }
                found = child;
            }
        }
    }
    found
}

/// The sets of modules of which each leads to each.
fn circles(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|module| (module.as_str(), reached_from(module, graph)))
        .collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (module, reached) in &reach {
        if !reached.contains(module) || circles.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let back = |other: &&&str| {
            reach
                .get(**other)
                .is_some_and(|reached| reached.contains(module))
        };
        circles.push(reached.iter().filter(back).copied().collect());
    }
    circles
}

fn reached_from<'a>(module: &str, graph: &'a Graph) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![module];
    while let Some(module) = open.pop() {
        for to in graph.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::{file, package};
    use super::*;

    const UP: &str = "use crate::down::Below;\n";

    /// The faults of a crate called `it`, of which these are the files.
    fn faults(files: &[(&str, &str)]) -> Vec<Violation> {
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| file(&format!("crates/it/src/{path}"), text))
            .collect();
        check(&[package("crates/it", "it", &[])], &files)
    }

    /// Whether `up`, which names `down`, is in a circle, if `down` is so.
    fn closes(down: &str) -> bool {
        let files = [
            ("lib.rs", "mod up;\nmod down;\n"),
            ("up.rs", UP),
            ("down.rs", down),
            ("down/test_only.rs", ""),
        ];
        !faults(&files).is_empty()
    }

    #[test]
    fn a_circle_is_told_with_its_modules_and_a_line_of_each_edge() {
        let down = "//! Below.\n\nuse crate::{other, up::Above};\n";
        let found = faults(&[("up.rs", UP), ("down.rs", down), ("other.rs", "")]);

        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].file, "crates/it/src/down.rs");
        assert_eq!(found[0].line, 3);
        let told = found[0].to_string();
        for part in [
            "in a circle: `down`, `up`;",
            "crates/it/src/up.rs:1: crate::down::Below",
            "crates/it/src/down.rs:3: crate::up::Above\n",
            "move what is shared",
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert!(!told.contains("other"), "{told}");
    }

    #[test]
    fn a_module_is_named_in_many_ways() {
        for down in [
            "use crate::up;\n",
            "use crate::up::*;\n",
            "pub use crate::up::Above;\n",
            "pub(crate) use super::up::{self, Above};\n",
            "use crate::{\n    other::{One, Two as Second},\n    up::Above,\n};\n",
            "fn below() {\n    use super::up::Above;\n}\n",
            "fn below(above: crate::up::Above) {}\n",
            "fn below() {\n    crate::up::above::<u8>();\n}\n",
        ] {
            assert!(closes(down), "{down}");
        }
    }

    #[test]
    fn what_is_no_name_of_a_module_closes_no_circle() {
        for down in [
            "use other_crate::up::Above;\n",
            "use crate::upper::Above;\n",
            "//! See [`crate::up`].\n",
            "pub(in crate::up) fn below() {}\n",
            "use crate::Root;\n",
        ] {
            assert!(!closes(down), "{down}");
        }
    }

    #[test]
    fn tests_may_look_up() {
        for tests in [
            "#[cfg(test)]\nmod tests {\n    use crate::up::Above;\n}\n",
            "#[cfg(test)]\n#[expect(\n    clippy::unwrap_used\n)]\nmod tests {\n    use crate::up::A;\n}\n",
            "#[cfg(test)]\nuse crate::up::Above;\n",
            "#[cfg(test)]\nuse crate::{\n    up::Above,\n};\n",
        ] {
            assert!(!closes(tests), "{tests}");
            let after = format!("{tests}\nuse crate::up::Above;\n");
            assert!(closes(&after), "{after}");
        }
    }

    #[test]
    fn files_of_tests_may_form_a_circle() {
        let declared = [
            ("lib.rs", "#[cfg(test)]\npub(crate) mod tests;\n"),
            ("tests/mod.rs", "mod one;\nmod two;\n"),
            ("tests/one.rs", "use super::two::Two;\n"),
            ("tests/two.rs", "use super::one::One;\n"),
        ];
        assert_eq!(faults(&declared), Vec::new());

        let mut shipped = declared;
        shipped[0].1 = "mod tests;\n";
        assert_eq!(faults(&shipped).len(), 1);
    }

    #[test]
    fn a_parent_may_name_its_children_and_they_it() {
        let family = [
            ("a/mod.rs", "mod b;\npub use b::B;\nuse self::b::C;\n"),
            ("a/b.rs", "use super::A;\n"),
        ];
        assert_eq!(faults(&family), Vec::new());

        // But not around a corner.
        let corner = [
            ("a/mod.rs", "mod b;\nuse crate::other::Other;\n"),
            ("a/b.rs", "use super::A;\n"),
            ("other.rs", "use crate::a::b::B;\n"),
        ];
        assert_eq!(faults(&corner).len(), 1);
    }

    #[test]
    fn two_circles_are_two_faults() {
        let files = [
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "use crate::c::C;\nuse crate::d::D;\n"),
            ("c.rs", "use crate::a::A;\n"),
            ("d.rs", "use crate::e::E;\n"),
            ("e.rs", "use crate::d::D;\n"),
        ];
        let found = faults(&files);

        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].wrong.ends_with("`a`, `b`, `c`"), "{found:?}");
        assert!(found[1].wrong.ends_with("`d`, `e`"), "{found:?}");
    }
}
