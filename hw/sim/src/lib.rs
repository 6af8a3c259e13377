//! The Verilated card: clock, AXI host model and PCI function.
