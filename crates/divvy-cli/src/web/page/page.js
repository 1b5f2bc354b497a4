// The page of `divvy web`. It asks the server that it came from once a second, and shows what it is told; nothing of what it is
// told becomes markup.

import { rates, spark, stacked, svg } from "./chart.js";

const TOKEN = location.hash.slice(1);
const COLOURS = 12;
const SHARE_MAX = 1_000_000;
const $ = (id) => document.getElementById(id);

let view = { epoch: 0, next: 0 };
let looks = [];
/** The row of each client, by kind and id. */
const rows = new Map();
const colours = new Map();

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Sets text where it is another: an element that does not change is not read out anew. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

class Refused extends Error {}

async function ask(method, path, body) {
  const headers = { Authorization: `Bearer ${TOKEN}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Refused([told.error?.message, told.error?.fix].filter(Boolean).join("; "));
  return told;
}

let noticed;
function notice(text) {
  $("notice").textContent = text;
  clearTimeout(noticed);
  noticed = setTimeout(() => ($("notice").textContent = ""), 6000);
}

/** Asks for a change, says what came of it, and looks again at once. */
async function change(method, path, body, words) {
  try {
    const told = await ask(method, path, body);
    notice(words(told));
  } catch (error) {
    notice(error instanceof Refused ? error.message : "the server does not answer");
  }
  await look();
  if (view.market && path.includes("/market/")) await lookAtMarket();
}

// ---- Numbers

const percent = (part, digits = 1) => `${(part * 100).toFixed(digits)} %`;

function time(ns) {
  const s = ns / 1e9;
  if (s < 60) return `${s.toFixed(2)} s`;
  if (s < 3600) return `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")} min`;
  return `${(s / 3600).toFixed(2)} h`;
}

/** `50%` of one CPU, or CPUs, as millionths of one; 0 for none. */
function limitOf(text) {
  const words = text.trim().toLowerCase();
  if (words === "" || words === "none") return 0;
  const found = /^(\d+(?:\.\d+)?)\s*(%?)$/.exec(words);
  if (!found) return undefined;
  return Math.round(Number(found[1]) * (found[2] ? 10_000 : 1_000_000));
}

const limitWords = (ppm) => (ppm === undefined || ppm === null ? "" : `${ppm / 10_000}%`);

// ---- Clients

function colourOf(row) {
  if (row.kind === "group" || row.kind === "run") return undefined;
  if (!colours.has(row.id)) colours.set(row.id, `c${colours.size % COLOURS}`);
  return colours.get(row.id);
}

function setShare(row, share) {
  if (!Number.isInteger(share) || share < 1 || share > SHARE_MAX) {
    notice(`a share is a whole number from 1 to ${SHARE_MAX}`);
    return;
  }
  change("PATCH", row.path, { share }, (told) => `${told.name}: share ${told.share}`);
}

function shareCell(entry, row) {
  if (row.path === undefined || row.path === null) {
    if (row.kind === "run") return make("td");
    return make("td", { "data-label": "share", title: "a divvy share keeps the shares that it was started with" });
  }
  const input = make("input", { type: "number", min: 1, max: SHARE_MAX, "aria-label": `share of ${row.name}` });
  input.addEventListener("change", () => setShare(entry.row, Number(input.value)));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") input.value = entry.row.share;
  });
  const less = make("button", { type: "button", "aria-label": `less for ${row.name}`, onclick: () => setShare(entry.row, Math.max(1, entry.row.share - 1)) }, "−");
  const more = make("button", { type: "button", "aria-label": `more for ${row.name}`, onclick: () => setShare(entry.row, entry.row.share + 1) }, "+");
  entry.share = input;
  return make("td", { "data-label": "share" }, make("span", { class: "share" }, less, input, more));
}

