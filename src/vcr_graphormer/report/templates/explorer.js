// The token explorer: the token list of one node as a graph and as a table, and ways to go to other nodes.

const PARTS = ["none", "training", "validation", "test"];
const SUGGESTIONS = 20;
const WRONG_SHOWN = 200;

// Read an array from base64. It is little-endian, as on every machine with a browser.
function decoded(text, type) {
  if (!text) return null;
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let place = 0; place < raw.length; place += 1) bytes[place] = raw.charCodeAt(place);
  return new type(bytes.buffer);
}

// The nodes of the page, read from the packed arrays when needed.
function openNodes(packed, classes, chosen) {
  const types = {
    nodes: Int32Array, predicted: Int16Array, label: Int16Array, part: Uint8Array, confidence: Float32Array,
    value: Float32Array, target: Float32Array, ids: Int32Array, shown: Uint8Array, score: Float32Array,
    attention: Float32Array, readout: Float32Array, effect: Float32Array, distance: Int8Array, token_label: Int16Array,
    also: Int32Array, group_effect: Float32Array, explained: Float32Array, alone: Int16Array,
    alone_confidence: Float32Array,
  };
  const arrays = {};
  for (const [name, type] of Object.entries(types)) arrays[name] = decoded(packed[name], type);
  const kinds = ["self", ...Object.entries(packed.layout ?? {}).flatMap(([kind, count]) => Array(count).fill(kind))];
  const size = kinds.length;
  const later = Object.keys(packed.layout ?? {}).slice(2);  // after hop and the first kind of neighbours
  const rows = new Map(Array.from(arrays.nodes, (id, row) => [id, row]));
  const names = packed.names ?? {};
  const groups = packed.groups ?? [];
  const total = packed.total ?? arrays.nodes.length;
  const className = (number) => (isNumber(number) && number >= 0 ? String(classes?.[number] ?? number) : null);

  function token(row, place) {
    const at = row * size + place;
    const id = place === 0 ? arrays.nodes[row] : arrays.ids[at];
    const kind = kinds[place];
    const isNode = id >= 0 && kind !== "hop";
    const read = (name) => (arrays[name] ? arrays[name][at] : null);
    const distance = kind === "self" ? 0 : read("distance");
    const also = later.filter((_, bit) => (read("also") >> bit) & 1);  // kinds that propose the same node
    return {
      place, kind, kindText: [kind, ...also].join(" + "), id, isNode, sampled: isNode && rows.has(id),
      look: lookOf(kind),
      title: kind === "hop" ? `hop ${place}` : `node ${id}`,
      name: id >= 0 ? names[id] ?? null : null,
      score: read("score"), distance: kind === "hop" || !isNumber(distance) || distance < 0 ? null : distance,
      classNumber: read("token_label"), label: className(read("token_label")),
      attention: read("attention"), readout: read("readout"), effect: read("effect"),
    };
  }

  const hasLabel = (row) => Boolean(arrays.predicted && arrays.label) && arrays.label[row] >= 0;
  const about = (row) => ({
    row, id: arrays.nodes[row], name: names[arrays.nodes[row]] ?? null,
    predicted: className(arrays.predicted?.[row]),
    explainedNumber: chosen ?? arrays.predicted?.[row], explained: (arrays.explained ?? arrays.value)?.[row],
    groups: groups.map((name, place) => ({ name, effect: arrays.group_effect[row * groups.length + place] })),
    alone: className(arrays.alone?.[row]), aloneConfidence: arrays.alone_confidence?.[row],
    label: packed.label_text?.[row] ?? className(arrays.label?.[row]), part: PARTS[arrays.part?.[row]] ?? null,
    confidence: arrays.confidence?.[row], value: arrays.value?.[row], target: arrays.target?.[row],
    wrong: hasLabel(row) && arrays.label[row] !== arrays.predicted[row],
    right: hasLabel(row) && arrays.label[row] === arrays.predicted[row],
  });

  const wrong = Array.from(arrays.nodes.keys()).map(about).filter((node) => node.wrong && node.part === "test")
    .sort((a, b) => (b.confidence ?? 0) - (a.confidence ?? 0)).map(({ row }) => row);
  return {
    count: arrays.nodes.length, total, names, wrong, about, className,
    rowOf: (id) => rows.get(id),
    idOf: (row) => arrays.nodes[row],
    tokens: (row) => [...kinds.keys()].filter((place) => place === 0 || !arrays.shown || arrays.shown[row * size + place])
      .map((place) => token(row, place)),
  };
}

