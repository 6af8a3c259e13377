// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Interrupt requests with coalescing: a vector fires after `count` events or `timeout` cycles after the first of
// them, whichever is sooner. Errors (vector 0) fire at once. Pending vectors are looked at in turn, one a cycle,
// so a timeout may be late by as many cycles as there are vectors.
`include "phub_asserts.svh"
module msix #(
    parameter int unsigned Vectors = 65  // 2..128
) (
    input  logic        clk_i,
    input  logic        rst_i,
    input  logic        irq_valid_i,
    output logic        irq_ready_o,
    input  logic [6:0]  irq_vector_i,
    input  logic        err_valid_i,
    output logic        err_ready_o,
    input  logic [7:0]  coalesce_count_i,
    input  logic [23:0] coalesce_timeout_i,
    output logic        irq_valid_o,
    input  logic        irq_ready_i,
    output logic [6:0]  irq_vector_o,
    output logic        busy_o
);
  localparam int unsigned VectorW = $clog2(Vectors);
  typedef logic [VectorW-1:0] vec_t;

  typedef struct packed {
    logic [7:0]  count;  // events not yet signalled
    logic [31:0] since;  // of the first of them
  } pending_t;

  pending_t pending[Vectors];
  logic [Vectors-1:0] waiting_q;
  logic [31:0] now_q;
  vec_t scan_q, in;
  logic fire_valid_q;
  vec_t fire_q;
  logic due, reached;
  logic [7:0] next_count;

  assign in = irq_vector_i[VectorW-1:0];
  assign next_count = waiting_q[in] ? pending[in].count + 8'd1 : 8'd1;
  assign reached = next_count >= coalesce_count_i;
  // A vector that is due leaves through one register; new events wait while that is full.
  assign err_ready_o = !fire_valid_q;
  assign irq_ready_o = !fire_valid_q && !err_valid_i;
  assign due = waiting_q[scan_q] && now_q - pending[scan_q].since >= {8'd0, coalesce_timeout_i};

  always_ff @(posedge clk_i) begin
    now_q <= now_q + 32'd1;
    if (fire_valid_q && irq_ready_i) fire_valid_q <= 1'b0;
    if (|waiting_q) scan_q <= 32'(scan_q) == Vectors - 1 ? '0 : scan_q + vec_t'(1);
    if (err_valid_i && err_ready_o) begin
      fire_valid_q <= 1'b1;
      fire_q <= '0;
    end else if (irq_valid_i && irq_ready_o) begin
      if (reached) begin
        fire_valid_q <= 1'b1;
        fire_q <= in;
        waiting_q[in] <= 1'b0;
      end else begin
        waiting_q[in] <= 1'b1;
        pending[in].count <= next_count;
        if (!waiting_q[in]) pending[in].since <= now_q;
      end
    end else if (due && !fire_valid_q) begin
      fire_valid_q <= 1'b1;
      fire_q <= scan_q;
      waiting_q[scan_q] <= 1'b0;
    end
    if (rst_i) begin
      now_q <= '0;
      scan_q <= '0;
      fire_valid_q <= 1'b0;
      waiting_q <= '0;
    end
  end

  assign irq_valid_o = fire_valid_q;
  assign irq_vector_o = 7'(fire_q);
  assign busy_o = fire_valid_q || |waiting_q;

  `PHUB_ASSERT_STATIC(vectors_a, Vectors >= 2 && Vectors <= 128)
  `PHUB_ASSERT(vector_known_a, !irq_valid_i || 32'(irq_vector_i) < Vectors)
endmodule : msix