function limitCell(entry, row) {
  if (!row.path?.startsWith("/v1/clients/")) return make("td");
  const input = make("input", { type: "text", placeholder: "none", "aria-label": `limit of ${row.name}`, autocomplete: "off", inputmode: "decimal" });
  input.addEventListener("change", () => {
    const limit_ppm = limitOf(input.value);
    input.setAttribute("aria-invalid", String(limit_ppm === undefined));
    if (limit_ppm === undefined) return notice(`'${input.value}' is no limit: write 50%, of one CPU, or 1.5, in CPUs`);
    change("PATCH", entry.row.path, { limit_ppm }, (told) =>
      told.limit_ppm ? `${told.name}: limit ${limitWords(told.limit_ppm)} of one CPU` : `${told.name}: no limit`);
  });
  entry.limit = input;
  return make("td", { class: "limit", "data-label": "limit" }, input);
}

function pauseCell(entry, row) {
  if (row.path === undefined || row.path === null) return make("td");
  entry.pause = make("button", {
    type: "button",
    onclick: () => {
      const paused = entry.row.state !== "paused";
      change("PATCH", entry.row.path, { paused }, (told) =>
        paused ? `${told.name}: paused; its share goes to the others` : `${told.name}: resumed`);
    },
  });
  return make("td", {}, entry.pause);
}

function newRow(row) {
  const entry = { row };
  entry.swatch = make("span", { class: "swatch", "aria-hidden": "true" });
  entry.name = make("span");
  entry.is = make("small");
  const name = make("td", { class: "name", "data-depth": Math.min(row.depth, 4) }, entry.swatch, entry.name, entry.is);
  entry.fill = make("div", { class: "fill" });
  entry.target = make("div", { class: "target" });
  entry.portion = make("span", { class: "portion" });
  entry.bar = make("div", { class: "bar", "aria-hidden": "true" }, entry.fill, entry.target);
  entry.error = make("td", { class: "number", "data-label": "error" });
  entry.state = make("td", { class: "state", "data-label": "state" });
  entry.time = make("td", { class: "number", "data-label": "CPU time" });
  entry.spark = svg("svg", { class: "spark" });
  entry.shareCell = shareCell(entry, row);
  const leaf = colourOf(row) !== undefined;
  entry.element = make(
    "tr",
    { role: "row", "data-kind": row.kind ?? "client", "data-depth": Math.min(row.depth, 4) },
    name,
    entry.shareCell,
    row.kind === "run" ? make("td") : make("td", { class: "portions", "data-label": "achieved, and target" }, entry.bar, entry.portion),
    entry.error,
    limitCell(entry, row),
    entry.state,
    entry.time,
    leaf ? make("td", { "data-label": "last minutes" }, entry.spark) : make("td"),
    pauseCell(entry, row),
  );
  for (const cell of entry.element.children) cell.setAttribute("role", "cell");
  return entry;
}

function showRow(entry, row) {
  entry.row = row;
  say(entry.name, row.name);
  say(entry.is, row.kind === "group" ? "" : row.selector);
  const colour = colourOf(row);
  entry.swatch.hidden = colour === undefined;
  entry.swatch.style.background = entry.fill.style.background = `var(--${colour ?? "rest"})`;
  // What is being typed is the user's.
  if (entry.share && document.activeElement !== entry.share) entry.share.value = row.share;
  if (!entry.share && row.kind !== "run") say(entry.shareCell, String(row.share));
  if (entry.limit && document.activeElement !== entry.limit) entry.limit.value = limitWords(row.limit_ppm);
  const part = Math.min(1, row.achieved_fraction);
  entry.fill.style.width = `${part * 100}%`;
  entry.target.style.left = `${Math.min(1, row.effective_fraction) * 100}%`;
  say(entry.portion, `${percent(row.achieved_fraction)} of ${percent(row.effective_fraction)}`);
  const known = row.kind !== "run" && row.achieved_fraction > 0 && row.effective_fraction > 0;
  say(entry.error, known ? `${row.relative_error < 0 ? "−" : "+"}${Math.abs(row.relative_error * 100).toFixed(1)} %` : row.kind === "run" ? "" : "-");
  const state = row.kind === "group" ? (row.state === "paused" ? "paused" : "") : row.kind === "run" ? "" : row.state;
  say(entry.state, state);
  entry.state.dataset.state = state;
  say(entry.time, time(row.service_ns));
  if (entry.pause) {
    const word = row.state === "paused" ? "Resume" : "Pause";
    say(entry.pause, word);
    entry.pause.setAttribute("aria-label", `${word} ${row.name}`);
  }
}

