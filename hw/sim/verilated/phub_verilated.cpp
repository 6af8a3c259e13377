// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// One build of the core behind the flat C ABI. Compiled once a build with
//   PHUB_TOP     class that Verilator made          PHUB_TABLE    name of the function table
//   PHUB_LANES .. PHUB_READ_TAGS: parameters        PHUB_TRACE    1 if it was made with --trace-fst
#include "phub_verilated.h"

#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "phub_runtime.h"
#include "verilated.h"
#if PHUB_TRACE
#include "verilated_fst_c.h"
#endif

#define PHUB_STRING_(x) #x
#define PHUB_STRING(x) PHUB_STRING_(x)
#include PHUB_STRING(PHUB_TOP.h)

// The same for every build; what differs between them has no name outside its own file, or the linker would
// take the functions of one build for those of another.
struct phub_card {};

namespace {

struct Card : phub_card {
  VerilatedContext context;
  std::unique_ptr<PHUB_TOP> top;
  std::string failure;
#if PHUB_TRACE
  std::unique_ptr<VerilatedFstC> trace;
#endif
};

Card &open(phub_card *card) { return *static_cast<Card *>(card); }

constexpr size_t BeatBytes = 4 * PHUB_LANES;
constexpr uint64_t HalfPeriod = 2000;  // ps: 250 MHz

phub_card *create(uint64_t seed) {
  try {
    auto card = std::make_unique<Card>();
    card->context.randReset(2);  // what is not reset starts random, as in silicon
    // A seed of 0 would mean one from the clock.
    card->context.randSeed(static_cast<int>(seed % 0x7ffffffe) + 1);
#if PHUB_TRACE
    card->context.traceEverOn(true);
#endif
    card->top = std::make_unique<PHUB_TOP>(&card->context, "");
    return card.release();
  } catch (...) {
    return nullptr;
  }
}

void trace_close(phub_card *card) {
#if PHUB_TRACE
  if (open(card).trace) open(card).trace->close();
  open(card).trace.reset();
#else
  (void)card;
#endif
}

void destroy(phub_card *card) {
  trace_close(card);
  delete &open(card);
}

int trace_open(phub_card *card, const char *path) {
#if PHUB_TRACE
  trace_close(card);
  auto trace = std::make_unique<VerilatedFstC>();
  open(card).top->trace(trace.get(), 99);
  trace->open(path);
  if (!trace->isOpen()) return 1;
  open(card).trace = std::move(trace);
  return 0;
#else
  (void)card, (void)path;
  return 1;
#endif
}

const char *failure(const phub_card *card) { return static_cast<const Card *>(card)->failure.c_str(); }

void half_period(Card &card) {
#if PHUB_TRACE
  if (card.trace) card.trace->dump(card.context.time());
#endif
  card.context.timeInc(HalfPeriod);
}

void drive(PHUB_TOP &top, const phub_in &in) {
  top.rst_i = in.rst;
  top.irq_ready_i = in.irq_ready;
  top.s_axil_awvalid = in.axil_awvalid;
  top.s_axil_awaddr = in.axil_awaddr;
  top.s_axil_awprot = 0;
  top.s_axil_wvalid = in.axil_wvalid;
  top.s_axil_wdata = in.axil_wdata;
  top.s_axil_wstrb = 0xf;
  top.s_axil_bready = in.axil_bready;
  top.s_axil_arvalid = in.axil_arvalid;
  top.s_axil_araddr = in.axil_araddr;
  top.s_axil_arprot = 0;
  top.s_axil_rready = in.axil_rready;
  top.m_axi_awready = in.axi_awready;
  top.m_axi_wready = in.axi_wready;
  top.m_axi_bvalid = in.axi_bvalid;
  top.m_axi_bid = in.axi_bid;
  top.m_axi_bresp = in.axi_bresp;
  top.m_axi_arready = in.axi_arready;
  top.m_axi_rvalid = in.axi_rvalid;
  top.m_axi_rid = in.axi_rid;
  top.m_axi_rresp = in.axi_rresp;
  top.m_axi_rlast = in.axi_rlast;
  if (in.axi_rvalid) std::memcpy(&top.m_axi_rdata, in.axi_rdata, BeatBytes);
}

void sample(const PHUB_TOP &top, phub_out &out) {
  out.busy = top.busy_o;
  out.irq_valid = top.irq_valid_o;
  out.irq_vector = top.irq_vector_o;
  out.axil_awready = top.s_axil_awready;
  out.axil_wready = top.s_axil_wready;
  out.axil_bvalid = top.s_axil_bvalid;
  out.axil_bresp = top.s_axil_bresp;
  out.axil_arready = top.s_axil_arready;
  out.axil_rvalid = top.s_axil_rvalid;
  out.axil_rresp = top.s_axil_rresp;
  out.axil_rdata = top.s_axil_rdata;
  out.axi_awvalid = top.m_axi_awvalid;
  if (top.m_axi_awvalid) {
    out.axi_awid = top.m_axi_awid;
    out.axi_awlen = top.m_axi_awlen;
    out.axi_awsize = top.m_axi_awsize;
    out.axi_awburst = top.m_axi_awburst;
    out.axi_awaddr = top.m_axi_awaddr;
  }
  out.axi_wvalid = top.m_axi_wvalid;
  if (top.m_axi_wvalid) {
    out.axi_wlast = top.m_axi_wlast;
    out.axi_wstrb = top.m_axi_wstrb;
    std::memcpy(out.axi_wdata, &top.m_axi_wdata, BeatBytes);
  }
  out.axi_bready = top.m_axi_bready;
  out.axi_arvalid = top.m_axi_arvalid;
  if (top.m_axi_arvalid) {
    out.axi_arid = top.m_axi_arid;
    out.axi_arlen = top.m_axi_arlen;
    out.axi_arsize = top.m_axi_arsize;
    out.axi_arburst = top.m_axi_arburst;
    out.axi_araddr = top.m_axi_araddr;
  }
  out.axi_rready = top.m_axi_rready;
  out.trace_valid = top.trace_valid_o;
  if (top.trace_valid_o) {
    out.trace_tenant = top.trace_tenant_o;
    out.trace_worker = top.trace_worker_o;
    out.trace_first = top.trace_first_o;
    out.trace_abstain = top.trace_abstain_o;
    out.trace_slot = top.trace_slot_o;
    out.trace_seq = top.trace_seq_o;
  }
}

int tick(phub_card *opaque, const phub_in *in, phub_out *out) {
  Card &card = open(opaque);
  PHUB_TOP &top = *card.top;
  phub_failure_text.clear();
  Verilated::threadContextp(&card.context);  // messages and errors go there, on whichever thread we are
  try {
    drive(top, *in);
    top.clk_i = 0;
    top.eval();  // what the inputs change without a clock
    half_period(card);
    sample(top, *out);
    top.clk_i = 1;
    top.eval();
    half_period(card);
  } catch (const phub_fatal &) {
    // The text is there.
  } catch (const std::exception &error) {
    phub_failure_text = error.what();
  }
  if (phub_failure_text.empty()) return 0;
  card.failure = phub_failure_text;
  trace_close(opaque);
  return 1;
}

}  // namespace

extern "C" const phub_model PHUB_TABLE;
extern "C" const phub_model PHUB_TABLE = {
    PHUB_LANES, PHUB_SEG_BYTES, PHUB_SLOTS, PHUB_TENANTS, PHUB_WORKERS, PHUB_QUEUES, PHUB_DESC_DEPTH,
    PHUB_READ_TAGS, PHUB_TRACE, create, destroy, tick, failure, trace_open, trace_close,
};
