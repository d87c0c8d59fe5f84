// Put the page together. A section that fails shows a message and leaves the others alone.

const SECTIONS = [
  ["summary", "Summary", headlineSection],
  ["baselines", "Beside plain baselines", baselinesSection],
  ["curves", "Learning curves", historySection],
  ["tuning", "How the settings were found", tuningSection],
  ["classes", "Each class", classesSection],
  ["confusion", "Confusion matrix", confusionSection],
  ["slices", "Accuracy by class, degree and homophily", sliceSection],
  ["calibration", "Calibration", calibrationSection],
  ["composition", "Composition of token lists", compositionSection],
  ["neighbours", "What the neighbours add", neighboursSection],
  ["faithfulness", "Faithfulness", faithfulnessSection],
  ["rewiring", "Rewiring", rewiringSection],
  ["criteria", "Four criteria", criteriaSection],
  ["stages", "Time and memory", stageSection],
  ["explorer", "Token explorer", explorerSection],
  ["transfer", "What the virtual connections do to this node", transferSection],
];

function themeButton() {
  const { dataset } = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const button = make("button", { type: "button", class: "theme" });
  const name = () => { button.textContent = dark() ? "Light colours" : "Dark colours"; };
  button.addEventListener("click", () => { dataset.theme = dark() ? "light" : "dark"; name(); });
  system.addEventListener("change", name);
  name();
  return button;
}

// The address holds the node of the explorer, so links inside the page only move the view and the focus.
function pageLink(id, text, options = {}) {
  return make("a", { ...options, href: `#${id}`, click: (event) => {
    event.preventDefault();
    const heading = document.getElementById(`${id}-title`);
    heading.scrollIntoView();
    heading.focus({ preventScroll: true });
  } }, text);
}

function sectionOf(id, title, content) {
  return make("section", { id, "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title`, tabindex: "-1", class: id === "summary" ? "hidden" : null }, title), ...content.filter(Boolean));
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  neighbourKinds(data.explorer?.layout).forEach(lookOf);  // before any section: looks are given in the order of the list
  const made = [];
  for (const [id, title, build] of SECTIONS) {
    let content;
    try {
      content = build(data);
    } catch (error) {
      console.error(`${title}:`, error);
      content = [make("p", {}, "This section cannot be drawn: its numbers are not as expected.")];
    }
    if (!content) continue;
    made.push({ id, title, content });
    document.getElementById("report").append(sectionOf(id, title, content));
  }
  const words = wordsSection([...document.querySelectorAll("#report > section")]);
  if (words) {
    made.push({ id: "words", title: "Words", content: words });
    document.getElementById("report").append(sectionOf("words", "Words", words));
  }
  const others = made.filter(({ id }) => id !== "summary" && id !== "explorer");
  const explorer = made.find(({ id }) => id === "explorer");
  const top = document.getElementById("top");
  top.append(make("div", { class: "bar-top" }, make("h1", {}, data.title ?? "Report"), themeButton()));
  if (made.length > 1) {
    top.append(make("nav", { "aria-label": "Sections" }, make("ul", {},
      explorer ? make("li", {}, pageLink("explorer", "Token explorer: why each node?", { class: "to-explorer" })) : null,
      others.map(({ id, title }) => make("li", {}, pageLink(id, title))))));
  }
  document.getElementById("end").append(`VCR-Graphormer report${data.created ? `, made ${data.created}` : ""}.`);
  const skip = document.querySelector(".skip");
  skip.addEventListener("click", (event) => { event.preventDefault(); document.getElementById("report").focus(); });
  redraw();
  explorer?.content.begin?.();
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); });
}

start();
