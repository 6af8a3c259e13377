// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// The last errors, oldest first, for the host to read. When full, new errors are lost and the next entry that
// gets in is marked. Never blocks.
module error_fifo
  import phub_pkg::*;
#(
    parameter int unsigned Depth = 16
) (
    input  logic    clk_i,
    input  logic    rst_i,
    input  logic    push_i,
    input  err_ev_t err_i,
    output logic    valid_o,
    output logic    overflow_o,  // entries were lost before this one
    output err_ev_t err_o,
    input  logic    pop_i
);
  logic push_ready, lost_q;

  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width($bits(err_ev_t) + 1),
      .Depth(Depth)
  ) u_fifo (
      .clk_i,
      .rst_i,
      .push_valid_i(push_i),
      .push_ready_o(push_ready),
      .push_data_i({lost_q, err_i}),
      .pop_valid_o(valid_o),
      .pop_ready_i(pop_i),
      .pop_data_o({overflow_o, err_o}),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  always_ff @(posedge clk_i) begin
    if (rst_i) lost_q <= 1'b0;
    else if (push_i) lost_q <= !push_ready;
  end
endmodule : error_fifo