// A token has room for three characters: the shortest prefixes that tell the classes apart, or else their numbers.
function classMarks(classes) {
  const names = (classes ?? []).map((name) => [...String(name)]);
  const begin = (length) => names.map((letters) => letters.slice(0, length).join(""));
  const short = [1, 2, 3].map(begin).find((marks) => new Set(marks).size === marks.length) ?? [];
  return (number) => (isNumber(number) && number >= 0 ? short[number] ?? String(number) : "");
}

const otherTokens = (tokens) => tokens.filter(({ kind }) => kind !== "self");
const largest = (tokens, name) => Math.max(1e-12, ...otherTokens(tokens).map((token) => Math.abs(token[name] ?? 0)));

// Compute the position of each token: hops on an inner arc, nodes on rings by distance, in the order of the list. Of two
// kinds of neighbours one is on the left side and one on the right; more kinds follow one another clockwise. So no line
// crosses another. Tokens of a ring that would touch are spread over several lanes.
function placeTokens(tokens, radius, size) {
  const spots = new Map();
  const put = (token, angle, distance) => spots.set(token, [distance * Math.cos(angle), distance * Math.sin(angle)]);
  const hops = tokens.filter(({ kind }) => kind === "hop");
  const stride = Math.min(Math.PI / 4.2, (2 * Math.PI) / Math.max(1, hops.length));
  hops.forEach((token, place) => put(token, -Math.PI / 2 + (place - (hops.length - 1) / 2) * stride, 0.24 * radius));

  const neighbours = tokens.filter(({ kind }) => kind !== "self" && kind !== "hop");
  const names = [...new Set(neighbours.map(({ kind }) => kind))];
  const sides = names.map((name) => neighbours.filter(({ kind }) => kind === name));
  const [inner, need] = [0.46 * radius, 2 * size + 4];
  const top = Math.asin(Math.min(0.6, (24 + size) / inner));  // room for the names of the rings
  const bottom = sides.length === 2 ? Math.PI - (size + 4) / inner : 2 * Math.PI - top;
  const angles = new Map();
  sides.forEach((side, number) => {
    const two = sides.length === 2;
    const [turn, part, first] = two ? [number === 0 ? -1 : 1, 1, 0] : [1, 1 / sides.length, number / sides.length];
    const spread = sides.length > 2 ? 0.85 : 1;  // a gap between one kind and the next
    const along = (place) => first + part * spread * (side.length === 1 ? 0.5 : place / (side.length - 1));
    side.forEach((token, place) => angles.set(token, turn * (top + (bottom - top) * along(place))));
  });

  const far = (token) => token.distance ?? Infinity;
  const rings = [...new Set(sides.flat().map(far))].sort((a, b) => a - b).map((distance) => ({
    distance, groups: sides.map((side) => side.filter((token) => far(token) === distance)),
  }));
  rings.forEach((ring, place) => {
    const about = rings.length === 1 ? 0.75 * radius : inner + ((radius - inner) * place) / (rings.length - 1);
    const gaps = ring.groups.flatMap((group) => group.slice(1).map((token, before) =>
      Math.abs(angles.get(token) - angles.get(group[before])) * about));
    ring.count = ring.groups.flat().length;
    ring.lanes = Math.min(4, Math.max(1, ...gaps.map((gap) => Math.ceil(need / gap - 0.05))));
  });
  const slots = rings.reduce((sum, { lanes }) => sum + lanes, 0) + 0.4 * Math.max(0, rings.length - 1);
  const step = Math.min(need * 1.1, slots > 1 ? (radius - inner) / (slots - 1) : 0);
  const spare = rings.length > 1 ? (radius - inner - step * (slots - 1)) / (rings.length - 1) : 0;
  let start = rings.length === 1 ? 0.75 * radius - (step * (slots - 1)) / 2 : inner;
  for (const ring of rings) {
    ring.radius = start + (step * (ring.lanes - 1)) / 2;
    for (const group of ring.groups) {
      group.forEach((token, place) =>
        put(token, -Math.PI / 2 + angles.get(token), start + step * (place % ring.lanes)));
    }
    start += step * ring.lanes + 0.4 * step + spare;
  }
  return { spots, rings, sides: sides.length === 2 ? names : null };
}

