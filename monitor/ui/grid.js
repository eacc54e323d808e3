// Live charts: polls /api/series, appends new rows to Plotly charts it owns. Text goes in by textContent only.
const grids = new WeakMap();
const POINTS = 1000, ZOOM_POINTS = 1200, KEEP = 4000;
const EVERY = 1000, PAUSE = 600, HIDDEN = 10000, SLOWEST = 30000;

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".rs-grid");
  const g = grids.get(root) ?? { root, epoch: "", last: -1, fails: 0, whole: {}, detail: null, marks: [], repeated: [], range: asked(), charts: [] };
  const before = g.data;
  g.data = data;
  if (!before || JSON.stringify(before.panels) !== JSON.stringify(data.panels)) build(g);
  if (!before) {
    grids.set(root, g);
    g.heard = Date.now();
    g.resize = new ResizeObserver(() => g.charts.forEach((c) => c.drawn && c.div.offsetWidth && window.Plotly.Plots.resize(c.div)));
    g.resize.observe(root);
    poll(g);
  } else if (before.token !== data.token) { clearTimeout(g.timer); poll(g); }
  return () => {
    g.closed = true;
    clearTimeout(g.timer);
    g.resize.disconnect();
    g.view.disconnect();
    grids.delete(root);
    g.charts.forEach((c) => c.drawn && window.Plotly.purge(c.div));
  };
}

// the server holds the answer until there is news, for a second at most; news is drawn and left alone for a moment
async function poll(g) {
  const asked = Date.now();
  let pause = EVERY;
  try {
    const wait = document.hidden ? 0 : EVERY;
    const [body] = await Promise.all([ask(g, { epoch: g.epoch, since: g.last, n: POINTS, wait }), library(g.data.version)]);
    if (g.closed) return;
    take(g, body);
    pause = body.series ? PAUSE : Math.max(50, EVERY - (Date.now() - asked));
    g.fails = 0;
    g.heard = Date.now();
    g.silent = body.stale;
  } catch (error) {
    g.fails += 1;
    g.error = error.message;
  }
  if (g.closed) return;
  chip(g);
  clearTimeout(g.timer);
  g.timer = setTimeout(poll, document.hidden ? HIDDEN : g.fails ? Math.min(SLOWEST, EVERY * 2 ** g.fails) : pause, g);
}

async function ask(g, values) {
  const names = [...new Set(g.data.panels.flatMap((p) => p.lines.map((l) => l.name)))];
  const query = new URLSearchParams({ run: g.data.run, slice: g.data.slice, metrics: names.join(","), ...values });
  const answer = await fetch(`api/series?${query}`, { headers: { "x-regimescope-token": g.data.token }, signal: AbortSignal.timeout(15000) });
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer.json();
}

function library(version) {
  window.regimescopePlotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `api/plotly.min.js?v=${version}`;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { window.regimescopePlotly = undefined; script.remove(); reject(new Error("the chart library did not load")); };
    document.head.append(script);
  });
  return window.regimescopePlotly;
}

function take(g, body) {
  const dark = isDark(g.root), recolour = g.dark !== dark, anew = body.epoch !== g.epoch;
  Object.assign(g, { dark, epoch: body.epoch, last: body.last });
  if (body.series && anew) {
    Object.assign(g, { whole: body.series, detail: null, marks: body.marks, repeated: body.repeated });
    g.charts.forEach((c) => draw(g, c));
    if (g.range) zoomed(g);
  } else if (body.series) {
    const same = JSON.stringify([body.marks, body.repeated]) === JSON.stringify([g.marks, g.repeated]);
    Object.assign(g, { marks: body.marks, repeated: body.repeated });
    for (const [name, more] of Object.entries(body.series)) append(g.whole[name], more);
    g.charts.forEach((c) => {
      if (c.unseen && c.drawn) c.behind = true;                                     // drawn when it comes into view
      else if (same && !recolour && c.drawn) extend(c, body.series);
      else draw(g, c);
    });
    if (Object.values(g.whole).some((s) => s.x.length > KEEP)) g.epoch = "";        // too long: the next poll brings it thinned
  } else if (recolour) g.charts.forEach((c) => draw(g, c));
  g.charts.forEach((c) => caption(g, c));
}

