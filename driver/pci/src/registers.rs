// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Typed, traced access to registers.

use phub_abi::regs::{Register, RegisterIo};

/// Reads and writes registers by their types; each access is traced with its decoded value.
pub trait RegisterIoExt: RegisterIo {
    /// Reads a register that is not in a table.
    fn get<R: Register>(&self) -> Result<R, Self::Error> {
        const { assert!(R::COUNT == 1, "a register of a table needs an index") }
        self.get_at(0)
    }

    /// Writes a register that is not in a table.
    fn set<R: Register>(&self, value: R) -> Result<(), Self::Error> {
        const { assert!(R::COUNT == 1, "a register of a table needs an index") }
        self.set_at(0, value)
    }

    /// Reads the register of entry `index` of its table.
    ///
    /// # Panics
    /// If the table has no such entry.
    fn get_at<R: Register>(&self, index: u32) -> Result<R, Self::Error> {
        let value = R::from_bits(self.read32(offset::<R>(index))?);
        tracing::trace!(register = R::NAME, index, ?value, "read");
        Ok(value)
    }

    /// Writes the register of entry `index` of its table.
    ///
    /// # Panics
    /// If the table has no such entry.
    fn set_at<R: Register>(&self, index: u32, value: R) -> Result<(), Self::Error> {
        tracing::trace!(register = R::NAME, index, ?value, "write");
        self.write32(offset::<R>(index), value.bits())
    }
}

impl<T: RegisterIo + ?Sized> RegisterIoExt for T {}

fn offset<R: Register>(index: u32) -> u32 {
    assert!(
        index < R::COUNT,
        "{} has {} entries, not {index}",
        R::NAME,
        R::COUNT
    );
    R::OFFSET + index * R::STRIDE
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use phub_abi::regs::{Ctrl, DoorbellsSqTail, Magic, TenantTableCtrl};

    use super::*;

    #[derive(Default)]
    struct Dwords(RefCell<BTreeMap<u32, u32>>);

    impl RegisterIo for Dwords {
        type Error = Infallible;

        fn read32(&self, offset: u32) -> Result<u32, Infallible> {
            Ok(self.0.borrow().get(&offset).copied().unwrap_or(0))
        }

        fn write32(&self, offset: u32, value: u32) -> Result<(), Infallible> {
            self.0.borrow_mut().insert(offset, value);
            Ok(())
        }
    }

    #[test]
    fn registers_are_found_at_their_places() {
        let io = Dwords::default();
        io.set(Ctrl::default().with_enable(true)).unwrap();
        io.set_at(3, TenantTableCtrl::default().with_workers(7))
            .unwrap();
        io.set_at(63, DoorbellsSqTail::default().with_value(9))
            .unwrap();
        let expected = BTreeMap::from([(0x20, 1), (0x20c0, 7 << 8), (0x13_f000, 9)]);
        assert_eq!(*io.0.borrow(), expected);
        assert_eq!(io.get_at::<TenantTableCtrl>(3).unwrap().workers(), 7);
        assert_eq!(io.get::<Magic>().unwrap().value(), 0);
    }

    #[test]
    #[should_panic(expected = "tenant_table")]
    fn an_index_outside_the_table_is_a_mistake() {
        let _ = Dwords::default().get_at::<TenantTableCtrl>(64);
    }
}
