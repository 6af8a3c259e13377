// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// sq_fetch fetches each announced entry of a ring once and in order, over every wrap-around; never past the host's tail; never
// a descriptor whose completion would find no room, whatever the doorbells say. Proved for two queues of any ring sizes.
module sq_fetch_props
  import phub_pkg::*;
(
    input logic        clk_i,
    input logic        rst_i,
    input tbl_req_t    req_i,
    input logic        start_valid_i,
    input queue_t      start_queue_i,
    input logic        pop_valid_i,
    input queue_t      pop_queue_i,
    input queue_cfg_t  cfg_i,
    input logic [15:0] cq_tail_i,
    input logic        rd_valid_o,
    input logic        rd_ready_i,
    input rd_req_t     rd_o,
    input logic        desc_valid_i,
    input queue_t      desc_queue_i,
    input logic        at_rest,       // no step under way
    input logic        checking,      // an arrived descriptor
    input logic        in_tables,
    input logic        in_do,
    input logic        is_pop,
    input logic        is_fetch,
    input logic        is_doorbell,
    input logic        db_is_cq_q,
    input logic [11:0] db_advance,
    input logic        q_q,
    input logic        row_we,
    input logic [55:0] row_step,
    input logic [55:0] row0,
    input logic [55:0] row1,
    input logic [1:0]  fresh_q,
    input logic [1:0]  reads_q,
    input logic [1:0]  heads_count,
    input logic [1:0]  arrivals_count,
    input logic [1:0]  posts,         // left open: a completion entry of queue i is written
    input logic [1:0]  stops,         // left open: queue i is disabled
    input logic [3:0]  sq_log2_0,     // left open: size and place of each ring, as it begins
    input logic [3:0]  sq_log2_1,
    input logic [3:0]  cq_log2_0,
    input logic [3:0]  cq_log2_1,
    input addr_t       base_0,
    input addr_t       base_1
);
  typedef struct packed {
    logic [11:0] tail;
    logic [11:0] head;
    logic [11:0] cq_head;
    logic [12:0] inflight;
    logic [6:0]  on_card;
  } row_t;

  logic begun_q = 1'b0;
  logic fetch;
  logic [2:0] waiting_q;  // reads not yet answered
  assign fetch = rd_valid_o && rd_ready_i;

  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    reset_first : assume (begun_q || rst_i);
    queues_exist : assume (start_queue_i < 6'd2 && pop_queue_i < 6'd2 && desc_queue_i < 6'd2);
    answers : assume (!desc_valid_i || waiting_q != '0);
    sizes : assume (sq_log2_0 >= 4'd1 && sq_log2_0 <= 4'd12 && sq_log2_1 >= 4'd1 && sq_log2_1 <= 4'd12
        && cq_log2_0 >= 4'd1 && cq_log2_0 <= 4'd12 && cq_log2_1 >= 4'd1 && cq_log2_1 <= 4'd12);
    // A queue begins by a register access, and there is one at a time: no doorbell then, nor that which disabled it.
    one_access : assume (!start_valid_i || (!req_i.valid && !((in_tables || in_do) && is_doorbell)));
    waiting_q <= rst_i ? '0 : waiting_q + 3'(fetch) - 3'(desc_valid_i);
    if (!rst_i) begin
      reads_a : assert (4'(reads_q) == 4'(waiting_q) + 4'(arrivals_count) && reads_q <= 2'd2 && heads_count == reads_q
          && (!checking || arrivals_count != '0) && (reads_q != 2'd2 || !(rd_valid_o || (is_fetch && (in_tables || in_do)))));
    end
  end

  for (genvar s = 0; s < 2; s++) begin : gen_queue
    // What has happened since the queue began, counted without end.
    logic [15:0] fetched_q, posted_q, read_q;
    logic [6:0] held_q;  // on the card
    logic [3:0] sq_log2_q, cq_log2_q;
    addr_t base_q;
    logic on_q, seen_on_q;  // enabled; enabled when the step read the table
    logic [1:0] was_on_q;   // in the cycles before
    logic [12:0] cq_size;
    logic [11:0] sq_mask, cq_mask;
    logic ours, starts, steps, fetches, pops, reads;
    row_t row;

    assign row = fresh_q[s] ? '0 : s == 0 ? row0 : row1;
    assign ours = 32'(q_q) == s;
    assign starts = start_valid_i && 32'(start_queue_i) == s;
    assign steps = in_do && ours;
    assign fetches = steps && is_fetch && row_we;
    assign pops = steps && is_pop;
    assign reads = steps && is_doorbell && db_is_cq_q && row_we;
    assign cq_size = 13'd1 << cq_log2_q;
    assign sq_mask = 12'((13'd1 << sq_log2_q) - 13'd1);
    assign cq_mask = 12'(cq_size - 13'd1);

    always_ff @(posedge clk_i) begin
      on_q <= !rst_i && (starts || (on_q && !stops[s]));
      was_on_q <= {was_on_q[0], on_q};
      if (in_tables) seen_on_q <= on_q;
      if (rst_i || starts) begin
        fetched_q <= '0;
        posted_q <= '0;
        read_q <= '0;
        held_q <= '0;
        sq_log2_q <= s == 0 ? sq_log2_0 : sq_log2_1;
        cq_log2_q <= s == 0 ? cq_log2_0 : cq_log2_1;
        base_q <= s == 0 ? base_0 : base_1;
      end else begin
        fetched_q <= fetched_q + 16'(fetches);
        posted_q <= posted_q + 16'(posts[s]);
        held_q <= held_q + 7'(fetches) - 7'(pops);
        if (reads) read_q <= read_q + 16'(db_advance);
      end
      // The neighbours: a completion only of what was fetched, a pop only of what is held, tables that hold still.
      completions : assume (!posts[s] || posted_q != fetched_q);
      pops_of_held : assume (!(pop_valid_i && 32'(pop_queue_i) == s) || held_q != '0);
      starts_empty : assume (!starts || (!on_q && was_on_q == '0 && held_q == '0));
      table_on : assume (!steps || is_pop || cfg_i.enable == seen_on_q);
      table_still : assume (!steps || !cfg_i.enable || (cfg_i.sq_log2 == sq_log2_q
          && cfg_i.cq_log2 == cq_log2_q && cfg_i.sq_base == base_q));
      tail_of_posts : assume (!steps || cq_tail_i == 16'(12'(posted_q) & cq_mask));
      if (!rst_i) begin
        // What makes it inductive.
        step_a : assert (!(ours && in_do && (is_pop || seen_on_q)) || (row_step == row && (!is_pop || held_q != '0)));
        sent_a : assert (!(ours && rd_valid_o) || (row_step == row && held_q != '0));
        counts_a : assert (sq_log2_q >= 4'd1 && sq_log2_q <= 4'd12 && cq_log2_q >= 4'd1 && cq_log2_q <= 4'd12
            && row.cq_head == (12'(read_q) & cq_mask) && row.tail <= sq_mask && row.on_card == held_q
            && row.inflight == 13'(fetched_q - read_q));
        order_a : assert (16'(fetched_q - read_q) < 16'(cq_size) && 16'(posted_q - read_q) <= 16'(fetched_q - read_q));
        // What is promised.
        head_a : assert (row.head == (12'(fetched_q) & sq_mask));
        entry_a : assert (!(ours && rd_valid_o) || (rd_o.is_desc && rd_o.queue == queue_t'(s) && rd_o.bytes == 16'd64
            && rd_o.addr == base_q + {46'd0, 12'(fetched_q - 16'd1) & sq_mask, 6'd0}));
        not_past_a : assert (!fetches || row.head != row.tail);
        room_a : assert (16'(fetched_q - read_q) < 16'(cq_size));
        depth_a : assert (held_q <= 7'd2);
        wrap_c : cover (fetches && row.head == sq_mask);
        full_c : cover (at_rest && row.inflight == cq_size - 13'd1 && row.head != row.tail);
      end
    end
  end
endmodule : sq_fetch_props

bind sq_fetch sq_fetch_props u_props (
    .*,
    .at_rest(state_q == TakeStep),
    .checking(chk_q != WaitArrival),
    .in_tables(state_q == ReadTables),
    .in_do(state_q == DoStep),
    .is_pop(step_q == StepPop),
    .is_fetch(step_q == StepFetch),
    .is_doorbell(step_q == StepDoorbell),
    .row_step(row_q),
    .row0(rows[0]),
    .row1(rows[1]),
    .heads_count(u_heads.count_o),
    .arrivals_count(u_arrivals.count_o),
    .posts(),
    .stops(),
    .sq_log2_0(),
    .sq_log2_1(),
    .cq_log2_0(),
    .cq_log2_1(),
    .base_0(),
    .base_1()
);
