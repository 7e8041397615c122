// A table that sorts by its heads and filters by a text.
// columns: [{ head, value: row => number|string (order), show: row => text|node, number: bool, narrow: false leaves it out on phones,
// whole: in one line }]

function sortable(columns, rows, options) {
  const state = { column: options.sort ?? -1, down: true, filter: "", shown: options.show || 200 };
  const body = el("tbody", {});
  const heads = columns.map((column, i) => el("th", { class: classOf(column), scope: "col" },
    el("button", { type: "button", onclick: () => sortBy(i) }, column.head)));
  const more = el("button", { type: "button", class: "more", onclick: () => { state.shown *= 4; draw(); } });
  const table = el("table", { class: options.class || "" }, el("thead", {}, el("tr", {}, heads)), body);
  const search = el("input", { type: "search", placeholder: "filter", "aria-label": "filter rows",
    oninput: () => { state.filter = search.value.toLowerCase(); draw(); } });

  function shown(content) {
    return typeof content === "string" ? shortened(content) : content;
  }

  function classOf(column) {
    return [column.number ? "number" : "", column.narrow === false ? "wide" : "", column.whole ? "whole" : ""].join(" ").trim() || null;
  }

  function sortBy(i) {
    state.down = state.column === i ? !state.down : columns[i].number === true;
    state.column = i;
    draw();
  }

  function compare(a, b) {
    const x = columns[state.column].value(a), y = columns[state.column].value(b);
    const order = x === null ? -1 : y === null ? 1 : x < y ? -1 : x > y ? 1 : 0;
    return state.down ? -order : order;
  }

  function matches(row) {
    return !state.filter || columns.some((c) => String(c.value(row)).toLowerCase().includes(state.filter));
  }

  function openRow(row, line) {
    if (line.nextSibling && line.nextSibling.classList.contains("detail")) {
      line.nextSibling.remove();
      line.setAttribute("aria-expanded", "false");
      return;
    }
    line.after(el("tr", { class: "detail" }, el("td", { colspan: columns.length }, options.detail(row))));
    line.setAttribute("aria-expanded", "true");
  }

  function lineOf(row) {
    const line = el("tr", options.detail ? { tabindex: 0, "aria-expanded": "false", class: "opens" } : {},
      columns.map((c) => el("td", { class: classOf(c), "data-head": c.head }, shown(c.show ? c.show(row) : c.value(row)))));
    if (options.detail) {
      line.addEventListener("click", () => openRow(row, line));
      line.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        openRow(row, line);
      });
    }
    return line;
  }

  function draw() {
    const chosen = rows.filter(matches);
    if (state.column >= 0) chosen.sort(compare);
    body.replaceChildren(...chosen.slice(0, state.shown).map(lineOf));
    heads.forEach((head, i) => head.setAttribute("aria-sort",
      i !== state.column ? "none" : state.down ? "descending" : "ascending"));
    more.hidden = chosen.length <= state.shown;
    more.textContent = `${count(chosen.length - state.shown)} more rows: show`;
  }

  draw();
  return el("div", { class: "table" }, rows.length > 8 ? search : null, el("div", { class: "scroll" }, table), more);
}
