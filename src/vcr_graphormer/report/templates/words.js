// Words that need an explanation. Their first use in a section becomes a link to the list at the end of the page.
// Each is also in docs/glossary.md.

const WORDS = [
  ["Attention", /attention/, "How much one token looks at another inside the model. It says where the model looks, not what its answer rests on; see effect."],
  ["Average precision", /average precision/, "The area below the precision-recall curve. Guessing gives the fraction of nodes that have the class."],
  ["Baseline", /baselines?/, "A plain method that learned from the same nodes. If it is as good, take it."],
  ["Brightened and faded nodes", /brightened|faded/, "Nodes that gain or lose probability when walks may pass through super nodes."],
  ["Calibration", /calibrat\w+/, "Of all predictions with probability 0.8, are 80 % right? Then the model is calibrated."],
  ["Content neighbours", /content (?:neighbours|tokens)/, "Nodes that a walk visits often when it may pass through one super node per training label."],
  ["Effect", /effects?/, "By how much the explained output falls when a token is hidden. Trust it more than attention."],
  ["Faithfulness", /faithful\w*/, "Whether hiding the tokens that an explanation names changes the prediction more than hiding others."],
  ["Gate", /gates?/, "How much of the answer comes from the whole list beside the path of the node and its hops. 0 is closed."],
  ["Heterophily, homophily", /homophily|heterophily/, "Homophily: edges mostly join nodes of the same class. Heterophily: they mostly do not."],
  ["Hop", /hops?/, "Hop 1 is the average of the features of the neighbours, hop 2 that of their neighbours, and so on."],
  ["Personalized PageRank", /PageRank/, "The fraction of time that a random walk, which often returns to its node, spends at each other node."],
  ["Precision", /precision/, "The fraction of the predictions of a class that are right."],
  ["Readout", /readout/, "What makes one vector out of the tokens of a list."],
  ["Recall", /recall/, "The fraction of the nodes of a class that are predicted as such."],
  ["ROC-AUC", /ROC[- ]AUC|roc auc/, "How often a node of the class gets a higher probability than one without it. Guessing gives 50 %."],
  ["Structure neighbours", /structure (?:neighbours|tokens)/, "Nodes that a walk visits often when it may pass through one super node per cluster of the graph."],
  ["Super node", /super nodes?/, "An extra node that links all members of a cluster, or all training nodes of a label."],
  ["Threshold", /thresholds?/, "The probability from which on a class is predicted; 0.5 unless it was chosen on validation nodes."],
  ["Token list", /token lists?|tokens?/, "What the model reads of a node: itself, its hops, and its best-ranked neighbours."],
];

const wordId = (name) => `word-${name.toLowerCase().replaceAll(/\W+/g, "-")}`;

// Link the first use of each word in a section; return the words that were found.
function linkWords(section) {
  const found = new Set();
  const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) {
    if (walker.currentNode.parentElement.closest("p, li") && !walker.currentNode.parentElement.closest("a, button, code, svg, table, pre")) {
      texts.push(walker.currentNode);
    }
  }
  for (let text of texts) {
    for (;;) {
      const next = WORDS.filter(([name]) => !found.has(name))
        .map(([name, pattern]) => ({ name, match: new RegExp(`(?<![\\w-])(?:${pattern.source})(?![\\w-])`, "i").exec(text.data) }))
        .filter(({ match }) => match).sort((one, other) => one.match.index - other.match.index)[0];
      if (!next) break;
      found.add(next.name);
      const use = text.splitText(next.match.index);
      text = use.splitText(next.match[0].length);
      use.replaceWith(pageLink(wordId(next.name), next.match[0], { class: "word" }));
    }
  }
  return found;
}

// Link words in all sections but the explorer, whose text changes; return the list of those that were used.
function wordsSection(sections) {
  const used = new Set(sections.filter(({ id }) => id !== "explorer").flatMap((section) => [...linkWords(section)]));
  if (!used.size) return null;
  return [make("dl", { class: "words" }, WORDS.filter(([name]) => used.has(name)).map(([name, , text]) =>
    [make("dt", { id: `${wordId(name)}-title`, tabindex: "-1" }, name), make("dd", {}, text)]))];
}