function showClients(now) {
  const body = $("clients").tBodies[0];
  const there = new Set();
  let before = null;
  for (const row of now.rows) {
    const key = `${row.kind ?? "client"} ${row.id}`;
    there.add(key);
    if (!rows.has(key)) rows.set(key, newRow(row));
    const entry = rows.get(key);
    showRow(entry, row);
    // A row that stands where it should is left alone: what is moved loses the focus.
    const next = before ? before.nextSibling : body.firstChild;
    if (next !== entry.element) body.insertBefore(entry.element, next);
    before = entry.element;
  }
  for (const [key, entry] of rows) {
    if (there.has(key)) continue;
    entry.element.remove();
    rows.delete(key);
  }
  $("empty").hidden = now.rows.length > 0;
  $("clients-frame").hidden = now.rows.length === 0;
  $("history").hidden = now.rows.length === 0;
}

const span = () => Number(document.querySelector("#span input:checked").value);

function showHistory() {
  const now = view.now;
  if (!now || now.rows.length === 0) return;
  // It begins where the looks do, if there are not that many yet.
  const seen = looks.length > 0 ? Math.ceil((view.t_ms - looks[0].t_ms) / 30_000) * 30 : 0;
  const seconds = Math.max(30, Math.min(span(), seen));
  const points = rates(looks, view.t_ms, seconds);
  const there = new Map(now.rows.filter(colourOf).map((row) => [row.id, colourOf(row)]));
  const used = points.at(-1) ? [...points.at(-1).cpus.values()].reduce((a, b) => a + b, 0) : 0;
  const label = `CPUs used by each client in the last ${seconds} s: ${used.toFixed(2)} of ${now.cpus} now`;
  stacked($("chart"), points, { seconds, cpus: now.cpus, colours: there, label });
  for (const entry of rows.values()) {
    const colour = colourOf(entry.row);
    if (colour) spark(entry.spark, points, { id: entry.row.id, seconds, cpus: now.cpus, colour });
  }
  const own = now.own_cpu_ns && now.uptime_ns ? `, divvy itself ${percent(now.own_cpu_ns / now.uptime_ns, 2)} of a CPU` : "";
  const policy = now.policy ? ` · ${now.policy}, quantum ${now.quantum_ns / 1e6} ms` : "";
  say($("status"), `${now.source}${policy} · ${now.cpus} CPU${now.cpus === 1 ? "" : "s"}, ${used.toFixed(2)} used${own}`);
}

function trouble(text) {
  $("banner").hidden = !text;
  say($("banner"), text ?? "");
}

async function look() {
  try {
    const told = await ask("GET", `/api/view?epoch=${view.epoch}&since=${view.next}`);
    if (told.epoch !== view.epoch) {
      looks = [];
      colours.clear();
      for (const entry of rows.values()) entry.element.remove();
      rows.clear();
    }
    // Two answers may come in another order.
    const last = looks.at(-1)?.seq ?? -1;
    looks.push(...told.looks.filter((look) => look.seq > last));
    looks.splice(0, Math.max(0, looks.length - 601));
    view = told;
  } catch (error) {
    trouble(error instanceof Refused ? error.message : "The server does not answer: divvy web has ended. Start it again, and open the address that it prints.");
    say($("status"), "");
    return;
  }
  if (view.now) {
    // That no divvyd runs is no trouble where runs of divvy share are seen, or nobody is.
    trouble(view.market ? view.why : null);
    showClients(view.now);
    showHistory();
    $("more").hidden = view.hidden === 0;
    say($("more"), `${view.hidden} more rows are not shown; divvy ls has them all.`);
  } else {
    trouble(view.why);
  }
  $("market").hidden = !view.market || !view.now;
}

