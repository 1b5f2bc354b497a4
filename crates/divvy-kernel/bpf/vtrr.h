/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual-Time Round-Robin (Nieh, Vaill and Zhong 2001), sections 3.1 and 3.2, with the readings of divvy-policy's `vtrr`:
 * eq. 6 is applied to the next client, counters are in ns, a debt of at most one cycle's worth is carried, and a client
 * whose tasks are all on CPUs is passed over.
 */

/* So many cycles a debt is carried for on several CPUs. */
#define DV_CYCLES 16

/* A share's counter for a whole cycle: below 2^50. */
DV_INLINE s64 dv_allowance(struct dv_client *c)
{
	return c->share * dv_quantum;
}

/*
 * The quanta that a counter comes to, to the nearest whole one. No quantum is exactly as long as it was meant to be: ticks come
 * late, and who is interrupted runs on. If whatever is left of a counter were a quantum, large shares would begin one more in
 * each cycle, before the small ones had had their first.
 */
DV_INLINE s64 dv_quanta(s64 counter)
{
	u64 half = dv_quantum / 2;

	if (counter >= 0)
		return ((u64)counter + half) / dv_quantum;
	/* Halves are rounded up here, too. */
	return -(s64)(((u64)-counter + dv_quantum - half - 1) / dv_quantum);
}

/* Brings a counter up to date, with the resets that are pending for it. */
DV_INLINE s64 dv_vtrr_refresh(struct dv_client *c)
{
	u64 pending = dv.cycle - c->cycle;

	if (pending) {
		s64 allowance = dv_allowance(c), most = allowance + 2 * (s64)dv_quantum, counter = c->counter;
		s64 expected = dv_quanta(counter) + pending * c->share;
		u64 times = pending > 4 ? 4 : pending;

		/* One cycle's worth is carried, and two quanta for those that were no whole ones: the fifth reset in a row changes nothing. */
		counter = (counter < most ? counter : most) + allowance;
		if (times > 1)
			counter = (counter < most ? counter : most) + allowance;
		if (times > 2)
			counter = (counter < most ? counter : most) + allowance;
		if (times > 3)
			counter = (counter < most ? counter : most) + allowance;
		dv.sum -= expected - dv_quanta(counter);
		c->counter = counter;
		c->cycle = dv.cycle;
	}
	return c->counter;
}

/* The quanta that it is due in its cycle. */
DV_INLINE s64 dv_vtrr_due(struct dv_client *c)
{
	return dv_quanta(dv_vtrr_refresh(c));
}

DV_INLINE void dv_vtrr_new_cycle(void)
{
	dv.cycle++;
	dv.sum += dv.total;
	dv.first = dv.head;
}

/* Whether its virtual time is before QVT(t + Q), counting quanta that are being run on other CPUs as run. */
DV_INLINE bool dv_vtrr_is_due(struct dv_client *c)
{
	struct dv_clock then = dv.queue;

	dv_advance(&then, dv_quantum * (1 + dv.nr_runnable - dv.nr_waiting), dv.total);
	return dv_before(c->vt, c->share, then, dv.total);
}

/* The client that the paper's rules name. */
DV_PART u32 dv_vtrr_choose(void)
{
	struct dv_client *current, *following;
	s64 left, counter;
	u32 next;

	if (dv.sum <= 0) {
		dv_vtrr_new_cycle();
		return dv.head;
	}
	if (dv.cursor == DV_NONE)
		return dv.head;
	current = DV(dv.cursor);
	next = current->next;
	if (next == DV_NONE)
		return dv.head;
	following = DV(next);
	left = dv_vtrr_due(current);
	if (!current->nr_waiting)
		left--;
	counter = dv_vtrr_due(following);
	/* Debts can make 0 the larger counter; nothing is due all the same. */
	if (counter > 0 && (counter > left || dv_vtrr_is_due(following)))
		return next;
	return dv.head;
}

/* So many clients are passed over, since they are on CPUs, before the queue is begun anew. */
#define DV_PASSED 32

