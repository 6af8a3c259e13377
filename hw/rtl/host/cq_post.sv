// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Writes completion entries and asks for their interrupts once they are in host memory.
//
// 3 cycles a completion; up to MaxWrites are being written. There is always room in the ring: sq_fetch starts no
// descriptor without it. A completion that cannot be written stops its queue (ErrCqWrite).
`include "phub_asserts.svh"
module cq_post
  import phub_pkg::*;
#(
    parameter int unsigned Queues = 64,
    parameter int unsigned MaxWrites = 8
) (
    input  logic        clk_i,
    input  logic        rst_i,
    input  cycle_t      cycle_i,
    // finished descriptors
    input  logic        fin_valid_i,
    output logic        fin_ready_o,
    input  finish_t     fin_i,
    output queue_t      queue_o,
    input  queue_cfg_t  cfg_i,             // one cycle after queue_o
    // entries to write
    output logic        cpl_valid_o,
    input  logic        cpl_ready_i,
    output addr_t       cpl_addr_o,
    output cpl_t        cpl_data_o,
    input  logic        cpl_done_valid_i,  // in order
    input  logic        cpl_done_error_i,
    // interrupts
    output logic        irq_valid_o,
    input  logic        irq_ready_i,
    output logic [6:0]  irq_vector_o,
    // a queue begins anew
    input  logic        start_valid_i,
    input  queue_t      start_queue_i,
    // next entry to write: for the doorbell check and for the table
    input  queue_t      db_queue_i,
    output logic [15:0] db_cq_tail_o,
    input  queue_t      ptr_queue_i,
    output logic [15:0] ptr_cq_tail_o,
    output logic        err_valid_o,
    input  logic        err_ready_i,
    output err_ev_t     err_o,
    output logic        count_valid_o,
    input  logic        count_ready_i,
    output count_ev_t   count_o,
    output logic        idle_o
);
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;
  localparam int unsigned CountW = $clog2(MaxWrites + 1);

  typedef struct packed {
    logic        phase;  // of the entries of this round, inverted: a fresh ring writes 1
    logic [11:0] tail;
  } ring_t;

  typedef struct packed {
    queue_t     queue;
    logic [6:0] vector;
    logic       wants_irq;
  } written_t;

  typedef enum logic [1:0] {
    WaitFinish,
    ReadTables,
    SendEntry,
    SendCount
  } state_e;

  ring_t rings[Queues];
  state_e state_q;
  finish_t fin_q;
  cycle_t stamp_q;
  logic [QueueW-1:0] q;
  ring_t ring;
  done_t done;
  logic ok, certified, refused, has_result;
  logic sent;

  assign queue_o = fin_q.done.queue;
  assign q = fin_q.done.queue[QueueW-1:0];
  assign ring = rings[q];
  assign done = fin_q.done;
  assign ok = done.status == StOk;
  // An aborted descriptor tells who had contributed to what it waited for.
  assign certified = ok || done.status == StAborted;
  assign has_result = done.opcode == OpPull || done.opcode == OpPushPull;
  assign refused = done.status inside {StBadOpcode, StBadLength, StBadAlign, StOutOfWindow, StStaleEpoch, StTenantOff};

  logic written_ready, written_valid, written_pop;
  written_t written_in, written;
  logic [CountW-1:0] written_count;

  assign fin_ready_o = state_q == WaitFinish;
  assign cpl_valid_o = state_q == SendEntry && written_ready;
  assign sent = cpl_valid_o && cpl_ready_i;
  assign cpl_addr_o = cfg_i.cq_base + {46'd0, ring.tail, 6'd0};

  always_comb begin
    cpl_data_o = '0;
    cpl_data_o.phase = !ring.phase;
    cpl_data_o.queue = 16'(done.queue);
    cpl_data_o.sq_head = done.sq_head;
    cpl_data_o.count = certified ? 16'(done.count) : '0;
    cpl_data_o.seq = done.seq;
    cpl_data_o.timestamp = stamp_q;
    cpl_data_o.contributors = certified ? done.contributors : '0;
    cpl_data_o.crc = ok && has_result ? fin_q.crc : '0;
    cpl_data_o.epoch = done.epoch;
    cpl_data_o.bytes = done.bytes;
    cpl_data_o.flags[CplFlagNonFinite] = ok && has_result && fin_q.non_finite;
    cpl_data_o.flags[CplFlagMean] = ok && has_result && done.flags[FlagMean];
    cpl_data_o.flags[CplFlagCrcChecked] = ok && done.flags[FlagCrc];
    cpl_data_o.status = done.status;
    cpl_data_o.cid = done.cid;
  end

  assign count_valid_o = state_q == SendCount;
  always_comb begin
    count_o = '{tenant: done.tenant, events: 16'd1 << CntCompletions, bytes: '0};
    count_o.events[CntRefused] = refused;
    count_o.events[CntDmaErrors] = done.status == StWriteError;
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      WaitFinish: begin
        if (fin_valid_i) begin
          fin_q <= fin_i;
          stamp_q <= cycle_i;
          state_q <= ReadTables;
        end
      end
      ReadTables: state_q <= SendEntry;
      SendEntry: if (sent) state_q <= SendCount;
      SendCount: if (count_ready_i) state_q <= WaitFinish;
      default: state_q <= WaitFinish;
    endcase
    if (sent) begin
      rings[q].tail <= ring.tail == 12'((13'd1 << cfg_i.cq_log2) - 13'd1) ? '0 : ring.tail + 12'd1;
      rings[q].phase <= ring.phase ^ (ring.tail == 12'((13'd1 << cfg_i.cq_log2) - 13'd1));
    end
    if (start_valid_i) rings[start_queue_i[QueueW-1:0]] <= '0;
    if (rst_i) state_q <= WaitFinish;
  end

  assign db_cq_tail_o = {4'd0, rings[db_queue_i[QueueW-1:0]].tail};
  assign ptr_cq_tail_o = {4'd0, rings[ptr_queue_i[QueueW-1:0]].tail};

  // ------------------------------------------------------------------ entries on their way
  assign written_in = '{queue: done.queue, vector: cfg_i.vector, wants_irq: done.flags[FlagIrq] || !ok};

  stream_fifo #(
      .Width($bits(written_t)),
      .Depth(MaxWrites)
  ) u_written (
      .clk_i,
      .rst_i,
      .push_valid_i(sent),
      .push_ready_o(written_ready),
      .push_data_i(written_in),
      .pop_valid_o(written_valid),
      .pop_ready_i(written_pop),
      .pop_data_o(written),
      .count_o(written_count)
  );

  // Acknowledgements come at any time; what follows from them may have to wait.
  logic ack_ready, ack_valid, ack_error;
  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width(1),
      .Depth(MaxWrites)
  ) u_acks (
      .clk_i,
      .rst_i,
      .push_valid_i(cpl_done_valid_i),
      .push_ready_o(ack_ready),
      .push_data_i(cpl_done_error_i),
      .pop_valid_o(ack_valid),
      .pop_ready_i(written_pop),
      .pop_data_o(ack_error),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  assign err_valid_o = ack_valid && ack_error;
  assign err_o = '{code: ErrCqWrite, queue: written.queue};
  assign irq_valid_o = ack_valid && !ack_error && written.wants_irq;
  assign irq_vector_o = written.vector;
  assign written_pop = ack_valid && (ack_error ? err_ready_i : !written.wants_irq || irq_ready_i);

  assign idle_o = state_q == WaitFinish && written_count == '0;

  `PHUB_ASSERT(ack_expected_a, !ack_valid || written_valid)
  `PHUB_ASSERT(ack_room_a, !cpl_done_valid_i || ack_ready)
endmodule : cq_post
