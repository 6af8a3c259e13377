// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// rr_arbiter is fair: a request that stays up is served after at most Num - 1 others, whichever it is.
module rr_arbiter_props #(
    parameter int unsigned Num = 5,
    localparam int unsigned IdxW = $clog2(Num)
) (
    input logic            clk_i,
    input logic            rst_i,
    input logic [Num-1:0]  req_i,
    input logic            ack_i,
    input logic            grant_valid_o,
    input logic [IdxW-1:0] grant_idx_o,
    input logic [IdxW-1:0] next_q,
    input logic [IdxW-1:0] pick  // left open: may be anything
);
  logic begun_q = 1'b0;
  logic [IdxW-1:0] watched_q;
  logic [IdxW:0] waited_q, distance;
  logic served;
  assign served = ack_i && grant_valid_o;
  assign distance = watched_q >= next_q ? {1'b0, watched_q} - {1'b0, next_q}
      : {1'b0, watched_q} + (IdxW + 1)'(Num) - {1'b0, next_q};

  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    reset_first : assume (begun_q || rst_i);
    watched_in_range : assume (!rst_i || 32'(pick) < Num);
    if (rst_i) watched_q <= pick;
    if (rst_i || !req_i[watched_q] || (served && grant_idx_o == watched_q)) waited_q <= '0;
    else if (served) waited_q <= waited_q + 1'd1;
    if (!rst_i) begin
      // What makes it inductive: every grant to another brings the pointer nearer.
      range_a : assert (32'(watched_q) < Num && 32'(next_q) < Num);
      nearer_a : assert (32'(waited_q) + 32'(distance) < Num);
      // What is promised.
      served_a : assert (grant_valid_o == |req_i && (!grant_valid_o || req_i[grant_idx_o]));
      fair_a : assert (32'(waited_q) < Num);
      last_c : cover (32'(waited_q) == Num - 1 && served && grant_idx_o == watched_q);
    end
  end
endmodule : rr_arbiter_props

bind rr_arbiter rr_arbiter_props #(
    .Num(Num)
) u_props (
    .*,
    .pick()
);
