// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Closes descriptors in order: sends the result of each segment to egress once its slot is complete, then
// the completion.
//
// Queues take turns, one segment or completion each. A queue with nothing to do sleeps until the slot it waits for
// may be complete, a segment of it is through, or desc_exec has skipped a refused descriptor of it. 8 cycles a
// segment when egress and slot_ctrl answer at once. A flush closes what the card holds of a tenant (with StAborted)
// or forgets what it holds of a queue; it is used while everything else stands still.
`include "phub_asserts.svh"
module egress_sched
  import phub_pkg::*;
#(
    parameter int unsigned Queues = 64,     // 1..64
    parameter int unsigned SegBytes = 1024  // bytes of a full segment
) (
    input  logic         clk_i,
    input  logic         rst_i,
    input  logic         pause_i,
    // tables
    output queue_t       queue_o,
    input  queue_cfg_t   cfg_i,
    output tenant_t      tenant_o,
    input  tenant_cfg_t  tenant_cfg_i,
    // wake-ups
    input  logic         start_valid_i,
    input  queue_t       start_queue_i,
    input  tenant_t      start_tenant_i,
    input  logic         skipped_valid_i,  // a refused descriptor may be closed
    input  queue_t       skipped_queue_i,
    input  logic         retire_valid_i,
    input  queue_t       retire_queue_i,
    input  logic         complete_valid_i,
    input  tenant_t      complete_tenant_i,
    // flush
    input  logic         flush_valid_i,    // held until flush_done_o
    input  logic         flush_tenant_i,   // all queues of a tenant; else one queue, silently
    input  logic [5:0]   flush_index_i,
    output logic         flush_done_o,
    output logic         flushed_valid_o,  // a descriptor was flushed: desc_exec forgets its place
    output queue_t       flushed_queue_o,
    // desc_ring
    output queue_t       cl_queue_o,
    input  logic         cl_empty_i,
    input  didx_t        cl_didx_i,
    input  desc_t        cl_desc_i,
    input  logic [15:0]  cl_sq_head_i,
    input  logic         cl_done_i,
    input  status_e      cl_status_i,
    input  seq_t         cl_seq_i,
    output logic         cl_next_o,
    output logic         cl_flush_o,
    // sq_fetch: a descriptor left the card
    output logic         pop_valid_o,
    input  logic         pop_ready_i,
    output queue_t       pop_queue_o,
    // slot_ctrl
    output logic         look_valid_o,
    input  logic         look_ready_i,
    output slot_t        look_slot_o,
    output seq_t         look_seq_o,
    output tenant_t      look_tenant_o,
    output worker_t      look_worker_o,
    input  logic         look_rsp_valid_i,
    input  slot_answer_t look_rsp_i,
    // egress
    output logic         job_valid_o,
    input  logic         job_ready_i,
    output egress_job_t  job_o,
    output logic         idle_o,
    output logic         busy_o
);
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;
  localparam int unsigned SegLog2 = $clog2(SegBytes);
  typedef logic [QueueW-1:0] qidx_t;

  typedef enum logic [3:0] {
    PickQueue,
    ReadTables,
    ReadTenant,
    Examine,
    AskSlot,
    WaitSlot,
    SendJob,
    SendPop,
    NextFlush
  } state_e;

  logic [Queues-1:0] check_q;
  logic [Queues-1:0] waiting_q;  // its slot was not complete
  tenant_t tenant_of[Queues];
  logic [31:0] offset[Queues];  // bytes of result of the current descriptor already sent

  state_e state_q;
  qidx_t q_q;
  logic [31:0] offset_q;
  logic flushing_q;
  slot_answer_t answer_q;
  status_e status_q;  // of the completion to send; StOk with job_data_q set: a segment
  logic job_data_q;   // the job carries a segment
  seq_t seq_q;

  logic grant_valid;
  logic [QueueW-1:0] grant_idx;
  logic pick;
  desc_t desc;
  logic [31:0] rest;
  logic last, ends, takes_result;
  seq_t seq;

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

  assign pick = state_q == PickQueue && grant_valid && !pause_i && !flush_valid_i;
  assign queue_o = queue_t'(q_q);
  assign cl_queue_o = queue_t'(q_q);
  assign tenant_o = cfg_i.tenant;
  assign desc = cl_desc_i;
  assign rest = desc.length - offset_q;
  assign last = rest <= SegBytes;
  assign seq = desc.seq + (offset_q >> SegLog2);
  assign takes_result = desc.opcode != OpPush;
  assign ends = !job_data_q || last;  // the descriptor is closed by this job

  assign look_valid_o = state_q == AskSlot;
  assign look_slot_o = slot_of(tenant_cfg_i, seq);
  assign look_seq_o = seq;
  assign look_tenant_o = cfg_i.tenant;
  assign look_worker_o = cfg_i.worker;
  assign job_valid_o = state_q == SendJob;

  always_comb begin
    job_o = '0;
    job_o.done.queue = queue_t'(q_q);
    job_o.done.tenant = cfg_i.tenant;
    job_o.done.cid = desc.cid;
    job_o.done.opcode = desc.opcode;
    job_o.done.flags = desc.flags;
    job_o.done.status = status_q;
    job_o.done.epoch = tenant_cfg_i.epoch;
    job_o.done.seq = seq_q;
    job_o.done.bytes = status_q == StOk ? desc.length : offset_q;
    job_o.done.contributors = answer_q.contributors;
    job_o.done.count = answer_q.count;
    job_o.done.sq_head = cl_sq_head_i;
    job_o.worker = cfg_i.worker;
    job_o.slot = look_slot_o;
    job_o.bytes = !job_data_q ? '0 : last ? bytes_t'(rest) : bytes_t'(SegBytes);
    job_o.addr = desc.dst + addr_t'(offset_q);
    job_o.mean = desc.flags[FlagMean];
    job_o.empty = answer_q.empty;
    job_o.first = offset_q == '0;
    job_o.last = ends;
  end

  // Closing happens with the job, or silently in a flush of a queue.
  logic close_silent, close, to_flush;
  assign to_flush = !cl_empty_i && (flush_tenant_i ? cfg_i.tenant == flush_index_i : 6'(q_q) == flush_index_i);
  assign close_silent = state_q == Examine && flushing_q && !flush_tenant_i && to_flush;
  assign close = (job_valid_o && job_ready_i && ends) || close_silent;
  assign cl_next_o = close;
  assign cl_flush_o = flushing_q;
  assign flushed_valid_o = close && flushing_q;
  assign flushed_queue_o = queue_t'(q_q);
  assign pop_valid_o = state_q == SendPop;
  assign pop_queue_o = queue_t'(q_q);

  always_ff @(posedge clk_i) begin
    flush_done_o <= 1'b0;
    unique case (state_q)
      PickQueue: begin
        if (flush_valid_i && !flush_done_o) begin
          flushing_q <= 1'b1;
          q_q <= '0;
          state_q <= ReadTables;
        end else if (pick) begin
          q_q <= grant_idx;
          check_q[grant_idx] <= 1'b0;
          state_q <= ReadTables;
        end
      end
      ReadTables: begin
        offset_q <= offset[q_q];
        state_q <= ReadTenant;
      end
      ReadTenant: state_q <= Examine;
      Examine: begin
        answer_q <= '0;
        job_data_q <= 1'b0;
        seq_q <= seq;
        if (flushing_q) begin
          if (!to_flush) begin
            state_q <= NextFlush;
          end else if (!flush_tenant_i) begin
            offset[q_q] <= '0;
            state_q <= SendPop;
          end else if (cl_status_i != StOk) begin
            status_q <= cl_status_i;
            seq_q <= cl_seq_i;
            state_q <= SendJob;
          end else begin
            state_q <= AskSlot;
          end
        end else if (cl_empty_i) begin
          state_q <= PickQueue;
        end else if (cl_status_i != StOk) begin
          status_q <= cl_status_i;
          seq_q <= cl_seq_i;
          state_q <= cl_done_i ? SendJob : PickQueue;
        end else if (takes_result) begin
          // Its own segment must be through, and not refused, before it may have the result. The mark comes
          // before the answer, so that a completion after it is not missed.
          waiting_q[q_q] <= 1'b1;
          state_q <= $signed(cl_seq_i - seq) >= 0 ? AskSlot : PickQueue;
        end else begin
          status_q <= StOk;
          seq_q <= desc.seq + ((desc.length - 32'd1) >> SegLog2);
          state_q <= cl_done_i ? SendJob : PickQueue;
        end
      end
      AskSlot: if (look_ready_i) state_q <= WaitSlot;
      WaitSlot: begin
        if (look_rsp_valid_i) begin
          answer_q <= look_rsp_i;
          if (flushing_q) begin
            status_q <= StAborted;
            state_q <= SendJob;
          end else if (look_rsp_i.ready) begin
            status_q <= StOk;
            job_data_q <= 1'b1;
            state_q <= SendJob;
          end else if (look_rsp_i.stale && cl_done_i) begin
            status_q <= StStaleSeq;
            state_q <= SendJob;
          end else begin
            state_q <= PickQueue;
          end
        end
      end
      SendJob: begin
        if (job_ready_i) begin
          waiting_q[q_q] <= 1'b0;
          offset[q_q] <= ends ? '0 : offset_q + SegBytes;
          check_q[q_q] <= 1'b1;
          state_q <= ends ? SendPop : PickQueue;
        end
      end
      SendPop: begin
        if (pop_ready_i) state_q <= flushing_q ? ReadTables : PickQueue;
      end
      NextFlush: begin
        q_q <= 32'(q_q) == Queues - 1 ? '0 : q_q + qidx_t'(1);
        if (32'(q_q) == Queues - 1) begin
          flushing_q <= 1'b0;
          flush_done_o <= 1'b1;
          state_q <= PickQueue;
        end else begin
          state_q <= ReadTables;
        end
      end
      default: state_q <= PickQueue;
    endcase
    if (complete_valid_i) begin
      for (int unsigned q = 0; q < Queues; q++) begin
        if (waiting_q[q] && tenant_of[q] == complete_tenant_i) check_q[q] <= 1'b1;
      end
    end
    if (skipped_valid_i) check_q[skipped_queue_i[QueueW-1:0]] <= 1'b1;
    if (retire_valid_i) check_q[retire_queue_i[QueueW-1:0]] <= 1'b1;
    if (start_valid_i) begin
      tenant_of[start_queue_i[QueueW-1:0]] <= start_tenant_i;
      offset[start_queue_i[QueueW-1:0]] <= '0;
      waiting_q[start_queue_i[QueueW-1:0]] <= 1'b0;
    end
    if (rst_i) begin
      state_q <= PickQueue;
      waiting_q <= '0;
      flushing_q <= 1'b0;
      check_q <= '0;
    end
  end

  assign idle_o = state_q == PickQueue;
  assign busy_o = !idle_o || |check_q;

  `PHUB_ASSERT(offset_inside_a, !(job_valid_o && job_data_q) || offset_q < desc.length)
  `PHUB_COVER(flush_c, flushed_valid_o)

  logic unused;
  assign unused = &{1'b0, cl_didx_i};
endmodule : egress_sched
