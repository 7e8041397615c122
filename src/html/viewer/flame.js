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

// A function of a name: names are few, and come again in many stacks.
function remembered(made) {
  const known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, made(name));
    return known.get(name);
  };
}

// "ThreadPoolExecutor-0_3" and "-0_7" are one pool, as are "Thread-1 (work)" and "Thread-2 (work)"; a pid stays.
function poolOf(thread) {
  return thread.replace(/^Thread-\d+/, "Thread-*").replace(/\d+(?=( \([^()]*\))?$)/, "*");
}

// "MainThread (pid 7832)" and "(web-1, pid 7832)" are the same thread of each worker.
function withoutPid(thread) {
  return thread.replace(/ \(([^()]*, )?pid \d+\)$/, "");
}

// "pay (/srv/shop.py:23)" is "pay (/srv/shop.py)".
const withoutLine = remembered((frame) => frame.replace(/:\d+\)$/, ")"));

// Code that was edited between two measurements: a function has time in both, at no line in common.
function linesMoved(stacks) {
  const lines = new Map(), functions = new Map(), total = [0, 0];
  for (const { names, last, us, before } of stacks) {
    total[0] += us;
    total[1] += before;
    for (let i = 1; i < last; i++) {
      let sums = lines.get(names[i]);
      if (!sums) lines.set(names[i], sums = [0, 0]);
      sums[0] += us;
      sums[1] += before;
    }
  }
  for (const [line, sums] of lines) {
    if (!isPython(line)) continue;
    const name = withoutLine(line), one = functions.get(name) || { sums: [0, 0], shared: false };
    functions.set(name, { sums: [one.sums[0] + sums[0], one.sums[1] + sums[1]], shared: one.shared || (sums[0] > 0 && sums[1] > 0) });
  }
  return [...functions.values()].some(({ sums, shared }) => !shared && sums.every((sum, side) => sum > total[side] / 100));
}

