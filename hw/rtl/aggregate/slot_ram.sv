// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// The sums: one beat a word. Two copies written alike, so that the adders and egress read at once.
// Read latency 1 cycle for the adders (port a), 2 for egress (port b).
module slot_ram #(
    parameter int unsigned Width = 512,    // bits of a beat
    parameter int unsigned Depth = 16384,  // beats: slots times beats a segment
    localparam int unsigned AddrW = $clog2(Depth)
) (
    input  logic             clk_i,
    input  logic             we_i,
    input  logic [AddrW-1:0] waddr_i,
    input  logic [Width-1:0] wdata_i,
    input  logic             a_re_i,
    input  logic [AddrW-1:0] a_addr_i,
    output logic [Width-1:0] a_data_o,
    input  logic             b_re_i,
    input  logic [AddrW-1:0] b_addr_i,
    output logic [Width-1:0] b_data_o
);
  sdp_ram #(
      .Width(Width),
      .Depth(Depth)
  ) u_a (
      .clk_i,
      .we_i,
      .waddr_i,
      .wdata_i,
      .re_i(a_re_i),
      .raddr_i(a_addr_i),
      .rdata_o(a_data_o)
  );

  logic [Width-1:0] b_data, b_data_q;
  logic b_re_q;
  sdp_ram #(
      .Width(Width),
      .Depth(Depth)
  ) u_b (
      .clk_i,
      .we_i,
      .waddr_i,
      .wdata_i,
      .re_i(b_re_i),
      .raddr_i(b_addr_i),
      .rdata_o(b_data)
  );

  always_ff @(posedge clk_i) begin
    b_re_q <= b_re_i;
    if (b_re_q) b_data_q <= b_data;
  end
  assign b_data_o = b_data_q;
endmodule : slot_ram
