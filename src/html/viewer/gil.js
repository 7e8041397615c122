// `underspan gil --html`: how long each thread waited for the GIL, and which thread held it at which line.

function shareBar(share) {
  const bar = el("span", { class: "bar", "aria-hidden": "true" }), piece = el("span", {});
  piece.style.width = `${Math.min(100, 100 * share)}%`;
  piece.style.background = partColour("gil");
  bar.append(piece);
  return bar;
}

// Of a window of a database a row may be several threads of a name.
function threadText(r) {
  if (r.threads > 1) return `${r.thread_name} (${r.threads} threads)`;
  return r.tid || r.host_tid ? `${r.thread_name} (${r.tid || r.host_tid})` : r.thread_name;
}

function waitersTable(rows, compared) {
  const figure = (head, key) => ({ head, value: (r) => number(r[key]), show: (r) => ms(number(r[key]) / 1e6), number: true });
  return sortable([
    { head: "thread", value: threadText },
    { head: "pid", value: (r) => r.host_pid || r.pid || "", number: true, narrow: false },
    { head: "waits", value: (r) => r.waits, show: (r) => count(r.waits), number: true },
    figure("waited, ms", "wait_ns"),
    { head: "of the time", value: (r) => r.share_of_time, number: true,
      show: (r) => [percent(r.share_of_time, 1), shareBar(r.share_of_time)] },
    figure("longest, ms", "max_ns"),
    ...(rows.some((r) => r.p99_ns !== null) ? [figure("p99, ms", "p99_ns")] : []),
    ...(compared ? [figure("before, ms", "before_ns")] : []),
  ], rows, { sort: 3, class: "cards" });
}

function holdersTable(rows) {
  return sortable([
    { head: "thread", value: threadText },
    { head: "held during waits, ms", value: (r) => r.wait_ns, show: (r) => ms(r.wait_ns / 1e6), number: true },
    { head: "share", value: (r) => r.share, show: (r) => [percent(r.share, 1), shareBar(r.share)], number: true },
    { head: "mostly at", value: (r) => (r.lines.length ? r.lines[0].line : ""),
      show: (r) => (r.lines.length ? el("code", {}, r.lines[0].line) : "not known: waits of less than a millisecond") },
  ], rows, {
    sort: 1, class: "cards",
    detail: (r) => sortable([
      { head: "line", value: (l) => l.line, show: (l) => el("code", {}, l.line) },
      { head: "waits", value: (l) => l.waits, show: (l) => count(l.waits), number: true },
      { head: "held during waits, ms", value: (l) => l.wait_ns, show: (l) => ms(l.wait_ns / 1e6), number: true },
    ], r.lines, { sort: 2 }),
  });
}

// The line that held the GIL longest while others waited, in any thread.
function mostHeld(report) {
  const lines = new Map();
  for (const holder of report.holders || [])
    for (const line of holder.lines) {
      const sum = lines.get(line.line) || { line: line.line, wait_ns: 0, held_ns: 0, threads: [] };
      sum.wait_ns += line.wait_ns;
      sum.held_ns += holder.wait_ns;
      sum.threads.push(threadText(holder));
      lines.set(line.line, sum);
    }
  const most = [...lines.values()].sort((a, b) => b.wait_ns - a.wait_ns)[0];
  if (!most || most.wait_ns * 10 < report.wait_ns) return null;
  const others = most.threads.length - 1, share = (ns) => percent(ns, Math.max(report.wait_ns, ns));
  const everywhere = most.held_ns > 1.2 * most.wait_ns ? `; ${others ? "they" : "it"} held it for ${ms(most.held_ns / 1e6)} ms (${share(most.held_ns)}), all lines together` : "";
  return causeList([{ ms: most.wait_ns / 1e6, fix: isMuch(report) ? "move that work to another process, or serve with more processes of fewer threads" : "",
    said: `(${share(most.wait_ns)}) of these waits: thread ${most.threads[0]}${others ? ` and ${others} more` : ""} held the GIL, in ${most.line}${everywhere}` }]);
}

// Of the measured time: below, a line is named, and no remedy.
function isMuch(report) {
  return report.wait_ns > report.duration_s * 1e9 * 0.002;
}

// All waits of all threads, and their share of the time.
function sumOf(report) {
  const whole = `${report.comm ? report.comm + ", " : ""}${count(report.duration_s)} s: ${count(report.waits)} wait${plural(report.waits)} for the GIL`;
  if (!report.waits) return whole;
  return `${whole}, ${ms(report.wait_ns / 1e6)} ms of all threads together, ${(100 * report.wait_ns / 1e9 / report.duration_s).toFixed(2)} % of that time` +
    (isMuch(report) ? "" : ": little; where requests waited says `underspan requests`");
}

function showGil(report) {
  const whole = page.title;
  page.title = "GIL waits";
  const unmeasured = (report.processes || []).filter((p) => !p.measured);
  const missing = unmeasured.map((p) => note(`process ${p.host_pid} (${p.comm}): not measured${p.reason ? ": " + p.reason : ": no Python"}`));
  if (!report.threads) return [section("Not measured", missing)];
  return [
    note(whole),
    note(sumOf(report)),
    mostHeld(report),
    report.threads.length ? section("Threads that waited", waitersTable(report.threads, Boolean(report.against))) : note("no thread waited for the GIL in that time"),
    report.holders.length ? section("Holders of the GIL during these waits", holdersTable(report.holders),
      report.holder_unknown_ns ? note(`no holder, or not known: ${ms(report.holder_unknown_ns / 1e6)} ms`) : null) : null,
    section("Not measured", note(report.not_measured), (report.notes || []).map(note),
      report.lost ? note(`${count(report.lost)} ${plural(report.lost, "wait has", "waits have")} no row: holders and lines are without ${plural(report.lost, "it", "them")}`) : null, missing),
  ];
}
