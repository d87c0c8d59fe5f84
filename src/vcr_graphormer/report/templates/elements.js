// Elements and numbers. All data goes through make or draw, whose children are text nodes. So a name that holds HTML
// is shown as text.

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

const isNumber = (value) => value !== null && value !== undefined && Number.isFinite(value);
const MISSING = "–";
const MINUS = "\u2212";

function counted(value) {
  return isNumber(value) ? value.toLocaleString("en-US") : MISSING;
}

function percent(value, digits = 1) {
  return isNumber(value) ? `${(100 * value).toFixed(digits)}%` : MISSING;
}

// Two probabilities with as many digits as tell them apart, three at most.
function percents(first, second) {
  const digits = [1, 2].find((count) => percent(first, count) !== percent(second, count)) ?? 3;
  return [percent(first, digits), percent(second, digits)];
}

// Three significant digits; an exponent only for very small numbers.
function plain(value) {
  if (!isNumber(value)) return MISSING;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US").replace("-", MINUS);
  if (size < 1e-4) return value.toExponential(1).replace(/-/g, MINUS);
  return value.toPrecision(3).replace("-", MINUS);
}

function signed(value) {
  return isNumber(value) && value > 0 ? `+${plain(value)}` : plain(value);
}

function bytesText(value) {
  if (!isNumber(value)) return MISSING;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function secondsText(value) {
  if (!isNumber(value)) return MISSING;
  if (value >= 3600) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  if (value >= 120) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${value < 10 ? value.toFixed(2) : value.toFixed(1)} s`;
}

// These metrics are fractions; every other one is an error, in the unit of the target or one of its own.
const FRACTIONS = ["accuracy", "macro_f1", "roc_auc", "average_precision", "balanced_accuracy"];
const isError = (metric) => !FRACTIONS.includes(metric);
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

// A box that scrolls, so that a wide table does not make the page scroll sideways. The Tab key reaches it.
function scrolling(name, ...children) {
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, ...children);
}

// Tables of numbers are made when they are opened, for thousands of rows would delay the page.
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
    // A page opened from disk may have no clipboard: select the text, so that the usual keys copy it.
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
