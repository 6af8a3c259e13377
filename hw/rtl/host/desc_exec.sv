// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Cuts descriptors into segments and sends each to dma_read once its slot will take it.
//
// Queues take turns, one segment each. A queue whose next segment finds its slot in an older round sleeps
// until a slot of its tenant is freed; the others go on. A queue has no more segments between here and the
// adders than its tenant has slots: two of them could otherwise be on their way to one free slot. 8 cycles a
// segment when dma_read and slot_ctrl answer at once.
`include "phub_asserts.svh"
module desc_exec
  import phub_pkg::*;
#(
    parameter int unsigned Queues = 64,      // 1..64
    parameter int unsigned SegBytes = 1024,  // bytes of a full segment
    parameter int unsigned Lanes = 16
) (
    input  logic        clk_i,
    input  logic        rst_i,
    input  logic        pause_i,
    // tables
    output queue_t      queue_o,
    input  queue_cfg_t  cfg_i,
    output tenant_t     tenant_o,
    input  tenant_cfg_t tenant_cfg_i,
    // wake-ups
    input  logic        start_valid_i,
    input  queue_t      start_queue_i,
    input  tenant_t     start_tenant_i,
    input  logic        fetched_valid_i,  // a descriptor came into the ring
    input  queue_t      fetched_queue_i,
    input  logic        freed_valid_i,    // a slot of this tenant was freed
    input  tenant_t     freed_tenant_i,
    input  logic        retire_valid_i,   // a segment of this queue is through
    input  queue_t      retire_queue_i,
    // a descriptor was taken away (flush): forget how far it was
    input  logic        flush_valid_i,
    input  queue_t      flush_queue_i,
    // desc_ring
    output queue_t      ex_queue_o,
    input  logic        ex_empty_i,
    input  didx_t       ex_didx_i,
    input  desc_t       ex_desc_i,
    input  logic        ex_refused_i,
    output logic        ex_next_o,
    output logic        ex_skipped_o,     // with ex_next_o: a refused one
    // slot_ctrl: may this sequence number enter its slot?
    output logic        ask_valid_o,
    input  logic        ask_ready_i,
    output slot_t       ask_slot_o,
    output seq_t        ask_seq_o,
    input  logic        ask_rsp_valid_i,
    input  logic        ask_rsp_wait_i,
    // dma_read
    output logic        rd_valid_o,
    input  logic        rd_ready_i,
    output rd_req_t     rd_o,
    output logic        count_valid_o,
    input  logic        count_ready_i,
    output count_ev_t   count_o,
    output logic        perf_slot_o,      // queues wait for slots, and nothing else is to be done
    output logic        idle_o,           // no segment between here and the adders
    output logic        busy_o
);
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;
  localparam int unsigned SegLog2 = $clog2(SegBytes);
  typedef logic [QueueW-1:0] qidx_t;

  typedef enum logic [2:0] {
    PickQueue,
    ReadTables,
    ReadTenant,
    Examine,
    AskSlot,
    WaitSlot,
    SendSegment,
    CountWait
  } state_e;

  logic [Queues-1:0] check_q, waiting_q;
  logic [Queues-1:0] counted_q;  // this wait is in the counter already
  tenant_t tenant_of[Queues];
  logic [31:0] offset[Queues];  // bytes of the current descriptor already sent
  logic [7:0] inflight[Queues];  // segments sent and not yet through
  logic [13:0] total_q;          // of all queues together

  state_e state_q;
  qidx_t q_q;
  logic [31:0] offset_q;

  logic grant_valid;
  logic [QueueW-1:0] grant_idx;
  logic pick, sent;
  desc_t desc;
  logic [31:0] rest;
  logic last;
  seq_t seq;
  logic slots_taken, doomed;
  qidx_t retire_q;

  rr_arbiter #(
      .Num(Queues)
  ) u_pick (
      .clk_i,
      .rst_i,
      .req_i(check_q),
      .ack_i(pick),
      .grant_valid_o(grant_valid),
      .grant_idx_o(grant_idx)
  );

  assign pick = state_q == PickQueue && grant_valid && !pause_i;
  assign queue_o = queue_t'(q_q);
  assign ex_queue_o = queue_t'(q_q);
  assign tenant_o = cfg_i.tenant;
  assign desc = ex_desc_i;
  assign rest = desc.length - offset_q;
  assign last = rest <= SegBytes;
  assign seq = desc.seq + (offset_q >> SegLog2);

  assign slots_taken = 32'(inflight[q_q]) >= (32'd1 << tenant_cfg_i.slot_log2) || inflight[q_q] == 8'hff;
  // Admission will drop it: it must not wait for a slot that others hold.
  assign doomed = !tenant_cfg_i.enable || count_t'(cfg_i.worker) >= tenant_cfg_i.workers
      || desc.epoch != tenant_cfg_i.epoch;
  assign retire_q = retire_queue_i[QueueW-1:0];

  assign ask_valid_o = state_q == AskSlot && !slots_taken;
  assign ask_slot_o = slot_of(tenant_cfg_i, seq);
  assign ask_seq_o = seq;
  assign rd_valid_o = state_q == SendSegment;
  assign sent = rd_valid_o && rd_ready_i;
  assign ex_skipped_o = state_q == Examine && !ex_empty_i && ex_refused_i;
  assign ex_next_o = (sent && last) || ex_skipped_o;

  always_comb begin
    rd_o = '0;
    rd_o.queue = queue_t'(q_q);
    rd_o.addr = desc.src + addr_t'(offset_q);
    rd_o.hdr.status = StOk;
    rd_o.hdr.tenant = cfg_i.tenant;
    rd_o.hdr.worker = cfg_i.worker;
    rd_o.hdr.queue = queue_t'(q_q);
    rd_o.hdr.didx = ex_didx_i;
    rd_o.hdr.epoch = desc.epoch;
    rd_o.hdr.seq = seq;
    rd_o.hdr.key = desc.key;
    rd_o.hdr.bytes = last ? bytes_t'(rest) : bytes_t'(SegBytes);
    rd_o.hdr.has_data = desc.opcode != OpPull;
    rd_o.hdr.waive = desc.opcode == OpPush && desc.flags[FlagWaive];
    rd_o.hdr.first = offset_q == '0;
    rd_o.hdr.last = last;
    rd_o.hdr.crc_en = desc.flags[FlagCrc];
    rd_o.hdr.crc_check = desc.flags[FlagCrc] && last;
    rd_o.hdr.crc = desc.crc;
    rd_o.bytes = rd_o.hdr.has_data ? rd_o.hdr.bytes : '0;
  end

  assign count_valid_o = state_q == CountWait;
  assign count_o = '{tenant: cfg_i.tenant, events: 16'd1 << CntSlotWaits, bytes: '0};

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      PickQueue: begin
        if (pick) begin
          q_q <= grant_idx;
          offset_q <= offset[grant_idx];
          check_q[grant_idx] <= 1'b0;
          state_q <= ReadTables;
        end
      end
      ReadTables: state_q <= ReadTenant;
      ReadTenant: state_q <= Examine;
      Examine: begin
        if (ex_empty_i) begin
          state_q <= PickQueue;
        end else if (ex_refused_i) begin
          check_q[q_q] <= 1'b1;
          state_q <= PickQueue;
        end else if (doomed) begin
          state_q <= SendSegment;
        end else begin
          // Before the answer, so that a slot freed after it is not missed.
          waiting_q[q_q] <= 1'b1;
          state_q <= AskSlot;
        end
      end
      AskSlot: if (slots_taken) state_q <= PickQueue;
               else if (ask_ready_i) state_q <= WaitSlot;
      WaitSlot: if (ask_rsp_valid_i) state_q <= !ask_rsp_wait_i ? SendSegment : counted_q[q_q] ? PickQueue : CountWait;
      SendSegment: begin
        if (rd_ready_i) begin
          waiting_q[q_q] <= 1'b0;
          counted_q[q_q] <= 1'b0;
          offset[q_q] <= last ? '0 : offset_q + SegBytes;
          check_q[q_q] <= 1'b1;
          state_q <= PickQueue;
        end
      end
      CountWait: begin
        if (count_ready_i) begin
          counted_q[q_q] <= 1'b1;
          state_q <= PickQueue;
        end
      end
      default: state_q <= PickQueue;
    endcase
    if (freed_valid_i) begin
      for (int unsigned q = 0; q < Queues; q++) begin
        if (waiting_q[q] && tenant_of[q] == freed_tenant_i) check_q[q] <= 1'b1;
      end
    end
    if (retire_valid_i && waiting_q[retire_q]) check_q[retire_q] <= 1'b1;
    if (fetched_valid_i) check_q[fetched_queue_i[QueueW-1:0]] <= 1'b1;
    if (retire_valid_i != sent) total_q <= sent ? total_q + 14'd1 : total_q - 14'd1;
    if (retire_valid_i != sent || retire_q != q_q) begin
      if (sent) inflight[q_q] <= inflight[q_q] + 8'd1;
      if (retire_valid_i) inflight[retire_q] <= inflight[retire_q] - 8'd1;
    end
    if (flush_valid_i) begin
      offset[flush_queue_i[QueueW-1:0]] <= '0;
      waiting_q[flush_queue_i[QueueW-1:0]] <= 1'b0;
      counted_q[flush_queue_i[QueueW-1:0]] <= 1'b0;
    end
    if (start_valid_i) begin
      tenant_of[start_queue_i[QueueW-1:0]] <= start_tenant_i;
      offset[start_queue_i[QueueW-1:0]] <= '0;
      waiting_q[start_queue_i[QueueW-1:0]] <= 1'b0;
      counted_q[start_queue_i[QueueW-1:0]] <= 1'b0;
      check_q[start_queue_i[QueueW-1:0]] <= 1'b0;
    end
    if (rst_i) begin
      state_q <= PickQueue;
      check_q <= '0;
      waiting_q <= '0;
      counted_q <= '0;
      total_q <= '0;
      for (int unsigned q = 0; q < Queues; q++) inflight[q] <= '0;
    end
  end

  assign idle_o = state_q == PickQueue && total_q == '0;
  assign busy_o = !idle_o || |check_q;
  assign perf_slot_o = state_q == PickQueue && !(|check_q) && |waiting_q;

  `PHUB_ASSERT_STATIC(segment_a,
      SegBytes >= 64 && SegBytes <= SegBytesMax && (1 << SegLog2) == SegBytes && SegBytes >= 4 * Lanes)
  `PHUB_ASSERT(offset_inside_a, state_q != SendSegment || offset_q < desc.length)
  `PHUB_ASSERT(inflight_a, !retire_valid_i || inflight[retire_q] != '0)
  `PHUB_COVER(slot_wait_c, state_q == CountWait)
endmodule : desc_exec
