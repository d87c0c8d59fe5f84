// Charts. Each is a function of its width, so that text keeps its size on a phone; `redraw` calls them.

const CHARACTER = 6.9;  // a generous mean width of a character at 12 px
const plots = [];

function figure({ title, note, legend, paint, numbers, wide }) {
  const plot = make("div", { class: "plot" });
  plots.push({ plot, paint, width: 0 });
  return make("figure", { class: wide ? "wide" : null },
    make("figcaption", {}, make("h3", {}, title), note ? make("p", { class: "note" }, note) : null),
    legend ?? null, plot, numbers ? folded("Numbers", () => scrolling(`${title}, numbers`, numbers())) : null);
}

// Read all widths before drawing: to read a width after a drawing, the browser would lay out the page again.
function redraw() {
  const widths = plots.map(({ plot }) => plot.clientWidth);
  plots.forEach((entry, place) => {
    if (widths[place] === entry.width || widths[place] === 0) return;
    entry.width = widths[place];
    entry.plot.replaceChildren(...[entry.paint(entry.width)].flat());
    entry.drawn = true;
  });
  // A chart wider than its box can be scrolled by keys, so the Tab key must reach it.
  for (const { plot } of plots.filter(({ drawn }) => drawn)) {
    if (plot.scrollWidth > plot.clientWidth && plot.classList.contains("plot")) plot.tabIndex = 0;
    else plot.removeAttribute("tabindex");
  }
}

function picture(width, height, label, ...children) {
  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
}

function shapePath(shape, x, y, size) {
  const corners = (count, turn, radius) => Array.from({ length: count }, (_, corner) => {
    const angle = (2 * Math.PI * corner) / count + turn;
    return `${(x + radius * Math.cos(angle)).toFixed(2)} ${(y + radius * Math.sin(angle)).toFixed(2)}`;
  });
  if (shape === "circle") {
    return `M${x - size} ${y}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0z`;
  }
  if (shape === "square") {
    const side = 1.7 * size;
    const round = 0.35 * size;
    const line = side - 2 * round;
    const arc = (right, down) => `a${round} ${round} 0 0 1 ${right * round} ${down * round}`;
    return `M${x - line / 2} ${y - side / 2}h${line}${arc(1, 1)}v${line}${arc(-1, 1)}h${-line}${arc(-1, -1)}v${-line}${arc(1, -1)}z`;
  }
  if (shape === "triangle") return `M${corners(3, -Math.PI / 2, 1.2 * size).join("L")}z`;
  return `M${corners(4, 0, 1.2 * size).join("L")}z`;
}

// Round numbers that cover a range: steps of 1, 2 or 5 times a power of ten.
function ticks(low, high, about) {
  const rough = (high - low) / Math.max(1, about) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const ratio = rough / power;
  const step = power * (ratio < 1.5 ? 1 : ratio < 3 ? 2 : ratio < 7 ? 5 : 10);
  const result = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) {
    result.push(Number((place * step).toPrecision(12)));
  }
  return result;
}

