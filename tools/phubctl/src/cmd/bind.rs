// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! `phubctl bind` and `phubctl unbind`: hand a card to vfio-pci, and back.

use anyhow::{Context, Result, bail};
use clap::Args;
use phub_driver::{PciAddress, Step, Sysfs};
use std::process::ExitCode;

/// Hand a card to vfio-pci, so that phubd can use it. Needs root; `phubctl unbind` takes it back.
#[derive(Args)]
pub(crate) struct Bind {
    #[command(flatten)]
    card: Card,
}

/// Take a card from vfio-pci and let the kernel look for another driver. Needs root.
#[derive(Args)]
pub(crate) struct Unbind {
    #[command(flatten)]
    card: Card,
}

#[derive(Args)]
struct Card {
    /// PCI address, such as 0000:3b:00.0.
    address: PciAddress,
    /// Only print what would be written.
    #[arg(long)]
    dry_run: bool,
}

impl Bind {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (sysfs, address) = (Sysfs::default(), self.card.address);
        if !self.card.make(&sysfs.bind_steps(address)?)? {
            return Ok(ExitCode::SUCCESS);
        }
        let found = sysfs.find(address)?.context("the card is gone")?;
        if found.driver.as_deref() != Some("vfio-pci") {
            bail!("vfio-pci did not take {address}; `dmesg` says why");
        }
        match found.iommu_group {
            Some(group) => outln!("{address} is bound to vfio-pci: /dev/vfio/{group}"),
            None => {
                bail!("{address} is bound, but behind no IOMMU; see `phubctl doctor --for card`")
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Unbind {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (sysfs, address) = (Sysfs::default(), self.card.address);
        if self.card.make(&sysfs.unbind_steps(address)?)? {
            outln!("{address} is free");
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Card {
    /// Prints each step and makes it. Whether anything was done.
    fn make(&self, steps: &[Step]) -> Result<bool> {
        if steps.is_empty() {
            outln!("{}: nothing to do", self.address);
        }
        for step in steps {
            outln!("{step}");
            if !self.dry_run {
                step.run().with_context(|| step.to_string())?;
            }
        }
        Ok(!self.dry_run && !steps.is_empty())
    }
}
