// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The first process of the test guest: it runs the scenarios that the kernel command line names (`phub.run=a,b`), says how each
//! ended, and switches the machine off. With arguments it is one of the processes a scenario needs.
#![forbid(unsafe_code)]

mod card;
mod guest;
mod hub;
mod misuse;
mod roles;

use std::time::Instant;

use anyhow::{Context, Result, bail};

/// A scenario passes or says what was wrong.
type Scenario = fn() -> Result<()>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("no_driver", misuse::no_driver),
    ("bind_and_unbind", misuse::bind_and_unbind),
    ("no_permission", misuse::no_permission),
    ("locked_memory", misuse::locked_memory),
    ("in_use", misuse::in_use),
    ("no_iommu", misuse::no_iommu),
    ("shared_group", misuse::shared_group),
    ("reads_all_ones", misuse::reads_all_ones),
    ("containment", card::containment),
    ("reset_in_traffic", card::reset_in_traffic),
    ("a_gigabyte_of_mappings", card::a_gigabyte_of_mappings),
    ("demo", hub::demo),
    ("ordinary_users", hub::ordinary_users),
    ("huge_pages", hub::huge_pages),
    ("owner_killed", hub::owner_killed),
    ("soak", hub::soak),
    ("two_cards", hub::two_cards),
    ("card_removed", hub::card_removed),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [role, arguments @ ..] = &arguments[..] {
        match roles::run(role, arguments) {
            Ok(()) => return,
            Err(error) => {
                println!("error {error:#}");
                std::process::exit(1);
            }
        }
    }
    if let Err(error) = all() {
        println!("GUEST failed: {error:#}");
    }
    println!("GUEST off");
    guest::power_off();
}

fn all() -> Result<()> {
    guest::mount()?;
    let line = std::fs::read_to_string("/proc/cmdline")?;
    let wanted = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("phub.run="))
        .context("phub.run= is not on the kernel command line")?;
    for name in wanted.split(',') {
        let Some((_, scenario)) = SCENARIOS.iter().find(|(known, _)| *known == name) else {
            bail!("no scenario `{name}`");
        };
        println!("SCENARIO {name} begins");
        let start = Instant::now();
        match scenario() {
            Ok(()) => println!("SCENARIO {name} ok {:.1} s", start.elapsed().as_secs_f64()),
            Err(error) => {
                let what = format!("{error:#}").replace('\n', " | ");
                println!("SCENARIO {name} FAILED {what}");
            }
        }
        guest::end_children();
    }
    Ok(())
}
