// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Shared memory, memory-mapped registers and eventfds: the unsafe floor of the driver.
//!
//! Memory a card may touch is never handed out as a Rust slice: the card (or another process) may change it at
//! any time, and a reference to such memory is undefined behaviour. Its contents go in and out by copies and
//! by atomic accesses.

mod bar;
mod eventfd;
mod memory;
mod vfio;

pub use bar::MappedBar;
pub use eventfd::EventFd;
pub use memory::{HugePages, Memory, MemoryError};
pub use vfio::{DmaMapping, MapError, VfioFunction};
pub use vfio_ioctls::VfioError;
