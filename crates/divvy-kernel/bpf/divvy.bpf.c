/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU scheduler for the kernel's sched_ext class. Clients are divided by the policy of core.h; the tasks of one client
 * wait in a queue of its own, first in, first out. A task belongs to the client of its process, as the loader or a parent
 * gave it, else to that of its cgroup, else to client 0, which is everybody else. The kernel's own threads belong to nobody
 * and go first.
 *
 * One lock is around the policy. No queue is moved under it.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "core.h"

/* Raised with every change of what other programs read. */
#define DV_VERSION 6

char _license[] SEC("license") = "GPL";

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) __ksym;
void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz) __ksym;
void bpf_cgroup_release(struct cgroup *cgrp) __ksym;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
u32 bpf_cpumask_any_distribute(const struct cpumask *cpumask) __ksym;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

/* How long a chosen task runs at most, in ns: a little less than the quantum, since it ends on a tick. */
const volatile u64 slice_ns = 19000000;
/* The shortest: a little less than a tick. */
const volatile u64 slice_ns_min = 3000000;
/* Nobody waits for longer than this, whatever its client's share; 0: for as long as the policy says. */
const volatile u64 patience_ns = 10000000000;
const volatile u64 seed = 1;

/* What other programs read in the same map, beside the policy's state. */
struct about {
	u32 version; /* of this layout */
	u32 generation; /* raised by the loader when processes or cgroups have other clients */
	u32 share_generation; /* raised by it when clients have other shares */
	u32 nr_clients;
	s32 loader; /* pid */
	u64 since; /* CLOCK_MONOTONIC, in ns */
	char policy[64];
	/* Why the kernel let go of this scheduler. */
	u32 left;
	u32 left_kind;
	s64 left_code;
	char left_reason[128];
	char left_message[1024];
	u64 nr_decisions;
	u64 nr_kept; /* the task that ran before runs on */
	u64 nr_refused; /* chosen, but nobody of it may run on this CPU */
	u64 nr_kernel_threads;
	u64 nr_preempted; /* made way for one that woke */
	u64 nr_overdue; /* had a turn out of the policy's order, for it had waited for too long */
	u64 shares[DV_MAX]; /* as asked for; what a policy divides by may be less, where it cannot be used */
	char names[DV_MAX][32];
};

struct about about SEC(".data.divvy");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u32);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, s32);
	__type(value, u32);
} processes SEC(".maps");

enum task_state {
	TASK_OFF = 0,
	TASK_WAITING = 1,
	TASK_RUNNING = 2,
};

enum going_on {
	GOES_ON_ALONE = 1, /* nobody else waited */
	SHARES_TURN = 2, /* with a part of the turn of the one that runs */
};

struct task {
	u64 charged; /* the kernel's account of its time, up to which the client was charged */
	u64 waits_since; /* when it was queued, in ns; 0: it has run since */
	u32 client;
	u32 generation;
	u8 state;
	u8 runnable;
	u8 by_process; /* its client is that of its process, not of its cgroup */
	u8 kernel;
	u8 goes_on; /* is in a CPU's own queue without a choice: enum going_on */
	u8 reads; /* when it was last looked at on a CPU, it still read what RCU guards and it had read when it was taken off */
	u8 age; /* where it is counted in `nr_of_age` plus 1; 0: it is not */
};

/* How many tasks wait since when: of each 2^age_shift ns one number, in turn. All that the watchdog lets anybody wait for is in them. */
#define AGES 32
u32 nr_of_age[AGES];
const volatile u32 age_shift = 30;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

/* Who is on each CPU, and since when; of CPUs beyond these nobody is preempted. */
#define CPUS 1024

struct on_cpu {
	u64 since; /* when it began to run, in ns; 0: nobody's task is on it */
	u64 turn; /* when the turn of its client began */
	u64 asked_at; /* when there was last a choice for it, in ns */
	u32 client; /* also while one of the kernel's threads is on it; PBS: DV_NONE once it sleeps, which ends its bonus */
	u32 overdue; /* a client plus 1, of which a task has waited for too long for this CPU; 0: none is known */
	u32 is_absent; /* the CPU is not there, or is being taken away */
	u8 in_turn; /* the overdue one had its turn, and now the policy has its own */
	u8 late; /* of two turns the policy has none */
	u8 nr_going_on; /* in its own queue without a choice, since it was empty */
};

#define NR_GOING_ON_MAX 255

struct on_cpu on_cpus[CPUS];

DV_INLINE struct on_cpu *on_cpu(s32 cpu)
{
	return &on_cpus[cpu & (CPUS - 1)];
}

