/* SPDX-License-Identifier: GPL-2.0-only */
/* The policies as an ordinary library, for the tests. One state: whoever uses it keeps others out meanwhile. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;

#include "core.h"

void dvn_start(u32 policy, u64 quantum, u64 seed, u64 alpha)
{
	memset(&dv, 0, sizeof(dv));
	dv_policy = policy;
	dv_quantum = quantum;
	dv_alpha = alpha;
	dv_strict = true;
	dv_beta = DV_NEVER;
	dv_excluded = false;
	dv_gamma = 0;
	dv_start(seed);
	dv.cpus = 1;
}

/* VTRR and stride as published: whoever leaves for a moment may gain by the one; by the other, whoever is new by what others left behind. */
void dvn_as_published(void)
{
	dv_strict = false;
}

/* PBS's. Called after dvn_start(). */
void dvn_sessions(u64 beta, bool excluded, s64 gamma)
{
	dv_beta = beta;
	dv_excluded = excluded;
	dv_gamma = gamma;
}

/* Called after dvn_start(). */
void dvn_cpus(u32 cpus)
{
	dv.cpus = cpus;
}

void dvn_log_row(u32 row, u64 log, u64 reciprocal)
{
	dv_log_rows[row % DV_LOG_ROWS].log = log;
	dv_log_rows[row % DV_LOG_ROWS].reciprocal = reciprocal;
}

void dvn_join(u32 id, u64 share)
{
	memset(DV(id), 0, sizeof(struct dv_client));
	DV(id)->share = DV(id)->wanted = share;
}

/* A client of one task, which may be on a CPU already. */
void dvn_wake(u32 id, u64 now)
{
	dv_wake(id, now);
	dv_ready(id);
}

/* `busy`: its task is on a CPU. */
void dvn_block(u32 id, bool busy, u64 now)
{
	if (!busy)
		dv_unready(id);
	dv_block(id, now);
}

void dvn_reshare(u32 id, u64 share)
{
	DV(id)->wanted = share;
	dv_reshare(id, share);
}

/* Chooses, and puts the chosen one on a CPU. `ran` was on it, and has come back. */
u32 dvn_pick(u32 ran, u64 now)
{
	u32 urgent = dv.urgent, id = dv_pick(ran, now);

	if (id != DV_NONE) {
		dv_chosen(id, urgent);
		dv_unready(id);
	}
	return id;
}

/* Whether one that woke goes before one that is on a CPU, and was charged up to now. */
bool dvn_preempts(u32 id, u32 runs, u64 now)
{
	return dv_preempts(id, runs, 0, now);
}

void dvn_charge(u32 id, u64 used)
{
	dv_charge(id, used);
}

/* Back from a CPU. */
void dvn_return(u32 id)
{
	dv_ready(id);
}

/* Before a list of the hidden, which is the result. */
u32 dvn_hide(u32 id, u32 list)
{
	return dv_hide(id, list);
}

/* The first of a list; the rest is the result. */
u32 dvn_show(u32 list)
{
	return dv_show(list);
}

s64 dvn_log2(u64 x)
{
	return dv_log2(x);
}

s64 dvn_counter(u32 id)
{
	return dv_policy == DV_VTRR && DV(id)->flags & DV_RUNNABLE ? dv_vtrr_refresh(DV(id)) : DV(id)->counter;
}

/* The clients of VTRR's queue, from its head. */
u32 dvn_following(u32 id)
{
	return id == DV_NONE ? dv.head : DV(id)->next;
}
