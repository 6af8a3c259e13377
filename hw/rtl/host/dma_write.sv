// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Writes host memory: results from egress, completion entries from cq_post.
//
// A write is cut into bursts that stay within 4 KiB and 256 beats; completions go first between whole writes. All
// bursts have AWID 0, so acknowledgements come in order, and a descriptor is finished when its last burst and so all
// before it are acknowledged. Up to WriteOutstanding bursts wait for that, and CplRoom more that are completions.
// One beat a cycle without a gap between bursts; W may run ahead of AW. Latency from header to AW: 2 cycles.
//
// An acknowledgement never waits for anybody: the last write of a descriptor is accepted only with room for its
// `finish`, and completions have tracker room of their own. So cq_post, which waits for completions, cannot block itself.
`include "phub_asserts.svh"
module dma_write
  import phub_pkg::*;
#(
    parameter int unsigned Lanes = 16,             // FP32 lanes, 4 bytes each
    parameter int unsigned Queues = 64,            // 1..64
    parameter int unsigned WriteOutstanding = 32,  // result bursts not yet acknowledged
    parameter int unsigned CplRoom = 8,            // completions not yet acknowledged, at most
    localparam int unsigned W = 32 * Lanes
) (
    input  logic           clk_i,
    input  logic           rst_i,
    // results
    input  logic           wr_valid_i,
    output logic           wr_ready_o,
    input  wr_req_t        wr_i,
    input  logic           wbeat_valid_i,
    output logic           wbeat_ready_o,
    input  logic [W-1:0]   wbeat_data_i,
    input  logic           end_valid_i,  // one for each write with `last`, in order, before or after it
    output logic           end_ready_o,
    input  finish_t        end_i,
    // completions
    input  logic           cpl_valid_i,
    output logic           cpl_ready_o,
    input  addr_t          cpl_addr_i,
    input  cpl_t           cpl_data_i,
    // AXI4 write channels
    output logic [7:0]     m_axi_awid,
    output logic [63:0]    m_axi_awaddr,
    output logic [7:0]     m_axi_awlen,
    output logic [2:0]     m_axi_awsize,
    output logic [1:0]     m_axi_awburst,
    output logic           m_axi_awvalid,
    input  logic           m_axi_awready,
    output logic [W-1:0]   m_axi_wdata,
    output logic [W/8-1:0] m_axi_wstrb,
    output logic           m_axi_wlast,
    output logic           m_axi_wvalid,
    input  logic           m_axi_wready,
    input  logic [7:0]     m_axi_bid,
    input  logic [1:0]     m_axi_bresp,
    input  logic           m_axi_bvalid,
    output logic           m_axi_bready,
    // descriptors whose results are all in host memory
    output logic           fin_valid_o,
    input  logic           fin_ready_i,
    output finish_t        fin_o,
    // completions that are in host memory, in order
    output logic           cpl_done_valid_o,
    output logic           cpl_done_error_o,
    output logic           perf_stall_o,  // something to write waits for the host
    output logic           idle_o
);
  localparam int unsigned BeatBytes = 4 * Lanes;
  localparam int unsigned BeatLog2 = $clog2(BeatBytes);
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;
  localparam int unsigned TrackDepth = WriteOutstanding + CplRoom;
  localparam int unsigned TrackW = $clog2(TrackDepth + 1);
  localparam int unsigned FinDepth = 8;
  localparam int unsigned FinW = $clog2(FinDepth + 1);

  // What is known of a burst when its acknowledgement comes.
  typedef struct packed {
    logic   burst;   // there is one; else only the end of a descriptor
    logic   is_cpl;
    logic   finish;  // the last of its descriptor
    queue_t queue;
  } track_t;

  // What the data stage needs of a burst.
  typedef struct packed {
    logic                is_cpl;
    logic [7:0]          len;   // beats - 1
    logic [BeatLog2-1:0] tail;  // bytes of the last beat, 0: all
  } data_t;

  // ------------------------------------------------------------------ writes into bursts
  logic busy_q, job_is_cpl_q, job_last_q;
  addr_t addr_q;
  bytes_t left_q;
  queue_t queue_q;

  logic [12:0] to_page, burst_bytes;
  logic [8:0] burst_beats;
  logic ends, issue, vacant, take_cpl, take_wr;
  logic track_room, data_ready, aw_free, fin_room, cpl_data_ready;
  logic [TrackW-1:0] track_count;

  localparam logic [12:0] BurstMax = 256 * BeatBytes > 4096 ? 13'd4096 : 13'(256 * BeatBytes);
  assign to_page = 13'd4096 - {1'b0, addr_q[11:0]};
  always_comb begin
    burst_bytes = to_page < BurstMax ? to_page : BurstMax;
    if (16'(burst_bytes) > left_q) burst_bytes = 13'(left_q);
  end
  assign burst_beats = 9'((burst_bytes + 13'(BeatBytes - 1)) >> BeatLog2);
  assign ends = left_q == 16'(burst_bytes);

  assign aw_free = !m_axi_awvalid || m_axi_awready;
  assign track_room = track_count < (job_is_cpl_q ? TrackW'(TrackDepth) : TrackW'(WriteOutstanding));
  assign issue = busy_q && track_room && (left_q == '0 || (aw_free && data_ready));
  assign vacant = !busy_q || (issue && ends);
  assign cpl_ready_o = vacant && cpl_data_ready;
  assign take_cpl = cpl_valid_i && cpl_ready_o;
  assign wr_ready_o = vacant && !take_cpl && (!wr_i.last || fin_room);
  assign take_wr = wr_valid_i && wr_ready_o;

  always_ff @(posedge clk_i) begin
    if (take_cpl || take_wr) begin
      busy_q <= 1'b1;
      job_is_cpl_q <= take_cpl;
      job_last_q <= !take_cpl && wr_i.last;
      addr_q <= take_cpl ? cpl_addr_i : wr_i.addr;
      left_q <= take_cpl ? bytes_t'(CplBytes) : wr_i.bytes;
      queue_q <= wr_i.queue;
    end else if (issue) begin
      busy_q <= !ends;
      addr_q <= addr_q + addr_t'(burst_bytes);
      left_q <= left_q - 16'(burst_bytes);
    end
    if (rst_i) busy_q <= 1'b0;
  end

  assign m_axi_awid = '0;
  assign m_axi_awsize = 3'(BeatLog2);
  assign m_axi_awburst = 2'b01;
  always_ff @(posedge clk_i) begin
    if (m_axi_awready) m_axi_awvalid <= 1'b0;
    if (issue && left_q != '0) begin
      m_axi_awvalid <= 1'b1;
      m_axi_awaddr <= addr_q;
      m_axi_awlen <= 8'(burst_beats - 9'd1);
    end
    if (rst_i) m_axi_awvalid <= 1'b0;
  end

  // ------------------------------------------------------------------ data
  data_t data_in, data;
  logic data_valid, data_pop, cpl_data_valid, beat_fire, last_beat;
  logic [CplBytes*8-1:0] cpl_data;
  logic [7:0] beat_q;
  logic [W-1:0] cpl_beat;

  assign data_in = '{is_cpl: job_is_cpl_q, len: 8'(burst_beats - 9'd1), tail: burst_bytes[BeatLog2-1:0]};
  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width($bits(data_t)),
      .Depth(4)
  ) u_data (
      .clk_i,
      .rst_i,
      .push_valid_i(issue && left_q != '0),
      .push_ready_o(data_ready),
      .push_data_i(data_in),
      .pop_valid_o(data_valid),
      .pop_ready_i(data_pop),
      .pop_data_o(data),
      .count_o()
  );

  stream_fifo #(
      .Width(CplBytes * 8),
      .Depth(2)
  ) u_cpl_data (
      .clk_i,
      .rst_i,
      .push_valid_i(take_cpl),
      .push_ready_o(cpl_data_ready),
      .push_data_i(cpl_data_i),
      .pop_valid_o(cpl_data_valid),
      .pop_ready_i(data_pop && data.is_cpl),
      .pop_data_o(cpl_data),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  assign cpl_beat = W'(cpl_data >> (32'(beat_q) * W));
  assign last_beat = beat_q == data.len;
  assign m_axi_wvalid = data_valid && (data.is_cpl || wbeat_valid_i);
  assign m_axi_wdata = data.is_cpl ? cpl_beat : wbeat_data_i;
  assign m_axi_wlast = last_beat;
  assign beat_fire = m_axi_wvalid && m_axi_wready;
  assign wbeat_ready_o = data_valid && !data.is_cpl && m_axi_wready;
  assign data_pop = beat_fire && last_beat;
  always_comb begin
    m_axi_wstrb = '1;
    if (last_beat && data.tail != '0) m_axi_wstrb = ~({BeatBytes{1'b1}} << data.tail);
  end

  always_ff @(posedge clk_i) begin
    if (beat_fire) beat_q <= last_beat ? '0 : beat_q + 8'd1;
    if (rst_i) beat_q <= '0;
  end

  // ------------------------------------------------------------------ acknowledgements
  track_t track_in, track;
  logic track_ready, track_valid, track_pop, fails, ends_desc, failed;
  logic [Queues-1:0] failed_q;  // a write of the queue's current descriptor was refused

  assign track_in = '{burst: left_q != '0, is_cpl: job_is_cpl_q, finish: job_last_q && ends, queue: queue_q};
  stream_fifo #(
      .Width($bits(track_t)),
      .Depth(TrackDepth)
  ) u_track (
      .clk_i,
      .rst_i,
      .push_valid_i(issue),
      .push_ready_o(track_ready),
      .push_data_i(track_in),
      .pop_valid_o(track_valid),
      .pop_ready_i(track_pop),
      .pop_data_o(track),
      .count_o(track_count)
  );

  assign m_axi_bready = track_valid && track.burst;
  assign track_pop = track_valid && (!track.burst || m_axi_bvalid);
  assign fails = track.burst && m_axi_bresp != 2'b00;
  assign ends_desc = track_pop && track.finish;
  assign failed = fails || failed_q[track.queue[QueueW-1:0]];
  assign cpl_done_valid_o = track_pop && track.is_cpl;
  assign cpl_done_error_o = fails;

  always_ff @(posedge clk_i) begin
    if (track_pop && !track.is_cpl) failed_q[track.queue[QueueW-1:0]] <= failed && !track.finish;
    if (rst_i) failed_q <= '0;
  end

  // ------------------------------------------------------------------ finished descriptors
  finish_t finish;
  logic finish_valid, verdict_ready, verdict_valid, verdict_failed, fin_fire;
  logic [FinW-1:0] ending_q;  // last writes accepted, and not yet handed on

  assign fin_room = ending_q != FinW'(FinDepth);
  assign fin_fire = fin_valid_o && fin_ready_i;
  always_ff @(posedge clk_i) begin
    if ((take_wr && wr_i.last) != fin_fire) ending_q <= fin_fire ? ending_q - FinW'(1) : ending_q + FinW'(1);
    if (rst_i) ending_q <= '0;
  end

  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width($bits(finish_t)),
      .Depth(FinDepth)
  ) u_finish (
      .clk_i,
      .rst_i,
      .push_valid_i(end_valid_i),
      .push_ready_o(end_ready_o),
      .push_data_i(end_i),
      .pop_valid_o(finish_valid),
      .pop_ready_i(fin_fire),
      .pop_data_o(finish),
      .count_o()
  );

  stream_fifo #(
      .Width(1),
      .Depth(FinDepth)
  ) u_verdicts (
      .clk_i,
      .rst_i,
      .push_valid_i(ends_desc),
      .push_ready_o(verdict_ready),
      .push_data_i(failed),
      .pop_valid_o(verdict_valid),
      .pop_ready_i(fin_fire),
      .pop_data_o(verdict_failed),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  assign fin_valid_o = verdict_valid && finish_valid;
  always_comb begin
    fin_o = finish;
    if (verdict_failed && finish.done.status == StOk) fin_o.done.status = StWriteError;
  end

  assign perf_stall_o = (m_axi_awvalid && !m_axi_awready) || (m_axi_wvalid && !m_axi_wready);
  assign idle_o = !busy_q && !m_axi_awvalid && !data_valid && !track_valid && ending_q == '0;

  `PHUB_ASSERT_STATIC(lanes_a, Lanes == 1 || Lanes == 2 || Lanes == 4 || Lanes == 8 || Lanes == 16)
  `PHUB_ASSERT(burst_in_page_a, !m_axi_awvalid
      || {1'b0, m_axi_awaddr[11:0]} + ((13'(m_axi_awlen) + 13'd1) << BeatLog2) <= 13'd4096)
  `PHUB_ASSERT(aligned_a, !take_wr || wr_i.bytes == '0 || wr_i.addr[5:0] == '0)
  `PHUB_ASSERT(cpl_data_there_a, !(data_valid && data.is_cpl) || cpl_data_valid)
  `PHUB_ASSERT(track_ready_a, !issue || track_ready)
  `PHUB_ASSERT(verdict_room_a, !ends_desc || verdict_ready)
  `PHUB_COVER(page_split_c, issue && !ends)
  `PHUB_COVER(refused_c, track_pop && fails)

  logic unused;
  assign unused = &{1'b0, m_axi_bid};
endmodule : dma_write
