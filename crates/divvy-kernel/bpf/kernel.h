/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs need of the kernel's types: only the members that are used. Where each of them stands is filled in when
 * a program is loaded, from the running kernel's own description (BTF), so that no header of a certain kernel is needed.
 */
#ifndef DIVVY_KERNEL_H
#define DIVVY_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* Of <linux/bpf.h>, which would bring its own kinds of maps and flags. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
#define BPF_F_NO_PREALLOC 1
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_ANY 0

/* The verifier's bounded loop. */
struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

/* The iterator over those that wait in a queue. */
struct bpf_iter_scx_dsq {
	__u64 __opaque[6];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct sched_ext_entity {
	u32 flags;
	u64 slice;
};

struct cpumask {
	unsigned long bits[1];
};

/* How a task reads what RCU guards. */
union rcu_special {
	struct {
		u8 blocked;
	} b;
};

struct task_struct {
	unsigned int flags;
	s32 pid;
	s32 tgid;
	struct sched_entity se;
	struct sched_ext_entity scx;
	const struct cpumask *cpus_ptr;
	int nr_cpus_allowed;
	union rcu_special rcu_read_unlock_special;
};

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

struct scx_exit_task_args {
	bool cancelled;
};

struct scx_cgroup_init_args {
	u32 weight;
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

#pragma clang attribute pop

/* Matched to the kernel's by the names of its members. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*tick)(struct task_struct *);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*enable)(struct task_struct *);
	void (*disable)(struct task_struct *);
	s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*exit_task)(struct task_struct *, struct scx_exit_task_args *);
	s32 (*cgroup_init)(struct cgroup *, struct scx_cgroup_init_args *);
	void (*cgroup_exit)(struct cgroup *);
	void (*cgroup_move)(struct task_struct *, struct cgroup *, struct cgroup *);
	void (*cpu_online)(s32);
	void (*cpu_offline)(s32);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

/* Of the kernel's interface to schedulers. */
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_DSQ_LOCAL_ON 0xc000000000000000ULL
#define SCX_WAKE_SYNC 0x10ULL
#define SCX_ENQ_WAKEUP (1ULL << 0)
#define SCX_ENQ_HEAD (1ULL << 4)
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_TASK_QUEUED 1U
#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL
#define SCX_OPS_ENQ_EXITING (1ULL << 2)
#define PF_KTHREAD 0x00200000

#endif
