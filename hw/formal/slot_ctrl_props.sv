// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// slot_ctrl counts each sender exactly once a round, a round is complete exactly when all have joined and every
// contribution is committed, and no sequence number is added to again once its round is over.
//
// A ghost of each slot follows the commands alone. Proved for two slots and one or two workers, any tenants,
// sequence numbers, keys and interleaving. That the row in the RAM equals the ghost makes it inductive.
module slot_ctrl_props
  import phub_pkg::*;
#(
    localparam int unsigned RowBits = 157  // of row_t with two workers
) (
    input logic               clk_i,
    input logic               rst_i,
    input logic               join_valid_i,
    input seg_hdr_t           join_hdr_i,
    input tenant_cfg_t        join_cfg_i,
    input slot_t              join_slot,
    input logic               commit_valid_i,
    input slot_t              commit_slot_i,
    input logic               leave_valid_i,
    input slot_t              leave_slot_i,
    input worker_t            leave_worker_i,
    input slot_t              ask_slot_i,
    input slot_t              look_slot_i,
    input slot_t              clear_slot_i,
    input slot_t              dump_slot_i,
    input logic               init_done_q,
    input logic               init_q,
    // second stage
    input logic               is_none,
    input logic               is_join,
    input logic               is_commit,
    input logic               is_leave,
    input logic               is_clear,
    input slot_t              slot_q,
    input seg_hdr_t           hdr_q,
    input count_t             workers_q,
    input seq_t               seq_q,
    input worker_t            worker_q,
    input agg_cmd_t           cmd,
    input logic               completes,
    input logic               frees,
    input logic [2:0]         cmd_count,
    input logic [2:0]         ev_count,
    input logic [RowBits-1:0] row_read,
    input logic [RowBits-1:0] row0,
    input logic [RowBits-1:0] row1,
    input logic               two  // left open: a world of two workers, else of one
);
  typedef struct packed {
    logic        open;
    logic        complete;
    logic        used;
    tenant_t     tenant;
    count_t      workers;
    count_t      pending;
    bytes_t      bytes;
    seq_t        seq;
    logic [31:0] key;
    logic [1:0]  joined;
    logic [1:0]  contributed;
    logic [1:0]  left;
    logic [47:0] since;
  } ghost_t;

  logic begun_q = 1'b0;
  logic two_q;
  count_t world;
  logic [1:0] all;
  logic judged;
  assign judged = join_valid_i && join_hdr_i.status == StOk;
  assign world = two_q ? 7'd2 : 7'd1;
  assign all = {two_q, 1'b1};

  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    if (!begun_q) two_q <= two;
    reset_first : assume (begun_q || rst_i);
    // What the neighbours promise: slots that exist, workers of the world; of a marked header, nothing.
    slots_exist : assume ((!judged || join_slot < 16'd2) && commit_slot_i < 16'd2 && leave_slot_i < 16'd2
                          && ask_slot_i < 16'd2 && look_slot_i < 16'd2 && clear_slot_i < 16'd2 && dump_slot_i < 16'd2);
    one_world : assume (!judged || join_cfg_i.workers == world);
    known_worker : assume (!judged || count_t'(join_hdr_i.worker) < world);
    known_leaver : assume (!leave_valid_i || count_t'(leave_worker_i) < world);
    if (!rst_i) begin
      stage_a : assert (is_none || (init_done_q && ev_count <= 3'd3
                        && (slot_q < 16'd2 || (is_join && hdr_q.status != StOk))));
      join_a : assert (!is_join || (cmd_count <= 3'd3
                       && (hdr_q.status != StOk || (workers_q == world && count_t'(hdr_q.worker) < world))));
      leave_a : assert (!is_leave || count_t'(worker_q) < world);
    end
  end

  for (genvar s = 0; s < 2; s++) begin : gen_slot
    ghost_t ghost_q, ghost, kept, stored, read;  // as it was, with this command, and what the module has
    logic here, adds, joins, opens, commits, leaves, done, over;
    logic [1:0] me;

    assign here = !is_none && slot_q == 16'(s);
    assign me = 2'b01 << hdr_q.worker[0];
    assign adds = here && is_join && cmd.add;
    assign joins = here && is_join && (cmd.add || cmd.first);
    assign opens = joins && !ghost_q.open;
    assign commits = here && is_commit;
    assign leaves = here && is_leave && ghost_q.complete && seq_q == ghost_q.seq;

    always_comb begin
      ghost = ghost_q;
      if (opens) begin
        ghost = '0;
        ghost.open = 1'b1;
        ghost.used = 1'b1;
        ghost.tenant = hdr_q.tenant;
        ghost.workers = world;
        ghost.bytes = hdr_q.bytes;
        ghost.seq = hdr_q.seq;
        ghost.key = hdr_q.key;
      end
      if (joins) ghost.joined |= me;
      if (joins && hdr_q.waive) ghost.left |= me;
      if (adds) ghost.contributed |= me;
      if (adds) ghost.pending = ghost.pending + 7'd1;
      if (commits) ghost.pending = ghost.pending - 7'd1;
      if (leaves) ghost.left |= 2'b01 << worker_q[0];
      done = ghost.open && ghost.joined == all && ghost.pending == '0;
      over = done && ghost.left == all;
      ghost.complete = done;
      if (over) begin
        ghost.open = 1'b0;
        ghost.complete = 1'b0;
      end
      if (here && is_clear) ghost = '0;
      // The time of opening is no part of the promise.
      kept = s == 0 ? row0 : row1;
      read = row_read;
      stored = kept;
      stored.since = '0;
    end

    always_ff @(posedge clk_i) ghost_q <= rst_i ? '0 : ghost;

    always_ff @(posedge clk_i) begin
      commit_of_one : assume (!(commit_valid_i && commit_slot_i == 16'(s)) || ghost_q.pending != '0);
      if (!rst_i) begin
        // What makes it inductive.
        stored_a : assert (!(init_done_q || 32'(init_q) > s) || stored == ghost_q);
        init_a : assert (init_done_q || ghost_q == '0);
        read_a : assert (!here || read == kept);
        ghost_a : assert ((ghost_q.contributed & ~ghost_q.joined) == '0 && (ghost_q.joined & ~all) == '0
            && (!ghost_q.complete || ghost_q.open) && (ghost_q.open || ghost_q.pending == '0)
            && (!ghost_q.open || (ghost_q.used && ghost_q.workers == world))
            && ghost_q.complete == (ghost_q.open && ghost_q.joined == all && ghost_q.pending == '0)
            && ghost_q.pending <= 7'(ghost_q.contributed[0]) + 7'(ghost_q.contributed[1]));
        pending_a : assert (!commits || ghost_q.pending != '0);

        // What is promised.
        once_a : assert (!joins || opens || (ghost_q.joined & me) == '0);
        same_round_a : assert (!joins || opens || (hdr_q.tenant == ghost_q.tenant && hdr_q.seq == ghost_q.seq
            && hdr_q.key == ghost_q.key && hdr_q.bytes == ghost_q.bytes));
        never_again_a : assert (!opens || !ghost_q.used || $signed(hdr_q.seq - ghost_q.seq) > 0);
        first_a : assert (!adds || cmd.first == (opens || ghost_q.contributed == '0));
        sound_a : assert (!joins || (hdr_q.status == StOk && cmd.hdr == hdr_q && cmd.slot == 16'(s)));
        complete_a : assert (!here || completes == (done && !ghost_q.complete));
        freed_a : assert (!here || frees == over);
        heard_a : assert (!(here && is_join && hdr_q.status == StOk && hdr_q.has_data && ghost_q.open
            && hdr_q.tenant == ghost_q.tenant && hdr_q.seq == ghost_q.seq && hdr_q.key == ghost_q.key
            && hdr_q.bytes == ghost_q.bytes && (ghost_q.joined & me) == '0) || adds);
        complete_c : cover (here && completes && two_q && ghost.contributed == 2'b11);
        freed_c : cover (here && frees && is_leave && two_q);
        again_c : cover (opens && ghost_q.used);
      end
    end
  end
endmodule : slot_ctrl_props

bind slot_ctrl slot_ctrl_props u_props (
    .*,
    .is_none(op_q == OpNone),
    .is_join(op_q == OpJoin),
    .is_commit(op_q == OpCommit),
    .is_leave(op_q == OpLeave),
    .is_clear(op_q == OpClear),
    .row_read(row),
    .row0(u_rows.mem[0]),
    .row1(u_rows.mem[1]),
    .two()
);
