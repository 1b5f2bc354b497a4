// Charts of CPU time: who used how many CPUs, from looks that each have everybody's CPU time so far.

const SVG = "http://www.w3.org/2000/svg";
/** Clients with a colour of their own in the chart. */
const NAMED = 12;

export function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** CPUs that each client used between one look and the next: [{t, cpus: Map(id, CPUs)}], t in seconds before `now`. */
export function rates(looks, nowMs, seconds) {
  const found = [];
  for (let i = 1; i < looks.length; i++) {
    const [before, after] = [looks[i - 1], looks[i]];
    const t = (nowMs - after.t_ms) / 1000;
    if (t > seconds || after.t_ms <= before.t_ms) continue;
    const had = new Map(before.cpu);
    const cpus = new Map();
    for (const [id, ns] of after.cpu) {
      // One that is new has got all that it has since the look before.
      cpus.set(id, Math.max(0, ns - (had.get(id) ?? 0)) / ((after.t_ms - before.t_ms) * 1e6));
    }
    found.push({ t, cpus });
  }
  return found;
}

/** Draws all clients on top of each other. `colours` has the class of each that is there now. */
export function stacked(frame, points, { seconds, cpus, colours, label }) {
  const width = Math.max(280, frame.clientWidth);
  const height = 260;
  const edge = { left: 44, right: 12, top: 22, bottom: 40 };
  const used = new Map();
  for (const point of points) for (const [id, n] of point.cpus) used.set(id, (used.get(id) ?? 0) + n);
  const named = [...used.keys()].filter((id) => colours.has(id)).sort((a, b) => used.get(b) - used.get(a) || a - b);
  const drawn = named.slice(0, NAMED).sort((a, b) => a - b);
  const layers = drawn.map((id) => ({ colour: colours.get(id), of: (point) => point.cpus.get(id) ?? 0 }));
  const shown = new Set(drawn);
  const others = (point) => [...point.cpus].reduce((sum, [id, n]) => (shown.has(id) ? sum : sum + n), 0);
  if (used.size > drawn.length) layers.push({ colour: "rest", of: others });
  const totals = points.map((point) => [...point.cpus.values()].reduce((a, b) => a + b, 0));
  const top = Math.max(cpus, ...totals);
  const x = (t) => edge.left + (1 - t / seconds) * (width - edge.left - edge.right);
  const y = (n) => height - edge.bottom - (n / top) * (height - edge.top - edge.bottom);
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const step = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128].find((step) => top / step <= 5) ?? 256;
  for (let n = 0; n <= top + 1e-9; n += step) {
    made.append(svg("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(n), y2: y(n) }));
    made.append(svg("text", { x: edge.left - 6, y: y(n) + 4, "text-anchor": "end" }, String(n)));
  }
  const base = points.map(() => 0);
  for (const layer of layers) {
    const lower = points.map((point, i) => `${x(point.t).toFixed(1)},${y(base[i]).toFixed(1)}`);
    points.forEach((point, i) => (base[i] += layer.of(point)));
    const upper = points.map((point, i) => `${x(point.t).toFixed(1)},${y(base[i]).toFixed(1)}`);
    const area = svg("polygon", { class: "area", points: [...upper, ...lower.reverse()].join(" ") });
    area.style.fill = `var(--${layer.colour})`;
    made.append(area);
  }
  for (let k = 0; k <= 3; k++) {
    const t = seconds - (k * seconds) / 3;
    const words = k === 3 ? "now" : t >= 60 ? `${Math.round((t / 60) * 10) / 10} min` : `${Math.round(t)} s`;
    const anchor = k === 0 ? "start" : k === 3 ? "end" : "middle";
    made.append(svg("text", { x: x(t), y: height - edge.bottom + 16, "text-anchor": anchor }, words));
  }
  made.append(svg("text", { x: 0, y: 13 }, "CPUs"));
  made.append(svg("text", { x: (edge.left + width - edge.right) / 2, y: height - 6, "text-anchor": "middle" }, "time ago"));
  frame.replaceChildren(made);
}

/** One client's CPUs as a line, as high as the machine. */
export function spark(frame, points, { id, seconds, cpus, colour }) {
  const [width, height] = [128, 28];
  const own = points.filter((point) => point.cpus.has(id));
  const at = (point) => {
    const x = (1 - point.t / seconds) * width;
    const y = height - 1.5 - (Math.min(point.cpus.get(id), cpus) / cpus) * (height - 3);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  };
  const line = svg("polyline", { class: "line", points: own.map(at).join(" ") });
  line.style.stroke = `var(--${colour})`;
  const floor = svg("line", { class: "grid", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 });
  const last = own.at(-1)?.cpus.get(id) ?? 0;
  const label = `uses ${last.toFixed(2)} of ${cpus} CPUs now`;
  frame.setAttribute("viewBox", `0 0 ${width} ${height}`);
  frame.setAttribute("role", "img");
  frame.setAttribute("aria-label", label);
  frame.replaceChildren(svg("title", {}, label), floor, line);
}