/*
 * One lock around the policy. A lock of the kernel's would forbid functions that the verifier looks at by themselves, without
 * which it runs out of memory over these programs. Whoever takes it holds the lock of a run queue, with interrupts off, and
 * calls nothing under it that could come back here: on a machine of one CPU nobody else can be there, and it is not taken.
 */
u32 lock;

/* Under the lock: whether the task that runs on `cpu` is to make way for one of `client`, which has just woken. */
DV_INLINE bool preempts(u32 client, s32 cpu, u64 now)
{
	struct on_cpu *other = on_cpu(cpu);

	if ((u32)cpu >= CPUS || !other->since || now <= other->since)
		return false;
	return dv_preempts(client, other->client, now - other->since, now);
}

/* Far beyond any wait: a good part of a second. The most that bpf_for() takes. */
#define PATIENCE (1 << 23)

DV_PART int wait_for_lock(void)
{
	static char text[] = "the lock of the policy's state is never free";
	unsigned long long none = 0;
	int i;

	bpf_for(i, 0, PATIENCE) {
		if (!__sync_val_compare_and_swap(&lock, 0, 1))
			return 0;
	}
	scx_bpf_error_bstr(text, &none, 0);
	return 0;
}

DV_INLINE void take_lock(void)
{
	/* Mostly it is free, and a loop costs more to begin than all that is done under the lock. */
	if (nr_cpus_possible > 1 && __sync_val_compare_and_swap(&lock, 0, 1))
		wait_for_lock();
}

DV_INLINE void drop_lock(void)
{
	if (nr_cpus_possible > 1)
		__sync_lock_test_and_set(&lock, 0);
}

/* In so much service of its client each of its tasks has a turn, as far as ticks allow. */
#define TURN_NS 1000000000ULL

/*
 * How long a task runs at most that is one of so many of its client's that wait. What a client gets does not depend on it: the
 * policy charges what was used. A crowd of thousands would starve its own last for longer than the watchdog waits.
 */
DV_INLINE u64 slice_of(u32 nr_waiting)
{
	u64 slice = nr_waiting ? TURN_NS / nr_waiting : slice_ns;

	if (slice > slice_ns)
		slice = slice_ns;
	return slice < slice_ns_min ? slice_ns_min : slice;
}

DV_INLINE struct task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

/* Whether one of the kernel's own threads is on this CPU, beside that which idles. Nobody goes before those. */
DV_INLINE bool the_kernel_runs(void)
{
	struct task_struct *current = bpf_get_current_task_btf();

	return (current->flags & PF_KTHREAD) && current->pid;
}

/* The CPU that it ran on last. */
DV_INLINE s32 cpu_of(const struct task_struct *p)
{
	return nr_cpus_possible > 1 ? scx_bpf_task_cpu(p) : 0;
}

#include "readers.h"

/* Under the lock: what it has run since the last time. */
DV_INLINE void charge(struct task *t, u64 ran)
{
	u64 used = ran - t->charged;

	t->charged = ran;
	if (!used || t->kernel)
		return;
	dv_charge(t->client, used);
}

DV_INLINE void set_waiting(struct task *t)
{
	if (t->state != TASK_WAITING)
		dv_ready(t->client);
	t->state = TASK_WAITING;
}

DV_INLINE void set_state(struct task *t, u8 state)
{
	if (t->state == TASK_WAITING)
		dv_unready(t->client);
	if (t->age) {
		nr_of_age[(t->age - 1) & (AGES - 1)]--;
		t->age = 0;
	}
	t->state = state;
}

DV_INLINE void set_runnable(struct task *t, bool runnable, u64 now)
{
	struct dv_client *c = DV(t->client);

	if (t->runnable == runnable)
		return;
	t->runnable = runnable;
	if (now > c->demand_at) {
		c->demand += c->nr_runnable * (now - c->demand_at);
		c->demand_at = now;
	}
	if (runnable) {
		if (!c->nr_runnable++) {
			if (c->wanted != c->share)
				dv_reshare(t->client, c->wanted);
			dv_wake(t->client, now);
		}
	} else if (c->nr_runnable && !--c->nr_runnable) {
		dv_block(t->client, now);
	}
}

/* Under the lock. */
DV_INLINE void set_client(struct task *t, u32 client, u64 ran, u64 now)
{
	bool runnable = t->runnable;
	u8 state = t->state;

	if (client >= DV_MAX || client == t->client)
		return;
	charge(t, ran);
	set_state(t, TASK_OFF);
	set_runnable(t, false, now);
	t->client = client;
	set_runnable(t, runnable, now);
	/* One that waits stands in the queue of its old client: it is enqueued anew by the kernel, or counted there once. */
	t->state = state == TASK_RUNNING ? TASK_RUNNING : TASK_OFF;
}

