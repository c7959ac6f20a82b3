//! What is public in this crate names nothing of the gRPC library and nothing of generated code; and
//! no layer of it names one above itself.
//!
//! It reads the sources: of every `pub` item outside the modules that carry no promise, the
//! signature, the public fields, the variants and the re-exports; and the heads, the methods and the
//! types of the implementations of traits for public types. What it cannot see: what a macro of this
//! crate would make (there is no such macro), what stands behind an alias or a re-export of another
//! crate, and a type that the compiler infers behind `impl Trait`.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, Type, UseTree, Visibility};

/// Whose types may change without a change of this crate's.
const FOREIGN: [&str; 4] = ["tonic", "prost", "prost_types", "ringfence_proto"];
/// Modules that are hidden, off unless a feature asks for them, and promise nothing.
const UNPROMISED: [&str; 2] = ["sim", "unstable"];
/// What only `unstable` shows of the private modules.
const SHOWN_BY_UNSTABLE: &str = "credential";
/// The modules at the root of the crate, layer by layer, from below.
const LAYERS: [&[&str]; 6] = [
    &["clock", "sim", "sync"],
    &["transport"],
    &["watch"],
    &["session"],
    &["lease"],
    &["attach", "blocking", "elector", "raw_lock", "unstable"],
];

#[test]
fn no_public_item_names_a_type_of_grpc_or_of_generated_code() {
    let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let found = found_in(&files);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_unstable_shows_is_shown_by_nothing_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let root = std::fs::read_to_string(root).unwrap();
    assert!(root.contains("\nmod transport;\n"), "it is private");
    let shows = |line: &&str| line.starts_with("pub use") && line.contains(SHOWN_BY_UNSTABLE);
    assert_eq!(root.lines().find(shows), None);
}

#[test]
fn no_layer_names_one_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let root = syn::parse_file(&std::fs::read_to_string(src.join("lib.rs")).unwrap()).unwrap();
    let mut at_the_root = BTreeSet::new();
    for item in root.items {
        match item {
            Item::Mod(module) if module.content.is_none() => {
                at_the_root.insert(module.ident.to_string());
            }
            _ => {}
        }
    }
    let layered = LAYERS.iter().copied().flatten().map(ToString::to_string);
    assert_eq!(at_the_root, layered.collect());

    for (at, layer) in LAYERS.iter().enumerate() {
        for module in *layer {
            let mut files = rust_files(&src.join(module));
            files.push(src.join(format!("{module}.rs")));
            for file in files {
                let text = std::fs::read_to_string(&file).unwrap();
                // What tests name does not count.
                let text = text.split("#[cfg(test)]").next().unwrap();
                for above in LAYERS[at + 1..].iter().copied().flatten() {
                    let named = text.lines().find(|line| {
                        !line.trim_start().starts_with("//")
                            && line.contains(&format!("crate::{above}::"))
                    });
                    assert_eq!(named, None, "{}", file.display());
                }
            }
        }
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[test]
fn the_modules_without_a_promise_are_hidden_and_off() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let root = syn::parse_file(&std::fs::read_to_string(root).unwrap()).unwrap();
    for name in UNPROMISED {
        let module = root.items.iter().find_map(|item| match item {
            Item::Mod(module) if module.ident == name => Some(module),
            _ => None,
        });
        let attributes = module.unwrap().attrs.iter().map(Attribute::to_token_stream);
        let attributes: Vec<String> = attributes.map(|text| text.to_string()).collect();
        let feature = format!("# [cfg (feature = \"{name}\")]");
        assert!(attributes.contains(&feature), "{name}: {attributes:?}");
        assert!(
            attributes.contains(&"# [doc (hidden)]".to_owned()),
            "{name}"
        );
    }
}

