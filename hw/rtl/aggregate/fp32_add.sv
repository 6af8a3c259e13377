// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// FP32 adder: IEEE 754-2019 round to nearest even, subnormals kept, every NaN result is 0x7fc00000.
// Latency 7 cycles, one sum a cycle. The stages: order, distance, align, add, count zeros, normalize, round. A stage
// without work keeps still, which saves power, and a third of the time of a simulation.
module fp32_add (
    input  logic        clk_i,
    input  logic [6:0]  stage_i,  // bit k: stage k + 1 takes what is before it
    input  logic [31:0] a_i,
    input  logic [31:0] b_i,
    output logic [31:0] sum_o
);
  // What decides the result without looking at the sum.
  typedef struct packed {
    logic nan;
    logic infinite;
    logic sign;      // of the larger operand
    logic subtract;
    logic zero_neg;  // both operands are negative, so an exact zero is -0
  } kind_t;

  // ------------------------------------------------------------------ 1: the larger magnitude first
  kind_t kind1_q, kind2_q, kind3_q, kind4_q, kind5_q, kind6_q;
  logic [7:0] exp1_q, exp1s_q;
  logic [23:0] big1_q, small1_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[0]) begin
      automatic logic [31:0] larger = a_i, smaller = b_i;
      if (a_i[30:0] < b_i[30:0]) begin
        larger = b_i;
        smaller = a_i;
      end
      kind1_q.nan <= (&larger[30:23] && larger[22:0] != '0)
          || (&smaller[30:23] && (smaller[22:0] != '0 || larger[31] != smaller[31]));
      kind1_q.infinite <= &larger[30:23];
      kind1_q.sign <= larger[31];
      kind1_q.subtract <= larger[31] != smaller[31];
      kind1_q.zero_neg <= larger[31] && smaller[31];
      // A subnormal has the exponent of the smallest normal number and no hidden bit.
      exp1_q <= larger[30:23] | {7'd0, larger[30:23] == '0};
      exp1s_q <= smaller[30:23] | {7'd0, smaller[30:23] == '0};
      big1_q <= {larger[30:23] != '0, larger[22:0]};
      small1_q <= {smaller[30:23] != '0, smaller[22:0]};
    end
  end

  // ------------------------------------------------------------------ 2: how far apart
  logic [7:0] exp2_q;
  logic [4:0] shift2_q;
  logic [23:0] big2_q, small2_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[1]) begin
      automatic logic [7:0] apart = exp1_q - exp1s_q;
      kind2_q <= kind1_q;
      exp2_q <= exp1_q;
      big2_q <= big1_q;
      small2_q <= small1_q;
      shift2_q <= apart > 8'd27 ? 5'd27 : apart[4:0];  // beyond, only the sticky bit is left
    end
  end

  // ------------------------------------------------------------------ 3: align; guard, round and sticky bit
  logic [7:0] exp3_q;
  logic [26:0] big3_q, small3_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[2]) begin
      automatic logic [53:0] aligned = {small2_q, 30'd0} >> shift2_q;
      kind3_q <= kind2_q;
      exp3_q <= exp2_q;
      big3_q <= {big2_q, 3'd0};
      small3_q <= {aligned[53:28], |aligned[27:0]};
    end
  end

  // ------------------------------------------------------------------ 4: add
  logic [7:0] exp4_q;
  logic [27:0] sum4_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[3]) begin
      kind4_q <= kind3_q;
      exp4_q <= exp3_q;
      sum4_q <= kind3_q.subtract ? {1'b0, big3_q} - {1'b0, small3_q} : {1'b0, big3_q} + {1'b0, small3_q};
    end
  end

  // ------------------------------------------------------------------ 5: leading zeros
  logic [7:0] exp5_q;
  logic [27:0] sum5_q;
  logic [4:0] left5_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[4]) begin
      automatic logic [4:0] zeros = 5'd26;
      automatic logic [7:0] room = exp4_q - 8'd1;  // the exponent may not fall below that of a subnormal
      for (int i = 0; i <= 26; i++) if (sum4_q[i]) zeros = 5'(26 - i);
      kind5_q <= kind4_q;
      exp5_q <= exp4_q;
      sum5_q <= sum4_q;
      left5_q <= 8'(zeros) > room ? room[4:0] : zeros;
    end
  end

  // ------------------------------------------------------------------ 6: normalize
  logic [8:0] exp6_q;
  logic [26:0] sum6_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[5]) begin
      kind6_q <= kind5_q;
      if (sum5_q[27]) begin
        exp6_q <= {1'b0, exp5_q} + 9'd1;
        sum6_q <= {sum5_q[27:2], |sum5_q[1:0]};
      end else begin
        exp6_q <= {1'b0, exp5_q} - {4'd0, left5_q};
        sum6_q <= sum5_q[26:0] << left5_q;
      end
    end
  end

  // ------------------------------------------------------------------ 7: round and pack
  logic [31:0] sum_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[6]) begin
      // Without the hidden bit the number is subnormal; a carry out of the fraction moves into the exponent,
      // which turns the largest subnormal into the smallest normal number and the largest number into infinity.
      automatic logic round_up = sum6_q[2] && (sum6_q[1] || sum6_q[0] || sum6_q[3]);
      automatic logic [7:0] exp_field = sum6_q[26] ? exp6_q[7:0] : 8'd0;
      automatic logic [30:0] packed_up = {exp_field, sum6_q[25:3]} + 31'(round_up);
      if (kind6_q.nan) sum_q <= 32'h7fc0_0000;
      else if (kind6_q.infinite || exp6_q >= 9'd255) sum_q <= {kind6_q.sign, 8'hff, 23'd0};
      else if (sum6_q == '0) sum_q <= {kind6_q.zero_neg, 31'd0};
      else sum_q <= {kind6_q.sign, packed_up};
    end
  end
  assign sum_o = sum_q;
endmodule : fp32_add
