/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs that come and go.
 */
SEC("struct_ops")
void BPF_PROG(divvy_cpu_online, s32 cpu)
{
	if ((u32)cpu < CPUS && __sync_val_compare_and_swap(&on_cpu(cpu)->is_absent, 1, 0))
		__sync_fetch_and_add(&dv.cpus, 1);
}

/* Which CPUs are there as it begins. */
DV_INLINE void note_cpus(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	int i;

	bpf_for(i, 0, CPUS) {
		if ((u32)i >= nr_cpus_possible)
			break;
		if (bpf_cpumask_test_cpu(i, online))
			dv.cpus++;
		else
			on_cpu(i)->is_absent = 1;
	}
	scx_bpf_put_cpumask(online);
}

/* Those of a client's queue that ran on `cpu` last go to that CPU's own queue. */
DV_PART int leave_queue(u32 client, s32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	if (bpf_iter_scx_dsq_new(&it, client, 0) == 0) {
		while ((p = bpf_iter_scx_dsq_next(&it))) {
			if (scx_bpf_task_cpu(p) == cpu)
				scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL_ON | cpu, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/*
 * A CPU is being taken away. The kernel waits until none of the tasks that ran on it last is there any more, and asks it for no more
 * choices; those that may run there alone could go nowhere else, until the watchdog came. From the CPU's own queue the kernel itself puts
 * them on others, whatever their affinity.
 */
SEC("struct_ops")
void BPF_PROG(divvy_cpu_offline, s32 cpu)
{
	u32 nr = about.nr_clients;
	int i;

	if ((u32)cpu < CPUS) {
		if (!__sync_val_compare_and_swap(&on_cpu(cpu)->is_absent, 0, 1))
			__sync_fetch_and_add(&dv.cpus, -1);
		on_cpu(cpu)->overdue = 0;
	}
	bpf_for(i, 0, DV_MAX) {
		if ((u32)i >= nr)
			break;
		leave_queue(i, cpu);
	}
}
