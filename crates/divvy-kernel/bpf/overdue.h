/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who waits for too long. A small enough share, a crowd in a client, or a task that may run on one CPU only while its client's
 * others use the share up on the rest: the policy may be right to let a task wait for longer than the kernel's watchdog does. Such a
 * task is found by its queue, in which the first has waited longest, and has a turn before the policy's choice: every other time, and
 * every time once three quarters of the watchdog's patience are gone. Where thousands wait, for whom there is not that much time, sooner.
 */

/*
 * All clients are looked at in turn, a few at a time, so that one round takes a quarter of the patience (or PROBED at each choice, if those are
 * rare): by how much time has passed, not by how many choices there were. Where somebody has waited for too long lately, AT_ONCE are looked
 * at before each choice for which nobody was found yet, and then those who were found, in turn.
 */
#define PROBE_NS 4000000ULL
#define PROBED 128
#define AT_ONCE 16
#define CROWDS 8

/* All that is before it has been looked at. */
u64 probed_at;
u32 probed;
/* Between two looks at a client, in ns. */
u64 probe_every;
/* Clients plus 1 of which tasks were overdue lately; 0: nobody. */
u32 crowds[CROWDS];
u32 crowd_at, crowd_last;

/*
 * A moment since which everybody in a client's queue waits at the longest. Most clients are passed over by it alone: the look into a queue
 * costs as much as half a choice, and with a thousand clients more than one has its turn in each.
 */
u64 waits_since[DV_MAX];

DV_INLINE u64 *client_waits_since(u32 client)
{
	return &waits_since[client & (DV_MAX - 1)];
}

/* Under the lock: a task of `client` is queued that has waited since then. */
DV_INLINE void note_wait(u32 client, u64 since)
{
	struct dv_client *c = DV(client);
	u64 *first = client_waits_since(client);

	if (c->nr_waiting + c->nr_hidden <= 1 || since < *first)
		*first = since;
}

/* Under the lock: a task is queued. */
DV_INLINE void note_age(struct task *t)
{
	u8 at = (t->waits_since >> age_shift) & (AGES - 1);

	if (t->age)
		return;
	nr_of_age[at]++;
	t->age = at + 1;
}

/* Who has waited for longer than this has waited for too long; and for longer than this there is not much time left. Since when that is so. */
u64 too_long_ns, late_ns, reckoned_at;

/*
 * Half of the watchdog's patience and three quarters. Where so many wait for so long that some would not have their turn until a tenth before its
 * end if all CPUs had none but them from now on, longest waits first, there is no time left; and if every other turn was theirs, it is too long.
 */
DV_PART int reckon_patience(u64 now)
{
	u64 each = (slice_ns_min + slice_ns_min / 2) / (dv.cpus ? dv.cpus : 1), most = patience_ns / 5 * 9, turns = 0;
	bool crowded = false, late = false;
	int i;

	/* The longest that anybody is known to wait for first. */
	bpf_for(i, 0, AGES - 1) {
		u32 age = AGES - 2 - i;
		u64 nr = nr_of_age[((now >> age_shift) - age) & (AGES - 1)], waited = ((u64)age + 1) << age_shift;

		turns += nr * each;
		if (!nr)
			continue;
		crowded |= waited + turns * 2 > most;
		late |= waited + turns > most;
	}
	/* A few that wait for long are none. */
	if (turns < patience_ns / 4)
		crowded = late = false;
	too_long_ns = crowded ? patience_ns / 6 : patience_ns;
	late_ns = late ? patience_ns / 4 : patience_ns / 2 * 3;
	return 0;
}

DV_INLINE bool waits_too_long(u64 since, u64 now)
{
	return now > since && now - since > too_long_ns;
}

/* Set in what overdue_for() answers where there is not much time left. */
#define LATE 0x8000

