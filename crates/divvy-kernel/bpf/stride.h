/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stride scheduling (Waldspurger and Weihl 1995) with clients that come and go, as divvy-policy's `stride` has it; and what several
 * CPUs need beside that.
 */

/* A lead or a lag beyond so many of its own quanta is forgotten. */
#define DV_LAG_QUANTA 8

/* What lies between two times of a client, in ns of its service. */
DV_INLINE u64 dv_service(struct dv_clock from, struct dv_clock to, u64 share)
{
	struct dv_clock zero = { 0, 0 }, gap = dv_shift(to, zero, from, share);

	return gap.whole * share + gap.num;
}

/* The queue's virtual time is another one by so much service of all. */
DV_INLINE void dv_stride_move(u64 service, bool onwards)
{
	struct dv_clock zero = { 0, 0 }, span = zero;

	dv_advance(&span, service, dv.total);
	dv.queue = onwards ? dv_shift(dv.queue, span, zero, dv.total) : dv_shift(dv.queue, zero, span, dv.total);
}

/*
 * The queue's virtual time is the mean of the runnable clients', by share: `c` has come with a lead or a lag, or left with it. As published it
 * would stay, and be wrong by what each client had that never comes back, or comes back with as much as it may keep: one of a large share that wakes
 * now and then, waits for a turn of another's to end and needs little is owed nearly all of that, each time; after an hour of it, whoever is
 * new would have the CPU alone for minutes.
 */
DV_INLINE void dv_stride_follow(struct dv_client *c, bool comes)
{
	struct dv_clock was = comes ? dv_over(dv.queue, dv.total, c->share) : c->parked;
	bool ahead = !dv_before(c->vt, c->share, was, c->share);
	u64 gap;

	if ((!dv_on_several() && !dv_strict) || !dv.total)
		return;
	gap = ahead ? dv_service(was, c->vt, c->share) : dv_service(c->vt, was, c->share);
	dv_stride_move(gap, ahead == comes);
	if (!comes) {
		/* What the total rounds down as one leaves and comes back. */
		dv_advance(&dv.queue, 1, dv.total);
		/* Beside those that stay: whoever comes back at once is where it was. */
		c->parked = dv_over(dv.queue, dv.total, c->share);
	}
}

/*
 * On several CPUs a lead or a lag beyond a bound is forgotten at once. Whoever had what others could not use for a while, since their
 * tasks were too few, bound to other CPUs, or their CPU was gone, would pay for it once they can: a client with a share of 1 in 108 that
 * had a CPU for .5 s would have none for 27 s. And whoever could not run would have a CPU for itself as long. On one CPU only those get
 * there who have turns before the policy's choice, since they have waited for too long. What one client is let off, or loses, the
 * queue's time follows, or soon everybody would be beyond the bound, where shares count for nothing.
 */
DV_INLINE void dv_stride_forget(struct dv_client *c, struct dv_clock before)
{
	struct dv_clock now = dv_over(dv.queue, dv.total, c->share), zero = { 0, 0 }, span = zero, most, least, had = c->vt;

	if ((!dv_on_several() && !(c->flags & DV_OVERDUE)) || !(c->flags & DV_RUNNABLE))
		return;
	dv_advance(&span, DV_LAG_QUANTA * dv_quantum, c->share);
	most = dv_shift(now, span, zero, c->share);
	least = dv_shift(now, zero, span, c->share);
	if (dv_before(most, c->share, had, c->share)) {
		c->vt = dv_before(most, c->share, before, c->share) ? before : most;
		/*
		 * Of several that are let off, the next one's turn is it. The queue's time goes back now and then, as somebody leaves who had a lag: all
		 * of them are beyond the bound then, and whoever is before the others would stay so, and have their CPU alone, until that time
		 * is there again. (Where sixty are bound to one of two CPUs and two to the other, 10 ms of it take .6 s.)
		 */
		if (dv.let_off_share == c->share && !dv_before(dv.let_off, c->share, c->vt, c->share)) {
			struct dv_clock next = dv.let_off;

			dv_advance(&next, 1, c->share);
			c->vt = dv_before(next, c->share, had, c->share) ? next : had;
		}
		if (dv.let_off_share != c->share || dv_before(dv.let_off, c->share, c->vt, c->share)) {
			dv.let_off = c->vt;
			dv.let_off_share = c->share;
		}
		dv_stride_move(dv_service(c->vt, had, c->share), false);
	} else if (dv_before(had, c->share, least, c->share)) {
		c->vt = least;
		dv_stride_move(dv_service(had, least, c->share), true);
	}
}

/* A client is as far ahead of or behind the queue as it was, but for a lag that no list of clients explains. */
DV_INLINE void dv_stride_come_back(struct dv_client *c)
{
	struct dv_clock now = dv_over(dv.queue, dv.total, c->share), zero = { 0, 0 }, least;

	if (!(c->flags & DV_STARTED)) {
		c->vt = now;
		return;
	}
	c->vt = dv_shift(c->vt, now, c->parked, c->share);
	least = c->vt;
	dv_advance(&least, DV_LAG_QUANTA * dv_quantum, c->share);
	if (dv_before(least, c->share, now, c->share)) {
		struct dv_clock span = zero;

		dv_advance(&span, DV_LAG_QUANTA * dv_quantum, c->share);
		c->vt = dv_shift(now, zero, span, c->share);
	}
}

/* A lead or a lag stays the same amount of service. `runnable`: it was, and is out of the total. */
DV_INLINE void dv_stride_reshare(struct dv_client *c, bool runnable, u64 old, u64 share)
{
	struct dv_clock queue = runnable ? dv.queue : c->parked;
	u64 over = runnable ? dv.total : old;
	struct dv_clock was = dv_over(queue, over, old), is = dv_over(queue, over, share), zero = { 0, 0 }, span = zero;
	bool ahead = !dv_before(c->vt, old, was, old);
	u64 gap = ahead ? dv_service(was, c->vt, old) : dv_service(c->vt, was, old);

	dv_advance(&span, gap, share);
	c->vt = ahead ? dv_shift(is, span, zero, share) : dv_shift(is, zero, span, share);
	c->parked = is;
}
