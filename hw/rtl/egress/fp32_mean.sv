// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// FP32 value divided by a number of workers (1..64), rounded to nearest even; every NaN is 0x7fc00000.
// Latency 6 cycles, one a cycle. A stage without work keeps still (see fp32_add).
//
// count = odd * 2^t. The power of two only moves the exponent. For the odd part, with m the 24-bit significand,
// q = floor(m * 2^7 / odd) has at least 25 significant bits, and is exactly (m * R) >> 30 for
// R = floor(2^37 / odd) + 1: the error m * 2^7 * (R * odd - 2^37) / (odd * 2^37) is below 1 / odd, because
// m * 2^7 < 2^31 and R * odd - 2^37 <= odd <= 63 (Granlund and Montgomery, PLDI 1994). The division leaves
// no remainder iff the fraction (m * R * 2^7) mod 2^37 is below R.
module fp32_mean (
    input  logic        clk_i,
    input  logic [5:0]  stage_i,  // bit k: stage k + 1 takes what is before it
    input  logic [31:0] value_i,
    input  logic [6:0]  count_i,
    output logic [31:0] mean_o
);
  typedef logic [31:0][36:0] reciprocals_t;

  // Entry i: R of the odd number 2i + 1; entry 0 (division by 1) is not used.
  function automatic reciprocals_t reciprocals();
    reciprocals_t table_r;
    table_r[0] = '0;
    for (int unsigned i = 1; i < 32; i++) table_r[i] = 37'(64'h20_0000_0000 / 64'(2 * i + 1)) + 37'd1;
    return table_r;
  endfunction
  localparam reciprocals_t Reciprocals = reciprocals();

  typedef struct packed {
    logic nan;
    logic infinite;
    logic sign;
  } kind_t;

  // ------------------------------------------------------------------ 1: significand, exponent, divisor
  kind_t kind1_q, kind2_q, kind3_q, kind4_q, kind5_q;
  logic [23:0] man1_q;
  logic signed [9:0] exp1_q;
  logic [36:0] recip1_q;
  logic one1_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[0]) begin
      automatic logic [2:0] twos = '0;
      automatic logic [6:0] odd;
      for (int i = 6; i >= 0; i--) if (count_i[i]) twos = 3'(i);
      odd = count_i >> twos;
      kind1_q.nan <= &value_i[30:23] && value_i[22:0] != '0;
      kind1_q.infinite <= &value_i[30:23];
      kind1_q.sign <= value_i[31];
      man1_q <= {value_i[30:23] != '0, value_i[22:0]};
      // Of the quotient as if its top bit were the hidden one; a subnormal has the smallest exponent.
      exp1_q <= $signed({2'b00, value_i[30:23] | {7'd0, value_i[30:23] == '0}}) - $signed({7'd0, twos});
      recip1_q <= Reciprocals[odd[5:1]];
      one1_q <= odd == 7'd1;
    end
  end

  // ------------------------------------------------------------------ 2: multiply
  logic [60:0] product2_q;
  logic [36:0] recip2_q;
  logic [23:0] man2_q;
  logic signed [9:0] exp2_q;
  logic one2_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[1]) begin
      kind2_q <= kind1_q;
      exp2_q <= exp1_q;
      one2_q <= one1_q;
      man2_q <= man1_q;
      recip2_q <= recip1_q;
      product2_q <= 61'(man1_q) * 61'(recip1_q);
    end
  end

  // ------------------------------------------------------------------ 3: quotient and remainder
  logic [30:0] quot3_q;
  logic sticky3_q;
  logic signed [9:0] exp3_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[2]) begin
      kind3_q <= kind2_q;
      exp3_q <= exp2_q;
      quot3_q <= one2_q ? {man2_q, 7'd0} : product2_q[60:30];
      sticky3_q <= !one2_q && {product2_q[29:0], 7'd0} >= recip2_q;
    end
  end

  // ------------------------------------------------------------------ 4: how far to shift
  logic [30:0] quot4_q;
  logic sticky4_q, right4_q;
  logic [4:0] shift4_q;
  logic [7:0] exp4_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[3]) begin
      // How far left before the exponent is that of a subnormal; right if negative.
      automatic logic signed [9:0] room = exp3_q - 10'sd1;
      automatic logic [4:0] zeros = 5'd30;
      for (int i = 0; i <= 30; i++) if (quot3_q[i]) zeros = 5'(30 - i);
      kind4_q <= kind3_q;
      quot4_q <= quot3_q;
      sticky4_q <= sticky3_q;
      right4_q <= room < 0;
      if (room < 0) begin
        shift4_q <= 5'(-room);
        exp4_q <= 8'd1;
      end else if ($signed({5'd0, zeros}) > room) begin
        shift4_q <= room[4:0];
        exp4_q <= 8'd1;
      end else begin
        shift4_q <= zeros;
        exp4_q <= exp3_q[7:0] - {3'd0, zeros};
      end
    end
  end

  // ------------------------------------------------------------------ 5: shift
  logic [30:0] quot5_q;
  logic sticky5_q;
  logic [7:0] exp5_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[4]) begin
      automatic logic [30:0] lost = quot4_q & ((31'd1 << shift4_q) - 31'd1);
      kind5_q <= kind4_q;
      exp5_q <= exp4_q;
      quot5_q <= right4_q ? quot4_q >> shift4_q : quot4_q << shift4_q;
      sticky5_q <= sticky4_q || (right4_q && lost != '0);
    end
  end

  // ------------------------------------------------------------------ 6: round and pack
  logic [31:0] mean_q;
  always_ff @(posedge clk_i) begin
    if (stage_i[5]) begin
      automatic logic round_up = quot5_q[6] && (quot5_q[5:0] != '0 || sticky5_q || quot5_q[7]);
      if (kind5_q.nan) mean_q <= 32'h7fc0_0000;
      else if (kind5_q.infinite) mean_q <= {kind5_q.sign, 8'hff, 23'd0};
      else mean_q <= {kind5_q.sign, {quot5_q[30] ? exp5_q : 8'd0, quot5_q[29:7]} + 31'(round_up)};
    end
  end
  assign mean_o = mean_q;
endmodule : fp32_mean
