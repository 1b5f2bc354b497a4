/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policies: who among the clients is next, and what it is charged. Compiled twice, into the BPF programs and, for the
 * tests, natively, where it runs the same cases as divvy-policy.
 *
 * A client is *runnable* while any of its tasks is, *waiting* while at least one of them is on no CPU. The functions below
 * are told of every change, under one lock, and the account depends on totals of CPU time in ns alone.
 *
 * Virtual times are exact: `whole + num / share`, in ns of service per unit of share, with `num < share`. Only where the
 * total share changes is the queue's clock rounded down, by less than 1 ns of service. Shares are 1 to 1,000,000, and there
 * are at most 1,024 clients, so that no product of a share and a numerator exceeds 64 bits.
 */
#ifndef DIVVY_CORE_H
#define DIVVY_CORE_H

#define DV_MAX 1024
#define DV_LEVELS 11
#define DV_NONE 0xffffffffU

/* Loops that the verifier can bound. `i` must not be changed inside. */
#ifdef __bpf__
#define DV_FOR(i, n) bpf_for(i, 0, n)
#else
#define DV_FOR(i, n) for (i = 0; i < (int)(n); i++)
#endif

/*
 * Functions that the verifier looks at once, for any argument, instead of along every path to them. They take and return
 * numbers: void is nothing to it.
 */
#ifdef __bpf__
#define DV_PART __attribute__((noinline))
#else
#define DV_PART static
#endif
/* The others would use up the eight levels of calls that there may be. */
#define DV_INLINE static inline __attribute__((always_inline))

enum dv_policy_kind {
	DV_STRIDE = 0,
	DV_VTRR = 1,
	DV_LOTTERY = 2,
	DV_PBS = 3,
	DV_LAS = 4,
	DV_FCFS = 5,
	DV_RR = 6,
};

#ifdef __bpf__
/* Constants to the verifier: the code of the other policies is dead when a program is loaded. */
const volatile u32 dv_policy = DV_STRIDE;
const volatile u64 dv_quantum = 20000000;
/* Of PBS, in units of 2^-32. */
const volatile u64 dv_alpha = 1ULL << 32;
const volatile u64 dv_beta = ~0ULL; /* DV_NEVER */
const volatile bool dv_excluded = false; /* sleeps are left out of a session's T */
const volatile s64 dv_gamma = 0;
/* CPUs that there may ever be. */
const volatile u32 nr_cpus_possible = 2;
/* VTRR: whoever comes back in the cycle in which it left has no more than it left with (`Rejoin::Strict` of divvy-policy). */
#define dv_strict true
#else
static u32 nr_cpus_possible = DV_MAX;
static bool dv_strict = true;
static u32 dv_policy;
static u64 dv_quantum;
static u64 dv_alpha;
static u64 dv_beta;
static bool dv_excluded;
static s64 dv_gamma;
#endif

struct dv_clock {
	u64 whole;
	u64 num;
};

/* Everything that is known of a client. The loader reads it; it writes `wanted` alone. */
struct dv_client {
	u64 share;
	u64 wanted; /* the share that the loader asks for, taken over when it is next charged */
	u64 used; /* CPU time of all its tasks, in ns */
	u64 picks; /* how often it was chosen */
	u64 demand; /* ns that its tasks could run for, summed over them, up to `demand_at` */
	u64 demand_at;
	struct dv_clock vt; /* virtual time, over `share` */
	struct dv_clock key; /* its place in the heap, while it is there */
	struct dv_clock parked; /* as it blocked: the queue's virtual time (VTRR: its own VFT), over `share` */
	s64 counter; /* VTRR: what it is due in its cycle, in ns. Lottery: used since it last won. rr: used beyond its turns */
	u64 cycle; /* VTRR: the cycle that `counter` is for */
	u64 weight; /* lottery: tickets in the next draw, in units of 2^-16 */
	u64 origin; /* PBS, FCFS: when it came; PBS: T = now - origin */
	u64 begun; /* PBS: when its session began */
	u64 served; /* PBS: S, of its session */
	u64 slept_at; /* PBS: when it last fell asleep; 0: it never did */
	u64 nr_slept; /* PBS: sleeps that are over, and their length, in ns */
	u64 slept;
	u64 stamp; /* rr: its turn */
	s64 cost; /* PBS: what is subtracted from log2 T */
	u32 nr_runnable; /* tasks */
	u32 nr_waiting; /* of them on no CPU */
	u32 nr_hidden; /* waiting, but left out of the choice for a moment */
	u32 at; /* place in the heap or the list of those that wait plus 1, or 0 */
	u32 next, prev; /* VTRR: neighbours in the queue */
	u32 last_next, last_prev; /* VTRR: as it left */
	u32 flags;
	u32 next_hidden; /* while it is in a list of the hidden: the next one plus 1, or 0 */
};

