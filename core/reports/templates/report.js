"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 150, HEIGHT = 30, ACROSS = 166, DOWN = 56, HUES = 12;

function make(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return element;
}
function html(name, text, parent) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}
function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}
function time(seconds) {
  return seconds >= 1 ? `${seconds.toFixed(2)} s` : seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(1)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}
function shortened(text, most) { return text.length > most ? `${text.slice(0, most - 1)}…` : text; }

// The drawing of a graph.
const svg = document.getElementById("graph");
const shown = { graph: null, nodes: new Map(), view: [0, 0, 1, 1], box: null };

function drawGraph(graph) {
  shown.graph = graph;
  shown.nodes = new Map();
  svg.replaceChildren();
  shown.box = svg.getBoundingClientRect();  // before it holds nodes, which to lay out takes time
  const edges = [], group = make("g", {});
  const at = new Map(graph.nodes.map((node) => [node[0], [node[7] * ACROSS, node[8] * DOWN]]));
  const hues = new Map(Object.keys(graph.kernels).filter((name) => graph.kernels[name][1]).map((name, number) => [name, number % HUES]));
  for (const node of graph.nodes) {
    const [x, y] = at.get(node[0]);
    for (const name of node[3]) {
      const from = at.get(name);
      if (from) edges.push(edge(from, [x, y]));
    }
    const hue = hues.get(node[6].find((name) => hues.has(name)));
    const box = make("g", { class: hue === undefined ? node[1] : `${node[1]} fused hue-${hue}`, transform: `translate(${x},${y})`, "data-node": node[0] });
    const label = node[1] === "operator" ? node[2].replace(/^aten\./, "").replace(/\.(default|Tensor)$/, "") : node[2] || node[0];
    box.append(make("rect", { x: -WIDTH / 2, y: -HEIGHT / 2, width: WIDTH, height: HEIGHT, rx: 5 }));
    box.append(make("text", { "text-anchor": "middle", y: 0 }, shortened(label, 22)));
    box.append(make("text", { "text-anchor": "middle", y: 11, style: "font-size:9px" }, shortened(node[4], 30)));
    shown.nodes.set(node[0], { node, box });
    group.append(box);
  }
  svg.append(make("path", { class: "edges", d: edges.join("") }), group);
  document.getElementById("graph-wrapper").textContent = graph.wrapper;
  const lines = document.getElementById("graph-lines");
  lines.replaceChildren(...graph.lines.map(([where, text], number) => {
    const item = html("li"), link = html("a", `${where}  ${text}`, item);
    link.href = "#graphs";
    link.dataset.line = number;
    link.onclick = (event) => { event.preventDefault(); chooseLine(number); };
    return item;
  }));
  drawSteps(graph.memory);
  fit();
  search();
}
function edge([fromX, fromY], [x, y]) {
  const top = fromY + HEIGHT / 2, bottom = y - HEIGHT / 2, half = Math.min((bottom - top) / 2, 60);
  return `M${fromX} ${top}C${fromX} ${top + half} ${x} ${bottom - half} ${x} ${bottom}`;
}
function look(view) {
  shown.view = view;
  svg.setAttribute("viewBox", view.join(" "));
}
function fit() {
  let left = 0, right = 0, bottom = 0;
  for (const node of shown.graph.nodes) {
    left = Math.min(left, node[7]); right = Math.max(right, node[7]); bottom = Math.max(bottom, node[8]);
  }
  // A large graph begins at its top, large enough to be read.
  const box = shown.box, tall = box.height / (box.width || 1) || 0.7;
  const across = (right - left) * ACROSS + WIDTH + 40, down = bottom * DOWN + HEIGHT + 40;
  const whole = Math.max(across, down / tall), wide = box.width || 800;
  const width = whole <= wide / 0.6 ? whole : Math.min(whole, wide / 0.8);
  const nodes = shown.graph.nodes, middle = nodes.reduce((sum, node) => sum + node[7], 0) / (nodes.length || 1);
  const begin = across <= width ? (right + left) / 2 * ACROSS : middle * ACROSS;
  look([begin - width / 2, -HEIGHT / 2 - 20, width, width * tall]);
}
function zoom(factor, x, y) {
  const [left, top, width, height] = shown.view;
  const atX = x === undefined ? 0.5 : x, atY = y === undefined ? 0.5 : y;
  look([left + width * atX * (1 - factor), top + height * atY * (1 - factor), width * factor, height * factor]);
}
function centre(name) {
  const { node } = shown.nodes.get(name);
  const width = Math.min(shown.view[2], 900), height = width * (shown.view[3] / shown.view[2]);
  look([node[7] * ACROSS - width / 2, node[8] * DOWN - height / 2, width, height]);
}
function mark(kind, names) {
  for (const { box } of shown.nodes.values()) box.classList.remove(kind);
  for (const name of names) shown.nodes.get(name)?.box.classList.add(kind);
}
function code(panel, kernels) {
  for (const name of kernels) {
    const [text, generated] = shown.graph.kernels[name];
    html("h3", generated ? `kernel ${name}` : `call of ${name}`, panel);
    if (text) html("pre", text, panel).className = "kernel";
  }
}
function near(names) {
  // The edges of these nodes, drawn over the others.
  svg.querySelector(".near")?.remove();
  const chosen = new Set(names), edges = [], at = (node) => [node[7] * ACROSS, node[8] * DOWN];
  for (const { node } of shown.nodes.values()) {
    for (const name of node[3]) {
      const from = shown.nodes.get(name);
      if (from && (chosen.has(name) || chosen.has(node[0]))) edges.push(edge(at(from.node), at(node)));
    }
  }
  svg.querySelector(".edges").after(make("path", { class: "near", d: edges.join("") }));
}
function chooseNode(name) {
  const { node } = shown.nodes.get(name);
  const same = node[6].flatMap((kernel) => shown.graph.kernels[kernel][2]);
  mark("chosen", [name, ...same]);
  near([name]);
  const panel = document.getElementById("node");
  panel.replaceChildren();
  html("h3", node[0] === node[2] ? node[0] : `${node[0]}: ${node[2]}`, panel);
  html("p", node[4], panel);
  if (node[5] >= 0) {
    const [where, text, within] = shown.graph.lines[node[5]];
    html("div", `${where} in ${within}`, panel).className = "at";
    html("pre", text, panel).className = "source";
  }
  if (node[3].length) html("p", `uses ${node[3].join(", ")}`, panel).className = "dim";
  if (!node[6].length && node[1] === "operator") html("p", "It takes no kernel: a view, or done while compiling.", panel);
  code(panel, node[6]);
}
function chooseKernel(name) {
  const nodes = shown.graph.kernels[name][2];
  mark("chosen", nodes);
  near(nodes);
  const panel = document.getElementById("node");
  panel.replaceChildren();
  code(panel, [name]);
  const lines = new Set(nodes.map((node) => shown.nodes.get(node)?.node[5]).filter((line) => line >= 0));
  for (const line of lines) html("pre", shown.graph.lines[line].slice(0, 2).join("  "), panel).className = "source";
  if (nodes.length) centre(nodes[0]);
}
function chooseLine(number) {
  const nodes = shown.graph.nodes.filter((node) => node[5] === number);
  mark("chosen", nodes.map((node) => node[0]));
  near(nodes.map((node) => node[0]));
  const panel = document.getElementById("node");
  panel.replaceChildren();
  html("pre", shown.graph.lines[number].slice(0, 2).join("  "), panel).className = "source";
  code(panel, new Set(nodes.flatMap((node) => node[6])));
  if (nodes.length) centre(nodes[0][0]);
}
function search() {
  const wanted = document.getElementById("graph-search").value.trim().toLowerCase();
  const found = wanted ? shown.graph.nodes.filter((node) => {
    const line = node[5] >= 0 ? shown.graph.lines[node[5]].join(" ") : "";
    return [node[0], node[2], node[4], line, ...node[6]].join(" ").toLowerCase().includes(wanted);
  }) : [];
  mark("found", found.map((node) => node[0]));
  document.getElementById("graph-found").textContent = wanted ? `${found.length} nodes` : "";
  return found;
}
function choice(number) {
  document.getElementById("graph-choice").value = String(number);
  drawGraph(data.graphs[number]);
}

