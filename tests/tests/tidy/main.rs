// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The repository tests itself: layout, dependencies, documentation, generated files.
#![forbid(unsafe_code)]

mod docs;
mod rtl;
mod rust;
mod tree;

use tree::Tree;

/// File types whose first line (second, after `#!`) is the licence.
const SOURCES: &[&str] = &[
    "rs", "sv", "svh", "vlt", "rdl", "py", "sh", "c", "h", "cpp", "sby", "ys", "lpf", "xdc",
];

#[test]
fn every_source_states_its_licence() {
    let tree = Tree::load();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in &tree.files {
        let extension = file.extension();
        let script = extension.is_none() && file.text().starts_with("#!");
        if !script && !extension.is_some_and(|e| SOURCES.contains(&e)) {
            continue;
        }
        seen += 1;
        let head: Vec<_> = file.text().lines().take(2).collect();
        if !head
            .iter()
            .any(|l| l.contains("SPDX-License-Identifier: Apache-2.0"))
        {
            wrong.push(file.path.as_str());
        }
    }
    assert!(seen > 100, "only {seen} source files found");
    assert!(wrong.is_empty(), "without licence line: {wrong:#?}");
}

#[test]
fn generated_files_are_fresh() {
    let root = tree::root();
    let python = root.join(".venv/bin/python");
    assert!(python.exists(), "no Python tools: run `make venv`");
    let output = std::process::Command::new(python)
        .arg("tools/gen/regs.py")
        .arg("--check")
        .current_dir(root)
        .output()
        .expect("the generator starts");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
