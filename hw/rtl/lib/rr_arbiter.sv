// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Round-robin arbiter. The grant is combinational, falls on the first request at or after the one
// that follows the last acknowledged, and so each request is granted after at most Num - 1 others.
// A granted request that stays up keeps the grant until `ack_i` unless a request nearer to the
// pointer comes up; hold the index outside if that matters.
`include "phub_asserts.svh"
module rr_arbiter #(
    parameter int unsigned Num = 2,  // requesters, >= 1
    localparam int unsigned IdxW = Num > 1 ? $clog2(Num) : 1
) (
    input  logic            clk_i,
    input  logic            rst_i,
    input  logic [Num-1:0]  req_i,
    input  logic            ack_i,
    output logic            grant_valid_o,
    output logic [IdxW-1:0] grant_idx_o
);
  logic [IdxW-1:0] next_q;  // where the search begins
  logic [Num-1:0] upper;

  assign grant_valid_o = |req_i;
  assign upper = req_i & ({Num{1'b1}} << next_q);

  always_comb begin
    grant_idx_o = '0;
    if (|req_i) begin
      for (int i = int'(Num) - 1; i >= 0; i--) begin
        if (|upper ? upper[i] : req_i[i]) grant_idx_o = IdxW'(i);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) next_q <= '0;
    else if (ack_i && grant_valid_o) next_q <= 32'(grant_idx_o) == Num - 1 ? '0 : grant_idx_o + IdxW'(1);
  end

  `PHUB_ASSERT(grant_requested_a, !grant_valid_o || req_i[grant_idx_o])
endmodule : rr_arbiter
