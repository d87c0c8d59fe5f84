// Elements and numbers. Whatever comes from the data goes through make or draw, whose children are text nodes:
// a node's name can hold any characters and stays a name.

function make(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const MISSING = "–";
const MINUS = "\u2212";

function counted(value) {
  return known(value) ? value.toLocaleString("en-US") : MISSING;
}

function percent(value, digits = 1) {
  return known(value) ? `${(100 * value).toFixed(digits)}%` : MISSING;
}

// Three significant digits, whatever the size; an exponent only where zeros would hide the number.
function plain(value) {
  if (!known(value)) return MISSING;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US").replace("-", MINUS);
  if (size < 1e-4) return value.toExponential(1).replace(/-/g, MINUS);
  return value.toPrecision(3).replace("-", MINUS);
}

function signed(value) {
  return known(value) && value > 0 ? `+${plain(value)}` : plain(value);
}

function bytesText(value) {
  if (!known(value)) return MISSING;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function secondsText(value) {
  if (!known(value)) return MISSING;
  if (value >= 3600) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  if (value >= 120) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${value < 10 ? value.toFixed(2) : value.toFixed(1)} s`;
}

// Errors have the unit of the target; every other metric is a share.
const isError = (metric) => ["mae", "rmse"].includes(metric);
const scored = (metric, value, digits = 2) => (isError(metric) ? plain(value) : percent(value, digits));
const words = (name) => String(name).replaceAll("_", " ");

function shortened(text, characters) {
  const letters = [...String(text)];
  return letters.length <= characters ? String(text) : `${letters.slice(0, Math.max(1, characters - 1)).join("")}…`;
}

function table(columns, rows, options = {}) {
  return make("table", { class: options.class },
    options.caption ? make("caption", {}, options.caption) : null,
    make("thead", {}, make("tr", {}, columns.map((column, place) =>
      make("th", { scope: "col", class: place < (options.left ?? 1) ? "left" : null }, column)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell, place) =>
      place === 0 ? make("th", { scope: "row" }, cell) : make("td", { class: place < (options.left ?? 1) ? "left" : null }, cell))))));
}

// A box of its own, so that a wide table never makes the page scroll sideways; in the Tab order, so that keys scroll it.
function scrolling(name, ...children) {
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, ...children);
}

// Tables of numbers are made when they are opened: thousands of rows would delay the page for readers of charts.
function folded(summary, build) {
  const details = make("details", {}, make("summary", {}, summary));
  details.addEventListener("toggle", () => details.append(build()), { once: true });
  return details;
}

async function copyText(text, source) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages from disk may have no clipboard: select the text, so that the usual keys copy it.
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  }
}

function command(text) {
  const code = make("code", {}, text);
  const button = make("button", { type: "button", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copyText(text, code)) ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return make("div", { class: "command" }, make("pre", {}, code), button);
}
