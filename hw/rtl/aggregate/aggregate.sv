// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// The aggregation engine: adds the beats of a segment to its slot, one beat a cycle, no gap between segments.
//
// Read, add (7 cycles), write: a beat is in its slot 9 cycles after it was taken. Another beat for the same
// place waits until then; between full segments that cannot happen (they have more beats than the pipeline
// stages), between short ones it can. The first contribution of a round is stored by adding it to -0, which keeps every
// number and makes NaNs canonical. Segments without beats (abstentions, refusals) go through the same pipeline, so that
// all are retired in stream order.
`include "phub_asserts.svh"
module aggregate
  import phub_pkg::*;
#(
    parameter int unsigned Lanes = 16,
    parameter int unsigned SegBytes = 1024,
    parameter int unsigned Slots = 1024,
    localparam int unsigned W = 32 * Lanes
) (
    input  logic         clk_i,
    input  logic         rst_i,
    // verdicts, one a segment
    input  logic         cmd_valid_i,
    output logic         cmd_ready_o,
    input  agg_cmd_t     cmd_i,
    input  logic         beat_valid_i,
    output logic         beat_ready_o,
    input  logic [W-1:0] beat_data_i,
    // slot_ctrl: the contribution is in the slot
    output logic         commit_valid_o,
    input  logic         commit_ready_i,
    output slot_t        commit_slot_o,
    output logic         retire_valid_o,
    output retire_t      retire_o,
    output logic         count_valid_o,
    input  logic         count_ready_i,
    output count_ev_t    count_o,
    output logic         trace_valid_o,
    output trace_t       trace_o,
    // egress reads a beat of a slot, 2 cycles
    input  logic         rd_en_i,
    input  slot_t        rd_slot_i,
    input  bytes_t       rd_beat_i,
    output logic [W-1:0] rd_data_o,
    output logic         perf_beat_o,    // a beat enters the adders
    output logic         perf_hazard_o,  // one waits for an earlier one of the same place
    output logic         idle_o
);
  localparam int unsigned BeatBytes = 4 * Lanes;
  localparam int unsigned BeatLog2 = $clog2(BeatBytes);
  localparam int unsigned SegBeats = SegBytes / BeatBytes;
  localparam int unsigned BeatW = SegBeats > 1 ? $clog2(SegBeats) : 1;
  localparam int unsigned SlotW = $clog2(Slots);
  localparam int unsigned AddrW = SlotW + BeatW;
  localparam int unsigned AddLatency = 7;
  localparam int unsigned Stages = AddLatency + 1;  // from the read to the write
  localparam int unsigned EndDepth = 16;
  localparam int unsigned EndW = $clog2(EndDepth + 1);
  typedef logic [AddrW-1:0] addr_idx_t;

  // What is known of a segment when it is through.
  typedef struct packed {
    seg_hdr_t hdr;
    slot_t    slot;
    logic     add;
    logic     abstained;
  } end_t;

  // ------------------------------------------------------------------ take
  logic [BeatW-1:0] beat_idx_q;
  logic [BeatW:0] beats;
  logic last_beat, room, hazard, reads, take_beat, take_cmd, take;
  addr_idx_t addr;
  logic [EndW-1:0] outstanding_q;  // segments taken and not yet retired

  assign beats = (BeatW + 1)'((cmd_i.hdr.bytes + bytes_t'(BeatBytes - 1)) >> BeatLog2);
  assign last_beat = {1'b0, beat_idx_q} + (BeatW + 1)'(1) == beats;
  assign addr = {cmd_i.slot[SlotW-1:0], beat_idx_q};
  assign reads = cmd_i.add && !cmd_i.first;
  assign room = outstanding_q != EndW'(EndDepth);
  assign take_beat = cmd_valid_i && cmd_i.hdr.has_data && beat_valid_i && room && !hazard;
  assign take_cmd = (take_beat && last_beat) || (cmd_valid_i && !cmd_i.hdr.has_data && room);
  assign take = take_beat || take_cmd;
  assign beat_ready_o = cmd_valid_i && cmd_i.hdr.has_data && room && !hazard;
  assign cmd_ready_o = take_cmd;
  assign perf_beat_o = take_beat && cmd_i.add;
  assign perf_hazard_o = cmd_valid_i && beat_valid_i && hazard;

  assign trace_valid_o = take && (cmd_i.hdr.has_data ? cmd_i.add && beat_idx_q == '0
                                                     : cmd_i.first && cmd_i.hdr.status == StOk);
  assign trace_o = '{tenant: cmd_i.hdr.tenant, worker: cmd_i.hdr.worker, seq: cmd_i.hdr.seq, slot: cmd_i.slot,
                     first: cmd_i.first && cmd_i.add, abstain: !cmd_i.hdr.has_data};

  // ------------------------------------------------------------------ pipeline: place, purpose
  addr_idx_t addr_q[Stages];
  logic [Stages-1:0] write_q, end_q;
  logic first_q;
  logic [W-1:0] beat_q, old, sum;

  always_comb begin
    hazard = 1'b0;
    if (reads) begin
      for (int unsigned s = 0; s < Stages; s++) hazard |= write_q[s] && addr_q[s] == addr;
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned s = 1; s < Stages; s++) addr_q[s] <= addr_q[s-1];
    addr_q[0] <= addr;
    first_q <= cmd_i.first;
    if (take_beat) beat_q <= beat_data_i;
    write_q <= {write_q[Stages-2:0], take_beat && cmd_i.add};
    end_q <= {end_q[Stages-2:0], take_cmd};
    if (take_beat) beat_idx_q <= last_beat ? '0 : beat_idx_q + BeatW'(1);
    if (rst_i) begin
      write_q <= '0;
      end_q <= '0;
      beat_idx_q <= '0;
    end
  end

  slot_ram #(
      .Width(W),
      .Depth(1 << AddrW)
  ) u_slots (
      .clk_i,
      .we_i(write_q[Stages-1]),
      .waddr_i(addr_q[Stages-1]),
      .wdata_i(sum),
      .a_re_i(take_beat && reads),
      .a_addr_i(addr),
      .a_data_o(old),
      .b_re_i(rd_en_i),
      .b_addr_i({rd_slot_i[SlotW-1:0], rd_beat_i[BeatW-1:0]}),
      .b_data_o(rd_data_o)
  );

  for (genvar lane = 0; lane < int'(Lanes); lane++) begin : gen_lane
    fp32_add u_add (
        .clk_i,
        .stage_i(write_q[AddLatency-1:0]),
        .a_i(beat_q[32*lane+:32]),
        .b_i(first_q ? 32'h8000_0000 : old[32*lane+:32]),
        .sum_o(sum[32*lane+:32])
    );
  end

  // ------------------------------------------------------------------ through
  // Notes of the segments in the pipeline wait in one FIFO; how many have come out is counted.
  logic notes_ready, note_valid, note_pop, notable;
  end_t note_in, note;
  logic [EndW-1:0] out_q;  // out of the pipeline, not yet retired
  logic commit_done_q, count_done_q, commit_fire, count_fire;
  logic [15:0] events;

  assign note_in = '{hdr: cmd_i.hdr, slot: cmd_i.slot, add: cmd_i.add,
                     abstained: !cmd_i.hdr.has_data && cmd_i.first && cmd_i.hdr.status == StOk};

  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width($bits(end_t)),
      .Depth(EndDepth)
  ) u_notes (
      .clk_i,
      .rst_i,
      .push_valid_i(take_cmd),
      .push_ready_o(notes_ready),
      .push_data_i(note_in),
      .pop_valid_o(note_valid),
      .pop_ready_i(note_pop),
      .pop_data_o(note),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  always_comb begin
    events = '0;
    if (note.add) begin
      events[CntSegmentsIn] = 1'b1;
      events[CntBytesIn] = 1'b1;
    end
    events[CntAbstains] = note.abstained;
    events[CntDuplicates] = note.hdr.status == StDuplicate;
    events[CntMismatches] = note.hdr.status == StMismatch;
    events[CntStale] = note.hdr.status == StStaleSeq || note.hdr.status == StStaleEpoch;
    events[CntCrcErrors] = note.hdr.status == StCrcError;
    events[CntDmaErrors] = note.hdr.status == StReadError;
  end

  assign notable = out_q != '0 && note_valid;
  assign commit_valid_o = notable && note.add && !commit_done_q;
  assign commit_slot_o = note.slot;
  assign commit_fire = commit_valid_o && commit_ready_i;
  assign count_valid_o = notable && |events && !count_done_q;
  assign count_o = '{tenant: note.hdr.tenant, events: events, bytes: note.hdr.bytes};
  assign count_fire = count_valid_o && count_ready_i;
  assign note_pop = notable && (!note.add || commit_done_q || commit_fire)
      && (!(|events) || count_done_q || count_fire);
  assign retire_valid_o = note_pop;
  assign retire_o = '{queue: note.hdr.queue, didx: note.hdr.didx, last: note.hdr.last, status: note.hdr.status,
                      seq: note.hdr.seq};

  always_ff @(posedge clk_i) begin
    commit_done_q <= !note_pop && (commit_done_q || commit_fire);
    count_done_q <= !note_pop && (count_done_q || count_fire);
    if (end_q[Stages-1] != note_pop) out_q <= note_pop ? out_q - EndW'(1) : out_q + EndW'(1);
    if (take_cmd != note_pop) outstanding_q <= note_pop ? outstanding_q - EndW'(1) : outstanding_q + EndW'(1);
    if (rst_i) begin
      commit_done_q <= 1'b0;
      count_done_q <= 1'b0;
      out_q <= '0;
      outstanding_q <= '0;
    end
  end

  assign idle_o = outstanding_q == '0 && !cmd_valid_i;

  `PHUB_ASSERT(notes_room_a, !take_cmd || notes_ready)
  `PHUB_ASSERT(beats_fit_a, !cmd_valid_i || !cmd_i.hdr.has_data || (beats != '0 && 32'(beats) <= SegBeats))
  `PHUB_ASSERT(add_has_data_a, !cmd_valid_i || !cmd_i.add || (cmd_i.hdr.has_data && cmd_i.hdr.status == StOk))
  `PHUB_COVER(hazard_c, perf_hazard_o)

  logic unused;
  assign unused = &{1'b0, rd_slot_i, rd_beat_i, note};
endmodule : aggregate