/* The first client from `at` on that waits and is due something, among the next `most`. */
DV_PART u32 dv_vtrr_first_due(u32 at, u32 most)
{
	u32 found = DV_NONE;
	int i;

	DV_FOR(i, DV_MAX) {
		struct dv_client *c;

		if (at == DV_NONE || (u32)i >= most)
			break;
		c = DV(at);
		if (c->nr_waiting && dv_vtrr_due(c) > 0) {
			found = at;
			break;
		}
		at = c->next;
	}
	return found;
}

/*
 * The first of all. Within a cycle clients only stop being due anything, so that the search goes on where it ended: the first
 * one's whole cycle is one walk through the queue, however often the head is due nothing.
 */
DV_INLINE u32 dv_vtrr_first_of_all(void)
{
	dv.first = dv_vtrr_first_due(dv.first, DV_MAX);
	return dv.first;
}

/* Of those that wait, the one with the least virtual time; the first in the queue among equals. O(n). */
DV_PART u32 dv_vtrr_furthest_behind(void)
{
	u32 at = dv.head, found = DV_NONE;
	int i;

	DV_FOR(i, DV_MAX) {
		struct dv_client *c;

		if (at == DV_NONE)
			break;
		c = DV(at);
		if (c->nr_waiting &&
		    (found == DV_NONE || dv_before(c->vt, c->share, DV(found)->vt, DV(found)->share)))
			found = at;
		at = c->next;
	}
	return found;
}

DV_PART u32 dv_vtrr_pick(void)
{
	u32 at = dv_vtrr_choose(), found;
	struct dv_client *c;

	if (at == DV_NONE)
		return DV_NONE;
	c = DV(at);
	if (c->nr_waiting && dv_vtrr_due(c) > 0) {
		dv.cursor = at;
		return at;
	}
	/* It is on a CPU, or a head that is due nothing: the first after it that is due something, else the first of all. */
	found = at == dv.head ? DV_NONE : dv_vtrr_first_due(at, DV_PASSED);
	if (found == DV_NONE)
		found = dv_vtrr_first_of_all();
	if (found == DV_NONE && dv.sum <= 0) {
		/* Everybody owed a whole cycle's worth. */
		dv_vtrr_new_cycle();
		found = dv_vtrr_first_of_all();
	}
	/* Only clients on CPUs are due anything: whoever has had least for its share. */
	if (found == DV_NONE)
		found = dv_vtrr_furthest_behind();
	if (found != DV_NONE)
		dv.cursor = found;
	return found;
}

/* Whether `c`, known as `id`, comes after the client `other` in the queue: by share, the largest first, then by id. */
DV_INLINE bool dv_vtrr_after(u64 share, u32 id, u32 other)
{
	struct dv_client *c = DV(other);

	return c->share > share || (c->share == share && other < id);
}

/* It waits: where it stands before `dv.first`, it is the first that may be due anything. */
DV_INLINE void dv_vtrr_may_be_first(u32 id)
{
	if (!(DV(id)->flags & DV_RUNNABLE))
		return;
	if (dv.first == DV_NONE || !dv_vtrr_after(DV(id)->share, id, dv.first))
		dv.first = id;
}

/* The client after which `id` belongs; DV_NONE: it becomes the head. */
DV_PART u32 dv_vtrr_place(u32 id)
{
	struct dv_client *c = DV(id);
	u32 before = c->last_prev, after = c->last_next, at;
	int i;

	if ((c->flags & DV_STARTED) && before != DV_NONE && after != DV_NONE) {
		struct dv_client *b = DV(before), *a = DV(after);

		if ((b->flags & DV_RUNNABLE) && (a->flags & DV_RUNNABLE) && b->next == after && c->share <= b->share &&
		    c->share >= a->share)
			return before;
	}
	before = DV_NONE;
	at = dv.head;
	DV_FOR(i, DV_MAX) {
		if (at == DV_NONE || !dv_vtrr_after(c->share, id, at))
			break;
		before = at;
		at = DV(at)->next;
	}
	return before;
}

