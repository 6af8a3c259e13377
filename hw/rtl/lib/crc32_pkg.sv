// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// CRC-32 (IEEE 802.3, reflected, polynomial 0xEDB88320) over 32-bit words, as XOR matrices. The state
// begins as all ones and the CRC is its complement at the end; neither is done here.
package crc32_pkg;

  localparam int unsigned WordsMax = 16;
  localparam int unsigned BitsMax = 32 * WordsMax;
  localparam logic [31:0] Poly = 32'hedb8_8320;

  typedef logic [31:0][BitsMax-1:0] beat_matrix_t;
  typedef logic [31:0][31:0] word_matrix_t;  // [input bit][output bits]
  typedef logic [11:0][31:0][31:0] advance_matrix_t;

  // Row i: the message bits that output bit i is the parity of. The last message bit alone gives Poly,
  // each earlier one what the later one gives after one more step.
  function automatic beat_matrix_t beat_matrix();
    beat_matrix_t rows;
    logic [31:0] column;
    column = Poly;
    for (int bit_idx = int'(BitsMax) - 1; bit_idx >= 0; bit_idx--) begin
      for (int i = 0; i < 32; i++) rows[i][bit_idx] = column[i];
      column = column[0] ? (column >> 1) ^ Poly : column >> 1;
    end
    return rows;
  endfunction

  function automatic logic [31:0] apply(word_matrix_t matrix, logic [31:0] state);
    logic [31:0] sum;
    sum = '0;
    for (int i = 0; i < 32; i++) if (state[i]) sum ^= matrix[i];
    return sum;
  endfunction

  // Entry k: what 2**k zero words do to a state.
  function automatic advance_matrix_t advance_matrix();
    advance_matrix_t all;
    logic [31:0] column;
    for (int i = 0; i < 32; i++) begin
      column = 32'd1 << i;
      for (int step = 0; step < 32; step++) column = column[0] ? (column >> 1) ^ Poly : column >> 1;
      all[0][i] = column;
    end
    for (int k = 1; k < 12; k++) begin
      for (int i = 0; i < 32; i++) all[k][i] = apply(all[k-1], all[k-1][i]);
    end
    return all;
  endfunction

  localparam beat_matrix_t BeatMatrix = beat_matrix();
  localparam advance_matrix_t AdvanceMatrix = advance_matrix();

  // The state after `words` (1..16) words, the first in the lowest bits. A zero state ignores leading
  // zeros, so a short message is moved up to end where a full one does.
  function automatic logic [31:0] crc32_words(logic [31:0] state, logic [BitsMax-1:0] data, logic [4:0] words);
    logic [BitsMax-1:0] message;
    logic [31:0] result;
    message = data ^ BitsMax'(state);
    if (words != 5'(WordsMax)) message = message << {5'(WordsMax) - words, 5'd0};
    for (int i = 0; i < 32; i++) result[i] = ^(message & BeatMatrix[i]);
    return result;
  endfunction

  // The state after 2**log2 zero words, log2 0..11.
  function automatic logic [31:0] crc32_advance(logic [31:0] state, logic [3:0] log2);
    return apply(AdvanceMatrix[log2], state);
  endfunction

endpackage : crc32_pkg