if (svg) {
  document.getElementById("graph-choice").onchange = (event) => drawGraph(data.graphs[Number(event.target.value)]);
  document.getElementById("graph-search").oninput = () => { const found = search(); if (found.length) centre(found[0][0]); };
  document.getElementById("zoom-in").onclick = () => zoom(0.7);
  document.getElementById("zoom-out").onclick = () => zoom(1 / 0.7);
  document.getElementById("zoom-fit").onclick = fit;
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 0.85 : 1 / 0.85, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  }, { passive: false });
  const held = new Map();
  let moved = false;
  svg.addEventListener("pointerdown", (event) => { held.set(event.pointerId, event); moved = false; });
  svg.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) return;
    const scale = shown.view[2] / svg.clientWidth;
    if (held.size === 1) {
      const x = event.clientX - before.clientX, y = event.clientY - before.clientY;
      moved ||= Math.abs(x) + Math.abs(y) > 3;
      if (moved) look([shown.view[0] - x * scale, shown.view[1] - y * scale, shown.view[2], shown.view[3]]);
      else return;
    } else {
      const other = [...held.values()].find((one) => one.pointerId !== event.pointerId);
      const far = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      zoom(far(before) / far(event));
      moved = true;
    }
    held.set(event.pointerId, event);
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) svg.addEventListener(end, (event) => held.delete(event.pointerId));
  svg.addEventListener("click", (event) => {
    const box = event.target.closest("g[data-node]");
    if (box && !moved) chooseNode(box.dataset.node);
  });
  for (const link of document.querySelectorAll("a[data-graph]")) {
    link.onclick = (event) => {
      event.preventDefault();
      choice(Number(link.dataset.graph));
      if (link.dataset.kernel) chooseKernel(link.dataset.kernel);
      document.getElementById("graphs").scrollIntoView();
    };
  }
  choice(0);
}

