// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Flat C ABI of a Verilated phub_core: one function table a build (set of parameters), one opaque card, and
// two plain structs for what goes in and comes out in a clock cycle. src/ffi.rs is its only user and
// repeats these declarations.
#ifndef PHUB_VERILATED_H
#define PHUB_VERILATED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PHUB_BEAT_BYTES_MAX = 64 };

// What the host drives in a cycle. AXI and AXI-Lite names without their prefix m_axi_ or s_axil_.
typedef struct phub_in {
  uint8_t rst;
  uint8_t irq_ready;
  uint8_t axil_awvalid, axil_wvalid, axil_bready, axil_arvalid, axil_rready;
  uint8_t axi_awready, axi_wready, axi_arready;
  uint8_t axi_bvalid, axi_bid, axi_bresp;
  uint8_t axi_rvalid, axi_rid, axi_rresp, axi_rlast;
  uint32_t axil_awaddr, axil_wdata, axil_araddr;
  uint8_t axi_rdata[PHUB_BEAT_BYTES_MAX];
} phub_in;

// What the card drives, sampled just before the rising edge that ends the cycle. Payload is only valid
// beside its valid flag.
typedef struct phub_out {
  uint8_t busy;
  uint8_t irq_valid, irq_vector;
  uint8_t axil_awready, axil_wready, axil_bvalid, axil_bresp, axil_arready, axil_rvalid, axil_rresp;
  uint8_t axi_awvalid, axi_awid, axi_awlen, axi_awsize, axi_awburst;
  uint8_t axi_wvalid, axi_wlast, axi_bready;
  uint8_t axi_arvalid, axi_arid, axi_arlen, axi_arsize, axi_arburst, axi_rready;
  uint8_t trace_valid, trace_tenant, trace_worker, trace_first, trace_abstain;
  uint16_t trace_slot;
  uint32_t trace_seq;
  uint32_t axil_rdata;
  uint64_t axi_awaddr, axi_araddr, axi_wstrb;
  uint8_t axi_wdata[PHUB_BEAT_BYTES_MAX];
} phub_out;

typedef struct phub_card phub_card;

typedef struct phub_model {
  // Parameters of phub_core.
  uint32_t lanes, seg_bytes, slots, tenants, workers, queues, desc_depth, read_tags;
  // Whether trace_open does anything.
  uint32_t can_trace;
  // A card with its clock low and its memories filled from `seed`; null if memory is short.
  phub_card *(*create)(uint64_t seed);
  void (*destroy)(phub_card *card);
  // One clock cycle. 0: fine. 1: the model has failed; `failure` says why, and the card is of no more use.
  int (*tick)(phub_card *card, const phub_in *in, phub_out *out);
  // Text of the failure, empty if none. Lives until the next call.
  const char *(*failure)(const phub_card *card);
  // Starts an FST file of all signals from the current cycle on. 0: fine.
  int (*trace_open)(phub_card *card, const char *path);
  void (*trace_close)(phub_card *card);
} phub_model;

#ifdef __cplusplus
}
#endif
#endif
