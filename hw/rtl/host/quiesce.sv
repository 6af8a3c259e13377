// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Brings the core to rest: enable and disable, abort of a tenant's epoch, stop of a queue.
//
// Each of these pauses the schedulers, waits until nothing is in flight, changes state nobody looks at, and goes
// on. The pause costs other tenants the drain (host memory latency) and one cycle a slot of the tenant.
`include "phub_asserts.svh"
module quiesce
  import phub_pkg::*;
#(
    parameter int unsigned Queues = 64,
    parameter int unsigned Tenants = 64
) (
    input  logic        clk_i,
    input  logic        rst_i,
    // from the host
    input  logic        enable_i,
    output logic        ready_o,
    input  logic        cmd_valid_i,  // one cycle
    input  logic [7:0]  cmd_op_i,
    input  logic [7:0]  cmd_index_i,
    output logic        cmd_busy_o,
    output logic        cmd_refused_o,
    // the core
    output logic        soft_rst_o,
    output logic        pause_o,
    input  logic        idle_i,       // nothing in flight anywhere
    input  logic        init_done_i,  // slots are clear after a reset
    // egress_sched
    output logic        flush_valid_o,
    output logic        flush_tenant_o,
    output logic [5:0]  flush_index_o,
    input  logic        flush_done_i,
    // queue_table
    output logic        stop_valid_o,
    output queue_t      stop_queue_o,
    // slot_ctrl
    output logic        clear_valid_o,
    input  logic        clear_ready_i,
    output slot_t       clear_slot_o,
    // tenant_table
    output tenant_t     tenant_o,
    input  tenant_cfg_t cfg_i,
    output logic        bump_valid_o,
    input  logic        bump_ready_i,
    output tenant_t     bump_tenant_o,
    output logic        count_valid_o,
    input  logic        count_ready_i,
    output count_ev_t   count_o,
    output logic        fatal_o,      // one cycle: the core does not come to rest
    output logic        busy_o
);
  localparam logic [7:0] CmdAbort = 8'd1;
  localparam logic [7:0] CmdStop = 8'd2;
  // Cycles within which host memory must have answered everything: 4 ms at 250 MHz.
  localparam int unsigned DrainLog2 = 20;

  typedef enum logic [3:0] {
    Disabled,
    WaitInit,
    Running,
    WaitIdle,     // for a command
    FlushQueues,
    WaitFlushed,  // completions of the flush are written
    ClearSlots,
    BumpEpoch,
    CountAbort,
    WaitDrained   // for a disable
  } state_e;

  state_e state_q;
  logic pending_q, abort_q, refused_q;
  logic [5:0] index_q;
  logic [16:0] slots_left_q;
  slot_t slot_q;
  logic [1:0] idle_for_q;
  logic settled, known, draining;
  logic [DrainLog2:0] drain_q;

  // Hand-overs between stages take a cycle, in which both may look idle.
  assign settled = idle_for_q == 2'd3 && idle_i;
  assign known = (cmd_op_i == CmdAbort && 32'(cmd_index_i) < Tenants)
      || (cmd_op_i == CmdStop && 32'(cmd_index_i) < Queues);

  assign draining = state_q inside {WaitIdle, WaitFlushed, WaitDrained};
  assign fatal_o = drain_q == {1'b0, {DrainLog2{1'b1}}};
  assign ready_o = !(state_q inside {Disabled, WaitInit, WaitDrained});
  assign soft_rst_o = state_q == Disabled;
  assign pause_o = state_q != Running;
  assign cmd_busy_o = pending_q || !(state_q inside {Disabled, WaitInit, Running, WaitDrained});
  assign cmd_refused_o = refused_q;
  assign busy_o = pending_q || !(state_q inside {Disabled, Running}) || (state_q == Disabled) == enable_i;

  assign flush_valid_o = state_q == FlushQueues;
  assign flush_tenant_o = abort_q;
  assign flush_index_o = index_q;
  assign stop_valid_o = state_q == FlushQueues && !abort_q;
  assign stop_queue_o = index_q;
  assign clear_valid_o = state_q == ClearSlots && slots_left_q != '0;
  assign clear_slot_o = slot_q;
  assign tenant_o = index_q;
  assign bump_valid_o = state_q == BumpEpoch;
  assign bump_tenant_o = index_q;
  assign count_valid_o = state_q == CountAbort;
  assign count_o = '{tenant: index_q, events: 16'd1 << CntAborts, bytes: '0};

  always_ff @(posedge clk_i) begin
    idle_for_q <= !idle_i ? '0 : idle_for_q == 2'd3 ? idle_for_q : idle_for_q + 2'd1;
    if (!draining) drain_q <= '0;
    else if (!drain_q[DrainLog2]) drain_q <= drain_q + (DrainLog2 + 1)'(1);
    if (cmd_valid_i && !cmd_busy_o) begin
      refused_q <= !known || !ready_o;
      pending_q <= known && ready_o;
      abort_q <= cmd_op_i == CmdAbort;
      index_q <= cmd_index_i[5:0];
    end
    unique case (state_q)
      Disabled: if (enable_i) state_q <= WaitInit;
      WaitInit: if (init_done_i) state_q <= Running;
      Running: begin
        idle_for_q <= '0;
        if (pending_q) begin
          pending_q <= 1'b0;
          state_q <= WaitIdle;
        end else if (!enable_i) begin
          state_q <= WaitDrained;
        end
      end
      WaitIdle: if (settled) state_q <= FlushQueues;
      FlushQueues: begin
        idle_for_q <= '0;
        if (flush_done_i) state_q <= WaitFlushed;
      end
      WaitFlushed: begin
        if (settled) begin
          slot_q <= cfg_i.slot_base;
          slots_left_q <= 17'd1 << cfg_i.slot_log2;
          state_q <= !abort_q ? Running : cfg_i.enable ? ClearSlots : BumpEpoch;
        end
      end
      ClearSlots: begin
        if (slots_left_q == '0) begin
          state_q <= BumpEpoch;
        end else if (clear_ready_i) begin
          slot_q <= slot_q + slot_t'(1);
          slots_left_q <= slots_left_q - 17'd1;
        end
      end
      BumpEpoch: if (bump_ready_i) state_q <= CountAbort;
      CountAbort: if (count_ready_i) state_q <= Running;
      WaitDrained: if (settled) state_q <= Disabled;
      default: state_q <= Disabled;
    endcase
    if (rst_i) begin
      state_q <= Disabled;
      pending_q <= 1'b0;
      refused_q <= 1'b0;
      idle_for_q <= '0;
      drain_q <= '0;
    end
  end

  `PHUB_COVER(abort_c, state_q == CountAbort)

  logic unused;
  assign unused = &{1'b0, cfg_i};
endmodule : quiesce
