// Lanes of events over one time axis, drawn on a canvas: drag to zoom, arrow keys to walk through the events of a lane.
// lanes: [{ name, group: heading above the first lane of a group, depth: of a tree of lanes, in its order, which folds, events: [{ begin, end, colour, text, pieces: of the event, as events }] }],
// times in microseconds. whole: what all of the time is called; clock: times of day rather than since the begin; seen: the time shown
// at first. The element's look(from, to) shows a time.

const LANE = 20; // CSS pixels
const DEEPEST = 10; // steps by which names are moved to the right

function timeline(begin_us, end_us, lanes, { whole = "whole request", clock = false, seen = [begin_us, end_us] } = {}) {
  const view = { begin: seen[0], end: Math.max(seen[1], seen[0] + 1) };
  const status = el("p", { class: "status", "aria-live": "polite" }, "drag over a lane to zoom; arrow keys walk through its events");
  const axis = el("div", { class: "axis", "aria-hidden": "true" });
  const drawn = lanes.map((lane, i) => laneOf(lane, i && lanes[i - 1].group === lane.group && lanes[i - 1].name === lane.name && lane.depth === undefined));
  const reset = el("button", { type: "button", onclick: () => look(begin_us, end_us) }, whole);
  const inside = el("button", { type: "button", onclick: () => zoom(0.5) }, "zoom in");
  const outside = el("button", { type: "button", onclick: () => zoom(2) }, "zoom out");

  // What overlaps has further lanes: the first has the name.
  function laneOf(lane, further) {
    const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `${clean(lane.name)}: ${lane.events.length} event${plural(lane.events.length)}` });
    const self = { lane, canvas, at: -1, row: el("div", { class: "lane" }, el("span", { class: "lane-name", title: clean(lane.name) }, further ? "" : nameOf(lane)), canvas) };
    self.row.firstChild.style.paddingLeft = `${Math.min(lane.depth || 0, DEEPEST) * 12}px`;
    lane.events.sort((a, b) => a.begin - b.begin);
    canvas.addEventListener("mousemove", (event) => point(self, event));
    canvas.addEventListener("pointerdown", (event) => drag(self, event));
    canvas.addEventListener("keydown", (event) => walk(self, event));
    return self;
  }

  // A lane above others of a tree folds them.
  function nameOf(lane) {
    const below = descendants(lanes.indexOf(lane));
    if (!below) return lane.depth === undefined ? lane.name : el("span", { class: "leaf" }, lane.name);
    return el("button", { type: "button", class: "fold", "aria-expanded": "true", onclick: (event) => fold(lane, event.currentTarget) }, lane.name,
      el("small", {}, ` ${count(below)} below`));
  }

  function descendants(i) {
    let end = i + 1;
    while (end < lanes.length && lanes[end].depth > lanes[i].depth) end++;
    return end - i - 1;
  }

  function fold(lane, button) {
    lane.folded = !lane.folded;
    button.setAttribute("aria-expanded", String(!lane.folded));
    let above = Infinity; // depth of a folded lane
    for (const { lane: other, row } of drawn) {
      row.hidden = other.depth > above;
      if (!row.hidden) above = other.folded ? other.depth : Infinity;
    }
    draw();
  }

  function timeAt(canvas, event) {
    const box = canvas.getBoundingClientRect();
    return view.begin + ((event.clientX - box.left) / Math.max(box.width, 1)) * (view.end - view.begin);
  }

  function say(lane, event) {
    const from = clock ? `at ${utc(event.begin).slice(11)}` : `from ${ms((event.begin - begin_us) / 1e3)} ms on`;
    status.textContent = clean(`${lane.name}: ${event.text}${event.end > event.begin ? `, ${ms((event.end - event.begin) / 1e3)} ms` : ""}, ${from}`);
  }

  function point(self, event) {
    const at = timeAt(self.canvas, event), slack = ((view.end - view.begin) / Math.max(self.canvas.clientWidth, 1)) * 2;
    const found = self.lane.events.findLast((e) => e.begin - slack <= at && at <= e.end + slack);
    if (found) say(self.lane, found);
  }

  function drag(self, event) {
    const from = timeAt(self.canvas, event);
    self.canvas.addEventListener("pointerup", (up) => {
      const to = timeAt(self.canvas, up);
      if (Math.abs(to - from) > (view.end - view.begin) / 100) look(Math.min(from, to), Math.max(from, to));
    }, { once: true });
  }

  function walk(self, event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !self.lane.events.length) return;
    self.at = Math.min(Math.max(self.at + step, 0), self.lane.events.length - 1);
    say(self.lane, self.lane.events[self.at]);
    event.preventDefault();
  }

  function zoom(factor) {
    const middle = (view.begin + view.end) / 2, half = ((view.end - view.begin) * factor) / 2;
    look(Math.max(begin_us, middle - half), Math.min(end_us, middle + half));
  }

  function look(from, to) {
    view.begin = from;
    view.end = Math.max(to, from + 1);
    draw();
  }

  function paint({ lane, canvas }) {
    const width = Math.max(canvas.clientWidth, 1), scale = window.devicePixelRatio || 1, context = canvas.getContext("2d");
    canvas.width = width * scale;
    canvas.height = LANE * scale;
    context.scale(scale, scale);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const event of lane.events) {
      if (event.end < view.begin || event.begin > view.end) continue;
      const x = Math.max(0, ((event.begin - view.begin) / (view.end - view.begin)) * width);
      const right = Math.min(width, ((event.end - view.begin) / (view.end - view.begin)) * width);
      context.fillStyle = event.colour;
      if (right - x < 1) context.fillRect(Math.floor(x), 2, 1, LANE - 4); // a pixel of its own, not two pale ones
      else context.fillRect(x, 2, right - x, LANE - 4);
      for (const piece of event.pieces || []) {
        const from = Math.max(0, ((piece.begin - view.begin) / (view.end - view.begin)) * width);
        context.fillStyle = piece.colour;
        context.fillRect(from, 2, Math.min(width, ((piece.end - view.begin) / (view.end - view.begin)) * width) - from, LANE - 4);
      }
      if (right - x < 40) continue;
      context.save();
      context.beginPath();
      context.rect(x, 0, right - x - 2, LANE);
      context.clip();
      context.fillStyle = isLight((event.pieces && event.pieces.length ? event.pieces[0] : event).colour) ? "#111" : "#fff";
      context.fillText(clean(event.text), x + 3, LANE / 2);
      context.restore();
    }
  }

  function draw() {
    const marks = [0, 1, 2, 3, 4].map((i) => {
      const at = view.begin + (i / 4) * (view.end - view.begin);
      const mark = el("span", {}, clock ? utc(at).slice(11) : `${ms((at - begin_us) / 1e3)} ms`);
      mark.style.left = `${25 * i}%`;
      return mark;
    });
    axis.replaceChildren(...marks);
    drawn.forEach(paint);
  }

  const root = el("div", { class: "timeline" }, el("div", { class: "controls" }, reset, inside, outside),
    el("div", { class: "lane" }, el("span", { class: "lane-name" }, ""), axis),
    drawn.map((d, i) => [d.lane.group && (!i || lanes[i - 1].group !== d.lane.group) ? el("h3", {}, d.lane.group) : null, d.row]), status);
  root.look = (from, to) => look(Math.max(begin_us, from), Math.min(end_us, to));
  new ResizeObserver(draw).observe(root);
  return root;
}
