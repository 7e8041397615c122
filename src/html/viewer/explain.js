// `underspan explain --html`: for each request cause and fix first, then waterfall, timeline of the surrounding events, concurrent
// threads and requests, and parts not measured; then the spans of the trace.

const GENERATION_COLOURS = ["#82a53b", "#e8a13a", "#d9480f"];

function headOf(r) {
  const status = r.status === null || r.status === undefined ? "no answer" : `status ${r.status}`;
  return [shortened(`${r.method || "(method not known)"} ${r.path || "(path not known)"}`), `: ${status}, ${ms(r.duration_ms)} ms`];
}

// Of the process where no span says it; then its place in Kubernetes.
function ownersOf(r) {
  const service = r.service || r.own_service, place = [r.namespace, r.pod, r.container].filter(Boolean).join("/");
  return [service ? `service ${service}` : null, place ? `pod ${place}` : null].filter(Boolean);
}

// What ends a process by this signal, as far as the signal tells.
function signalWords(signal) {
  if (signal === "SIGKILL") return ": out of memory, or a supervisor (gunicorn: timeout)";
  return ["SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"].includes(signal) ? ": a crash, as in C code" : "";
}

// How the request ended, if not by its answer. As put_end_words() of print_ledger.c says it.
function endWords(r) {
  if (r.end_by === "exit") return "its process exited";
  if ((r.end_by || "").startsWith("SIG")) return `its process was ended by ${r.end_by}${signalWords(r.end_by)}`;
  return { answered: "", client_aborted: "the client closed before the answer",
    no_answer: "the server closed the connection without an answer, as a gunicorn worker does at its timeout",
    upgraded: "with a change to another protocol" }[r.outcome] ?? r.outcome ?? "";
}

function factsOf(r) {
  const facts = [...ownersOf(r), `request ${r.request_id}`, `${r.start_time} UTC`, r.host, `pid ${r.pid}`,
    `${r.model === "loop" || r.on_loop ? "event loop" : "thread"} ${r.thread_name || r.tid}`, `port ${r.server_port}`, `from ${r.peer_ip}`];
  if (r.trace_id) facts.push(`trace ${r.trace_id}`);
  if (endWords(r)) facts.push(`ended: ${endWords(r)}`);
  if (r.link && r.link !== "same") facts.push(`its thread is not certain: known by a ${r.link}`);
  if (r.weight > 1) facts.push(`stands for ${count(r.weight)} request${plural(r.weight)}`);
  const span = r.span_id ? `span "${r.span_name}" of ${r.service} says ${ms(r.span_ms)} ms (found by its ${r.span_by})`
    : `no span is known to be its own: ${r.no_span}`;
  return [el("p", { class: "facts" }, facts.map((fact) => el("span", {}, shortened(fact)))), note(span)];
}

function causesOf(r) {
  if (!r.causes) return note("details are shown for the first requests only: ask for this one by its id");
  return [r.causes.length ? causeList(r.causes) : note("no part stands out"), r.before ? beforeOf(r.before) : null];
}

function beforeOf(before) {
  return [el("p", {}, el("strong", {}, "before: "), before.said), before.fix ? el("p", { class: "fix" }, el("strong", {}, "fix: "), before.fix) : null];
}

function causeList(causes) {
  return el("ol", { class: "causes" }, causes.map((cause) => el("li", {}, el("strong", {}, `${ms(cause.ms)} ms `), cause.said,
    cause.fix ? el("p", { class: "fix" }, el("strong", {}, "fix: "), cause.fix) : null)));
}

function partList(r) {
  const known = (r.part || []).map((name, i) => ({ name, ms: r.part_ms[i], at: r.part_at_ms[i] }));
  return known.concat((r.part_missing || []).map((name) => ({ name, ms: null, at: null })));
}

