// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// RAM with one write and one registered read port. Read latency 1 cycle; a read that meets a write of
// the same address gives the old word. Contents are undefined at power-on.
module sdp_ram #(
    parameter int unsigned Width = 32,  // bits of a word, >= 1
    parameter int unsigned Depth = 64,  // words, >= 2
    localparam int unsigned AddrW = $clog2(Depth)
) (
    input  logic             clk_i,
    input  logic             we_i,
    input  logic [AddrW-1:0] waddr_i,
    input  logic [Width-1:0] wdata_i,
    input  logic             re_i,
    input  logic [AddrW-1:0] raddr_i,
    output logic [Width-1:0] rdata_o
);
  logic [Width-1:0] mem[Depth];
  logic [Width-1:0] rdata_q;

  always_ff @(posedge clk_i) begin
    if (we_i) mem[waddr_i] <= wdata_i;
    if (re_i) rdata_q <= mem[raddr_i];
  end

  assign rdata_o = rdata_q;
endmodule : sdp_ram