/* Eq. 9, and what follows it. */
DV_INLINE s64 dv_vtrr_first_counter(struct dv_client *c, u32 before, u32 after)
{
	bool same = (c->flags & DV_STARTED) && c->cycle == dv.cycle;
	s64 kept = c->counter, counter = 0, other;

	if (dv.sum > 0)
		counter = dv_scale(c->share, dv.sum, dv.total) * dv_quantum;
	if (same && kept < counter)
		counter = kept;
	if (before != DV_NONE) {
		other = dv_vtrr_refresh(DV(before));
		if (other < counter)
			counter = other;
	}
	if (after != DV_NONE) {
		other = dv_vtrr_refresh(DV(after));
		if (other > counter)
			counter = other;
	}
	/* As published, the neighbour behind gives back what a client had used before it left for a moment. */
	if (same && dv_strict && kept < counter)
		counter = kept;
	return counter;
}

/* `dv.total` does not count it yet. */
DV_PART int dv_vtrr_insert(u32 id)
{
	struct dv_client *c = DV(id);
	u32 before = dv_vtrr_place(id), after = before == DV_NONE ? dv.head : DV(before)->next;
	struct dv_clock now = dv_over(dv.queue, dv.total, c->share);

	if (dv.head == DV_NONE) {
		dv.cycle++;
		dv.first = id;
		c->counter = dv_allowance(c) + (c->counter < 0 ? c->counter : 0);
	} else {
		c->counter = dv_vtrr_first_counter(c, before, after);
	}
	c->cycle = dv.cycle;
	/* Eqs 7 and 8: VT = max(QVT + Q / share, VFT) - Q / share. */
	c->vt = now;
	if (c->flags & DV_STARTED) {
		struct dv_clock zero = { 0, 0 }, span = zero, kept;

		dv_advance(&span, dv_quantum, c->share);
		kept = dv_shift(c->parked, zero, span, c->share);
		if (dv_before(now, c->share, kept, c->share))
			c->vt = kept;
	}
	c->prev = before;
	c->next = after;
	if (before == DV_NONE)
		dv.head = id;
	else
		DV(before)->next = id;
	if (after != DV_NONE)
		DV(after)->prev = id;
	dv.sum += dv_quanta(c->counter);
	return 0;
}

/* `dv.total` still counts it. */
DV_PART int dv_vtrr_remove(u32 id)
{
	struct dv_client *c = DV(id);
	u32 before = c->prev, after = c->next;

	dv_vtrr_refresh(c);
	dv.sum -= dv_quanta(c->counter);
	c->parked = c->vt;
	dv_advance(&c->parked, dv_quantum, c->share);
	c->last_prev = before;
	c->last_next = after;
	if (before == DV_NONE)
		dv.head = after;
	else
		DV(before)->next = after;
	if (after != DV_NONE)
		DV(after)->prev = before;
	if (dv.cursor == id)
		dv.cursor = before;
	if (dv.first == id)
		dv.first = after;
	return 0;
}

/*
 * A debt beyond that is forgotten: one cycle's worth, as in divvy-policy. On several CPUs a client runs while others that are due
 * more are on CPUs, again and again; with one cycle's worth the small ones were forgiven quanta: 13.1 % for 12.5.
 */
DV_INLINE s64 dv_vtrr_floor(struct dv_client *c)
{
	return -dv_allowance(c) * (dv_on_several() ? DV_CYCLES : 1);
}

DV_INLINE void dv_vtrr_charge(struct dv_client *c, u64 used)
{
	s64 floor = dv_vtrr_floor(c), left;

	dv_advance(&c->vt, used, c->share);
	if (!(c->flags & DV_RUNNABLE)) {
		/* A late charge, to one that has blocked since. */
		dv_advance(&c->parked, used, c->share);
		left = c->counter - (s64)used;
		c->counter = left < floor ? floor : left;
		return;
	}
	left = dv_vtrr_refresh(c) - (s64)used;
	if (left < floor)
		left = floor;
	dv.sum -= dv_quanta(c->counter) - dv_quanta(left);
	c->counter = left;
}