function waterfall(r) {
  const whole = Math.max(r.duration_ms, 1e-6), parts = partList(r);
  const rows = parts.filter((p) => p.ms === null || p.ms >= 0.05).map((part) => {
    const piece = el("span", {}), bar = el("span", { class: "bar", "aria-hidden": "true" }, piece);
    if (part.ms !== null) {
      piece.style.marginLeft = `${(100 * part.at) / whole}%`;
      piece.style.width = `${(100 * part.ms) / whole}%`;
      piece.style.background = partColour(part.name);
    }
    return el("tr", {}, el("td", {}, swatch(partColour(part.name)), partWords(part.name), peerOf(r, part.name)),
      el("td", { class: "number" }, part.ms === null ? "not measured" : ms(part.ms)),
      el("td", { class: "number wide" }, part.ms === null ? "" : percent(part.ms, whole)), el("td", { class: "fill" }, bar));
  });
  return [
    el("table", { class: "waterfall" }, el("thead", {}, el("tr", {}, el("th", {}, "part"), el("th", { class: "number" }, "ms"),
      el("th", { class: "number wide" }, "share"), el("th", {}, ""))), el("tbody", {}, rows)),
    note("The waits before the handler stand where they were; what its thread did is a share of its time, in no order."),
  ];
}

function peerOf(r, part) {
  const peer = r.net_peer_path || (number(r.net_peer_port) ? `${r.net_peer_ip} port ${r.net_peer_port}` : "");
  return part === "net" && r.net_peer_ms > 0 && peer ? ` (${ms(r.net_peer_ms)} ms of it: ${peer})` : "";
}

function phasesOf(r) {
  const before = { accept_queue: 1, client_wait: 1, queue: 1, pool_wait: 1 }, from = number(r.from_us);
  const events = partList(r).filter((p) => before[p.name] && p.ms > 0).map((p) => ({
    begin: from + p.at * 1e3, end: from + (p.at + p.ms) * 1e3, colour: partColour(p.name), text: partWords(p.name) }));
  events.push({ begin: number(r.handled_us), end: number(r.to_us), colour: partColour("handled"), text: "its thread" });
  return { name: "request", events };
}

function eventsOf(rows, colour, text) {
  return (rows || []).map((row) => ({ begin: number(row.begin_us), end: number(row.end_us), colour: colour(row), text: text(row) }));
}

function grouped(rows, name) {
  const groups = new Map();
  for (const row of rows || []) {
    const key = name(row);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups];
}

function threadName(row, tid, name) {
  return row[name] || `thread ${row[tid]}`;
}

// As connections_add_lines() of connections.c says it.
function connectionWords(c) {
  const peer = Number(c.own) ? "the client" : `${c.peer_ip} port ${c.peer_port}`, again = number(c.repeated);
  if (c.kind === "connect")
    return `connect to ${peer}${c.outcome === "success" ? "" : ", " + c.outcome}${again ? `, its first packet sent ${again} time${plural(again)} more` : ""}`;
  const words = { rto: "packets lost, until the retransmission timer expired", tlp: "last packet or its acknowledgement lost or late",
    zero_window_sent: "its receive window closed, as no thread here read", zero_window_received: "the peer's receive window closed: it did not read" };
  return `connection to ${peer}: ${words[c.kind] || "packets lost and sent again"}`;
}

// As outbound_add_lines() of outbound.c says it.
function outboundWords(o) {
  return `${o.method} ${o.path} to ${o.service} port ${o.server_port}, request ${o.request_id} there`;
}

// The place of a wait for the GIL is the holder's. Stalls have none of another thread.
function waitWords(w) {
  const place = w.place ? ` in ${w.place}` : "";
  return w.by_tid !== undefined && w.cause === "gil" ? `gil, which ${threadName(w, "by_tid", "by_name")} had${place}`
    : `${w.waited_for ? "for " + w.waited_for : w.cause}${place ? "," + place : ""}`;
}

