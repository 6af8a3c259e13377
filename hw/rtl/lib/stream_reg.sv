// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Register slice that cuts both directions. Latency 1 cycle, one word a cycle.
module stream_reg #(
    parameter int unsigned Width = 32  // bits of a word
) (
    input  logic             clk_i,
    input  logic             rst_i,
    input  logic             push_valid_i,
    output logic             push_ready_o,
    input  logic [Width-1:0] push_data_i,
    output logic             pop_valid_o,
    input  logic             pop_ready_i,
    output logic [Width-1:0] pop_data_o
);
  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width(Width),
      .Depth(2)
  ) u_fifo (
      .clk_i,
      .rst_i,
      .push_valid_i,
      .push_ready_o,
      .push_data_i,
      .pop_valid_o,
      .pop_ready_i,
      .pop_data_o,
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY
endmodule : stream_reg
