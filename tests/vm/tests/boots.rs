// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The driver on a real kernel: a guest behind a virtual IOMMU, with Verilated cards on its PCI bus. `make test-vm` runs it.
//!
//! A test is one boot with some of the scenarios of `src/main.rs`, one after the other.

mod machine;

use machine::{Machine, Setup};

fn boots(setup: Setup, scenarios: &[&str]) {
    let mut machine = Machine::boot(setup, scenarios);
    for scenario in scenarios {
        machine.passes(scenario);
    }
    machine.ends();
}

#[test]
fn whatever_is_wrong_says_so() {
    boots(
        Setup::default(),
        &[
            "no_driver",
            "bind_and_unbind",
            "no_permission",
            "locked_memory",
            "in_use",
        ],
    );
}

#[test]
fn without_iommu() {
    let setup = Setup {
        iommu: false,
        ..Setup::default()
    };
    boots(setup, &["no_iommu"]);
}

#[test]
fn a_group_with_others() {
    let setup = Setup {
        shared: true,
        ..Setup::default()
    };
    boots(setup, &["shared_group"]);
}

#[test]
fn the_iommu_contains_the_card() {
    boots(
        Setup::default(),
        &["containment", "reset_in_traffic", "a_gigabyte_of_mappings"],
    );
}

#[test]
fn the_demo_and_its_users() {
    boots(
        Setup::default(),
        &["demo", "ordinary_users", "huge_pages", "owner_killed"],
    );
}

#[test]
fn soak() {
    boots(Setup::default(), &["soak"]);
}

#[test]
fn more_than_one_card() {
    let setup = Setup {
        cards: 2,
        ..Setup::default()
    };
    boots(setup, &["two_cards"]);
}

#[test]
fn a_card_that_was_reloaded() {
    let mut machine = Machine::boot(Setup::default(), &["reads_all_ones"]);
    machine.line("REMOVE the card");
    machine.pull_cards();
    machine.passes("reads_all_ones");
    machine.ends();
}

#[test]
fn a_card_that_is_removed() {
    let mut machine = Machine::boot(Setup::default(), &["card_removed"]);
    machine.line("REMOVE the card");
    machine.pull_cards();
    machine.passes("card_removed");
    // The kernel takes a minute to close a device that does not answer: the machine is not waited for.
}
