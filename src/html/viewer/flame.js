// A flame graph of off-CPU stacks, root on top: zoom, search, causes as colours and filters, comparison with a second measurement.
// Stacks: [us, before_us, frame, frame, ...]; frames are indexes into page.body.frames, the last is "syscall [cause]".

// off-CPU time is drawn in blues; time other than the thread's waits stands out
const CAUSE_COLOURS = {
  gil: "#5f3dc4", lock: "#364fc7", net: "#1971c2", disk: "#0b7285", sleep: "#4dabf7", poll: "#74c0fc", pipe: "#22b8cf",
  child: "#4263eb", page_fault: "#5c7cfa", preempt: "#748ffc", throttle: "#862e9c", cpu: "#e8590c", other: "#8fa3bf",
};
const FRAMES_DRAWN = 6000;
const NARROWEST = 0.0012; // of the width

function causeColour(cause) {
  return CAUSE_COLOURS[cause] || CAUSE_COLOURS.other;
}

// Text on light colours is dark.
function isLight(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 125;
}

function parseStack(stack, frames) {
  const names = stack.slice(2).map((i) => frames[i]);
  const wakers = names.indexOf("--");
  const last = wakers < 0 ? names.length - 1 : wakers - 1;
  const found = /\[(\w+)(, idle)?\]$/.exec(names[last] || "");
  return { us: stack[0], before: stack[1], names, last, cause: found ? found[1] : "other", idle: Boolean(found && found[2]),
    threads: [0], waker: wakers < 0 ? null : names.slice(wakers + 1).reverse() };
}

// The same time below the thread that ended the wait: its stack, then thread and stack of the wait.
function rootedInWaker(stack) {
  return { ...stack, threads: [0, stack.waker.length], names: [...stack.waker, ...stack.names.slice(0, stack.last + 1)] };
}

// "ThreadPoolExecutor-0_3" and "-0_7" are one pool, as are "Thread-1 (work)" and "Thread-2 (work)"; a pid stays.
function poolOf(thread) {
  return thread.replace(/^Thread-\d+/, "Thread-*").replace(/\d+(?=( \(pid \d+\))?$)/, "*");
}

function isLibrary(frame) {
  const file = /\((.*):\d+\)$/.exec(frame);
  return !file || /\/(lib|lib64)\/python|site-packages|dist-packages|^<frozen/.test(file[1]);
}

function isPython(frame) {
  return /\(.*:\d+\)$/.test(frame);
}

function newNode(name, parent) {
  return { name, parent, value: 0, before: 0, children: new Map(), causes: new Map(), depth: parent ? parent.depth + 1 : 0 };
}

function buildTree(stacks, merged) {
  const root = newNode("all", null);
  for (const stack of stacks) {
    let node = root;
    for (let i = -1; i < stack.names.length; i++) {
      if (i >= 0) {
        const name = merged && stack.threads.includes(i) ? poolOf(stack.names[i]) : stack.names[i];
        if (!node.children.has(name)) node.children.set(name, newNode(name, node));
        node = node.children.get(name);
      }
      node.value += stack.us;
      node.before += stack.before;
      node.causes.set(stack.cause, (node.causes.get(stack.cause) || 0) + stack.us);
    }
  }
  return root;
}

function childrenOf(node) {
  if (!node.sorted) node.sorted = [...node.children.values()].sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
  return node.sorted;
}

function mainCause(node) {
  let best = "other", most = -1;
  for (const [cause, us] of node.causes) if (us > most) [best, most] = [cause, us];
  return best;
}

// Red: longer than before, blue: shorter, by the change's share of the larger one.
function changeColour(node) {
  const larger = Math.max(node.value, node.before, 1), change = (node.value - node.before) / larger;
  const pale = Math.round(240 - 150 * Math.sqrt(Math.abs(change)));
  return change < 0 ? `rgb(${pale},${pale},240)` : `rgb(240,${pale},${pale})`;
}

function matcherOf(text) {
  const regex = /^\/(.+)\/$/.exec(text);
  if (!regex) return (name) => name.toLowerCase().includes(text.toLowerCase());
  try {
    const compiled = new RegExp(regex[1], "i");
    return (name) => compiled.test(name);
  } catch (error) {
    return null;
  }
}

// Time of the topmost frames that match: frames below a match are counted once.
function matchedTime(node, matches) {
  if (node.parent && matches(node.name)) return node.value;
  let sum = 0;
  for (const child of node.children.values()) sum += matchedTime(child, matches);
  return sum;
}

