// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! PCI configuration space of the card, as the simulated card and the golden model present it.
//!
//! A type 0 header with two 64-bit memory BARs (BAR0 registers, BAR2 MSI-X table), a PCI Express capability with
//! function-level reset, and an MSI-X capability. Offsets are those of the PCI Express Base Specification, chapter 7.

use phub_abi::{BAR0_BYTES, PCI_DEVICE, PCI_VENDOR};

use crate::PciError;

/// Bytes of configuration space.
pub const CONFIG_BYTES: usize = 4096;
/// Bytes of BAR2, which holds the MSI-X table and its pending bits.
pub const MSIX_BAR_BYTES: u32 = 4096;
/// Offset of the MSI-X pending bit array in BAR2.
pub const MSIX_PBA_OFFSET: u32 = 0x800;

/// Offset of the command register.
pub const COMMAND: u16 = 0x04;
/// Command bit: BARs answer.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Command bit: the function may master the bus (DMA and MSI-X).
pub const COMMAND_MASTER: u16 = 1 << 2;

const STATUS_CAPABILITIES: u16 = 1 << 4;
const CLASS_ACCELERATOR: u32 = 0x12_00_00;
const BAR_64BIT: u32 = 0b100;
const EXPRESS: u16 = 0x40;
const MSIX: u16 = 0x80;
const DEVICE_CONTROL: u16 = EXPRESS + 0x08;
const DEVICE_CONTROL_FLR: u16 = 1 << 15;
const GEN3_X16: u16 = 0x103;

/// What a write of configuration space asks of the card beyond the bytes kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ConfigEffect {
    /// Nothing; [`ConfigSpace::bus_master`] may have changed.
    None,
    /// A function-level reset: reset the card, then call [`ConfigSpace::reset`].
    Reset,
}

/// The 4096 bytes, and which of their bits software may write.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: Box<[u8; CONFIG_BYTES]>,
    writable: Box<[u8; CONFIG_BYTES]>,
    vectors: u16,
}

impl ConfigSpace {
    /// Configuration space after power-on of a function with `vectors` (1 to 128) MSI-X vectors.
    pub fn new(vectors: u16) -> Self {
        let vectors = vectors.clamp(1, 128);
        let mut space = Self {
            bytes: Box::new([0; CONFIG_BYTES]),
            writable: Box::new([0; CONFIG_BYTES]),
            vectors,
        };
        space.reset();
        space
    }

    /// Whether the function may write host memory, read it, and raise interrupts.
    pub fn bus_master(&self) -> bool {
        u16::from_le_bytes([
            self.bytes[usize::from(COMMAND)],
            self.bytes[usize::from(COMMAND) + 1],
        ]) & COMMAND_MASTER
            != 0
    }