/* The CPU for which the first of a client's queue has waited for too long; CPUS if it has not, or nobody is there. */
DV_PART u32 overdue_for(u32 client, u32 here, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u32 cpu = CPUS;

	if (bpf_iter_scx_dsq_new(&it, client, 0) == 0) {
		p = bpf_iter_scx_dsq_next(&it);
		if (p) {
			struct task *t = task_of(p);

			/* All behind it came later, but for those of the last second (`TURN_NS`) that were put elsewhere. */
			if (t && t->waits_since)
				*client_waits_since(client) = t->waits_since;
			if (t && t->waits_since && waits_too_long(t->waits_since, now)) {
				cpu = bpf_cpumask_test_cpu(here, p->cpus_ptr) ? here : bpf_cpumask_any_distribute(p->cpus_ptr);
				/* One that is not there makes no choices. Where it ran last it may run. */
				if (cpu < CPUS && on_cpu(cpu)->is_absent)
					cpu = cpu_of(p);
				if (cpu < CPUS && now - t->waits_since > late_ns)
					cpu |= LATE;
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return cpu;
}

/* How many clients are to be looked at now. */
DV_PART u32 nr_to_probe(u32 nr, u64 now)
{
	u64 each = patience_ns / 4 / (nr ? nr : 1), due = now > probed_at ? (now - probed_at) / (each ? each : 1) : 0;

	probe_every = each;
	if (due < nr && due < PROBED) {
		probed_at += due * each;
	} else {
		/* After a time without any choice. */
		probed_at = now;
		due = nr < PROBED ? nr : PROBED;
	}
	return due < AT_ONCE && now - overdue_at < TURN_NS ? AT_ONCE : due;
}

/* A crowd's next has mostly waited as long as its first. */
DV_INLINE void note_crowd(u32 client)
{
	int i;

	DV_FOR(i, CROWDS) {
		if (crowds[i & (CROWDS - 1)] == client + 1)
			return;
	}
	crowds[crowd_last++ & (CROWDS - 1)] = client + 1;
}

/* Whether the first in the queue of `client` has waited for too long; it has a turn then. */
DV_PART int look_at(u32 client, u32 here, u64 now)
{
	u32 cpu, late;

	if (!DV(client)->nr_waiting || !waits_too_long(*client_waits_since(client), now))
		return false;
	cpu = overdue_for(client, here, now);
	late = cpu & LATE;
	cpu &= ~LATE;
	/* Somebody else's turn may be due there. */
	if (cpu >= CPUS || on_cpu(cpu)->overdue)
		return false;
	overdue_at = now;
	note_crowd(client);
	on_cpu(cpu)->overdue = client + 1;
	on_cpu(cpu)->late = !!late;
	/* It may run a task for which nobody else was there, on and on. */
	if (cpu != here)
		scx_bpf_kick_cpu(cpu, 0);
	return true;
}

DV_PART int probe(u32 here, u64 now)
{
	u32 start = probed, nr = about.nr_clients, most = nr_to_probe(nr, now);
	int i;

	/* Many times in each age: it costs as much as a choice. */
	if (now - reckoned_at > (1ULL << age_shift) / 16) {
		reckoned_at = now;
		reckon_patience(now);
	}
	bpf_for(i, 0, PROBED) {
		u32 at = start + i;

		if ((u32)i >= nr || (u32)i >= most)
			break;
		if (at >= nr)
			at -= nr;
		/* The next time from the one after it. */
		probed = at + 1 < nr ? at + 1 : 0;
		if (look_at(at, here, now))
			return 0;
	}
	if (now - overdue_at >= TURN_NS)
		return 0;
	bpf_for(i, 0, CROWDS) {
		u32 at = crowd_at++ & (CROWDS - 1), client = crowds[at];

		if (!client)
			continue;
		if (look_at(client - 1, here, now))
			break;
		crowds[at] = 0;
	}
	return 0;
}

/* A client whose turn it is on this CPU before the policy's choice, or DV_NONE. */
DV_PART u32 overdue_here(u32 cpu, u64 now)
{
	struct on_cpu *here = on_cpu(cpu);
	u32 client;

	if (!patience_ns || cpu >= CPUS)
		return DV_NONE;
	if (!here->overdue &&
	    (now - overdue_at < TURN_NS || now - probed_at > (probe_every > PROBE_NS ? probe_every : PROBE_NS)))
		probe(cpu, now);
	if (!here->overdue || (here->in_turn && !here->late)) {
		here->in_turn = 0;
		return DV_NONE;
	}
	client = here->overdue - 1;
	here->overdue = 0;
	here->in_turn = 1;
	return client;
}
