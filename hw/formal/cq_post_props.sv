// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// cq_post writes entry n of a queue at place n modulo the ring's size, with the phase bit of that round, for ever and over
// every wrap-around; an interrupt follows the acknowledgement of its entry. Proved for two queues of any ring sizes.
module cq_post_props
  import phub_pkg::*;
(
    input logic        clk_i,
    input logic        rst_i,
    input logic        start_valid_i,
    input queue_t      start_queue_i,
    input queue_t      fin_queue,       // of the finished descriptor that is offered
    input queue_cfg_t  cfg_i,
    input logic        sending,
    input logic        sent,
    input logic        q,
    input addr_t       cpl_addr_o,
    input cpl_t        cpl_data_o,
    input logic        cpl_done_valid_i,
    input logic        irq_valid_o,
    input logic [1:0]  written_count,
    input logic [1:0]  ack_count,
    input logic [12:0] ring0,
    input logic [12:0] ring1,
    input logic [3:0]  log2_0,          // left open: size and place of each ring, as it begins
    input logic [3:0]  log2_1,
    input addr_t       base_0,
    input addr_t       base_1
);
  logic begun_q = 1'b0;
  logic [1:0] started_q, unacked_q;
  logic [15:0] entries_q[2];  // entries written since the ring began
  logic [3:0] log2_q[2];
  addr_t base_q[2];

  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    reset_first : assume (begun_q || rst_i);
    queues_exist : assume (start_queue_i < 6'd2 && fin_queue < 6'd2);
    sizes : assume (log2_0 >= 4'd1 && log2_0 <= 4'd12 && log2_1 >= 4'd1 && log2_1 <= 4'd12);
    // The table of a queue holds still while it runs, and a queue begins before it completes anything.
    table_still : assume (!sending || (started_q[q] && cfg_i.cq_log2 == log2_q[q] && cfg_i.cq_base == base_q[q]));
    acks_of_entries : assume (!cpl_done_valid_i || unacked_q != '0);
    unacked_q <= rst_i ? '0 : unacked_q + 2'(sent) - 2'(cpl_done_valid_i);
    if (!rst_i) begin
      unacked_a : assert (3'(written_count) == 3'(unacked_q) + 3'(ack_count) && written_count <= 2'd2);
      irq_a : assert (!irq_valid_o || ack_count != '0);
    end
  end

  for (genvar s = 0; s < 2; s++) begin : gen_queue
    logic [12:0] ring;
    logic [11:0] place;
    logic here, starts, odd_round;
    assign ring = s == 0 ? ring0 : ring1;
    assign here = sent && 32'(q) == s;
    assign starts = start_valid_i && 32'(start_queue_i) == s;
    assign place = 12'(entries_q[s] & ((16'd1 << log2_q[s]) - 16'd1));
    assign odd_round = 1'(entries_q[s] >> log2_q[s]);

    always_ff @(posedge clk_i) begin
      if (rst_i) begin
        started_q[s] <= 1'b0;
      end else if (starts) begin
        started_q[s] <= 1'b1;
        entries_q[s] <= '0;
        log2_q[s] <= s == 0 ? log2_0 : log2_1;
        base_q[s] <= s == 0 ? base_0 : base_1;
      end else if (here) begin
        entries_q[s] <= entries_q[s] + 16'd1;
      end
      if (!rst_i) begin
        // What makes it inductive.
        ring_a : assert (!started_q[s] || (log2_q[s] >= 4'd1 && log2_q[s] <= 4'd12 && ring == {odd_round, place}));
        // What is promised.
        place_a : assert (!here || cpl_addr_o == base_q[s] + {46'd0, place, 6'd0});
        phase_a : assert (!here || cpl_data_o.phase == !odd_round);
        wrap_c : cover (here && odd_round && place == '0);
      end
    end
  end
endmodule : cq_post_props

bind cq_post cq_post_props u_props (
    .*,
    .fin_queue(fin_i.done.queue),
    .sending(state_q == SendEntry),
    .ack_count(u_acks.count_o),
    .ring0(rings[0]),
    .ring1(rings[1]),
    .log2_0(),
    .log2_1(),
    .base_0(),
    .base_1()
);
