/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU asks for its next task.
 */
/* So many clients are tried in the policy's order: where tasks are bound to CPUs, the first may have none for this one. */
#define TRIES 128

/* PBS looks at everybody for each. */
DV_INLINE u32 nr_tries(void)
{
	return dv_policy == DV_PBS ? TRIES / 4 : TRIES;
}

/* Anybody who may run here, of the clients from `client` on, in turn. */
DV_PART bool move_anybody(u32 client)
{
	u32 nr = about.nr_clients;
	int i;

	bpf_for(i, 0, DV_MAX) {
		if ((u32)i >= nr)
			break;
		if (client >= nr)
			client = 0;
		if (scx_bpf_dsq_move_to_local(client & (DV_MAX - 1)))
			return true;
		client++;
	}
	return false;
}

/* So many clients are looked at before a choice. */
#define RESHARED 128

/* All shares up to this `about.share_generation` have been taken over; those up to the other one of clients before `share_at`. */
u32 shares_taken, shares_looked_at, share_at;

/* Clients that wait have other shares now: by the old ones their turns may be far off. */
DV_PART int take_shares(void)
{
	int i;

	take_lock();
	if (!share_at)
		shares_looked_at = about.share_generation;
	bpf_for(i, 0, RESHARED) {
		u32 at = share_at;

		if (at >= about.nr_clients) {
			shares_taken = shares_looked_at;
			share_at = 0;
			break;
		}
		share_at = at + 1;
		if (DV(at)->nr_waiting + DV(at)->nr_hidden && DV(at)->wanted != DV(at)->share)
			dv_reshare(at, DV(at)->wanted);
	}
	drop_lock();
	return 0;
}

SEC("struct_ops")
void BPF_PROG(divvy_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task *last = NULL;
	struct dv_before before = { 0, 0, DV_NONE };
	u32 hidden = 0, nr_refused = 0, id, urgent;
	u64 now = bpf_ktime_get_ns(), ran = 0, slice;
	bool moved = false, keep = false, again = false;
	int i;

	/* The kernel asks when its own queue is empty. */
	on_cpu(cpu)->nr_going_on = 0;
	on_cpu(cpu)->asked_at = now;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED)) {
		last = task_of(prev);
		if (last && last->kernel)
			last = NULL;
		ran = prev->se.sum_exec_runtime;
	}
	if (shares_taken != about.share_generation)
		take_shares();
	id = overdue_here(cpu, now);
	if (id < DV_MAX) {
		if (last) {
			take_lock();
			charge(last, ran);
			set_waiting(last);
			drop_lock();
		}
		moved = scx_bpf_dsq_move_to_local(id);
		if (moved) {
			__sync_fetch_and_add(&about.nr_overdue, 1);
			take_lock();
			DV(id)->flags |= DV_OVERDUE;
			drop_lock();
		}
	}
	bpf_for(i, 0, TRIES) {
		if (moved || (u32)i >= nr_tries())
			break;
		take_lock();
		if (last && !i) {
			/* The task that has just ended its slice is in no queue, and may go on. */
			charge(last, ran);
			set_waiting(last);
		}
		urgent = dv.urgent;
		id = dv_pick(on_cpu(cpu)->client, now);
		if (id < DV_MAX)
			before = dv_chosen(id, urgent);
		/* Those of its client that wait go first. */
		keep = last && id == last->client && DV(id)->nr_waiting == 1;
		if (keep)
			set_state(last, TASK_RUNNING);
		/* Nobody, but for those that another CPU leaves out for a moment: one of them may be for this CPU alone. */
		again = id == DV_NONE && dv.nr_hidden && dv.nr_hidden > dv_nr_hidden(hidden);
		drop_lock();
		if (id >= DV_MAX || keep)
			break;
		moved = scx_bpf_dsq_move_to_local(id);
		if (moved)
			break;
		keep = last && id == last->client;
		if (keep)
			break;
		/* Not counted up: the verifier would follow every count. */
		nr_refused = i + 1;
		take_lock();
		hidden = dv_hide(id, hidden);
		dv_refused(id, before);
		drop_lock();
	}
	bpf_for(i, 0, TRIES) {
		if (!hidden)
			break;
		take_lock();
		hidden = dv_show(hidden);
		drop_lock();
	}
	/* Rather anybody than nobody, or always the same. */
	if (!moved && !keep && nr_refused == nr_tries())
		moved = move_anybody(on_cpu(cpu)->client + 1);
	if (!last && !moved && again)
		scx_bpf_kick_cpu(cpu, 0);
	if (last && !moved) {
		if (last->state != TASK_RUNNING) {
			take_lock();
			set_state(last, TASK_RUNNING);
			drop_lock();
		}
		on_cpu(cpu)->since = now;
		slice = now - overdue_at < TURN_NS ? slice_ns_min : slice_ns;
		prev->scx.slice = slice;
		on_cpu(cpu)->turn = now - (slice_ns - slice);
		__sync_fetch_and_add(&about.nr_kept, 1);
	}
	__sync_fetch_and_add(&about.nr_decisions, 1);
	if (nr_refused)
		__sync_fetch_and_add(&about.nr_refused, nr_refused);
}
