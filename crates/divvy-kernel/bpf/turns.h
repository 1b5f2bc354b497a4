/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that go on without a choice: with what is left of the turn of another of their client, or where nobody else waits. They are put into a
 * CPU's own queue, and as long as anybody is there the kernel asks for no choice: all that share a turn have no more than that together.
 */

/* What is left of the turn that a client has on a CPU, in ns. */
DV_INLINE u64 left_of_turn(struct on_cpu *here, u64 now)
{
	u64 ran = now - here->turn;

	return ran < slice_ns ? slice_ns - ran : 0;
}

/*
 * Whether a task that wakes may go on with the turn of the one of its client that runs on `here`. To the policy they are one: it
 * chose the client, and is asked again when the turn is over. Tasks that hand each other work all the time would pay for a choice with
 * each handing over.
 */
DV_INLINE bool may_share_turn(struct task *t, struct on_cpu *here, u64 now)
{
	return here->since && here->client == t->client && left_of_turn(here, now);
}

/*
 * On several CPUs only one whose waker says that it is about to sleep: it would be bound to this CPU, where another may idle in a
 * moment.
 */
DV_INLINE bool shares_turn(struct task_struct *p, s32 cpu)
{
	struct task *t = task_of(p);
	struct on_cpu *here = on_cpu(cpu);
	u64 now = bpf_ktime_get_ns();

	if (!t || t->kernel || t->generation != about.generation || (u32)cpu >= CPUS || here->leaves)
		return false;
	if (!may_share_turn(t, here, now) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	/* Before the other one sleeps, so that the client does not. */
	take_lock();
	set_runnable(t, true, now);
	drop_lock();
	t->shares_turn = 1;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, left_of_turn(here, now), 0);
	return true;
}

/*
 * Under the lock: whether a task that wakes need not wait for a choice: on a machine of one CPU nobody else waits, and none of
 * another client runs. With more CPUs it would be bound to this one, where another may idle in a moment. One at a time: while anybody is in
 * a CPU's own queue the kernel asks for no choice, and a crowd there would have the CPU for as long as all of it takes.
 */
DV_INLINE bool goes_on_alone(u32 client, struct on_cpu *here)
{
	return nr_cpus_possible == 1 && !here->goes_on && !dv.nr_waiting && !dv.nr_hidden && (!here->since || here->client == client);
}