#define DV_STARTED 1U /* was runnable before */
#define DV_RUNNABLE 2U
#define DV_OVERDUE 4U /* had a turn before the policy's choice since it was chosen last */
#define DV_LISTED 8U /* in a list of the hidden, of which whoever made it shows all */

struct dv_state {
	struct dv_clock queue; /* the queue's virtual time, over `total` */
	u64 total; /* shares of the runnable */
	s64 sum; /* VTRR: of the quanta that the counters come to, pending resets included */
	u64 cycle;
	u64 random; /* state of the generator */
	u64 tickets; /* lottery: sum of the weights */
	u64 stamp;
	u32 head, cursor; /* VTRR */
	u32 first; /* VTRR: nobody before it in the queue waits and is due anything; DV_NONE: nobody at all */
	u32 urgent; /* next whatever the policy says, if it waits; or DV_NONE */
	u32 nr_runnable; /* clients */
	u32 nr_waiting;
	u32 nr_hidden;
	u32 cpus; /* that are there now */
	u32 heap[DV_MAX]; /* of those that wait; PBS: a list of them, in no order */
	u64 sums[DV_MAX]; /* lottery: Fenwick tree; entry i is node i + 1 */
	struct dv_client clients[DV_MAX];
	/* Stride: the latest time at which a client of this share was let off a lead. */
	struct dv_clock let_off;
	u64 let_off_share;
};

#ifdef __bpf__
struct dv_state dv SEC(".data.divvy");
#else
static struct dv_state dv;
#endif

/* Whether tasks run beside each other. */
DV_INLINE bool dv_on_several(void)
{
	return nr_cpus_possible > 1 && dv.cpus > 1;
}

#define DV(id) (&dv.clients[(id) & (DV_MAX - 1)])
#define DV_HEAP(at) dv.heap[(at) & (DV_MAX - 1)]
#define DV_SUM(at) dv.sums[((at) - 1) & (DV_MAX - 1)]

/* Clocks. */

DV_INLINE void dv_advance(struct dv_clock *clock, u64 used, u64 share)
{
	u64 whole;

	if (!share)
		return;
	whole = used / share;
	clock->whole += whole;
	clock->num += used - whole * share;
	if (clock->num >= share) {
		clock->num -= share;
		clock->whole++;
	}
}

/* The same time over another share, rounded down. */
DV_INLINE struct dv_clock dv_over(struct dv_clock clock, u64 from, u64 to)
{
	clock.num = from ? clock.num * to / from : 0;
	return clock;
}

DV_INLINE bool dv_before(struct dv_clock a, u64 share_a, struct dv_clock b, u64 share_b)
{
	if (a.whole != b.whole)
		return a.whole < b.whole;
	return a.num * share_b < b.num * share_a;
}

/* a + b - c over one share, not below 0. */
DV_INLINE struct dv_clock dv_shift(struct dv_clock a, struct dv_clock b, struct dv_clock c, u64 share)
{
	a.whole += b.whole;
	a.num += b.num;
	if (a.num >= share) {
		a.num -= share;
		a.whole++;
	}
	if (a.whole < c.whole || (a.whole == c.whole && a.num < c.num)) {
		a.whole = a.num = 0;
		return a;
	}
	a.whole -= c.whole;
	if (a.num < c.num) {
		a.num += share;
		a.whole--;
	}
	a.num -= c.num;
	return a;
}

