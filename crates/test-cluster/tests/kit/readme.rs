//! The examples of `README.md` are the files that are compiled and run here.

#[test]
fn the_readme_shows_the_examples_as_they_run() {
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```").skip(1).step_by(2);
    let shown: Vec<&str> = blocks
        .filter_map(|block| block.strip_prefix("rust\n"))
        .collect();
    assert_eq!(
        shown,
        [include_str!("example.rs"), include_str!("steps.rs")]
    );
}