function append(whole, more) {
  whole.x.push(...more.x);
  whole.y.push(...more.y);
  if (more.bad) whole.bad = [...(whole.bad ?? []), ...more.bad];
}

// the coarse series outside the zoomed range, the fine one inside
function merged(g, name) {
  const all = g.whole[name] ?? { x: [], y: [] }, fine = g.detail?.series[name];
  if (!fine) return { x: all.x.slice(), y: all.y.slice(), bad: (all.bad ?? []).slice() };
  const { x0, x1 } = g.detail, keep = all.x.map((x, i) => [x, all.y[i]]).filter(([x]) => x < x0 || x > x1);
  const points = [...keep.filter(([x]) => x < x0), ...fine.x.map((x, i) => [x, fine.y[i]]), ...keep.filter(([x]) => x > x1)];
  const bad = [...(all.bad ?? []).filter((x) => x < x0 || x > x1), ...(fine.bad ?? [])];
  return { x: points.map((p) => p[0]), y: points.map((p) => p[1]), bad };
}

function build(g) {
  const box = g.root.querySelector(".rs-panels");
  g.charts.forEach((c) => c.drawn && window.Plotly.purge(c.div));
  g.charts = g.data.panels.map((panel) => {
    const c = { panel, box: node("section", "rs-panel"), head: node("div", "rs-head"), div: node("div", "rs-chart"), empty: node("p", "rs-empty") };
    for (const part of ["title", "unit", "thin", "now"]) c.head.append((c[part] = node("span", `rs-${part}`)));
    c.title.textContent = panel.title;
    c.unit.textContent = panel.unit === "%" ? "" : panel.unit;
    c.empty.textContent = "Loading";
    c.empty.style.height = c.div.style.height = `${g.data.height}px`;
    c.div.hidden = true;
    c.div.setAttribute("role", "img");
    c.div.setAttribute("aria-label", panel.title);
    c.box.append(c.head, c.div, c.empty);
    return c;
  });
  g.view?.disconnect();
  g.view = new IntersectionObserver((seen) => seen.forEach((e) => inView(g, e)), { rootMargin: "60px" });
  g.charts.forEach((c) => g.view.observe(c.box));
  box.replaceChildren(...g.charts.map((c) => c.box));
  Object.assign(g, { epoch: "", last: -1 });
}

function inView(g, entry) {
  const c = g.charts.find((one) => one.box === entry.target);
  if (!c) return;
  c.unseen = !entry.isIntersecting;
  if (!c.unseen && c.behind) draw(g, c);
}

function node(tag, name) {
  const made = document.createElement(tag);
  made.className = name;
  return made;
}

function draw(g, c) {
  const names = c.panel.lines.map((l) => l.name), any = names.some((n) => g.whole[n]?.x.length);
  c.div.hidden = !any;
  c.empty.hidden = any;
  c.empty.textContent = `No values yet. This panel shows ${names.join(", ")}.`;
  c.behind = false;
  if (!any) return;
  window.Plotly.react(c.div, traces(g, c.panel), layout(g, c.panel), CONFIG);
  if (c.drawn) return;
  c.drawn = true;
  c.div.on("plotly_relayout", (e) => {
    const low = e["xaxis.range[0]"] ?? e["xaxis.range"]?.[0], high = e["xaxis.range[1]"] ?? e["xaxis.range"]?.[1];
    if (e["xaxis.autorange"]) setRange(g, null);
    else if (low !== undefined) setRange(g, [low, high]);
  });
}

const CONFIG = { displaylogo: false, responsive: false, modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]] };

