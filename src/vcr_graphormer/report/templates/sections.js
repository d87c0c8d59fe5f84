// The sections of the page. Each is a function of the data that returns null if the data has nothing for it.

// Colour and shape of each kind of token. Kinds of neighbours come from the data and take the next of `LOOKS`.
const KINDS = {
  self: { ink: "plain-ink", shape: "circle" },
  hop: { ink: "purple", shape: "square" },
};
const LOOKS = [
  { ink: "blue", shape: "circle" }, { ink: "vermillion", shape: "diamond" }, { ink: "yellow", shape: "triangle" },
  { ink: "muted-ink", shape: "square" },
];
let taken = 0;
const lookOf = (kind) => KINDS[kind] ??= LOOKS[taken++ % LOOKS.length];
const kindsOf = (names) => names.map((name) => ({ name, ...lookOf(name), line: false }));
const neighbourKinds = (layout) => Object.keys(layout ?? {}).filter((kind) => kind !== "hop");
const filledList = (list) => Array.isArray(list) && list.length > 0;
const listed = (texts) => (texts.length < 2 ? texts.join("") : `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}`);

// The output that is explained.
const givesValues = ({ explorer }) => Boolean(explorer?.value);
const chosenName = ({ chosen, classes }) => (isNumber(chosen) ? String(classes?.[chosen] ?? chosen) : null);
function quantityOf(data) {
  const name = chosenName(data);
  if (givesValues(data)) return name === null ? "predicted value" : `predicted value of ${name}`;
  return name === null ? "predicted probability" : `probability of ${name}`;
}

const outputWord = (data) => (givesValues(data) ? "targets" : data.task === "multilabel" ? "labels" : "classes");

function headlineSection({ headline, notes, reproduce, graph, versions, config, task, explorer }) {
  const parts = [];
  if (headline) {
    const { metric } = headline;
    const number = (name, value, first) => (isNumber(value) ? make("div", { class: first ? "first" : null },
      make("dt", {}, `${name} ${words(metric)}`), make("dd", { "data-score": name }, scored(metric, value))) : null);
    parts.push(make("dl", { class: "headline" }, number("test", headline.test, true),
      number("validation", headline.val), number("training", headline.train)));
    const others = Object.entries(headline.scores ?? {}).filter(([name]) => name !== metric)
      .map(([name, value]) => `${words(name)} ${scored(name, value)}`);
    const epochs = isNumber(headline.epochs) ? ` of ${headline.epochs}` : "";
    const about = [
      others.length ? `Also on the test part: ${others.join(", ")}.` : "",
      isNumber(headline.best_epoch) ? `Best epoch ${headline.best_epoch}${epochs}.` : "",
      isNumber(headline.seed) ? `Seed ${headline.seed}.` : "",
    ].filter(Boolean);
    if (about.length) parts.push(make("p", {}, about.join(" ")));
  }
  if (graph) {
    const facts = [
      isNumber(graph.nodes) ? `${counted(graph.nodes)} nodes` : "",
      isNumber(graph.edges) ? `${counted(graph.edges)} ${graph.directed ? "directed " : ""}edges` : "",
      isNumber(graph.features) ? `${counted(graph.features)} features` : "",
      isNumber(graph.classes) ? `${counted(graph.classes)} ${outputWord({ task, explorer })}` : "",
      isNumber(graph.homophily) ? `${percent(graph.homophily)} of edges join nodes of the same class` : "",
    ].filter(Boolean);
    if (facts.length) parts.push(make("p", {}, `The graph: ${facts.join(", ")}.`));
  }
  if (filledList(notes)) {
    parts.push(make("p", {}, "Chosen for this graph:"), make("ul", {}, notes.map((note) => make("li", {}, note))));
  }
  if (filledList(reproduce)) {
    parts.push(make("h3", {}, "How to get these numbers again"), ...reproduce.map(command));
  }
  if (versions && Object.keys(versions).length) {
    parts.push(folded("Versions", () => scrolling("Versions",
      table(["package", "version"], Object.entries(versions).map(([name, version]) => [name, String(version)])))));
  }
  if (config && Object.keys(config).length) parts.push(folded("Settings", () => settingsTables(config)));
  return parts.length ? parts : null;
}

