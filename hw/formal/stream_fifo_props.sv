// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// stream_fifo gives every word once, unchanged and in order: whichever pushed word is picked, it comes out after
// exactly the words that were before it. Proved for a depth of 3 (a depth that is no power of two).
module stream_fifo_props #(
    parameter int unsigned Width = 2
) (
    input logic             clk_i,
    input logic             rst_i,
    input logic             push_valid_i,
    input logic             push_ready_o,
    input logic [Width-1:0] push_data_i,
    input logic             pop_valid_o,
    input logic             pop_ready_i,
    input logic [Width-1:0] pop_data_o,
    input logic [1:0]       count_o,
    input logic [1:0]       rptr_q,
    input logic [1:0]       wptr_q,
    input logic [Width-1:0] word0,
    input logic [Width-1:0] word1,
    input logic [Width-1:0] word2,
    input logic             pick  // left open: may be anything
);
  logic watching_q, stalled_q;
  logic begun_q = 1'b0;
  logic [1:0] ahead_q;
  logic [Width-1:0] data_q, shown_q;
  logic push, pop;
  assign push = push_valid_i && push_ready_o;
  assign pop = pop_valid_o && pop_ready_i;

  // The proof begins with a reset.
  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    reset_first : assume (begun_q || rst_i);
    stalled_q <= pop_valid_o && !pop_ready_i && !rst_i;
    shown_q <= pop_data_o;
    if (rst_i) begin
      watching_q <= 1'b0;
    end else if (!watching_q) begin
      watching_q <= push && pick;
      ahead_q <= count_o - {1'b0, pop};
      data_q <= push_data_i;
    end else if (pop) begin
      watching_q <= ahead_q != '0;
      ahead_q <= ahead_q - 2'd1;
    end
  end

  logic [2:0] place, span;
  logic [Width-1:0] stored;
  assign place = {1'b0, rptr_q} + {1'b0, ahead_q};
  assign stored = place == 3'd0 || place == 3'd3 ? word0 : place == 3'd1 || place == 3'd4 ? word1 : word2;
  assign span = {1'b0, rptr_q} + {1'b0, count_o};

  always_ff @(posedge clk_i) begin
    if (!rst_i) begin
      // What makes it inductive: pointers agree with the count, the watched word lies where it should.
      pointers_a : assert (rptr_q < 2'd3 && wptr_q < 2'd3 && count_o <= 2'd3
                           && (span == {1'b0, wptr_q} || span == {1'b0, wptr_q} + 3'd3));
      watched_a : assert (!watching_q || (ahead_q < count_o && stored == data_q));
      // What is promised.
      data_a : assert (!(watching_q && ahead_q == '0) || (pop_valid_o && pop_data_o == data_q));
      stable_a : assert (!stalled_q || (pop_valid_o && pop_data_o == shown_q));
      full_c : cover (!push_ready_o && watching_q && ahead_q == 2'd2);
      through_c : cover (push && pop && watching_q && ahead_q == '0);
    end
  end
endmodule : stream_fifo_props

bind stream_fifo stream_fifo_props #(
    .Width(Width)
) u_props (
    .*,
    .word0(mem[0]),
    .word1(mem[1]),
    .word2(mem[2]),
    .pick()
);
