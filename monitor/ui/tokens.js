// One response token by token. Built from parallel arrays (tokens.py), a window of them at a time; hover, clicks and colours never go through
// Python. Text goes in by textContent only.
const viewers = new WeakMap();
const WINDOW = 8192;
const RATIO = [-1, -0.5, -0.1, 0.1, 0.5, 1], MASS = [0, 0.1, 0.5, 1, 2];
const SIDES = ["", "high", "low"];

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".rs-tokens");
  const v = viewers.get(root) ?? { root };
  if (!viewers.has(root)) { viewers.set(root, v); wire(v); }
  if (v.rev !== data.rev) load(v, data);
  else if (data.tok !== null && data.tok !== v.asked && data.tok !== v.sel) choose(v, data.tok);
  v.asked = data.tok;
  return () => {
    window.navigation?.removeEventListener("currententrychange", v.keep);
    viewers.delete(root);
  };
}

const one = (v, name) => v.root.querySelector(name);
const made = (tag, name, text) => { const el = document.createElement(tag); el.className = name; el.textContent = text ?? ""; return el; };
const group = (x) => x.toLocaleString("en");
const value = (list, i) => { const x = list?.[i]; return typeof x === "string" ? Number(x) : x ?? null; };

function wire(v) {
  v.keep = () => keep(v);
  window.navigation?.addEventListener("currententrychange", v.keep);
  const text = (v.box = one(v, ".rs-text"));
  text.addEventListener("mouseover", (e) => e.target.at !== undefined && inspect(v, e.target.at));
  text.addEventListener("mouseleave", () => inspect(v, v.sel));
  text.addEventListener("click", (e) => e.target.at !== undefined && choose(v, e.target.at, true));
  text.addEventListener("keydown", (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by || v.n === 0) return;
    e.preventDefault();
    choose(v, Math.min(v.n - 1, Math.max(0, (v.sel ?? -1) + by)));
  });
  one(v, ".rs-map").addEventListener("click", (e) => {
    const box = e.currentTarget.getBoundingClientRect();
    if (v.n) choose(v, Math.min(v.n - 1, Math.floor((v.n * (e.clientX - box.left)) / box.width)));
  });
}

function load(v, data) {
  Object.assign(v, { d: data, rev: data.rev, n: data.count, sel: null, from: 0, told: { ...data.place, ...v.color } });
  for (const [name, colour] of Object.entries(data.scale)) v.root.style.setProperty(`--rs-${name}`, colour);
  const finite = (data.entropy ?? []).map((_, i) => value(data.entropy, i)).filter(Number.isFinite);
  v.top = finite.reduce((a, b) => Math.max(a, b), 0);
  v.can = { ratio: data.old && data.new, entropy: data.entropy, regime: data.bucket, mass: data.weight && data.advantage !== null, repetition: data.repeated };
  v.mode = [v.color?.color, data.color].find((m) => v.can[m]) ?? Object.keys(data.words.modes).find((m) => v.can[m]);
  bar(v);
  legend(v);
  rows(v);
  const at = data.tok !== null && data.tok < v.n ? data.tok : null;
  v.from = at === null ? 0 : Math.floor(at / WINDOW) * WINDOW;
  draw(v);
  if (at !== null) return choose(v, at);
  inspect(v, null);
  tell(v, true);
}

function bar(v) {
  const box = one(v, ".rs-bar"), d = v.d, clipped = d.clipped, why = d.words.why;
  const button = (text, action, off) => { const b = made("button", "", text); b.type = "button"; b.disabled = Boolean(off); b.title = off ?? ""; b.addEventListener("click", action); return b; };
  v.modes = Object.entries(d.words.modes).map(([mode, name]) => {
    const b = button(name, () => { v.mode = mode; v.color = { color: mode }; recolour(v); remember(v, "color", mode); }, v.can[mode] ? null : why.array);
    b.mode = mode;
    return b;
  });
  const next = button(d.clip ? `Next clipped (${group(clipped)})` : "Next clipped", () => nextClipped(v), d.clip ? (clipped ? null : why.none) : why.clip);
  const parts = [...v.modes, made("span", "rs-gap")];
  if (d.loop) parts.push(button(`Loop starts at token ${group(d.loop.start)}`, () => choose(v, d.loop.start)));
  parts.push(next);
  if (v.n > WINDOW) {
    v.range = made("span", "rs-range");
    const go = (by) => { v.from = Math.min(Math.floor((v.n - 1) / WINDOW) * WINDOW, Math.max(0, v.from + by * WINDOW)); draw(v); v.box.scrollTop = 0; };
    parts.push(button("Earlier", () => go(-1)), v.range, button("Later", () => go(1)));
  }
  box.replaceChildren(...parts);
}