function settingsTables(config) {
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const single = Object.entries(config).filter(([, value]) => !isGroup(value));
  const groups = Object.entries(config).filter(([, value]) => isGroup(value));
  if (single.length) groups.unshift(["run", Object.fromEntries(single)]);
  return make("div", { class: "settings" }, groups.map(([name, values]) => scrolling(`Settings: ${name}`,
    table([name, "value"], Object.entries(values).map(([key, value]) => [key, text(value)])))));
}

function baselinesSection({ baselines }) {
  if (!baselines || !filledList(baselines.rows)) return null;
  const { metric } = baselines;
  const settings = (row) => Object.entries(row.settings ?? {}).map(([name, value]) => `${words(name)} ${value}`).join(", ");
  const rows = baselines.rows.filter(({ val }) => isNumber(val)).map((row) => [row.name, scored(metric, row.val),
    scored(metric, row.test), secondsText(row.seconds), settings(row)]);
  return [
    make("p", {}, "Baselines learn from the same training nodes. Their settings are chosen on the validation nodes, " +
      "from a few. Hops are the features, and their averages over one and two steps."),
    scrolling("Baselines", table(["", `validation ${words(metric)}`, `test ${words(metric)}`, "time", "settings"], rows)),
    baselines.sentence ? make("p", {}, baselines.sentence.replaceAll("`", "")) : null,
    ...baselines.rows.filter(({ note }) => note).map(({ name, note }) => make("p", { class: "note" }, `${name}: ${note}`)),
  ];
}

function historySection({ history, headline }) {
  if (!history || !filledList(history.epoch)) return null;
  const { epoch } = history;
  const metric = headline?.metric ?? "metric";
  const chosen = headline?.best_epoch;
  const best = isNumber(chosen) ? { at: chosen, text: `best epoch ${chosen}` } : null;
  const bestText = best ? `; ${best.text}` : "";
  const ends = (values) => {
    const finite = values.filter(isNumber);
    return finite.length ? [finite[0], finite.at(-1)] : [null, null];
  };
  const figures = [];
  const losses = [["training loss", history.loss], ["validation loss", history.val_loss]]
    .filter(([, values]) => filledList(values) && values.some(isNumber))
    .map(([name, values], place) => ({ name, values, ...SERIES_STYLES[place] }));
  if (losses.length) {
    const ranges = losses.map(({ name, values }) => `${name} from ${ends(values).map(plain).join(" to ")}`);
    figures.push(figure({
      title: "Loss", legend: legendOf(losses),
      paint: lineChart({ at: epoch, series: losses, acrossName: "epoch", upName: "loss", mark: best,
        label: `Loss over ${epoch.length} epochs: ${listed(ranges)}${bestText}.` }),
      numbers: () => table(["epoch", ...losses.map(({ name }) => name)],
        epoch.map((value, place) => [String(value), ...losses.map(({ values }) => plain(values[place]))])),
    }));
  }
  if (filledList(history.val) && history.val.some(isNumber)) {
    const name = `validation ${words(metric)}`;
    const series = [{ name, values: history.val, ...SERIES_STYLES[0] }];
    const text = (value) => scored(metric, value);
    figures.push(figure({
      title: `Validation ${words(metric)}`, legend: legendOf(series),
      paint: lineChart({ at: epoch, series, acrossName: "epoch", upName: words(metric), mark: best, valueText: text,
        upText: (value) => (isError(metric) ? tickText(value) : `${tickText(Number((100 * value).toPrecision(6)))}%`),
        label: `${name} over ${epoch.length} epochs, from ${ends(history.val).map(text).join(" to ")}${bestText}.` }),
      numbers: () => table(["epoch", name], epoch.map((value, place) => [String(value), text(history.val[place])])),
    }));
  }
  if (figures.length === 0) return null;
  return [make("p", { class: "note" }, "Point at a curve to read its values."), make("div", { class: "figures" }, figures)];
}

