//! Where the boxes of a layered picture go: columns from left to right, each box right of all that back it.
//!
//! Idea (Sugiyama, Tagawa and Toda 1981): a ticket that spans several columns becomes a chain through all of them; each
//! column is ordered by where its neighbours stand, a few times to and fro; then every box is put as near to its neighbours'
//! middle as its column's order and the room between boxes allow. That last step is least squares under an order, which
//! pooling adjacent violators solves exactly.

use std::collections::VecDeque;

/// How often columns are ordered, and boxes moved, to and fro.
const SWEEPS: usize = 12;

/// Where everything is. Heights are of middles, in the units of the sizes that were given.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    /// The column of each box.
    pub(super) column: Vec<usize>,
    /// The height of each box.
    pub(super) y: Vec<f64>,
    /// For each edge, the heights at which it passes the columns between its ends, from left to right.
    pub(super) through: Vec<Vec<f64>>,
    /// Columns.
    pub(super) nr_columns: usize,
    /// Height of the whole.
    pub(super) height: f64,
}

/// Lays out boxes that take so much room in their columns, with these edges, from whoever backs to whom; an edge that passes a column
/// takes the room `passing`. What is on a cycle, which no market has, is put into the first column.
pub(super) fn layout(rooms: &[f64], edges: &[(usize, usize)], passing: f64) -> Layout {
    let nr_nodes = rooms.len();
    let column = columns(nr_nodes, edges);
    let mut net = Net::new(&column, rooms, edges, passing);
    net.order();
    let y = net.place();
    let top = net.each().map(|v| y[v] - net.room[v] / 2.0).fold(f64::INFINITY, f64::min);
    let bottom = net.each().map(|v| y[v] + net.room[v] / 2.0).fold(f64::NEG_INFINITY, f64::max);
    let through = net.chains.iter().map(|chain| chain.iter().map(|&v| y[v] - top).collect()).collect();
    Layout {
        y: y[..nr_nodes].iter().map(|y| y - top).collect(),
        column,
        through,
        nr_columns: net.columns.len(),
        height: if nr_nodes == 0 { 0.0 } else { bottom - top },
    }
}

/// The length of the longest path to each.
fn columns(nr_nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let (mut column, mut waits_for) = (vec![0; nr_nodes], vec![0; nr_nodes]);
    let mut out = vec![Vec::new(); nr_nodes];
    for &(from, to) in edges {
        out[from].push(to);
        waits_for[to] += 1;
    }
    let mut ready: VecDeque<usize> = (0..nr_nodes).filter(|&v| waits_for[v] == 0).collect();
    while let Some(v) = ready.pop_front() {
        for &to in &out[v] {
            column[to] = column[to].max(column[v] + 1);
            waits_for[to] -= 1;
            if waits_for[to] == 0 {
                ready.push_back(to);
            }
        }
    }
    column
}

/// Boxes, and a point in each column that an edge passes.
struct Net {
    /// Vertices from top to bottom.
    columns: Vec<Vec<usize>>,
    room: Vec<f64>,
    left: Vec<Vec<usize>>,
    right: Vec<Vec<usize>>,
    /// The points of each edge.
    chains: Vec<Vec<usize>>,
}

impl Net {
    fn new(column: &[usize], rooms: &[f64], edges: &[(usize, usize)], passing: f64) -> Self {
        let nr_nodes = rooms.len();
        let nr_columns = column.iter().max().map_or(0, |last| last + 1);
        let mut net = Self {
            columns: vec![Vec::new(); nr_columns],
            room: rooms.to_vec(),
            left: vec![Vec::new(); nr_nodes],
            right: vec![Vec::new(); nr_nodes],
            chains: Vec::with_capacity(edges.len()),
        };
        for &(from, to) in edges {
            let mut chain = Vec::new();
            let mut before = from;
            for _ in column[from] + 1..column[to] {
                let point = net.room.len();
                net.room.push(passing);
                net.left.push(Vec::new());
                net.right.push(Vec::new());
                net.join(before, point);
                chain.push(point);
                before = point;
            }
            net.join(before, to);
            net.chains.push(chain);
        }
        net.fill(column, nr_nodes);
        net
    }