// A lane for the request, for the loop's stalls, for the waits, for each holder of the GIL in that time, and for each collecting thread.
function lanesOf(r) {
  const gil = (r.waits || []).filter((w) => w.cause === "gil");
  const waits = { name: "waits of its thread", events: eventsOf(r.waits, (w) => causeColour(w.cause), waitWords) };
  const stalls = { name: "event loop did not poll", events: eventsOf(r.stalls, () => partColour("loop_busy"), waitWords) };
  const holders = grouped(gil, (w) => threadName(w, "by_tid", "by_name")).map(([name, rows]) =>
    ({ name: `had the GIL: ${name}`, events: eventsOf(rows, () => partColour("gil"), (w) => w.place || "place not known") }));
  const collectors = grouped(r.gc, (c) => threadName(c, "tid", "thread_name")).map(([name, rows]) =>
    ({ name: `collected: ${name}`, events: eventsOf(rows, (c) => GENERATION_COLOURS[c.generation] || GENERATION_COLOURS[2],
      (c) => `generation ${c.generation}, ${count(c.collected)} collected${c.place ? ", set off in " + c.place : ""}`) }));
  const quota = { name: "stopped by a CPU quota", events: eventsOf(r.throttle, () => partColour("throttled"), (t) => `${ms(t.throttled_us / 1e3)} ms, ${t.cgroup}`) };
  const connections = { name: "its connections", events: eventsOf(r.connections, () => partColour("net"), connectionWords) };
  const outbound = { name: "requests that it sent", events: eventsOf(r.outbound, () => partColour("net"), outboundWords) };
  return [phasesOf(r), stalls, waits, connections, outbound, ...holders.slice(0, 12), ...collectors.slice(0, 12), quota].filter((lane) => lane.events.length);
}

// Of requests or spans, together.
function leftOut(owners) {
  const left = owners.map((o) => o.left_out).filter(Boolean), n = left.reduce((sum, l) => sum + number(l.events), 0);
  return n ? note(`${count(n)} shorter event${plural(n)}, ${ms(left.reduce((sum, l) => sum + l.ms, 0))} ms${plural(n, ", is", " together, are")} left out: --json has ${plural(n, "it", "them")}`) : null;
}

// As print_threads() of print_ledger.c says it.
function threadsOf(r) {
  const waiting = r.queue_depth === null || r.queue_depth === undefined ? "" : `; ${count(r.queue_depth)} request${plural(r.queue_depth)} waited at its arrival`;
  const longer = r.accept_queue_ms > r.queue_ms ? r.accept_threads : r.queue_threads, busy = longer || r.queue_threads || r.accept_threads;
  const threads = number(r.threads), further = number(r.busy_threads);
  if (busy && busy.busy_share !== null)
    return `while it waited, the ${count(threads)} ${plural(threads, "thread of its process that serves requests was", "threads of its process that serve requests were")} ` +
      `busy with others ${Math.min(100, Math.round(busy.busy_share * 100))} % of the time${waiting}`;
  if (r.busy_threads === null || r.busy_threads === undefined)
    return `how many further threads of its process had requests when it was read was not measured${waiting}`;
  return `when it was read, ${count(further)} further thread${plural(further)} of its process had requests${waiting}`;
}

function beside(r) {
  const figures = [
    { head: "request", value: (m) => `${m.method} ${m.path}` },
    { head: "requests", value: (m) => number(m.requests), show: (m) => count(m.requests), number: true },
    { head: "held threads, ms", value: (m) => m.held_ms, show: (m) => ms(m.held_ms), number: true },
    { head: "longest, ms", value: (m) => m.longest_ms, show: (m) => ms(m.longest_ms), number: true },
  ];
  const holders = [
    { head: "had the GIL", value: (h) => threadName(h, "tid", "thread_name") },
    { head: "ms", value: (h) => h.held_ms, show: (h) => ms(h.held_ms), number: true },
    { head: "at", value: (h) => h.place, show: (h) => el("code", {}, shortened(h.place || "not known")) },
  ];
  const lockers = [
    { head: "had the lock", value: (h) => threadName(h, "tid", "thread_name") },
    { head: "ms", value: (h) => h.held_ms, show: (h) => ms(h.held_ms), number: true },
    { head: "meanwhile", value: (h) => h.place, show: (h) => (h.did ? [`${h.did} ${ms(h.did_ms)} `, el("code", {}, h.place)] : "no wait of 1 ms") },
  ];
  return [
    note(threadsOf(r)),
    (r.meanwhile || []).length ? sortable(figures, r.meanwhile, { sort: 2, class: "cards" }) : null,
    (r.lock_holders || []).length ? sortable(lockers, r.lock_holders, { sort: 1, class: "cards" }) : null,
    (r.holders || []).length ? sortable(holders, r.holders, { sort: 1, class: "cards" }) : null,
  ];
}

