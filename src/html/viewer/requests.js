// `underspan requests --html`: slow requests and endpoints with their parts as bars, threads missing, what was not measured.

function nameOfRequest(row, path) {
  return `${row.method ? row.method + " " : ""}${row[path] || "(path not seen)"}`;
}

function requestDetail(row) {
  const parts = partsOf(row), whole = number(row.duration_ns) / 1e6;
  const facts = [
    ...(nameOfRequest(row, "path").length > LONGEST ? [["request", nameOfRequest(row, "path")]] : []),
    ["request id", row.request_id], ["trace id", row.trace_id || "none in its head"], ["host", row.host],
    ["pid, thread", `${row.pid}, ${row.tid} ${row.thread_name || ""}`], ["peer", `${row.peer_ip} port ${row.peer_port}`],
    ["answer", row.outcome], ["bytes in, out", `${count(row.bytes_in)}, ${count(row.bytes_out)}`],
    ["further threads of its process with a request when it was read", row.busy_threads === null ? "not measured" : count(row.busy_threads)],
    ["requests waiting at its arrival", row.queue_depth === null ? "not measured" : count(row.queue_depth)],
    ["stands for", `${count(row.weight)} request${plural(row.weight)}`],
  ];
  return el("div", { class: "columns" }, partsTable(parts, whole),
    el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("p", {}, "The whole story: ", el("code", {}, `underspan explain ${row.request_id}`)),
    row.causes && row.causes.length ? causeList(row.causes) : null,
    (row.not_measured || []).map((reason) => note(`not measured: ${reasonWords(reason)}`)));
}

function reasonWords(reason) {
  return (page.reasons || {})[reason] || reason;
}

// As the text has it, which also names only other ends than an answer.
function whereTheTimeWent(row) {
  return describeParts(partsOf(row), 3) + (row.outcome && row.outcome !== "answered" ? `, ${row.outcome}` : "");
}

function requestsTable(rows) {
  const longest = Math.max(...rows.map((row) => number(row.duration_ns) / 1e6), 0);
  return sortable([
    { head: "UTC", value: (r) => number(r.start_us), show: (r) => utc(r.start_us).slice(11), narrow: false, whole: true },
    { head: "request", value: (r) => nameOfRequest(r, "path") },
    { head: "status", value: (r) => number(r.status), show: (r) => (r.status === null ? "-" : r.status), number: true },
    { head: "ms", value: (r) => number(r.duration_ns), show: (r) => ms(number(r.duration_ns) / 1e6), number: true },
    { head: "where the time went", value: whereTheTimeWent, show: (r) => [stackedBar(partsOf(r), longest), el("small", {}, whereTheTimeWent(r))] },
  ], rows, { sort: 3, detail: requestDetail, class: "cards requests" });
}

function endpointsTable(rows, against) {
  const mean = (r) => number(r.server_sum_ns) / Math.max(number(r.requests), 1) / 1e6;
  const change = (r) => (r.before ? mean(r) - mean(r.before) : null);
  const parts = (r) => partsOf(r, number(r.requests)).filter((p) => !p.name.startsWith("client"));
  const whole = (r) => (r ? parts(r).reduce((sum, p) => sum + (p.ms || 0), 0) : 0);
  const longest = Math.max(...rows.map((r) => Math.max(whole(r), whole(r.before))), 0);
  const before = (r) => el("div", { class: "before" }, r.before ? [stackedBar(parts(r.before), longest),
    el("small", {}, `before, ${count(r.before.requests)} request${plural(r.before.requests)}, mean ${ms(mean(r.before))} ms: ${describeParts(parts(r.before), 3)}`)]
    : el("small", {}, against.measured_s > 0 ? "before: no request" : "before: not measured"));
  return sortable([
    { head: "endpoint", value: (r) => `${nameOfRequest(r, "endpoint")} :${r.server_port}` },
    { head: "requests", value: (r) => number(r.requests), show: (r) => count(r.requests), number: true },
    { head: "mean ms", value: mean, show: (r) => ms(mean(r)), number: true },
    ...(against ? [{ head: "change, ms", value: change, show: (r) => (change(r) > 0 ? "+" : "") + ms(change(r)), number: true }] : []),
    { head: "p99 ms", value: (r) => number(r.server_p99_ns), show: (r) => ms(number(r.server_p99_ns) / 1e6), number: true },
    { head: "hidden s", value: (r) => number(r.hidden_ns),
      show: (r) => (r.hidden_ns === null ? "-" : (number(r.hidden_ns) / 1e9).toFixed(2)), number: true },
    { head: "a request, in the mean", value: (r) => describeParts(parts(r), 3),
      show: (r) => [stackedBar(parts(r), longest), el("small", {}, describeParts(parts(r), 3)), against ? before(r) : null] },
  ], rows, { sort: against ? 3 : 4, class: "cards requests" });
}