function legend(v) {
  for (const b of v.modes) b.setAttribute("aria-pressed", String(b.mode === v.mode));
  const swatch = ([name, text]) => made("span", `rs-t ${name}`, text), n = v.top, short = (x) => Number(x.toPrecision(2));
  const said = v.d.words[v.mode] ?? [0, 1, 2, 3, 4, 5, 6].map((k) => `${short((n * k) / 7)}${k === 6 ? " nat" : ""}`);
  const letter = { ratio: "r", entropy: "e", regime: "b", repetition: "g" }[v.mode] ?? (v.d.advantage < 0 ? "n" : "p");
  const sides = v.d.clip ? [["high", "clipped high"], ["low", "clipped low"]] : [];
  one(v, ".rs-legend").replaceChildren(...[...(v.mode ? said.map((text, k) => [letter + k, text]) : []), ...sides].map(swatch));
}

const inLoop = (d, i) => d.loop && i >= d.loop.start && i < d.loop.end;

function colour(v, i) {
  const d = v.d, mode = v.mode;
  if (mode === "regime") return d.bucket[i] === "-" ? "" : `b${d.bucket[i]}`;
  if (mode === "repetition") return inLoop(d, i) ? "g1" : d.repeated[i] === "1" ? "g0" : "";
  const x = mode === "ratio" ? logRatio(d, i) : mode === "entropy" ? value(d.entropy, i) : mode === "mass" ? mass(d, i) : null;
  if (x === null) return "";
  if (Number.isNaN(x)) return "bad";
  if (mode === "ratio") return `r${RATIO.filter((cut) => x > cut).length}`;
  if (mode === "entropy") return `e${v.top > 0 ? Math.min(6, Math.max(0, Math.floor((7 * x) / v.top))) : 0}`;
  return `${x < 0 ? "n" : "p"}${MASS.filter((cut) => Math.abs(x) > cut).length}`;
}

function logRatio(d, i) {
  const old = value(d.old, i), now = value(d.new, i);
  return old === null || now === null ? null : now - old;
}

function mass(d, i) {
  const w = value(d.weight, i);
  return w === null || d.advantage === null ? null : w * Number(d.advantage);
}

const side = (d, i) => SIDES[d.clip ? Number(d.clip[i]) : 0];
const name = (v, i) => `rs-t ${colour(v, i)} ${side(v.d, i)}${i === v.sel ? " sel" : ""}${v.d.texts?.[i] ? "" : " faint"}`;

