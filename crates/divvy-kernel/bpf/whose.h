/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose a task is: as the loader named its process or its cgroup, or a parent's. Processes come first.
 */
DV_INLINE u32 client_of_cgroup(u64 id)
{
	u32 *client = bpf_map_lookup_elem(&cgroups, &id);

	return client ? *client : 0;
}

DV_PART int refuse_client(void)
{
	static char text[] = "the loader named a client that there is none of";
	unsigned long long none = 0;

	scx_bpf_error_bstr(text, &none, 0);
	return 0;
}

/* Whose it is, where the loader has changed that. */
DV_INLINE void refresh_client(struct task_struct *p, struct task *t)
{
	s32 tgid = p->tgid;
	u32 *found, client = t->client;
	u64 now, ran;

	if (t->generation == about.generation || t->state == TASK_WAITING)
		return;
	t->generation = about.generation;
	found = bpf_map_lookup_elem(&processes, &tgid);
	if (found) {
		client = *found;
		t->by_process = 1;
		if (client >= about.nr_clients) {
			refuse_client();
			return;
		}
	} else if (!t->by_process) {
		struct cgroup *cgrp = scx_bpf_task_cgroup(p);

		client = client_of_cgroup(cgrp->kn->id);
		bpf_cgroup_release(cgrp);
	}
	now = bpf_ktime_get_ns();
	ran = p->se.sum_exec_runtime;
	take_lock();
	set_client(t, client, ran, now);
	drop_lock();
}

SEC("struct_ops.s")
s32 BPF_PROG(divvy_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE), *parent;
	struct task_struct *current = bpf_get_current_task_btf();
	s32 tgid = p->tgid;
	u32 *found;

	if (!t)
		return -12; /* ENOMEM */
	t->kernel = !!(p->flags & PF_KTHREAD);
	t->charged = p->se.sum_exec_runtime;
	t->generation = about.generation;
	found = bpf_map_lookup_elem(&processes, &tgid);
	if (found) {
		t->client = *found;
		t->by_process = 1;
		return 0;
	}
	if (args->fork) {
		/* Its parent may be another's since it was last enqueued. */
		tgid = current->tgid;
		found = bpf_map_lookup_elem(&processes, &tgid);
		parent = bpf_task_storage_get(&tasks, current, 0, 0);
		if (found || (parent && parent->by_process)) {
			t->client = found ? *found : parent->client;
			t->by_process = 1;
			return 0;
		}
	}
	t->client = client_of_cgroup(args->cgroup->kn->id);
	return 0;
}

/* The number of a process may be another's soon. Its threads know whose they are. */
SEC("struct_ops")
void BPF_PROG(divvy_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	s32 tgid = p->tgid;

	if (p->pid == tgid)
		bpf_map_delete_elem(&processes, &tgid);
}

/* A cgroup is its parent's client's, unless the loader says otherwise. Parents come first. */
SEC("struct_ops.s")
s32 BPF_PROG(divvy_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	struct cgroup_subsys_state *parent = cgrp->self.parent;
	u64 id = cgrp->kn->id;
	u32 client;

	if (!parent || bpf_map_lookup_elem(&cgroups, &id))
		return 0;
	client = client_of_cgroup(parent->cgroup->kn->id);
	if (client)
		bpf_map_update_elem(&cgroups, &id, &client, BPF_ANY);
	return 0;
}

SEC("struct_ops.s")
void BPF_PROG(divvy_cgroup_exit, struct cgroup *cgrp)
{
	u64 id = cgrp->kn->id;

	bpf_map_delete_elem(&cgroups, &id);
}

SEC("struct_ops")
void BPF_PROG(divvy_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct task *t = task_of(p);
	u32 client = client_of_cgroup(to->kn->id);
	u64 now = bpf_ktime_get_ns(), ran = p->se.sum_exec_runtime;

	if (!t || t->kernel || t->by_process)
		return;
	take_lock();
	set_client(t, client, ran, now);
	drop_lock();
}