function listenersTable(rows) {
  const name = (r) => (r.kind === "unix" ? `${r.comm} unix` : `${r.comm} :${r.server_port}`);
  const figure = (key) => ({ value: (r) => number(r[key]), show: (r) => count(r[key]), number: true });
  return [
    sortable([
      { head: "listener", value: name },
      { head: "arrivals/s", ...figure("per_second") },
      { head: "busiest second", ...figure("peak_per_second") },
      { head: "service ms", ...figure("service_ms") },
      { head: "threads", value: (r) => number(r.threads), number: true,
        show: (r) => (r.missing === null && r.peak_missing === null ? "-" : count(r.threads)) },
      { head: "missing", ...figure("missing") },
      { head: "missing in the busiest second", ...figure("peak_missing") },
    ], rows, { sort: 6, class: "cards" }),
    note("missing = arrivals a second x service time - threads; below 0: to spare."),
    rows.filter((r) => r.why_not).map((r) => note(`${name(r)}: not known: ${r.why_not}`)),
  ];
}

function notMeasured(report) {
  const lines = (report.not_measured || []).map((reason) =>
    note(`not measured in ${count(reason.requests)} of ${count(report.requests)} request${plural(report.requests)}: ${reason.reason}: ${reason.words}`));
  const partly = report.partly_measured ? [note(`measured for ${report.partly_measured}: all figures are of that time`)] : [];
  return partly.concat(lines, (report.notes || []).map(note));
}

// Cause and fix of the slowest request of each endpoint that the report explains.
function inShort(slowest) {
  return slowest.filter((r) => r.causes).map((r) => [
    el("h3", {}, shortened(nameOfRequest(r, "path")), `: ${ms(number(r.duration_ns) / 1e6)} ms`),
    r.causes.length ? causeList(r.causes.slice(0, 2)) : note("no part stands out"),
  ]);
}

// What a window was chosen by.
function chosenBy(report) {
  const by = ["service", "namespace", "pod", "container", "host"].filter((name) => report[name]).map((name) => `${name} ${report[name]}`);
  if ((report.pids || []).length) by.push(`pids ${report.pids.slice(0, 16).join(", ")}`);
  return by.length ? `${by.join(", ")}: ` : "";
}

// What a list of the page has no room for.
function noRoom(report, list, words) {
  const left = number((report.left_out || {})[list]);
  return left ? note(`and ${count(left)} more ${words(left)}: --json has ${plural(left, "it", "them")}`) : null;
}

function showRequests(report) {
  const slowest = report.slowest || [], endpoints = report.endpoints || [], listeners = report.listeners || [];
  const seconds = (report.to_us - report.from_us) / 1e6;
  const cut = (report.endpoints_total || 0) - endpoints.length;
  return [
    note(`${chosenBy(report)}${count(report.requests)} request${plural(report.requests)} (${count(report.rows)} row${plural(report.rows)}) ended in ${count(seconds)} s, until ${utc(report.to_us)} UTC`),
    slowest.some((r) => r.causes) ? section("Cause and fix of the slowest", inShort(slowest)) : null,
    partsLegend([...slowest.map((r) => partsOf(r)), ...endpoints.map((r) => partsOf(r, number(r.requests)))]),
    slowest.length ? section("Slowest requests", requestsTable(slowest), noRoom(report, "slowest", (n) => `request${plural(n)} with less`)) : null,
    report.by && !slowest.length ? note(`no request with ${report.by} in that time`) : null,
    endpoints.length ? section("Endpoints", endpointsTable(endpoints, report.against),
      report.against ? note(`before: ${utc(report.against.from_us)} to ${utc(report.against.to_us)} UTC, measured for ${count(report.against.measured_s)} s`) : null,
      cut > 0 ? note(`and ${count(cut)} endpoint${plural(cut)} with less`) : null) : null,
    listeners.length ? section("Threads missing", listenersTable(listeners), noRoom(report, "listeners", (n) => `listener${plural(n)}`)) : null,
    section("Not measured", notMeasured(report).length ? notMeasured(report) : note("all parts of all requests were measured")),
  ];
}
