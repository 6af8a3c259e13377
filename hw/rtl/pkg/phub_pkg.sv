// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Types every stage of the core shares, in the order in which a gradient meets them.
// Widths here are the architectural maxima; the parameters of `phub_core` say how much of them is built.
// Descriptor, completion and status layouts are the twins of crate `phub-abi` (hw/abi); a co-simulation
// test compares them field by field.
package phub_pkg;

  localparam int unsigned TenantsMax = 64;
  localparam int unsigned WorkersMax = 64;
  localparam int unsigned QueuesMax = 64;
  localparam int unsigned SlotsMax = 65536;
  localparam int unsigned DescDepthMax = 64;
  localparam int unsigned SegBytesMax = 8192;
  localparam logic [31:0] LengthMax = 32'h4000_0000;  // 1 GiB a descriptor
  localparam int unsigned DescBytes = 64;
  localparam int unsigned CplBytes = 64;

  localparam logic [31:0] Magic = 32'h4255_4850;  // "PHUB" in memory order
  localparam logic [15:0] AbiMajor = 16'd1;
  localparam logic [15:0] AbiMinor = 16'd0;

  typedef logic [5:0] tenant_t;
  typedef logic [5:0] worker_t;
  typedef logic [5:0] queue_t;
  typedef logic [5:0] didx_t;  // place in a queue's on-card descriptor ring
  typedef logic [6:0] count_t;  // 0..64 workers
  typedef logic [15:0] slot_t;
  typedef logic [15:0] bytes_t;  // bytes of one segment, 0..SegBytesMax
  typedef logic [31:0] seq_t;  // segment sequence number of a tenant, wraps
  typedef logic [31:0] epoch_t;
  typedef logic [63:0] mask_t;  // one bit a worker
  typedef logic [63:0] addr_t;
  typedef logic [63:0] cycle_t;

  // ---------------------------------------------------------------- host memory layouts

  typedef enum logic [7:0] {
    OpPush     = 8'd1,
    OpPull     = 8'd2,
    OpPushPull = 8'd3
  } opcode_e;

  localparam int unsigned FlagMean = 0;  // divide the result by the number of contributors
  localparam int unsigned FlagCrc = 1;  // `crc` holds the CRC-32 of the payload at `src`
  localparam int unsigned FlagIrq = 2;  // raise the queue's interrupt with the completion
  localparam int unsigned FlagWaive = 3;  // PUSH only: this worker will not pull the result
  localparam logic [7:0] FlagsKnown = 8'h0f;

  typedef enum logic [7:0] {
    StOk          = 8'd0,
    StBadOpcode   = 8'd1,   // unknown opcode, unknown or misplaced flag, reserved field not zero
    StBadLength   = 8'd2,   // zero, not a multiple of 4, or over 1 GiB
    StBadAlign    = 8'd3,   // address not a multiple of 64
    StOutOfWindow = 8'd4,   // buffer leaves the queue's IOVA window
    StStaleEpoch  = 8'd5,   // descriptor of another epoch of its tenant
    StTenantOff   = 8'd6,   // tenant disabled, or worker number not below its world size
    StMismatch    = 8'd7,   // key or segment length differs from what the slot was opened with
    StStaleSeq    = 8'd8,   // the slot has moved past this sequence number
    StDuplicate   = 8'd9,   // this worker has contributed to this segment already
    StCrcError    = 8'd10,  // payload does not have the CRC-32 the descriptor states
    StReadError   = 8'd11,  // host memory read refused (unmapped address)
    StWriteError  = 8'd12,  // host memory write refused
    StAborted     = 8'd13   // the tenant's epoch was aborted
  } status_e;

  // 64-byte submission entry. The first member is the most significant: read it from the bottom up.
  typedef struct packed {
    logic [191:0] reserved;  // 0x28
    logic [31:0]  crc;       // 0x24
    logic [31:0]  length;    // 0x20 bytes
    addr_t        dst;       // 0x18
    addr_t        src;       // 0x10
    logic [31:0]  key;       // 0x0c what the bytes are; every worker states the same
    seq_t         seq;       // 0x08 sequence number of the first segment
    epoch_t       epoch;     // 0x04
    logic [15:0]  cid;       // 0x02
    logic [7:0]   flags;     // 0x01
    logic [7:0]   opcode;    // 0x00
  } desc_t;

  localparam int unsigned CplFlagNonFinite = 0;
  localparam int unsigned CplFlagMean = 1;
  localparam int unsigned CplFlagCrcChecked = 2;

  // 64-byte completion entry. The phase bit lies in the last dword, so that it is written last.
  typedef struct packed {
    logic [30:0]  reserved2;
    logic         phase;         // 0x3c bit 0
    logic [127:0] reserved1;     // 0x2c
    logic [15:0]  reserved0;     // 0x2a
    logic [15:0]  queue;         // 0x28
    logic [15:0]  sq_head;       // 0x26 submission entries before this one may be reused
    logic [15:0]  count;         // 0x24 contributors
    seq_t         seq;           // 0x20 last segment, or the one that was waited for or failed
    cycle_t       timestamp;     // 0x18 card cycles
    mask_t        contributors;  // 0x10 of that segment
    logic [31:0]  crc;           // 0x0c CRC-32 of the result; 0 for PUSH and for errors
    epoch_t       epoch;         // 0x08
    logic [31:0]  bytes;         // 0x04 of the descriptor's length that are done
    logic [7:0]   flags;         // 0x03
    logic [7:0]   status;        // 0x02
    logic [15:0]  cid;           // 0x00
  } cpl_t;

  // ---------------------------------------------------------------- tables

  typedef struct packed {
    logic        enable;
    logic [3:0]  sq_log2;   // ring sizes, 1..12
    logic [3:0]  cq_log2;
    tenant_t     tenant;
    worker_t     worker;
    logic [6:0]  vector;
    addr_t       sq_base;
    addr_t       cq_base;
    addr_t       win_base;  // IOVA window: descriptors may name bytes in [win_base, win_base + win_size)
    addr_t       win_size;
  } queue_cfg_t;

  typedef struct packed {
    logic        enable;
    count_t      workers;    // world size, 1..64
    slot_t       slot_base;
    logic [4:0]  slot_log2;  // the tenant has 2**slot_log2 slots
    epoch_t      epoch;
    logic [63:0] token;
  } tenant_cfg_t;

  function automatic slot_t slot_of(tenant_cfg_t cfg, seq_t seq);
    return cfg.slot_base + (16'(seq) & ((16'd1 << cfg.slot_log2) - 16'd1));
  endfunction

  // One 32-bit access of the host to a table outside the generated register block.
  // `valid` is held until `ack`; `ack` is one cycle, with `rdata` for a read.
  typedef struct packed {
    logic        valid;
    logic        write;
    logic [17:0] addr;   // byte offset inside the table
    logic [31:0] wdata;
  } tbl_req_t;

  typedef struct packed {
    logic        ack;
    logic [31:0] rdata;
  } tbl_rsp_t;

  // ---------------------------------------------------------------- the segment stream

  // Header of a segment. It travels beside the beats: one header, then ceil(bytes / beat) beats
  // if `has_data`. All bytes of the last beat beyond `bytes` are zero.
  typedef struct packed {
    status_e     status;     // not StOk: to be dropped and reported
    tenant_t     tenant;
    worker_t     worker;
    queue_t      queue;
    didx_t       didx;
    epoch_t      epoch;
    seq_t        seq;
    logic [31:0] key;
    bytes_t      bytes;      // of the result; also of the payload if has_data
    logic        has_data;   // a contribution; clear for the abstention that a PULL makes
    logic        waive;      // contributor gives up the result at once
    logic        first;      // first segment of its descriptor
    logic        last;       // last segment of its descriptor
    logic        crc_en;     // the descriptor states a CRC: keep a running one
    logic        crc_check;  // with `last`: `crc` must match the descriptor's whole payload
    logic [31:0] crc;
  } seg_hdr_t;

  // What dma_read is asked for. DESC: 64 bytes of a submission ring. SEG: payload of `hdr` (nothing to
  // read if !hdr.has_data; it still keeps its place in the order).
  typedef struct packed {
    logic     is_desc;
    queue_t   queue;
    addr_t    addr;
    bytes_t   bytes;
    seg_hdr_t hdr;
  } rd_req_t;

  // slot_ctrl's verdict on one header, in stream order, for the aggregation engine.
  typedef struct packed {
    seg_hdr_t hdr;    // hdr.status is final here
    slot_t    slot;
    logic     first;  // first contribution: write, do not add
    logic     add;    // beats go into the slot; clear: swallow them (if hdr.has_data)
  } agg_cmd_t;

  // One segment is through (committed, abstained or dropped). At most one a cycle, no back-pressure.
  typedef struct packed {
    queue_t  queue;
    didx_t   didx;
    logic    last;
    status_e status;
    seq_t    seq;
  } retire_t;

  // Answer to the egress scheduler's question about (slot, seq).
  typedef struct packed {
    logic   ready;         // complete: the result may be read
    logic   stale;         // the slot has moved past seq: it will never be ready
    mask_t  contributors;
    count_t count;
    logic   empty;         // complete without any contribution: the result is zero
  } slot_answer_t;

  // All of one slot, for the debug window.
  typedef struct packed {
    logic    open;         // holds a round in progress or a result not yet pulled by all
    logic    complete;
    logic    fresh;        // never used in this epoch
    tenant_t tenant;
    count_t  workers;
    count_t  pending;      // contributions still in the adders
    bytes_t  bytes;
    seq_t    seq;
    logic [31:0] key;
    mask_t   joined;       // contributed or abstained
    mask_t   contributed;
    mask_t   left;         // pulled or waived
    cycle_t  since;        // when the slot was opened
  } slot_dump_t;

  // ---------------------------------------------------------------- egress

  // Everything a completion needs that is known before its last result segment is written.
  typedef struct packed {
    queue_t      queue;
    tenant_t     tenant;
    logic [15:0] cid;
    logic [7:0]  opcode;
    logic [7:0]  flags;     // of the descriptor
    status_e     status;
    epoch_t      epoch;
    seq_t        seq;
    logic [31:0] bytes;
    mask_t       contributors;
    count_t      count;
    logic [15:0] sq_head;
  } done_t;

  // One segment of result for one worker (bytes > 0), or only a completion (bytes = 0, last = 1).
  typedef struct packed {
    done_t   done;   // used if last
    worker_t worker;
    slot_t   slot;
    bytes_t  bytes;
    addr_t   addr;
    logic    mean;
    logic    empty;  // write zeros
    logic    first;  // first segment of its descriptor: restart CRC and flags
    logic    last;   // post a completion after it
  } egress_job_t;

  // A finished descriptor on its way to the completion queue.
  typedef struct packed {
    done_t       done;
    logic [31:0] crc;
    logic        non_finite;
  } finish_t;

  // Header of one write of results to host memory; ceil(bytes / beat) beats follow (none if bytes = 0). After the
  // last write of a descriptor follows its finish_t, beside the beats.
  typedef struct packed {
    addr_t  addr;
    bytes_t bytes;
    queue_t queue;
    logic   last;
  } wr_req_t;

  // ---------------------------------------------------------------- events

  localparam int unsigned CountersPerTenant = 16;
  typedef enum int unsigned {
    CntSegmentsIn    = 0,
    CntBytesIn       = 1,   // advances by `bytes`
    CntSegmentsOut   = 2,
    CntBytesOut      = 3,   // advances by `bytes`
    CntSlotsComplete = 4,
    CntDuplicates    = 5,
    CntMismatches    = 6,
    CntStale         = 7,   // epoch or sequence number
    CntCrcErrors     = 8,
    CntDmaErrors     = 9,
    CntRefused       = 10,  // descriptors refused before any data moved
    CntNonFinite     = 11,  // result segments with a NaN or an infinity
    CntAbstains      = 12,
    CntSlotWaits     = 13,  // segments that had to wait for their slot
    CntAborts        = 14,
    CntCompletions   = 15
  } counter_e;

  typedef struct packed {
    tenant_t     tenant;
    logic [15:0] events;  // bit i: counter i advances
    bytes_t      bytes;
  } count_ev_t;

  typedef enum logic [7:0] {
    ErrNone        = 8'd0,
    ErrDoorbell    = 8'd1,  // doorbell value outside the ring, or head past tail
    ErrSqRead      = 8'd2,  // descriptor fetch refused
    ErrCqWrite     = 8'd3,  // completion write refused
    ErrQueueConfig = 8'd4   // enabled with a size, tenant or worker out of range
  } err_e;

  typedef struct packed {
    err_e    code;
    queue_t  queue;
  } err_ev_t;

  // The order of contributions, for co-simulation with the golden model: one record a segment, valid
  // in the cycle in which its first beat enters the adders (or in which a PULL's abstention is taken).
  typedef struct packed {
    tenant_t tenant;
    worker_t worker;
    seq_t    seq;
    slot_t   slot;
    logic    first;
    logic    abstain;
  } trace_t;

endpackage : phub_pkg
