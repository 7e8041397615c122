// `underspan timeline -o FILE.html`: requests, hand-offs, the holder of the GIL, and what each thread did, process by process.

const LANES_SHOWN = 24; // of a process, at first
const BEFORE_THREAD = ["accept_queue", "client_wait", "queue", "pool_wait"];

function lookColour(look) {
  const [kind, name] = look.split(" ");
  if (kind === "gc") return GENERATION_COLOURS[name] || GENERATION_COLOURS[2];
  return kind === "part" ? partColour(name) : causeColour(name);
}

function lookWords(look) {
  const [kind, name] = look.split(" ");
  if (kind === "gc") return `collection, generation ${name}`;
  return kind === "part" ? partWords(name) : `off the CPU: ${name}`;
}

// [begin_us, duration_ns, look, text, parts in us ...]; a sample: [begin_us, 0, look, text, CPU time in us]
function eventOf(event, from_us, texts) {
  const begin = from_us + event[0], look = texts[event[2]], pieces = [], sample = !event[1];
  let at = begin;
  if (!sample) event.slice(4).forEach((us, i) => {
    if (us) pieces.push({ begin: at, end: at + us, colour: partColour(BEFORE_THREAD[i]) });
    at += us;
  });
  return { begin, end: begin + event[1] / 1e3, look, colour: lookColour(look), text: texts[event[3]], pieces, computed: sample ? event[4] : 0 };
}

function lanesOfWindow(w, texts) {
  return w.lanes.map((lane) => ({
    name: lane.host_tid ? `${lane.name} (${lane.host_tid})` : lane.name, group: `${lane.process}, pid ${lane.host_pid}`, thread: lane.host_tid !== 0,
    events: lane.events.map((event) => eventOf(event, w.from_us, texts)),
  }));
}

function timeIn(lane) {
  return lane.events.reduce((sum, e) => sum + e.end - e.begin + e.computed, 0);
}

// Of each process its own lanes, then the threads with most time, up to a limit.
function chosenLanes(lanes, limit) {
  return grouped(lanes, (lane) => lane.group).flatMap(([, own]) => [...own.filter((l) => !l.thread),
    ...own.filter((l) => l.thread).map((lane) => [timeIn(lane), lane]).sort((a, b) => b[0] - a[0]).map(([, lane]) => lane)].slice(0, limit));
}

function lookLegend(lanes) {
  const looks = new Set();
  for (const lane of lanes)
    for (const event of lane.events) {
      looks.add(event.look);
      event.pieces.forEach((piece) => looks.add(`part ${BEFORE_THREAD.find((name) => partColour(name) === piece.colour)}`));
    }
  return el("div", { class: "legend" }, [...looks].sort().map((look) => el("span", { class: "key" }, swatch(lookColour(look)), lookWords(look))));
}

// `onEvent`: shows the event in its lane.
function longestTable(lanes, onEvent) {
  const events = lanes.flatMap((lane) => lane.events.map((event) => ({ lane, ...event, us: event.end - event.begin }))).filter((event) => event.us);
  return sortable([
    { head: "UTC", value: (e) => e.begin, show: (e) => utc(e.begin).slice(11), whole: true },
    { head: "ms", value: (e) => e.us, show: (e) => ms(e.us / 1e3), number: true },
    { head: "what", value: (e) => e.text, show: (e) => [swatch(e.colour),
      el("button", { type: "button", class: "link", title: "show it in its lane", onclick: () => onEvent(e) }, shortened(e.text))] },
    { head: "thread", value: (e) => e.lane.name },
    { head: "process", value: (e) => e.lane.group, narrow: false },
  ], events.sort((a, b) => b.us - a.us).slice(0, 1000), { sort: 1, show: 40, class: "cards" });
}

// The time in which something happened, with a margin.
function timeOfEvents(w, lanes) {
  const events = lanes.flatMap((lane) => lane.events), begin = events.reduce((least, e) => Math.min(least, e.begin), w.to_us);
  const end = events.reduce((most, e) => Math.max(most, e.end), w.from_us), margin = (end - begin) / 50;
  return [Math.max(w.from_us, begin - margin), Math.min(w.to_us, end + margin)];
}

function windowSection(title, w, texts) {
  const all = lanesOfWindow(w, texts), place = el("div", {}), few = chosenLanes(all, LANES_SHOWN);
  let drawn;
  const draw = (lanes) => {
    drawn = timeline(w.from_us, w.to_us, lanes, { whole: "whole time", clock: true, seen: timeOfEvents(w, all) });
    place.replaceChildren(drawn);
  };
  const more = el("button", { type: "button", class: "more", hidden: few.length === all.length,
    onclick: () => { draw(chosenLanes(all, Infinity)); more.hidden = true; } }, `${count(all.length - few.length)} more lane${plural(all.length - few.length)}: show`);
  const show = (event) => {
    if (!few.includes(event.lane) && !more.hidden) more.click();
    drawn.look(event.begin - event.us / 4, event.end + event.us / 4);
    place.scrollIntoView({ block: "nearest" });
  };
  draw(few);
  return [section(title, note(w.title), all.length ? [lookLegend(all), place, more] : note("no event"), w.notes.map(note)),
    all.length ? section(`Longest: ${title.toLowerCase()}`, longestTable(all, show)) : null];
}

function showTimeline(body) {
  page.head = "Timeline";
  return [windowSection("Threads and requests", body.window, body.texts),
    body.before ? windowSection("Before", body.before, body.texts) : null, (body.notes || []).map(note)];
}
