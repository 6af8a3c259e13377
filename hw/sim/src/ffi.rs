// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The Verilated model behind its C ABI, safe to use. The only unsafe code of this crate.
//!
//! Declarations repeat `verilated/phub_verilated.h`.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_int},
    path::Path,
    ptr::NonNull,
};

/// Bytes of the widest beat.
pub(crate) const BEAT_BYTES_MAX: usize = 64;

/// Bytes of one beat; a narrower datapath uses the first of them.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat(pub(crate) [u8; BEAT_BYTES_MAX]);

impl Default for Beat {
    fn default() -> Self {
        Self([0; BEAT_BYTES_MAX])
    }
}

/// What the host drives in a cycle.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct In {
    pub(crate) rst: u8,
    pub(crate) irq_ready: u8,
    pub(crate) axil_awvalid: u8,
    pub(crate) axil_wvalid: u8,
    pub(crate) axil_bready: u8,
    pub(crate) axil_arvalid: u8,
    pub(crate) axil_rready: u8,
    pub(crate) axi_awready: u8,
    pub(crate) axi_wready: u8,
    pub(crate) axi_arready: u8,
    pub(crate) axi_bvalid: u8,
    pub(crate) axi_bid: u8,
    pub(crate) axi_bresp: u8,
    pub(crate) axi_rvalid: u8,
    pub(crate) axi_rid: u8,
    pub(crate) axi_rresp: u8,
    pub(crate) axi_rlast: u8,
    pub(crate) axil_awaddr: u32,
    pub(crate) axil_wdata: u32,
    pub(crate) axil_araddr: u32,
    pub(crate) axi_rdata: Beat,
}

/// What the card drives, sampled just before the rising edge.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Out {
    pub(crate) busy: u8,
    pub(crate) irq_valid: u8,
    pub(crate) irq_vector: u8,
    pub(crate) axil_awready: u8,
    pub(crate) axil_wready: u8,
    pub(crate) axil_bvalid: u8,
    pub(crate) axil_bresp: u8,
    pub(crate) axil_arready: u8,
    pub(crate) axil_rvalid: u8,
    pub(crate) axil_rresp: u8,
    pub(crate) axi_awvalid: u8,
    pub(crate) axi_awid: u8,
    pub(crate) axi_awlen: u8,
    pub(crate) axi_awsize: u8,
    pub(crate) axi_awburst: u8,
    pub(crate) axi_wvalid: u8,
    pub(crate) axi_wlast: u8,
    pub(crate) axi_bready: u8,
    pub(crate) axi_arvalid: u8,
    pub(crate) axi_arid: u8,
    pub(crate) axi_arlen: u8,
    pub(crate) axi_arsize: u8,
    pub(crate) axi_arburst: u8,
    pub(crate) axi_rready: u8,
    pub(crate) trace_valid: u8,
    pub(crate) trace_tenant: u8,
    pub(crate) trace_worker: u8,
    pub(crate) trace_first: u8,
    pub(crate) trace_abstain: u8,
    pub(crate) trace_slot: u16,
    pub(crate) trace_seq: u32,
    pub(crate) axil_rdata: u32,
    pub(crate) axi_awaddr: u64,
    pub(crate) axi_araddr: u64,
    pub(crate) axi_wstrb: u64,
    pub(crate) axi_wdata: Beat,
}

#[repr(C)]
struct RawCard {
    _opaque: [u8; 0],
}

#[repr(C)]
struct Table {
    parameters: Parameters,
    can_trace: u32,
    create: unsafe extern "C" fn(seed: u64) -> *mut RawCard,
    destroy: unsafe extern "C" fn(*mut RawCard),
    tick: unsafe extern "C" fn(*mut RawCard, *const In, *mut Out) -> c_int,
    failure: unsafe extern "C" fn(*const RawCard) -> *const c_char,
    trace_open: unsafe extern "C" fn(*mut RawCard, *const c_char) -> c_int,
    trace_close: unsafe extern "C" fn(*mut RawCard),
}

