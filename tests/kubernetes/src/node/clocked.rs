//! An image of a node whose wall clock a test steps.
//!
//! The program of the other images has no libraries around it, so nothing can be put between it and the
//! clock of the machine. This one is linked to those of the machine, and they come with it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::Site;
use crate::program::call;

/// The program in the folder of the images, as `cargo build` links it.
pub(crate) const PROGRAM: &str = "ringfence-linked";
/// The tag of the image; its name is that of the others.
pub(crate) const TAG: &str = "clocked";
/// What is loaded before the libraries.
pub(crate) const LIBRARY: &str = "/shim.so";

/// Makes the image, and returns its archive.
pub(crate) fn image(site: &Site) -> Result<PathBuf, String> {
    let folder = site.folder.join("clocked");
    let root = folder.join("root");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&root).map_err(failed)?;
    let program = site.images.join(PROGRAM);
    copy(&program, &root.join("ringfence"))?;
    let shim = ringfence_tests::shim(&folder.display().to_string());
    copy(shim, &root.join(LIBRARY.trim_start_matches('/')))?;
    for library in libraries(&program)? {
        let place = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap_or(&root)).map_err(failed)?;
        copy(Path::new(&library), &place)?;
    }

    let layer = folder.join("layer.tar").display().to_string();
    let root = root.display().to_string();
    call(
        "tar",
        &[
            "--create",
            "--file",
            &layer,
            "--owner=0",
            "--group=0",
            "--directory",
            &root,
            ".",
        ],
    )?;
    let digest = call("sha256sum", &[&layer])?;
    let digest = digest.split(' ').next().unwrap_or_default();
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"User": "65532:65532", "Entrypoint": ["/ringfence"], "Cmd": ["serve"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let name = format!("docker.io/library/ringfence:{TAG}");
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    for (file, text) in [("config.json", config), ("manifest.json", manifest)] {
        fs::write(folder.join(file), text.to_string()).map_err(failed)?;
    }
    let archive = folder.join("image.tar");
    let (to, from) = (archive.display().to_string(), folder.display().to_string());
    let files = ["manifest.json", "config.json", "layer.tar"];
    call(
        "tar",
        &[
            &["--create", "--file", &to, "--directory", &from],
            &files[..],
        ]
        .concat(),
    )?;
    Ok(archive)
}

/// The libraries that a program is linked to, with the one that loads them.
fn libraries(program: &Path) -> Result<Vec<String>, String> {
    let listed = call("ldd", &[&program.display().to_string()])?;
    let paths = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    Ok(paths.map(str::to_owned).collect())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to).map(drop);
    copied.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}
