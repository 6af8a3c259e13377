// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Submission queues: takes doorbells, fetches descriptors, checks them, hands them to desc_ring.
//
// A descriptor is fetched only when there is room for it on the card and a completion entry that nobody
// else can take, so a completion queue cannot overflow. One step (doorbell, start, pop, fetch) takes 3 cycles;
// up to MaxReads descriptors are on their way. A doorbell outside its ring, or a completion head past the tail,
// stops the queue (ErrDoorbell), as does a ring that cannot be read (ErrSqRead).
`include "phub_asserts.svh"
module sq_fetch
  import phub_pkg::*;
#(
    parameter int unsigned Queues = 64,     // 1..64
    parameter int unsigned DescDepth = 16,  // descriptors of a queue on the card
    parameter int unsigned MaxReads = 8     // descriptors on their way
) (
    input  logic        clk_i,
    input  logic        rst_i,
    input  logic        pause_i,        // start no fetch
    // doorbells
    input  tbl_req_t    req_i,
    output tbl_rsp_t    rsp_o,
    // tables
    output queue_t      queue_o,        // of the step machine
    input  queue_cfg_t  cfg_i,
    output queue_t      chk_queue_o,    // of the check of arrived descriptors
    input  queue_cfg_t  chk_cfg_i,
    output tenant_t     tenant_o,
    input  tenant_cfg_t tenant_cfg_i,
    output queue_t      cq_queue_o,     // cq_post's tail of this queue
    input  logic [15:0] cq_tail_i,
    // a queue begins anew
    input  logic        start_valid_i,
    input  queue_t      start_queue_i,
    // a descriptor left the card
    input  logic        pop_valid_i,
    output logic        pop_ready_o,
    input  queue_t      pop_queue_i,
    // fetches
    output logic        rd_valid_o,
    input  logic        rd_ready_i,
    output rd_req_t     rd_o,
    input  logic        desc_valid_i,
    input  queue_t      desc_queue_i,
    input  desc_t       desc_i,
    input  logic        desc_error_i,
    // checked descriptors
    output logic        push_valid_o,
    input  logic        push_ready_i,
    output queue_t      push_queue_o,
    output desc_t       push_desc_o,
    output status_e     push_status_o,
    output logic [15:0] push_sq_head_o,
    // failures of a queue
    output logic        err_valid_o,
    input  logic        err_ready_i,
    output err_ev_t     err_o,
    // next entry to fetch, for the table
    input  queue_t      ptr_queue_i,
    output logic [15:0] ptr_sq_head_o,
    output logic        idle_o,         // nothing on its way
    output logic        busy_o          // something to do, now or after a pause
);
  localparam int unsigned QueueW = Queues > 1 ? $clog2(Queues) : 1;
  localparam int unsigned ReadW = $clog2(MaxReads + 1);
  typedef logic [QueueW-1:0] qidx_t;

  // ------------------------------------------------------------------ ring positions
  typedef struct packed {
    logic [11:0] tail;      // host's next free entry
    logic [11:0] head;      // next entry to fetch
    logic [11:0] cq_head;   // next completion the host will read
    logic [12:0] inflight;  // fetched, completion not yet read by the host
    logic [6:0]  on_card;   // fetched, not yet popped
  } row_t;

  typedef enum logic [2:0] {
    TakeStep,
    ReadTables,
    DoStep,
    SendRead,
    SendError
  } state_e;

  typedef enum logic [1:0] {
    StepFetch,
    StepDoorbell,
    StepPop
  } step_e;

  row_t rows[Queues];
  logic [Queues-1:0] work_q, dead_q;
  logic [Queues-1:0] fresh_q;  // the row counts as zero: the queue has begun anew

  state_e state_q;
  step_e step_q;
  qidx_t q_q;
  row_t row_q, row_d, row_ptr;
  logic row_we;
  logic db_is_cq_q;
  logic [15:0] db_value_q;
  err_e err_code_q;
  logic [ReadW-1:0] reads_q;

  logic grant_valid;
  logic [QueueW-1:0] grant_idx;
  logic take_fetch, room;
  logic [12:0] sq_size, cq_size;
  logic [11:0] sq_mask, cq_mask, db_advance, cq_filled;
  logic db_bad, can_fetch;
  logic desc_taken, err_fire_step, err_fire_chk;
  queue_t chk_queue;  // of the arrived descriptor

  rr_arbiter #(
      .Num(Queues)
  ) u_pick (
      .clk_i,
      .rst_i,
      .req_i(work_q & ~dead_q),
      .ack_i(take_fetch),
      .grant_valid_o(grant_valid),
      .grant_idx_o(grant_idx)
  );

  function automatic row_t row_of(qidx_t queue);
    return fresh_q[queue] ? row_t'(0) : rows[queue];
  endfunction

  logic db_valid;
  assign db_valid = req_i.valid && !rsp_o.ack;
  assign room = reads_q != ReadW'(MaxReads);
  assign take_fetch = state_q == TakeStep && !db_valid && !pop_valid_i && grant_valid && room && !pause_i;
  assign pop_ready_o = state_q == TakeStep && !db_valid;

  assign sq_size = 13'd1 << cfg_i.sq_log2;
  assign cq_size = 13'd1 << cfg_i.cq_log2;
  assign sq_mask = 12'(sq_size - 13'd1);
  assign cq_mask = 12'(cq_size - 13'd1);
  assign db_advance = (db_value_q[11:0] - row_q.cq_head) & cq_mask;
  assign cq_filled = (cq_tail_i[11:0] - row_q.cq_head) & cq_mask;
  assign db_bad = db_is_cq_q ? (db_value_q >= 16'(cq_size) || db_advance > cq_filled) : db_value_q >= 16'(sq_size);
  assign can_fetch = cfg_i.enable && row_q.head != row_q.tail && row_q.inflight < cq_size - 13'd1
      && 32'(row_q.on_card) < DescDepth;

  assign queue_o = queue_t'(q_q);
  assign cq_queue_o = queue_t'(q_q);
  assign row_ptr = row_of(ptr_queue_i[QueueW-1:0]);

  // What the step makes of the row.
  always_comb begin
    row_d = row_q;
    row_we = 1'b0;
    if (state_q == DoStep) begin
      unique case (step_q)
        StepPop: begin
          row_we = 1'b1;
          row_d.on_card = row_q.on_card - 7'd1;
        end
        StepDoorbell: begin
          row_we = cfg_i.enable && !dead_q[q_q] && !db_bad;
          if (db_is_cq_q) begin
            row_d.cq_head = db_value_q[11:0];
            row_d.inflight = row_q.inflight - 13'(db_advance);
          end else begin
            row_d.tail = db_value_q[11:0];
          end
        end
        default: begin
          row_we = can_fetch;
          row_d.head = (row_q.head + 12'd1) & sq_mask;
          row_d.inflight = row_q.inflight + 13'd1;
          row_d.on_card = row_q.on_card + 7'd1;
        end
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    rsp_o <= '0;
    unique case (state_q)
      TakeStep: begin
        if (db_valid) begin
          rsp_o.ack <= 1'b1;
          db_is_cq_q <= req_i.addr[2];
          db_value_q <= req_i.wdata[15:0];
          q_q <= req_i.addr[12+:QueueW];
          row_q <= row_of(req_i.addr[12+:QueueW]);
          step_q <= StepDoorbell;
          // Reads, other offsets of the page and queues that are not built have no effect.
          if (req_i.write && req_i.addr[11:3] == '0 && 32'(req_i.addr[17:12]) < Queues) state_q <= ReadTables;
        end else if (pop_valid_i) begin
          q_q <= pop_queue_i[QueueW-1:0];
          row_q <= row_of(pop_queue_i[QueueW-1:0]);
          step_q <= StepPop;
          state_q <= DoStep;
        end else if (take_fetch) begin
          q_q <= grant_idx;
          row_q <= row_of(grant_idx);
          step_q <= StepFetch;
          state_q <= ReadTables;
        end
      end
      ReadTables: begin
        // Once more: the queue may have begun anew since it was picked, and the table says so.
        row_q <= row_of(q_q);
        state_q <= DoStep;
      end
      DoStep: begin
        state_q <= TakeStep;
        unique case (step_q)
          StepPop: work_q[q_q] <= 1'b1;
          StepDoorbell: begin
            if (cfg_i.enable && !dead_q[q_q]) begin
              if (db_bad) begin
                dead_q[q_q] <= 1'b1;
                err_code_q <= ErrDoorbell;
                state_q <= SendError;
              end else begin
                work_q[q_q] <= 1'b1;
              end
            end
          end
          default: begin
            if (can_fetch) begin
              row_q <= row_d;
              rd_o <= '0;
              rd_o.is_desc <= 1'b1;
              rd_o.queue <= queue_t'(q_q);
              rd_o.addr <= cfg_i.sq_base + {46'd0, row_q.head, 6'd0};
              rd_o.bytes <= bytes_t'(DescBytes);
              state_q <= SendRead;
            end else begin
              work_q[q_q] <= 1'b0;
            end
          end
        endcase
      end
      SendRead: if (rd_ready_i) state_q <= TakeStep;
      SendError: if (err_fire_step) state_q <= TakeStep;
      default: state_q <= TakeStep;
    endcase
    if (err_fire_chk) dead_q[chk_queue[QueueW-1:0]] <= 1'b1;
    if (row_we) begin
      rows[q_q] <= row_d;
      fresh_q[q_q] <= 1'b0;
    end
    if (start_valid_i) begin
      fresh_q[start_queue_i[QueueW-1:0]] <= 1'b1;
      work_q[start_queue_i[QueueW-1:0]] <= 1'b0;
      dead_q[start_queue_i[QueueW-1:0]] <= 1'b0;
    end
    if (rst_i) begin
      rsp_o.ack <= req_i.valid && !rsp_o.ack;
      state_q <= TakeStep;
      work_q <= '0;
      dead_q <= '0;
      fresh_q <= '1;
    end
  end

  assign rd_valid_o = state_q == SendRead;
  assign ptr_sq_head_o = {4'd0, row_ptr.head};

  // Submission index after each descriptor on its way, in the order of the reads.
  logic [15:0] head_after, head_after_chk;
  logic heads_valid;
  assign head_after = {4'd0, row_q.head};  // already moved on in SendRead
  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width(16),
      .Depth(MaxReads)
  ) u_heads (
      .clk_i,
      .rst_i,
      .push_valid_i(rd_valid_o && rd_ready_i),
      .push_ready_o(),
      .push_data_i(head_after),
      .pop_valid_o(heads_valid),
      .pop_ready_i(desc_taken),
      .pop_data_o(head_after_chk),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  // ------------------------------------------------------------------ arrived descriptors
  typedef struct packed {
    logic   error;
    queue_t queue;
    desc_t  desc;
  } arrival_t;

  typedef enum logic [2:0] {
    WaitArrival,
    ReadTenant,
    Check,
    Push,
    Fail
  } check_e;

  arrival_t arrival_in, arrival;
  logic arrival_valid;
  check_e chk_q;
  logic forget;
  status_e status_q, verdict;

  assign arrival_in = '{error: desc_error_i, queue: desc_queue_i, desc: desc_i};
  logic arrival_ready;
  // verilator lint_off PINCONNECTEMPTY
  stream_fifo #(
      .Width($bits(arrival_t)),
      .Depth(MaxReads)
  ) u_arrivals (
      .clk_i,
      .rst_i,
      .push_valid_i(desc_valid_i),
      .push_ready_o(arrival_ready),
      .push_data_i(arrival_in),
      .pop_valid_o(arrival_valid),
      .pop_ready_i(desc_taken),
      .pop_data_o(arrival),
      .count_o()
  );
  // verilator lint_on PINCONNECTEMPTY

  // All of these hold still from WaitArrival to the end of the check.
  assign chk_queue = arrival.queue;
  assign chk_queue_o = chk_queue;
  assign tenant_o = chk_cfg_i.tenant;
  // A descriptor of a queue that has failed meanwhile is forgotten.
  assign forget = dead_q[chk_queue[QueueW-1:0]] || !chk_cfg_i.enable;

  function automatic logic outside(addr_t addr, logic [31:0] length, queue_cfg_t cfg);
    addr_t offset;
    offset = addr - cfg.win_base;
    return addr < cfg.win_base || offset > cfg.win_size || cfg.win_size - offset < addr_t'(length);
  endfunction

  logic has_src, has_dst, flags_bad, fields_bad;
  assign has_src = arrival.desc.opcode == OpPush || arrival.desc.opcode == OpPushPull;
  assign has_dst = arrival.desc.opcode == OpPull || arrival.desc.opcode == OpPushPull;
  assign flags_bad = (arrival.desc.flags & ~FlagsKnown) != '0
      || (arrival.desc.flags[FlagWaive] && arrival.desc.opcode != OpPush)
      || (arrival.desc.flags[FlagCrc] && !has_src);
  assign fields_bad = arrival.desc.reserved != '0 || (!has_src && arrival.desc.src != '0)
      || (!has_dst && arrival.desc.dst != '0);

  always_comb begin
    if (!(has_src || has_dst) || flags_bad || fields_bad) verdict = StBadOpcode;
    else if (arrival.desc.length == '0 || arrival.desc.length[1:0] != '0 || arrival.desc.length > LengthMax)
      verdict = StBadLength;
    else if (arrival.desc.src[5:0] != '0 || arrival.desc.dst[5:0] != '0) verdict = StBadAlign;
    else if ((has_src && outside(arrival.desc.src, arrival.desc.length, chk_cfg_i))
        || (has_dst && outside(arrival.desc.dst, arrival.desc.length, chk_cfg_i))) verdict = StOutOfWindow;
    else if (!tenant_cfg_i.enable || count_t'(chk_cfg_i.worker) >= tenant_cfg_i.workers) verdict = StTenantOff;
    else if (arrival.desc.epoch != tenant_cfg_i.epoch) verdict = StStaleEpoch;
    else verdict = StOk;
  end

  always_ff @(posedge clk_i) begin
    unique case (chk_q)
      // One report of an unreadable ring is enough.
      WaitArrival: if (arrival_valid) chk_q <= arrival.error && !dead_q[chk_queue[QueueW-1:0]] ? Fail : ReadTenant;
      ReadTenant: chk_q <= Check;
      Check: begin
        status_q <= verdict;
        chk_q <= Push;
      end
      Push: if (push_ready_i || forget) chk_q <= WaitArrival;
      Fail: if (err_fire_chk) chk_q <= WaitArrival;
      default: chk_q <= WaitArrival;
    endcase
    if (rst_i) chk_q <= WaitArrival;
  end

  assign push_valid_o = chk_q == Push && !forget;
  assign push_queue_o = chk_queue;
  assign push_desc_o = arrival.desc;
  assign push_status_o = status_q;
  assign push_sq_head_o = head_after_chk;
  assign desc_taken = (chk_q == Push && (push_ready_i || forget)) || err_fire_chk;

  always_ff @(posedge clk_i) begin
    if ((rd_valid_o && rd_ready_i) != desc_taken) begin
      reads_q <= desc_taken ? reads_q - ReadW'(1) : reads_q + ReadW'(1);
    end
    if (rst_i) reads_q <= '0;
  end

  // ------------------------------------------------------------------ errors
  assign err_valid_o = state_q == SendError || chk_q == Fail;
  assign err_fire_step = state_q == SendError && err_ready_i;
  assign err_fire_chk = chk_q == Fail && state_q != SendError && err_ready_i;
  assign err_o = state_q == SendError ? '{code: err_code_q, queue: queue_t'(q_q)}
                                      : '{code: ErrSqRead, queue: chk_queue};

  assign idle_o = state_q == TakeStep && chk_q == WaitArrival && reads_q == '0;
  assign busy_o = !idle_o || |(work_q & ~dead_q) || pop_valid_i || req_i.valid;

  `PHUB_ASSERT_STATIC(desc_depth_a, DescDepth >= 2 && DescDepth <= DescDepthMax)
  `PHUB_ASSERT(arrival_room_a, !desc_valid_i || arrival_ready)
  `PHUB_ASSERT(head_known_a, !arrival_valid || heads_valid)
  `PHUB_ASSERT(on_card_bounded_a, !row_we || 32'(row_d.on_card) <= DescDepth)
endmodule : sq_fetch
