// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// 16 counters of 64 bits for each tenant. An event advances any of them by one, the byte counters by its bytes.
// One event every 2 cycles, sources in turn. After a reset the table is cleared, one tenant a cycle; events wait.
`include "phub_asserts.svh"
module tenant_counters
  import phub_pkg::*;
#(
    parameter int unsigned Tenants = 64,
    parameter int unsigned Sources = 6
) (
    input  logic      clk_i,
    input  logic      rst_i,
    input  logic      soft_rst_i,  // clears all
    input  tbl_req_t  req_i,
    output tbl_rsp_t  rsp_o,
    input  logic      ev_valid_i[Sources],
    output logic      ev_ready_o[Sources],
    input  count_ev_t ev_i[Sources]
);
  localparam int unsigned TenantW = Tenants > 1 ? $clog2(Tenants) : 1;
  typedef logic [CountersPerTenant-1:0][63:0] row_t;

  typedef enum logic [1:0] {
    Clear,
    Idle,
    Update,
    Answer
  } state_e;

  state_e state_q;
  logic [TenantW-1:0] clear_q;
  count_ev_t ev_q;
  logic [Sources-1:0] ev_valid;
  logic grant_valid, take, host;
  logic [$clog2(Sources)-1:0] grant_idx;
  logic [TenantW-1:0] addr;
  row_t row, row_d;

  for (genvar s = 0; s < int'(Sources); s++) begin : gen_source
    assign ev_valid[s] = ev_valid_i[s];
    assign ev_ready_o[s] = take && 32'(grant_idx) == s;
  end

  rr_arbiter #(
      .Num(Sources)
  ) u_pick (
      .clk_i,
      .rst_i,
      .req_i(ev_valid),
      .ack_i(take),
      .grant_valid_o(grant_valid),
      .grant_idx_o(grant_idx)
  );

  assign host = state_q == Idle && req_i.valid && !rsp_o.ack;
  assign take = state_q == Idle && !host && grant_valid && !soft_rst_i;
  assign addr = host ? req_i.addr[7+:TenantW] : ev_i[grant_idx].tenant[TenantW-1:0];

  always_comb begin
    row_d = row;
    for (int i = 0; i < int'(CountersPerTenant); i++) begin
      if (ev_q.events[i]) begin
        row_d[i] = row[i] + (i == int'(CntBytesIn) || i == int'(CntBytesOut) ? 64'(ev_q.bytes) : 64'd1);
      end
    end
  end

  sdp_ram #(
      .Width($bits(row_t)),
      .Depth(1 << TenantW)
  ) u_rows (
      .clk_i,
      .we_i(state_q == Update || state_q == Clear),
      .waddr_i(state_q == Clear ? clear_q : ev_q.tenant[TenantW-1:0]),
      .wdata_i(state_q == Clear ? row_t'(0) : row_d),
      .re_i(host || take),
      .raddr_i(addr),
      .rdata_o(row)
  );

  always_ff @(posedge clk_i) begin
    rsp_o <= '0;
    unique case (state_q)
      Clear: begin
        clear_q <= clear_q + TenantW'(1);
        if (&clear_q) state_q <= Idle;
      end
      Idle: begin
        if (take) ev_q <= ev_i[grant_idx];
        state_q <= host ? Answer : take ? Update : Idle;
      end
      Update: state_q <= Idle;
      Answer: begin
        rsp_o.ack <= 1'b1;
        rsp_o.rdata <= 32'(req_i.addr[17:7]) < Tenants ? row[req_i.addr[6:3]][{req_i.addr[2], 5'd0}+:32] : '0;
        state_q <= Idle;
      end
      default: state_q <= Clear;
    endcase
    if (soft_rst_i && state_q == Idle && !host) begin
      clear_q <= '0;
      state_q <= Clear;
    end
    if (rst_i) begin
      rsp_o <= '0;
      clear_q <= '0;
      state_q <= Clear;
    end
  end

  logic unused;
  assign unused = &{1'b0, grant_valid};
endmodule : tenant_counters
