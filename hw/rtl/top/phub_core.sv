// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// The parameter hub core: wiring of the stages, in the order in which a gradient meets them.
//
// AXI4-Lite slave (BAR0, hw/regs/hub.rdl), AXI4 master to host memory, one interrupt request at a time, and a
// trace of the order of contributions for co-simulation. All on one clock; reset is synchronous.
`include "phub_asserts.svh"
module phub_core
  import phub_pkg::*;
#(
    parameter int unsigned Lanes = 16,        // FP32 adders: 1, 2, 4, 8 or 16
    parameter int unsigned SegBytes = 1024,   // power of two, 64..8192
    parameter int unsigned Slots = 1024,      // power of two, 2..65536
    parameter int unsigned Tenants = 64,      // 1..64
    parameter int unsigned Workers = 64,      // 1..64
    parameter int unsigned Queues = 64,       // 1..64
    parameter int unsigned DescDepth = 16,    // power of two, 2..64
    parameter int unsigned ReadTags = 32,     // power of two, 2..64
    parameter logic [31:0] BuildHash = 32'd0,
    localparam int unsigned W = 32 * Lanes
) (
    input  logic           clk_i,
    input  logic           rst_i,
    // BAR0
    input  logic [20:0]    s_axil_awaddr,
    input  logic [2:0]     s_axil_awprot,
    input  logic           s_axil_awvalid,
    output logic           s_axil_awready,
    input  logic [31:0]    s_axil_wdata,
    input  logic [3:0]     s_axil_wstrb,
    input  logic           s_axil_wvalid,
    output logic           s_axil_wready,
    output logic [1:0]     s_axil_bresp,
    output logic           s_axil_bvalid,
    input  logic           s_axil_bready,
    input  logic [20:0]    s_axil_araddr,
    input  logic [2:0]     s_axil_arprot,
    input  logic           s_axil_arvalid,
    output logic           s_axil_arready,
    output logic [31:0]    s_axil_rdata,
    output logic [1:0]     s_axil_rresp,
    output logic           s_axil_rvalid,
    input  logic           s_axil_rready,
    // host memory
    output logic [7:0]     m_axi_awid,
    output logic [63:0]    m_axi_awaddr,
    output logic [7:0]     m_axi_awlen,
    output logic [2:0]     m_axi_awsize,
    output logic [1:0]     m_axi_awburst,
    output logic           m_axi_awvalid,
    input  logic           m_axi_awready,
    output logic [W-1:0]   m_axi_wdata,
    output logic [W/8-1:0] m_axi_wstrb,
    output logic           m_axi_wlast,
    output logic           m_axi_wvalid,
    input  logic           m_axi_wready,
    input  logic [7:0]     m_axi_bid,
    input  logic [1:0]     m_axi_bresp,
    input  logic           m_axi_bvalid,
    output logic           m_axi_bready,
    output logic [7:0]     m_axi_arid,
    output logic [63:0]    m_axi_araddr,
    output logic [7:0]     m_axi_arlen,
    output logic [2:0]     m_axi_arsize,
    output logic [1:0]     m_axi_arburst,
    output logic           m_axi_arvalid,
    input  logic           m_axi_arready,
    input  logic [7:0]     m_axi_rid,
    input  logic [W-1:0]   m_axi_rdata,
    input  logic [1:0]     m_axi_rresp,
    input  logic           m_axi_rlast,
    input  logic           m_axi_rvalid,
    output logic           m_axi_rready,
    // interrupts
    output logic           irq_valid_o,
    input  logic           irq_ready_i,
    output logic [6:0]     irq_vector_o,
    // clear only if nothing will happen without another register access
    output logic           busy_o,
    // order of contributions
    output logic           trace_valid_o,
    output logic [5:0]     trace_tenant_o,
    output logic [5:0]     trace_worker_o,
    output logic [31:0]    trace_seq_o,
    output logic [15:0]    trace_slot_o,
    output logic           trace_first_o,
    output logic           trace_abstain_o
);
  localparam int unsigned Vectors = Queues + 1;

  // ------------------------------------------------------------------ control
  logic enable, ready, fatal, soft_rst, rst_core, pause, all_idle;
  logic cmd_valid, cmd_busy, cmd_refused;
  logic [7:0] cmd_op, cmd_index;
  tbl_req_t queue_req, tenant_req, counter_req, doorbell_req;
  tbl_rsp_t queue_rsp, tenant_rsp, counter_rsp, doorbell_rsp;
  localparam int unsigned NumErr = 3;  // queue_table, sq_fetch, cq_post
  logic err_valid[NumErr], err_ready[NumErr];
  err_ev_t err[NumErr];
  logic err_irq_valid, err_irq_ready;
  logic dump_valid, dump_ready, dump_rsp_valid;
  slot_t dump_slot;
  slot_dump_t dump_rsp;
  logic [7:0] coalesce_count;
  logic [23:0] coalesce_timeout;
  cycle_t cycle;
  logic perf_beat_in, perf_beat_out, perf_hazard, perf_slot, perf_read, perf_write;

  assign rst_core = rst_i || soft_rst;

  hub_csr #(
      .Lanes(Lanes),
      .SegBytes(SegBytes),
      .Slots(Slots),
      .Tenants(Tenants),
      .Workers(Workers),
      .Queues(Queues),
      .DescDepth(DescDepth),
      .Vectors(Vectors),
      .BuildHash(BuildHash),
      .NumErr(NumErr)
  ) u_csr (
      .clk_i,
      .rst_i,
      .soft_rst_i(soft_rst),
      .s_axil_awaddr,
      .s_axil_awprot,
      .s_axil_awvalid,
      .s_axil_awready,
      .s_axil_wdata,
      .s_axil_wstrb,
      .s_axil_wvalid,
      .s_axil_wready,
      .s_axil_bresp,
      .s_axil_bvalid,
      .s_axil_bready,
      .s_axil_araddr,
      .s_axil_arprot,
      .s_axil_arvalid,
      .s_axil_arready,
      .s_axil_rdata,
      .s_axil_rresp,
      .s_axil_rvalid,
      .s_axil_rready,
      .enable_o(enable),
      .ready_i(ready),
      .busy_i(busy_o),
      .cmd_valid_o(cmd_valid),
      .cmd_op_o(cmd_op),
      .cmd_index_o(cmd_index),
      .cmd_busy_i(cmd_busy),
      .cmd_refused_i(cmd_refused),
      .fatal_i(fatal),
      .queue_req_o(queue_req),
      .queue_rsp_i(queue_rsp),
      .tenant_req_o(tenant_req),
      .tenant_rsp_i(tenant_rsp),
      .counter_req_o(counter_req),
      .counter_rsp_i(counter_rsp),
      .doorbell_req_o(doorbell_req),
      .doorbell_rsp_i(doorbell_rsp),
      .err_valid_i(err_valid),
      .err_ready_o(err_ready),
      .err_i(err),
      .err_irq_valid_o(err_irq_valid),
      .err_irq_ready_i(err_irq_ready),
      .dump_valid_o(dump_valid),
      .dump_ready_i(dump_ready),
      .dump_slot_o(dump_slot),
      .dump_rsp_valid_i(dump_rsp_valid),
      .dump_rsp_i(dump_rsp),
      .coalesce_count_o(coalesce_count),
      .coalesce_timeout_o(coalesce_timeout),
      .cycle_o(cycle),
      .perf_busy_i(busy_o),
      .perf_beat_in_i(perf_beat_in),
      .perf_beat_out_i(perf_beat_out),
      .perf_hazard_i(perf_hazard),
      .perf_slot_i(perf_slot),
      .perf_read_i(perf_read),
      .perf_write_i(perf_write)
  );

  logic init_done, flush_valid, flush_tenant, flush_done, stop_valid, quiesce_busy;
  logic [5:0] flush_index;
  queue_t stop_queue;
  logic clear_valid, clear_ready, bump_valid, bump_ready;
  slot_t clear_slot;
  tenant_t bump_tenant;

  // Look-up ports of the tenant table: 0 admit, 1 desc_exec, 2 egress_sched, 3 sq_fetch, 4 quiesce.
  localparam int unsigned TenantPorts = 5;
  tenant_t tenant_idx[TenantPorts];
  tenant_cfg_t tenant_cfg[TenantPorts];

  // Sources of counter events: 0 aggregate, 1 egress, 2 slot_ctrl, 3 desc_exec, 4 cq_post, 5 quiesce.
  localparam int unsigned CountSources = 6;
  logic count_valid[CountSources], count_ready[CountSources];
  count_ev_t count[CountSources];

  quiesce #(
      .Queues(Queues),
      .Tenants(Tenants)
  ) u_quiesce (
      .clk_i,
      .rst_i,
      .enable_i(enable),
      .ready_o(ready),
      .cmd_valid_i(cmd_valid),
      .cmd_op_i(cmd_op),
      .cmd_index_i(cmd_index),
      .cmd_busy_o(cmd_busy),
      .cmd_refused_o(cmd_refused),
      .soft_rst_o(soft_rst),
      .pause_o(pause),
      .idle_i(all_idle),
      .init_done_i(init_done),
      .flush_valid_o(flush_valid),
      .flush_tenant_o(flush_tenant),
      .flush_index_o(flush_index),
      .flush_done_i(flush_done),
      .stop_valid_o(stop_valid),
      .stop_queue_o(stop_queue),
      .clear_valid_o(clear_valid),
      .clear_ready_i(clear_ready),
      .clear_slot_o(clear_slot),
      .tenant_o(tenant_idx[4]),
      .cfg_i(tenant_cfg[4]),
      .bump_valid_o(bump_valid),
      .bump_ready_i(bump_ready),
      .bump_tenant_o(bump_tenant),
      .count_valid_o(count_valid[5]),
      .count_ready_i(count_ready[5]),
      .count_o(count[5]),
      .fatal_o(fatal),
      .busy_o(quiesce_busy)
  );

  // ------------------------------------------------------------------ tables
  // Look-up ports of the queue table: 0 and 4 sq_fetch, 1 desc_exec, 2 egress_sched, 3 cq_post.
  localparam int unsigned QueuePorts = 5;
  queue_t queue_idx[QueuePorts];
  queue_cfg_t queue_cfg[QueuePorts];
  logic start_valid;
  queue_t start_queue;
  tenant_t start_tenant;
  queue_t ptr_queue;
  logic [15:0] ptr_sq_head, ptr_cq_tail;
  logic fail_valid;
  err_ev_t fail;

  queue_table #(
      .Queues(Queues),
      .Tenants(Tenants),
      .Workers(Workers),
      .Vectors(Vectors),
      .NumPorts(QueuePorts)
  ) u_queue_table (
      .clk_i,
      .rst_i,
      .soft_rst_i(soft_rst),
      .req_i(queue_req),
      .rsp_o(queue_rsp),
      .queue_i(queue_idx),
      .cfg_o(queue_cfg),
      .start_valid_o(start_valid),
      .start_queue_o(start_queue),
      .start_tenant_o(start_tenant),
      .stop_valid_i(stop_valid),
      .stop_queue_i(stop_queue),
      .fail_valid_i(fail_valid),
      .fail_i(fail),
      .err_valid_o(err_valid[0]),
      .err_ready_i(err_ready[0]),
      .err_o(err[0]),
      .ptr_queue_o(ptr_queue),
      .ptr_sq_head_i(ptr_sq_head),
      .ptr_cq_tail_i(ptr_cq_tail)
  );

  // A queue fails when its error is taken into the FIFO; the FIFO takes one at a time.
  assign fail_valid = (err_valid[1] && err_ready[1]) || (err_valid[2] && err_ready[2]);
  assign fail = err_valid[1] && err_ready[1] ? err[1] : err[2];

  tenant_table #(
      .Tenants(Tenants),
      .Workers(Workers),
      .Slots(Slots),
      .NumPorts(TenantPorts)
  ) u_tenant_table (
      .clk_i,
      .rst_i,
      .soft_rst_i(soft_rst),
      .req_i(tenant_req),
      .rsp_o(tenant_rsp),
      .tenant_i(tenant_idx),
      .cfg_o(tenant_cfg),
      .bump_valid_i(bump_valid),
      .bump_ready_o(bump_ready),
      .bump_tenant_i(bump_tenant)
  );

  tenant_counters #(
      .Tenants(Tenants),
      .Sources(CountSources)
  ) u_counters (
      .clk_i,
      .rst_i,
      .soft_rst_i(soft_rst),
      .req_i(counter_req),
      .rsp_o(counter_rsp),
      .ev_valid_i(count_valid),
      .ev_ready_o(count_ready),
      .ev_i(count)
  );

  // ------------------------------------------------------------------ host: descriptors
  logic pop_valid, pop_ready;
  queue_t pop_queue;
  logic fetch_rd_valid, fetch_rd_ready, exec_rd_valid, exec_rd_ready, rd_valid, rd_ready;
  rd_req_t fetch_rd, exec_rd, rd;
  logic desc_valid, desc_error;
  queue_t desc_queue;
  desc_t desc;
  logic push_valid, push_ready;
  queue_t push_queue;
  desc_t push_desc;
  status_e push_status;
  logic [15:0] push_sq_head;
  queue_t cq_queue;
  logic [15:0] cq_tail;
  logic sq_idle, sq_busy;

  sq_fetch #(
      .Queues(Queues),
      .DescDepth(DescDepth)
  ) u_sq_fetch (
      .clk_i,
      .rst_i(rst_core),
      .pause_i(pause),
      .req_i(doorbell_req),
      .rsp_o(doorbell_rsp),
      .queue_o(queue_idx[0]),
      .cfg_i(queue_cfg[0]),
      .chk_queue_o(queue_idx[4]),
      .chk_cfg_i(queue_cfg[4]),
      .tenant_o(tenant_idx[3]),
      .tenant_cfg_i(tenant_cfg[3]),
      .cq_queue_o(cq_queue),
      .cq_tail_i(cq_tail),
      .start_valid_i(start_valid),
      .start_queue_i(start_queue),
      .pop_valid_i(pop_valid),
      .pop_ready_o(pop_ready),
      .pop_queue_i(pop_queue),
      .rd_valid_o(fetch_rd_valid),
      .rd_ready_i(fetch_rd_ready),
      .rd_o(fetch_rd),
      .desc_valid_i(desc_valid),
      .desc_queue_i(desc_queue),
      .desc_i(desc),
      .desc_error_i(desc_error),
      .push_valid_o(push_valid),
      .push_ready_i(push_ready),
      .push_queue_o(push_queue),
      .push_desc_o(push_desc),
      .push_status_o(push_status),
      .push_sq_head_o(push_sq_head),
      .err_valid_o(err_valid[1]),
      .err_ready_i(err_ready[1]),
      .err_o(err[1]),
      .ptr_queue_i(ptr_queue),
      .ptr_sq_head_o(ptr_sq_head),
      .idle_o(sq_idle),
      .busy_o(sq_busy)
  );

  logic fetched;
  queue_t ex_queue, cl_queue;
  logic ex_empty, ex_refused, ex_next, ex_skipped, cl_empty, cl_done, cl_next, cl_flush;
  didx_t ex_didx, cl_didx;
  desc_t ex_desc, cl_desc;
  logic [15:0] cl_sq_head;
  status_e cl_status;
  seq_t cl_seq;
  logic retire_valid;
  retire_t retire;

  assign fetched = push_valid && push_ready;

  desc_ring #(
      .Queues(Queues),
      .DescDepth(DescDepth)
  ) u_desc_ring (
      .clk_i,
      .rst_i(rst_core),
      .start_valid_i(start_valid),
      .start_queue_i(start_queue),
      .push_valid_i(push_valid),
      .push_ready_o(push_ready),
      .push_queue_i(push_queue),
      .push_desc_i(push_desc),
      .push_status_i(push_status),
      .push_sq_head_i(push_sq_head),
      .ex_queue_i(ex_queue),
      .ex_empty_o(ex_empty),
      .ex_didx_o(ex_didx),
      .ex_desc_o(ex_desc),
      .ex_refused_o(ex_refused),
      .ex_next_i(ex_next),
      .cl_queue_i(cl_queue),
      .cl_empty_o(cl_empty),
      .cl_didx_o(cl_didx),
      .cl_desc_o(cl_desc),
      .cl_sq_head_o(cl_sq_head),
      .cl_done_o(cl_done),
      .cl_status_o(cl_status),
      .cl_seq_o(cl_seq),
      .cl_next_i(cl_next),
      .cl_flush_i(cl_flush),
      .retire_valid_i(retire_valid),
      .retire_i(retire)
  );

  logic freed_valid, complete_valid, flushed_valid;
  tenant_t freed_tenant, complete_tenant;
  queue_t flushed_queue;
  logic ask_valid, ask_ready, ask_rsp_valid, ask_rsp_wait;
  slot_t ask_slot;
  seq_t ask_seq;
  logic exec_idle, exec_busy;

  desc_exec #(
      .Queues(Queues),
      .SegBytes(SegBytes),
      .Lanes(Lanes)
  ) u_desc_exec (
      .clk_i,
      .rst_i(rst_core),
      .pause_i(pause),
      .queue_o(queue_idx[1]),
      .cfg_i(queue_cfg[1]),
      .tenant_o(tenant_idx[1]),
      .tenant_cfg_i(tenant_cfg[1]),
      .start_valid_i(start_valid),
      .start_queue_i(start_queue),
      .start_tenant_i(start_tenant),
      .fetched_valid_i(fetched),
      .fetched_queue_i(push_queue),
      .freed_valid_i(freed_valid),
      .freed_tenant_i(freed_tenant),
      .retire_valid_i(retire_valid),
      .retire_queue_i(retire.queue),
      .flush_valid_i(flushed_valid),
      .flush_queue_i(flushed_queue),
      .ex_queue_o(ex_queue),
      .ex_empty_i(ex_empty),
      .ex_didx_i(ex_didx),
      .ex_desc_i(ex_desc),
      .ex_refused_i(ex_refused),
      .ex_next_o(ex_next),
      .ex_skipped_o(ex_skipped),
      .ask_valid_o(ask_valid),
      .ask_ready_i(ask_ready),
      .ask_slot_o(ask_slot),
      .ask_seq_o(ask_seq),
      .ask_rsp_valid_i(ask_rsp_valid),
      .ask_rsp_wait_i(ask_rsp_wait),
      .rd_valid_o(exec_rd_valid),
      .rd_ready_i(exec_rd_ready),
      .rd_o(exec_rd),
      .count_valid_o(count_valid[3]),
      .count_ready_i(count_ready[3]),
      .count_o(count[3]),
      .perf_slot_o(perf_slot),
      .idle_o(exec_idle),
      .busy_o(exec_busy)
  );

  // Descriptors first: they are few, and everything waits for them.
  assign rd_valid = fetch_rd_valid || exec_rd_valid;
  assign rd = fetch_rd_valid ? fetch_rd : exec_rd;
  assign fetch_rd_ready = rd_ready;
  assign exec_rd_ready = rd_ready && !fetch_rd_valid;

  // ------------------------------------------------------------------ host: payload
  logic hdr_valid, hdr_ready, beat_valid, beat_ready, dma_read_idle;
  seg_hdr_t hdr;
  logic [W-1:0] beat;

  dma_read #(
      .Lanes(Lanes),
      .SegBytes(SegBytes),
      .ReadTags(ReadTags),
      .Queues(Queues)
  ) u_dma_read (
      .clk_i,
      .rst_i(rst_core),
      .req_valid_i(rd_valid),
      .req_ready_o(rd_ready),
      .req_i(rd),
      .m_axi_arid,
      .m_axi_araddr,
      .m_axi_arlen,
      .m_axi_arsize,
      .m_axi_arburst,
      .m_axi_arvalid,
      .m_axi_arready,
      .m_axi_rid,
      .m_axi_rdata,
      .m_axi_rresp,
      .m_axi_rlast,
      .m_axi_rvalid,
      .m_axi_rready,
      .desc_valid_o(desc_valid),
      .desc_queue_o(desc_queue),
      .desc_o(desc),
      .desc_error_o(desc_error),
      .hdr_valid_o(hdr_valid),
      .hdr_ready_i(hdr_ready),
      .hdr_o(hdr),
      .beat_valid_o(beat_valid),
      .beat_ready_i(beat_ready),
      .beat_data_o(beat),
      .perf_stall_o(perf_read),
      .idle_o(dma_read_idle)
  );

  // ------------------------------------------------------------------ admit, slots, aggregate
  logic join_valid, join_ready, cmd_seg_valid, cmd_seg_ready;
  seg_hdr_t join_hdr;
  tenant_cfg_t join_cfg;
  agg_cmd_t cmd_seg;

  admit u_admit (
      .clk_i,
      .rst_i(rst_core),
      .hdr_valid_i(hdr_valid),
      .hdr_ready_o(hdr_ready),
      .hdr_i(hdr),
      .tenant_o(tenant_idx[0]),
      .cfg_i(tenant_cfg[0]),
      .join_valid_o(join_valid),
      .join_ready_i(join_ready),
      .join_hdr_o(join_hdr),
      .join_cfg_o(join_cfg)
  );

  logic look_valid, look_ready, look_rsp_valid, commit_valid, commit_ready, leave_valid, leave_ready, slots_idle;
  slot_t look_slot, commit_slot, leave_slot;
  seq_t look_seq, leave_seq;
  tenant_t look_tenant;
  slot_answer_t look_rsp;
  worker_t leave_worker, look_worker;

  slot_ctrl #(
      .Slots(Slots),
      .Workers(Workers)
  ) u_slot_ctrl (
      .clk_i,
      .rst_i(rst_core),
      .cycle_i(cycle),
      .join_valid_i(join_valid),
      .join_ready_o(join_ready),
      .join_hdr_i(join_hdr),
      .join_cfg_i(join_cfg),
      .cmd_valid_o(cmd_seg_valid),
      .cmd_ready_i(cmd_seg_ready),
      .cmd_o(cmd_seg),
      .ask_valid_i(ask_valid),
      .ask_ready_o(ask_ready),
      .ask_slot_i(ask_slot),
      .ask_seq_i(ask_seq),
      .ask_rsp_valid_o(ask_rsp_valid),
      .ask_rsp_wait_o(ask_rsp_wait),
      .look_valid_i(look_valid),
      .look_ready_o(look_ready),
      .look_slot_i(look_slot),
      .look_seq_i(look_seq),
      .look_tenant_i(look_tenant),
      .look_worker_i(look_worker),
      .look_rsp_valid_o(look_rsp_valid),
      .look_rsp_o(look_rsp),
      .commit_valid_i(commit_valid),
      .commit_ready_o(commit_ready),
      .commit_slot_i(commit_slot),
      .leave_valid_i(leave_valid),
      .leave_ready_o(leave_ready),
      .leave_slot_i(leave_slot),
      .leave_worker_i(leave_worker),
      .leave_seq_i(leave_seq),
      .clear_valid_i(clear_valid),
      .clear_ready_o(clear_ready),
      .clear_slot_i(clear_slot),
      .dump_valid_i(dump_valid),
      .dump_ready_o(dump_ready),
      .dump_slot_i(dump_slot),
      .dump_rsp_valid_o(dump_rsp_valid),
      .dump_rsp_o(dump_rsp),
      .complete_valid_o(complete_valid),
      .complete_tenant_o(complete_tenant),
      .freed_valid_o(freed_valid),
      .freed_tenant_o(freed_tenant),
      .count_valid_o(count_valid[2]),
      .count_ready_i(count_ready[2]),
      .count_o(count[2]),
      .init_done_o(init_done),
      .idle_o(slots_idle)
  );

  trace_t trace;
  logic rd_en, aggregate_idle;
  slot_t rd_slot;
  bytes_t rd_beat;
  logic [W-1:0] rd_data;

  aggregate #(
      .Lanes(Lanes),
      .SegBytes(SegBytes),
      .Slots(Slots)
  ) u_aggregate (
      .clk_i,
      .rst_i(rst_core),
      .cmd_valid_i(cmd_seg_valid),
      .cmd_ready_o(cmd_seg_ready),
      .cmd_i(cmd_seg),
      .beat_valid_i(beat_valid),
      .beat_ready_o(beat_ready),
      .beat_data_i(beat),
      .commit_valid_o(commit_valid),
      .commit_ready_i(commit_ready),
      .commit_slot_o(commit_slot),
      .retire_valid_o(retire_valid),
      .retire_o(retire),
      .count_valid_o(count_valid[0]),
      .count_ready_i(count_ready[0]),
      .count_o(count[0]),
      .trace_valid_o,
      .trace_o(trace),
      .rd_en_i(rd_en),
      .rd_slot_i(rd_slot),
      .rd_beat_i(rd_beat),
      .rd_data_o(rd_data),
      .perf_beat_o(perf_beat_in),
      .perf_hazard_o(perf_hazard),
      .idle_o(aggregate_idle)
  );

  assign trace_tenant_o = trace.tenant;
  assign trace_worker_o = trace.worker;
  assign trace_seq_o = trace.seq;
  assign trace_slot_o = trace.slot;
  assign trace_first_o = trace.first;
  assign trace_abstain_o = trace.abstain;

  // ------------------------------------------------------------------ egress
  logic job_valid, job_ready, next_valid, next_ready, sched_idle, sched_busy;
  egress_job_t job, next_job;

  egress_sched #(
      .Queues(Queues),
      .SegBytes(SegBytes)
  ) u_egress_sched (
      .clk_i,
      .rst_i(rst_core),
      .pause_i(pause),
      .queue_o(queue_idx[2]),
      .cfg_i(queue_cfg[2]),
      .tenant_o(tenant_idx[2]),
      .tenant_cfg_i(tenant_cfg[2]),
      .start_valid_i(start_valid),
      .start_queue_i(start_queue),
      .start_tenant_i(start_tenant),
      .skipped_valid_i(ex_skipped),
      .skipped_queue_i(ex_queue),
      .retire_valid_i(retire_valid),
      .retire_queue_i(retire.queue),
      .complete_valid_i(complete_valid),
      .complete_tenant_i(complete_tenant),
      .flush_valid_i(flush_valid),
      .flush_tenant_i(flush_tenant),
      .flush_index_i(flush_index),
      .flush_done_o(flush_done),
      .flushed_valid_o(flushed_valid),
      .flushed_queue_o(flushed_queue),
      .cl_queue_o(cl_queue),
      .cl_empty_i(cl_empty),
      .cl_didx_i(cl_didx),
      .cl_desc_i(cl_desc),
      .cl_sq_head_i(cl_sq_head),
      .cl_done_i(cl_done),
      .cl_status_i(cl_status),
      .cl_seq_i(cl_seq),
      .cl_next_o(cl_next),
      .cl_flush_o(cl_flush),
      .pop_valid_o(pop_valid),
      .pop_ready_i(pop_ready),
      .pop_queue_o(pop_queue),
      .look_valid_o(look_valid),
      .look_ready_i(look_ready),
      .look_slot_o(look_slot),
      .look_seq_o(look_seq),
      .look_tenant_o(look_tenant),
      .look_worker_o(look_worker),
      .look_rsp_valid_i(look_rsp_valid),
      .look_rsp_i(look_rsp),
      .job_valid_o(next_valid),
      .job_ready_i(next_ready),
      .job_o(next_job),
      .idle_o(sched_idle),
      .busy_o(sched_busy)
  );

  // The next job is found while the beats of the last are read.
  stream_reg #(
      .Width($bits(egress_job_t))
  ) u_jobs (
      .clk_i,
      .rst_i(rst_core),
      .push_valid_i(next_valid),
      .push_ready_o(next_ready),
      .push_data_i(next_job),
      .pop_valid_o(job_valid),
      .pop_ready_i(job_ready),
      .pop_data_o(job)
  );

  logic wr_valid, wr_ready, wbeat_valid, wbeat_ready, egress_idle;
  wr_req_t wr;
  logic end_valid, end_ready;
  finish_t end_fin;
  logic [W-1:0] wbeat;

  egress #(
      .Lanes(Lanes),
      .SegBytes(SegBytes),
      .Queues(Queues)
  ) u_egress (
      .clk_i,
      .rst_i(rst_core),
      .job_valid_i(job_valid),
      .job_ready_o(job_ready),
      .job_i(job),
      .rd_en_o(rd_en),
      .rd_slot_o(rd_slot),
      .rd_beat_o(rd_beat),
      .rd_data_i(rd_data),
      .leave_valid_o(leave_valid),
      .leave_ready_i(leave_ready),
      .leave_slot_o(leave_slot),
      .leave_worker_o(leave_worker),
      .leave_seq_o(leave_seq),
      .wr_valid_o(wr_valid),
      .wr_ready_i(wr_ready),
      .wr_o(wr),
      .wbeat_valid_o(wbeat_valid),
      .wbeat_ready_i(wbeat_ready),
      .wbeat_data_o(wbeat),
      .end_valid_o(end_valid),
      .end_ready_i(end_ready),
      .end_o(end_fin),
      .count_valid_o(count_valid[1]),
      .count_ready_i(count_ready[1]),
      .count_o(count[1]),
      .perf_beat_o(perf_beat_out),
      .idle_o(egress_idle)
  );

  logic cpl_valid, cpl_ready, cpl_done_valid, cpl_done_error, fin_valid, fin_ready, dma_write_idle;
  addr_t cpl_addr;
  cpl_t cpl;
  finish_t fin;

  dma_write #(
      .Lanes(Lanes),
      .Queues(Queues)
  ) u_dma_write (
      .clk_i,
      .rst_i(rst_core),
      .wr_valid_i(wr_valid),
      .wr_ready_o(wr_ready),
      .wr_i(wr),
      .wbeat_valid_i(wbeat_valid),
      .wbeat_ready_o(wbeat_ready),
      .wbeat_data_i(wbeat),
      .end_valid_i(end_valid),
      .end_ready_o(end_ready),
      .end_i(end_fin),
      .cpl_valid_i(cpl_valid),
      .cpl_ready_o(cpl_ready),
      .cpl_addr_i(cpl_addr),
      .cpl_data_i(cpl),
      .m_axi_awid,
      .m_axi_awaddr,
      .m_axi_awlen,
      .m_axi_awsize,
      .m_axi_awburst,
      .m_axi_awvalid,
      .m_axi_awready,
      .m_axi_wdata,
      .m_axi_wstrb,
      .m_axi_wlast,
      .m_axi_wvalid,
      .m_axi_wready,
      .m_axi_bid,
      .m_axi_bresp,
      .m_axi_bvalid,
      .m_axi_bready,
      .fin_valid_o(fin_valid),
      .fin_ready_i(fin_ready),
      .fin_o(fin),
      .cpl_done_valid_o(cpl_done_valid),
      .cpl_done_error_o(cpl_done_error),
      .perf_stall_o(perf_write),
      .idle_o(dma_write_idle)
  );

  logic cq_irq_valid, cq_irq_ready, cq_idle, msix_busy;
  logic [6:0] cq_irq_vector;
  cq_post #(
      .Queues(Queues)
  ) u_cq_post (
      .clk_i,
      .rst_i(rst_core),
      .cycle_i(cycle),
      .fin_valid_i(fin_valid),
      .fin_ready_o(fin_ready),
      .fin_i(fin),
      .queue_o(queue_idx[3]),
      .cfg_i(queue_cfg[3]),
      .cpl_valid_o(cpl_valid),
      .cpl_ready_i(cpl_ready),
      .cpl_addr_o(cpl_addr),
      .cpl_data_o(cpl),
      .cpl_done_valid_i(cpl_done_valid),
      .cpl_done_error_i(cpl_done_error),
      .irq_valid_o(cq_irq_valid),
      .irq_ready_i(cq_irq_ready),
      .irq_vector_o(cq_irq_vector),
      .start_valid_i(start_valid),
      .start_queue_i(start_queue),
      .db_queue_i(cq_queue),
      .db_cq_tail_o(cq_tail),
      .ptr_queue_i(ptr_queue),
      .ptr_cq_tail_o(ptr_cq_tail),
      .err_valid_o(err_valid[2]),
      .err_ready_i(err_ready[2]),
      .err_o(err[2]),
      .count_valid_o(count_valid[4]),
      .count_ready_i(count_ready[4]),
      .count_o(count[4]),
      .idle_o(cq_idle)
  );

  msix #(
      .Vectors(Vectors)
  ) u_msix (
      .clk_i,
      .rst_i(rst_core),
      .irq_valid_i(cq_irq_valid),
      .irq_ready_o(cq_irq_ready),
      .irq_vector_i(cq_irq_vector),
      .err_valid_i(err_irq_valid),
      .err_ready_o(err_irq_ready),
      .coalesce_count_i(coalesce_count),
      .coalesce_timeout_i(coalesce_timeout),
      .irq_valid_o,
      .irq_ready_i,
      .irq_vector_o,
      .busy_o(msix_busy)
  );

  assign all_idle = sq_idle && exec_idle && dma_read_idle && slots_idle && aggregate_idle && sched_idle
      && egress_idle && dma_write_idle && cq_idle && !hdr_valid && !join_valid;
  assign busy_o = quiesce_busy || (!soft_rst && (!all_idle || sq_busy || exec_busy || sched_busy || msix_busy
      || err_valid[0] || err_irq_valid));

  `PHUB_ASSERT_STATIC(slots_a, Slots >= 2 && Slots <= SlotsMax && (Slots & (Slots - 1)) == 0)
  `PHUB_ASSERT_STATIC(tenants_a, Tenants >= 1 && Tenants <= TenantsMax)
  `PHUB_ASSERT_STATIC(workers_a, Workers >= 1 && Workers <= WorkersMax)
  // The FIFO takes one error at a time, so that no failure of a queue is missed.
  `PHUB_ASSERT(one_error_a, !((err_valid[1] && err_ready[1]) && (err_valid[2] && err_ready[2])))
endmodule : phub_core
