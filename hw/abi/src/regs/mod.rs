// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! BAR0: typed registers, generated from `hw/regs/hub.rdl`.

/// Access to the dwords of BAR0, by call or by mapped memory.
pub trait RegisterIo {
    /// Why an access failed.
    type Error;

    /// Reads the dword at byte `offset`, a multiple of 4.
    fn read32(&self, offset: u32) -> Result<u32, Self::Error>;

    /// Writes the dword at byte `offset`, a multiple of 4.
    fn write32(&self, offset: u32, value: u32) -> Result<(), Self::Error>;
}

/// The value of one register, or of one register of a table.
pub trait Register: Copy + core::fmt::Debug {
    /// Path in the register description, for traces.
    const NAME: &'static str;
    /// Byte offset in BAR0 (of entry 0 in a table).
    const OFFSET: u32;
    /// Entries; 1 outside tables.
    const COUNT: u32;
    /// Bytes from one entry to the next; 0 outside tables.
    const STRIDE: u32;

    /// The value with these bits.
    fn from_bits(bits: u32) -> Self;

    /// The bits of the value.
    fn bits(self) -> u32;
}
