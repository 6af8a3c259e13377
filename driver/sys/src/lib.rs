//! Shared memory, memory-mapped registers and eventfds: the unsafe floor of the driver.