function missingOf(r) {
  const lines = (r.part_missing || []).map((name) => partWords(name)).concat((r.not_measured || []).map(reasonWords));
  const pending = (r.pending || []).map((p) => note(`not yet stored: the latest sums of waits, which name code of short waits and what a pool's threads did: ask again in ${p.wait_s} s`));
  return (lines.length ? lines.map((line) => note(`not measured: ${line}`)) : [note("not measured: nothing, all parts were")]).concat(pending);
}

function requestCard(r, i, all) {
  return el("article", {}, all.length > 1 ? el("h2", {}, headOf(r)) : null, stackedBar(partList(r), r.duration_ms), section("Cause and fix", causesOf(r)),
    factsOf(r), section("Where the time went", waterfall(r)),
    r.causes ? section("What happened meanwhile", timeline(number(r.from_us), number(r.to_us), lanesOf(r)), leftOut([r]), beside(r)) : null,
    section("Not measured", missingOf(r)));
}

// ---- spans ----

const SPAN_PARTS = [
  ["accept_ms", "in the listener's accept queue"], ["client_wait_ms", "accepted, but the client had sent nothing"],
  ["handoff_ms", "waiting for a worker thread"], ["gc_ms", "stopped by garbage collections"], ["gil_ms", "in the span, waiting for the GIL"],
  ["lock_ms", "in the span, waiting for a lock"], ["net_ms", "in the span, waiting for the network"], ["disk_ms", "in the span, waiting for a disk"],
  ["page_fault_ms", "in the span, waiting for a page of memory"], ["sleep_ms", "in the span, asleep"],
  ["poll_ms", "in the span, waiting for several descriptors (an event loop)"], ["pipe_ms", "in the span, waiting for a pipe"],
  ["child_ms", "in the span, waiting for a child process"], ["other_ms", "in the span, off the CPU otherwise"],
  ["run_queue_ms", "in the span, ready to run without a CPU"], ["throttled_ms", "in the span, stopped by a CPU quota"],
  ["cpu_ms", "the rest of the span"], ["rest_ms", "outside of all that: network, proxies, the server's own queue or event loop"],
];

function spanSums(span) {
  const parts = span.request, has = (key) => parts[key] !== null && parts[key] !== undefined;
  return section(`Span ${clean(span.name)}: where ${ms(parts.total_ms)} ms went`,
    note(`the span says ${ms(parts.span_ms)} ms${has("caller_ms") ? `, its caller waited ${ms(parts.caller_ms)} ms` : ""}`),
    el("table", {}, el("tbody", {}, SPAN_PARTS.filter(([key]) => has(key) && parts[key] >= 0.05).map(([key, words]) =>
      el("tr", {}, el("td", { class: "number" }, ms(parts[key])), el("td", {}, words))))),
    (parts.not_measured || []).map((reason) => note(`not measured: ${reason}`)),
    (parts.sampled || []).map((tracker) => note(`an estimate: of ${tracker} only some rows were kept then, for the governor's limit`)));
}

const SERVICE_COLOURS = ["#1c7ed6", "#5c8374", "#8d6e63", "#7b6a9c", "#a08335", "#9c5d6b", "#4f7a8f", "#666f7a"];

