// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// BAR0: the generated register block, what its fields are connected to, and the way to the tables outside it.
//
// Answers at any time, also while the core is off. One access at a time.
`include "phub_asserts.svh"
module hub_csr
  import phub_pkg::*;
#(
    parameter int unsigned Lanes = 16,
    parameter int unsigned SegBytes = 1024,
    parameter int unsigned Slots = 1024,
    parameter int unsigned Tenants = 64,
    parameter int unsigned Workers = 64,
    parameter int unsigned Queues = 64,
    parameter int unsigned DescDepth = 16,
    parameter int unsigned Vectors = 65,
    parameter logic [31:0] BuildHash = 32'd0,
    parameter int unsigned NumErr = 3  // sources of errors
) (
    input  logic        clk_i,
    input  logic        rst_i,
    input  logic        soft_rst_i,      // the core is off: errors and counters begin anew
    input  logic [20:0] s_axil_awaddr,
    input  logic [2:0]  s_axil_awprot,
    input  logic        s_axil_awvalid,
    output logic        s_axil_awready,
    input  logic [31:0] s_axil_wdata,
    input  logic [3:0]  s_axil_wstrb,
    input  logic        s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [1:0]  s_axil_bresp,
    output logic        s_axil_bvalid,
    input  logic        s_axil_bready,
    input  logic [20:0] s_axil_araddr,
    input  logic [2:0]  s_axil_arprot,
    input  logic        s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0]  s_axil_rresp,
    output logic        s_axil_rvalid,
    input  logic        s_axil_rready,
    // quiesce
    output logic        enable_o,
    input  logic        ready_i,
    input  logic        busy_i,
    output logic        cmd_valid_o,
    output logic [7:0]  cmd_op_o,
    output logic [7:0]  cmd_index_o,
    input  logic        cmd_busy_i,
    input  logic        cmd_refused_i,
    input  logic        fatal_i,
    // tables
    output tbl_req_t    queue_req_o,
    input  tbl_rsp_t    queue_rsp_i,
    output tbl_req_t    tenant_req_o,
    input  tbl_rsp_t    tenant_rsp_i,
    output tbl_req_t    counter_req_o,
    input  tbl_rsp_t    counter_rsp_i,
    output tbl_req_t    doorbell_req_o,
    input  tbl_rsp_t    doorbell_rsp_i,
    // errors of queues, one taken at a time
    input  logic        err_valid_i[NumErr],
    output logic        err_ready_o[NumErr],
    input  err_ev_t     err_i[NumErr],
    output logic        err_irq_valid_o,
    input  logic        err_irq_ready_i,
    // slot debug window
    output logic        dump_valid_o,
    input  logic        dump_ready_i,
    output slot_t       dump_slot_o,
    input  logic        dump_rsp_valid_i,
    input  slot_dump_t  dump_rsp_i,
    output logic [7:0]  coalesce_count_o,
    output logic [23:0] coalesce_timeout_o,
    output cycle_t      cycle_o,
    // events to be counted, one a cycle each
    input  logic        perf_busy_i,
    input  logic        perf_beat_in_i,
    input  logic        perf_beat_out_i,
    input  logic        perf_hazard_i,
    input  logic        perf_slot_i,
    input  logic        perf_read_i,
    input  logic        perf_write_i
);
  localparam logic [7:0] FatalStuck = 8'd1;  // host memory has left requests unanswered
  localparam int unsigned NumPerf = 7;

  hub_regs_pkg::hub__in_t hwif_in;
  hub_regs_pkg::hub__out_t hwif_out;

  hub_regs u_regs (
      .clk(clk_i),
      .rst(rst_i),
      .s_axil_awready,
      .s_axil_awvalid,
      .s_axil_awaddr,
      .s_axil_awprot,
      .s_axil_wready,
      .s_axil_wvalid,
      .s_axil_wdata,
      .s_axil_wstrb,
      .s_axil_bready,
      .s_axil_bvalid,
      .s_axil_bresp,
      .s_axil_arready,
      .s_axil_arvalid,
      .s_axil_araddr,
      .s_axil_arprot,
      .s_axil_rready,
      .s_axil_rvalid,
      .s_axil_rdata,
      .s_axil_rresp,
      .hwif_in,
      .hwif_out
  );

  // ------------------------------------------------------------------ tables
  // The block asks for one cycle; the tables take their time.
  tbl_req_t queue_q, tenant_q, counter_q, doorbell_q;

  function automatic tbl_req_t latched(tbl_req_t held, logic ask, logic is_write, logic [17:0] addr,
                                       logic [31:0] data, logic ack);
    tbl_req_t next;
    next = held;
    if (ack) next.valid = 1'b0;
    if (ask) next = '{valid: 1'b1, write: is_write, addr: addr, wdata: data};
    return next;
  endfunction

  always_ff @(posedge clk_i) begin
    queue_q <= latched(queue_q, hwif_out.queue_table.req, hwif_out.queue_table.req_is_wr,
                       18'(hwif_out.queue_table.addr), hwif_out.queue_table.wr_data, queue_rsp_i.ack);
    tenant_q <= latched(tenant_q, hwif_out.tenant_table.req, hwif_out.tenant_table.req_is_wr,
                        18'(hwif_out.tenant_table.addr), hwif_out.tenant_table.wr_data, tenant_rsp_i.ack);
    counter_q <= latched(counter_q, hwif_out.counters.req, hwif_out.counters.req_is_wr,
                         18'(hwif_out.counters.addr), hwif_out.counters.wr_data, counter_rsp_i.ack);
    doorbell_q <= latched(doorbell_q, hwif_out.doorbells.req, hwif_out.doorbells.req_is_wr,
                          18'(hwif_out.doorbells.addr), hwif_out.doorbells.wr_data, doorbell_rsp_i.ack);
    if (rst_i) begin
      queue_q <= '0;
      tenant_q <= '0;
      counter_q <= '0;
      doorbell_q <= '0;
    end
  end

  assign queue_req_o = queue_q;
  assign tenant_req_o = tenant_q;
  assign counter_req_o = counter_q;
  assign doorbell_req_o = doorbell_q;

  // ------------------------------------------------------------------ control, commands, cycles
  logic cmd_q, dump_q, dump_valid_q;
  cycle_t cycle_q;
  logic [31:0] cycle_hi_q;
  logic [7:0] fatal_q;
  slot_dump_t dump_rsp_q;

  assign enable_o = hwif_out.ctrl.enable.value;
  assign cmd_valid_o = cmd_q;
  assign cmd_op_o = hwif_out.cmd.op.value;
  assign cmd_index_o = hwif_out.cmd.index.value;
  assign dump_valid_o = dump_q;
  assign dump_slot_o = hwif_out.debug.slot.index.value;
  assign coalesce_count_o = hwif_out.irq_coalesce.count.value;
  assign coalesce_timeout_o = hwif_out.irq_coalesce.timeout.value;
  assign cycle_o = cycle_q;

  always_ff @(posedge clk_i) begin
    // The fields hold the written value one cycle after the strobe.
    cmd_q <= hwif_out.cmd.op.swmod;
    cycle_q <= cycle_q + 64'd1;
    if (hwif_out.cycle_lo.value.swacc) cycle_hi_q <= cycle_q[63:32];
    if (fatal_i && fatal_q == '0) fatal_q <= FatalStuck;
    if (hwif_out.debug.slot.index.swmod) begin
      // A slot that is not built is never answered.
      dump_q <= 1'b1;
      dump_valid_q <= 1'b0;
    end else if (dump_q && (dump_ready_i || 32'(dump_slot_o) >= Slots)) begin
      dump_q <= 1'b0;
    end
    if (dump_rsp_valid_i && !dump_q) begin
      dump_valid_q <= 1'b1;
      dump_rsp_q <= dump_rsp_i;
    end
    if (rst_i || soft_rst_i) begin
      fatal_q <= '0;
      dump_q <= 1'b0;
      dump_valid_q <= 1'b0;
    end
    if (rst_i) begin
      cmd_q <= 1'b0;
      cycle_q <= '0;
    end
  end

  // ------------------------------------------------------------------ errors
  logic [NumErr-1:0] err_valid;
  logic err_grant, err_take, fifo_valid, fifo_overflow, fifo_pop, err_irq_q;
  logic [$clog2(NumErr)-1:0] err_idx;
  err_ev_t fifo_err;

  for (genvar e = 0; e < int'(NumErr); e++) begin : gen_err
    assign err_valid[e] = err_valid_i[e];
    assign err_ready_o[e] = err_take && 32'(err_idx) == e;
  end

  rr_arbiter #(
      .Num(NumErr)
  ) u_err_pick (
      .clk_i,
      .rst_i,
      .req_i(err_valid),
      .ack_i(err_take),
      .grant_valid_o(err_grant),
      .grant_idx_o(err_idx)
  );
  assign err_take = err_grant && !soft_rst_i;
  assign fifo_pop = hwif_out.error_fifo.code.swacc;

  error_fifo u_errors (
      .clk_i,
      .rst_i(rst_i || soft_rst_i),
      .push_i(err_take),
      .err_i(err_i[err_idx]),
      .valid_o(fifo_valid),
      .overflow_o(fifo_overflow),
      .err_o(fifo_err),
      .pop_i(fifo_pop)
  );

  always_ff @(posedge clk_i) begin
    if (err_take) err_irq_q <= 1'b1;
    else if (err_irq_ready_i) err_irq_q <= 1'b0;
    if (rst_i || soft_rst_i) err_irq_q <= 1'b0;
  end
  assign err_irq_valid_o = err_irq_q;

  // ------------------------------------------------------------------ performance counters
  logic [63:0] perf_q[NumPerf];
  logic [NumPerf-1:0] perf_ev;
  assign perf_ev = {perf_write_i, perf_read_i, perf_slot_i, perf_hazard_i, perf_beat_out_i, perf_beat_in_i,
                    perf_busy_i};

  always_ff @(posedge clk_i) begin
    for (int i = 0; i < int'(NumPerf); i++) if (perf_ev[i]) perf_q[i] <= perf_q[i] + 64'd1;
    if (rst_i || soft_rst_i) for (int i = 0; i < int'(NumPerf); i++) perf_q[i] <= '0;
  end

  // ------------------------------------------------------------------ readback
  always_comb begin
    hwif_in = '{default: '0};
    hwif_in.abi_version.minor.next = AbiMinor;
    hwif_in.abi_version.major.next = AbiMajor;
    hwif_in.build_hash.value.next = BuildHash;
    hwif_in.caps.fp32_sum.next = 1'b1;
    hwif_in.caps.fp32_mean.next = 1'b1;
    hwif_in.caps.crc.next = 1'b1;
    hwif_in.param_datapath.lanes.next = 8'(Lanes);
    hwif_in.param_datapath.seg_log2.next = 8'($clog2(SegBytes));
    hwif_in.param_datapath.vectors.next = 8'(Vectors);
    hwif_in.param_datapath.ports.next = 8'd0;
    hwif_in.param_slots.value.next = Slots;
    hwif_in.param_tenants.tenants.next = 16'(Tenants);
    hwif_in.param_tenants.workers.next = 16'(Workers);
    hwif_in.param_queues.queues.next = 16'(Queues);
    hwif_in.param_queues.desc_depth.next = 16'(DescDepth);
    hwif_in.status.ready.next = ready_i;
    hwif_in.status.fatal.next = fatal_q != '0;
    hwif_in.status.busy.next = busy_i;
    hwif_in.fatal.code.next = fatal_q;
    hwif_in.error_fifo.code.next = fifo_valid ? fifo_err.code : ErrNone;
    hwif_in.error_fifo.queue.next = fifo_valid ? 8'(fifo_err.queue) : '0;
    hwif_in.error_fifo.overflow.next = fifo_valid && fifo_overflow;
    hwif_in.error_fifo.valid.next = fifo_valid;
    hwif_in.cmd_status.busy.next = cmd_busy_i || cmd_q;
    hwif_in.cmd_status.refused.next = cmd_refused_i;
    hwif_in.cycle_lo.value.next = cycle_q[31:0];
    hwif_in.cycle_hi.value.next = cycle_hi_q;
    hwif_in.perf.busy_hi.value.next = perf_q[0][63:32];
    hwif_in.perf.busy_lo.value.next = perf_q[0][31:0];
    hwif_in.perf.beats_in_hi.value.next = perf_q[1][63:32];
    hwif_in.perf.beats_in_lo.value.next = perf_q[1][31:0];
    hwif_in.perf.beats_out_hi.value.next = perf_q[2][63:32];
    hwif_in.perf.beats_out_lo.value.next = perf_q[2][31:0];
    hwif_in.perf.stall_hazard_hi.value.next = perf_q[3][63:32];
    hwif_in.perf.stall_hazard_lo.value.next = perf_q[3][31:0];
    hwif_in.perf.stall_slot_hi.value.next = perf_q[4][63:32];
    hwif_in.perf.stall_slot_lo.value.next = perf_q[4][31:0];
    hwif_in.perf.stall_read_hi.value.next = perf_q[5][63:32];
    hwif_in.perf.stall_read_lo.value.next = perf_q[5][31:0];
    hwif_in.perf.stall_write_hi.value.next = perf_q[6][63:32];
    hwif_in.perf.stall_write_lo.value.next = perf_q[6][31:0];
    hwif_in.debug.state.valid.next = dump_valid_q;
    hwif_in.debug.state.open.next = dump_rsp_q.open;
    hwif_in.debug.state.complete.next = dump_rsp_q.complete;
    hwif_in.debug.state.fresh.next = dump_rsp_q.fresh;
    hwif_in.debug.state.tenant.next = dump_rsp_q.tenant;
    hwif_in.debug.state.workers.next = dump_rsp_q.workers;
    hwif_in.debug.state.pending.next = dump_rsp_q.pending;
    hwif_in.debug.seq.value.next = dump_rsp_q.seq;
    hwif_in.debug.key.value.next = dump_rsp_q.key;
    hwif_in.debug.bytes.value.next = 32'(dump_rsp_q.bytes);
    hwif_in.debug.joined_hi.value.next = dump_rsp_q.joined[63:32];
    hwif_in.debug.joined_lo.value.next = dump_rsp_q.joined[31:0];
    hwif_in.debug.contributed_hi.value.next = dump_rsp_q.contributed[63:32];
    hwif_in.debug.contributed_lo.value.next = dump_rsp_q.contributed[31:0];
    hwif_in.debug.left_hi.value.next = dump_rsp_q.left[63:32];
    hwif_in.debug.left_lo.value.next = dump_rsp_q.left[31:0];
    hwif_in.debug.since_hi.value.next = dump_rsp_q.since[63:32];
    hwif_in.debug.since_lo.value.next = dump_rsp_q.since[31:0];
    hwif_in.queue_table.rd_ack = queue_rsp_i.ack && !queue_q.write;
    hwif_in.queue_table.wr_ack = queue_rsp_i.ack && queue_q.write;
    hwif_in.queue_table.rd_data = queue_rsp_i.rdata;
    hwif_in.tenant_table.rd_ack = tenant_rsp_i.ack && !tenant_q.write;
    hwif_in.tenant_table.wr_ack = tenant_rsp_i.ack && tenant_q.write;
    hwif_in.tenant_table.rd_data = tenant_rsp_i.rdata;
    hwif_in.counters.rd_ack = counter_rsp_i.ack && !counter_q.write;
    hwif_in.counters.wr_ack = counter_rsp_i.ack && counter_q.write;
    hwif_in.counters.rd_data = counter_rsp_i.rdata;
    hwif_in.doorbells.rd_ack = doorbell_rsp_i.ack && !doorbell_q.write;
    hwif_in.doorbells.wr_ack = doorbell_rsp_i.ack && doorbell_q.write;
    hwif_in.doorbells.rd_data = doorbell_rsp_i.rdata;
  end
endmodule : hub_csr