const HIDDEN = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;
const GLYPHS = { "\n": "⏎\n", "\r": "␍", "\t": "⇥\t" };
const shown = (text) => text.replace(HIDDEN, (c) => GLYPHS[c] ?? `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);

function label(v, i) {
  const text = v.d.texts?.[i];
  if (text) return shown(text);
  if (text === "") return "∅";
  return v.d.ids?.[i] == null ? "□ " : v.d.texts ? `⟨${v.d.ids[i]}⟩` : `${v.d.ids[i]} `;
}

function draw(v) {
  const end = Math.min(v.n, v.from + WINDOW), part = document.createDocumentFragment();
  v.spans = [];
  for (let i = v.from; i < end; i += 1) {
    if (v.d.loop?.start === i) part.append(made("span", "rs-flag", "loop starts here"));
    const span = document.createElement("span");
    span.className = name(v, i);
    span.textContent = label(v, i);
    span.at = i;
    v.spans.push(span);
    part.append(span);
  }
  v.box.replaceChildren(part);
  if (v.range) v.range.textContent = `tokens ${group(v.from)} to ${group(end - 1)} of ${group(v.n)}`;
  map(v);
}

function recolour(v) {
  legend(v);
  v.spans.forEach((span) => { span.className = name(v, span.at); });
}

function map(v) {
  const svg = one(v, ".rs-map"), d = v.d, width = d.high.length, scale = width / v.n, parts = [];
  const rect = (cls, x, w, y, height) => {
    const el = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    Object.entries({ class: cls, x, y, width: w, height }).forEach((pair) => el.setAttribute(...pair));
    parts.push(el);
  };
  if (d.loop) rect("loop", d.loop.start * scale, (d.loop.end - d.loop.start) * scale, 0, 1);
  d.high.forEach((share, x) => share && rect("high", x, 1, 1 - share, share));
  d.low.forEach((share, x) => share && rect("low", x, 1, 0, share));
  if (v.n > WINDOW) rect("here", v.from * scale, Math.min(WINDOW, v.n - v.from) * scale, 0, 1);
  svg.setAttribute("viewBox", `0 0 ${width} 1`);
  svg.setAttribute("aria-label", d.map);
  svg.replaceChildren(...parts);
}

function choose(v, i, stay) {
  const before = v.sel;
  v.sel = i;
  if (i < v.from || i >= v.from + WINDOW) { v.from = Math.floor(i / WINDOW) * WINDOW; draw(v); }
  for (const at of [before, i]) if (v.spans[at - v.from] && at !== null) v.spans[at - v.from].className = name(v, at);
  const box = v.box, span = v.spans[i - v.from];
  if (!stay && (span.offsetTop < box.scrollTop || span.offsetTop + span.offsetHeight > box.scrollTop + box.clientHeight)) box.scrollTop = span.offsetTop - box.clientHeight / 2;
  inspect(v, i);
  remember(v, "tok", i);
}

function nextClipped(v) {
  for (let k = 1; k <= v.n; k += 1) {
    const i = ((v.sel ?? -1) + k) % v.n;
    if (v.d.clip[i] !== "0") return choose(v, i);
  }
}

// the address says what is shown, so that a copied link opens it
function remember(v, key, what) {
  v.told[key] = what;
  tell(v);
}

// a link to the page one is on does not change the address in Streamlit 1.67: done here
function tell(v, anew) {
  const url = new URL(window.location.href);
  if (anew) url.searchParams.delete("tok");
  Object.entries(v.told).forEach((pair) => url.searchParams.set(...pair));
  if (url.href !== window.location.href) window.history.replaceState(window.history.state, "", url);
}

// a filter writes the address as Python knows it, without what was said here
function keep(v) {
  const at = new URLSearchParams(window.location.search);
  if (at.get("step") === v.told.step && at.get("id") === v.told.id) tell(v);
}

function rows(v) {
  v.fields = v.d.words.fields.map((title) => [made("dt", "", title), made("dd", title === "text" ? "rs-said" : "")]);
  one(v, ".rs-look").replaceChildren(...v.fields.flat());
}

function inspect(v, i) {
  const d = v.d, none = "–";
  const show = (x) => (x === null || x === undefined ? none : Number.isNaN(x) ? "NaN" : Number.isFinite(x) ? (x && Math.abs(x) < 1e-3 ? x.toExponential(2) : Number(x.toPrecision(4))) : x > 0 ? "∞" : "-∞");
  if (i === null) return v.fields.forEach(([, dd], k) => { dd.textContent = k ? none : "point at one, or click"; });
  const log = logRatio(d, i), cut = side(d, i), text = d.texts?.[i];
  const bucket = d.bucket && d.bucket[i] !== "-" ? d.words.regime[d.bucket[i]] : none;
  const said = [
    `${group(i)} of ${group(v.n)}`, text === "" ? "empty" : shown(text ?? none), d.ids?.[i] ?? none,
    show(value(d.old, i)), show(value(d.new, i)), show(log), show(log === null ? null : Math.exp(log)), show(value(d.weight, i)), d.bounds,
    d.clip ? cut || "no" : none, show(mass(d, i)), show(value(d.entropy, i)), bucket,
    d.repeated ? (inLoop(d, i) ? "yes, in the loop" : d.repeated[i] === "1" ? "yes" : "no") : none,
  ];
  said.forEach((what, k) => { v.fields[k][1].textContent = what; });
}
