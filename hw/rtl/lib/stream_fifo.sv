// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Show-ahead FIFO. Latency 1 cycle from push to pop, one word a cycle, no combinational path from
// one side to the other (a full FIFO takes the next word in the cycle after a pop).
`include "phub_asserts.svh"
module stream_fifo #(
    parameter int unsigned Width = 32,  // bits of a word, >= 1
    parameter int unsigned Depth = 2,   // words, >= 1
    localparam int unsigned CountW = $clog2(Depth + 1)
) (
    input  logic              clk_i,
    input  logic              rst_i,
    input  logic              push_valid_i,
    output logic              push_ready_o,
    input  logic [Width-1:0]  push_data_i,
    output logic              pop_valid_o,
    input  logic              pop_ready_i,
    output logic [Width-1:0]  pop_data_o,
    output logic [CountW-1:0] count_o
);
  localparam int unsigned PtrW = Depth > 1 ? $clog2(Depth) : 1;

  logic [Width-1:0] mem[Depth];
  logic [PtrW-1:0] wptr_q, rptr_q;
  logic [CountW-1:0] count_q;
  logic push, pop;

  assign push_ready_o = count_q != CountW'(Depth);
  assign pop_valid_o = count_q != '0;
  assign pop_data_o = mem[rptr_q];
  assign count_o = count_q;
  assign push = push_valid_i && push_ready_o;
  assign pop = pop_valid_o && pop_ready_i;

  function automatic logic [PtrW-1:0] next(logic [PtrW-1:0] ptr);
    return 32'(ptr) == Depth - 1 ? '0 : ptr + PtrW'(1);
  endfunction

  always_ff @(posedge clk_i) begin
    if (push) mem[wptr_q] <= push_data_i;
    if (rst_i) begin
      wptr_q  <= '0;
      rptr_q  <= '0;
      count_q <= '0;
    end else begin
      if (push) wptr_q <= next(wptr_q);
      if (pop) rptr_q <= next(rptr_q);
      if (push != pop) count_q <= push ? count_q + CountW'(1) : count_q - CountW'(1);
    end
  end

  `PHUB_ASSERT_STATIC(depth_a, Depth >= 1)
  `PHUB_ASSERT(count_bounded_a, 32'(count_q) <= Depth)
  `PHUB_COVER(full_c, !push_ready_o)
endmodule : stream_fifo
