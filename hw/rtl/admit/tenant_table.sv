// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// The tenant table: which slots, world size, token and epoch each tenant has.
//
// The host writes it register by register (layout: hw/regs/hub.rdl), CTRL last. A tenant with a world size of 0 or
// more than Workers, or with slots outside the card's, reads as disabled. A look-up answers in the next cycle, for
// all ports at once. An epoch bump takes one cycle in which the host does not write.
`include "phub_asserts.svh"
module tenant_table
  import phub_pkg::*;
#(
    parameter int unsigned Tenants = 64,  // 1..64
    parameter int unsigned Workers = 64,  // 1..64
    parameter int unsigned Slots = 1024,  // of the card
    parameter int unsigned NumPorts = 5   // look-up ports
) (
    input  logic        clk_i,
    input  logic        rst_i,
    input  logic        soft_rst_i,  // disables every tenant
    // host
    input  tbl_req_t    req_i,
    output tbl_rsp_t    rsp_o,
    // look-ups
    input  tenant_t     tenant_i[NumPorts],
    output tenant_cfg_t cfg_o[NumPorts],
    // next epoch
    input  logic        bump_valid_i,
    output logic        bump_ready_o,
    input  tenant_t     bump_tenant_i
);
  typedef enum logic [2:0] {
    RegCtrl    = 3'd0,
    RegSlots   = 3'd1,
    RegTokenLo = 3'd2,
    RegTokenHi = 3'd3,
    RegEpoch   = 3'd4
  } reg_e;

  localparam int unsigned NumWords = 5;
  localparam int unsigned TenantW = Tenants > 1 ? $clog2(Tenants) : 1;
  typedef logic [TenantW-1:0] tidx_t;

  logic [31:0] words[NumWords][Tenants];
  logic [Tenants-1:0] enable_q;

  logic access, write, in_range, known;
  tidx_t idx, bump_idx;
  logic [2:0] req_reg;

  assign idx = req_i.addr[6+:TenantW];
  assign bump_idx = bump_tenant_i[TenantW-1:0];
  assign req_reg = req_i.addr[4:2];
  assign in_range = 32'(req_i.addr[17:6]) < Tenants;
  assign known = in_range && !req_i.addr[5] && 32'(req_reg) < NumWords;
  assign access = req_i.valid && !rsp_o.ack;
  assign write = access && known && req_i.write;
  assign bump_ready_o = !write;

  always_ff @(posedge clk_i) begin
    if (write) words[req_reg][idx] <= req_i.wdata;
    else if (bump_valid_i) words[RegEpoch][bump_idx] <= words[RegEpoch][bump_idx] + 32'd1;
  end

  always_ff @(posedge clk_i) begin
    rsp_o.ack <= access;
    if (access) begin
      rsp_o.rdata <= !known ? '0 : words[req_reg][idx];
      if (known && req_reg == RegCtrl) rsp_o.rdata[0] <= enable_q[idx];
    end
    if (write && req_reg == RegCtrl) enable_q[idx] <= req_i.wdata[0];
    if (rst_i || soft_rst_i) enable_q <= '0;
    if (rst_i) rsp_o <= '0;
  end

  for (genvar p = 0; p < int'(NumPorts); p++) begin : gen_port
    tidx_t t;
    logic enable_p_q;
    logic [31:0] ctrl_q, slots_q, epoch_q;
    logic [63:0] token_q;
    logic sane;
    assign t = tenant_i[p][TenantW-1:0];
    always_ff @(posedge clk_i) begin
      enable_p_q <= enable_q[t] && 32'(tenant_i[p]) < Tenants;
      ctrl_q <= words[RegCtrl][t];
      slots_q <= words[RegSlots][t];
      token_q <= {words[RegTokenHi][t], words[RegTokenLo][t]};
      epoch_q <= words[RegEpoch][t];
    end
    // 1 << log2 may pass the card's slots by far, so log2 is bounded first.
    assign sane = ctrl_q[14:8] != '0 && 32'(ctrl_q[14:8]) <= Workers && slots_q[20:16] <= 5'd16
        && {16'd0, slots_q[15:0]} + (32'd1 << slots_q[20:16]) <= Slots;
    assign cfg_o[p] = '{enable: enable_p_q && sane, workers: ctrl_q[14:8], slot_base: slots_q[15:0],
                        slot_log2: slots_q[20:16], epoch: epoch_q, token: token_q};
  end

  `PHUB_ASSERT_STATIC(tenants_a, Tenants >= 1 && Tenants <= TenantsMax)
endmodule : tenant_table