function tuningSection({ tuning }) {
  if (!tuning || !filledList(tuning.rows)) return null;
  const { metric, scores, best, rows, skipped } = tuning;
  const text = (value) => scored(metric, value);
  const at = scores.map((_, place) => place + 1);
  const series = [
    { name: "score of the trial", values: scores, line: false, ...SERIES_STYLES[0] },
    { name: "the winner so far", values: best, ...SERIES_STYLES[1] },
  ];
  const listing = (chosen) => scrolling("Trials of the search", table(
    ["rank", "recipe", "changed in the recipe", "score", "epochs", "time"],
    chosen.map(({ recipe, changes, score, epochs, seconds }, place) => [String(place + 1), recipe, changes, text(score),
      counted(epochs), secondsText(seconds)]), { left: 3 }));
  const left = Object.entries(skipped ?? {}).map(([name, reason]) => `${name} (${reason})`);
  return [
    make("p", {}, `${counted(rows.length)} trials, judged by validation nodes only. The best is ${rows[0].recipe} with ` +
      `${text(rows[0].score)}. Trials with all of their epochs come before those with fewer.`),
    left.length ? make("p", {}, `Not tried: ${left.join("; ")}.`) : null,
    make("div", { class: "figures one" }, figure({
      title: `Validation ${words(metric)} by trial`, legend: legendOf(series),
      paint: lineChart({ at, series, acrossName: "trial", upName: words(metric), valueText: text,
        upText: (value) => (isError(metric) ? tickText(value) : `${tickText(Number((100 * value).toPrecision(6)))}%`),
        label: `Validation ${words(metric)} of ${at.length} trials; the best has ${text(best.at(-1))}.` }),
    })),
    listing(rows.slice(0, 10)),
    rows.length > 10 ? folded("All trials", () => listing(rows)) : null,
  ];
}

function namesFor(data, size) {
  return Array.from({ length: size }, (_, place) => String(data.classes?.[place] ?? place));
}

// Precision, recall and F1 of each class or label; for two classes the curve of the rarer one.
function classesSection({ class_scores: scores, precision_recall: curve, threshold, task }) {
  if (!filledList(scores)) return null;
  const word = task === "multilabel" ? "label" : "class";
  const listing = (rows) => scrolling(`Each ${word}`, table([word, "test nodes", "precision", "recall", "F1"],
    rows.map(({ name, nodes, precision, recall, f1 }) => [name, counted(nodes), percent(precision), percent(recall), percent(f1)])));
  const weakest = [...scores].sort((a, b) => (a.f1 ?? 2) - (b.f1 ?? 2)).slice(0, 20);
  const most = scores.length > 20;
  const parts = [
    make("p", {}, `Precision: the fraction of predictions of a ${word} that are right. Recall: the fraction of its nodes that ` +
      `are predicted. F1: their harmonic mean.${most ? ` The 20 with the lowest F1 of ${scores.length}.` : ""}`),
    listing(most ? weakest : scores),
    most ? folded("All of them", () => listing(scores)) : null,
  ];
  if (!curve || !filledList(curve.recall)) return parts;
  const { value, chosen, precision, recall, f1 } = threshold;
  const name = curve.class;
  const rule = `${name} is predicted where its probability is at least ${plain(value)}`;
  const reached = isNumber(recall) ? `precision ${percent(precision)}, recall ${percent(recall)}, F1 ${percent(f1)}` : "no node reaches it";
  parts.push(make("div", { class: "figures one square" }, figure({
    title: `Precision and recall of ${name}, validation part`,
    note: `${rule}${chosen ? "" : ", the more probable class"}: ${reached} on the validation part.`,
    legend: legendOf([{ name: "all thresholds", ink: "blue" }, { name: `threshold ${plain(value)}`, ink: "vermillion",
      shape: "diamond", line: false }, { name: "guessing", ink: "muted-ink", dash: "4 3" }]),
    paint: precisionRecall(curve, isNumber(recall) ? { precision, recall } : null,
      `Precision by recall of ${name} on the validation part; ${rule}: ${reached}.`),
    numbers: () => table(["threshold", "recall", "precision"], curve.thresholds.map((at, place) =>
      [plain(at), percent(curve.recall[place]), percent(curve.precision[place])])),
  })));
  return parts;
}

