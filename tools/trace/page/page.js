/* page.js -- shows the records of a trace. Texts are inserted as textContent only. */
"use strict";
const chunks = JSON.parse(document.getElementById("data").textContent);
const text = document.getElementById("text"), panel = document.getElementById("panel");
const spans = [];
let shown = -1, pinned = -1, marked = [], lit = null;
const tokenSpans = [];                  /* in the order of the text */

function make(tag, className, content) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (content !== undefined) e.textContent = content;
  return e;
}
const count = (n, what) => n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");

/* The last parts of a path are what tells documents apart. */
function shortName(path) {
  const parts = path.split("/");
  return parts.length > 3 ? "\u2026/" + parts.slice(-2).join("/") : path;
}

/* Where a passage is from; `offset`: of what is shown, in tokens. */
function whereOf(hit, offset) {
  const where = make("div", "where");
  if (hit.source === "self") {
    const a = make("a", "", "chunk " + hit.chunk + " of this text");
    a.tabIndex = 0;
    a.setAttribute("role", "link");
    a.onclick = () => { pin(hit.chunk); spans[hit.chunk].scrollIntoView({block: "center"}); };
    a.onkeydown = e => { if (e.key === "Enter") a.onclick(); };
    where.append(a, ", token " + offset.toLocaleString("en"));
  } else {
    /* A jsonl file is one path for all of its documents: there the key tells them apart. */
    const name = make("b", "", hit.key || shortName(hit.document));
    name.title = hit.document;
    where.append(name, (hit.key ? " in " + shortName(hit.document) : "") +
      (hit.line ? " \u00b7 line " + hit.line.toLocaleString("en") : "") + " \u00b7 chunk " + hit.chunk +
      " of document " + hit.document_id + " \u00b7 token " + offset.toLocaleString("en"));
  }
  return where;
}

const tagOf = source => make("span", "tag " + source, source === "self" ? "own past" : "store");

function card(width, facts, where, what) {
  const card = make("div", "hit"), bar = make("div", "bar"), fill = make("i"), row = make("div", "facts");
  fill.style.width = (100 * width).toFixed(1) + "%";
  bar.append(fill);
  row.append(...facts);
  card.append(row, bar, where, what);
  return card;
}

function hitCard(hit) {
  return card(hit.weight, [make("b", "", hit.rank + "."), make("span", "", "weight " + hit.weight.toFixed(3)),
    make("span", "", "score " + hit.score.toFixed(3)), tagOf(hit.source)],
    whereOf(hit, hit.offset), make("p", "what", hit.text.replace(/^\s+|\s+$/g, "")));
}

const memoryOf = token => chunks[+token.dataset.i].memory[+token.dataset.m];
const percent = x => (100 * x).toFixed(1) + "\u00a0%";
function partCard(c, part, rank) {
  const passage = c.passages[part.passage], letters = Array.from(passage.text), what = make("p", "what");
  what.append(letters.slice(0, part.begin).join("").replace(/^\s+/, ""),
    make("mark", "", letters.slice(part.begin, part.end).join("")), letters.slice(part.end).join("").replace(/\s+$/, ""));
  return card(part.share, [make("b", "", rank + "."), make("span", "", percent(part.share) + " of the probability"),
    tagOf(passage.source)], whereOf(passage, part.offset), what);
}

/* What the token memory gave of one token. */
function showToken(span) {
  if (lit === span) return;
  const i = +span.dataset.i, c = chunks[i], m = c.memory[+span.dataset.m];
  show(-1);
  lit = span;
  span.classList.add("on");
  panel.replaceChildren();
  const title = make("h2", "", "\u201c" + span.textContent + "\u201d");
  title.append(make("small", "", "token " + (c.first_token + m.token).toLocaleString("en") + ", generated"));
  const given = m.from.reduce((n, part) => n + part.share, 0);
  panel.append(title, make("p", "note", percent(m.share) + " of its probability came from the token memory" +
    (m.from.length ? (m.from.length === 1 ? "; this entry" : "; these " + m.from.length + " entries") +
      " gave " + percent(given) + "." : ".")));
  m.from.forEach((part, k) => {
    panel.append(partCard(c, part, k + 1));
    const passage = c.passages[part.passage];
    if (passage.source === "self" && spans[passage.chunk] && !marked.includes(passage.chunk)) {
      spans[passage.chunk].classList.add("source");
      marked.push(passage.chunk);
    }
  });
}

function show(i) {
  if (i === shown && !lit) return;
  if (lit) lit.classList.remove("on");
  lit = null;
  if (shown >= 0) spans[shown].classList.remove("shown");
  for (const n of marked) spans[n].classList.remove("source");
  marked = [];
  shown = i;
  panel.replaceChildren();
  panel.scrollTop = 0;
  if (i < 0) {
    panel.append(make("p", "note", "Point at a chunk of the text."));
    return;
  }
  const c = chunks[i];
  spans[i].classList.add("shown");
  const title = make("h2", "", "Chunk " + c.chunk);
  const kind = c.prompt_tokens === c.n_tokens ? "prompt" : c.prompt_tokens ? "prompt, then generated" : "generated";
  title.append(make("small", "", "tokens " + c.first_token.toLocaleString("en") + "\u2013" +
    (c.first_token + c.n_tokens - 1).toLocaleString("en") + ", " + kind));
  panel.append(title);
  const found = c.groups.reduce((n, g) => n + g.retrieved.length, 0);
  if (c.memory) {
    const mean = c.memory.reduce((n, m) => n + m.share, 0) / c.memory.length;
    panel.append(make("p", "note", "The token memory gave " + percent(mean) + " of the probability of its " +
      count(c.memory.length, "generated token") + ". Point at one of them."));
    return;
  }
  panel.append(make("p", "note", found ? "The query at the end of chunk " + (c.chunk - 1) +
    " retrieved these chunks; the model read them during this chunk." : i === 0 ?
    "The first chunk has no neighbours: the first query is made at its end." :
    "Nothing was retrieved for this chunk."));
  for (const g of c.groups) {
    if (c.groups.length > 1) panel.append(make("h3", "", "Retrieval group " + g.group));
    for (const hit of g.retrieved) {
      panel.append(hitCard(hit));
      if (hit.source === "self" && spans[hit.chunk] && hit.chunk !== i) {
        spans[hit.chunk].classList.add("source");
        marked.push(hit.chunk);
      }
    }
  }
}