// ---- The market

const amount = (give) => `${give.amount} ${give.resource}`;

const listed = new Map();
/** Lists things anew where they are others: a list that is being read, or whose button is being pressed, stays. */
function list(id, things, item, none) {
  const words = JSON.stringify([view.user, things]);
  if (listed.get(id) === words) return;
  listed.set(id, words);
  const items = things.map(item);
  $(id).replaceChildren(...(items.length > 0 ? items : [make("li", { class: "note" }, none)]));
}

function offerItem(offer, owner) {
  const item = make("li", {}, `${offer.party} gives ${amount(offer.gives)} for ${amount(offer.wants)} `);
  const path = "/v1/market/offers";
  if (owner === view.user) {
    const withdraw = () => change("DELETE", `${path}/${offer.id}`, undefined, () => `offer ${offer.id}: withdrawn`);
    item.append(make("button", { type: "button", onclick: withdraw, "aria-label": `Withdraw offer ${offer.id}` }, "Withdraw"));
  } else {
    const body = { gives: offer.wants, wants: offer.gives };
    const take = () => change("POST", path, body, offered);
    item.append(make("button", { type: "button", onclick: take, "aria-label": `Take offer ${offer.id}` }, "Take"));
  }
  return item;
}

function offered(told) {
  const made = told.result.exchange;
  return made ? `exchange ${made.id}: made with ${made.a === view.user ? made.b : made.a}` : `offer ${told.result.offer.id}: waits`;
}

let drawn = "";
async function lookAtMarket() {
  const resource = document.querySelector("#resource input:checked").value;
  const { graph, picture } = await ask("GET", `/api/market?resource=${resource}`);
  if (picture !== drawn) {
    const parsed = new DOMParser().parseFromString(picture, "image/svg+xml").documentElement;
    if (parsed.nodeName === "svg") $("graph").replaceChildren(document.adoptNode(parsed));
    drawn = picture;
  }
  const owners = new Map(graph.currencies.map((currency) => [currency.name, currency.owner]));
  list("offers", graph.offers, (offer) => offerItem(offer, owners.get(offer.party)), "Nobody offers anything.");
  list("exchanges", graph.exchanges, (x) => make("li", {}, `${x.a} gives ${amount(x.a_gives)}, ${x.b} gives ${amount(x.b_gives)}`), "There are none.");
  const tickets = graph.tickets.filter((ticket) => ticket.resource === resource);
  list("tickets", tickets, (ticket) => {
    const idle = ticket.active ? "" : " (idle)";
    return make("li", {}, `${ticket.holder} holds ${ticket.amount} ${ticket.kind} tickets of ${ticket.issuer}, worth ${ticket.value} base tickets${idle}`);
  }, "There are none.");
}

$("offer").addEventListener("submit", (event) => {
  event.preventDefault();
  const said = new FormData(event.target);
  const give = (name) => ({ resource: said.get(`${name}-of`), amount: Number(said.get(name)) });
  change("POST", "/v1/market/offers", { gives: give("give"), wants: give("want") }, offered);
});
$("span").addEventListener("change", showHistory);
$("resource").addEventListener("change", () => lookAtMarket().catch((error) => trouble(error.message)));
addEventListener("resize", showHistory);
// Another address in the same tab has another token.
addEventListener("hashchange", () => location.reload());

async function turn() {
  // Nobody sees a page that is hidden; the server keeps the history.
  if (!document.hidden) {
    await look();
    if (view.market && view.now && !$("banner").textContent) await lookAtMarket().catch((error) => trouble(error.message));
  }
  setTimeout(turn, 1000);
}

if (TOKEN) turn();
else {
  trouble("This address has no token: open the whole address that divvy web printed, with all behind its #.");
  say($("status"), "");
}
