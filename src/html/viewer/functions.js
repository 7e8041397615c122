// Functions of a flame graph: the time of each in all its places, and its callers and callees.

// { name, us, before, self, selfBefore } of each function, recursion counted once. Self: it called nothing but the wait, or computed.
function functionTotals(stacks) {
  const totals = new Map();
  for (const stack of stacks) {
    const names = stack.names.slice(1, stack.last).map(withoutLine);
    for (const name of new Set(names)) {
      if (!totals.has(name)) totals.set(name, { name, us: 0, before: 0, self: 0 });
      const sum = totals.get(name);
      sum.us += stack.us;
      sum.before += stack.before;
      if (name === names[names.length - 1]) sum.self += stack.us;
    }
  }
  return totals;
}

// Two trees: who called the function, from it up to the threads, and what it called. Of a recursion the outermost call is the function.
function sandwich(stacks, name, nameOf) {
  const callers = [], callees = [];
  for (const stack of stacks) {
    const names = stack.names.map((frame, i) => nameOf(stack, i)), at = stack.names.findIndex((frame, i) => withoutLine(frame) === name || names[i] === name);
    if (at < 0) continue;
    callers.push({ ...stack, names: names.slice(0, at).reverse() });
    callees.push({ ...stack, names: names.slice(at + 1, stack.last + 1) });
  }
  return [["callers of", callers], ["callees of", callees]].map(([words, side]) => buildTree(side, `${words} ${name}`, (stack, i) => stack.names[i]));
}

// Own functions, with a box for those of libraries.
function functionTable(totals, total, onFocus) {
  const own = totals.filter((t) => !isLibrary(t.name)), place = el("div", {});
  const columns = [
    { head: "total, ms", value: (t) => t.us, show: (t) => ms(t.us / 1e3), number: true },
    { head: "share", value: (t) => t.us, show: (t) => percent(t.us, total), number: true },
    { head: "self, ms", value: (t) => t.self, show: (t) => ms(t.self / 1e3), number: true },
    { head: "function: its callers and callees", value: (t) => t.name,
      show: (t) => el("button", { type: "button", class: "link", onclick: () => onFocus(t.name) }, shortened(t.name)) },
  ];
  if (page.body.compared)
    columns.splice(1, 0, { head: "change, ms", value: (t) => Math.abs(t.us - t.before), show: (t) => (t.us > t.before ? "+" : "") + ms((t.us - t.before) / 1e3), number: true },
      { head: "before, ms", value: (t) => t.before, show: (t) => ms(t.before / 1e3), number: true, narrow: false });
  const show = (rows) => place.replaceChildren(sortable(columns, rows, { sort: page.body.compared ? 1 : 0, show: 30, class: "cards" }));
  const libraries = el("input", { type: "checkbox", checked: !own.length, onchange: () => show(libraries.checked ? totals : own) });
  show(own.length ? own : totals);
  return [el("div", { class: "controls" }, el("label", {}, libraries, "functions of libraries, too")), place];
}