function confusionSection(data) {
  const counts = data.confusion;
  if (!filledList(counts)) return null;
  const names = namesFor(data, counts.length);
  const totals = counts.map((row) => row.reduce((sum, count) => sum + count, 0));
  const total = totals.reduce((sum, count) => sum + count, 0);
  const right = counts.reduce((sum, row, place) => sum + row[place], 0);
  const mistakes = counts.flatMap((row, truth) => row.map((count, guess) => ({ truth, guess, count })))
    .filter(({ truth, guess, count }) => truth !== guess && count > 0).sort((a, b) => b.count - a.count);
  const worst = mistakes[0];
  const summary = `${counted(right)} of ${counted(total)} test nodes are on the diagonal${worst
    ? `; most often ${names[worst.truth]} is taken for ${names[worst.guess]} (${counted(worst.count)} times)` : ""}.`;
  const frequent = (limit) => table(["true class", "predicted", "nodes", "of the true class"], mistakes.slice(0, limit)
    .map(({ truth, guess, count }) => [names[truth], names[guess], counted(count), percent(count / totals[truth])]), { left: 2 });
  if (counts.length > 20) {
    return [make("p", {}, summary), make("h3", {}, "The most frequent confusions"), mistakes.length
      ? scrolling("The most frequent confusions", frequent(40)) : make("p", {}, "There are none.")];
  }
  return [make("p", {}, summary),
    make("div", { class: counts.length > 12 ? "figures one" : "figures" },
      figure({
        title: "Counts on the test part",
        note: "Outlined: right. Stronger colour: a larger fraction of the row.",
        paint: confusionMatrix(counts, names, `Confusion matrix of ${names.length} classes: ${summary}`),
        numbers: () => table(["true \\ predicted", ...names], counts.map((row, place) => [names[place], ...row.map(counted)])),
      }),
      make("div", {}, make("h3", {}, "The most frequent confusions"), mistakes.length
        ? scrolling("The most frequent confusions", frequent(12)) : make("p", {}, "There are none.")))];
}

const SLICES = {
  class: ["By class", "The true class of a node."],
  degree: ["By degree", "How many neighbours a node has."],
  homophily: ["By local homophily", "The fraction of a node's neighbours that have its class."],
};

function sliceSection({ slices, headline }) {
  if (!slices) return null;
  const overall = headline?.metric === "accuracy" ? headline.test : null;
  const figures = Object.entries(SLICES).filter(([key]) => filledList(slices[key])).map(([key, [title, note]]) => {
    const all = slices[key];
    // Of too many groups, show those with the lowest accuracy.
    const measured = all.filter(({ accuracy }) => isNumber(accuracy));
    const rows = all.length <= 30 ? all : measured.sort((a, b) => a.accuracy - b.accuracy).slice(0, 30);
    const text = ({ count, accuracy }) => `${percent(accuracy)} of ${counted(count)}`;
    const weakest = measured.reduce((a, b) => (b.accuracy < a.accuracy ? b : a), measured[0]);
    return figure({
      title, note: rows.length < all.length ? `${note} The 30 with the lowest accuracy of ${all.length}.` : note,
      paint: barChart({
        rows: rows.map((row) => ({ name: row.name, value: row.accuracy, text: text(row) })),
        high: 1, reference: isNumber(overall) ? { value: overall, text: `all: ${percent(overall)}` } : null,
        label: `Test accuracy ${title.toLowerCase()}, ${all.length} groups${weakest
          ? `; lowest ${percent(weakest.accuracy)} for ${weakest.name} (${counted(weakest.count)} nodes)` : ""}.`,
      }),
      numbers: () => table([key, "test nodes", "accuracy"], all.map(({ name, count, accuracy }) =>
        [String(name), counted(count), percent(accuracy, 2)])),
    });
  });
  return figures.length ? [make("div", { class: "figures" }, figures)] : null;
}