function flameGraph(body) {
  const all = body.stacks.map((stack) => parseStack(stack, body.frames));
  const state = { hidden: new Set(), idle: false, merged: true, rooted: false, search: "", zoom: null, root: null };
  const nodes = new WeakMap();
  const graph = el("div", { class: "flame", role: "tree", "aria-label": "flame graph of off-CPU time", tabindex: 0 });
  const status = el("p", { class: "status", "aria-live": "polite" });
  const matched = el("output", { class: "matched" });
  const legend = el("div", { class: "legend" });
  const leaves = el("div", {});

  function chosen() {
    return all.filter((s) => (state.idle || !s.idle) && !state.hidden.has(s.cause));
  }

  function describe(node) {
    const total = state.root.value;
    let text = `${node.name}: ${ms(node.value / 1e3)} ms, ${percent(node.value, total)} of what is shown`;
    if (node.parent) text += `, ${percent(node.value, node.parent.value)} of its caller`;
    if (body.compared) text += `; before ${ms(node.before / 1e3)} ms, ${node.value >= node.before ? "+" : ""}${ms((node.value - node.before) / 1e3)} ms`;
    return text;
  }

  function shortName(name) {
    return name.replace(/\((?:.*\/)?([^/]+:\d+)\)$/, "($1)");
  }

  function box(node, left, width, faded) {
    const item = el("div", { class: "frame", role: "treeitem", "aria-label": describe(node), "data-name": clean(node.name) },
      width > 0.02 ? shortName(node.name) : "");
    item.style.left = `${100 * left}%`;
    item.style.width = `${100 * width}%`;
    item.style.top = `${node.depth * 19}px`;
    const colour = causeColour(mainCause(node));
    item.style.background = body.compared ? changeColour(node) : colour;
    if (body.compared || isLight(colour)) item.classList.add("pale");
    if (faded) item.classList.add("faded");
    if (state.matches && node.parent && state.matches(node.name)) item.classList.add("match");
    nodes.set(item, node);
    return item;
  }

  // Level by level, so that a cut takes the deepest frames.
  function draw() {
    const zoom = state.zoom || state.root, items = [];
    let level = [[zoom, 0, 1]], deepest = 0, cut = false;
    for (let up = zoom.parent; up; up = up.parent) items.push(box(up, 0, 1, true));
    while (level.length && !cut) {
      const next = [];
      for (const [node, left, width] of level) {
        items.push(box(node, left, width, false));
        deepest = Math.max(deepest, node.depth);
        let at = left;
        for (const child of childrenOf(node)) {
          const share = node.value ? (width * child.value) / node.value : 0;
          if (share >= NARROWEST) next.push([child, at, share]);
          at += share;
        }
      }
      cut = items.length + next.length > FRAMES_DRAWN;
      level = next;
    }
    graph.replaceChildren(...items);
    graph.style.height = `${(deepest + 1) * 19 + 2}px`;
    status.textContent = cut ? "deeper frames are not drawn: zoom in" : clean(describe(zoom));
  }

  function rebuild() {
    const stacks = chosen();
    state.root = buildTree(state.rooted ? stacks.map(rootedInWaker) : stacks, state.merged);
    state.zoom = null;
    find();
    drawLegend();
    leaves.replaceChildren(leafTable(chosen(), state.root.value, (text) => { search.value = text; find(); }));
  }

  function find() {
    const text = search.value.trim();
    state.matches = text ? matcherOf(text) : null;
    matched.textContent = !text ? "" : !state.matches ? "not a regular expression" :
      `matched: ${percent(matchedTime(state.root, state.matches), state.root.value)}`;
    draw();
  }

  function sumsOf(stacks) {
    const sums = new Map();
    for (const s of stacks) sums.set(s.cause, (sums.get(s.cause) || 0) + s.us);
    return [...sums].sort((a, b) => b[1] - a[1]);
  }

  function drawLegend() {
    const keys = sumsOf(all.filter((s) => state.idle || !s.idle)).map(([cause, us]) => el("button", {
      type: "button", class: "key", "aria-pressed": String(!state.hidden.has(cause)),
      onclick: () => { if (!state.hidden.delete(cause)) state.hidden.add(cause); rebuild(); },
    }, swatch(causeColour(cause)), `${cause} ${ms(us / 1e3)} ms`));
    legend.replaceChildren(...keys);
    if (body.compared) legend.append(el("span", {}, "colours: red is longer than before, blue is shorter; what is gone has no width and is in the table"));
  }

  function zoomTo(node) {
    state.zoom = node === state.root ? null : node;
    draw();
    focusOn(node);
  }

  function focusOn(node) {
    for (const item of graph.children) if (nodes.get(item) === node) { item.tabIndex = -1; item.focus(); return; }
  }

  function neighbour(node, key) {
    const siblings = node.parent ? childrenOf(node.parent) : [node], i = siblings.indexOf(node);
    return { ArrowUp: node.parent, ArrowDown: childrenOf(node)[0], ArrowLeft: siblings[i - 1], ArrowRight: siblings[i + 1] }[key];
  }

  graph.addEventListener("click", (event) => {
    const node = nodes.get(event.target.closest(".frame") || graph);
    if (node) zoomTo(node);
  });
  graph.addEventListener("mouseover", (event) => {
    const node = nodes.get(event.target.closest(".frame") || graph);
    if (node) status.textContent = clean(describe(node));
  });
  graph.addEventListener("focusin", (event) => {
    const node = nodes.get(event.target);
    if (node) status.textContent = clean(describe(node));
  });
  graph.addEventListener("keydown", (event) => {
    const node = nodes.get(event.target) || state.zoom || state.root;
    if (event.key === "Enter") zoomTo(node);
    else if (event.key === "Escape") zoomTo(state.root);
    else if (neighbour(node, event.key)) focusOn(neighbour(node, event.key));
    else return;
    event.preventDefault();
  });

  const search = el("input", { type: "search", placeholder: "search, or /regular expression/", "aria-label": "search frames", oninput: find });
  const idle = all.filter((s) => s.idle).reduce((sum, s) => sum + s.us, 0);
  const check = (text, key) => el("label", {}, el("input", { type: "checkbox", checked: state[key],
    onchange: (event) => { state[key] = event.target.checked; rebuild(); } }), text);
  const controls = el("div", { class: "controls" }, search, matched,
    el("button", { type: "button", onclick: () => zoomTo(state.root) }, "reset zoom"),
    check(`idle threads (${ms(idle / 1e3)} ms left out)`, "idle"), check("threads of a pool as one", "merged"),
    all.some((s) => s.waker) ? check("by the thread that ended the wait", "rooted") : null);
  rebuild();
  return [section("Flame graph", controls, legend, graph, status), section("Where threads waited", leaves)];
}

