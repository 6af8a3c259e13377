// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Descriptors on the card: for each queue a ring of DescDepth, written by sq_fetch, worked off by desc_exec
// (which may be ahead) and closed by egress_sched, both in order.
//
// Beside each descriptor stands how its segments went in: `done` once all of them are through, the first error,
// and a sequence number: of the segment with that error, else of the last that is through. Reads answer in the next cycle. A retirement is taken every cycle and
// has precedence over a push.
`include "phub_asserts.svh"
module desc_ring
  import phub_pkg::*;
#(
    parameter int unsigned Queues = 64,    // 1..64
    parameter int unsigned DescDepth = 16  // power of two, 2..64
) (
    input  logic        clk_i,
    input  logic        rst_i,
    input  logic        start_valid_i,  // the queue begins anew: its ring is empty
    input  queue_t      start_queue_i,
    // from sq_fetch
    input  logic        push_valid_i,
    output logic        push_ready_o,
    input  queue_t      push_queue_i,
    input  desc_t       push_desc_i,
    input  status_e     push_status_i,
    input  logic [15:0] push_sq_head_i,
    // desc_exec: the next descriptor to work off
    input  queue_t      ex_queue_i,
    output logic        ex_empty_o,
    output didx_t       ex_didx_o,
    output desc_t       ex_desc_o,
    output logic        ex_refused_o,   // failed its checks: nothing to send
    input  logic        ex_next_i,      // done with it
    // egress_sched: the next descriptor to close
    input  queue_t      cl_queue_i,
    output logic        cl_empty_o,
    output didx_t       cl_didx_o,
    output desc_t       cl_desc_o,
    output logic [15:0] cl_sq_head_o,
    output logic        cl_done_o,      // all its segments are through, and desc_exec is past it
    output status_e     cl_status_o,
    output seq_t        cl_seq_o,       // of the first failed segment, or of the last that is through
    input  logic        cl_next_i,      // closed
    input  logic        cl_flush_i,     // with cl_next_i: desc_exec shall skip it too
    // segments that are through
    input  logic        retire_valid_i,
    input  retire_t     retire_i
);
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;
  localparam int unsigned IdxW = $clog2(DescDepth);
  localparam int unsigned Entries = (1 << QueueW) * DescDepth;
  typedef logic [QueueW-1:0] qidx_t;
  typedef logic [IdxW:0] ptr_t;  // with a wrap bit

  typedef struct packed {
    logic        refused;
    logic [15:0] sq_head;
    logic [31:0] crc;
    logic [31:0] length;
    addr_t       dst;
    addr_t       src;
    logic [31:0] key;
    seq_t        seq;
    epoch_t      epoch;
    logic [15:0] cid;
    logic [7:0]  flags;
    logic [7:0]  opcode;
  } entry_t;

  typedef struct packed {
    logic    done;
    status_e status;
    seq_t    seq;
  } progress_t;

  function automatic desc_t to_desc(entry_t entry);
    return '{reserved: '0, crc: entry.crc, length: entry.length, dst: entry.dst, src: entry.src,
             key: entry.key, seq: entry.seq, epoch: entry.epoch, cid: entry.cid, flags: entry.flags,
             opcode: entry.opcode};
  endfunction

  ptr_t push_ptr[Queues], ex_ptr[Queues], cl_ptr[Queues];
  progress_t progress[Entries];

  qidx_t push_q, ex_q, cl_q, start_q;
  logic push;
  entry_t entry_in, ex_entry, cl_entry;
  progress_t cl_progress_q, retire_old;
  logic cl_passed_q;  // desc_exec is past it
  logic [QueueW+IdxW-1:0] push_addr, retire_addr;

  assign push_q = push_queue_i[QueueW-1:0];
  assign ex_q = ex_queue_i[QueueW-1:0];
  assign cl_q = cl_queue_i[QueueW-1:0];
  assign start_q = start_queue_i[QueueW-1:0];
  assign push_ready_o = !retire_valid_i;
  assign push = push_valid_i && push_ready_o;
  assign push_addr = {push_q, push_ptr[push_q][IdxW-1:0]};
  assign retire_addr = {retire_i.queue[QueueW-1:0], retire_i.didx[IdxW-1:0]};
  assign entry_in = '{refused: push_status_i != StOk, sq_head: push_sq_head_i, crc: push_desc_i.crc,
                      length: push_desc_i.length, dst: push_desc_i.dst, src: push_desc_i.src,
                      key: push_desc_i.key, seq: push_desc_i.seq, epoch: push_desc_i.epoch,
                      cid: push_desc_i.cid, flags: push_desc_i.flags, opcode: push_desc_i.opcode};

  sdp_ram #(
      .Width($bits(entry_t)),
      .Depth(Entries)
  ) u_ex_ram (
      .clk_i,
      .we_i(push),
      .waddr_i(push_addr),
      .wdata_i(entry_in),
      .re_i(1'b1),
      .raddr_i({ex_q, ex_ptr[ex_q][IdxW-1:0]}),
      .rdata_o(ex_entry)
  );

  sdp_ram #(
      .Width($bits(entry_t)),
      .Depth(Entries)
  ) u_cl_ram (
      .clk_i,
      .we_i(push),
      .waddr_i(push_addr),
      .wdata_i(entry_in),
      .re_i(1'b1),
      .raddr_i({cl_q, cl_ptr[cl_q][IdxW-1:0]}),
      .rdata_o(cl_entry)
  );

  assign retire_old = progress[retire_addr];

  always_ff @(posedge clk_i) begin
    if (retire_valid_i) begin
      progress[retire_addr] <= '{
          done: retire_i.last,
          status: retire_old.status != StOk ? retire_old.status : retire_i.status,
          seq: retire_old.status != StOk ? retire_old.seq : retire_i.seq
      };
    end else if (push) begin
      progress[push_addr] <= '{
          done: push_status_i != StOk,
          status: push_status_i,
          seq: push_desc_i.seq - seq_t'(push_status_i == StOk)
      };
    end
    cl_progress_q <= progress[{cl_q, cl_ptr[cl_q][IdxW-1:0]}];
    cl_passed_q <= cl_ptr[cl_q] != ex_ptr[cl_q];
    ex_empty_o <= ex_ptr[ex_q] == push_ptr[ex_q];
    cl_empty_o <= cl_ptr[cl_q] == push_ptr[cl_q];
    ex_didx_o <= didx_t'(ex_ptr[ex_q][IdxW-1:0]);
    cl_didx_o <= didx_t'(cl_ptr[cl_q][IdxW-1:0]);
  end

  assign ex_desc_o = to_desc(ex_entry);
  assign ex_refused_o = ex_entry.refused;
  assign cl_desc_o = to_desc(cl_entry);
  assign cl_sq_head_o = cl_entry.sq_head;
  assign cl_done_o = cl_progress_q.done && cl_passed_q;
  assign cl_status_o = cl_progress_q.status;
  assign cl_seq_o = cl_progress_q.seq;

  always_ff @(posedge clk_i) begin
    if (push) push_ptr[push_q] <= push_ptr[push_q] + ptr_t'(1);
    if (ex_next_i) ex_ptr[ex_q] <= ex_ptr[ex_q] + ptr_t'(1);
    if (cl_next_i) begin
      cl_ptr[cl_q] <= cl_ptr[cl_q] + ptr_t'(1);
      if (cl_flush_i && ex_ptr[cl_q] == cl_ptr[cl_q]) ex_ptr[cl_q] <= ex_ptr[cl_q] + ptr_t'(1);
    end
    if (start_valid_i) begin
      push_ptr[start_q] <= '0;
      ex_ptr[start_q] <= '0;
      cl_ptr[start_q] <= '0;
    end
    if (rst_i) begin
      for (int unsigned q = 0; q < Queues; q++) begin
        push_ptr[q] <= '0;
        ex_ptr[q] <= '0;
        cl_ptr[q] <= '0;
      end
    end
  end

  `PHUB_ASSERT_STATIC(depth_a, DescDepth >= 2 && DescDepth <= DescDepthMax && (1 << IdxW) == DescDepth)
  `PHUB_ASSERT(room_a, !push || ptr_t'(push_ptr[push_q] - cl_ptr[push_q]) < ptr_t'(DescDepth))
  `PHUB_ASSERT(ex_not_empty_a, !ex_next_i || ex_ptr[ex_q] != push_ptr[ex_q])
  `PHUB_ASSERT(cl_not_empty_a, !cl_next_i || cl_ptr[cl_q] != push_ptr[cl_q])
  // Nothing is closed that desc_exec still works on, but by a flush.
  `PHUB_ASSERT(order_a, !cl_next_i || cl_flush_i || cl_ptr[cl_q] != ex_ptr[cl_q])
endmodule : desc_ring
