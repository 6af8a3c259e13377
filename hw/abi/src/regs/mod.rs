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

/// Declares one register: its place, and a getter and a builder for each field.
macro_rules! register {
    (
        $(#[$doc:meta])*
        $name:ident $path:literal @ $offset:literal, $count:literal x $stride:literal {
            $($(#[$field_doc:meta])* $get:ident, $with:ident: $kind:ident [$high:literal : $low:literal],)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(u32);

        impl Register for $name {
            const NAME: &'static str = $path;
            const OFFSET: u32 = $offset;
            const COUNT: u32 = $count;
            const STRIDE: u32 = $stride;

            fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            fn bits(self) -> u32 {
                self.0
            }
        }

        impl $name {
            $(register!(@field $(#[$field_doc])* $get, $with: $kind [$high:$low]);)*
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($get), &self.$get()))*
                    .finish()
            }
        }
    };
    (@field $(#[$doc:meta])* $get:ident, $with:ident: bool [$high:literal : $low:literal]) => {
        $(#[$doc])*
        pub const fn $get(self) -> bool {
            self.0 >> $low & 1 != 0
        }

        #[doc = concat!("This value with another `", stringify!($get), "`.")]
        #[must_use]
        pub const fn $with(self, value: bool) -> Self {
            Self(self.0 & !(1 << $low) | (value as u32) << $low)
        }
    };
    (@field $(#[$doc:meta])* $get:ident, $with:ident: u32 [$high:literal : $low:literal]) => {
        $(#[$doc])*
        pub const fn $get(self) -> u32 {
            self.0 >> $low & (u32::MAX >> (31 - $high + $low))
        }

        #[doc = concat!("This value with another `", stringify!($get), "`; bits above it are dropped.")]
        #[must_use]
        pub const fn $with(self, value: u32) -> Self {
            let mask = u32::MAX >> (31 - $high + $low);
            debug_assert!(value <= mask, "value does not fit the field");
            Self(self.0 & !(mask << $low) | (value & mask) << $low)
        }
    };
}

mod generated;
pub use generated::*;

#[cfg(test)]
mod tests {
    use super::*;

    fn place<R: Register>() -> (u32, u32, u32) {
        (R::OFFSET, R::COUNT, R::STRIDE)
    }

    #[test]
    fn registers_lie_where_drivers_expect_them() {
        assert_eq!(place::<Magic>(), (0x000, 1, 0));
        assert_eq!(place::<Ctrl>(), (0x020, 1, 0));
        assert_eq!(place::<Scratch>(), (0x044, 1, 0));
        assert_eq!(place::<PerfBusyLo>(), (0x080, 1, 0));
        assert_eq!(place::<DebugSlot>(), (0x0c0, 1, 0));
        assert_eq!(place::<DebugSinceHi>(), (0x0f0, 1, 0));
        assert_eq!(place::<QueueTableCtrl>(), (0x1000, 64, 0x40));
        assert_eq!(place::<QueueTablePointers>(), (0x102c, 64, 0x40));
        assert_eq!(place::<TenantTableEpoch>(), (0x2010, 64, 0x40));
        assert_eq!(place::<CountersCompletionsHi>(), (0x407c, 64, 0x80));
        assert_eq!(place::<DoorbellsSqTail>(), (0x10_0000, 64, 0x1000));
        assert_eq!(place::<DoorbellsCqHead>(), (0x10_0004, 64, 0x1000));
        const { assert!(DoorbellsCqHead::OFFSET + 64 * 0x1000 <= crate::BAR0_BYTES) }
    }

    #[test]
    fn a_field_changes_its_own_bits_only() {
        let ctrl = QueueTableCtrl::from_bits(u32::MAX).with_cq_log2(0);
        assert_eq!(ctrl.bits(), 0xffff_f0ff);
        let ctrl = QueueTableCtrl::default().with_enable(true).with_tenant(63);
        assert_eq!(ctrl.bits(), 63 << 16 | 1);
        assert_eq!((ctrl.enable(), ctrl.tenant(), ctrl.worker()), (true, 63, 0));
        assert_eq!(Scratch::default().with_value(u32::MAX).value(), u32::MAX);
    }
}