#include "whose.h"
#include "turns.h"
#include "overdue.h"

/* The kernel does not ask where there is one CPU. */
SEC("struct_ops")
s32 BPF_PROG(divvy_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 here = bpf_get_smp_processor_id();
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	/* Nobody waits for an idle CPU. */
	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	else if ((wake_flags & SCX_WAKE_SYNC) && shares_turn(p, here))
		return here;
	return cpu;
}

SEC("struct_ops")
void BPF_PROG(divvy_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task *t = task_of(p);
	bool wakes = enq_flags & SCX_ENQ_WAKEUP, alone = false, first = false, loader;
	struct on_cpu *here;
	u32 client;
	u64 slice = slice_ns, now;
	s32 cpu;

	if (!t || t->kernel) {
		__sync_fetch_and_add(&about.nr_kernel_threads, 1);
		/* First, but for one that has run for a whole slice: others of the kernel's that wait here would never have their turn. */
		if (wakes || p->scx.slice)
			enq_flags |= SCX_ENQ_HEAD | SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	refresh_client(p, t);
	/*
	 * The loader tells who is whose: it is next when a turn ends, and its client pays for it. Else it would wait for its turn in a client
	 * that may have a hundredth of the machine and others that compute, and know of nobody who came for many seconds.
	 */
	loader = p->tgid == about.loader;
	now = bpf_ktime_get_ns();
	/* The CPU that it ran on last, on which it may still run. */
	cpu = cpu_of(p);
	here = on_cpu(cpu);
	t->goes_on = 0;
	if (!t->waits_since)
		t->waits_since = now;
	else if (now - t->waits_since > TURN_NS)
		/* It was put elsewhere while it waited, by another affinity or with its CPU, and has not lost its place. */
		enq_flags |= SCX_ENQ_HEAD;
	take_lock();
	set_runnable(t, true, now);
	client = t->client;
	if ((u32)cpu < CPUS && here->is_absent) {
		alone = true;
	} else if (!wakes && bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && goes_on_reading(p, t, here, now)) {
		/* After whoever was chosen; it has until the next tick to be through, and its client pays for that. */
		alone = true;
		slice = slice_ns_min;
		set_state(t, TASK_OFF);
	} else if (loader) {
		/* After a whole turn whoever was chosen is before it: with thousands of processes to look at it would keep all waiting. */
		alone = true;
		if (wakes)
			enq_flags |= SCX_ENQ_HEAD;
	} else if (wakes && goes_on_alone(client, here)) {
		alone = true;
		go_on(t, here, GOES_ON_ALONE);
		if (!here->since) {
			/* Whoever wakes before it has begun is compared with it. */
			here->client = client;
			here->since = now;
		}
	} else if (wakes && nr_cpus_possible == 1 && (slice = part_of_turn(t, here, now))) {
		alone = true;
		go_on(t, here, SHARES_TURN);
	} else {
		set_waiting(t);
		note_wait(client, t->waits_since);
		note_age(t);
		slice = slice_of(DV(client)->nr_waiting);
		first = wakes && preempts(client, cpu, now);
		/* Before those that go on alone, and not by a choice. */
		if (first && nr_cpus_possible == 1) {
			set_state(t, TASK_OFF);
			dv.urgent = DV_NONE;
		}
	}
	drop_lock();
	if (first)
		__sync_fetch_and_add(&about.nr_preempted, 1);
	if (alone || (first && nr_cpus_possible == 1)) {
		if (first)
			enq_flags |= SCX_ENQ_HEAD | (the_kernel_runs() ? 0 : SCX_ENQ_PREEMPT);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, enq_flags);
		return;
	}
	scx_bpf_dsq_insert(p, client, slice, enq_flags);
	if (first) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	if (nr_cpus_possible == 1)
		return;
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

#include "dispatch.h"

SEC("struct_ops")
void BPF_PROG(divvy_tick, struct task_struct *p)
{
	struct task *t = task_of(p);

	if (!t || t->kernel)
		return;
	note_reads(p, t, false);
	refresh_client(p, t);
}

SEC("struct_ops")
void BPF_PROG(divvy_running, struct task_struct *p)
{
	struct task *t = task_of(p);
	struct on_cpu *here = on_cpu(cpu_of(p));
	u64 now = bpf_ktime_get_ns();

	if (!t || t->kernel)
		return;
	t->waits_since = 0;
	if (now - overdue_at < TURN_NS) {
		note_reads(p, t, true);
		/* Where somebody has waited for too long, turns are short, so that all can have theirs. */
		if (p->scx.slice > slice_ns_min)
			p->scx.slice = slice_ns_min;
	}
	if (t->runnable && t->state != TASK_WAITING) {
		t->state = TASK_RUNNING;
	} else {
		take_lock();
		/* One that an idle CPU took at once was never enqueued. */
		set_runnable(t, true, now);
		set_state(t, TASK_RUNNING);
		drop_lock();
	}
	if (t->goes_on && here->nr_going_on)
		here->nr_going_on--;
	if (t->goes_on != SHARES_TURN) {
		/* As if it had begun with a whole slice: one that was given less, or is interrupted, has no more than that. */
		here->turn = now - (p->scx.slice < slice_ns ? slice_ns - p->scx.slice : 0);
	} else {
		/* The other one may have run on, or another client in between. */
		u64 left = here->client == t->client ? left_beside(here, now) : 0;

		if (p->scx.slice > left)
			p->scx.slice = left ? left : 1;
	}
	t->goes_on = 0;
	here->client = t->client;
	here->since = now;
}

SEC("struct_ops")
void BPF_PROG(divvy_stopping, struct task_struct *p, bool runnable)
{
	struct task *t = task_of(p);
	struct on_cpu *here = on_cpu(cpu_of(p));
	u64 ran = p->se.sum_exec_runtime, now;

	if (!t || t->kernel)
		return;
	/* When it stopped, but for interrupts: it is asked how many tasks could run, in whole ones. The clock would cost more than the rest. */
	now = here->since + ran - t->charged;
	take_lock();
	here->since = 0;
	charge(t, ran);
	/* One that waits was put among the waiting when another was chosen. */
	if (t->state == TASK_RUNNING)
		t->state = TASK_OFF;
	if (!runnable) {
		set_state(t, TASK_OFF);
		set_runnable(t, false, now);
		if (dv_policy == DV_PBS && !DV(t->client)->nr_runnable)
			here->client = DV_NONE;
	}
	drop_lock();
}

/*
 * It is no longer ours, while it may wait: it was given a real-time policy, say. Nothing else takes a task away that waits: whoever
 * sleeps or ends does so on a CPU, and one that is put elsewhere is enqueued anew, at once. (The kernel's `quiescent` would tell of
 * all that, in a call for every sleep.)
 */
SEC("struct_ops")
void BPF_PROG(divvy_disable, struct task_struct *p)
{
	struct task *t = task_of(p);
	u64 now;

	if (!t || t->kernel)
		return;
	t->waits_since = 0;
	if (!t->runnable)
		return;
	now = bpf_ktime_get_ns();
	take_lock();
	set_state(t, TASK_OFF);
	set_runnable(t, false, now);
	drop_lock();
}

/* It was given another policy for a while, say: what it ran meanwhile is nobody's. */
SEC("struct_ops")
void BPF_PROG(divvy_enable, struct task_struct *p)
{
	struct task *t = task_of(p);

	if (t)
		t->charged = p->se.sum_exec_runtime;
}

#include "hotplug.h"

SEC("struct_ops.s")
s32 BPF_PROG(divvy_init)
{
	int i;

	bpf_for(i, 0, DV_MAX) {
		s32 error = scx_bpf_create_dsq(i, -1);

		if (error)
			return error;
	}
	dv_start(seed);
	note_cpus();
	about.version = DV_VERSION;
	return 0;
}

SEC("struct_ops")
void BPF_PROG(divvy_exit, struct scx_exit_info *info)
{
	about.left_kind = info->kind;
	about.left_code = info->exit_code;
	bpf_probe_read_kernel_str(about.left_reason, sizeof(about.left_reason), info->reason);
	bpf_probe_read_kernel_str(about.left_message, sizeof(about.left_message), info->msg);
	about.left = 1;
}

SEC(".struct_ops.link")
struct sched_ext_ops divvy_ops = {
	.select_cpu = (void *)divvy_select_cpu,
	.enqueue = (void *)divvy_enqueue,
	.dispatch = (void *)divvy_dispatch,
	.tick = (void *)divvy_tick,
	.running = (void *)divvy_running,
	.stopping = (void *)divvy_stopping,
	.disable = (void *)divvy_disable,
	.enable = (void *)divvy_enable,
	.init_task = (void *)divvy_init_task,
	.exit_task = (void *)divvy_exit_task,
	.cgroup_init = (void *)divvy_cgroup_init,
	.cgroup_exit = (void *)divvy_cgroup_exit,
	.cgroup_move = (void *)divvy_cgroup_move,
	.cpu_online = (void *)divvy_cpu_online,
	.cpu_offline = (void *)divvy_cpu_offline,
	.init = (void *)divvy_init,
	.exit = (void *)divvy_exit,
	.flags = SCX_OPS_ENQ_EXITING,
	.timeout_ms = 20000,
	.name = "divvy",
};