function calibrationSection({ calibration }) {
  if (!calibration || !filledList(calibration.bins)) return null;
  const { bins, error } = calibration;
  const summary = isNumber(error) ? `The expected calibration error is ${plain(error)}` : "Reliability diagram";
  const filled = bins.filter(({ count }) => count > 0);
  return [make("p", {}, "On the dashed line, predictions are right as often as their probability says. " +
    "Below it the model is too sure, above it not sure enough."),
    make("div", { class: "figures one square" }, figure({
      title: "Reliability on the test part",
      note: `${summary}. Larger points stand for more nodes; the grey bars count them.`,
      paint: reliability(bins, `${summary}; fraction correct by predicted probability: ${listed(filled.map((bin) =>
        `${percent(bin.accuracy)} at ${percent(bin.confidence)}`))}.`),
      numbers: () => table(["probability", "nodes", "mean probability", "fraction correct"], bins.map((bin) =>
        [`${plain(bin.low)} to ${plain(bin.high)}`, counted(bin.count), percent(bin.confidence, 2), percent(bin.accuracy, 2)])),
    }))];
}

function compositionSection(data) {
  const { kinds, effects, averaged } = data;
  const figures = [];
  const dots = [];
  if (filledList(kinds)) {
    const panels = [
      ["tokens", "Tokens per list", plain, "The mean number of tokens of each kind in a list."],
      ["attention", "Attention", percent, "The fraction of all attention that tokens of this kind receive."],
      ["effect", "Effect", plain, `How much hiding one token changes the ${quantityOf(data)}, on average, up or down.`],
    ];
    for (const [key, title, text, note] of panels) {
      const rows = kinds.filter((kind) => isNumber(kind[key]))
        .map((kind) => ({ name: kind.kind, value: kind[key], text: text(kind[key]) }));
      if (rows.length === 0) continue;
      figures.push(figure({ title, note, paint: barChart({ rows, high: Math.max(...rows.map(({ value }) => value)),
        label: `${title} by kind of token: ${listed(rows.map((row) => `${row.name} ${row.text}`))}.` }),
      numbers: () => table(["kind", title], rows.map((row) => [row.name, row.text])) }));
    }
  }
  const groupings = ["class", "degree"].filter((key) => filledList(effects?.[key]));
  const present = kindsOf((kinds ?? []).map(({ kind }) => kind))
    .filter(({ name }) => groupings.some((key) => effects[key].some((row) => isNumber(row[name]))));
  for (const key of groupings) {
    const all = effects[key];
    const rows = all.slice(0, 30);
    dots.push(figure({
      title: `Effect by ${key}`, legend: legendOf(present),
      note: `Mean absolute effect of one token; each step of the axis is ten times the one before.${
        rows.length < all.length ? ` The first 30 of ${all.length}.` : ""}`,
      paint: dotPlot({ rows, kinds: present, acrossName: "mean absolute effect",
        label: `Mean absolute effect of a token by kind for ${all.length} groups by ${key}; for ${all[0].name}: ${
          listed(present.map(({ name }) => `${name} ${plain(all[0][name])}`))}.` }),
      numbers: () => effectTable(key, all, present.map(({ name }) => name)),
    }));
  }
  const rows = [figures, dots].filter(filledList).map((row) => make("div", { class: "figures" }, row));
  const drawn = isNumber(averaged) ? make("p", {}, `Averages over ${counted(averaged)} nodes, drawn at random from the graph.`) : null;
  return rows.length ? [drawn, ...rows] : null;
}

// Tokens that are hidden together: a kind with its shape, all hops, or all neighbours.
function groupName(name) {
  const text = { hop: "all hops", neighbours: "all neighbours" }[name] ?? `all ${name}`;
  return make("span", { class: "group" }, kindIcon(name === "neighbours" ? {} : lookOf(name)), text);
}