function extent(values) {
  const finite = values.filter(isNumber);
  if (finite.length === 0) return [0, 1];
  const low = finite.reduce((a, b) => Math.min(a, b));
  const high = finite.reduce((a, b) => Math.max(a, b));
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

function legendOf(series) {
  return make("ul", { class: "legend", "aria-hidden": "true" }, series.map(({ name, ink, dash, shape, line = true }) =>
    make("li", { class: ink }, draw("svg", { width: line ? 34 : 16, height: 14 },
      line ? draw("path", { class: "line", d: "M0 7H34", "stroke-dasharray": dash }) : null,
      shape ? draw("path", { class: "mark", d: shapePath(shape, line ? 17 : 8, 7, 4) }) : null), name)));
}

const SERIES_STYLES = [
  { ink: "blue", shape: "circle" },
  { ink: "vermillion", shape: "diamond", dash: "7 4" },
  { ink: "green", shape: "triangle", dash: "2 3" },
];

function axes({ left, right, top, bottom, across, up, acrossName, upName, acrossTicks, upTicks, acrossText, upText }) {
  return [
    upTicks.map((value) => [
      draw("path", { class: "grid", d: `M${left} ${up(value)}H${right}` }),
      draw("text", { class: "axis", x: left - 6, y: up(value) + 4, "text-anchor": "end" }, upText(value)),
    ]).flat(),
    draw("path", { class: "base", d: `M${left} ${bottom}H${right}` }),
    acrossTicks.map((value) =>
      draw("text", { class: "axis", x: across(value), y: bottom + 16, "text-anchor": "middle" }, acrossText(value))),
    draw("text", { class: "axis", x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle" }, acrossName),
    draw("text", { class: "axis", x: 0, y: top - 10 }, upName),
  ];
}

const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
const tickText = (value) => (value < 0 ? MINUS : "") + String(Math.abs(value));

// series: [{name, values}], drawn over the numbers `at`, without `line` as marks only; mark: {at, text} draws a vertical line.
function lineChart({ at, series, acrossName, upName, upText = tickText, valueText = plain, range, mark, label }) {
  return (width) => {
    const height = width < 480 ? 250 : 290;
    const [left, right, top, bottom] = [50, width - 16, 28, height - 42];
    const [low, high] = range ?? extent(series.flatMap(({ values }) => values));
    const margin = range ? 0 : 0.04 * (high - low);
    const [first, last] = extent(at);
    const across = scale(first, last, left + 4, right - 4);
    const up = scale(low - margin, high + margin, bottom, top);
    const whole = (value) => Number.isInteger(value);
    const lines = series.map(({ name, values, ink, dash, shape, line = true }) => {
      let pen = "M";
      let path = "";
      values.forEach((value, place) => {
        if (!isNumber(value)) { pen = "M"; return; }
        path += `${pen}${across(at[place]).toFixed(1)} ${up(value).toFixed(1)}`;
        pen = "L";
      });
      const every = line ? Math.ceil(values.length / 14) : 1;
      const marks = values.map((value, place) => isNumber(value) && place % every === 0
        ? draw("path", { class: "mark", d: shapePath(shape, across(at[place]), up(value), 4) }) : null);
      return draw("g", { class: ink, "data-series": name },
        line ? draw("path", { class: "line", d: path, "stroke-dasharray": dash }) : null, marks);
    });
    const best = mark && isNumber(mark.at) && mark.at >= first && mark.at <= last ? across(mark.at) : null;
    const atRight = best !== null && best > (left + right) / 2;
    const cursor = draw("path", { class: "cursor" });
    const svg = picture(width, height, label,
      axes({ left, right, top, bottom, across, up, acrossName, upName, upText,
        acrossTicks: ticks(first, last, width / 90).filter(whole), upTicks: ticks(low - margin, high + margin, 5),
        acrossText: counted }),
      best === null ? null : [
        draw("path", { class: "rule muted-ink", d: `M${best} ${top}V${bottom}`, "stroke-dasharray": "4 3" }),
        draw("text", { class: "axis", x: best + (atRight ? -5 : 5), y: top - 10, "text-anchor": atRight ? "end" : "start" },
          mark.text),
      ],
      lines, cursor);
    const pointed = make("p", { class: "pointed", "aria-hidden": "true" });
    svg.addEventListener("pointermove", (event) => {
      const pointer = event.clientX - svg.getBoundingClientRect().left;
      let near = 0;
      at.forEach((value, place) => {
        if (Math.abs(across(value) - pointer) < Math.abs(across(at[near]) - pointer)) near = place;
      });
      cursor.setAttribute("d", `M${across(at[near])} ${top}V${bottom}`);
      pointed.textContent = `${acrossName} ${at[near]}: ${series.map(({ name, values }) =>
        `${name} ${valueText(values[near])}`).join(", ")}`;
    });
    svg.addEventListener("pointerleave", () => { cursor.removeAttribute("d"); pointed.textContent = ""; });
    return [svg, pointed];
  };
}

// rows: [{name, value, text}]; reference: {value, text} draws a dashed line through all bars.
function barChart({ rows, high, reference, ink = "blue", label }) {
  return (width) => {
    const names = Math.min(0.36 * width, CHARACTER * Math.max(...rows.map(({ name }) => [...String(name)].length)) + 10);
    const texts = CHARACTER * Math.max(...rows.map(({ text }) => text.length)) + 10;
    const [step, top] = [24, reference ? 22 : 4];
    const height = top + step * rows.length + 4;
    const along = scale(0, high || 1, names, width - texts);
    return picture(width, height, label,
      rows.map(({ name, value, text }, place) => {
        const middle = top + step * (place + 0.5);
        return [
          draw("text", { x: names - 8, y: middle + 4, "text-anchor": "end" },
            shortened(name, Math.floor((names - 8) / CHARACTER)), draw("title", {}, String(name))),
          draw("path", { class: "grid", d: `M${names} ${middle}H${width - texts}` }),
          isNumber(value) ? draw("rect", { class: `fill ${ink}`, x: names, y: middle - 7,
            width: Math.max(1, along(Math.min(value, high)) - names), height: 14 }) : null,
          draw("text", { x: width, y: middle + 4, "text-anchor": "end" }, text),
        ];
      }).flat(),
      draw("path", { class: "base", d: `M${names} ${top}V${height - 4}` }),
      reference ? [
        draw("path", { class: "rule plain-ink", d: `M${along(reference.value)} ${top - 4}V${height - 4}`, "stroke-dasharray": "4 3" }),
        draw("text", { class: "axis", x: along(reference.value), y: 12, "text-anchor":
          along(reference.value) > width / 2 ? "end" : "start" }, reference.text),
      ] : null);
  };
}

function confusionMatrix(counts, names, label) {
  return (width) => {
    const size = counts.length;
    const longest = Math.max(...names.map((name) => [...name].length));
    const room = Math.min(longest * CHARACTER + 12, 0.3 * width, 150);
    const turned = longest > 3;
    const letters = Math.min(longest, width < 480 ? 9 : 13);
    const slope = turned ? letters * CHARACTER * 0.72 : 0;  // names across lean out to the right by as much as they rise
    const cell = Math.max(26, Math.min(64, (width - room - 20 - Math.max(4, slope - 8)) / size));
    const [left, top] = [room + 20, slope + 44];
    const whole = Math.max(width, left + cell * (size - 0.5) + Math.max(cell / 2, slope) + 4);
    const side = Math.floor((room - 8) / CHARACTER);
    const cells = counts.map((row, truth) => {
      const total = row.reduce((sum, count) => sum + count, 0);
      return row.map((count, guess) => {
        const fraction = total ? count / total : 0;
        const [x, y] = [left + cell * guess, top + cell * truth];
        // The square root makes rare confusions visible beside the diagonal.
        return draw("g", {},
          draw("title", {},
            `true ${names[truth]}, predicted ${names[guess]}: ${counted(count)} (${percent(fraction)} of the row)`),
          draw("rect", { x, y, width: cell - 1, height: cell - 1, fill: truth === guess ? "#0072B2" : "#D55E00",
            "fill-opacity": Math.sqrt(fraction).toFixed(3) }),
          truth === guess ? draw("rect", { class: "diagonal", x: x + 0.5, y: y + 0.5, width: cell - 2, height: cell - 2 }) : null,
          draw("text", { x: x + cell / 2 - 0.5, y: y + cell / 2 + 4, "text-anchor": "middle",
            class: truth === guess && Math.sqrt(fraction) > 0.85 ? "strong" : null, opacity: count ? null : 0.45,
            style: `font-size:${cell < 32 ? 10 : 12}px` }, count >= 10000 ? `${Math.round(count / 1000)}k` : String(count)));
      });
    }).flat();
    const heads = names.map((name, place) => {
      const [x, y] = [left + cell * (place + 0.5), top - 8];
      return [
        draw("text", turned ? { x, y, transform: `rotate(-45 ${x} ${y})` } : { x, y, "text-anchor": "middle" },
          shortened(name, letters), draw("title", {}, name)),
        draw("text", { x: left - 8, y: top + cell * (place + 0.5) + 4, "text-anchor": "end" }, shortened(name, side),
          draw("title", {}, name)),
      ];
    }).flat();
    const middle = top + (cell * size) / 2;
    return picture(whole, top + cell * size + 4, label, cells, heads,
      draw("text", { class: "axis", x: left, y: 14 }, "predicted class"),
      draw("text", { class: "axis", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, "true class"));
  };
}

// Accuracy by confidence above, the number of nodes by confidence below.
function reliability(bins, label) {
  return (width) => {
    const height = 360;
    const [left, right, top, bottom, floor] = [50, width - 12, 28, 240, height - 42];
    const across = scale(0, 1, left, right);
    const up = scale(0, 1, bottom, top);
    const most = Math.max(1, ...bins.map(({ count }) => count));
    const tall = scale(0, most, 0, 60);
    const filled = bins.filter(({ count, confidence, accuracy }) => count > 0 && isNumber(confidence) && isNumber(accuracy));
    const path = filled.map(({ confidence, accuracy }) => `${across(confidence)} ${up(accuracy)}`).join("L");
    const fifths = [0, 0.2, 0.4, 0.6, 0.8, 1];
    return picture(width, height, label,
      axes({ left, right, top, bottom: floor, across, up, acrossName: "predicted probability", upName: "fraction correct",
        acrossTicks: fifths, upTicks: fifths, acrossText: tickText, upText: tickText }),
      draw("path", { class: "rule muted-ink", d: `M${across(0)} ${up(0)}L${across(1)} ${up(1)}`, "stroke-dasharray": "4 3" }),
      path ? draw("path", { class: "line blue", d: `M${path}` }) : null,
      filled.map(({ confidence, accuracy, count }) => draw("path", { class: "mark blue",
        d: shapePath("circle", across(confidence), up(accuracy), 4 + 3 * Math.sqrt(count / most)) },
      draw("title", {}, `${counted(count)} nodes: probability ${percent(confidence)}, correct ${percent(accuracy)}`))),
      bins.filter(({ count }) => count > 0).map(({ low, high, count }) => [
        draw("rect", { class: "fill muted-ink", x: across(low) + 1, y: floor - tall(count), height: tall(count),
          width: Math.max(1, across(high) - across(low) - 2) }, draw("title", {}, `${counted(count)} nodes`)),
      ]).flat(),
      draw("text", { class: "axis", x: 0, y: floor - 48 }, "nodes"));
  };
}

// Precision by recall, over all thresholds; a mark at the chosen one, and a line at the precision of guessing.
function precisionRecall({ recall, precision, thresholds, base }, chosen, label) {
  return (width) => {
    const height = 320;
    const [left, right, top, bottom] = [50, width - 12, 28, height - 42];
    const across = scale(0, 1, left, right);
    const up = scale(0, 1, bottom, top);
    const fifths = [0, 0.2, 0.4, 0.6, 0.8, 1];
    const points = recall.map((value, place) => `${across(value).toFixed(1)} ${up(precision[place]).toFixed(1)}`);
    const cursor = draw("path", { class: "mark blue" });
    const svg = picture(width, height, label,
      axes({ left, right, top, bottom, across, up, acrossName: "recall", upName: "precision",
        acrossTicks: fifths, upTicks: fifths, acrossText: tickText, upText: tickText }),
      isNumber(base) ? draw("path", { class: "rule muted-ink", d: `M${left} ${up(base)}H${right}`, "stroke-dasharray": "4 3" }) : null,
      draw("path", { class: "line blue", d: `M${points.join("L")}` }), cursor,
      chosen ? draw("path", { class: "mark vermillion", d: shapePath("diamond", across(chosen.recall), up(chosen.precision), 7) }) : null);
    const pointed = make("p", { class: "pointed", "aria-hidden": "true" });
    svg.addEventListener("pointermove", (event) => {
      const pointer = event.clientX - svg.getBoundingClientRect().left;
      const distances = recall.map((value) => Math.abs(across(value) - pointer));
      const near = distances.indexOf(Math.min(...distances));
      cursor.setAttribute("d", shapePath("circle", across(recall[near]), up(precision[near]), 4));
      pointed.textContent = `threshold ${plain(thresholds[near])}: recall ${percent(recall[near])}, precision ${
        percent(precision[near])}`;
    });
    svg.addEventListener("pointerleave", () => { cursor.removeAttribute("d"); pointed.textContent = ""; });
    return [svg, pointed];
  };
}

// One row per name, one mark per kind, on a logarithmic axis: effects of the kinds differ by powers of ten.
function dotPlot({ rows, kinds, acrossName, label }) {
  return (width) => {
    const values = rows.flatMap((row) => kinds.map(({ name }) => row[name])).filter((value) => isNumber(value) && value > 0);
    const high = Math.ceil(Math.log10(Math.max(...values, 1e-9)) - 1e-9);
    const low = Math.max(Math.floor(Math.log10(Math.min(...values, 1))), high - 6);
    const names = Math.min(0.32 * width, CHARACTER * Math.max(...rows.map(({ name }) => [...String(name)].length)) + 10);
    const [left, right, top, step] = [names + 8, width - 12, 6, 24];
    const bottom = top + step * rows.length;
    const along = scale(low, Math.max(high, low + 1), left + 8, right - 8);
    const place = (value) => along(value > 0 ? Math.max(low, Math.log10(value)) : low);
    const powers = Array.from({ length: Math.max(high, low + 1) - low + 1 }, (_, power) => low + power);
    return picture(width, bottom + 40, label,
      powers.map((power) => [
        draw("path", { class: "grid", d: `M${along(power)} ${top}V${bottom}` }),
        draw("text", { class: "axis", x: along(power), y: bottom + 15, "text-anchor": "middle" },
          power < -4 ? `1e${tickText(power)}` : String(Number((10 ** power).toPrecision(1)))),
      ]).flat(),
      rows.map((row, line) => {
        const middle = top + step * (line + 0.5);
        return [
          draw("path", { class: "grid", d: `M${left} ${middle}H${right}` }),
          draw("text", { x: names, y: middle + 4, "text-anchor": "end" }, shortened(row.name, Math.floor(names / CHARACTER)),
            draw("title", {}, String(row.name))),
          // Each kind is a little above or below the line, so that equal effects do not hide one another.
          kinds.map(({ name, ink, shape }, kind) => (isNumber(row[name]) ? draw("path", { class: `mark ${ink}`,
            d: shapePath(shape, place(row[name]), middle + 4 * (kind - (kinds.length - 1) / 2), 5) },
          draw("title", {}, `${row.name}, ${name}: ${plain(row[name])}`)) : null)),
        ];
      }).flat(2),
      draw("text", { class: "axis", x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle" }, acrossName));
  };
}

// rules: [{at, dash}] are vertical lines over the bars; the legend names them.
function histogramChart({ edges, counts, rules, ink, acrossName, label }) {
  return (width) => {
    const height = 250;
    const [left, right, top, bottom] = [50, width - 16, 30, height - 42];
    const most = Math.max(1, ...counts);
    const across = scale(edges[0], edges[edges.length - 1], left, right);
    const up = scale(0, most, bottom, top);
    return picture(width, height, label,
      axes({ left, right, top, bottom, across, up, acrossName, upName: "nodes",
        acrossTicks: ticks(edges[0], edges[edges.length - 1], width / 80), acrossText: tickText,
        upTicks: ticks(0, most, 4).filter(Number.isInteger), upText: counted }),
      counts.map((count, place) => draw("rect", { class: `fill ${ink}`, x: across(edges[place]) + 0.5, y: up(count),
        width: Math.max(1, across(edges[place + 1]) - across(edges[place]) - 1), height: bottom - up(count) },
      draw("title", {}, `${plain(edges[place])} to ${plain(edges[place + 1])}: ${counted(count)} nodes`))),
      rules.map(({ at, dash }) =>
        draw("path", { class: "rule plain-ink", d: `M${across(at)} ${top - 12}V${bottom}`, "stroke-dasharray": dash })));
  };
}
