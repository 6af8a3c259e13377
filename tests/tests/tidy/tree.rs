// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &[
    ".git",
    ".venv",
    ".cache",
    "target",
    "sim_build",
    "__pycache__",
    ".pytest_cache",
];

/// One file.
pub(crate) struct File {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: String,
    bytes: Vec<u8>,
}

impl File {
    /// What follows the last dot of the name.
    pub(crate) fn extension(&self) -> Option<&str> {
        self.name().rsplit_once('.').map(|(_, extension)| extension)
    }

    /// Name without folders.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Name without folders and extension.
    pub(crate) fn stem(&self) -> &str {
        self.name().split('.').next().unwrap_or_default()
    }

    /// Contents; empty for a file that is not text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// Contents without `//` and `/* */` comments and without string literals.
    pub(crate) fn code(&self) -> String {
        code_of(self.text())
    }
}

/// All files.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// Reads the repository.
    pub(crate) fn load() -> Self {
        let mut files = Vec::new();
        walk(&root(), &root(), &mut files);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self { files }
    }

    /// Files below `folder` whose name ends in `.extension`.
    pub(crate) fn below<'a>(
        &'a self,
        folder: &'a str,
        extension: &'a str,
    ) -> impl Iterator<Item = &'a File> {
        self.files
            .iter()
            .filter(move |f| f.path.starts_with(folder) && f.extension() == Some(extension))
    }

    /// The file at `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }
}

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the root exists")
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) {
    let entries = fs::read_dir(folder).expect("folders of the repository can be read");
    for entry in entries.map(|e| e.expect("folders of the repository can be read")) {
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = entry.path();
        let kind = entry.file_type().expect("entries have a type");
        if kind.is_dir() {
            if !SKIPPED.contains(&name.as_str()) && !name.starts_with("target") {
                walk(root, &path, files);
            }
        } else if kind.is_file() {
            let path_text = path
                .strip_prefix(root)
                .expect("below the root")
                .to_str()
                .expect("UTF-8");
            // A build may remove a scratch file meanwhile.
            if let Ok(bytes) = fs::read(&path) {
                files.push(File {
                    path: path_text.to_owned(),
                    bytes,
                });
            }
        }
    }
}

fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") {
            3
        } else if c == '"' {
            string_length(rest)
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        // Keep the line numbers.
        code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        rest = &rest[skipped..];
    }
    code
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i + 1,
            _ => {}
        }
    }
    text.len()
}

/// Identifiers of `code`, with what follows each (blanks skipped).
pub(crate) fn words(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = code;
    std::iter::from_fn(move || {
        rest = &rest[rest.find(is_word)?..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some((word, after.trim_start()))
    })
}

#[test]
fn comments_and_strings_are_not_code() {
    let code = code_of("a /* b */ c // d\ne \"f \\\" g\" h");
    let found: Vec<_> = words(&code).map(|(word, _)| word).collect();
    assert_eq!(found, ["a", "c", "e", "h"]);
}