// The innermost function of each stack, with the cause and the nearest caller outside of libraries.
function leafTable(stacks, total, onSearch) {
  const sums = new Map();
  for (const stack of stacks) {
    const calls = stack.names.slice(1, stack.last), leaf = calls[calls.length - 1] || stack.names[stack.last];
    const caller = [...calls].reverse().find((frame) => isPython(frame) && !isLibrary(frame)) || "";
    const key = JSON.stringify([leaf, stack.cause, caller]);
    const sum = sums.get(key) || { leaf, cause: stack.cause, caller, us: 0, before: 0, threads: new Set() };
    sum.us += stack.us;
    sum.before += stack.before;
    sum.threads.add(stack.names[0]);
    sums.set(key, sum);
  }
  const columns = [
    { head: "ms", value: (r) => r.us, show: (r) => ms(r.us / 1e3), number: true },
    { head: "share", value: (r) => r.us, show: (r) => percent(r.us, total), number: true },
    { head: "cause", value: (r) => r.cause, show: (r) => el("span", { class: "key" }, swatch(causeColour(r.cause)), r.cause), whole: true },
    { head: "waited in", value: (r) => r.leaf, show: (r) => el("button", { type: "button", class: "link", onclick: () => onSearch(r.leaf) }, shortened(r.leaf)) },
    { head: "first caller of your own", value: (r) => r.caller, show: (r) => el("code", {}, shortened(r.caller || "-")) },
    { head: "threads", value: (r) => r.threads.size, number: true, narrow: false },
  ];
  if (page.body.compared)
    columns.splice(1, 0, { head: "change, ms", value: (r) => Math.abs(r.us - r.before), show: (r) => (r.us > r.before ? "+" : "") + ms((r.us - r.before) / 1e3), number: true });
  return sortable(columns, [...sums.values()], { sort: page.body.compared ? 1 : 0, show: 30, class: "cards" }); // what changed most is first
}

function showOffcpu(body) {
  return [
    note(body.subtitle),
    body.rest_stacks ? note(`${count(body.rest_stacks)} smaller stack${plural(body.rest_stacks)}, ${ms(body.rest_us / 1e3)} ms, ${plural(body.rest_stacks, "is", "are")} drawn as "(smaller stacks)" of ${plural(body.rest_stacks, "its", "their")} thread`) : null,
    body.stacks.length ? flameGraph(body) : note("no thread came back to a CPU"),
    showLocks(body.by_lock),
    (body.processes || []).filter((p) => !p.measured).map((p) => note(`process ${p.host_pid} (${p.comm}): not measured: ${p.reason}`)),
  ];
}