/* floor(a * b / d) for a < 2^21 and b, d < 2^62, by long multiplication. */
DV_PART u64 dv_scale(u64 a, u64 b, u64 d)
{
	u64 quotient, rest, part;
	int i;

	if (!d)
		return 0;
	part = b / d;
	b %= d;
	quotient = rest = 0;
	DV_FOR(i, 21) {
		quotient <<= 1;
		rest <<= 1;
		if (rest >= d) {
			rest -= d;
			quotient++;
		}
		if (a & (1ULL << (20 - i)))
			rest += b;
		if (rest >= d) {
			rest -= d;
			quotient++;
		}
	}
	return quotient + part * a;
}

/* The high half of a product. */
DV_INLINE u64 dv_mul_high(u64 a, u64 b)
{
	u64 al = a & 0xffffffff, ah = a >> 32, bl = b & 0xffffffff, bh = b >> 32;
	u64 mid = ah * bl + (al * bl >> 32);
	u64 low = al * bh + (mid & 0xffffffff);

	return ah * bh + (mid >> 32) + (low >> 32);
}

DV_INLINE void dv_set_total(u64 total)
{
	if (total && dv.total)
		dv.queue = dv_over(dv.queue, dv.total, total);
	else if (total)
		dv.queue.num = 0;
	dv.total = total;
}

/* The heap: the least key first, ties by id. */

/* Reckoned once for each time that it changes: a division is most of a comparison, of which there are two at each level. */
DV_INLINE struct dv_clock dv_key(struct dv_client *c)
{
	struct dv_clock key;

	if (dv_policy == DV_FCFS) {
		key.whole = c->origin;
		key.num = 0;
	} else if (dv_policy == DV_RR) {
		key.whole = c->stamp;
		key.num = 0;
	} else {
		key = c->vt;
		/* The pass of stride scheduling is one stride after the virtual time. */
		if (dv_policy == DV_STRIDE)
			dv_advance(&key, dv_quantum, c->share);
	}
	return key;
}

DV_PART int dv_first(u32 a, u32 b)
{
	struct dv_client *ca = DV(a), *cb = DV(b);
	u64 of_a, of_b;

	if (ca->key.whole != cb->key.whole)
		return ca->key.whole < cb->key.whole;
	of_a = ca->key.num * cb->share;
	of_b = cb->key.num * ca->share;
	return of_a < of_b || (of_a == of_b && a < b);
}

DV_INLINE void dv_heap_put(u32 at, u32 id)
{
	DV_HEAP(at) = id;
	DV(id)->at = at + 1;
}

DV_PART int dv_sift_up(u32 at, u32 id)
{
	int i;

	if (!at) {
		dv_heap_put(at, id);
		return 0;
	}
	DV_FOR(i, DV_LEVELS) {
		u32 above, other;

		if (!at)
			break;
		above = (at - 1) / 2;
		other = DV_HEAP(above);
		if (dv_first(other, id))
			break;
		dv_heap_put(at, other);
		at = above;
	}
	dv_heap_put(at, id);
	return 0;
}

/* The place below `at` whose client is first; that of nobody if there is none. */
DV_PART u32 dv_first_below(u32 at, u32 size)
{
	u32 below = 2 * at + 1;

	if (at >= DV_MAX || below >= size)
		return DV_NONE;
	if (below + 1 < size && dv_first(DV_HEAP(below + 1), DV_HEAP(below)))
		below++;
	return below;
}

DV_PART int dv_sift_down(u32 at, u32 id, u32 size)
{
	int i;

	DV_FOR(i, DV_LEVELS) {
		u32 below = dv_first_below(at, size), other;

		if (below == DV_NONE)
			break;
		other = DV_HEAP(below);
		if (dv_first(id, other))
			break;
		dv_heap_put(at, other);
		at = below;
	}
	dv_heap_put(at, id);
	return 0;
}

/* `dv.nr_waiting` is the heap's size; it has not been raised yet. */
DV_INLINE void dv_heap_insert(u32 id)
{
	DV(id)->key = dv_key(DV(id));
	dv_sift_up(dv.nr_waiting, id);
}

/* `dv.nr_waiting` has been lowered already. */
DV_PART int dv_heap_remove(u32 id)
{
	struct dv_client *c = DV(id);
	u32 at = c->at - 1, size = dv.nr_waiting, last = DV_HEAP(size);

	c->at = 0;
	if (at >= size || last == id)
		return 0;
	if (at && dv_first(last, DV_HEAP((at - 1) / 2)))
		dv_sift_up(at, last);
	else
		dv_sift_down(at, last, size);
	return 0;
}