// Charts.
function area(svg, points, second, caption) {
  const width = 1000, height = 180, most = Math.max(1, ...points.map((p) => p[1]), ...second.map((p) => p[1]));
  const last = Math.max(points.at(-1)?.[0] || 0, 1e-9);
  svg.setAttribute("viewBox", `0 0 ${width} ${height + 30}`);
  const x = (value) => (value / last) * (width - 20) + 10, y = (value) => height - (value / most) * (height - 20);
  const line = (list) => list.map((p) => `${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("L");
  svg.replaceChildren();
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(make("line", { class: "axis", x1: 10, x2: width - 10, y1: y(most * part), y2: y(most * part) }));
    if (part) svg.append(make("text", { class: "label", x: width - 12, y: y(most * part) + 12, "text-anchor": "end" }, bytes(Math.round(most * part))));
  }
  if (points.length) svg.append(make("path", { class: "area", d: `M${x(points[0][0])} ${height}L${line(points)}L${x(last)} ${height}Z` }));
  if (second.some((p) => p[1])) svg.append(make("path", { class: "second", d: `M${line(second)}` }));
  svg.append(make("text", { x: 10, y: 12 }, `at most ${bytes(most)}`), make("text", { x: 10, y: height + 18 }, caption));
}
function drawSteps(memory) {
  const points = memory.flatMap(([, count], step) => [[step, count], [step + 1, count]]);
  const caption = memory.length ? `${memory.length} steps` : "sizes vary, or nothing is allocated";
  area(document.getElementById("graph-memory"), points, [], caption);
}
area(document.getElementById("memory-chart"), data.memory.map((m) => [m[0], m[1]]), data.memory.map((m) => [m[0], m[2]]),
  `memory of the process, and of tensors on accelerators, over ${time(data.seconds)}`);

// The flame chart: what contains another bar stands above it; compilations first, then what ran.
const flame = document.getElementById("flame"), told = document.getElementById("flame-told").textContent;
const lanes = [];
for (const part of [["frame", "stage"], ["graph", "kernel"]]) {
  const first = lanes.length ? Math.max(...lanes.map((bar) => bar.row)) + 2 : 0, open = [];
  for (const span of data.spans.filter((s) => part.includes(s[1])).sort((a, b) => a[2] - b[2] || b[3] - a[3])) {
    while (open.length && open.at(-1)[2] + open.at(-1)[3] <= span[2] + 1e-9) open.pop();
    lanes.push({ span, row: first + open.length });
    open.push(span);
  }
}
let zoomed = null;
function hueOf(name) {
  // The same for a stage wherever it stands.
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.charCodeAt(0)) % 9973;
  return (sum * 137.5) % 360;
}
function drawFlame() {
  const width = 1000, high = 22, begin = zoomed ? zoomed[2] : 0;
  // Between compilations the program runs: what is drawn ends where the last bar does.
  const end = zoomed ? zoomed[2] + zoomed[3] : Math.max(1e-9, ...lanes.map(({ span }) => span[2] + span[3]));
  const start = zoomed ? begin : Math.min(end, ...lanes.map(({ span }) => span[2]));
  const scale = width / (end - start || 1);
  flame.replaceChildren();
  flame.setAttribute("viewBox", `0 0 ${width} ${(lanes.length ? Math.max(...lanes.map((bar) => bar.row)) + 2 : 1) * high}`);
  for (const { span, row } of lanes) {
    const from = Math.max(span[2], start), to = Math.min(span[2] + span[3], end), wide = (to - from) * scale;
    if (to < from || wide < 0.15) continue;
    const bar = make("rect", { style: `--hue:${hueOf(span[0])}`, class: span[1], x: (from - start) * scale, y: row * high, width: wide, height: high - 1 });
    bar.append(make("title", {}, `${span[0]}: ${time(span[3])}`));
    bar.onclick = () => { zoomed = zoomed === span ? null : span; drawFlame(); };
    flame.append(bar);
    if (wide > 40) flame.append(make("text", { x: (from - start) * scale + 3, y: row * high + 15 }, shortened(`${span[0]} ${time(span[3])}`, wide / 6)));
  }
  const below = (lanes.length ? Math.max(...lanes.map((bar) => bar.row)) + 1 : 0) * high;
  for (const part of lanes.length ? [0, 0.25, 0.5, 0.75, 1] : []) {
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    flame.append(make("text", { class: "label", x: part * width, y: below + 15, "text-anchor": anchor }, time(start + (end - start) * part)));
  }
  document.getElementById("flame-told").textContent = zoomed ? `${zoomed[0]}: ${time(zoomed[3])}` : lanes.length ? told : "Nothing was compiled.";
}
drawFlame();