    fn join(&mut self, a: usize, b: usize) {
        self.right[a].push(b);
        self.left[b].push(a);
    }

    /// A first order: as a walk from the first box meets them, so that a tree has no crossings.
    fn fill(&mut self, column: &[usize], nr_nodes: usize) {
        let mut seen = vec![false; self.room.len()];
        let first = (0..nr_nodes).filter(|&v| column[v] == 0).rev();
        let mut ahead: Vec<(usize, usize)> = first.map(|v| (v, 0)).collect();
        while let Some((v, at)) = ahead.pop() {
            // A box is right of all its neighbours on the left; it is met for good from the nearest of them.
            if (v < nr_nodes && column[v] != at) || std::mem::replace(&mut seen[v], true) {
                continue;
            }
            self.columns[at].push(v);
            ahead.extend(self.right[v].iter().rev().map(|&to| (to, at + 1)));
        }
        // On a cycle, if there were one.
        let left_out = (0..nr_nodes).filter(|&v| !seen[v]);
        left_out.for_each(|v| self.columns[column[v]].push(v));
    }

    fn each(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().flatten().copied()
    }

    /// Orders each column by the mean place of its neighbours, left and right in turn.
    fn order(&mut self) {
        let mut place = vec![0.0; self.room.len()];
        for sweep in 0..SWEEPS {
            let from_left = sweep % 2 == 0;
            for step in 0..self.columns.len() {
                let at = if from_left { step } else { self.columns.len() - 1 - step };
                let neighbours = if from_left { &self.left } else { &self.right };
                // In parts of the column, so that long columns and short ones compare.
                let n = self.columns[at].len() as f64;
                let part = |k: usize| (k as f64 + 0.5) / n;
                let stands = self.columns[at].iter().enumerate();
                let alone = |v: usize| self.left[v].is_empty() && self.right[v].is_empty();
                let otherwise = |k, v| if alone(v) { f64::INFINITY } else { part(k) }; // Below the others.
                let key =
                    |(k, &v): (usize, &usize)| (mean(&neighbours[v], &place).unwrap_or(otherwise(k, v)), v);
                let mut keyed: Vec<(f64, usize)> = stands.map(key).collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0)); // Stable: equals stay as they stood.
                self.columns[at] = keyed.into_iter().map(|(_, v)| v).collect();
                self.columns[at].iter().enumerate().for_each(|(k, &v)| place[v] = part(k));
            }
        }
    }

    /// The height of each vertex.
    fn place(&self) -> Vec<f64> {
        let mut y = vec![0.0; self.room.len()];
        for column in &self.columns {
            let mut top = 0.0;
            for &v in column {
                y[v] = top + self.room[v] / 2.0;
                top += self.room[v];
            }
        }
        for sweep in 0..SWEEPS {
            let from_left = sweep % 2 == 0; // And so last from the right: a box at the middle of what it backs.
            for step in 0..self.columns.len() {
                let at = if from_left { step } else { self.columns.len() - 1 - step };
                let column = &self.columns[at];
                let neighbours = if from_left { &self.left } else { &self.right };
                let wish: Vec<f64> =
                    column.iter().map(|&v| mean(&neighbours[v], &y).unwrap_or(y[v])).collect();
                let room: Vec<f64> = column.iter().map(|&v| self.room[v]).collect();
                for (&v, at) in column.iter().zip(apart(&wish, &room)) {
                    y[v] = at;
                }
            }
        }
        y
    }
}

fn mean(of: &[usize], values: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().map(|&v| values[v]).sum::<f64>() / of.len() as f64)
}

