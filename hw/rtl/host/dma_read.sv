// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Reads host memory: descriptors for sq_fetch, payload for the segment stream.
//
// Each request takes a tag with a segment's room in the read buffer; the tag is its ARID. Data may come back in
// any order and interleaved between tags; requests leave in the order they came. A header is offered as soon
// as its segment has arrived whole, while beats of earlier segments still flow; beats go out one a cycle
// without a gap between segments. The payload CRC of a descriptor is kept per queue: each segment's own part is made as
// its beats arrive (state 0), and joined to the rest when the segment's turn comes.
`include "phub_asserts.svh"
module dma_read
  import phub_pkg::*;
#(
    parameter int unsigned Lanes = 16,       // FP32 lanes, 4 bytes each
    parameter int unsigned SegBytes = 1024,  // largest request
    parameter int unsigned ReadTags = 32,    // power of two, 2..64
    parameter int unsigned Queues = 64,
    localparam int unsigned W = 32 * Lanes
) (
    input  logic           clk_i,
    input  logic           rst_i,
    // requests
    input  logic           req_valid_i,
    output logic           req_ready_o,
    input  rd_req_t        req_i,
    // AXI4 read channels
    output logic [7:0]     m_axi_arid,
    output logic [63:0]    m_axi_araddr,
    output logic [7:0]     m_axi_arlen,
    output logic [2:0]     m_axi_arsize,
    output logic [1:0]     m_axi_arburst,
    output logic           m_axi_arvalid,
    input  logic           m_axi_arready,
    input  logic [7:0]     m_axi_rid,
    input  logic [W-1:0]   m_axi_rdata,
    input  logic [1:0]     m_axi_rresp,
    input  logic           m_axi_rlast,
    input  logic           m_axi_rvalid,
    output logic           m_axi_rready,
    // descriptors; the receiver has room
    output logic           desc_valid_o,
    output queue_t         desc_queue_o,
    output desc_t          desc_o,
    output logic           desc_error_o,
    // segment stream
    output logic           hdr_valid_o,
    input  logic           hdr_ready_i,
    output seg_hdr_t       hdr_o,
    output logic           beat_valid_o,
    input  logic           beat_ready_i,
    output logic [W-1:0]   beat_data_o,
    output logic           perf_stall_o,     // reads are out, and no data is there to pass on
    output logic           idle_o
);
  localparam int unsigned BeatBytes = 4 * Lanes;
  localparam int unsigned BeatLog2 = $clog2(BeatBytes);
  localparam int unsigned RoomBytes = SegBytes > DescBytes ? SegBytes : DescBytes;
  localparam int unsigned TagBeats = RoomBytes / BeatBytes;
  localparam int unsigned BeatW = TagBeats > 1 ? $clog2(TagBeats) : 1;
  localparam int unsigned TagW = $clog2(ReadTags);
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;
  localparam int unsigned DescBeats = DescBytes / BeatBytes > 0 ? DescBytes / BeatBytes : 1;
  typedef logic [TagW-1:0] tag_t;
  typedef logic [TagW:0] ptr_t;  // with a wrap bit
  typedef logic [BeatW:0] beats_t;

  // ------------------------------------------------------------------ tags, in order
  typedef struct packed {
    logic     is_desc;
    queue_t   queue;
    bytes_t   bytes;
    seg_hdr_t hdr;
  } meta_t;

  meta_t meta[ReadTags];
  beats_t want[ReadTags];  // beats of the request
  beats_t got[ReadTags];   // beats that have arrived
  logic [ReadTags-1:0] err_q;
  logic [31:0] crc_part[ReadTags];
  ptr_t alloc_q, hdr_q, beat_q;  // next tag to allocate, to judge, to play out

  function automatic beats_t beats_of(bytes_t bytes);
    return beats_t'((bytes + bytes_t'(BeatBytes - 1)) >> BeatLog2);
  endfunction

  logic tag_free, accept;
  assign tag_free = ptr_t'(alloc_q - beat_q) != ptr_t'(ReadTags);

  // ------------------------------------------------------------------ requests into bursts
  logic ar_busy_q;
  logic [63:0] ar_addr_q;
  bytes_t ar_left_q;
  tag_t ar_tag_q;
  logic [12:0] to_page, burst_bytes;
  logic [8:0] burst_beats;

  assign req_ready_o = tag_free && !ar_busy_q;
  assign accept = req_valid_i && req_ready_o;

  localparam logic [12:0] BurstMax = 256 * BeatBytes > 4096 ? 13'd4096 : 13'(256 * BeatBytes);
  assign to_page = 13'd4096 - {1'b0, ar_addr_q[11:0]};
  always_comb begin
    burst_bytes = to_page < BurstMax ? to_page : BurstMax;
    if (16'(burst_bytes) > ar_left_q) burst_bytes = 13'(ar_left_q);
  end
  assign burst_beats = 9'((burst_bytes + 13'(BeatBytes - 1)) >> BeatLog2);

  assign m_axi_arid = 8'(ar_tag_q);
  assign m_axi_araddr = ar_addr_q;
  assign m_axi_arlen = 8'(burst_beats - 9'd1);
  assign m_axi_arsize = 3'(BeatLog2);
  assign m_axi_arburst = 2'b01;
  assign m_axi_arvalid = ar_busy_q;

  always_ff @(posedge clk_i) begin
    if (accept) begin
      meta[alloc_q[TagW-1:0]] <= '{is_desc: req_i.is_desc, queue: req_i.queue, bytes: req_i.bytes, hdr: req_i.hdr};
      want[alloc_q[TagW-1:0]] <= beats_of(req_i.bytes);
      alloc_q <= alloc_q + ptr_t'(1);
      ar_busy_q <= req_i.bytes != '0;
      ar_addr_q <= req_i.addr;
      ar_left_q <= req_i.bytes;
      ar_tag_q <= alloc_q[TagW-1:0];
    end else if (ar_busy_q && m_axi_arready) begin
      ar_addr_q <= ar_addr_q + 64'(burst_bytes);
      ar_left_q <= ar_left_q - 16'(burst_bytes);
      ar_busy_q <= ar_left_q != 16'(burst_bytes);
    end
    if (rst_i) begin
      alloc_q <= '0;
      ar_busy_q <= 1'b0;
    end
  end

  // ------------------------------------------------------------------ arriving data
  tag_t r_tag;
  logic r_take;
  logic [4:0] r_words;  // valid words of this beat
  bytes_t r_rest;
  assign r_tag = m_axi_rid[TagW-1:0];
  assign m_axi_rready = 1'b1;
  assign r_take = m_axi_rvalid;
  assign r_rest = meta[r_tag].bytes - (bytes_t'(got[r_tag]) << BeatLog2);
  assign r_words = r_rest >= bytes_t'(BeatBytes) ? 5'(Lanes) : 5'(r_rest >> 2);

  // The CRC takes its own cycle.
  logic crc_go_q, crc_first_q;
  tag_t crc_tag_q;
  logic [4:0] crc_words_q;
  logic [W-1:0] crc_data_q;

  always_ff @(posedge clk_i) begin
    crc_go_q <= 1'b0;
    if (accept) begin
      got[alloc_q[TagW-1:0]] <= '0;
      err_q[alloc_q[TagW-1:0]] <= 1'b0;
    end
    if (r_take) begin
      got[r_tag] <= got[r_tag] + beats_t'(1);
      if (m_axi_rresp != 2'b00) err_q[r_tag] <= 1'b1;
      if (meta[r_tag].hdr.crc_en && !meta[r_tag].is_desc) begin
        crc_go_q <= 1'b1;
        crc_first_q <= got[r_tag] == '0;
        crc_tag_q <= r_tag;
        crc_words_q <= r_words;
        crc_data_q <= m_axi_rdata;
      end
    end
    if (crc_go_q) begin
      crc_part[crc_tag_q] <= crc32_pkg::crc32_words(
          crc_first_q ? 32'd0 : crc_part[crc_tag_q], 512'(crc_data_q), crc_words_q);
    end
    if (rst_i) crc_go_q <= 1'b0;
  end

  // ------------------------------------------------------------------ headers, in order
  typedef enum logic [1:0] {
    WaitSegment,
    AdvanceCrc,
    JudgeCrc,
    SendHeader
  } hdr_state_e;

  hdr_state_e hdr_state_q;
  logic [31:0] crc_state[Queues];  // of the current descriptor's payload so far
  logic [31:0] crc_run_q;
  logic [11:0] crc_left_q;         // words still to advance by
  logic [3:0] crc_bit;
  status_e hdr_status_q;
  tag_t hdr_tag;
  meta_t hdr_meta;
  logic hdr_arrived, hdr_skip, hdr_sent;

  assign hdr_tag = hdr_q[TagW-1:0];
  assign hdr_meta = meta[hdr_tag];
  // The CRC of the last beat is one cycle behind its count.
  assign hdr_arrived = hdr_q != alloc_q && got[hdr_tag] == want[hdr_tag] && !(crc_go_q && crc_tag_q == hdr_tag);
  assign hdr_skip = hdr_state_q == WaitSegment && hdr_arrived && hdr_meta.is_desc;
  assign hdr_valid_o = hdr_state_q == SendHeader;
  assign hdr_sent = hdr_valid_o && hdr_ready_i;

  always_comb begin
    hdr_o = hdr_meta.hdr;
    hdr_o.status = hdr_status_q;
  end

  // Lowest power of two in the words still to go.
  always_comb begin
    crc_bit = '0;
    for (int i = 11; i >= 0; i--) if (crc_left_q[i]) crc_bit = 4'(i);
  end

  always_ff @(posedge clk_i) begin
    unique case (hdr_state_q)
      WaitSegment: begin
        if (hdr_arrived && !hdr_meta.is_desc) begin
          hdr_status_q <= err_q[hdr_tag] ? StReadError : hdr_meta.hdr.status;
          crc_run_q <= hdr_meta.hdr.first ? 32'hffff_ffff : crc_state[hdr_meta.queue[QueueW-1:0]];
          crc_left_q <= 12'(hdr_meta.bytes >> 2);
          hdr_state_q <= hdr_meta.hdr.crc_en ? AdvanceCrc : SendHeader;
        end
      end
      AdvanceCrc: begin
        crc_run_q <= crc32_pkg::crc32_advance(crc_run_q, crc_bit);
        crc_left_q <= crc_left_q & (crc_left_q - 12'd1);
        if ((crc_left_q & (crc_left_q - 12'd1)) == '0) hdr_state_q <= JudgeCrc;
      end
      JudgeCrc: begin
        crc_state[hdr_meta.queue[QueueW-1:0]] <= crc_run_q ^ crc_part[hdr_tag];
        if (hdr_meta.hdr.crc_check && hdr_status_q == StOk
            && (crc_run_q ^ crc_part[hdr_tag]) != ~hdr_meta.hdr.crc) hdr_status_q <= StCrcError;
        hdr_state_q <= SendHeader;
      end
      SendHeader: if (hdr_ready_i) hdr_state_q <= WaitSegment;
      default: hdr_state_q <= WaitSegment;
    endcase
    if (hdr_sent || hdr_skip) hdr_q <= hdr_q + ptr_t'(1);
    if (rst_i) begin
      hdr_state_q <= WaitSegment;
      hdr_q <= '0;
    end
  end

  // ------------------------------------------------------------------ beats, in order
  // Two stages: read the buffer, then hand on. A word is read only if the output FIFO will have room.
  localparam int unsigned OutDepth = 4;
  localparam int unsigned OutCountW = $clog2(OutDepth + 1);

  logic [W-1:0] rob_rdata;
  tag_t beat_tag;
  beats_t beat_idx_q;
  logic beat_tag_ready, read_go, read_last, tag_done;
  logic read_q, read_desc_q, read_desc_last_q, read_err_q;
  queue_t read_queue_q;
  logic [4:0] read_words_q;
  bytes_t play_rest;
  logic [W-1:0] masked;
  logic out_ready;
  logic [OutCountW-1:0] out_count;

  assign beat_tag = beat_q[TagW-1:0];
  assign beat_tag_ready = beat_q != hdr_q;
  assign play_rest = meta[beat_tag].bytes - (bytes_t'(beat_idx_q) << BeatLog2);
  assign read_go = beat_tag_ready && want[beat_tag] != '0
      && (meta[beat_tag].is_desc || out_count + OutCountW'(read_q) < OutCountW'(OutDepth));
  assign read_last = beat_idx_q + beats_t'(1) == want[beat_tag];
  assign tag_done = beat_tag_ready && (want[beat_tag] == '0 || (read_go && read_last));

  sdp_ram #(
      .Width(W),
      .Depth(ReadTags << BeatW)
  ) u_rob (
      .clk_i,
      .we_i(r_take),
      .waddr_i({r_tag, got[r_tag][BeatW-1:0]}),
      .wdata_i(m_axi_rdata),
      .re_i(read_go),
      .raddr_i({beat_tag, beat_idx_q[BeatW-1:0]}),
      .rdata_o(rob_rdata)
  );

  always_ff @(posedge clk_i) begin
    read_q <= read_go && !meta[beat_tag].is_desc;
    read_desc_q <= read_go && meta[beat_tag].is_desc;
    if (read_go) begin
      read_desc_last_q <= read_last;
      read_err_q <= err_q[beat_tag];
      read_queue_q <= meta[beat_tag].queue;
      read_words_q <= play_rest >= bytes_t'(BeatBytes) ? 5'(Lanes) : 5'(play_rest >> 2);
      beat_idx_q <= read_last ? '0 : beat_idx_q + beats_t'(1);
    end
    if (tag_done) beat_q <= beat_q + ptr_t'(1);
    if (rst_i) begin
      read_q <= 1'b0;
      read_desc_q <= 1'b0;
      beat_idx_q <= '0;
      beat_q <= '0;
    end
  end

  for (genvar lane = 0; lane < int'(Lanes); lane++) begin : gen_mask
    assign masked[32*lane+:32] = 5'(lane) < read_words_q ? rob_rdata[32*lane+:32] : 32'd0;
  end

  stream_fifo #(
      .Width(W),
      .Depth(OutDepth)
  ) u_out (
      .clk_i,
      .rst_i,
      .push_valid_i(read_q),
      .push_ready_o(out_ready),
      .push_data_i(masked),
      .pop_valid_o(beat_valid_o),
      .pop_ready_i(beat_ready_i),
      .pop_data_o(beat_data_o),
      .count_o(out_count)
  );

  // Descriptors are put together from their beats, the first in the lowest bits.
  if (DescBeats == 1) begin : gen_desc_one
    assign desc_o = rob_rdata[511:0];
  end else begin : gen_desc_many
    logic [511-W:0] collected_q;
    always_ff @(posedge clk_i) begin
      if (read_desc_q) collected_q <= (512 - W)'({rob_rdata, collected_q} >> W);
    end
    assign desc_o = {rob_rdata, collected_q};
  end
  assign desc_valid_o = read_desc_q && read_desc_last_q;
  assign desc_queue_o = read_queue_q;
  assign desc_error_o = read_err_q;

  assign idle_o = alloc_q == beat_q && !ar_busy_q && !read_q && !read_desc_q && !beat_valid_o;
  assign perf_stall_o = hdr_q != alloc_q && hdr_q == beat_q && !beat_valid_o;

  `PHUB_ASSERT_STATIC(lanes_a, Lanes == 1 || Lanes == 2 || Lanes == 4 || Lanes == 8 || Lanes == 16)
  `PHUB_ASSERT_STATIC(tags_a, ReadTags >= 2 && ReadTags <= 64 && (1 << TagW) == ReadTags)
  `PHUB_ASSERT(request_fits_a, !accept || 32'(req_i.bytes) <= RoomBytes)
  `PHUB_ASSERT(request_aligned_a, !accept || req_i.bytes == '0 || req_i.addr[5:0] == '0)
  `PHUB_ASSERT(burst_in_page_a, !m_axi_arvalid || {1'b0, ar_addr_q[11:0]} + burst_bytes <= 13'd4096)
  `PHUB_ASSERT(known_tag_a, !r_take || got[r_tag] < want[r_tag])
  `PHUB_ASSERT(out_room_a, !read_q || out_ready)
  `PHUB_COVER(all_tags_c, !tag_free)

  logic unused;
  assign unused = &{1'b0, m_axi_rlast, m_axi_rid};
endmodule : dma_read