// "f (FILE:3)", or "f (FILE)" where the line is not known; null for threads, native functions and causes.
const fileOf = remembered((frame) => {
  const found = /\((?:(.*):\d+|(\/.*|<[^()]*>|[^(]*\.pyx?))\)$/.exec(frame);
  return found ? found[1] || found[2] : null;
});

const isLibrary = remembered((frame) => {
  const file = fileOf(frame);
  return !file || /\/(lib|lib64)\/python|site-packages|dist-packages|^<frozen/.test(file);
});

function isPython(frame) {
  return fileOf(frame) !== null;
}

function newNode(name, parent) {
  return { name, parent, value: 0, before: 0, children: new Map(), causes: new Map(), depth: parent ? parent.depth + 1 : 0 };
}

// `nameOf`: as what the frame at an index of a stack is drawn.
function buildTree(stacks, top, nameOf) {
  const root = newNode(top, null);
  for (const stack of stacks) {
    let node = root;
    for (let i = -1; i < stack.names.length; i++) {
      if (i >= 0) {
        const name = nameOf(stack, i);
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
  if (!node.sorted) node.sorted = [...node.children.values()].sort((a, b) => widthOf(b) - widthOf(a) || (a.name < b.name ? -1 : 1));
  return node.sorted;
}

// Of a comparison both times, so that what is gone is seen.
function widthOf(node) {
  return node.value + node.before;
}

function rootOf(node) {
  while (node.parent) node = node.parent;
  return node;
}

function change(value, before) {
  const sign = value >= before ? "+" : "";
  return `${sign}${ms((value - before) / 1e3)} ms` + (before > 0 ? ` (${sign}${percent(value - before, before)})` : "");
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

// Time of the topmost frames that match, now and before: frames below a match are counted once.
function matchedTime(node, matches, sums = [0, 0]) {
  if (node.parent && matches(node.name)) {
    sums[0] += node.value;
    sums[1] += node.before;
  } else for (const child of node.children.values()) matchedTime(child, matches, sums);
  return sums;
}

function flameGraph(body) {
  const all = body.stacks.map((stack) => parseStack(stack, body.frames));
  // panes: from the root down; of one function, its callers from it up and its callees from it down
  const state = { hidden: new Set(), idle: false, merged: true, processes: body.compared, lines: body.compared && linesMoved(all), scaled: false,
    rooted: false, focus: null, panes: [], chosen: null, total: 0, totals: new Map() };
  const nodes = new WeakMap();
  const graph = el("div", { class: "flame", role: "tree", "aria-label": "flame graph of off-CPU time", tabindex: 0 });
  const status = el("p", { class: "status", "aria-live": "polite" });
  const matched = el("output", { class: "matched" });
  const legend = el("div", { class: "legend" });
  const leaves = el("div", {}), functions = el("div", {});

  // In proportion: the times before, as if their sum had been that of now.
  function chosen() {
    const stacks = all.filter((s) => (state.idle || !s.idle) && !state.hidden.has(s.cause));
    if (!state.scaled) return stacks;
    const [now, before] = ["us", "before"].map((key) => stacks.reduce((sum, s) => sum + s[key], 0));
    return before ? stacks.map((s) => ({ ...s, before: (s.before * now) / before })) : stacks;
  }

  function nameOf(stack, i) {
    const name = stack.names[i];
    if (!stack.threads.includes(i)) return state.lines ? withoutLine(name) : name;
    return state.threadName(name);
  }

  function nameOfThread(name) {
    const thread = state.processes ? withoutPid(name) : name;
    return state.merged ? poolOf(thread) : thread;
  }

  function paneOf(node) {
    return state.panes.find((pane) => pane.root === rootOf(node));
  }

  function describe(node) {
    let text = `${node.name}: ${ms(node.value / 1e3)} ms, ${percent(node.value, state.total)} of what is shown`;
    const everywhere = state.totals.get(withoutLine(node.name));
    if (node.parent) text += `, ${percent(node.value, node.parent.value)} of ${paneOf(node).up ? "what it calls" : "its caller"}`;
    if (node.parent && everywhere && everywhere.us > node.value) text += `, ${ms(everywhere.us / 1e3)} ms of this function in all places`;
    if (body.compared) text += `; before ${ms(node.before / 1e3)} ms, ${change(node.value, node.before)}`;
    return text;
  }

  function shortName(name) {
    return name.replace(/\((?:.*\/)?([^/]+)\)$/, "($1)");
  }

  function box(node, left, width, row, faded) {
    const item = el("div", { class: "frame", role: "treeitem", "aria-label": describe(node), "data-name": clean(node.name) },
      width > 0.02 ? shortName(node.name) : "");
    item.style.left = `${100 * left}%`;
    item.style.width = `${100 * width}%`;
    item.style.top = `${row * 19}px`;
    const colour = causeColour(mainCause(node));
    item.style.background = body.compared ? changeColour(node) : colour;
    if (body.compared || isLight(colour)) item.classList.add("pale");
    if (faded) item.classList.add("faded");
    if (state.matches && node.parent && state.matches(node.name)) item.classList.add("match");
    nodes.set(item, node);
    return item;
  }

  // Level by level, so that a cut takes the deepest frames.
  function framesOf(pane) {
    const frames = [];
    let level = [[pane.zoom, 0, 1]], cut = false;
    for (let up = pane.zoom.parent; up; up = up.parent) frames.push([up, 0, 1, true]);
    while (level.length && !cut) {
      const next = [];
      for (const [node, left, width] of level) {
        frames.push([node, left, width, false]);
        let at = left;
        for (const child of childrenOf(node)) {
          const share = widthOf(node) ? (width * widthOf(child)) / widthOf(node) : 0;
          if (share >= NARROWEST) next.push([child, at, share]);
          at += share;
        }
      }
      cut = frames.length + next.length > FRAMES_DRAWN;
      level = next;
    }
    return { frames, cut, deepest: Math.max(...frames.map(([node]) => node.depth)) };
  }

  function draw() {
    const items = [];
    let rows = 0, cut = false;
    for (const pane of state.panes) {
      const drawn = framesOf(pane);
      for (const [node, left, width, faded] of drawn.frames) items.push(box(node, left, width, rows + (pane.up ? drawn.deepest - node.depth : node.depth), faded));
      rows += drawn.deepest + 1;
      cut = cut || drawn.cut;
    }
    graph.replaceChildren(...items);
    graph.style.height = `${rows * 19 + 2}px`;
    both.disabled = copy.disabled = !state.chosen || !state.chosen.parent;
    status.textContent = cut ? "deeper frames are not drawn: zoom in" : clean(describe(state.chosen || state.panes[0].root));
  }

  function rebuild() {
    state.threadName = remembered(nameOfThread);
    const stacks = chosen();
    state.total = stacks.reduce((sum, s) => sum + s.us, 0);
    state.totals = functionTotals(stacks);
    const trees = state.focus ? sandwich(stacks, state.focus, nameOf) : [buildTree(state.rooted ? stacks.map(rootedInWaker) : stacks, "all", nameOf)];
    state.panes = trees.map((root, i) => ({ root, zoom: root, up: trees.length > 1 && i === 0 }));
    state.chosen = null;
    whole.hidden = !state.focus;
    find();
    drawLegend();
    leaves.replaceChildren(leafTable(stacks, state.total, nameOf, (text) => { search.value = text; find(); }));
    functions.replaceChildren(...functionTable([...state.totals.values()], state.total, focusFunction));
  }

  function find() {
    const text = search.value.trim();
    const matches = text ? matcherOf(text) : null;
    state.matches = matches && remembered(matches);
    if (state.matches) {
      const { root } = state.panes[state.panes.length - 1], [now, before] = matchedTime(root, state.matches);
      matched.textContent = `matched: ${percent(now, root.value)}${body.compared ? `, before ${percent(before, root.before)}` : ""}`;
    } else matched.textContent = text ? "not a regular expression" : "";
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
    if (body.compared) legend.append(el("span", {}, "colours: red is longer than before, blue is shorter or gone; widths: now and before together"));
  }

  function zoomTo(node) {
    paneOf(node).zoom = node;
    state.chosen = node;
    draw();
    focusOn(node);
  }

  function reset() {
    for (const pane of state.panes) pane.zoom = pane.root;
    zoomTo(state.panes[0].root);
  }

  function focusOn(node) {
    for (const item of graph.children) if (nodes.get(item) === node) { item.tabIndex = -1; item.focus(); return; }
  }

  // All callers of a function above it, all callees below; null: everything from the root.
  function focusFunction(name) {
    state.focus = name;
    rebuild();
    controls.scrollIntoView({ block: "nearest" });
  }

  // The way to a frame from the thread on, to paste into an incident or an editor.
  async function copyStack() {
    const way = [];
    for (let node = state.chosen; node && node.parent; node = node.parent) way.push(clean(node.name));
    if (!paneOf(state.chosen).up) way.reverse();
    const text = `${way.join("\n")}\n${clean(describe(state.chosen))}\n`;
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = `copied: ${count(way.length)} frame${plural(way.length)}`;
    } catch (error) {
      status.textContent = "the browser refused to copy";
    }
  }

  function neighbour(node, key) {
    const siblings = node.parent ? childrenOf(node.parent) : [node], i = siblings.indexOf(node), up = paneOf(node).up;
    return { [up ? "ArrowDown" : "ArrowUp"]: node.parent, [up ? "ArrowUp" : "ArrowDown"]: childrenOf(node)[0], ArrowLeft: siblings[i - 1], ArrowRight: siblings[i + 1] }[key];
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
    const node = nodes.get(event.target) || state.chosen || state.panes[0].root;
    if (event.key === "Enter") zoomTo(node);
    else if (event.key === "Escape") reset();
    else if (neighbour(node, event.key)) focusOn(neighbour(node, event.key));
    else return;
    event.preventDefault();
  });

  const search = el("input", { type: "search", placeholder: "search, or /regular expression/", "aria-label": "search frames", oninput: find });
  const idle = all.filter((s) => s.idle).reduce((sum, s) => sum + s.us, 0);
  const check = (text, key) => el("label", {}, el("input", { type: "checkbox", checked: state[key],
    onchange: (event) => { state[key] = event.target.checked; rebuild(); } }), text);
  const button = (text, onclick) => el("button", { type: "button", onclick }, text);
  const both = button("its callers and callees", () => focusFunction(withoutLine(state.chosen.name))), copy = button("copy stack", copyStack);
  const whole = button("from the root again", () => focusFunction(null));
  const controls = el("div", { class: "controls" }, search, matched, button("reset zoom", reset), both, whole, copy,
    check(`idle threads (${ms(idle / 1e3)} ms left out)`, "idle"), check("threads of a pool as one", "merged"),
    all.some((s) => withoutPid(s.names[0]) !== s.names[0]) ? check("processes as one", "processes") : null,
    check("lines of a function as one", "lines"), body.compared ? check("before in proportion", "scaled") : null,
    all.some((s) => s.waker) ? check("by the thread that ended the wait", "rooted") : null);
  rebuild();
  return [section("Flame graph", controls, legend, graph, status), section("Where threads waited", leaves), section("Functions", functions)];
}

// The innermost function of each stack, with the cause and the nearest caller outside of libraries.
function leafTable(stacks, total, nameOf, onSearch) {
  const sums = new Map();
  for (const stack of stacks) {
    let i = stack.last - 1;
    const leaf = i > 0 ? nameOf(stack, i) : stack.names[stack.last];
    while (i > 0 && isLibrary(stack.names[i])) i--;
    const caller = i > 0 ? nameOf(stack, i) : "";
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
  return sortable(columns, [...sums.values()], { sort: page.body.compared ? 1 : 0, show: 15, class: "cards" }); // what changed most is first
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