function setRange(g, range) {
  if (JSON.stringify(range) === JSON.stringify(g.range)) return;
  g.range = range;
  remember(range);
  for (const c of g.charts) {
    const axis = c.drawn && c.div._fullLayout.xaxis;
    if (!axis || (range ? !axis.autorange && axis.range[0] === range[0] && axis.range[1] === range[1] : axis.autorange)) continue;
    window.Plotly.relayout(c.div, range ? { "xaxis.range": [...range] } : { "xaxis.autorange": true });
  }
  clearTimeout(g.asking);
  if (range) g.asking = setTimeout(zoomed, 250, g);
  else if (g.detail) { g.detail = null; g.charts.forEach((c) => draw(g, c)); }
}

// the zoom lives in the address: a link or a reload shows the same steps
function asked() {
  const at = new URLSearchParams(location.search), range = ["x0", "x1"].map((key) => parseFloat(at.get(key)));
  return range[0] < range[1] && range.every(Number.isFinite) ? range : null;
}

function remember(range) {
  const to = new URL(location.href);
  ["x0", "x1"].forEach((key, i) => (range ? to.searchParams.set(key, Number(range[i]).toFixed(1)) : to.searchParams.delete(key)));
  history.replaceState(history.state, "", to);
}

// a thinned series is asked for again, finer, over what is shown
async function zoomed(g) {
  if (!Object.values(g.whole).some((s) => s.thinned)) return;
  const range = g.range, epoch = g.epoch, x0 = Math.max(0, Math.floor(range[0])), x1 = Math.ceil(range[1]);
  const body = await ask(g, { epoch: "", since: -1, x0, x1, n: ZOOM_POINTS }).catch(() => null);
  if (!body || g.closed || g.range !== range || g.epoch !== epoch || body.epoch !== epoch) return;
  g.detail = { x0, x1: Math.min(x1, g.last), series: body.series };
  g.charts.forEach((c) => draw(g, c));
}

function extend(c, series) {
  const x = [], y = [], which = [];
  c.panel.lines.forEach((line, i) => {
    const more = series[line.name];
    if (!more.x.length) return;
    x.push(more.x); y.push(more.y); which.push(i);
  });
  const bad = c.panel.lines.flatMap((l) => (series[l.name].bad ?? []).map((s) => [s, l.label]));
  if (bad.length) {
    const at = c.panel.lines.length;
    window.Plotly.extendTraces(c.div, { x: [bad.map((b) => b[0])], y: [bad.map(() => 0.04)], text: [bad.map((b) => badText(b[1]))] }, [at], KEEP);
  }
  if (which.length) window.Plotly.extendTraces(c.div, { x, y }, which, KEEP);
}

const badText = (label) => `${safe(label)}: not a finite number`;

function traces(g, panel) {
  const colours = g.data.palette[g.dark ? "dark" : "light"], bad = [], made = panel.lines.map((line, i) => {
    const s = merged(g, line.name), colour = colours[line.color] ?? colours.ink;
    s.bad.forEach((step) => bad.push([step, line.label]));
    const t = { type: "scatter", name: safe(line.label), x: s.x, y: s.y, line: { color: colour, width: 1.8, dash: line.dash }, mode: s.x.length < 25 ? "lines+markers" : "lines" };
    t.marker = { size: 5 };
    if (panel.kind === "band" && i < 2) Object.assign(t.line, { width: 0.7 });
    if (panel.kind === "band" && i === 1) Object.assign(t, { fill: "tonexty", fillcolor: `${colour}2E` });
    if (panel.kind === "stack") Object.assign(t, { stackgroup: "all", fillcolor: colour, mode: "lines", line: { width: 0.5, color: colours.page } });
    return t;
  });
  const over = { type: "scatter", mode: "markers", yaxis: "y2", showlegend: false, hovertemplate: "%{text}<extra></extra>", cliponaxis: false };
  made.push({ ...over, x: bad.map((b) => b[0]), y: bad.map(() => 0.04), text: bad.map((b) => badText(b[1])), marker: { symbol: "x", size: 8, color: colours.critical } });
  const shape = { onset: "triangle-down", bounds: "diamond", checkpoint: "triangle-up" };
  made.push({ ...over, x: g.marks.map((m) => m.step), y: g.marks.map((m) => (m.kind === "checkpoint" ? 0 : 1)), text: g.marks.map((m) => safe(m.label)),
    marker: { symbol: g.marks.map((m) => shape[m.kind]), size: g.marks.map((m) => (m.kind === "checkpoint" ? 5 : 9)), color: g.marks.map((m) => markColour(m, colours)), line: { width: 0 }, opacity: 1 } });
  return made;
}

