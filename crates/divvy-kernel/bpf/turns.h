/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that go on without a choice: with a part of the turn of another of their client, or where nobody else waits. They are put into a CPU's
 * own queue, and as long as anybody is there the kernel asks for no choice: all that share a turn have no more than that together.
 */

/* What is left of the turn that a client has on a CPU, in ns, when each of the others that go on there has its least. */
DV_INLINE u64 left_beside(struct on_cpu *here, u64 now)
{
	u64 used = now - here->turn + here->nr_going_on * slice_ns_min;

	return used < slice_ns ? slice_ns - used : 0;
}

/*
 * How long a task that wakes may run in the turn of the one of its client that runs on `here`, in ns; 0: it waits for a choice. To the
 * policy they are one: it chose the client, and is asked again when the turn is over. Tasks that hand each other work all the time would
 * pay for a choice with each handing over.
 */
DV_INLINE u64 part_of_turn(struct task *t, struct on_cpu *here, u64 now)
{
	u64 left;

	if (!here->since || here->client != t->client || here->nr_going_on == NR_GOING_ON_MAX)
		return 0;
	left = left_beside(here, now);
	return here->nr_going_on && left < slice_ns_min ? 0 : left;
}

/*
 * A task is put into the own queue of `here`. The one that runs leaves each its least, but for the first: mostly that runs at once, for its waker
 * sleeps, and for as long as a tick nothing ends a turn.
 */
DV_INLINE void go_on(struct task *t, struct on_cpu *here, u8 how)
{
	t->goes_on = how;
	if (here->nr_going_on++) {
		struct task_struct *current = bpf_get_current_task_btf();

		if (!(current->flags & PF_KTHREAD) && current->scx.slice > slice_ns_min)
			current->scx.slice -= slice_ns_min;
	}
}

/*
 * On several CPUs only one whose waker says that it is about to sleep: it would be bound to this CPU, where another may idle in a
 * moment.
 */
DV_INLINE bool shares_turn(struct task_struct *p, s32 cpu)
{
	struct task *t = task_of(p);
	struct on_cpu *here = on_cpu(cpu);
	u64 now = bpf_ktime_get_ns(), left;

	if (!t || t->kernel || t->generation != about.generation || (u32)cpu >= CPUS || here->is_absent)
		return false;
	left = part_of_turn(t, here, now);
	if (!left || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	/* Before the other one sleeps, so that the client does not. */
	take_lock();
	set_runnable(t, true, now);
	drop_lock();
	go_on(t, here, SHARES_TURN);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, left, 0);
	return true;
}

/*
 * Under the lock: whether a task that wakes need not wait for a choice: on a machine of one CPU nobody else waits, and none of
 * another client runs. With more CPUs it would be bound to this one, where another may idle in a moment. One at a time: a crowd would have the
 * CPU for as long as all of it takes, whoever comes.
 */
DV_INLINE bool goes_on_alone(u32 client, struct on_cpu *here)
{
	if (nr_cpus_possible > 1 || here->nr_going_on || dv.nr_waiting || dv.nr_hidden)
		return false;
	return !here->since || here->client == client;
}