unsafe extern "C" {
    safe static phub_model_standard: Table;
    #[cfg(feature = "tiny")]
    safe static phub_model_tiny: Table;
    #[cfg(feature = "trace")]
    safe static phub_model_traced: Table;
}

/// Parameters of `phub_core` with which a card was built.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// FP32 lanes; a beat has 4 bytes a lane.
    pub lanes: u32,
    /// Bytes of a segment.
    pub seg_bytes: u32,
    /// Aggregation slots.
    pub slots: u32,
    /// Entries of the tenant table.
    pub tenants: u32,
    /// Most workers of a tenant.
    pub workers: u32,
    /// Queue pairs; there is one interrupt vector more.
    pub queues: u32,
    /// Descriptors of a queue on the card at a time.
    pub desc_depth: u32,
    /// Host reads in flight.
    pub read_tags: u32,
}

/// A set of parameters for which this crate has a Verilated card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Build {
    /// The default parameters: 16 lanes, 1024 slots of 1 KiB, 64 tenants, workers and queues.
    #[default]
    Standard,
    /// 2 lanes, 4 slots of 64 bytes, 2 tenants, 4 workers, 4 queues, 2 descriptors and reads in flight.
    /// Everything is full all the time. Needs feature `tiny`.
    Tiny,
    /// As `Standard`, slower, and able to write waves. Needs feature `trace`.
    Traced,
}

impl Build {
    fn table(self) -> Option<&'static Table> {
        match self {
            Self::Standard => Some(&phub_model_standard),
            #[cfg(feature = "tiny")]
            Self::Tiny => Some(&phub_model_tiny),
            #[cfg(feature = "trace")]
            Self::Traced => Some(&phub_model_traced),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    /// The parameters, or none if this binary lacks the build.
    pub fn parameters(self) -> Option<Parameters> {
        self.table().map(|t| t.parameters)
    }
}

/// A Verilated `phub_core`.
pub(crate) struct Model {
    table: &'static Table,
    card: NonNull<RawCard>,
}

// SAFETY: the C++ object keeps no reference to the thread that made it (its context is its own, and the thread-local
// text is cleared and copied within one `tick`), and `&mut self` keeps two threads from using it at once.
unsafe impl Send for Model {}

impl Model {
    /// A model in an unspecified state: hold reset for some cycles. None if the build is missing or memory is short.
    pub(crate) fn new(build: Build, seed: u64) -> Option<Self> {
        let table = build.table()?;
        // SAFETY: `create` has no precondition.
        let card = NonNull::new(unsafe { (table.create)(seed) })?;
        Some(Self { table, card })
    }

    pub(crate) fn parameters(&self) -> Parameters {
        self.table.parameters
    }

    /// Runs one clock cycle. The error is the model's failure; it is of no use afterwards.
    #[inline]
    pub(crate) fn tick(&mut self, input: &In, output: &mut Out) -> Result<(), String> {
        // SAFETY: `card` comes from this table's `create` and lives until `drop`; both structs have the layout of the header.
        let failed = unsafe { (self.table.tick)(self.card.as_ptr(), input, output) };
        if failed == 0 {
            Ok(())
        } else {
            Err(self.failure())
        }
    }

    fn failure(&self) -> String {
        // SAFETY: as in `tick`; the text is NUL-terminated and stays until the next call, which the borrow prevents.
        unsafe { CStr::from_ptr((self.table.failure)(self.card.as_ptr())) }
            .to_string_lossy()
            .into_owned()
    }

    /// Writes waves from now on. False if this build or the file does not allow it.
    pub(crate) fn trace_open(&mut self, path: &Path) -> bool {
        let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else {
            return false;
        };
        // SAFETY: as in `tick`; the path is NUL-terminated.
        self.table.can_trace != 0
            && unsafe { (self.table.trace_open)(self.card.as_ptr(), path.as_ptr()) } == 0
    }

    /// Ends and flushes the waves.
    pub(crate) fn trace_close(&mut self) {
        // SAFETY: as in `tick`.
        unsafe { (self.table.trace_close)(self.card.as_ptr()) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: `card` comes from this table's `create` and is not used again.
        unsafe { (self.table.destroy)(self.card.as_ptr()) }
    }
}