/* The list, where a policy looks at everybody who waits. */

DV_INLINE void dv_list_insert(u32 id)
{
	dv_heap_put(dv.nr_waiting, id);
}

/* `dv.nr_waiting` has been lowered already. */
DV_INLINE void dv_list_remove(u32 id)
{
	struct dv_client *c = DV(id);
	u32 at = c->at - 1, last = DV_HEAP(dv.nr_waiting);

	c->at = 0;
	if (last != id)
		dv_heap_put(at, last);
}

/* Lottery. */

/* The most that compensation multiplies by. */
#define DV_COMPENSATION 1024
/* So many quanta at most count as used since a client last won a lottery. */
#define DV_OVERRUN 4

DV_PART int dv_weigh(u32 id, bool waits)
{
	struct dv_client *c = DV(id);
	u64 weight = 0, add;
	u32 node;
	int i;

	if (waits) {
		weight = c->share << 16;
		/*
		 * Who had less than a quantum since it last won has more, and who had more, less: a turn ends on a tick. On several CPUs its other tasks
		 * may still be at it.
		 */
		if (c->counter > 0 && (!dv_on_several() || (u64)c->counter < dv_quantum)) {
			u64 least = (dv_quantum + DV_COMPENSATION - 1) / DV_COMPENSATION;
			u64 used = (u64)c->counter < least ? least : (u64)c->counter;

			/* share << 16 < 2^36, and the fraction is between 1 / DV_OVERRUN and 1024. */
			weight = dv_scale(c->share, dv_quantum << 16, used);
		}
	}
	add = weight - c->weight;
	if (!add)
		return 0;
	c->weight = weight;
	dv.tickets += add;
	/* Modulo 2^64: a smaller weight adds its complement, and the sums come out right. */
	node = id + 1;
	DV_FOR(i, DV_LEVELS) {
		if (node > DV_MAX)
			break;
		DV_SUM(node) += add;
		node += node & -node;
	}
	return 0;
}