const ringName = (distance) => (distance === Infinity ? "unknown" : distance === 1 ? "1 hop" : `${distance} hops`);

const VALUES = [
  ["score", (token) => plain(token.score)],
  ["distance", (token) => (token.distance === null ? MISSING : ringName(token.distance))],
  ["training label", (token) => token.label ?? MISSING],
  ["attention", (token) => percent(token.attention, 2)],
  ["readout", (token) => weight(token.readout)],
  ["effect", (token) => signed(token.effect)],
];

const canWalk = (token) => token.isNode && token.kind !== "self";

function described(token) {
  const kind = token.kind === "self" ? "the node itself" : `${token.kindText} token`;
  const values = VALUES.map(([name, text]) => `${name} ${text(token)}`).join(", ");
  const where = canWalk(token) ? (token.sampled ? "; Enter goes there" : "; not in this page") : "";
  return `${token.title}${token.name ? `, ${token.name}` : ""}: ${kind}, ${values}${where}`;
}

function tokenGraph(node, tokens, marks, width, { onGo, onPoint }) {
  const size = width < 480 ? 8.5 : 10.5;
  const height = Math.min(width, 600);
  const radius = height / 2 - size - 6;
  const [x, y] = [width / 2, height / 2];
  const { spots, rings, sides } = placeTokens(tokens, radius, size);
  const mostEffect = largest(tokens, "effect");
  // Two pixels for the mean attention, so that no line stands out where all get the same.
  const thick = (attention) => Math.min(9, Math.max(0.4, 2 * tokens.length * (attention ?? 0)));
  const at = (token) => { const [right, down] = spots.get(token) ?? [0, 0]; return [x + right, y + down]; };

  const spokes = otherTokens(tokens).map((token) => {
    const [right, down] = at(token);
    return draw("path", { class: "spoke", d: `M${x} ${y}L${right} ${down}`, "data-place": token.place,
      "stroke-width": thick(token.attention).toFixed(2) });
  });

  const shapes = tokens.map((token) => {
    const [right, down] = at(token);
    const isSelf = token.kind === "self";
    const reach = isSelf ? 2 * size : size;
    const strength = isSelf ? 1 : 0.06 + 0.94 * Math.sqrt(Math.abs(token.effect ?? 0) / mostEffect);
    const path = shapePath(token.look.shape, right, down, reach);
    const text = isSelf ? String(token.id) : token.kind === "hop" ? String(token.place) : marks(token.classNumber);
    const agrees = token.classNumber >= 0 && token.classNumber === node.explainedNumber;
    const walkable = canWalk(token);
    const shape = draw("g", {
      class: `token ${token.kind} ${token.look.ink}${walkable ? " node" : ""}`, tabindex: "0",
      role: walkable ? "button" : "img", "aria-label": described(token),
      "data-place": token.place, "data-node": token.isNode ? token.id : null,
      pointerenter: () => onPoint(token, right, down), pointerleave: () => onPoint(null),
      focus: () => onPoint(token, right, down), blur: () => onPoint(null),
    },
    draw("path", { class: "halo", d: shapePath(token.look.shape, right, down, reach + 4) }),
    draw("path", { class: "back", d: path }),
    draw("path", { class: `shape${token.effect < 0 ? " lowers" : ""}`, d: path, "fill-opacity": strength.toFixed(3) }),
    text ? draw("text", { x: right, y: down, class: agrees && !isSelf ? "agrees" : null,
      style: isSelf && text.length > 6 ? `font-size:${(66 / text.length).toFixed(1)}px` : null }, text) : null);
    if (walkable) shape.addEventListener("click", () => onGo(token.id));
    return shape;
  });

  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `Token list of node ${node.id}: ${tokens.length} tokens around it, ${listed(rings.map((ring) =>
      `${ring.count} at ${ring.distance === Infinity ? "unknown distance" : ringName(ring.distance)}`)) || "no node tokens"}.` },
  rings.map((ring) => draw("circle", { class: "ring", cx: x, cy: y, r: ring.radius })), spokes,
  rings.map((ring) => draw("text", { class: "ring-name", x, y: y - ring.radius + 4 }, ringName(ring.distance))),
  sides?.map((name, number) =>
    draw("text", { class: "side", x: x + (2 * number - 1) * (width / 2 - 30), y: height - 6 }, name)) ?? null,
  shapes);
}