// A row for all neighbours would repeat the one before it where there is only one kind.
const groupsShown = (names) => names.filter((name) => name !== "neighbours" || names.filter((other) => other !== "hop").length > 2);

function neighboursSection(data) {
  const row = data.neighbours;
  if (!row) return null;
  if (!isNumber(row.median_effect)) {
    return [make("p", {}, "The token lists of this run have no neighbours: the model reads each node and its hops.")];
  }
  const { metric, nodes, test_nodes: total, whole, without } = row;
  const parts = [];
  if (isNumber(row.gate)) {
    parts.push(`The gate is open by ${Math.abs(row.gate).toFixed(2)} of 1: so much of what the whole list says is added to ` +
      "what the first path says, which reads the node and perhaps its hops.");
  }
  const text = (value) => scored(metric, value, 1);
  if (isNumber(whole)) {
    const [before, after] = [text(whole), text(without.neighbours)];
    const moves = before === after ? `stays at ${before}`
      : `${without.neighbours < whole ? "falls" : "rises"} from ${before} to ${after}`;
    parts.push(`With all neighbours hidden, ${words(metric)} ${moves}; ${changesText(row)}.`);
  }
  parts.push(`Half of all single neighbours change the ${quantityOf(data)} by less than ${plain(row.median_effect)}.`);
  const content = [make("p", {}, parts.join(" "))];
  if (!isNumber(whole) || !without) return content;
  const names = groupsShown(Object.keys(without));
  const most = Math.max(1e-12, ...names.map((name) => Math.abs(without[name] - whole)));
  const line = (name) => [groupName(name), text(without[name]),
    [effectBar(without[name] - whole, most), make("span", { class: "number short" }, changeText(metric, without[name] - whole))]];
  const of = nodes < total ? `a sample of ${counted(nodes)} of ${counted(total)}` : `all ${counted(nodes)}`;
  return [...content, scrolling("What hiding each kind of token changes", table(
    ["hidden", words(metric), isError(metric) ? "change" : "points"],
    [["nothing", text(whole), ""], ...names.map(line)])),
  make("p", { class: "note" }, `Measured on ${of} test nodes; the median on the nodes of the averages above. ` +
    "A node that several kinds propose is hidden with the kind of its place in the list.")];
}

// How many predictions change without neighbours, and what becomes of them; for values how much they change.
function changesText({ changed, nodes, became_wrong: wrong, became_right: right, stayed_wrong: kept, mean_change: change }) {
  if (!isNumber(changed)) return `predictions change by ${plain(change)} on average`;
  if (changed === 0) return "no prediction changes";
  const verb = (count, one, many) => `${counted(count)} ${count === 1 ? one : many}`;
  const ends = [verb(wrong, "becomes wrong", "become wrong"), verb(right, "becomes right", "become right"),
    ...(kept ? [verb(kept, "stays wrong", "stay wrong")] : [])];
  return `${counted(changed)} of ${counted(nodes)} predictions ${changed === 1 ? "changes" : "change"}: ${ends.join(", ")}`;
}

function changeText(metric, value) {
  if (isError(metric)) return signed(value);
  const points = (100 * Math.abs(value)).toFixed(1);
  return `${Number(points) === 0 ? "" : value < 0 ? MINUS : "+"}${points}`;
}

// The effects that are drawn, with the number of nodes and the fractions of attention.
function effectTable(key, rows, kinds) {
  const counts = rows.some(({ count }) => isNumber(count));
  const attention = rows.some((row) => row.attention);
  return table(
    [key, ...(counts ? ["nodes"] : []), ...kinds, ...(attention ? kinds.map((kind) => `attention, ${kind}`) : [])],
    rows.map((row) => [String(row.name), ...(counts ? [counted(row.count)] : []), ...kinds.map((kind) => plain(row[kind])),
      ...(attention ? kinds.map((kind) => percent(row.attention?.[kind])) : [])]));
}

