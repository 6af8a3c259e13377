// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// The queue table: which rings, tenant, worker and IOVA window each queue pair has.
//
// The host writes it register by register (layout: hw/regs/hub.rdl), CTRL last. A queue whose rings,
// tenant, worker or vector are out of range is not enabled and reported as ErrQueueConfig. A look-up answers
// in the next cycle, for all ports at once; its `enable` is clear once the queue has failed.
`include "phub_asserts.svh"
module queue_table
  import phub_pkg::*;
#(
    parameter int unsigned Queues = 64,   // 1..64
    parameter int unsigned Tenants = 64,  // 1..64
    parameter int unsigned Workers = 64,  // 1..64
    parameter int unsigned Vectors = 65,  // interrupt vectors
    parameter int unsigned NumPorts = 4   // look-up ports
) (
    input  logic       clk_i,
    input  logic       rst_i,
    input  logic       soft_rst_i,  // disables every queue
    // host
    input  tbl_req_t   req_i,
    output tbl_rsp_t   rsp_o,
    // look-ups
    input  queue_t     queue_i[NumPorts],
    output queue_cfg_t cfg_o[NumPorts],
    // a queue begins anew: whoever keeps state of it resets that
    output logic       start_valid_o,
    output queue_t     start_queue_o,
    output tenant_t    start_tenant_o,
    // a queue is stopped by command
    input  logic       stop_valid_i,
    input  queue_t     stop_queue_i,
    // a queue has failed
    input  logic       fail_valid_i,
    input  err_ev_t    fail_i,
    // a bad configuration, for the error FIFO
    output logic       err_valid_o,
    input  logic       err_ready_i,
    output err_ev_t    err_o,
    // ring positions of the queue whose POINTERS register is being read
    output queue_t     ptr_queue_o,
    input  logic [15:0] ptr_sq_head_i,
    input  logic [15:0] ptr_cq_tail_i
);
  typedef enum logic [3:0] {
    RegCtrl     = 4'd0,
    RegStatus   = 4'd1,
    RegSqLo     = 4'd2,
    RegSqHi     = 4'd3,
    RegCqLo     = 4'd4,
    RegCqHi     = 4'd5,
    RegWinLo    = 4'd6,
    RegWinHi    = 4'd7,
    RegSizeLo   = 4'd8,
    RegSizeHi   = 4'd9,
    RegVector   = 4'd10,
    RegPointers = 4'd11
  } reg_e;

  localparam int unsigned NumWords = 11;
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;

  // One RAM a register, so that a look-up reads them all at once.
  logic [31:0] words[NumWords][Queues];
  logic [Queues-1:0] enable_q, failed_q;
  logic [7:0] code[Queues];

  logic access, in_range;
  queue_t req_queue;
  logic [QueueW-1:0] idx;
  reg_e req_reg;
  logic write_ctrl, ctrl_good, starting;
  logic err_pending_q;
  err_ev_t err_q;

  assign req_queue = req_i.addr[11:6];
  assign idx = req_queue[QueueW-1:0];
  assign req_reg = reg_e'(req_i.addr[5:2]);
  assign in_range = 32'(req_i.addr[17:6]) < Queues;
  assign ptr_queue_o = req_queue;

  // CTRL waits until an earlier configuration error is taken.
  assign access = req_i.valid && !rsp_o.ack && !(err_pending_q && req_reg == RegCtrl);
  assign write_ctrl = access && in_range && req_i.write && req_reg == RegCtrl;
  assign ctrl_good = req_i.wdata[7:4] inside {[4'd1 : 4'd12]} && req_i.wdata[11:8] inside {[4'd1 : 4'd12]}
      && 32'(req_i.wdata[21:16]) < Tenants && 32'(req_i.wdata[29:24]) < Workers
      && 32'(words[RegVector][idx][6:0]) < Vectors;
  assign starting = write_ctrl && req_i.wdata[0] && ctrl_good && !enable_q[idx] && !soft_rst_i;

  assign start_valid_o = starting;
  assign start_queue_o = req_queue;
  assign start_tenant_o = req_i.wdata[21:16];
  assign err_valid_o = err_pending_q;
  assign err_o = err_q;

  always_ff @(posedge clk_i) begin
    if (access && in_range && req_i.write && 32'(req_reg) < NumWords && req_reg != RegStatus) begin
      words[req_reg][idx] <= req_i.wdata;
    end
  end

  always_ff @(posedge clk_i) begin
    rsp_o.ack <= access;
    if (access) begin
      unique case (req_reg)
        RegCtrl:     rsp_o.rdata <= {words[RegCtrl][idx][31:1], enable_q[idx]};
        RegStatus:   rsp_o.rdata <= {16'd0, code[idx], 7'd0, failed_q[idx]};
        RegPointers: rsp_o.rdata <= {ptr_cq_tail_i, ptr_sq_head_i};
        default:     rsp_o.rdata <= 32'(req_reg) < NumWords ? words[req_reg][idx] : '0;
      endcase
      if (!in_range) rsp_o.rdata <= '0;
    end
    if (rst_i) rsp_o <= '0;
  end

  always_ff @(posedge clk_i) begin
    if (err_pending_q && err_ready_i) err_pending_q <= 1'b0;
    if (write_ctrl) begin
      enable_q[idx] <= req_i.wdata[0] && ctrl_good;
      failed_q[idx] <= req_i.wdata[0] && !ctrl_good;
      if (req_i.wdata[0] && !ctrl_good) begin
        code[idx] <= ErrQueueConfig;
        err_pending_q <= 1'b1;
        err_q <= '{code: ErrQueueConfig, queue: req_queue};
      end else begin
        code[idx] <= ErrNone;
      end
    end
    if (stop_valid_i) enable_q[stop_queue_i[QueueW-1:0]] <= 1'b0;
    if (fail_valid_i && !failed_q[fail_i.queue[QueueW-1:0]]) begin
      failed_q[fail_i.queue[QueueW-1:0]] <= 1'b1;
      code[fail_i.queue[QueueW-1:0]] <= fail_i.code;
    end
    if (rst_i || soft_rst_i) begin
      enable_q <= '0;
      failed_q <= '0;
    end
    if (rst_i) err_pending_q <= 1'b0;
  end

  for (genvar p = 0; p < int'(NumPorts); p++) begin : gen_port
    logic [QueueW-1:0] q;
    queue_cfg_t cfg_q;
    assign q = queue_i[p][QueueW-1:0];
    always_ff @(posedge clk_i) begin
      cfg_q.enable <= enable_q[q] && !failed_q[q];
      cfg_q.sq_log2 <= words[RegCtrl][q][7:4];
      cfg_q.cq_log2 <= words[RegCtrl][q][11:8];
      cfg_q.tenant <= words[RegCtrl][q][21:16];
      cfg_q.worker <= words[RegCtrl][q][29:24];
      cfg_q.vector <= words[RegVector][q][6:0];
      cfg_q.sq_base <= {words[RegSqHi][q], words[RegSqLo][q]};
      cfg_q.cq_base <= {words[RegCqHi][q], words[RegCqLo][q]};
      cfg_q.win_base <= {words[RegWinHi][q], words[RegWinLo][q]};
      cfg_q.win_size <= {words[RegSizeHi][q], words[RegSizeLo][q]};
    end
    assign cfg_o[p] = cfg_q;
  end

  `PHUB_ASSERT_STATIC(queues_a, Queues >= 1 && Queues <= QueuesMax)
  `PHUB_ASSERT(start_in_range_a, !start_valid_o || 32'(start_queue_o) < Queues)
endmodule : queue_table
