// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! What a card says of itself.

use phub_abi::regs::*;
use phub_abi::{ABI_MAJOR, MAGIC, TABLE_MAX};
use phub_pci::{PciFunction, RegisterIoExt};
use serde::Serialize;

use crate::error::ALL_ONES;
use crate::{Error, Result};

/// A card's version and size, fixed when it was built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// ABI version, major.
    pub abi_major: u32,
    /// ABI version, minor.
    pub abi_minor: u32,
    /// First 32 bits of the hash of the RTL sources, 0 if unknown.
    pub build_hash: u32,
    /// FP32 adders side by side.
    pub lanes: u32,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Aggregation slots, all tenants together.
    pub slots: u32,
    /// Tenants.
    pub tenants: u32,
    /// Workers a tenant can have.
    pub workers: u32,
    /// Queue pairs.
    pub queues: u32,
    /// Descriptors of one queue the card works on at a time.
    pub descriptor_depth: u32,
    /// Interrupt vectors.
    pub vectors: u32,
    /// Ethernet ports.
    pub ports: u32,
    /// It sums FP32.
    pub sum: bool,
    /// It divides by the number of contributors.
    pub mean: bool,
    /// It checks CRC-32 of payloads.
    pub crc: bool,
}

impl Identity {
    /// Reads it, and refuses a card this driver cannot drive.
    pub(crate) fn read(pci: &dyn PciFunction) -> Result<Self> {
        let address = pci.address();
        match pci.get::<Magic>()?.value() {
            MAGIC => {}
            u32::MAX => {
                return Err(Error::CardGone {
                    address,
                    reason: ALL_ONES.into(),
                });
            }
            found => return Err(Error::WrongMagic { address, found }),
        }
        let abi = pci.get::<AbiVersion>()?;
        if abi.major() != u32::from(ABI_MAJOR) {
            return Err(Error::AbiMismatch {
                address,
                major: abi.major(),
                minor: abi.minor(),
            });
        }
        let caps = pci.get::<Caps>()?;
        let datapath = pci.get::<ParamDatapath>()?;
        let tenants = pci.get::<ParamTenants>()?;
        let queues = pci.get::<ParamQueues>()?;
        let identity = Self {
            abi_major: abi.major(),
            abi_minor: abi.minor(),
            build_hash: pci.get::<BuildHash>()?.value(),
            lanes: datapath.lanes(),
            segment_bytes: 1u32.checked_shl(datapath.seg_log2()).unwrap_or(0),
            slots: pci.get::<ParamSlots>()?.value(),
            tenants: tenants.tenants(),
            workers: tenants.workers(),
            queues: queues.queues(),
            descriptor_depth: queues.desc_depth(),
            vectors: datapath.vectors(),
            ports: datapath.ports(),
            sum: caps.fp32_sum(),
            mean: caps.fp32_mean(),
            crc: caps.crc(),
        };
        match identity.flaw() {
            Some(what) => Err(Error::BadIdentity { address, what }),
            None => Ok(identity),
        }
    }

    /// What cannot be true.
    fn flaw(&self) -> Option<String> {
        let table = 1..=TABLE_MAX as u32;
        let checks = [
            (table.contains(&self.tenants), "tenants", self.tenants),
            (
                table.contains(&self.workers),
                "workers a tenant",
                self.workers,
            ),
            (table.contains(&self.queues), "queue pairs", self.queues),
            (
                self.vectors > self.queues,
                "interrupt vectors",
                self.vectors,
            ),
            (
                self.slots.is_power_of_two() && self.slots <= 1 << 16,
                "slots",
                self.slots,
            ),
            (
                (64..=8192).contains(&self.segment_bytes),
                "bytes a segment",
                self.segment_bytes,
            ),
        ];
        checks
            .iter()
            .find(|(fine, ..)| !fine)
            .map(|(_, what, n)| format!("{n} {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaw_is_named() {
        let good = Identity {
            abi_major: 1,
            abi_minor: 0,
            build_hash: 0,
            lanes: 16,
            segment_bytes: 1024,
            slots: 1024,
            tenants: 64,
            workers: 64,
            queues: 64,
            descriptor_depth: 16,
            vectors: 65,
            ports: 0,
            sum: true,
            mean: true,
            crc: true,
        };
        assert_eq!(good.flaw(), None);
        assert_eq!(
            Identity {
                tenants: 65,
                ..good.clone()
            }
            .flaw()
            .unwrap(),
            "65 tenants"
        );
        assert_eq!(
            Identity {
                queues: 0,
                ..good.clone()
            }
            .flaw()
            .unwrap(),
            "0 queue pairs"
        );
        assert_eq!(
            Identity {
                vectors: 64,
                ..good.clone()
            }
            .flaw()
            .unwrap(),
            "64 interrupt vectors"
        );
        assert_eq!(
            Identity {
                slots: 1000,
                ..good.clone()
            }
            .flaw()
            .unwrap(),
            "1000 slots"
        );
        assert_eq!(
            Identity {
                segment_bytes: 0,
                ..good
            }
            .flaw()
            .unwrap(),
            "0 bytes a segment"
        );
    }
}