function graphLegend(tokens, chosen) {
  const present = [...new Set(otherTokens(tokens).map(({ kind }) => kind))];
  const longer = { hop: "hop (mean features of nodes that far)" };
  const entries = kindsOf(present).map((kind) => ({ ...kind, name: longer[kind.name] ?? kind.name }));
  return [legendOf(entries), make("p", { class: "note" },
    "Rings: distance in hops. Wider line: more attention. Stronger fill: larger effect. Dashed outline: negative effect. " +
    `Text inside: training label, bold if it is ${chosen ?? "the predicted class"}. ` + "Bars in the table compare the tokens other than " +
    "the node itself.")];
}

// A plain number, not a percentage: the node itself has weight 1, and all other tokens together have weight 1.
function weight(value) {
  return isNumber(value) ? value.toFixed(3) : MISSING;
}

// Effects on probabilities all have four decimals; those on values of a regression can be of any size.
function effectText(value) {
  if (!isNumber(value) || Math.abs(value) >= 10) return signed(value);
  return `${value < 0 ? MINUS : "+"}${Math.abs(value).toFixed(4)}`;
}

function effectBar(value, most) {
  const half = 50 * Math.min(1, Math.abs(value ?? 0) / most);
  return make("span", { class: "effect", "aria-hidden": "true" }, make("span", { class: value < 0 ? "lowers" : null,
    style: `width:${half.toFixed(1)}%;left:${(value < 0 ? 50 - half : 50).toFixed(1)}%` }));
}

function kindIcon({ ink, shape }) {
  return draw("svg", { class: ink, width: 12, height: 12, "aria-hidden": "true" },
    shape ? draw("path", { class: "fill", d: shapePath(shape, 6, 6, 4.6) }) : null);
}

// What the model would say of a node without its neighbours.
function aloneText(node, tokens, data) {
  if (!data.explorer.groups) return null;
  if (!tokens.some(({ kind }) => kind !== "self" && kind !== "hop")) return "Its list has no neighbours.";
  const whole = node.explained;
  const without = whole - node.groups.find(({ name }) => name === "neighbours").effect;
  const start = "Without its neighbours";
  if (givesValues(data)) return `${start} the model would say ${plain(without)} instead of ${plain(whole)}.`;
  const [after, before] = percents(without, whole);
  if (isNumber(data.chosen) || data.task === "multilabel") {
    const name = data.classes?.[node.explainedNumber] ?? node.explainedNumber;
    return `${start} the probability of ${name} would be ${after} instead of ${before}.`;
  }
  const { threshold, precision_recall: curve } = data;
  if (threshold?.chosen && curve && data.classes?.length === 2) { // the more probable class may not be the one that is said
    const said = node.alone === node.predicted ? `still say ${node.predicted}` : `say ${node.alone} instead of ${node.predicted}`;
    const [low, high] = node.predicted === curve.class ? [after, before] : percents(1 - without, 1 - whole);
    return `${start} the model would ${said}: ${curve.class} has ${low} instead of ${high} and is said from ${
      percent(threshold.value)} on.`;
  }
  if (node.alone === node.predicted) {
    return `${start} the model would still say ${node.predicted}, with ${after} instead of ${before}.`;
  }
  return `${start} the model would say ${node.alone} (${percent(node.aloneConfidence)}) instead of ${
    node.predicted} (${percent(whole)}).`;
}

function groupTable({ groups }) {
  const shown = groupsShown(groups.map(({ name }) => name));
  if (shown.length === 0) return [];
  const rows = groups.filter(({ name }) => shown.includes(name));
  const most = Math.max(1e-12, ...rows.map(({ effect }) => Math.abs(effect)));
  return [table(["hidden together", "effect"], rows.map(({ name, effect }) =>
    [groupName(name), [effectBar(effect, most), make("span", { class: "number" }, effectText(effect))]]))];
}

// The effect comes early, for a phone shows the first columns only.
const COLUMNS = [
  { name: "kind", left: true, value: (token) => token.place },
  { name: "node", left: true, value: (token) => (token.kind === "hop" ? -1 : token.id) },
  { name: "name", left: true, value: (token) => token.name },
  { name: "effect", value: (token) => token.effect },
  { name: "attention", value: (token) => token.attention },
  { name: "readout", value: (token) => token.readout },
  { name: "score", value: (token) => token.score },
  { name: "hops", value: (token) => token.distance },
  { name: "label", left: true, value: (token) => token.label },
];

