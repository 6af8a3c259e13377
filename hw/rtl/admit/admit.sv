// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Admission: a segment goes on as itself only if its tenant is on, its worker belongs to the tenant, and its epoch
// is the tenant's; else it goes on marked, to be dropped and reported. 2 cycles, one header every 2 cycles.
`include "phub_asserts.svh"
module admit
  import phub_pkg::*;
(
    input  logic        clk_i,
    input  logic        rst_i,
    input  logic        hdr_valid_i,
    output logic        hdr_ready_o,
    input  seg_hdr_t    hdr_i,
    output tenant_t     tenant_o,
    input  tenant_cfg_t cfg_i,        // one cycle after tenant_o
    output logic        join_valid_o,
    input  logic        join_ready_i,
    output seg_hdr_t    join_hdr_o,
    output tenant_cfg_t join_cfg_o
);
  typedef enum logic {
    WaitHeader,
    SendJoin
  } state_e;

  state_e state_q;
  seg_hdr_t hdr_q;
  tenant_cfg_t cfg_q, cfg;
  logic fresh_q;  // cfg_i is the answer for hdr_q; later it need not be

  assign hdr_ready_o = state_q == WaitHeader;
  assign tenant_o = hdr_i.tenant;
  assign join_valid_o = state_q == SendJoin;
  assign cfg = fresh_q ? cfg_i : cfg_q;
  assign join_cfg_o = cfg;

  always_comb begin
    join_hdr_o = hdr_q;
    // Before what the payload's way here has found: who is not of the epoch is told so first.
    if (!cfg.enable || count_t'(hdr_q.worker) >= cfg.workers) join_hdr_o.status = StTenantOff;
    else if (hdr_q.epoch != cfg.epoch) join_hdr_o.status = StStaleEpoch;
  end

  always_ff @(posedge clk_i) begin
    fresh_q <= hdr_valid_i && hdr_ready_o;
    if (hdr_valid_i && hdr_ready_o) hdr_q <= hdr_i;
    if (fresh_q) cfg_q <= cfg_i;
    unique case (state_q)
      WaitHeader: if (hdr_valid_i) state_q <= SendJoin;
      SendJoin: if (join_ready_i) state_q <= WaitHeader;
      default: state_q <= WaitHeader;
    endcase
    if (rst_i) state_q <= WaitHeader;
  end

  `PHUB_ASSERT(no_upgrade_a, !join_valid_o || hdr_q.status == StOk || join_hdr_o.status != StOk)
endmodule : admit