// [span, depth] of each span below the one that called it, in the order of their begins; of those without a known caller at depth 0.
function spanTree(spans) {
  const below = new Map(), known = new Set(spans.map((span) => span.span_id)), tree = [], seen = new Set();
  const sorted = [...spans].sort((a, b) => number(a.start_us) - number(b.start_us));
  for (const span of sorted) if (known.has(span.parent_id)) below.set(span.parent_id, [...(below.get(span.parent_id) || []), span]);
  const from = (root) => {
    for (const todo = [[root, 0]]; todo.length;) {
      const [span, depth] = todo.pop();
      if (seen.has(span)) continue;
      seen.add(span);
      tree.push([span, depth]);
      for (const child of [...(below.get(span.span_id) || [])].reverse()) todo.push([child, depth + 1]);
    }
  };
  sorted.filter((span) => !known.has(span.parent_id)).forEach(from);
  sorted.forEach(from); // callers that call each other are of no valid trace
  return tree;
}

function spanFacts(span) {
  return [span.kind, `span ${span.span_id}`, span.host, span.pid ? `pid ${span.pid}` : null, span.tid ? `thread ${span.tid}` : null].filter(Boolean).join(", ");
}

function spanLanes(spans, colourOf) {
  return spanTree(spans).slice(0, 200).map(([span, depth]) => ({
    name: `${ms((number(span.end_us) - number(span.start_us)) / 1e3)} ms ${span.service}: ${span.name}`, depth,
    events: [{ begin: number(span.start_us), end: number(span.end_us), colour: colourOf(span.service), text: spanFacts(span) }]
      .concat(eventsOf(span.gc, (c) => GENERATION_COLOURS[c.generation] || GENERATION_COLOURS[2], (c) => `collection, generation ${c.generation}`))
      .concat(eventsOf(span.waits, (w) => causeColour(w.cause), waitWords)),
  }));
}

// The sums of one span are shown, of more a table whose rows open.
function sumsOfSpans(spans, begin) {
  if (spans.length < 2) return spans.map(spanSums);
  const largest = ({ request }) => SPAN_PARTS.filter(([key]) => request[key] >= 0.05).sort(([a], [b]) => request[b] - request[a])[0];
  return section("Where the time of spans went", sortable([
    { head: "span", value: (s) => `${s.service}: ${s.name}` },
    { head: "from, ms", value: (s) => number(s.start_us), show: (s) => ms((number(s.start_us) - begin) / 1e3), number: true, narrow: false },
    { head: "ms", value: (s) => s.request.total_ms, show: (s) => ms(s.request.total_ms), number: true },
    { head: "most of it", value: (s) => (largest(s) ? `${ms(s.request[largest(s)[0]])} ms ${largest(s)[1]}` : "-") },
  ], spans, { sort: 2, show: 30, detail: spanSums, class: "cards" }));
}

function spansSection(spans) {
  const begin = Math.min(...spans.map((s) => number(s.start_us))), end = Math.max(...spans.map((s) => number(s.end_us)));
  const services = [...new Set(spans.map((s) => s.service))], colourOf = (service) => SERVICE_COLOURS[services.indexOf(service) % SERVICE_COLOURS.length];
  return [section("Spans of the trace",
    services.length > 1 ? el("div", { class: "legend" }, services.slice(0, 30).map((name) => el("span", { class: "key" }, swatch(colourOf(name)), shortened(name)))) : null,
    timeline(begin, end, spanLanes(spans, colourOf), { whole: "whole trace" }), leftOut(spans),
    spans.length > 200 ? note(`${count(spans.length - 200)} more ${plural(spans.length - 200, "span is", "spans are")} not drawn`) : null),
  sumsOfSpans(spans.filter((span) => span.request), begin)];
}

function showExplain(answer) {
  const requests = answer.requests || [], spans = answer.spans || [];
  if (requests.length === 1) page.head = headOf(requests[0]);
  return [answer.cut ? note("the trace has more requests or spans than are shown") : null, requests.map(requestCard),
    spans.length ? spansSection(spans) : null];
}
