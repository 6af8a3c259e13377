// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// The slot controller: who has joined which round, when it is complete, when its slot is free again.
//
// One row of state a slot, one command a cycle: the row is read in the first stage, judged and written back in
// the second; a command for the row in the second stage waits a cycle. Commands that only shrink what is in flight
// (leave, commit, clear) never wait for the others; joins wait for room in the output, and take turns with questions.
// Latency: join 3 cycles to cmd_o, questions 2 cycles.
`include "phub_asserts.svh"
module slot_ctrl
  import phub_pkg::*;
#(
    parameter int unsigned Slots = 1024,  // power of two
    parameter int unsigned Workers = 64   // 1..64; masks are built this wide
) (
    input  logic         clk_i,
    input  logic         rst_i,
    input  cycle_t       cycle_i,
    // segments, in stream order
    input  logic         join_valid_i,
    output logic         join_ready_o,
    input  seg_hdr_t     join_hdr_i,
    input  tenant_cfg_t  join_cfg_i,
    output logic         cmd_valid_o,
    input  logic         cmd_ready_i,
    output agg_cmd_t     cmd_o,
    // desc_exec: must this sequence number wait for its slot?
    input  logic         ask_valid_i,
    output logic         ask_ready_o,
    input  slot_t        ask_slot_i,
    input  seq_t         ask_seq_i,
    output logic         ask_rsp_valid_o,
    output logic         ask_rsp_wait_o,
    // egress_sched: is this result there?
    input  logic         look_valid_i,
    output logic         look_ready_o,
    input  slot_t        look_slot_i,
    input  seq_t         look_seq_i,
    input  tenant_t      look_tenant_i,
    input  worker_t      look_worker_i,
    output logic         look_rsp_valid_o,
    output slot_answer_t look_rsp_o,
    // aggregate: a contribution is in the slot
    input  logic         commit_valid_i,
    output logic         commit_ready_o,
    input  slot_t        commit_slot_i,
    // egress: a worker has the result
    input  logic         leave_valid_i,
    output logic         leave_ready_o,
    input  slot_t        leave_slot_i,
    input  worker_t      leave_worker_i,
    input  seq_t         leave_seq_i,
    // quiesce: forget the slot
    input  logic         clear_valid_i,
    output logic         clear_ready_o,
    input  slot_t        clear_slot_i,
    // debug window
    input  logic         dump_valid_i,
    output logic         dump_ready_o,
    input  slot_t        dump_slot_i,
    output logic         dump_rsp_valid_o,
    output slot_dump_t   dump_rsp_o,
    // wake-ups
    output logic         complete_valid_o,
    output tenant_t      complete_tenant_o,
    output logic         freed_valid_o,
    output tenant_t      freed_tenant_o,
    output logic         count_valid_o,
    input  logic         count_ready_i,
    output count_ev_t    count_o,
    output logic         init_done_o,
    output logic         idle_o
);
  localparam int unsigned SlotW = $clog2(Slots);
  localparam int unsigned CmdDepth = 4;
  typedef logic [Workers-1:0] wmask_t;

  typedef struct packed {
    logic        open;
    logic        complete;
    logic        used;         // seq is of this epoch
    tenant_t     tenant;
    count_t      workers;
    count_t      pending;
    bytes_t      bytes;
    seq_t        seq;
    logic [31:0] key;
    wmask_t      joined;
    wmask_t      contributed;
    wmask_t      left;
    logic [47:0] since;
  } row_t;

  typedef enum logic [2:0] {
    OpNone,
    OpJoin,
    OpAsk,
    OpLook,
    OpCommit,
    OpLeave,
    OpClear,
    OpDump
  } op_e;

  // ------------------------------------------------------------------ first stage: choose and read
  op_e op;
  slot_t slot, join_slot;
  logic [SlotW-1:0] init_q;
  logic init_done_q;
  logic cmd_room, events_room, stall;
  logic [1:0] turn_q;  // which of join, look, ask, dump is first

  op_e op_q;
  slot_t slot_q;
  seg_hdr_t hdr_q;
  count_t workers_q;
  seq_t seq_q;
  tenant_t tenant_q;
  worker_t worker_q;

  assign join_slot = slot_of(join_cfg_i, join_hdr_i.seq);

  always_comb begin
    op = OpNone;
    if (!init_done_q) op = OpNone;
    else if (leave_valid_i) op = OpLeave;
    else if (commit_valid_i) op = OpCommit;
    else if (clear_valid_i) op = OpClear;
    else begin
      // Rotating precedence, so that none of them starves.
      for (int i = 3; i >= 0; i--) begin
        unique case (turn_q + 2'(i))
          2'd0: if (join_valid_i && cmd_room) op = OpJoin;
          2'd1: if (look_valid_i) op = OpLook;
          2'd2: if (ask_valid_i) op = OpAsk;
          default: if (dump_valid_i) op = OpDump;
        endcase
      end
    end
    unique case (op)
      OpJoin:   slot = join_slot;
      OpAsk:    slot = ask_slot_i;
      OpLook:   slot = look_slot_i;
      OpCommit: slot = commit_slot_i;
      OpLeave:  slot = leave_slot_i;
      OpClear:  slot = clear_slot_i;
      OpDump:   slot = dump_slot_i;
      default:  slot = '0;
    endcase
  end

  // The row in the second stage is about to change; events it raises need room.
  assign stall = (op_q != OpNone && slot_q == slot) || !events_room;
  assign join_ready_o = op == OpJoin && !stall;
  assign ask_ready_o = op == OpAsk && !stall;
  assign look_ready_o = op == OpLook && !stall;
  assign commit_ready_o = op == OpCommit && !stall;
  assign leave_ready_o = op == OpLeave && !stall;
  assign clear_ready_o = op == OpClear && !stall;
  assign dump_ready_o = op == OpDump && !stall;

  always_ff @(posedge clk_i) begin
    op_q <= stall ? OpNone : op;
    slot_q <= slot;
    if (op == OpJoin) begin
      hdr_q <= join_hdr_i;
      workers_q <= join_cfg_i.workers;
    end
    seq_q <= op == OpAsk ? ask_seq_i : op == OpLook ? look_seq_i : leave_seq_i;
    tenant_q <= look_tenant_i;
    worker_q <= op == OpLook ? look_worker_i : leave_worker_i;
    if (op inside {OpJoin, OpLook, OpAsk, OpDump} && !stall) turn_q <= turn_q + 2'd1;
    if (!init_done_q) begin
      init_q <= init_q + SlotW'(1);
      init_done_q <= &init_q;
    end
    if (rst_i) begin
      op_q <= OpNone;
      turn_q <= '0;
      init_q <= '0;
      init_done_q <= 1'b0;
    end
  end
  assign init_done_o = init_done_q;

  // ------------------------------------------------------------------ second stage: judge and write
  row_t row, row_d;
  logic write;

  sdp_ram #(
      .Width($bits(row_t)),
      .Depth(Slots)
  ) u_rows (
      .clk_i,
      .we_i(write || !init_done_q),
      .waddr_i(init_done_q ? slot_q[SlotW-1:0] : init_q),
      .wdata_i(init_done_q ? row_d : row_t'(0)),
      .re_i(op != OpNone),
      .raddr_i(slot[SlotW-1:0]),
      .rdata_o(row)
  );

  // Whether sequence number `a` comes after `b`; they wrap.
  function automatic logic newer(seq_t a, seq_t b);
    return $signed(a - b) > 0;
  endfunction

  function automatic wmask_t all_of(count_t workers);
    return wmask_t'((65'd1 << workers) - 65'd1);
  endfunction

  function automatic count_t ones(wmask_t mask);
    count_t n;
    n = '0;
    for (int unsigned w = 0; w < Workers; w++) n += count_t'(mask[w]);
    return n;
  endfunction

  localparam int unsigned WorkerW = Workers > 1 ? $clog2(Workers) : 1;
  logic [WorkerW-1:0] worker_idx;
  assign worker_idx = worker_q[WorkerW-1:0];

  wmask_t me;
  logic same, past, may_open, completes, frees, dropped;
  agg_cmd_t cmd;

  assign me = wmask_t'(1) << hdr_q.worker;
  assign same = row.open && row.tenant == hdr_q.tenant && row.seq == hdr_q.seq;
  assign past = row.used && !newer(hdr_q.seq, row.seq);  // not newer than the slot's last
  assign may_open = !row.open && !past;

  always_comb begin
    row_d = row;
    write = 1'b0;
    dropped = 1'b0;
    cmd = '{hdr: hdr_q, slot: slot_q, first: 1'b0, add: 1'b0};
    unique case (op_q)
      OpJoin: begin
        if (hdr_q.status == StOk) begin
          if (same && (row.key != hdr_q.key || row.bytes != hdr_q.bytes)) cmd.hdr.status = StMismatch;
          else if (same && |(row.joined & me)) begin
            // A PULL after this worker's own PUSH joins nothing and is no error.
            if (hdr_q.has_data) cmd.hdr.status = StDuplicate;
            dropped = 1'b1;
          end else if (!same && !may_open) begin
            if (hdr_q.has_data || !past) begin
              cmd.hdr.status = row.open && row.tenant != hdr_q.tenant ? StMismatch : StStaleSeq;
            end
            dropped = 1'b1;
          end
          if (cmd.hdr.status == StOk && !dropped) begin
            write = 1'b1;
            if (!same) begin
              row_d = '0;
              row_d.open = 1'b1;
              row_d.used = 1'b1;
              row_d.tenant = hdr_q.tenant;
              row_d.workers = workers_q;
              row_d.bytes = hdr_q.bytes;
              row_d.seq = hdr_q.seq;
              row_d.key = hdr_q.key;
              row_d.since = cycle_i[47:0];
            end
            cmd.add = hdr_q.has_data;
            cmd.first = !hdr_q.has_data || row_d.contributed == '0;
            row_d.joined = row_d.joined | me;
            if (hdr_q.waive) row_d.left = row_d.left | me;
            if (hdr_q.has_data) begin
              row_d.contributed = row_d.contributed | me;
              row_d.pending = row_d.pending + count_t'(1);
            end
          end
        end
      end
      OpCommit: begin
        write = 1'b1;
        row_d.pending = row.pending - count_t'(1);
      end
      OpLeave: begin
        // A worker that pulls twice may come too late; it must not leave a later round.
        write = row.open && row.complete && row.seq == seq_q;
        row_d.left = row.left | (wmask_t'(1) << worker_q);
      end
      OpClear: begin
        write = 1'b1;
        row_d = '0;
      end
      default: ;
    endcase
    completes = write && row_d.open && !row.complete && row_d.joined == all_of(row_d.workers) && row_d.pending == '0;
    if (completes) row_d.complete = 1'b1;
    frees = write && row_d.complete && row_d.left == all_of(row_d.workers);
    if (frees) begin
      row_d.open = 1'b0;
      row_d.complete = 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    complete_valid_o <= completes;
    freed_valid_o <= frees || (op_q == OpClear && row.open);
    ask_rsp_valid_o <= op_q == OpAsk;
    look_rsp_valid_o <= op_q == OpLook;
    dump_rsp_valid_o <= op_q == OpDump;
    complete_tenant_o <= row_d.tenant;
    freed_tenant_o <= op_q == OpClear ? row.tenant : row_d.tenant;
    if (op_q == OpAsk) ask_rsp_wait_o <= row.open && newer(seq_q, row.seq);
    if (op_q == OpLook) begin
      look_rsp_o <= '0;
      if (row.open && row.tenant == tenant_q && row.seq == seq_q) begin
        look_rsp_o.ready <= row.complete && !row.left[worker_idx];
        look_rsp_o.stale <= row.left[worker_idx];
        look_rsp_o.contributors <= mask_t'(row.contributed);
        look_rsp_o.count <= ones(row.contributed);
        look_rsp_o.empty <= row.contributed == '0;
      end else begin
        look_rsp_o.stale <= row.used && (!newer(seq_q, row.seq) || (row.open && row.tenant != tenant_q));
      end
    end
    if (op_q == OpDump) begin
      dump_rsp_o <= '{open: row.open, complete: row.complete, fresh: !row.used, tenant: row.tenant,
                      workers: row.workers, pending: row.pending, bytes: row.bytes, seq: row.seq, key: row.key,
                      joined: mask_t'(row.joined), contributed: mask_t'(row.contributed),
                      left: mask_t'(row.left), since: cycle_t'(row.since)};
    end
    if (rst_i) begin
      complete_valid_o <= 1'b0;
      freed_valid_o <= 1'b0;
      ask_rsp_valid_o <= 1'b0;
      look_rsp_valid_o <= 1'b0;
      dump_rsp_valid_o <= 1'b0;
    end
  end

  // ------------------------------------------------------------------ output
  // Room is kept for a command in each stage, so that the second never waits.
  localparam int unsigned CountW = $clog2(CmdDepth + 1);
  logic [CountW-1:0] cmd_count, ev_count;
  logic cmd_ready, ev_ready;
  assign cmd_room = cmd_count + CountW'(op_q == OpJoin) < CountW'(CmdDepth);
  assign events_room = ev_count < CountW'(CmdDepth - 1);

  stream_fifo #(
      .Width($bits(agg_cmd_t)),
      .Depth(CmdDepth)
  ) u_cmds (
      .clk_i,
      .rst_i,
      .push_valid_i(op_q == OpJoin),
      .push_ready_o(cmd_ready),
      .push_data_i(cmd),
      .pop_valid_o(cmd_valid_o),
      .pop_ready_i(cmd_ready_i),
      .pop_data_o(cmd_o),
      .count_o(cmd_count)
  );

  tenant_t ev_tenant;
  stream_fifo #(
      .Width($bits(tenant_t)),
      .Depth(CmdDepth)
  ) u_events (
      .clk_i,
      .rst_i,
      .push_valid_i(completes),
      .push_ready_o(ev_ready),
      .push_data_i(row_d.tenant),
      .pop_valid_o(count_valid_o),
      .pop_ready_i(count_ready_i),
      .pop_data_o(ev_tenant),
      .count_o(ev_count)
  );
  assign count_o = '{tenant: ev_tenant, events: 16'd1 << CntSlotsComplete, bytes: '0};

  assign idle_o = init_done_q && op_q == OpNone && !cmd_valid_o && !leave_valid_i && !commit_valid_i
      && !join_valid_i && !complete_valid_o && !freed_valid_o;

  `PHUB_ASSERT_STATIC(slots_a, Slots >= 2 && Slots <= SlotsMax && (1 << SlotW) == Slots)
  `PHUB_ASSERT(cmd_room_a, op_q != OpJoin || cmd_ready)
  `PHUB_ASSERT(ev_room_a, !completes || ev_ready)
  `PHUB_ASSERT(commit_expected_a, op_q != OpCommit || (row.open && row.pending != '0))
  `PHUB_ASSERT(contributed_joined_a, op_q == OpNone || (row.contributed & ~row.joined) == '0)
  `PHUB_ASSERT(worker_in_world_a, !(op_q == OpJoin && write) || count_t'(hdr_q.worker) < workers_q)
  `PHUB_COVER(complete_c, completes)
  `PHUB_COVER(freed_c, frees)
endmodule : slot_ctrl
