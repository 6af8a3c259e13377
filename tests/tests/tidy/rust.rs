// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Rules of the crates.

use std::process::Command;

use serde_json::Value;

use crate::tree::{self, Tree, words};

/// Which crates of ours each crate may use. Tests (dev-dependencies) may use more.
const USES: &[(&str, &[&str])] = &[
    ("phub-abi", &[]),
    ("phub-sys", &[]),
    ("phub-pci", &["phub-abi", "phub-sys"]),
    ("phub-vfio-user", &["phub-abi", "phub-pci", "phub-sys"]),
    ("phub-model", &["phub-abi", "phub-pci", "phub-sys"]),
    (
        "phub-sim",
        &[
            "phub-abi",
            "phub-model",
            "phub-pci",
            "phub-sys",
            "phub-vfio-user",
        ],
    ),
    (
        "phub-driver",
        &["phub-abi", "phub-pci", "phub-sys", "phub-vfio-user"],
    ),
    ("phub", &["phub-abi", "phub-driver", "phub-sys"]),
    (
        "phubd",
        &[
            "phub",
            "phub-abi",
            "phub-driver",
            "phub-model",
            "phub-pci",
            "phub-sys",
        ],
    ),
    (
        "phubctl",
        &["phub", "phub-abi", "phub-driver", "phub-pci", "phub-sys"],
    ),
    // What runs in the test guest.
    (
        "phub-vm",
        &["phub", "phub-abi", "phub-driver", "phub-pci", "phub-sys"],
    ),
    // Whole-system tests see everything.
    (
        "phub-tests",
        &[
            "phub",
            "phub-abi",
            "phub-driver",
            "phub-model",
            "phub-pci",
            "phub-sim",
            "phub-sys",
            "phub-vfio-user",
            "phubd",
        ],
    ),
];

/// Where `unsafe` may stand: the system calls and the Verilator C ABI.
const UNSAFE: &[&str] = &["driver/sys/src/", "hw/sim/src/ffi.rs"];

#[test]
fn crates_use_each_other_one_way() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(tree::root())
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let Some((_, allowed)) = USES.iter().find(|(n, _)| *n == name) else {
            wrong.push(format!("{name} is not in the table of this test"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let uses = dependency["name"].as_str().expect("a name");
            let ours = USES.iter().any(|(n, _)| *n == uses);
            if ours && dependency["kind"] != "dev" && !allowed.contains(&uses) {
                wrong.push(format!("{name} uses {uses}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_stays_in_its_two_rooms() {
    let tree = Tree::load();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in tree.files.iter().filter(|f| f.extension() == Some("rs")) {
        let uses = words(&file.code())
            .filter(|(word, _)| *word == "unsafe")
            .count();
        if UNSAFE.iter().any(|room| file.path.starts_with(room)) {
            seen += uses;
        } else if uses != 0 {
            wrong.push(&file.path);
        }
    }
    assert!(
        seen != 0,
        "no `unsafe` found where it must be: the test looks wrong"
    );
    assert!(wrong.is_empty(), "`unsafe` outside {UNSAFE:?}: {wrong:#?}");
}

#[test]
fn crates_forbid_unsafe_code() {
    let tree = Tree::load();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in &tree.files {
        let is_root = file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
        let has_unsafe = UNSAFE
            .iter()
            .any(|room| room.starts_with(file.path.trim_end_matches("lib.rs")));
        if !is_root || has_unsafe {
            continue;
        }
        seen += 1;
        if !file.text().contains("#![forbid(unsafe_code)]") {
            wrong.push(&file.path);
        }
    }
    assert!(seen > 8, "only {seen} crate roots found");
    assert!(
        wrong.is_empty(),
        "without #![forbid(unsafe_code)]: {wrong:#?}"
    );
}
