// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Assertion macros with one meaning in two tools. Boolean properties only: state goes into helper
// registers. Clock and reset are named clk_i and rst_i everywhere.
`ifndef PHUB_ASSERTS_SVH
`define PHUB_ASSERTS_SVH

`ifdef SYNTHESIS
`define PHUB_ASSERT(name, expr)
`define PHUB_COVER(name, expr)
`elsif YOSYS
`define PHUB_ASSERT(name, expr) always_ff @(posedge clk_i) begin if (!rst_i) name: assert (expr); end
`define PHUB_COVER(name, expr) always_ff @(posedge clk_i) begin if (!rst_i) name: cover (expr); end
`else
`define PHUB_ASSERT(name, expr) \
  name: assert property (@(posedge clk_i) disable iff (rst_i) (expr)) \
  else $fatal(1, "%m: property failed");
`define PHUB_COVER(name, expr) name: cover property (@(posedge clk_i) disable iff (rst_i) (expr));
`endif

// Refuses to elaborate when `expr` is false.
`define PHUB_ASSERT_STATIC(name, expr) \
  if (!(expr)) begin : gen_``name \
    $fatal(1, "%m: parameter out of range"); \
  end

`endif