function sortTokens(tokens, sort) {
  const { value } = COLUMNS.find(({ name }) => name === sort.column);
  const missing = (one) => one === null || one === undefined;
  return [...tokens].sort((first, second) => {
    const [a, b] = [value(first), value(second)];
    if (missing(a) || missing(b)) return missing(a) - missing(b);  // missing values come last in both orders
    const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return (sort.descending ? -order : order) || first.place - second.place;
  });
}

function tokenTable(tokens, hasNames, sort, { onGo, onNear, onSort }) {
  const most = largest(tokens, "effect");
  const columns = COLUMNS.filter(({ name }) => name !== "name" || hasNames);
  const cells = {
    kind: (token) => [kindIcon(token.look), token.kindText],
    node: (token) => (canWalk(token) ? make("button", { type: "button",
      class: token.sampled ? "plain" : "plain away", title: token.sampled ? null : "not in this page",
      "aria-label": `${token.sampled ? "Go to node" : "Not in this page: node"} ${token.id}` }, String(token.id))
      : token.kind === "self" ? String(token.id) : token.title),
    name: (token) => token.name ?? MISSING,
    score: (token) => plain(token.score),
    hops: (token) => (token.distance === null ? MISSING : String(token.distance)),
    label: (token) => token.label ?? MISSING,
    attention: (token) => percent(token.attention, 2),
    readout: (token) => weight(token.readout),
    effect: (token) => [effectBar(token.effect, most), make("span", { class: "number" }, effectText(token.effect))],
  };
  const head = columns.map(({ name, left }) => {
    const active = sort.column === name;
    const order = sort.descending ? "descending" : "ascending";
    return make("th", { scope: "col", class: left ? "left" : null, "aria-sort": active ? order : "none" },
      make("button", { type: "button", "data-column": name, click: () => onSort(name) }, name));
  });
  const body = sortTokens(tokens, sort).map((token) => {
    const walkable = canWalk(token);
    const line = make("tr", { "data-place": token.place, class: walkable ? "node" : null,
      pointerenter: () => onNear(token), pointerleave: () => onNear(null),
      focusin: () => onNear(token), focusout: () => onNear(null) },
    columns.map(({ name, left }) => {
      const isName = name === "name" || name === "label";  // of any length: cut by the style, whole in the title
      const title = isName ? token[name] : null;
      return make("td", { class: isName ? "left name" : left ? "left" : null, title }, cells[name](token));
    }));
    if (walkable) line.addEventListener("click", () => onGo(token.id));
    return line;
  });
  return make("table", {}, make("caption", { class: "hidden" }, "All tokens of the list; the column heads sort"),
    make("thead", {}, make("tr", {}, head)), make("tbody", {}, body));
}

// Ids that start with the typed text, and names that contain it; exact matches first.
function findNodes(nodes, typed) {
  const text = typed.trim().toLowerCase();
  if (!text) return [];
  const ranks = new Map();
  const add = (id, rank) => { if (rank < (ranks.get(id) ?? Infinity)) ranks.set(id, rank); };
  if (/^\d+$/.test(text)) {
    for (let row = 0; row < nodes.count; row += 1) {
      const id = String(nodes.idOf(row));
      if (id.startsWith(text)) add(nodes.idOf(row), id === text ? 0 : 2);
    }
  }
  for (const [key, name] of Object.entries(nodes.names)) {
    const id = Number(key);
    const where = String(name).toLowerCase().indexOf(text);
    if (where < 0 || id >= nodes.total) continue;
    const exact = String(name).length === text.length;
    add(id, (exact ? 1 : where === 0 ? 3 : 4) + (nodes.rowOf(id) === undefined ? 0.5 : 0));
  }
  return [...ranks].sort((a, b) => a[1] - b[1] || a[0] - b[0]).slice(0, SUGGESTIONS).map(([id]) => id);
}

