/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Clients that are left out of the choice for a moment: nobody of them may run on the CPU that asks.
 */

/*
 * Leaves a client out of the choice, whoever of it waits, until it is shown again, and puts it before a list of the hidden. A list is named by its
 * first client plus 1, or 0, and is the result. Each CPU has one of its own; a client that is in another's already is shown with that.
 */
DV_PART u32 dv_hide(u32 id, u32 list)
{
	struct dv_client *c = DV(id);

	if (c->nr_waiting) {
		if (!c->nr_hidden)
			dv.nr_hidden++;
		c->nr_hidden += c->nr_waiting;
		c->nr_waiting = 0;
		dv_leave_order(id);
	}
	if (c->flags & DV_LISTED)
		return list;
	c->flags |= DV_LISTED;
	c->next_hidden = list;
	return (id & (DV_MAX - 1)) + 1;
}

/* The clients of a list that are hidden still, at most as many as there are. */
DV_PART u32 dv_nr_hidden(u32 list)
{
	u32 nr = 0;
	int i;

	DV_FOR(i, DV_MAX) {
		if (!list)
			break;
		if (DV(list - 1)->nr_hidden)
			nr++;
		list = DV(list - 1)->next_hidden;
	}
	return nr;
}

/* Shows the first of a list of the hidden; the rest of the list. */
DV_PART u32 dv_show(u32 list)
{
	u32 id = (list - 1) & (DV_MAX - 1), hidden;
	struct dv_client *c = DV(id);

	hidden = c->nr_hidden;
	c->flags &= ~DV_LISTED;
	if (hidden) {
		c->nr_hidden = 0;
		dv.nr_hidden--;
		dv_ready(id);
		c->nr_waiting += hidden - 1;
	}
	return c->next_hidden;
}
