// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Rules of the documentation: it says what is there.

use phub_abi::Status;

use crate::tree::{self, File, Tree, words};

fn documents(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|f| f.extension() == Some("md"))
}

/// Text outside of fenced blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

#[test]
fn links_resolve() {
    let tree = Tree::load();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in documents(&tree) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for part in prose(file.text()).split("](").skip(1) {
            let Some((link, _)) = part.split_once(')') else {
                continue;
            };
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                file.path.clone()
            } else {
                format!("{folder}/{path}")
            };
            let on_disk = tree::root().join(target.trim_start_matches('/'));
            let found = on_disk.exists()
                && (anchor.is_empty()
                    || std::fs::read_to_string(&on_disk)
                        .is_ok_and(|text| anchors(&text).any(|a| a == anchor)));
            if !found {
                wrong.push(format!("{}: {link}", file.path));
            }
        }
    }
    assert!(seen > 10, "only {seen} links found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Anchors of the headings, as code hosts make them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|l| l.starts_with('#')).map(|l| {
        let title = l.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[test]
fn commands_in_the_documents_exist() {
    let tree = Tree::load();
    let makefile = tree.get("Makefile").expect("there is a Makefile").text();
    let targets: Vec<_> = makefile
        .lines()
        .filter(|l| l.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|l| l.split_once(':'))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in documents(&tree) {
        for line in file.text().lines() {
            // A command stands in backquotes or alone on an indented line.
            let commands = line
                .split('`')
                .skip(1)
                .step_by(2)
                .chain(line.strip_prefix("    "));
            for target in commands.filter_map(|c| c.trim().strip_prefix("make ")) {
                let Some(target) = target.split([' ', '\t']).next() else {
                    continue;
                };
                seen += 1;
                if !targets.contains(&target) {
                    wrong.push(format!("{}: make {target}", file.path));
                }
            }
        }
    }
    assert!(seen > 5, "only {seen} commands found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_error_has_its_remedy() {
    let tree = Tree::load();
    let errors = tree
        .get("host-lib/src/error.rs")
        .expect("the host library's errors")
        .code();
    let (_, body) = errors
        .split_once("pub enum Error {")
        .expect("`pub enum Error`");
    let (body, _) = body.split_once("\n}").expect("its end");
    let variants: Vec<_> = body
        .lines()
        .filter_map(|l| l.strip_prefix("    "))
        .filter(|l| l.starts_with(|c: char| c.is_ascii_uppercase()))
        .filter_map(|l| Some(words(l).next()?.0))
        .collect();
    assert!(variants.len() > 3, "only {variants:?} found");
    let guide = tree
        .get("docs/troubleshooting.md")
        .expect("the guide")
        .text();
    let missing: Vec<_> = variants
        .iter()
        .filter(|v| !guide.lines().any(|l| l == format!("### `{v}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/troubleshooting.md has no heading for {missing:?}"
    );
}

#[test]
fn the_programmers_guide_has_every_status() {
    let tree = Tree::load();
    let guide = tree
        .get("docs/programmers-guide.md")
        .expect("the guide")
        .text();
    let missing: Vec<_> = Status::ALL
        .iter()
        .filter(|s| {
            !guide
                .lines()
                .any(|l| l.starts_with(&format!("| {} | `{s:?}` |", s.code())))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_proof_is_in_the_table() {
    let tree = Tree::load();
    let table = tree.get("docs/proofs.md").expect("the table").text();
    let proofs: Vec<_> = tree
        .below("hw/formal/", "sv")
        .filter_map(|f| f.stem().strip_suffix("_props"))
        .collect();
    assert!(proofs.len() > 2, "only {proofs:?} found");
    let row = |module: &str| {
        table
            .lines()
            .any(|l| l.starts_with(&format!("| [{module}](")))
    };
    let missing: Vec<_> = proofs.iter().filter(|module| !row(module)).collect();
    assert!(
        missing.is_empty(),
        "docs/proofs.md has no row for {missing:?}"
    );
}

/// The table of the path of a gradient in ARCHITECTURE.md: `| n | [file](file) | `thing`, ... | what |`.
#[test]
fn the_path_of_a_gradient_is_there_in_this_order() {
    let tree = Tree::load();
    let page = tree.get("ARCHITECTURE.md").expect("the page").text();
    let mut next = 1;
    let mut wrong = Vec::new();
    // How far the step before went in its file; the next step, if it is in the same file, goes on from there.
    let mut reached = (String::new(), 0);
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if cells.len() != 6 || cells[1] != next.to_string() {
            continue;
        }
        next += 1;
        let path = cells[2].split(['(', ')']).nth(1).unwrap_or_default();
        let Some(file) = tree.get(path) else {
            wrong.push(format!("step {}: no file {path:?}", cells[1]));
            continue;
        };
        // The things stand in the file's code in the order in which the table names them.
        let code = file.code();
        if reached.0 != path {
            reached = (path.to_owned(), 0);
        }
        let from = &mut reached.1;
        for thing in cells[3].split('`').skip(1).step_by(2) {
            match words(&code).skip(*from).position(|(word, _)| word == thing) {
                Some(words) => *from += words + 1,
                None => wrong.push(format!(
                    "step {}: {path} has no {thing:?} after word {from}",
                    cells[1]
                )),
            }
        }
    }
    assert!(
        next > 15,
        "the table in ARCHITECTURE.md has only {} steps",
        next - 1
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}