DV_INLINE u64 dv_next_random(void)
{
	u64 z;

	dv.random += 0x9e3779b97f4a7c15ULL;
	z = dv.random;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

DV_PART u32 dv_draw(void)
{
	u64 ticket;
	u32 at = 0, step = DV_MAX;
	int i;

	if (!dv.tickets)
		return DV_NONE;
	ticket = dv_mul_high(dv_next_random(), dv.tickets);
	DV_FOR(i, DV_LEVELS) {
		u32 next = at + step;

		if (next <= DV_MAX && DV_SUM(next) <= ticket) {
			ticket -= DV_SUM(next);
			at = next;
		}
		step >>= 1;
	}
	return at;
}

#include "stride.h"
#include "vtrr.h"
#include "pbs.h"

/* What the scheduler calls. */

DV_INLINE bool dv_by_heap(void)
{
	return dv_policy == DV_STRIDE || dv_policy == DV_LAS || dv_policy == DV_FCFS || dv_policy == DV_RR;
}

/*
 * Round-robin: a turn that the kernel's own threads cut short in its first half goes on, else the next one comes after everybody's. What a
 * turn was too short or too long counts for those to come.
 */
DV_INLINE void dv_rr_queue(struct dv_client *c)
{
	s64 half = dv_quantum / 2;

	if (c->counter < -half)
		return;
	c->stamp = ++dv.stamp;
	c->counter = (c->counter < half ? c->counter : half) - (s64)dv_quantum;
}

/* A client has a task that waits. */
DV_PART int dv_ready(u32 id)
{
	struct dv_client *c = DV(id);

	if (c->nr_waiting++)
		return 0;
	if (dv_policy == DV_RR)
		dv_rr_queue(c);
	if (dv_by_heap())
		dv_heap_insert(id);
	else if (dv_policy == DV_LOTTERY)
		dv_weigh(id, true);
	else if (dv_policy == DV_PBS)
		dv_list_insert(id);
	else if (dv_policy == DV_VTRR)
		dv_vtrr_may_be_first(id);
	dv.nr_waiting++;
	return 0;
}

DV_INLINE void dv_leave_order(u32 id)
{
	dv.nr_waiting--;
	if (dv_by_heap())
		dv_heap_remove(id);
	else if (dv_policy == DV_LOTTERY)
		dv_weigh(id, false);
	else if (dv_policy == DV_PBS)
		dv_list_remove(id);
}

/* One of its waiting tasks waits no longer. */
DV_PART int dv_unready(u32 id)
{
	struct dv_client *c = DV(id);

	if (c->nr_hidden) {
		if (!--c->nr_hidden)
			dv.nr_hidden--;
	} else if (c->nr_waiting) {
		if (!--c->nr_waiting)
			dv_leave_order(id);
	}
	return 0;
}

#include "hidden.h"

/* The first of a client's tasks has become runnable. Comes before dv_ready(). */
DV_PART int dv_wake(u32 id, u64 now)
{
	struct dv_client *c = DV(id);

	if (dv_policy == DV_STRIDE)
		dv_stride_come_back(c);
	else if (dv_policy == DV_VTRR)
		dv_vtrr_insert(id);
	else if (!(c->flags & DV_STARTED)) {
		/* Everybody else was here before: whoever looks after the machine is among them. */
		c->origin = c->begun = id ? now : 0;
		dv_pbs_cost(c);
	} else if (dv_policy == DV_PBS) {
		dv_pbs_come_back(c, now);
	}
	c->flags |= DV_STARTED | DV_RUNNABLE;
	dv.nr_runnable++;
	dv_set_total(dv.total + c->share);
	if (dv_policy == DV_STRIDE)
		dv_stride_follow(c, true);
	return 0;
}

/* None of its tasks is runnable any more. Comes after dv_unready(). */
DV_PART int dv_block(u32 id, u64 now)
{
	struct dv_client *c = DV(id);

	c->slept_at = now;
	if (dv_policy == DV_STRIDE)
		c->parked = dv_over(dv.queue, dv.total, c->share);
	else if (dv_policy == DV_VTRR)
		dv_vtrr_remove(id);
	else if (dv_policy == DV_RR)
		c->counter = 0;
	c->flags &= ~DV_RUNNABLE;
	dv.nr_runnable--;
	dv_set_total(dv.total - c->share);
	if (dv_policy == DV_STRIDE)
		dv_stride_follow(c, false);
	return 0;
}

/* Its share is another one: its lead or lag stays the same amount of service. */
DV_PART int dv_reshare(u32 id, u64 share)
{
	struct dv_client *c = DV(id);
	bool runnable = c->flags & DV_RUNNABLE, heaped = c->at && dv_by_heap();
	u64 old = c->share;

	if (!share)
		return 0;
	if (heaped) {
		/* Out of the order while its key changes. */
		dv.nr_waiting--;
		dv_heap_remove(id);
	}
	if (dv_policy == DV_VTRR && runnable)
		dv_vtrr_remove(id);
	if (runnable)
		dv_set_total(dv.total - old);
	if (dv_policy == DV_STRIDE && (c->flags & DV_STARTED)) {
		dv_stride_reshare(c, runnable, old, share);
	} else {
		c->vt = dv_over(c->vt, old, share);
		c->parked = dv_over(c->parked, old, share);
	}
	c->share = share;
	if (dv_policy == DV_VTRR && runnable) {
		dv_vtrr_insert(id);
		/* It may wait already. */
		dv_vtrr_may_be_first(id);
	}
	if (runnable)
		dv_set_total(dv.total + share);
	if (dv_policy == DV_PBS)
		dv_pbs_cost(c);
	if (dv_policy == DV_LOTTERY && c->nr_waiting)
		dv_weigh(id, true);
	if (heaped) {
		dv_heap_insert(id);
		dv.nr_waiting++;
	}
	return 0;
}

/* Its tasks have run for `used` ns. */
DV_PART int dv_charge(u32 id, u64 used)
{
	struct dv_client *c = DV(id);

	c->used += used;
	if (dv.total)
		dv_advance(&dv.queue, used, dv.total);
	if (dv_policy == DV_VTRR) {
		dv_vtrr_charge(c, used);
	} else if (dv_policy == DV_LOTTERY) {
		/* Beyond any turn it is time that nobody else wanted, or that the policy did not give. */
		if (used > DV_OVERRUN * dv_quantum || c->counter + used > DV_OVERRUN * dv_quantum)
			c->counter = DV_OVERRUN * dv_quantum;
		else
			c->counter += used;
		if (c->nr_waiting)
			dv_weigh(id, true);
	} else if (dv_policy == DV_PBS) {
		c->served += used;
		dv_pbs_cost(c);
	} else {
		struct dv_clock before = c->vt;

		dv_advance(&c->vt, used, c->share);
		if (dv_policy == DV_STRIDE)
			dv_stride_forget(c, before);
		if (dv_policy == DV_RR) {
			c->counter += used;
			/* Another of its tasks waits already. */
			if (c->at)
				dv_rr_queue(c);
		}
		/* Its key has only grown. */
		if (c->at && dv_by_heap()) {
			c->key = dv_key(c);
			dv_sift_down(c->at - 1, id, dv.nr_waiting);
		}
	}
	if (c->wanted != c->share)
		dv_reshare(id, c->wanted);
	return 0;
}

/* What a client was before a choice, which may come to nothing. */
struct dv_before {
	s64 counter;
	u32 flags;
	u32 urgent;
};

/* The one that dv_pick() has named, with what `dv.urgent` was before that, has its turn. */
DV_INLINE struct dv_before dv_chosen(u32 id, u32 urgent)
{
	struct dv_client *c = DV(id);
	struct dv_before before = { c->counter, c->flags, urgent };

	c->picks++;
	c->flags &= ~DV_OVERDUE;
	if (dv_policy == DV_LOTTERY)
		c->counter = 0;
	return before;
}

/* Or it had not: nobody of it may run there. */
DV_INLINE void dv_refused(u32 id, struct dv_before before)
{
	struct dv_client *c = DV(id);

	c->picks--;
	c->flags |= before.flags & DV_OVERDUE;
	/* It may have been charged meanwhile. */
	if (dv_policy == DV_LOTTERY)
		c->counter += before.counter;
	if (before.urgent == id && dv.urgent == DV_NONE)
		dv.urgent = id;
}

/*
 * Who is next among those that wait; DV_NONE if nobody does. It goes on waiting until dv_unready(). `ran` has just had the CPU, and could
 * go on; DV_NONE: nobody.
 */
DV_PART u32 dv_pick(u32 ran, u64 now)
{
	u32 id;

	if (!dv.nr_waiting)
		return DV_NONE;
	id = dv.urgent;
	dv.urgent = DV_NONE;
	if (id < DV_MAX && DV(id)->nr_waiting)
		return id;
	if (dv_policy == DV_VTRR)
		id = dv_vtrr_pick();
	else if (dv_policy == DV_LOTTERY)
		id = dv_draw();
	else if (dv_policy == DV_PBS)
		id = dv_pbs_pick(ran, now);
	else
		id = DV_HEAP(0);
	return id;
}

/*
 * Whether a client that has just woken goes before one that has been on a CPU for `ran` ns, which it was not charged yet: the
 * one that would be chosen if both waited. The lottery, fcfs and rr let everybody run to the end.
 */
DV_PART int dv_preempts(u32 id, u32 runs, u64 ran, u64 now)
{
	struct dv_client *c = DV(id), *other = DV(runs);
	struct dv_clock mine = c->vt, its = other->vt;

	if (id == runs || !c->nr_waiting)
		return false;
	if (dv_policy == DV_PBS)
		return dv_pbs_value(c, now) > dv_pbs_value_after(other, ran, now) + dv_gamma;
	if (dv_policy != DV_STRIDE && dv_policy != DV_VTRR && dv_policy != DV_LAS)
		return false;
	dv_advance(&its, ran, other->share);
	if (dv_policy != DV_LAS) {
		dv_advance(&mine, dv_quantum, c->share);
		dv_advance(&its, dv_quantum, other->share);
	}
	if (!dv_before(mine, c->share, its, other->share))
		return false;
	/* The order of VTRR's queue would not come to it: it is next by its virtual finishing time, if it is due anything. */
	if (dv_policy == DV_VTRR) {
		if (dv_vtrr_due(c) <= 0)
			return false;
		dv.urgent = id;
	}
	return true;
}

DV_INLINE void dv_start(u64 seed)
{
	dv.head = dv.cursor = dv.first = dv.urgent = DV_NONE;
	dv.random = seed;
}

#endif
