"use strict";
// Elements, texts and numbers. Names in the data come from untrusted processes and clients: they reach the page as text nodes only,
// with control and direction characters replaced.

const page = JSON.parse(document.getElementById("data").textContent);

const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function clean(text) {
  return String(text).replace(UNSAFE, "\ufffd");
}

const LONGEST = 160; // characters of a name that are shown

// A name with its begin and end, where it is long; all of it on hovering.
function shortened(text) {
  const whole = clean(text);
  if (whole.length <= LONGEST) return whole;
  return el("span", { title: whole.slice(0, 4000) }, `${whole.slice(0, LONGEST / 2)}\u2026${whole.slice(-LONGEST / 2 + 1)}`);
}

// el("td", { class: "number", onclick: f }, "text", node, ...): null children are left out.
function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : clean(child));
  }
  return node;
}

// Milliseconds with digits that fit the size; "-" for unmeasured values, never 0.
function ms(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  const digits = size >= 1000 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// The s of a word behind count(value), or one of two forms.
function plural(value, one = "", many = "s") {
  return count(value) === "1" ? one : many;
}

function count(value) {
  if (value === null || value === undefined) return "-";
  return Number(value).toLocaleString("en-US", { maximumFractionDigits: 1 });
}

function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "-";
}

// ClickHouse may quote 64-bit numbers; null stays null.
function number(value) {
  return value === null || value === undefined ? null : Number(value);
}

function utc(us) {
  return new Date(Number(us) / 1000).toISOString().replace("T", " ").slice(0, 23);
}

function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), ...children);
}

function note(text) {
  return el("p", { class: "note" }, text);
}

