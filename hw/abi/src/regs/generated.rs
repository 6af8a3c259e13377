// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
// Made from hw/regs/hub.rdl by `make regs`: do not edit.
use super::Register;

register! {
    /// Magic. 0x42554850, the bytes PHUB.
    Magic "magic" @ 0x0, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// ABI version. The driver refuses another major version.
    AbiVersion "abi_version" @ 0x4, 1 x 0x0 {
        /// Compatible additions (read only).
        minor, with_minor: u32 [15:0],
        /// Incompatible changes (read only).
        major, with_major: u32 [31:16],
    }
}

register! {
    /// Build hash. First 32 bits of the hash of the RTL sources; 0 if unknown.
    BuildHash "build_hash" @ 0x8, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Capabilities. What this build can do.
    Caps "caps" @ 0xc, 1 x 0x0 {
        /// FP32 sum (read only).
        fp32_sum, with_fp32_sum: bool [0:0],
        /// FP32 mean (read only).
        fp32_mean, with_fp32_mean: bool [1:1],
        /// Payload CRC-32 checked on the way in (read only).
        crc, with_crc: bool [2:2],
    }
}

register! {
    /// Datapath parameters. How wide the engine was built.
    ParamDatapath "param_datapath" @ 0x10, 1 x 0x0 {
        /// FP32 adders side by side; a beat is 4 bytes a lane (read only).
        lanes, with_lanes: u32 [7:0],
        /// log2 of the segment size in bytes (read only).
        seg_log2, with_seg_log2: u32 [15:8],
        /// Interrupt vectors; vector 0 reports errors (read only).
        vectors, with_vectors: u32 [23:16],
        /// Ethernet ports (read only).
        ports, with_ports: u32 [31:24],
    }
}

register! {
    /// Slots. Aggregation slots of one segment each, all tenants together.
    ParamSlots "param_slots" @ 0x14, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Tenants and workers. Sizes of the tenant table.
    ParamTenants "param_tenants" @ 0x18, 1 x 0x0 {
        /// Tenants (read only).
        tenants, with_tenants: u32 [15:0],
        /// Workers a tenant can have (read only).
        workers, with_workers: u32 [31:16],
    }
}

register! {
    /// Queues. Queue pairs and how far the card fetches ahead.
    ParamQueues "param_queues" @ 0x1c, 1 x 0x0 {
        /// Queue pairs (read only).
        queues, with_queues: u32 [15:0],
        /// Descriptors of one queue the card works on at a time (read only).
        desc_depth, with_desc_depth: u32 [31:16],
    }
}

register! {
    /// Control. Clearing `enable` drains the card, forgets every queue and slot and drops `ready`.
    Ctrl "ctrl" @ 0x20, 1 x 0x0 {
        /// `enable` (read and write).
        enable, with_enable: bool [0:0],
    }
}

register! {
    /// Status. Handshake partner of `ctrl.enable`.
    Status "status" @ 0x24, 1 x 0x0 {
        /// Queues may be used (read only).
        ready, with_ready: bool [0:0],
        /// A fatal error stands; see `fatal` (read only).
        fatal, with_fatal: bool [1:1],
        /// Work is in flight (read only).
        busy, with_busy: bool [2:2],
    }
}

register! {
    /// Fatal error. First fatal error code since enable, 0 if none.
    Fatal "fatal" @ 0x28, 1 x 0x0 {
        /// `code` (read only).
        code, with_code: u32 [7:0],
    }
}

register! {
    /// Error FIFO. Reading takes the oldest entry; `valid` is clear when empty.
    ErrorFifo "error_fifo" @ 0x2c, 1 x 0x0 {
        /// Error code (ErrDoorbell ..) (read only).
        code, with_code: u32 [7:0],
        /// Queue it is about (read only).
        queue, with_queue: u32 [15:8],
        /// Entries were lost before this one (read only).
        overflow, with_overflow: bool [30:30],
        /// An entry was read (read only).
        valid, with_valid: bool [31:31],
    }
}

register! {
    /// Command. Writing starts a command; ignored while one is busy.
    Cmd "cmd" @ 0x30, 1 x 0x0 {
        /// 1: abort the tenant's epoch. 2: stop the queue and forget its state (before its memory is freed) (read and write).
        op, with_op: u32 [7:0],
        /// Tenant or queue (read and write).
        index, with_index: u32 [15:8],
    }
}