function faithfulnessSection(data) {
  const { faithfulness } = data;
  if (!faithfulness) return null;
  const quantity = givesValues(data) ? "value" : "probability";
  const series = [["largest effect first", "effect"], ["most attention first", "attention"], ["in random order", "random"]]
    .filter(([, key]) => filledList(faithfulness[key]))
    .map(([name, key], place) => ({ name, values: faithfulness[key], ...SERIES_STYLES[place] }));
  if (series.length === 0) return null;
  const at = series[0].values.map((_, place) => place);
  const ranges = series.map(({ name, values }) => `${name} ${plain(values[0])} to ${plain(values.at(-1))}`);
  return [make("p", {}, "Tokens are hidden one after the other. The faster a curve falls, the better its order finds the " +
    "tokens that the prediction depends on."),
    make("div", { class: "figures one" }, figure({
      title: `What is left of the ${quantityOf(data)}`, legend: legendOf(series),
      paint: lineChart({ at, series, acrossName: "tokens hidden", upName: `mean ${quantity}`,
        label: `Mean ${quantityOf(data)} after hiding up to ${at.length - 1} tokens: ${listed(ranges)}.` }),
      numbers: () => table(["tokens hidden", ...series.map(({ name }) => name)], at.map((place) =>
        [String(place), ...series.map(({ values }) => plain(values[place]))])),
    }))];
}

function rewiringSection({ rewiring }) {
  if (!rewiring) return null;
  const figures = Object.keys(rewiring).filter((kind) => filledList(rewiring[kind]?.histogram?.counts)).map((kind) => {
    const { histogram: { edges, counts }, nodes, mean, to_supers: toSupers } = rewiring[kind];
    const { elsewhere, estimate_elsewhere: estimateElsewhere } = rewiring[kind];
    const facts = [
      isNumber(nodes) ? `${counted(nodes)} nodes` : "",
      isNumber(toSupers) ? `${plain(toSupers)} of the probability goes to the super nodes themselves` : "",
      isNumber(elsewhere) ? `nodes other than the source lose ${plain(elsewhere)}` : "",
      isNumber(estimateElsewhere) ? `an estimate from rankings gives at least ${plain(estimateElsewhere)} of that` : "",
    ].filter(Boolean);
    const rules = [{ name: "mean", at: mean }]
      .filter(({ at }) => isNumber(at))
      .map((rule) => ({ ...rule, name: `${rule.name} ${plain(rule.at)}`, ink: "plain-ink" }));
    const summary = rules.map(({ name }) => name).join(", ");
    return figure({
      note: facts.length ? `${facts.join("; ")}.` : null, legend: legendOf(rules),
      title: `${kind[0].toUpperCase()}${kind.slice(1)}-aware connections`,
      paint: histogramChart({ edges, counts, ink: lookOf(kind).ink, rules,
        acrossName: isNumber(mean) ? "probability moved" : "probability lost by nodes other than the source, estimated",
        label: `Probability moved by the ${kind}-aware virtual connections, per node${summary ? `: ${summary}` : ""}.` }),
      numbers: () => table(["probability moved", "nodes"], counts.map((count, place) =>
        [`${plain(edges[place])} to ${plain(edges[place + 1])}`, counted(count)]), { caption: summary }),
    });
  });
  if (figures.length === 0) return null;
  return [make("p", {}, "Virtual connections are edges to super nodes; they change the PageRank of a node. Shown is the " +
    "probability that they move from some nodes to others: 0 is nothing, 1 is everything."),
    make("div", { class: "figures" }, figures)];
}

