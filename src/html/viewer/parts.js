// Parts of a request: colours, stacked bars, and tables. Names, words and visibility come with the data.

// green: the handler's own work; warm: hidden, the request was not worked on; blue: the handler waited; grey: the client
const PART_COLOURS = {
  accept_queue: "#b3261e", queue: "#e8590c", pool_wait: "#f08c00", runq: "#ffd43b", throttled: "#862e9c", gil: "#c2255c",
  gc_sibling: "#f4a261", loop_busy: "#e03131", cpu: "#2b8a3e", gc_own: "#82a53b", lock: "#364fc7", net: "#1c7ed6", disk: "#0b7285",
  fault: "#5c7cfa", sleep: "#74c0fc", pipe: "#22b8cf", child: "#3b5bdb", other: "#748ffc", await: "#a5d8ff", client_wait: "#868e96",
  client_slow: "#adb5bd",
  handled: "#5c8374", // from the begin of the handler on, where its parts are not shown
};

function partsKnown() {
  return page.parts || [];
}

function partWords(name) {
  const part = partsKnown().find((p) => p.name === name);
  if (name === "handled") return "in its handler, computing or waiting";
  return part ? part.words : name;
}

function partColour(name) {
  return PART_COLOURS[name] || "#888888";
}

function swatch(colour) {
  const node = el("span", { class: "swatch", "aria-hidden": "true" });
  node.style.background = colour;
  return node;
}

// [{name, ms}]: null was not measured. `divide`: how many requests share the sums.
function partsOf(row, divide) {
  return partsKnown().map((part) => {
    const ns = number(row[`${part.name}_ns`]);
    const unmeasured = number(row[`${part.name}_unmeasured`]) || 0;
    const measured = Math.max((divide || 1) - unmeasured, 1);
    return { name: part.name, ms: ns === null ? null : ns / 1e6 / measured };
  });
}

// A bar with parts as wide as the share of `whole_ms`.
function stackedBar(parts, whole_ms) {
  const bar = el("span", { class: "bar", role: "img", "aria-label": describeParts(parts, 4) });
  for (const part of parts) {
    if (!part.ms || part.ms <= 0) continue;
    const piece = el("span", { title: `${partWords(part.name)}: ${ms(part.ms)} ms` });
    piece.style.width = `${(100 * part.ms) / Math.max(whole_ms, 1e-9)}%`;
    piece.style.background = partColour(part.name);
    bar.append(piece);
  }
  return bar;
}

function describeParts(parts, shown) {
  const sorted = parts.filter((p) => p.ms >= 0.05).sort((a, b) => b.ms - a.ms);
  const rest = sorted.slice(shown).reduce((sum, p) => sum + p.ms, 0);
  const words = sorted.slice(0, shown).map((p) => `${p.name} ${ms(p.ms)}`);
  if (rest >= 0.05) words.push(`others ${ms(rest)}`);
  for (const part of parts) if (part.ms === null) words.push(`${part.name} not measured`);
  return words.join(", ") || "nothing of 0.05 ms";
}

function partsTable(parts, whole_ms) {
  const rows = parts.filter((p) => p.ms === null || p.ms >= 0.0005).sort((a, b) => (b.ms || 0) - (a.ms || 0));
  return el("table", { class: "parts" },
    el("thead", {}, el("tr", {}, el("th", {}, "part"), el("th", { class: "number" }, "ms"), el("th", { class: "number" }, "share"))),
    el("tbody", {}, rows.map((p) => el("tr", {},
      el("td", {}, swatch(partColour(p.name)), partWords(p.name)),
      el("td", { class: "number" }, p.ms === null ? "not measured" : ms(p.ms)),
      el("td", { class: "number" }, p.ms === null ? "" : percent(p.ms, whole_ms))))));
}

function partsLegend(lists) {
  const seen = new Set();
  for (const parts of lists) for (const part of parts) if (part.ms >= 0.05) seen.add(part.name);
  return el("p", { class: "legend" }, partsKnown().filter((p) => seen.has(p.name)).map((p) =>
    el("span", { class: "key" }, swatch(partColour(p.name)), p.words, p.hidden ? " (hidden)" : "")));
}