/// What the check is worth: each of these ways to leak is seen, and none of these harmless ones.
#[test]
fn every_way_to_name_such_a_type_is_seen() {
    for leak in [
        "pub use ringfence_proto::v1 as proto;",
        "pub type Conn = tonic::transport::Channel;",
        "use tonic::Status; pub fn f() -> Result<(), Status> { }",
        "use tonic::Status as S; pub struct A(pub S);",
        "use ringfence_proto::v1; pub struct A { pub a: Option<v1::Grant> }",
        "use ringfence_proto::v1::{self, Grant}; pub enum A { B { grant: Grant } }",
        "pub struct A; impl A { pub async fn f(&self, c: tonic::transport::Channel) {} }",
        "use tonic::Status; pub struct A; impl From<Status> for A { fn from(s: Status) -> A { } }",
        "use ringfence_proto::v1; pub trait T { fn f(&self) -> v1::Grant; }",
        "use tonic::*; pub fn f() {}",
        "pub const A: tonic::Code = tonic::Code::Ok;",
    ] {
        assert_eq!(found_in(&[file(leak)]).len(), 1, "{leak}");
    }
    for harmless in [
        "use tonic::Status; pub(crate) fn f() -> Status { } fn g(s: Status) {}",
        "use tonic::Status; pub struct A { status: Status, pub text: String }",
        "use tonic::Status; pub struct A; impl A { pub(crate) fn f(&self) -> Status { } }",
        "use tonic::Status; struct A; impl From<Status> for A { fn from(s: Status) -> A { } }",
        "use tonic::Status; pub fn f() -> u8 { Status::ok(\"\").code() as u8 }",
        "pub(crate) trait T { type A; } pub struct B; impl T for B { type A = tonic::Status; }",
        "#[cfg(test)] mod tests { pub fn f() -> tonic::Status { } }",
    ] {
        assert_eq!(found_in(&[file(harmless)]), [""; 0], "{harmless}");
    }
}

struct Source {
    place: PathBuf,
    items: Vec<Item>,
}

fn file(text: &str) -> Source {
    Source {
        place: "example.rs".into(),
        items: syn::parse_file(text).unwrap().items,
    }
}

fn sources(folder: &Path) -> Vec<Source> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if UNPROMISED.contains(&stem.as_str()) || stem == SHOWN_BY_UNSTABLE {
            continue;
        }
        if path.is_dir() {
            files.extend(sources(&path));
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            files.push(Source {
                place: path,
                items: syn::parse_file(&text).unwrap().items,
            });
        }
    }
    files
}

fn found_in(files: &[Source]) -> Vec<String> {
    let mut names = Names::default();
    files.iter().for_each(|file| names.learn(&file.items));
    let mut found = Vec::new();
    for file in files {
        let mut foreign: BTreeMap<String, String> = BTreeMap::new();
        for name in FOREIGN {
            foreign.insert(name.into(), name.into());
        }
        imports(&file.items, &mut foreign);
        let mut shown = Vec::new();
        exposed(&file.items, &names, &mut shown);
        for (what, tokens) in shown {
            if let Some(name) = first_of(tokens, &foreign) {
                found.push(format!("{}: {what} names {name}", file.place.display()));
            }
        }
        if foreign.contains_key("*") {
            let place = file.place.display();
            found.push(format!("{place}: a glob import hides what is named"));
        }
    }
    found
}

/// The types that are `pub`, and the traits that are not.
#[derive(Default)]
struct Names {
    public: BTreeSet<String>,
    private_traits: BTreeSet<String>,
}

