// Draws the numbers of the page. Names are user input: they are set as text, and escaped for Plotly,
// which reads a little HTML in its labels.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("numbers").textContent);
  const weights = data.weights.weights ?? [];
  const theta = data.hyperparameters.labels ?? [];
  const paths = data.paths.paths ?? [];
  const hidden = new Set();
  const state = { weight: 0, theta: 0, path: 0, step: 0 };

  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const MARKERS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"];
  const SIGNS = ["●", "■", "▲", "◆", "▼", "✚"];
  const SVG_DASHES = ["", "6 3", "2 2", "6 2 2 2", "10 4", "10 3 2 3"];
  const HEAD = 40; // pixels above the first row of the forest
  const LONGEST = 30; // letters of a name on an axis
  const MOST_BARS = 30;
  const row = Math.max(26, 5 * data.methods.length + 10);

  const get = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const methodColour = (i) => colour(`--m${i % 6}`);
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);
  const known = (value) => value !== null && value !== undefined;
  const visible = () => data.methods.map((method, i) => ({ ...method, i })).filter((m) => !hidden.has(m.name));
  const wide = matchMedia("(min-width: 62rem) and (hover: hover)");

  function number(value, digits = 3) {
    if (!known(value)) return "—";
    const size = Math.abs(Number(value.toPrecision(digits)));
    const decimals = size ? Math.max(0, digits - 1 - Math.floor(Math.log10(size))) : 0;
    const text = size && (size < 1e-4 || size >= 1e5) ? value.toExponential(digits - 1) : value.toFixed(decimals);
    return text.replace("-", "−");
  }

  function element(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  function options(select, names, chosen = 0) {
    select.replaceChildren(...names.map((name, i) => element("option", name, { value: i })));
    select.value = String(chosen);
  }

  // ------------------------------------------------------------------------------- plots

  function layout(height, x, y, more = {}) {
    const axis = { gridcolor: colour("--grid"), zeroline: false, linecolor: colour("--soft"), automargin: true };
    return {
      height, margin: { l: 48, r: 8, t: 8, b: 40 }, showlegend: false, hovermode: "closest",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: wide.matches ? "zoom" : false,
      font: { color: colour("--ink"), size: 12, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: colour("--panel"), bordercolor: colour("--rule"), font: { color: colour("--ink") } },
      xaxis: { ...axis, ...x }, yaxis: { ...axis, ...y }, ...more,
    };
  }

  function draw(id, traces, shape, label) {
    get(id).setAttribute("aria-label", label);
    return Plotly.react(get(id), traces, shape, { responsive: true, displayModeBar: false, doubleClick: "reset" });
  }

  const line = (axis, value) => ({
    type: "line", layer: "below", line: { color: colour("--soft"), width: 1, dash: "dash" },
    [`${axis}0`]: value, [`${axis}1`]: value,
    [`${axis === "x" ? "y" : "x"}0`]: 0, [`${axis === "x" ? "y" : "x"}1`]: 1, [`${axis === "x" ? "y" : "x"}ref`]: "paper",
  });

  function forest() {
    const shown = visible();
    const step = 0.72 / Math.max(shown.length, 1);
    const traces = shown.map(({ name, i }, k) => {
      const s = data.weights.summaries[name];
      const rows = weights.map((_, j) => j).filter((j) => known(s.mean[j]));
      return {
        name: escaped(name), mode: "markers", x: rows.map((j) => s.mean[j]),
        y: rows.map((j) => j - 0.36 + step * (k + 0.5)), customdata: rows,
        marker: { color: methodColour(i), symbol: MARKERS[i % 6], size: 7 },
        error_x: {
          type: "data", symmetric: false, thickness: 1.6, width: 0, color: methodColour(i),
          array: rows.map((j) => s.upper[j] - s.mean[j]), arrayminus: rows.map((j) => s.mean[j] - s.lower[j]),
        },
        text: rows.map((j) => `${escaped(weights[j])}<br>${number(s.mean[j])} (${number(s.lower[j])} to ${number(s.upper[j])})`),
        hovertemplate: "%{text}<extra>%{fullData.name}</extra>",
      };
    });
    const band = { type: "rect", layer: "below", xref: "paper", x0: 0, x1: 1, y0: state.weight - 0.5, y1: state.weight + 0.5, fillcolor: colour("--band"), line: { width: 0 } };
    const shape = layout(weights.length * row + HEAD + 4, { side: "top", fixedrange: true, automargin: false }, { range: [weights.length - 0.5, -0.5], visible: false, fixedrange: true }, {
      margin: { l: 6, r: 10, t: HEAD, b: 4 }, shapes: [band, line("x", 0)], dragmode: false, hoverdistance: row,
    });
    draw("forest", traces, shape, `Means and 89 % intervals of ${weights.length} weights under ${shown.map((m) => m.name).join(", ")}`);
  }

  function densities() {
    const j = state.weight;
    const traces = visible().filter(({ name }) => known(data.weights.densities[name][j])).map(({ name, i }) => ({
      name: escaped(name), mode: "lines", ...data.weights.densities[name][j],
      line: { color: methodColour(i), dash: DASHES[i % 6], width: 2 }, hovertemplate: "%{x:.3g}<extra>%{fullData.name}</extra>",
    }));
    const shape = layout(230, { title: { text: escaped(short(weights[j])), font: { size: 12 } } }, { rangemode: "tozero", showticklabels: false, fixedrange: true }, { shapes: [line("x", 0)] });
    draw("densities", traces, shape, `Posterior densities of ${weights[j]}`);
  }

  function ranks() {
    const names = Object.keys(data.weights.ranks).filter((name) => data.weights.ranks[name]);
    const name = names[Number(get("ranks-of").value) || 0];
    const found = name && data.weights.ranks[name];
    const chains = found?.chains[state.weight];
    get("ranks").hidden = !chains;
    get("ranks-choice").hidden = names.length < 1;
    get("ranks-caption").textContent = chains
      ? `Difference of the ranks of each chain from uniform; shaded: the envelope for ${found.draws} draws a chain${found.step > 1 ? ` (one draw in ${found.step} is used)` : ""}.`
      : names.length ? "This weight does not move under this method." : "No method of this report has Markov chains: all draws are independent.";
    if (!chains) return;
    const edge = { mode: "lines", x: found.x, line: { width: 0 }, hoverinfo: "skip" };
    const traces = [{ ...edge, y: found.lower }, { ...edge, y: found.upper, fill: "tonexty", fillcolor: colour("--band") }];
    chains.forEach((chain, c) => traces.push({
      mode: "lines", ...chain, line: { color: methodColour(c + 1), dash: DASHES[c % 6], width: 1.6 },
      name: `chain ${c}`, hovertemplate: "%{y:.3f}<extra>%{fullData.name}</extra>",
    }));
    draw("ranks", traces, layout(210, { title: { text: "rank / number of draws", font: { size: 12 } }, range: [0, 1], fixedrange: true }, { fixedrange: true }), `Ranks of the chains of ${name} for ${weights[state.weight]}`);
  }

  function influence() {
    const found = data.weights.influence;
    const shift = found.shift?.[state.weight];
    get("influence").hidden = !shift;
    if (!shift) {
      get("influence-caption").textContent = found.why ?? `This weight does not move under ${found.method}.`;
      return;
    }
    const unsure = found.rows.map((_, k) => Boolean(found.unsure[k]));
    const largest = found.rows.map((_, k) => k).sort((a, b) => Math.abs(shift[b]) - Math.abs(shift[a])).slice(0, 3);
    const trace = {
      mode: "markers+text", x: found.rows, y: shift, textposition: "top center",
      text: found.rows.map((r, k) => (largest.includes(k) ? `${r}` : "")), cliponaxis: false,
      marker: { color: methodColour(1), size: 6, symbol: unsure.map((u) => (u ? "circle-open" : "circle")) },
      hovertemplate: "row %{x}: %{y:.3f} sd<extra></extra>",
    };
    draw("influence", [trace], layout(230, { title: { text: "row", font: { size: 12 } } }, { title: { text: "shift of the mean / sd", font: { size: 12 } } }, { shapes: [line("y", 0)], margin: { l: 56, r: 8, t: 18, b: 40 } }), `Shift of the mean of ${weights[state.weight]} when a row is left out`);
    const few = found.rows.length < found.all_rows ? ` The ${found.rows.length} rows of ${found.all_rows} that move some weight most are shown.` : "";
    get("influence-caption").textContent = `Under ${found.method}; the three rows that matter most are named.${unsure.some(Boolean) ? " Open marks: k-hat too high, a rough guess." : ""}${few}`;
  }

  function figures() {
    const j = state.weight;
    const cell = (text) => element("td", text, { class: "num" });
    get("figures").replaceChildren(...visible().map(({ name }) => {
      const s = data.weights.summaries[name];
      const tr = document.createElement("tr");
      tr.append(element("th", name, { scope: "row" }));
      if (!known(s.mean[j])) {
        tr.append(element("td", "not in this model", { colspan: 6 }));
        return tr;
      }
      const off = s.sd[j] === 0;
      const interval = off ? (s.mean[j] === 0 ? "switched off" : "held at one value") : `${number(s.lower[j])} to ${number(s.upper[j])}`;
      tr.append(cell(number(s.mean[j])), cell(number(s.sd[j])), cell(interval), cell(number(s.relevance[j], 2)));
      tr.append(cell(number(s.error?.mean[j], 2)), cell(number(s.error?.sd_ratio[j])));
      return tr;
    }));
    const leader = data.methods.find((m) => m.reference) ?? data.methods[0];
    const s = data.weights.summaries[leader.name];
    const parts = known(s.mean[j]) ? [`Under ${leader.name} the mean is ${number(s.mean[j])} with sd ${number(s.sd[j])}.`] : [];
    const shift = data.weights.influence.shift?.[j];
    if (shift) {
      const k = shift.reduce((best, value, at) => (Math.abs(value) > Math.abs(shift[best]) ? at : best), 0);
      parts.push(`Row ${data.weights.influence.rows[k]} matters most: without it the mean moves by ${number(shift[k], 2)} sd.`);
    }
    get("chosen").textContent = weights[j];
    get("said").textContent = parts.join(" ");
  }

  // ------------------------------------------------------------------------------- choices

  function choose(j) {
    state.weight = Math.min(Math.max(j, 0), weights.length - 1);
    [...get("names").children].forEach((item, k) => item.setAttribute("aria-selected", String(k === state.weight)));
    const item = get("names").children[state.weight];
    get("names").setAttribute("aria-activedescendant", item.id);
    const box = document.querySelector(".forest");
    const top = item.offsetTop - row;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 3 * row) box.scrollTop = Math.max(0, top - HEAD);
    const place = weights[state.weight].match(/\[.*\]$/)?.[0]; // θ of the same input, if it has one
    const same = place ? theta.findIndex((label) => label.endsWith(place)) : -1;
    if (same >= 0) {
      state.theta = same;
      get("theta-of").value = String(same);
      drawTheta();
    }
    forest();
    detail();
  }

  function detail() {
    figures();
    densities();
    ranks();
    influence();
  }

  function startWeights() {
    if (!weights.length) return;
    document.documentElement.style.setProperty("--row", `${row}px`);
    const list = get("names");
    weights.forEach((name, j) => list.append(element("li", name, { role: "option", id: `weight-${j}`, title: name, "aria-selected": "false" })));
    list.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) choose([...list.children].indexOf(item));
    });
    list.addEventListener("keydown", (event) => {
      const moves = { ArrowDown: state.weight + 1, ArrowUp: state.weight - 1, Home: 0, End: weights.length - 1, PageDown: state.weight + 10, PageUp: state.weight - 10 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      choose(moves[event.key]);
    });
    const chains = Object.keys(data.weights.ranks).filter((name) => data.weights.ranks[name]);
    options(get("ranks-of"), chains);
    get("ranks-of").addEventListener("change", ranks);
    choose(0);
    get("forest").on("plotly_click", (event) => choose(event.points[0].customdata));
  }

  function startMethods() {
    data.methods.forEach(({ name }, i) => {
      const label = document.createElement("label");
      const box = element("input", "", { type: "checkbox" });
      box.checked = true;
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(name);
        else hidden.add(name);
        redraw();
      });
      const sign = element("span", SIGNS[i % 6], { "aria-hidden": "true" });
      sign.style.color = `var(--m${i % 6})`;
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", "0 0 32 16");
      svg.setAttribute("aria-hidden", "true");
      const stroke = document.createElementNS("http://www.w3.org/2000/svg", "path");
      stroke.setAttribute("d", "M0 8H32");
      stroke.setAttribute("stroke-width", "2.5");
      stroke.setAttribute("stroke-dasharray", SVG_DASHES[i % 6]);
      stroke.style.stroke = `var(--m${i % 6})`;
      svg.append(stroke);
      label.append(box, sign, svg, element("span", name));
      get("methods").append(label);
    });
  }

  // ------------------------------------------------------------------------------- p(θ | t)

  function drawTheta() {
    if (!theta.length) return;
    const curves = data.hyperparameters.curves[state.theta];
    const traces = [];
    const lines = [];
    const said = [];
    const shown = visible().filter(({ name }) => name in curves);
    const top = Math.max(...shown.flatMap(({ name }) => curves[name].y ?? [0]));
    shown.forEach(({ name, i }) => {
      const curve = curves[name];
      const look = { color: methodColour(i), dash: DASHES[i % 6], width: 2 };
      if (curve.x) {
        traces.push({ name: escaped(name), mode: "lines", x: curve.x, y: curve.y, line: look, hovertemplate: "%{x:.3g}<extra>%{fullData.name}</extra>" });
      } else if (known(curve.point)) {
        lines.push({ ...line("x", curve.point), layer: "above", line: look });
        said.push(`${name}: ${number(curve.point)} (${curve.kind || "one value"})`);
      }
      if (curve.infinite) said.push(`${name}: infinite (${curve.kind || "one value"})`);
      if (curve.nodes) {
        const most = Math.max(...curve.nodes.weight);
        const height = curve.nodes.weight.map((w) => ((w / most) * top) / 3);
        traces.push({
          mode: "lines", x: curve.nodes.x.flatMap((x) => [x, x, null]), y: height.flatMap((h) => [0, h, null]),
          line: { color: methodColour(i), width: 1 }, hoverinfo: "skip",
        });
        traces.push({
          name: `${escaped(name)}: node`, mode: "markers", x: curve.nodes.x, y: height, customdata: curve.nodes.weight,
          marker: { color: methodColour(i), symbol: MARKERS[i % 6], size: 5 }, hovertemplate: "%{x:.4g}, weight %{customdata:.3g}<extra>%{fullData.name}</extra>",
        });
        said.push(`${name}: ${curve.nodes.x.length} nodes`);
      }
    });
    const label = theta[state.theta];
    const known_x = shown.flatMap(({ name }) => curves[name].x ?? []);
    const range = [Math.min(...known_x), Math.max(...known_x)];
    const away = lines.filter((shape) => shape.x0 < range[0] || shape.x0 > range[1]).length;
    get("theta-said").textContent = [...said, ...(away ? [`${away} outside the panel`] : [])].join("; ");
    draw("theta", traces, layout(280, { title: { text: escaped(short(label)), font: { size: 12 } }, range }, { rangemode: "tozero", showticklabels: false, fixedrange: true }, { shapes: lines }), `Posterior density of ${label}`);
  }

  // ------------------------------------------------------------------------------- paths

  function drawPath() {
    if (!paths.length) return;
    const path = paths[state.path];
    const at = state.step;
    const criterion = path.criteria[Number(get("criterion-of").value) || 0];
    const i = data.methods.findIndex((m) => m.name === path.method);
    const accent = methodColour(Math.max(i, 0));
    const places = path.inside[at];
    const words = [
      `${path.noun === "step" ? `Step ${path.steps[at]} of ${path.all_steps - 1}` : `${path.steps[at]} columns`}: ${path.actions[at]}`,
      path.noun === "step" ? `${places.length} of ${path.names.length} weights are in the model` : "",
      criterion ? `${criterion.label} ${number(criterion.values[at], 4)}` : "",
    ];
    const taken = at === path.chosen ? ". This is the step that was taken." : ".";
    get("path-said").textContent = words.filter(Boolean).join("; ") + taken;
    get("step").setAttribute("aria-valuetext", words[0]);
    if (criterion) {
      const trace = { mode: "lines", x: path.steps, y: criterion.values, line: { color: accent, shape: path.noun === "step" ? "hv" : "linear" }, hovertemplate: "%{x}: %{y:.5g}<extra></extra>" };
      if (criterion.errors) trace.error_y = { type: "data", array: criterion.errors, color: accent, thickness: 1 };
      const mark = { mode: "markers", x: [path.steps[at]], y: [criterion.values[at]], marker: { color: accent, size: 12, symbol: MARKERS[Math.max(i, 0) % 6] }, hoverinfo: "skip" };
      draw("path", [trace, mark], layout(320, { title: { text: path.noun, font: { size: 12 } } }, { title: { text: escaped(criterion.label), font: { size: 12 } } }, { shapes: [line("x", path.steps[path.chosen])], margin: { l: 64, r: 8, t: 8, b: 40 } }), `${criterion.label} along the path: ${words[0]}`);
    }
    const scales = path.scales[at];
    get("scales").hidden = !scales;
    get("inside").hidden = Boolean(scales);
    if (!scales) {
      get("inside").replaceChildren(...places.map((p) => element("li", path.names[p])));
      return;
    }
    const order = places.map((_, k) => k).filter((k) => known(scales[k])).sort((a, b) => scales[b] - scales[a]).slice(0, MOST_BARS);
    const largest = Math.max(...path.scales.flat().filter(known), 0);
    const most = Math.min(MOST_BARS, Math.max(...path.inside.map((p) => p.length), 1));
    const bars = {
      type: "bar", orientation: "h", x: order.map((k) => scales[k]), y: order.map((_, k) => k), marker: { color: accent },
      hovertemplate: "%{text}: %{x:.3g}<extra></extra>", text: order.map((k) => escaped(path.names[places[k]])), textposition: "none",
    };
    const labels = { tickvals: order.map((_, k) => k), ticktext: order.map((k) => escaped(short(path.names[places[k]]))), range: [most - 0.4, -0.6], fixedrange: true };
    draw("scales", [bars], layout(60 + 22 * most, { title: { text: "prior sd", font: { size: 12 } }, range: [0, 1.05 * largest || 1], fixedrange: true }, labels, { margin: { l: 40, r: 8, t: 8, b: 40 } }), `Prior sds of the ${places.length} weights in the model`);
  }

  function openPath() {
    const path = paths[state.path];
    options(get("criterion-of"), path.criteria.map((c) => c.label));
    get("criterion-choice").hidden = path.criteria.length < 2;
    get("step").max = path.steps.length - 1;
    state.step = path.chosen;
    get("step").value = String(state.step);
    drawPath();
  }

  function startThetaAndPaths() {
    if (theta.length) {
      options(get("theta-of"), theta);
      get("theta-of").addEventListener("change", (event) => { state.theta = Number(event.target.value); drawTheta(); });
      drawTheta();
    }
    if (paths.length) {
      options(get("path-of"), paths.map((path) => path.title));
      get("path-of").addEventListener("change", (event) => { state.path = Number(event.target.value); openPath(); });
      get("criterion-of").addEventListener("change", drawPath);
      get("step").addEventListener("input", (event) => { state.step = Number(event.target.value); drawPath(); });
      get("taken").addEventListener("click", () => { state.step = paths[state.path].chosen; get("step").value = String(state.step); drawPath(); });
      openPath();
    }
  }

  function redraw() {
    if (weights.length) {
      forest();
      detail();
    }
    drawTheta();
    drawPath();
  }

  startMethods();
  startThetaAndPaths();
  startWeights();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.documentElement.dataset.ready = "yes";
})();