function searchBox(nodes, onChoose) {
  const list = make("ul", { class: "suggestions", role: "listbox", id: "suggestions", "aria-label": "Nodes found",
    hidden: true });
  const input = make("input", { id: "search", type: "text", role: "combobox", autocomplete: "off", spellcheck: "false",
    enterkeyhint: "go", "aria-expanded": "false", "aria-controls": "suggestions", "aria-autocomplete": "list" });
  let found = [];
  let active = -1;
  const choose = (id) => { close(); input.value = ""; onChoose(id, input); };
  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }
  function point(place) {
    active = place;
    [...list.children].forEach((item, other) => item.setAttribute("aria-selected", String(other === place)));
    if (place < 0) { input.removeAttribute("aria-activedescendant"); return; }
    input.setAttribute("aria-activedescendant", list.children[place].id);
    list.children[place].scrollIntoView({ block: "nearest" });
  }
  function suggest() {
    found = findNodes(nodes, input.value);
    list.replaceChildren(...found.map((id, place) => make("li", {
      role: "option", id: `suggestion-${place}`, "aria-selected": "false",
      // pointerdown, not click: before a click the field loses the focus and closes the list
      pointerdown: (event) => { event.preventDefault(); choose(id); } },
    String(id), nodes.names[id] ? ` ${nodes.names[id]}` : "",
    nodes.rowOf(id) === undefined ? make("span", { class: "muted" }, " (not in this page)") : null)));
    list.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(found.length > 0));
    point(-1);
  }
  input.addEventListener("input", suggest);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      const typed = input.value.trim();
      if (active >= 0) choose(found[active]);
      // A typed number is an id, even if only longer ids are in the page.
      else if (/^\d+$/.test(typed) && Number(typed) < nodes.total) choose(Number(typed));
      else if (found.length) choose(found[0]);
      else if (typed) onChoose(null, input);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) suggest();
      const step = event.key === "ArrowDown" ? 1 : active < 0 ? 0 : -1;
      if (found.length) point((active + step + found.length) % found.length);
    } else if (event.key === "Escape") {
      if (list.hidden) input.value = "";
      close();
    }
    event.stopPropagation();  // Backspace and Escape edit the text here; elsewhere they go back
  });
  return make("div", { class: "search" }, make("label", { for: "search" }, "Node id or name"), input, list);
}

// The list is one stop of the Tab key; arrow keys move inside it.
function wrongList(nodes, onGo) {
  const items = nodes.wrong.slice(0, WRONG_SHOWN).map((row, place) => {
    const node = nodes.about(row);
    const sure = isNumber(node.confidence) ? `, ${percent(node.confidence, 0)}` : "";
    return make("button", { type: "button", tabindex: place === 0 ? "0" : "-1", "data-node": node.id,
      click: () => onGo(node.id), "aria-label": `Node ${node.id}, true ${node.label}, predicted ${node.predicted}${sure}` },
    `${node.id}: ${shortened(node.label, 12)} → ${shortened(node.predicted, 12)}${sure}`);
  });
  const list = make("ol", { class: "wrong" }, items.map((item) => make("li", {}, item)));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const here = items.indexOf(document.activeElement);
    if (!step || here < 0 || !items[here + step]) return;
    event.preventDefault();
    items[here].tabIndex = -1;
    items[here + step].tabIndex = 0;
    items[here + step].focus();
  });
  return { list, items };
}