/// The heights nearest to `wish` (in squares) that keep the order and `room` for everybody.
fn apart(wish: &[f64], room: &[f64]) -> Vec<f64> {
    // Without the room that those above need, heights must only not fall.
    let mut offset = Vec::with_capacity(room.len());
    let mut top = 0.0;
    for size in room {
        offset.push(top + size / 2.0);
        top += size;
    }
    // Blocks of equal height: their sums and counts.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (wish, offset) in wish.iter().zip(&offset) {
        let mut block = (wish - offset, 1);
        while let Some(&(sum, n)) = blocks.last() {
            if sum / n as f64 <= block.0 / block.1 as f64 {
                break;
            }
            blocks.pop();
            block = (block.0 + sum, block.1 + n);
        }
        blocks.push(block);
    }
    let heights = blocks.iter().flat_map(|&(sum, n)| std::iter::repeat_n(sum / n as f64, n));
    heights.zip(offset).map(|(height, offset)| height + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: f64 = 10.0;
    const PASSING: f64 = 4.0;

    fn crossings(layout: &Layout, edges: &[(usize, usize)]) -> usize {
        let mut nr = 0;
        for (i, &(a, b)) in edges.iter().enumerate() {
            for &(c, d) in &edges[i + 1..] {
                let same = layout.column[a] == layout.column[c] && layout.column[b] == layout.column[d];
                let sides = (layout.y[a] - layout.y[c]) * (layout.y[b] - layout.y[d]);
                nr += usize::from(same && a != c && b != d && sides < 0.0);
            }
        }
        nr
    }

    #[test]
    fn a_tree_has_no_crossings_and_parents_stand_at_their_childrens_middle() {
        let edges = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6), (2, 7)];
        let laid = layout(&[ROOM; 8], &edges, PASSING);
        assert_eq!(laid.column, [0, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(crossings(&laid, &edges), 0);
        assert!((laid.y[1] - (laid.y[3] + laid.y[4]) / 2.0).abs() < 1e-6, "{laid:?}");
        assert!((laid.y[2] - laid.y[6]).abs() < 1e-6, "{laid:?}");
        assert!((laid.height - 50.0).abs() < 1e-6, "five leaves of 10 each: {laid:?}");
    }

    #[test]
    fn nobody_overlaps_and_long_edges_pass_every_column_between() {
        // A base, a chain, and an edge over all of it.
        let edges = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (4, 3)];
        let laid = layout(&[ROOM; 5], &edges, PASSING);
        assert_eq!(laid.column, [0, 1, 2, 3, 1]);
        assert_eq!(laid.through.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 0, 2, 0, 1]);
        for i in 0..5 {
            for j in 0..i {
                let apart = (laid.y[i] - laid.y[j]).abs() >= ROOM - 1e-6;
                assert!(laid.column[i] != laid.column[j] || apart, "{i} and {j}: {laid:?}");
            }
            assert!(laid.y[i] >= ROOM / 2.0 - 1e-6 && laid.y[i] <= laid.height, "{laid:?}");
        }
    }

    #[test]
    fn a_high_box_has_more_room_than_a_low_one() {
        let laid = layout(&[ROOM, 30.0, ROOM], &[(0, 1), (0, 2)], PASSING);
        assert!((laid.y[2] - laid.y[1] - 20.0).abs() < 1e-6 && (laid.height - 40.0).abs() < 1e-6, "{laid:?}");
    }

    #[test]
    fn heights_are_the_nearest_that_keep_order_and_room() {
        // Both wish 0: each gives way by half of the room.
        assert_eq!(apart(&[0.0, 0.0], &[10.0, 10.0]), [-5.0, 5.0]);
        // Nobody is in the way.
        assert_eq!(apart(&[0.0, 50.0], &[10.0, 10.0]), [0.0, 50.0]);
        // The wrong way round: they meet in the middle, in order.
        assert_eq!(apart(&[50.0, 0.0], &[10.0, 10.0]), [20.0, 30.0]);
    }

    #[test]
    fn nothing_is_laid_out_as_nothing() {
        assert_eq!(layout(&[], &[], PASSING).height, 0.0);
        assert_eq!(layout(&[ROOM], &[], PASSING).y, [5.0]);
    }
}