impl Names {
    fn learn(&mut self, items: &[Item]) {
        for item in items {
            let (visibility, name) = match item {
                Item::Struct(item) => (&item.vis, &item.ident),
                Item::Enum(item) => (&item.vis, &item.ident),
                Item::Trait(item) if !is_public(&item.vis) => {
                    self.private_traits.insert(item.ident.to_string());
                    continue;
                }
                _ => continue,
            };
            if is_public(visibility) {
                self.public.insert(name.to_string());
            }
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let text = attributes
        .iter()
        .map(|attribute| attribute.to_token_stream().to_string());
    text.into_iter().any(|text| text == "# [cfg (test)]")
}

/// The names in this file for what foreign crates have, each with where it comes from.
fn imports(items: &[Item], foreign: &mut BTreeMap<String, String>) {
    for item in items {
        if let Item::Use(item) = item {
            named(&item.tree, "", foreign);
        }
    }
}

fn named(tree: &UseTree, path: &str, foreign: &mut BTreeMap<String, String>) {
    let within = |name: &dyn std::fmt::Display| match path {
        "" => name.to_string(),
        path => format!("{path}::{name}"),
    };
    let mut add = |name: String, of: String| {
        let of_whom = of.split("::").next().unwrap_or_default();
        if FOREIGN.contains(&of_whom) {
            foreign.insert(name, of);
        }
    };
    match tree {
        UseTree::Path(inner) => named(&inner.tree, &within(&inner.ident), foreign),
        UseTree::Group(group) => {
            for tree in &group.items {
                named(tree, path, foreign);
            }
        }
        UseTree::Name(name) if name.ident == "self" => {
            let last = path.rsplit("::").next().unwrap_or_default();
            add(last.to_owned(), path.to_owned());
        }
        UseTree::Name(name) => add(name.ident.to_string(), within(&name.ident)),
        UseTree::Rename(name) => add(name.rename.to_string(), within(&name.ident)),
        UseTree::Glob(_) => add("*".into(), within(&"*")),
    }
}

type Shown = Vec<(String, TokenStream)>;

/// What users see of these items.
fn exposed(items: &[Item], names: &Names, shown: &mut Shown) {
    for item in items {
        match item {
            Item::Use(item) if is_public(&item.vis) => {
                shown.push(("a re-export".into(), item.tree.to_token_stream()));
            }
            Item::Fn(item) if is_public(&item.vis) => {
                shown.push((item.sig.ident.to_string(), item.sig.to_token_stream()));
            }
            Item::Const(item) if is_public(&item.vis) => {
                shown.push((item.ident.to_string(), item.ty.to_token_stream()));
            }
            Item::Static(item) if is_public(&item.vis) => {
                shown.push((item.ident.to_string(), item.ty.to_token_stream()));
            }
            Item::Type(item) if is_public(&item.vis) => {
                shown.push((item.ident.to_string(), item.to_token_stream()));
            }
            Item::Struct(item) if is_public(&item.vis) => {
                let name = item.ident.to_string();
                shown.push((name.clone(), item.generics.to_token_stream()));
                shown.push((name, public_fields(&item.fields)));
            }
            Item::Enum(item) if is_public(&item.vis) => {
                let name = item.ident.to_string();
                shown.push((name.clone(), item.generics.to_token_stream()));
                let fields = item.variants.iter().map(|variant| &variant.fields);
                shown.push((name, fields.map(ToTokens::to_token_stream).collect()));
            }
            Item::Trait(item) if is_public(&item.vis) => {
                shown.push((item.ident.to_string(), item.to_token_stream()));
            }
            Item::Impl(item) => implemented(item, names, shown),
            Item::Mod(module) if !is_for_tests(&module.attrs) => {
                if let Some((_, items)) = &module.content {
                    exposed(items, names, shown);
                }
            }
            _ => {}
        }
    }
}

fn public_fields(fields: &Fields) -> TokenStream {
    let public = fields.iter().filter(|field| is_public(&field.vis));
    public.map(|field| field.ty.to_token_stream()).collect()
}

fn implemented(item: &syn::ItemImpl, names: &Names, shown: &mut Shown) {
    let Some(owner) = last_name(&item.self_ty) else {
        return;
    };
    let Some((_, of, _)) = &item.trait_ else {
        for inner in &item.items {
            if let ImplItem::Fn(method) = inner
                && is_public(&method.vis)
            {
                let what = format!("{owner}::{}", method.sig.ident);
                shown.push((what, method.sig.to_token_stream()));
            }
        }
        return;
    };
    let last = of.segments.last().map(|segment| segment.ident.to_string());
    let last = last.unwrap_or_default();
    if !names.public.contains(&owner) || names.private_traits.contains(&last) {
        return;
    }
    let mut tokens = of.to_token_stream();
    tokens.extend(item.self_ty.to_token_stream());
    for inner in &item.items {
        match inner {
            ImplItem::Fn(method) => tokens.extend(method.sig.to_token_stream()),
            ImplItem::Type(inner) => tokens.extend(inner.ty.to_token_stream()),
            _ => {}
        }
    }
    shown.push((format!("impl {last} for {owner}"), tokens));
}

fn last_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Type::Reference(of) => last_name(&of.elem),
        _ => None,
    }
}

/// The first foreign name among these tokens, and where it comes from.
fn first_of(tokens: TokenStream, foreign: &BTreeMap<String, String>) -> Option<String> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(name) => foreign.get(&name.to_string()).cloned(),
        TokenTree::Group(group) => first_of(group.stream(), foreign),
        _ => None,
    })
}