function markColour(m, colours) {
  if (m.kind === "onset") return m.severity === "critical" ? colours.critical : colours.watch;
  return m.kind === "bounds" ? colours.ink : colours.muted;
}

function layout(g, panel) {
  const colours = g.data.palette[g.dark ? "dark" : "light"], style = getComputedStyle(g.root), percent = panel.unit === "%";
  const axis = { gridcolor: colours.rule, linecolor: colours.rule, zeroline: false, tickfont: { size: 11 }, exponentformat: "SI", automargin: true };
  const xaxis = { ...axis, showgrid: false, ticks: "outside", ticklen: 4, tickcolor: colours.rule, hoverformat: "d", ...(g.range ? { range: [...g.range] } : { autorange: true }) };
  if (g.last < 8) xaxis.dtick = 1;
  const yaxis = { ...axis, nticks: 5, tickformat: percent ? ".4~%" : "", hoverformat: percent ? ".2~%" : ".4~g" };
  if (panel.y_range) yaxis.range = [...panel.y_range];
  const line = (m) => ({ type: "line", x0: m.step, x1: m.step, y0: 0, y1: 1, yref: "paper", layer: "below", line: { color: markColour(m, colours), width: 1.2, dash: m.kind === "bounds" ? "dash" : "solid" } });
  const shapes = g.marks.filter((m) => m.kind !== "checkpoint").map(line);
  for (const [x0, x1] of g.repeated) shapes.push({ type: "rect", x0, x1, y0: 0, y1: 1, yref: "paper", layer: "below", line: { width: 0 }, fillcolor: colours.stale, opacity: 0.13 });
  if (panel.reference !== null) shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: panel.reference, y1: panel.reference, line: { color: colours.muted, width: 1, dash: "dot" } });
  return {
    xaxis, yaxis, shapes, uirevision: g.data.run, hovermode: "x unified", dragmode: "zoom", height: g.data.height, margin: { l: 40, r: 10, t: 12, b: 24 },
    yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    showlegend: panel.lines.length > 1, legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", font: { size: 11 }, itemwidth: 30 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: style.getPropertyValue("--st-font"), color: colours.ink, size: 12 },
    hoverlabel: { bgcolor: colours.page, bordercolor: colours.rule, font: { color: colours.ink, size: 12 } },
  };
}

function caption(g, c) {
  const found = c.panel.lines.filter((l) => g.whole[l.name]?.x.length), s = found.length && g.whole[found[0].name];
  c.thin.textContent = found.some((l) => g.whole[l.name].thinned) ? `min/max of ${(g.last + 1).toLocaleString("en")} steps; spikes kept` : "";
  if (!s) return;
  const value = s.y.at(-1), text = value === null ? "not finite" : c.panel.unit === "%" ? `${(100 * value).toFixed(1)} %` : String(Number(value.toPrecision(4)));
  c.now.textContent = c.panel.kind === "line" ? text : "";
  c.div.setAttribute("aria-label", `${c.panel.title}: ${found[0].label} ${text} at step ${s.x.at(-1)}`);
}

function chip(g) {
  const box = g.root.querySelector(".rs-chip"), lost = g.fails > 1;
  const since = lost ? (Date.now() - g.heard) / 1000 : g.silent;
  box.hidden = !since;
  box.textContent = lost ? `No answer from the server for ${span(since)}: ${g.error}` : since ? `Last sign of life of the run ${span(since)} ago` : "";
  g.root.classList.toggle("rs-stale", Boolean(since));
}

const span = (s) => (s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`);
const safe = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

function isDark(root) {
  const [r, g, b] = getComputedStyle(root).outlineColor.match(/[\d.]+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}
