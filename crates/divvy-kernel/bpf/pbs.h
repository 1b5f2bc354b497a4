/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Priority-based blind scheduling: the greatest log2 T - alpha * (log2 S - log2 share) is next, where T is how long ago a
 * client's session began and S the CPU time it has had in it (PBS, section 2; the offset of section 5.2). A session begins with the client,
 * and where it wakes from a sleep of at least beta times the mean of those before (section 4.1). Whoever had the CPU last has gamma more
 * (section 5.1). Integers in units of 2^-32.
 */

#define DV_LOG_ROWS 256

struct dv_log_row {
	u64 log; /* log2(c) in units of 2^-40, c the middle of the row */
	u64 reciprocal; /* 1 / c in units of 2^-63 */
};

#ifdef __bpf__
const volatile struct dv_log_row dv_log_rows[DV_LOG_ROWS];
#else
static struct dv_log_row dv_log_rows[DV_LOG_ROWS];
#endif

/* beta = infinity: no sleep begins a session. */
#define DV_NEVER (~0ULL)

/* A client that has had nothing goes before all others. */
#define DV_FIRST (-(1LL << 61))

/*
 * log2 of `x` in units of 2^-32, with an error below 2^-32; log2(0) = -1. The arithmetic of divvy-policy's `fixed::log2`, bit
 * for bit. With c the middle of the row and r = m / c - 1: log2(m) = log2(c) + (r - r^2/2 + r^3/3) * log2(e).
 */
DV_PART s64 dv_log2(u64 x)
{
	u64 m = x, row;
	s64 zeros = 0, r, r2, r3, ln, part;

	if (!x)
		return -(1LL << 32);
	/* Without branches: they would multiply the verifier's paths. */
	part = (m >> 32 == 0) << 5;
	m <<= part;
	zeros += part;
	part = (m >> 48 == 0) << 4;
	m <<= part;
	zeros += part;
	part = (m >> 56 == 0) << 3;
	m <<= part;
	zeros += part;
	part = (m >> 60 == 0) << 2;
	m <<= part;
	zeros += part;
	part = (m >> 62 == 0) << 1;
	m <<= part;
	zeros += part;
	part = m >> 63 == 0;
	m <<= part;
	zeros += part;
	row = (m >> 55) & (DV_LOG_ROWS - 1);
	/* (m * reciprocal) >> 63 is 1 + r in units of 2^-63: the high half of twice the reciprocal, and the lost bit below 40. */
	{
		u64 reciprocal = dv_log_rows[row].reciprocal;
		u64 high = dv_mul_high(m, reciprocal), low = m * reciprocal;
		u64 one_plus_r = (high << 1) | (low >> 63);

		r = (s64)(one_plus_r - (1ULL << 63)) >> 23;
	}
	r2 = (r * r) >> 40;
	r3 = (r2 * r) >> 40;
	ln = r - (r2 >> 1) + ((r3 * 21845) >> 16);
	part = (s64)dv_log_rows[row].log + ((ln * 1549082005LL) >> 30);
	return ((63 - zeros) << 32) + ((part + 128) >> 8);
}

/* a * b in units of 2^-32, rounded down, for a in [0, 2^46) and |b| < 2^39. */
DV_INLINE s64 dv_times(u64 a, s64 b)
{
	bool negative = b < 0;
	u64 positive = negative ? -b : b, high, low;

	high = dv_mul_high(a, positive);
	low = a * positive;
	if (!negative)
		return (high << 32) | (low >> 32);
	/* Down, not towards 0. */
	return -(s64)((high << 32) | (low >> 32)) - !!(low & 0xffffffff);
}

DV_INLINE void dv_pbs_cost(struct dv_client *c)
{
	if (dv_policy != DV_PBS)
		return;
	if (!c->served && dv_alpha)
		c->cost = DV_FIRST;
	else
		c->cost = dv_times(dv_alpha, dv_log2(c->served)) - dv_times(dv_alpha, dv_log2(c->share));
}

/* last >= beta * slept / nr, with beta in units of 2^-32, both sides in 128 bits. */
DV_INLINE bool dv_pbs_begins(u64 last, u64 nr, u64 slept)
{
	u64 high = dv_mul_high(last, nr), low = last * nr, bar_high = dv_mul_high(slept, dv_beta), bar_low = slept * dv_beta;

	if (!dv_beta)
		return true;
	if (dv_beta == DV_NEVER || !nr)
		return false;
	if (high >> 32)
		return true;
	high = (high << 32) | (low >> 32);
	low <<= 32;
	return high > bar_high || (high == bar_high && low >= bar_low);
}

/* It wakes, and was there before. */
DV_INLINE void dv_pbs_come_back(struct dv_client *c, u64 now)
{
	u64 last = now > c->slept_at ? now - c->slept_at : 0;

	if (!last)
		return;
	if (dv_pbs_begins(last, c->nr_slept, c->slept)) {
		c->origin = c->begun = now;
		c->served = 0;
		dv_pbs_cost(c);
	} else if (dv_excluded) {
		c->origin += last;
	}
	c->nr_slept++;
	c->slept += last;
}

/* log2 T. A client may have come on another CPU since `now` was looked at. */
DV_INLINE s64 dv_pbs_age(struct dv_client *c, u64 now)
{
	return dv_log2(now > c->origin ? now - c->origin : 0);
}

/* What is compared: the greatest is next. */
DV_INLINE s64 dv_pbs_value(struct dv_client *c, u64 now)
{
	return c->cost == DV_FIRST ? -DV_FIRST : dv_pbs_age(c, now) - c->cost;
}

/* The same once it is charged for `ran` ns more. */
DV_INLINE s64 dv_pbs_value_after(struct dv_client *c, u64 ran, u64 now)
{
	s64 cost = dv_times(dv_alpha, dv_log2(c->served + ran)) - dv_times(dv_alpha, dv_log2(c->share));

	return dv_pbs_age(c, now) - cost;
}

/* The earliest session goes first, then by id. */
DV_INLINE bool dv_pbs_before(u32 a, u32 b)
{
	u64 of_a = DV(a)->begun, of_b = DV(b)->begun;

	return of_a < of_b || (of_a == of_b && a < b);
}

/* O(clients that wait): one logarithm for each. */
DV_PART u32 dv_pbs_pick(u32 ran, u64 now)
{
	u32 found = DV_NONE;
	s64 best = 0;
	int i;

	DV_FOR(i, DV_MAX) {
		u32 id = DV_HEAP(i);
		struct dv_client *c = DV(id);
		s64 value;

		if ((u32)i >= dv.nr_waiting)
			break;
		value = dv_pbs_value(c, now);
		if (id == ran)
			value += dv_gamma;
		if (found != DV_NONE && (value < best || (value == best && !dv_pbs_before(id, found))))
			continue;
		found = id;
		best = value;
	}
	return found;
}