function explorerSection(data) {
  if (!data.explorer?.nodes) return null;
  const nodes = openNodes(data.explorer, data.classes, data.chosen);
  const chosen = chosenName(data);
  if (nodes.count === 0) return null;
  const { hint, sampled } = data.explorer;
  const marks = classMarks(data.classes);
  const hasNames = Object.keys(nodes.names).length > 0;
  const sort = { column: "kind", descending: false };
  let shownRow = -1;
  let steps = 0;  // nodes that Back can return to

  const title = make("h3", { id: "node", tabindex: "-1" });
  const verdict = make("dl", { class: "verdict" });
  const alone = make("p", { class: "alone" });
  const groupsBox = make("div", { class: "groups" });
  const message = make("div", { class: "message", role: "status" });
  const graph = make("div", { class: "graph" });
  const legend = make("div");
  const tip = make("div", { class: "tip", role: "tooltip", hidden: true });
  const tokensBox = scrolling("Tokens");
  tokensBox.classList.add("tokens");
  const back = make("button", { type: "button", click: goBack }, "Back");
  const random = make("button", { type: "button", click: goAnywhere }, "Random");
  const nextWrong = make("button", { type: "button", disabled: nodes.wrong.length === 0, click: goWrong }, "Next wrong");
  const { list, items } = wrongList(nodes, go);

  const hashNode = () => /^#node=(\d+)$/.exec(location.hash)?.[1];
  const commandFor = (id) => (hint ? command(hint.replace(/id:N\b/, `id:${id}`)) : null);

  // `go` changes the address, and the change of address shows the node. So the browser's Back button works.
  function go(id) {
    message.replaceChildren();
    if (nodes.rowOf(id) === undefined) {
      const [text, more] = id < nodes.total ? [`Node ${id} is not in this page.${hint ? " To see it:" : ""}`, commandFor(id)]
        : [`There is no node ${id}: the graph has ${counted(nodes.total)}.`];
      message.replaceChildren(...[make("p", {}, text), more].filter(Boolean));
      message.scrollIntoView({ block: "nearest" });
    } else if (nodes.rowOf(id) !== shownRow) location.hash = `node=${id}`;
  }

  function goBack() { if (steps > 0) history.back(); }

  function goAnywhere() { go(nodes.idOf(Math.floor(Math.random() * nodes.count))); }

  function goWrong() {
    const here = nodes.wrong.indexOf(shownRow);
    go(nodes.idOf(nodes.wrong[(here + 1) % nodes.wrong.length]));
  }

  function addressChanged() {
    const id = hashNode();
    if (id === undefined) return;
    const row = nodes.rowOf(Number(id));
    // An address visited before has its number of steps in the history; a new one is one step further.
    steps = history.state?.steps ?? (shownRow < 0 || row === shownRow ? steps : steps + 1);
    history.replaceState({ steps }, "");
    if (row === undefined) go(Number(id));
    else if (row !== shownRow) show(row);
    back.disabled = steps === 0;
  }

  function near(place) {
    for (const marked of explorer.querySelectorAll(".near")) marked.classList.remove("near");
    if (place === null) return;
    for (const element of explorer.querySelectorAll(`[data-place="${place}"]`)) element.classList.add("near");
  }

  function pointAt(token, x, y) {
    tip.hidden = token === null;
    near(token ? token.place : null);
    if (!token) return;
    tip.replaceChildren(make("strong", {}, `${token.title}${token.name ? ` ${token.name}` : ""}`),
      make("dl", {}, [["kind", () => token.kindText], ...VALUES].map(([name, text]) =>
        [make("dt", {}, name), make("dd", {}, text(token))])),
      ...(canWalk(token) && !token.sampled ? [make("span", { class: "muted" }, "not in this page")] : []));
    const [width, height] = [tip.offsetWidth, tip.offsetHeight];
    // The tip is on the outer side of the token, unless that is outside of the window.
    const below = y > graph.firstChild.clientHeight / 2 || graph.getBoundingClientRect().top + y - 18 - height < 0;
    tip.style.left = `${Math.max(0, Math.min(graph.clientWidth - width, x - width / 2))}px`;
    tip.style.top = `${below ? y + 18 : y - 18 - height}px`;
  }

  function paintGraph(width) {
    if (shownRow < 0) return [];
    const svg = tokenGraph(nodes.about(shownRow), nodes.tokens(shownRow), marks, width, { onGo: go, onPoint: pointAt });
    svg.addEventListener("keydown", (event) => {
      const shapes = [...svg.querySelectorAll(".token")];
      const here = shapes.indexOf(document.activeElement);
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (here >= 0 && step) shapes[(here + step + shapes.length) % shapes.length].focus();
      else if (here >= 0 && ["Enter", " "].includes(event.key)) shapes[here].dispatchEvent(new Event("click"));
      else return;
      event.preventDefault();
    });
    tip.hidden = true;
    return [svg, tip];
  }
  const plot = { plot: graph, paint: paintGraph, width: 0 };
  plots.push(plot);

  function paintTable() {
    tokensBox.replaceChildren(tokenTable(nodes.tokens(shownRow), hasNames, sort, {
      onGo: go, onNear: (token) => near(token ? token.place : null),
      onSort: (column) => {
        const numeric = !COLUMNS.find(({ name }) => name === column).left;
        sort.descending = sort.column === column ? !sort.descending : numeric;
        sort.column = column;
        paintTable();
        tokensBox.querySelector(`[data-column="${column}"]`).focus();
      },
    }));
  }

  function show(row) {
    const inGraph = graph.contains(document.activeElement);
    const inTable = tokensBox.contains(document.activeElement);
    shownRow = row;
    const node = nodes.about(row);
    const fact = (name, ...value) => make("div", {}, make("dt", {}, name), make("dd", {}, ...value));
    title.textContent = `Node ${node.id}${node.name ? ` · ${node.name}` : ""}`;
    verdict.replaceChildren(...[
      node.predicted === null ? null : fact("predicted", node.predicted,
        isNumber(node.confidence) ? ` (${percent(node.confidence)})` : ""),
      isNumber(node.value) ? fact(chosen === null ? "predicted" : `predicted ${chosen}`, plain(node.value)) : null,
      chosen === null || isNumber(node.value) ? null : fact("explained", `${chosen} (${percent(node.explained, 2)})`),
      node.label === null ? (isNumber(node.target) ? fact("true", plain(node.target)) : fact("true label", "unknown"))
        : fact("true label", `${node.label}${node.wrong ? " ✗ wrong" : node.right ? " ✓ right" : ""}`),
      node.part ? fact("part", node.part) : null,
    ].filter(Boolean));
    alone.textContent = aloneText(node, nodes.tokens(row), data) ?? "";
    groupsBox.replaceChildren(...groupTable(node));
    message.replaceChildren();
    plot.width = 0;
    legend.replaceChildren(...graphLegend(nodes.tokens(row), chosen));
    paintTable();
    redraw();
    for (const item of items) item.setAttribute("aria-current", String(Number(item.dataset.node) === node.id));
    tokensBox.scrollTop = 0;
    // The focused element is gone: focus the graph or the heading of the node.
    if (inGraph) {
      graph.querySelector(".token.self").focus({ preventScroll: true });
      pointAt(null);
    } else if (inTable) title.focus();
  }

  const explorer = make("div", { class: "explorer" },
    make("p", {}, `${chosen === null ? "Why a node got its prediction" : `What speaks for ${chosen}`}: all tokens of its list. ` +
      `Effect: how much the ${quantityOf(data)} falls when the token is hidden. Attention: how much the tokens of the ` +
      "list attend to it. Readout: its weight in the vector that the prediction is made from. Click a token to go to " +
      "its node."),
    sampled || nodes.count < nodes.total ? make("p", { class: "note" },
      `${counted(nodes.count)} of ${counted(nodes.total)} nodes are in this page${hint ? "; for any other: " : "."}`,
      hint ? make("code", {}, hint) : null) : null,
    make("div", { class: "controls" }, searchBox(nodes, (id, input) => {
      if (id === null) message.replaceChildren(make("p", {}, `No node is called “${input.value.trim()}”.`));
      else go(id);
    }), back, random, nextWrong),
    message, make("div", { "aria-live": "polite" }, title, verdict, alone),
    make("div", { class: "walk" }, make("div", {}, graph, legend), make("div", {}, groupsBox, tokensBox)),
    nodes.wrong.length ? [
      make("h3", {}, `Wrongly classified test nodes: ${counted(nodes.wrong.length)}${
        isNumber(data.explorer.wrong) && data.explorer.wrong > nodes.wrong.length
          ? ` of ${counted(data.explorer.wrong)} are in this page` : ""}`),
      make("p", { class: "note" }, "True class → predicted class, the most confident first",
        nodes.wrong.length > WRONG_SHOWN ? `; the first ${WRONG_SHOWN}` : "", ". Arrow keys move in the list."),
      list,
    ] : null);

  explorer.addEventListener("keydown", (event) => {
    if (event.key !== "Backspace" && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Escape" && !tip.hidden) tip.hidden = true;  // the first Escape closes the tip
    else goBack();
  });

  addEventListener("hashchange", addressChanged);
  function begin() {
    const asked = hashNode();
    if (asked !== undefined && nodes.rowOf(Number(asked)) !== undefined) {
      addressChanged();
      document.getElementById("explorer").scrollIntoView();
      return;
    }
    show(data.transfer ? 0 : nodes.wrong[0] ?? 0);  // the page of one node has it first
    back.disabled = true;
    if (asked !== undefined) go(Number(asked));
    else if (!location.hash) location.replace(`#node=${nodes.idOf(shownRow)}`);
  }
  return Object.assign([explorer], { begin });
}