    /// Reads 1, 2 or 4 bytes, naturally aligned.
    pub fn read(&self, offset: u16, data: &mut [u8]) -> Result<(), PciError> {
        let range = range(offset, data.len())?;
        data.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    /// Writes 1, 2 or 4 bytes, naturally aligned. Bits that software may not write keep their value.
    pub fn write(&mut self, offset: u16, data: &[u8]) -> Result<ConfigEffect, PciError> {
        for (at, new) in range(offset, data.len())?.zip(data) {
            self.bytes[at] = (self.bytes[at] & !self.writable[at]) | (new & self.writable[at]);
        }
        // The reset bit reads as zero, so it is looked for in what is written.
        let high = usize::from(DEVICE_CONTROL) + 1;
        let flr = usize::from(offset) <= high
            && data
                .get(high - usize::from(offset))
                .is_some_and(|b| u16::from(*b) << 8 & DEVICE_CONTROL_FLR != 0);
        Ok(if flr {
            ConfigEffect::Reset
        } else {
            ConfigEffect::None
        })
    }

    /// Back to the state after power-on.
    pub fn reset(&mut self) {
        self.bytes.fill(0);
        self.writable.fill(0);
        self.put16(0x00, PCI_VENDOR, 0);
        self.put16(0x02, PCI_DEVICE, 0);
        self.put16(COMMAND, 0, COMMAND_MEMORY | COMMAND_MASTER | 1 << 10);
        self.put16(0x06, STATUS_CAPABILITIES, 0);
        self.put32(0x08, CLASS_ACCELERATOR << 8, 0);
        self.put32(0x0c, 0, 0xff); // type 0; the cache line size may be written
        self.put32(0x10, BAR_64BIT, !(BAR0_BYTES - 1));
        self.put32(0x14, 0, u32::MAX);
        self.put32(0x18, BAR_64BIT, !(MSIX_BAR_BYTES - 1));
        self.put32(0x1c, 0, u32::MAX);
        self.put16(0x2c, PCI_VENDOR, 0);
        self.put16(0x2e, PCI_DEVICE, 0);
        self.put16(0x34, EXPRESS, 0);
        self.put32(0x3c, 0, 0xff); // the interrupt line may be written; there is no pin

        self.put16(EXPRESS, MSIX << 8 | 0x10, 0);
        self.put16(EXPRESS + 0x02, 0x0002, 0); // version 2, endpoint
        self.put32(EXPRESS + 0x04, 1 << 28 | 1 << 15 | 1, 0); // function-level reset, 256-byte payloads
        self.put16(DEVICE_CONTROL, 0x2810, 0x78ff);
        self.put32(EXPRESS + 0x0c, GEN3_X16.into(), 0);
        self.put16(EXPRESS + 0x10, 0, 0x00c3);
        self.put16(EXPRESS + 0x12, GEN3_X16, 0);
        self.put32(EXPRESS + 0x24, 1 << 4, 0); // completion timeout can be disabled
        self.put16(EXPRESS + 0x28, 0, 1 << 4);
        self.put32(EXPRESS + 0x2c, 0b111 << 1, 0); // 2.5, 5 and 8 GT/s
        self.put16(EXPRESS + 0x30, 3, 0xf);

        self.put16(MSIX, 0x0011, 0);
        self.put16(MSIX + 0x02, self.vectors - 1, 0xc000); // enable, mask all
        self.put32(MSIX + 0x04, 2, 0);
        self.put32(MSIX + 0x08, MSIX_PBA_OFFSET | 2, 0);
    }

    fn put16(&mut self, offset: u16, value: u16, writable: u16) {
        let at = usize::from(offset);
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, offset: u16, value: u32, writable: u32) {
        let at = usize::from(offset);
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }
}

fn range(offset: u16, len: usize) -> Result<std::ops::Range<usize>, PciError> {
    let at = usize::from(offset);
    if !matches!(len, 1 | 2 | 4) || !at.is_multiple_of(len) || at + len > CONFIG_BYTES {
        return Err(PciError::OutOfRange {
            region: "config",
            offset: offset.into(),
            len: len as u64,
        });
    }
    Ok(at..at + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read32(space: &ConfigSpace, offset: u16) -> u32 {
        let mut b = [0; 4];
        space.read(offset, &mut b).unwrap();
        u32::from_le_bytes(b)
    }

    fn capability(space: &ConfigSpace, id: u8) -> u16 {
        let mut at = read32(space, 0x34) as u16 & 0xff;
        for _ in 0..48 {
            let head = read32(space, at);
            if head as u8 == id {
                return at;
            }
            at = (head >> 8) as u16 & 0xff;
        }
        panic!("no capability {id:#x}");
    }

    #[test]
    fn identity_cannot_be_written() {
        let mut space = ConfigSpace::new(65);
        assert_eq!(space.write(0, &[0xff; 4]).unwrap(), ConfigEffect::None);
        assert_eq!(
            read32(&space, 0),
            u32::from(PCI_DEVICE) << 16 | u32::from(PCI_VENDOR)
        );
    }

    #[test]
    fn bars_are_sized_by_writing_ones() {
        let mut space = ConfigSpace::new(65);
        for (bar, bytes) in [(0x10, BAR0_BYTES), (0x18, MSIX_BAR_BYTES)] {
            let _ = space.write(bar, &[0xff; 4]).unwrap();
            let _ = space.write(bar + 4, &[0xff; 4]).unwrap();
            assert_eq!(!(read32(&space, bar) & !0xf) + 1, bytes);
            assert_eq!(read32(&space, bar) & 0xf, BAR_64BIT);
            assert_eq!(read32(&space, bar + 4), u32::MAX);
        }
    }

    #[test]
    fn bus_master_follows_the_command_register_and_reset_clears_it() {
        let mut space = ConfigSpace::new(65);
        assert!(!space.bus_master());
        let _ = space
            .write(COMMAND, &(COMMAND_MASTER | COMMAND_MEMORY).to_le_bytes())
            .unwrap();
        assert!(space.bus_master());
        space.reset();
        assert!(!space.bus_master());
    }

    #[test]
    fn msix_states_the_vectors_and_the_table_bar() {
        let space = ConfigSpace::new(65);
        let at = capability(&space, 0x11);
        assert_eq!(read32(&space, at) >> 16 & 0x7ff, 64);
        assert_eq!(read32(&space, at + 4), 2);
        assert_eq!(read32(&space, at + 8), MSIX_PBA_OFFSET | 2);
    }

    #[test]
    fn function_level_reset_is_offered_and_noticed_in_every_width() {
        let mut space = ConfigSpace::new(65);
        let at = capability(&space, 0x10);
        assert_ne!(read32(&space, at + 4) & 1 << 28, 0);
        assert_eq!(
            space.write(at + 8, &[0, 0x80]).unwrap(),
            ConfigEffect::Reset
        );
        assert_eq!(
            space.write(at + 8, &[0, 0x80, 0, 0]).unwrap(),
            ConfigEffect::Reset
        );
        assert_eq!(space.write(at + 9, &[0x80]).unwrap(), ConfigEffect::Reset);
        assert_eq!(space.write(at + 8, &[0x80]).unwrap(), ConfigEffect::None);
        assert_eq!(read32(&space, at + 8) & 0x8000, 0, "the bit reads as zero");
    }

    #[test]
    fn misaligned_and_oversized_accesses_are_refused() {
        let mut space = ConfigSpace::new(65);
        assert!(space.read(1, &mut [0; 2]).is_err());
        assert!(space.read(0xffe, &mut [0; 4]).is_err());
        assert!(space.read(0, &mut [0; 8]).is_err());
        assert!(space.read(0, &mut []).is_err());
        assert!(space.write(4096, &[0]).is_err());
        assert!(space.write(2, &[0; 4]).is_err());
    }
}
