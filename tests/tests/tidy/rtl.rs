// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Rules of the RTL tree.

use std::collections::BTreeMap;

use crate::tree::{Tree, words};

/// Modules without a block test of their own, and why.
const UNTESTED: &[(&str, &str)] = &[];

/// Beginnings of the names of vendor cells.
const VENDOR_CELLS: &[&str] = &[
    "BUFG",
    "IBUF",
    "OBUF",
    "IDDR",
    "ODDR",
    "MMCM",
    "PLLE",
    "RAMB18",
    "RAMB36",
    "URAM",
    "DSP48",
    "FDRE",
    "FDSE",
    "LUT4",
    "LUT6",
    "CARRY4",
    "CARRY8",
    "PCIE4",
    "GTYE",
    "xpm_",
    "altsyncram",
    "altpll",
    "lpm_",
    "DP16KD",
    "EHXPLL",
    "TRELLIS",
    "CCU2C",
    "MULT18X18",
    "DCUA",
];

/// Modules of `hw/rtl`: name to folder.
fn modules(tree: &Tree) -> BTreeMap<&str, &str> {
    tree.below("hw/rtl/", "sv")
        .filter(|f| !f.stem().ends_with("_pkg"))
        .map(|f| (f.stem(), f.path.split('/').nth(2).unwrap_or_default()))
        .collect()
}

#[test]
fn a_file_holds_the_module_of_its_name() {
    let tree = Tree::load();
    let mut wrong = Vec::new();
    for file in tree.below("hw/rtl/", "sv") {
        let code = file.code();
        let declared: Vec<_> = words(&code)
            .filter(|(word, _)| ["module", "package", "interface"].contains(word))
            .filter_map(|(kind, after)| Some((kind, words(after).next()?.0)))
            .collect();
        let kind = if file.stem().ends_with("_pkg") {
            "package"
        } else {
            "module"
        };
        let end = format!("end{kind} : {}", file.stem());
        if declared != [(kind, file.stem())] || !code.trim_end().ends_with(&end) {
            wrong.push(format!(
                "{}: declares {declared:?}, must end in `{end}`",
                file.path
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_module_has_its_block_test() {
    let tree = Tree::load();
    let modules = modules(&tree);
    assert!(modules.contains_key("phub_core"), "no RTL found");
    let has_test = |module: &str| {
        tree.get(&format!("hw/sim/blocks/test_{module}.py"))
            .is_some()
    };
    let exempt = |module: &str| UNTESTED.iter().any(|(name, _)| *name == module);
    let missing: Vec<_> = modules
        .keys()
        .filter(|m| !has_test(m) && !exempt(m))
        .collect();
    assert!(
        missing.is_empty(),
        "no hw/sim/blocks/test_<module>.py: {missing:?}"
    );
    let idle: Vec<_> = UNTESTED
        .iter()
        .filter(|(m, _)| has_test(m) || !modules.contains_key(m))
        .collect();
    assert!(idle.is_empty(), "exempt without need: {idle:?}");
}

#[test]
fn a_stage_instantiates_itself_and_the_library_only() {
    let tree = Tree::load();
    let modules = modules(&tree);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in tree.below("hw/rtl/", "sv") {
        let folder = modules.get(file.stem()).copied().unwrap_or("pkg");
        for (word, after) in words(&file.code()) {
            let Some(target) = modules.get(word) else {
                continue;
            };
            // An instance is `name #(` or `name instance (`; other uses of the name are signals.
            let instance = after.starts_with("#(")
                || words(after)
                    .next()
                    .is_some_and(|(name, then)| after.starts_with(name) && then.starts_with('('));
            if !instance || word == file.stem() {
                continue;
            }
            seen += 1;
            if folder != "top" && *target != folder && *target != "lib" {
                wrong.push(format!("{} instantiates {word} of {target}/", file.path));
            }
        }
    }
    assert!(seen > 20, "only {seen} instances found");
    assert!(wrong.is_empty(), "stages meet only in top/: {wrong:#?}");
}

#[test]
fn vendor_cells_stay_with_the_boards() {
    let tree = Tree::load();
    let mut wrong = Vec::new();
    for file in tree
        .below("hw/rtl/", "sv")
        .chain(tree.below("hw/rtl/", "svh"))
    {
        for (word, _) in words(&file.code()) {
            if VENDOR_CELLS.iter().any(|cell| word.starts_with(cell)) {
                wrong.push(format!("{}: {word}", file.path));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "vendor cells belong to hw/boards: {wrong:#?}"
    );
}

#[test]
fn the_core_is_free_of_latches_and_tool_traps() {
    let tree = Tree::load();
    let mut wrong = Vec::new();
    for file in tree.below("hw/rtl/", "sv") {
        for (word, after) in words(&file.code()) {
            let type_parameter =
                word == "parameter" && words(after).next().is_some_and(|w| w.0 == "type");
            if ["interface", "modport", "always_latch", "initial", "casex"].contains(&word)
                || type_parameter
            {
                wrong.push(format!("{}: {word}", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
