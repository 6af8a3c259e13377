// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Results on their way out: reads a complete slot, divides if the mean is asked for, keeps the CRC-32 of each
// queue's descriptor, and hands the beats to dma_write.
//
// One beat a cycle, no gap between segments; first beat out 10 cycles after its job. Jobs of any queues follow
// each other; a job without bytes is only a completion and keeps its place.
`include "phub_asserts.svh"
module egress
  import phub_pkg::*;
#(
    parameter int unsigned Lanes = 16,
    parameter int unsigned SegBytes = 1024,
    parameter int unsigned Queues = 64,
    localparam int unsigned W = 32 * Lanes
) (
    input  logic         clk_i,
    input  logic         rst_i,
    input  logic         job_valid_i,
    output logic         job_ready_o,
    input  egress_job_t  job_i,
    // slot RAM, 2 cycles
    output logic         rd_en_o,
    output slot_t        rd_slot_o,
    output bytes_t       rd_beat_o,
    input  logic [W-1:0] rd_data_i,
    // slot_ctrl: the worker has read this result
    output logic         leave_valid_o,
    input  logic         leave_ready_i,
    output slot_t        leave_slot_o,
    output worker_t      leave_worker_o,
    output seq_t         leave_seq_o,
    // dma_write
    output logic         wr_valid_o,
    input  logic         wr_ready_i,
    output wr_req_t      wr_o,
    output logic         wbeat_valid_o,
    input  logic         wbeat_ready_i,
    output logic [W-1:0] wbeat_data_o,
    output logic         end_valid_o,     // one for each `last` write, in order
    input  logic         end_ready_i,
    output finish_t      end_o,
    output logic         count_valid_o,
    input  logic         count_ready_i,
    output count_ev_t    count_o,
    output logic         perf_beat_o,     // a beat leaves for dma_write
    output logic         idle_o
);
  localparam int unsigned BeatBytes = 4 * Lanes;
  localparam int unsigned BeatLog2 = $clog2(BeatBytes);
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;
  localparam int unsigned ReadLatency = 2;
  localparam int unsigned MeanLatency = 6;
  localparam int unsigned Latency = ReadLatency + MeanLatency;
  localparam int unsigned OutDepth = 16;  // beats, more than are in the pipeline
  localparam int unsigned SegDepth = 8;   // segments between the read and the last of their notes
  localparam int unsigned OutW = $clog2(OutDepth + 1);
  localparam int unsigned SegW = $clog2(SegDepth + 1);

  // What goes with a beat.
  typedef struct packed {
    logic       valid;
    logic       data;
    logic       seg_last;
    logic       restart;  // first beat of a descriptor
    logic [4:0] words;    // valid words of the beat
  } tag_t;

  // What goes with a segment.
  typedef struct packed {
    done_t  done;
    bytes_t bytes;
    logic   last;
  } note_t;

  // ------------------------------------------------------------------ read
  bytes_t beat_idx_q, beats, rest;
  logic first_beat, last_beat, has_data, room, go;
  logic [OutW-1:0] beats_out_q;  // beats read and not yet handed on
  logic [SegW-1:0] segs_q;
  logic hdr_ready, leave_room, seg_done;

  assign has_data = job_i.bytes != '0;
  assign beats = (job_i.bytes + bytes_t'(BeatBytes - 1)) >> BeatLog2;
  assign first_beat = beat_idx_q == '0;
  assign last_beat = !has_data || beat_idx_q + bytes_t'(1) == beats;
  assign rest = job_i.bytes - (beat_idx_q << BeatLog2);
  assign room = beats_out_q != OutW'(OutDepth) && segs_q != SegW'(SegDepth);
  assign go = job_valid_i && room && (!first_beat || hdr_ready) && (!last_beat || leave_room);
  assign job_ready_o = go && last_beat;

  assign rd_en_o = go && has_data;
  assign rd_slot_o = job_i.slot;
  assign rd_beat_o = beat_idx_q;

  always_ff @(posedge clk_i) begin
    if (go) beat_idx_q <= last_beat ? '0 : beat_idx_q + bytes_t'(1);
    if (rst_i) beat_idx_q <= '0;
  end

  wr_req_t hdr_in;
  assign hdr_in = '{addr: job_i.addr, bytes: job_i.bytes, queue: job_i.done.queue, last: job_i.last};
  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width($bits(wr_req_t)),
      .Depth(4)
  ) u_headers (
      .clk_i,
      .rst_i,
      .push_valid_i(go && first_beat),
      .push_ready_o(hdr_ready),
      .push_data_i(hdr_in),
      .pop_valid_o(wr_valid_o),
      .pop_ready_i(wr_ready_i),
      .pop_data_o(wr_o),
      .count_o()
  );

  stream_fifo #(
      .Width($bits(slot_t) + $bits(worker_t) + $bits(seq_t)),
      .Depth(4)
  ) u_leaves (
      .clk_i,
      .rst_i,
      .push_valid_i(job_ready_o && has_data),
      .push_ready_o(leave_room),
      .push_data_i({job_i.slot, job_i.worker, job_i.done.seq}),
      .pop_valid_o(leave_valid_o),
      .pop_ready_i(leave_ready_i),
      .pop_data_o({leave_slot_o, leave_worker_o, leave_seq_o}),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  // ------------------------------------------------------------------ divide
  tag_t tag[Latency+1];
  logic [6:0] count_q[ReadLatency];
  logic [ReadLatency-1:0] empty_q;
  logic [W-1:0] mean;

  assign tag[0] = '{valid: go, data: has_data, seg_last: last_beat, restart: first_beat && job_i.first,
                    words: rest >= bytes_t'(BeatBytes) ? 5'(Lanes) : 5'(rest >> 2)};
  for (genvar s = 1; s <= int'(Latency); s++) begin : gen_tag
    tag_t tag_q;
    always_ff @(posedge clk_i) begin
      tag_q <= tag[s-1];
      if (rst_i) tag_q.valid <= 1'b0;
    end
    assign tag[s] = tag_q;
  end

  always_ff @(posedge clk_i) begin
    count_q[0] <= job_i.mean && job_i.done.count != '0 ? job_i.done.count : 7'd1;
    empty_q[0] <= job_i.empty;
    for (int s = 1; s < int'(ReadLatency); s++) begin
      count_q[s] <= count_q[s-1];
      empty_q[s] <= empty_q[s-1];
    end
  end

  logic [MeanLatency-1:0] mean_stage;
  for (genvar s = 0; s < int'(MeanLatency); s++) begin : gen_stage
    assign mean_stage[s] = tag[ReadLatency+s].valid && tag[ReadLatency+s].data;
  end

  for (genvar lane = 0; lane < int'(Lanes); lane++) begin : gen_lane
    fp32_mean u_mean (
        .clk_i,
        .stage_i(mean_stage),
        .value_i(empty_q[ReadLatency-1] ? 32'd0 : rd_data_i[32*lane+:32]),
        .count_i(count_q[ReadLatency-1]),
        .mean_o(mean[32*lane+:32])
    );
  end

  // ------------------------------------------------------------------ beats out
  tag_t out_tag;
  logic out_ready, out_push, beat_left;
  assign out_tag = tag[Latency];
  assign out_push = out_tag.valid && out_tag.data;
  assign beat_left = wbeat_valid_o && wbeat_ready_i;
  assign perf_beat_o = beat_left;

  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width(W),
      .Depth(OutDepth)
  ) u_beats (
      .clk_i,
      .rst_i,
      .push_valid_i(out_push),
      .push_ready_o(out_ready),
      .push_data_i(mean),
      .pop_valid_o(wbeat_valid_o),
      .pop_ready_i(wbeat_ready_i),
      .pop_data_o(wbeat_data_o),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  // ------------------------------------------------------------------ CRC and flags, one cycle later
  tag_t crc_tag_q;
  logic [W-1:0] crc_data_q;
  logic [31:0] crc_state[Queues];  // of each queue's descriptor so far
  logic [Queues-1:0] wild_q;       // a NaN or an infinity in it so far
  logic [31:0] crc_run_q;
  logic seg_begins_q, wild_run_q, wild_beat, wild_next, wild_seg_q;
  logic [QueueW-1:0] q;
  note_t note_in, note;
  logic note_valid, notes_ready, note_pop;

  assign note_in = '{done: job_i.done, bytes: job_i.bytes, last: job_i.last};
  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width($bits(note_t)),
      .Depth(SegDepth)
  ) u_notes (
      .clk_i,
      .rst_i,
      .push_valid_i(job_ready_o),
      .push_ready_o(notes_ready),
      .push_data_i(note_in),
      .pop_valid_o(note_valid),
      .pop_ready_i(note_pop),
      .pop_data_o(note),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  always_comb begin
    wild_beat = 1'b0;
    for (int unsigned lane = 0; lane < Lanes; lane++) begin
      wild_beat |= 5'(lane) < crc_tag_q.words && &crc_data_q[32*lane+23+:8];
    end
  end

  logic [QueueW-1:0] queue_pipe_q[Latency];
  always_ff @(posedge clk_i) begin
    queue_pipe_q[0] <= job_i.done.queue[QueueW-1:0];
    for (int s = 1; s < int'(Latency); s++) queue_pipe_q[s] <= queue_pipe_q[s-1];
    q <= queue_pipe_q[Latency-1];
  end

  logic [31:0] crc_base;
  logic wild_base;
  assign crc_base = crc_tag_q.restart ? 32'hffff_ffff : seg_begins_q ? crc_state[q] : crc_run_q;
  assign wild_base = crc_tag_q.restart ? 1'b0 : seg_begins_q ? wild_q[q] : wild_run_q;
  assign wild_next = wild_base || (crc_tag_q.data && wild_beat);

  // Ends of segments, one cycle after their last beat was counted in.
  logic [31:0] end_crc_q;
  logic end_valid_q, end_wild_q, end_seg_wild_q;

  always_ff @(posedge clk_i) begin
    crc_tag_q <= out_tag;
    if (out_push) crc_data_q <= mean;
    end_valid_q <= 1'b0;
    if (crc_tag_q.valid) begin
      automatic logic [31:0] crc_next = crc_base;
      if (crc_tag_q.data) crc_next = crc32_pkg::crc32_words(crc_base, 512'(crc_data_q), crc_tag_q.words);
      crc_run_q <= crc_next;
      wild_run_q <= wild_next;
      wild_seg_q <= (!seg_begins_q && wild_seg_q) || (crc_tag_q.data && wild_beat);
      seg_begins_q <= crc_tag_q.seg_last;
      if (crc_tag_q.seg_last) begin
        crc_state[q] <= crc_next;
        wild_q[q] <= wild_next;
        end_valid_q <= 1'b1;
        end_crc_q <= ~crc_next;
        end_wild_q <= wild_next;
        end_seg_wild_q <= (!seg_begins_q && wild_seg_q) || (crc_tag_q.data && wild_beat);
      end
    end
    if (rst_i) begin
      crc_tag_q.valid <= 1'b0;
      seg_begins_q <= 1'b1;
      end_valid_q <= 1'b0;
      wild_q <= '0;
    end
  end

  // ------------------------------------------------------------------ ends: finish and counters
  logic ends_ready, fin_valid, cnt_valid, ends_pop;
  logic [33:0] ends_out;
  logic fin_done_q, cnt_done_q, fin_fire, cnt_fire;

  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width(34),
      .Depth(SegDepth)
  ) u_ends (
      .clk_i,
      .rst_i,
      .push_valid_i(end_valid_q),
      .push_ready_o(ends_ready),
      .push_data_i({end_seg_wild_q, end_wild_q, end_crc_q}),
      .pop_valid_o(fin_valid),
      .pop_ready_i(ends_pop),
      .pop_data_o(ends_out),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  assign end_valid_o = fin_valid && note.last && !fin_done_q;
  assign end_o = '{done: note.done, crc: ends_out[31:0], non_finite: ends_out[32]};
  assign fin_fire = end_valid_o && end_ready_i;
  assign cnt_valid = fin_valid && note.bytes != '0 && !cnt_done_q;
  assign count_valid_o = cnt_valid;
  always_comb begin
    count_o = '{tenant: note.done.tenant, events: '0, bytes: note.bytes};
    count_o.events[CntSegmentsOut] = 1'b1;
    count_o.events[CntBytesOut] = 1'b1;
    count_o.events[CntNonFinite] = ends_out[33];
  end
  assign cnt_fire = cnt_valid && count_ready_i;
  assign ends_pop = fin_valid && (!note.last || fin_done_q || fin_fire)
      && (note.bytes == '0 || cnt_done_q || cnt_fire);
  assign note_pop = ends_pop;
  assign seg_done = ends_pop;

  always_ff @(posedge clk_i) begin
    fin_done_q <= !ends_pop && (fin_done_q || fin_fire);
    cnt_done_q <= !ends_pop && (cnt_done_q || cnt_fire);
    if ((go && has_data) != beat_left) beats_out_q <= beat_left ? beats_out_q - OutW'(1) : beats_out_q + OutW'(1);
    if (job_ready_o != seg_done) segs_q <= seg_done ? segs_q - SegW'(1) : segs_q + SegW'(1);
    if (rst_i) begin
      fin_done_q <= 1'b0;
      cnt_done_q <= 1'b0;
      beats_out_q <= '0;
      segs_q <= '0;
    end
  end

  assign idle_o = !job_valid_i && segs_q == '0 && !wbeat_valid_o && !wr_valid_o && !leave_valid_o;

  `PHUB_ASSERT(notes_room_a, !job_ready_o || notes_ready)
  `PHUB_ASSERT(out_room_a, !out_push || out_ready)
  `PHUB_ASSERT(ends_room_a, !end_valid_q || ends_ready)
  `PHUB_ASSERT(note_known_a, !fin_valid || note_valid)
  `PHUB_ASSERT(job_fits_a, !job_valid_i || 32'(job_i.bytes) <= SegBytes)
endmodule : egress
