// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Outcome of a descriptor, as the completion states it.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Outcome of a descriptor (`status_e` in the RTL).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Status { $($(#[$doc])* $name = $code,)* }

        impl Status {
            /// Every status, in order of its code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status with this code, if there is one.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

statuses! {
    /// Done.
    Ok = 0,
    /// Unknown opcode, unknown or misplaced flag, or a reserved field that is not zero.
    BadOpcode = 1,
    /// Length of zero, not a multiple of 4, or over 1 GiB.
    BadLength = 2,
    /// Address that is not a multiple of 64.
    BadAlign = 3,
    /// Buffer outside the queue's IOVA window.
    OutOfWindow = 4,
    /// Descriptor of another epoch of its tenant.
    StaleEpoch = 5,
    /// Tenant disabled, or worker number not below its world size.
    TenantOff = 6,
    /// Key or segment length differs from what the slot was opened with.
    Mismatch = 7,
    /// The slot has moved past this sequence number.
    StaleSeq = 8,
    /// This worker has contributed to this segment already.
    Duplicate = 9,
    /// The payload does not have the CRC-32 the descriptor states.
    CrcError = 10,
    /// A read of host memory was refused.
    ReadError = 11,
    /// A write to host memory was refused.
    WriteError = 12,
    /// The tenant's epoch was aborted.
    Aborted = 13,
}

impl Status {
    /// The code as the card writes it.
    pub const fn code(self) -> u8 {
        self as u8
    }
}
