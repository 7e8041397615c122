// Puts the page together when all of the script is there.

const VIEWS = { explain: (b) => showExplain(b), requests: (b) => showRequests(b), gil: (b) => showGil(b), offcpu: (b) => showOffcpu(b),
  timeline: (b) => showTimeline(b) };

// light, dark, or as the system is
function themeButton() {
  const root = document.documentElement;
  return el("button", { type: "button", class: "theme", onclick: () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  } }, "light / dark");
}

addEventListener("DOMContentLoaded", () => {
  const view = VIEWS[page.kind];
  const main = el("main", {}, view ? view(page.body) : note(`a page of kind ${page.kind} is not known to this viewer`));
  document.body.append(
    el("header", {}, el("h1", {}, page.head || page.title), themeButton()), main,
    el("footer", {}, note(`made ${page.made} UTC by underspan ${page.version}; times are UTC`)));
});