function pin(i) {
  if (pinned >= 0) spans[pinned].classList.remove("pinned");
  pinned = i;
  if (i >= 0) {
    spans[i].classList.add("pinned");
    for (const s of text.querySelectorAll('[tabindex="0"]')) s.tabIndex = -1;
    spans[i].tabIndex = 0;
    show(i);
  }
}

function step(by) {
  const to = Math.min(Math.max((pinned >= 0 ? pinned : shown) + by, 0), chunks.length - 1);
  pin(to);
  spans[to].focus({preventScroll: true});
  spans[to].scrollIntoView({block: "nearest"});
}

const all = document.createDocumentFragment();
chunks.forEach((c, i) => {
  const span = make("span", "chunk");
  span.dataset.n = c.chunk;
  span.dataset.i = i;
  span.tabIndex = i === 0 ? 0 : -1;
  span.setAttribute("aria-label", "chunk " + c.chunk);
  const letters = Array.from(c.text);
  span.append(letters.slice(0, c.prompt_characters).join(""));
  const made = make("span", "made");
  let at = c.prompt_characters;
  (c.memory || []).forEach((m, k) => {
    if (m.end <= at) return;              /* a part of a character */
    made.append(letters.slice(at, m.begin).join(""));
    const token = make("span", "tok", letters.slice(m.begin, m.end).join(""));
    token.style.setProperty("--share", m.share.toFixed(3));
    token.dataset.i = i;
    token.dataset.m = k;
    token.tabIndex = tokenSpans.length ? -1 : 0;
    token.setAttribute("aria-label", token.textContent + ", " + percent(m.share) + " from memory");
    made.append(token);
    tokenSpans.push(token);
    at = m.end;
  });
  made.append(letters.slice(at).join(""));
  if (c.prompt_characters < letters.length) span.append(made);
  spans.push(span);
  all.append(span);
});
text.replaceChildren(all);
document.getElementById("legend").hidden = tokenSpans.length === 0;
const tokens = chunks.reduce((n, c) => n + c.n_tokens, 0), prompt = chunks.reduce((n, c) => n + c.prompt_tokens, 0);
document.getElementById("summary").textContent = count(chunks.length, "chunk") + ", " + count(tokens, "token") + " (" +
  prompt.toLocaleString("en") + " prompt, " + (tokens - prompt).toLocaleString("en") + " generated)";

const chunkAt = e => { const s = e.target.closest && e.target.closest(".chunk"); return s ? +s.dataset.i : -1; };
function look(e) {
  const token = e.target.closest && e.target.closest(".tok"), i = chunkAt(e);
  if (i < 0 || pinned >= 0) return;
  if (token) showToken(token);
  else show(i);
}
text.addEventListener("mouseover", look);
text.addEventListener("focusin", look);
text.addEventListener("click", e => {
  const i = chunkAt(e), token = e.target.closest && e.target.closest(".tok");
  if (i < 0) return;
  if (i === pinned && (!token || token === lit)) return pin(-1);
  pin(i);
  if (token) showToken(token);
});

/* From the token that is shown, or from the first of the chunk that is. */
function stepToken(by) {
  let to = tokenSpans.indexOf(lit) + by;
  if (!lit) to = Math.max(tokenSpans.findIndex(t => +t.dataset.i >= shown), 0);
  const token = tokenSpans[Math.min(Math.max(to, 0), tokenSpans.length - 1)];
  if (!token) return;
  pin(-1);
  for (const t of tokenSpans) t.tabIndex = -1;
  token.tabIndex = 0;
  token.focus({preventScroll: true});
  token.scrollIntoView({block: "nearest"});
  showToken(token);
}

document.addEventListener("keydown", e => {
  if (e.altKey || e.ctrlKey || e.metaKey) return;
  if (e.shiftKey && e.key === "ArrowRight") stepToken(1);
  else if (e.shiftKey && e.key === "ArrowLeft") stepToken(-1);
  else if (e.key === "ArrowRight") step(1);
  else if (e.key === "ArrowLeft") step(-1);
  else if (e.key === "Escape") pin(-1);
  else return;
  e.preventDefault();
});
/* Begin where there is something to see; #12 in the address pins chunk 12. */
const named = chunks.findIndex(c => "#" + c.chunk === location.hash);
if (named >= 0) { pin(named); spans[named].scrollIntoView({block: "center"}); }
else if (tokenSpans.length) {
  const most = tokenSpans.reduce((a, b) => memoryOf(b).share > memoryOf(a).share ? b : a);
  showToken(most);
  most.scrollIntoView({block: "center"});
}
else show(chunks.length ? Math.max(chunks.findIndex(c => c.groups.some(g => g.retrieved.length)), 0) : -1);
