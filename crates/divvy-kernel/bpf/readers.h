/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that were taken off their CPU in the middle of what RCU guards.
 */
/*
 * Whether it was taken off its CPU while it reads what RCU guards. Everybody who frees something waits for it then, and after 21 s the kernel
 * complains, and ends the scheduler.
 */
DV_INLINE bool is_rcu_reader(struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_unlock_special) && p->rcu_read_unlock_special.b.blocked;
}

/* When anybody was last overdue. */
u64 overdue_at;

/* It is on a CPU: whether it still reads what it read when it was taken off. The mark is set as a task goes, and cleared as it is through. */
DV_INLINE void note_reads(struct task_struct *p, struct task *t, bool begins)
{
	t->reads = (begins || t->reads) && is_rcu_reader(p);
}

/* For so long after a choice whoever reads goes on without one. */
#define READING_NS (TURN_NS / 5)

/*
 * Whether one that was taken off its CPU goes on next on `here`, to be through with what it reads. For a while after each choice: two that always read
 * would have a CPU to themselves otherwise, and nobody else were ever chosen. Where somebody has waited for too long, even such turns would
 * keep the others waiting: nobody waits for longer there than the watchdog lets them, and only whoever was not through after a whole turn goes
 * on. Thousands that end at once read all the time, but hardly ever the same for so long.
 */
DV_INLINE bool goes_on_reading(struct task_struct *p, struct task *t, struct on_cpu *here, u64 now)
{
	if (!is_rcu_reader(p))
		return false;
	return t->reads || (now - overdue_at >= TURN_NS && now - here->asked_at < READING_NS);
}
