// Waits by lock, and storms, of `underspan offcpu -o FILE.html`.

function lockName(lock) {
  return lock.address || (lock.message ? "a message" : "not known which");
}

function least(lock, text) {
  return lock.sampled ? `\u2265 ${text}` : text;
}

function lockDetail(lock) {
  return [
    sortable([
      { head: "thread that ended waits", value: (w) => w.thread },
      { head: "times", value: (w) => w.times, show: (w) => count(w.times), number: true },
      { head: "others had waited, ms", value: (w) => w.held_ms, show: (w) => least(lock, ms(w.held_ms)), number: true },
    ], lock.wakers, { sort: 2 }),
    sortable([
      { head: "waited in", value: (p) => p.place, show: (p) => el("code", {}, p.place) },
      { head: "waits", value: (p) => p.waits, show: (p) => count(p.waits), number: true },
      { head: "ms", value: (p) => p.ms, show: (p) => ms(p.ms), number: true },
    ], lock.places, { sort: 2 }),
  ];
}

function lockTable(locks) {
  return sortable([
    { head: "ms", value: (l) => l.ms, show: (l) => ms(l.ms), number: true },
    { head: "waits", value: (l) => l.waits, show: (l) => count(l.waits), number: true },
    { head: "longest, ms", value: (l) => l.longest_ms, show: (l) => ms(l.longest_ms), number: true },
    { head: "threads", value: (l) => l.threads, show: (l) => least(l, count(l.threads)), number: true, narrow: false },
    { head: "at once", value: (l) => l.at_once, show: (l) => least(l, count(l.at_once)), number: true },
    { head: "waited in", value: (l) => l.place, show: (l) => el("code", {}, l.place) },
    { head: "lock", value: lockName, show: (l) => el("code", {}, lockName(l)), whole: true },
    { head: "pid", value: (l) => l.host_pid, number: true, narrow: false },
    { head: "mostly ended by", value: (l) => (l.wakers.length ? l.wakers[0].thread : "-") },
  ], locks, { sort: 0, show: 30, class: "cards", detail: lockDetail });
}

function showLocks(by) {
  if (!by || !by.locks.length) return null;
  return section("Locks", by.storms.map((storm) => note(storm.said)), lockTable(by.locks),
    note("Single waits, of off_cpu.min_duration_us and longer; shorter ones are in the sums of the stacks only."),
    by.left_out ? note(`${count(by.left_out)} more ${plural(by.left_out, "wait is", "waits are")} not included, for their number`) : null);
}