// How super nodes change the PageRank of one node, in the page of that node.
function transferSection({ transfer }) {
  const kinds = Object.keys(transfer ?? {});
  if (kinds.length === 0) return null;
  const text = ({ node, name }) => (name === null ? String(node) : `${node} ${name}`);
  return kinds.map((kind) => {
    const { moved, to_supers: toSupers, brightened, faded, largest_error: error } = transfer[kind];
    const rows = Array.from({ length: Math.max(brightened.length, faded.length) }, (_, place) => {
      const [gains, loses] = [brightened[place], faded[place]];
      return [gains ? text(gains) : MISSING, gains ? `+${plain(gains.amount)}` : "", loses ? text(loses) : MISSING,
        loses ? `${MINUS}${plain(loses.amount)}` : ""];
    });
    return make("div", {}, make("h3", {}, `${kind[0].toUpperCase()}${kind.slice(1)}-aware connections`),
      make("p", {}, `They move ${plain(moved)} of the PageRank of this node, ${plain(toSupers)} of it to the super nodes ` +
        `themselves.${isNumber(error) ? ` The scores of its tokens were estimated to within ${error.toExponential(1)} of the ` +
          "exact ones." : ""} The nodes that gain most (brightened) and lose most (faded):`),
      scrolling(`Nodes that ${kind}-aware connections brighten and fade`,
        table(["brightened", "by", "faded", "by"], rows)));
  });
}

const CRITERIA = {
  neighbourhood: ["fraction", "fraction of a node's direct neighbours that are in its list (local topology)"],
  clusters: ["fraction", "fraction of the clusters of the graph that a list reaches (global topology)"],
  "beyond two hops": ["fraction", "fraction of the tokens that are more than two hops away (long range)"],
  "same label": ["fraction", "fraction of the tokens, of a hop its weight, with the node's own class (heterophily)"],
  "edge visits": ["count", "edges followed to make all lists"],
  seconds: ["seconds", "time to make all lists"],
  bytes: ["bytes", "size of all lists"],
};

function criteriaSection({ criteria }) {
  if (!criteria || !filledList(criteria.rows) || !filledList(criteria.columns)) return null;
  const { columns, rows, same_label_neighbours: neighbours } = criteria;
  const cell = (value, place) => {
    if (!isNumber(value)) return MISSING;
    const kind = CRITERIA[columns[place]]?.[0] ?? (place < 4 ? "fraction" : "plain");
    if (kind === "fraction") {
      return [percent(value), make("span", { class: "cell-bar", "aria-hidden": "true" },
        make("span", { style: `width:${Math.max(0, Math.min(100, 100 * value))}%` }))];
    }
    return { count: counted, seconds: secondsText, bytes: bytesText, plain }[kind](value);
  };
  return [make("p", {}, "What the paper asks of a good tokenization, measured for three ways to make the lists."),
    scrolling("Four criteria", table(["tokens", ...columns], rows.map(({ name, values }) => [name, ...values.map(cell)]))),
    isNumber(neighbours) ? make("p", { class: "note" },
      `To compare with “same label”: ${percent(neighbours)} of direct neighbours have the node's own class.`) : null,
    make("dl", { class: "terms" }, columns.filter((name) => CRITERIA[name]).map((name) =>
      [make("dt", {}, name), make("dd", {}, CRITERIA[name][1])]))];
}

function stageSection({ stages }) {
  if (!filledList(stages)) return null;
  const total = stages.reduce((sum, { seconds }) => sum + (isNumber(seconds) ? seconds : 0), 0);
  const numbers = () => table(["stage", "seconds", "peak memory", "bytes"], stages.map((stage) =>
    [stage.name, plain(stage.seconds), bytesText(stage.peak_bytes), counted(stage.peak_bytes)]));
  const panels = [
    ["seconds", "Time", secondsText, `${secondsText(total)} in all.`],
    ["peak_bytes", "Peak memory", bytesText, "The most memory the process held up to the end of the stage."],
  ];
  const figures = panels.map(([key, title, text, note]) => {
    const rows = stages.filter((stage) => isNumber(stage[key]))
      .map((stage) => ({ name: stage.name, value: stage[key], text: text(stage[key]) }));
    if (rows.length === 0) return null;
    const most = rows.reduce((a, b) => (b.value > a.value ? b : a));
    return figure({ title, note, numbers, paint: barChart({ rows, high: most.value,
      label: `${title} by stage, ${rows.length} stages; most for ${most.name}: ${most.text}.` }) });
  }).filter(Boolean);
  return figures.length ? [make("div", { class: "figures" }, figures)] : null;
}