register! {
    /// Command status. Poll until `busy` is clear.
    CmdStatus "cmd_status" @ 0x34, 1 x 0x0 {
        /// `busy` (read only).
        busy, with_busy: bool [0:0],
        /// Last command was unknown or its index out of range (read only).
        refused, with_refused: bool [1:1],
    }
}

register! {
    /// Cycle counter, low. Reading latches the high half.
    CycleLo "cycle_lo" @ 0x38, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Cycle counter, high. High half as of the last read of the low half.
    CycleHi "cycle_hi" @ 0x3c, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Interrupt coalescing. A vector fires after `count` completions or `timeout` cycles after the first, whichever is sooner.
    IrqCoalesce "irq_coalesce" @ 0x40, 1 x 0x0 {
        /// 0 and 1: at once (read and write).
        count, with_count: u32 [7:0],
        /// Cycles (read and write).
        timeout, with_timeout: u32 [31:8],
    }
}

register! {
    /// Scratch. Holds what is written; no effect.
    Scratch "scratch" @ 0x44, 1 x 0x0 {
        /// `value` (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Cycles with work in flight.
    PerfBusyLo "perf.busy_lo" @ 0x80, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `perf.busy_hi`.
    PerfBusyHi "perf.busy_hi" @ 0x84, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Beats into the adders.
    PerfBeatsInLo "perf.beats_in_lo" @ 0x88, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `perf.beats_in_hi`.
    PerfBeatsInHi "perf.beats_in_hi" @ 0x8c, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Result beats written.
    PerfBeatsOutLo "perf.beats_out_lo" @ 0x90, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `perf.beats_out_hi`.
    PerfBeatsOutHi "perf.beats_out_hi" @ 0x94, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Adder input waits for the same slot in the pipeline.
    PerfStallHazardLo "perf.stall_hazard_lo" @ 0x98, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `perf.stall_hazard_hi`.
    PerfStallHazardHi "perf.stall_hazard_hi" @ 0x9c, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Work is queued and every queue waits for a slot.
    PerfStallSlotLo "perf.stall_slot_lo" @ 0xa0, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `perf.stall_slot_hi`.
    PerfStallSlotHi "perf.stall_slot_hi" @ 0xa4, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Host reads are outstanding, no data has come.
    PerfStallReadLo "perf.stall_read_lo" @ 0xa8, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `perf.stall_read_hi`.
    PerfStallReadHi "perf.stall_read_hi" @ 0xac, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Result beats wait for the host write channel.
    PerfStallWriteLo "perf.stall_write_lo" @ 0xb0, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `perf.stall_write_hi`.
    PerfStallWriteHi "perf.stall_write_hi" @ 0xb4, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Writing takes a snapshot of this slot.
    DebugSlot "debug.slot" @ 0xc0, 1 x 0x0 {
        /// `index` (read and write).
        index, with_index: u32 [15:0],
    }
}

register! {
    /// `debug.state`.
    DebugState "debug.state" @ 0xc4, 1 x 0x0 {
        /// The snapshot is of `slot.index` (read only).
        valid, with_valid: bool [0:0],
        /// A round is open (read only).
        open, with_open: bool [1:1],
        /// All have joined; the result is not yet pulled by all (read only).
        complete, with_complete: bool [2:2],
        /// Not used in this epoch (read only).
        fresh, with_fresh: bool [3:3],
        /// `tenant` (read only).
        tenant, with_tenant: u32 [13:8],
        /// World size (read only).
        workers, with_workers: u32 [22:16],
        /// Contributions in the adders (read only).
        pending, with_pending: u32 [30:24],
    }
}

register! {
    /// `debug.seq`.
    DebugSeq "debug.seq" @ 0xc8, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.key`.
    DebugKey "debug.key" @ 0xcc, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.bytes`.
    DebugBytes "debug.bytes" @ 0xd0, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.joined_lo`.
    DebugJoinedLo "debug.joined_lo" @ 0xd4, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.joined_hi`.
    DebugJoinedHi "debug.joined_hi" @ 0xd8, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.contributed_lo`.
    DebugContributedLo "debug.contributed_lo" @ 0xdc, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.contributed_hi`.
    DebugContributedHi "debug.contributed_hi" @ 0xe0, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.left_lo`.
    DebugLeftLo "debug.left_lo" @ 0xe4, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.left_hi`.
    DebugLeftHi "debug.left_hi" @ 0xe8, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Cycle at which the slot was opened.
    DebugSinceLo "debug.since_lo" @ 0xec, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `debug.since_hi`.
    DebugSinceHi "debug.since_hi" @ 0xf0, 1 x 0x0 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Write last. A change of `enable` takes effect at once; disable with cmd 2 first.
    QueueTableCtrl "queue_table.ctrl" @ 0x1000, 64 x 0x40 {
        /// `enable` (read and write).
        enable, with_enable: bool [0:0],
        /// log2 of the submission entries, 1..12 (read and write).
        sq_log2, with_sq_log2: u32 [7:4],
        /// log2 of the completion entries, 1..12 (read and write).
        cq_log2, with_cq_log2: u32 [11:8],
        /// `tenant` (read and write).
        tenant, with_tenant: u32 [21:16],
        /// `worker` (read and write).
        worker, with_worker: u32 [29:24],
    }
}

register! {
    /// `queue_table.status`.
    QueueTableStatus "queue_table.status" @ 0x1004, 64 x 0x40 {
        /// Stopped by an error (read only).
        error, with_error: bool [0:0],
        /// Code of that error (read only).
        code, with_code: u32 [15:8],
    }
}

register! {
    /// `queue_table.sq_base_lo`.
    QueueTableSqBaseLo "queue_table.sq_base_lo" @ 0x1008, 64 x 0x40 {
        /// 4 KiB aligned (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `queue_table.sq_base_hi`.
    QueueTableSqBaseHi "queue_table.sq_base_hi" @ 0x100c, 64 x 0x40 {
        /// `value` (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `queue_table.cq_base_lo`.
    QueueTableCqBaseLo "queue_table.cq_base_lo" @ 0x1010, 64 x 0x40 {
        /// 4 KiB aligned (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `queue_table.cq_base_hi`.
    QueueTableCqBaseHi "queue_table.cq_base_hi" @ 0x1014, 64 x 0x40 {
        /// `value` (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `queue_table.win_base_lo`.
    QueueTableWinBaseLo "queue_table.win_base_lo" @ 0x1018, 64 x 0x40 {
        /// First byte descriptors may name (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `queue_table.win_base_hi`.
    QueueTableWinBaseHi "queue_table.win_base_hi" @ 0x101c, 64 x 0x40 {
        /// `value` (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `queue_table.win_size_lo`.
    QueueTableWinSizeLo "queue_table.win_size_lo" @ 0x1020, 64 x 0x40 {
        /// Bytes from there (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `queue_table.win_size_hi`.
    QueueTableWinSizeHi "queue_table.win_size_hi" @ 0x1024, 64 x 0x40 {
        /// `value` (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `queue_table.vector`.
    QueueTableVector "queue_table.vector" @ 0x1028, 64 x 0x40 {
        /// Interrupt vector, 0..vectors-1 (read and write).
        value, with_value: u32 [6:0],
    }
}

register! {
    /// `queue_table.pointers`.
    QueueTablePointers "queue_table.pointers" @ 0x102c, 64 x 0x40 {
        /// Next submission entry to fetch (read only).
        sq_head, with_sq_head: u32 [15:0],
        /// Next completion entry to write (read only).
        cq_tail, with_cq_tail: u32 [31:16],
    }
}

register! {
    /// Write last.
    TenantTableCtrl "tenant_table.ctrl" @ 0x2000, 64 x 0x40 {
        /// `enable` (read and write).
        enable, with_enable: bool [0:0],
        /// World size, 1..64 (read and write).
        workers, with_workers: u32 [14:8],
    }
}

register! {
    /// `tenant_table.slots`.
    TenantTableSlots "tenant_table.slots" @ 0x2004, 64 x 0x40 {
        /// First slot (read and write).
        base, with_base: u32 [15:0],
        /// log2 of the number of slots (read and write).
        log2, with_log2: u32 [20:16],
    }
}

register! {
    /// `tenant_table.token_lo`.
    TenantTableTokenLo "tenant_table.token_lo" @ 0x2008, 64 x 0x40 {
        /// `value` (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `tenant_table.token_hi`.
    TenantTableTokenHi "tenant_table.token_hi" @ 0x200c, 64 x 0x40 {
        /// `value` (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Set when the tenant is created; the card adds 1 at each abort.
    TenantTableEpoch "tenant_table.epoch" @ 0x2010, 64 x 0x40 {
        /// `value` (read and write).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.segments_in_lo`.
    CountersSegmentsInLo "counters.segments_in_lo" @ 0x4000, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.segments_in_hi`.
    CountersSegmentsInHi "counters.segments_in_hi" @ 0x4004, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.bytes_in_lo`.
    CountersBytesInLo "counters.bytes_in_lo" @ 0x4008, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.bytes_in_hi`.
    CountersBytesInHi "counters.bytes_in_hi" @ 0x400c, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.segments_out_lo`.
    CountersSegmentsOutLo "counters.segments_out_lo" @ 0x4010, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.segments_out_hi`.
    CountersSegmentsOutHi "counters.segments_out_hi" @ 0x4014, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.bytes_out_lo`.
    CountersBytesOutLo "counters.bytes_out_lo" @ 0x4018, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.bytes_out_hi`.
    CountersBytesOutHi "counters.bytes_out_hi" @ 0x401c, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.slots_complete_lo`.
    CountersSlotsCompleteLo "counters.slots_complete_lo" @ 0x4020, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.slots_complete_hi`.
    CountersSlotsCompleteHi "counters.slots_complete_hi" @ 0x4024, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.duplicates_lo`.
    CountersDuplicatesLo "counters.duplicates_lo" @ 0x4028, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.duplicates_hi`.
    CountersDuplicatesHi "counters.duplicates_hi" @ 0x402c, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.mismatches_lo`.
    CountersMismatchesLo "counters.mismatches_lo" @ 0x4030, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.mismatches_hi`.
    CountersMismatchesHi "counters.mismatches_hi" @ 0x4034, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.stale_lo`.
    CountersStaleLo "counters.stale_lo" @ 0x4038, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.stale_hi`.
    CountersStaleHi "counters.stale_hi" @ 0x403c, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.crc_errors_lo`.
    CountersCrcErrorsLo "counters.crc_errors_lo" @ 0x4040, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.crc_errors_hi`.
    CountersCrcErrorsHi "counters.crc_errors_hi" @ 0x4044, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.dma_errors_lo`.
    CountersDmaErrorsLo "counters.dma_errors_lo" @ 0x4048, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.dma_errors_hi`.
    CountersDmaErrorsHi "counters.dma_errors_hi" @ 0x404c, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.refused_lo`.
    CountersRefusedLo "counters.refused_lo" @ 0x4050, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.refused_hi`.
    CountersRefusedHi "counters.refused_hi" @ 0x4054, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.non_finite_lo`.
    CountersNonFiniteLo "counters.non_finite_lo" @ 0x4058, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.non_finite_hi`.
    CountersNonFiniteHi "counters.non_finite_hi" @ 0x405c, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.abstains_lo`.
    CountersAbstainsLo "counters.abstains_lo" @ 0x4060, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.abstains_hi`.
    CountersAbstainsHi "counters.abstains_hi" @ 0x4064, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.slot_waits_lo`.
    CountersSlotWaitsLo "counters.slot_waits_lo" @ 0x4068, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.slot_waits_hi`.
    CountersSlotWaitsHi "counters.slot_waits_hi" @ 0x406c, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.aborts_lo`.
    CountersAbortsLo "counters.aborts_lo" @ 0x4070, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.aborts_hi`.
    CountersAbortsHi "counters.aborts_hi" @ 0x4074, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.completions_lo`.
    CountersCompletionsLo "counters.completions_lo" @ 0x4078, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// `counters.completions_hi`.
    CountersCompletionsHi "counters.completions_hi" @ 0x407c, 64 x 0x80 {
        /// `value` (read only).
        value, with_value: u32 [31:0],
    }
}

register! {
    /// Index of the next free submission entry.
    DoorbellsSqTail "doorbells.sq_tail" @ 0x100000, 64 x 0x1000 {
        /// `value` (write only).
        value, with_value: u32 [15:0],
    }
}

register! {
    /// Index of the next completion entry the host will read.
    DoorbellsCqHead "doorbells.cq_head" @ 0x100004, 64 x 0x1000 {
        /// `value` (write only).
        value, with_value: u32 [15:0],
    }
}
