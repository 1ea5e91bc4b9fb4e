// page.js -- the page of drt-serve. Whatever comes from a corpus or a model becomes a text node, never markup.
"use strict";

const $ = (id) => document.getElementById(id);
let running = null; // AbortController of the answer that streams
let storeThere = false;

function element(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function request(path, body, signal) {
  const headers = {};
  const key = $("key").value;
  if (key) headers.Authorization = "Bearer " + key;
  if (body) headers["Content-Type"] = "application/json";
  return fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
}

async function failure(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return "the server answered with status " + response.status;
  }
}

function show(id, text, bad) {
  $(id).textContent = text;
  $(id).classList.toggle("bad", Boolean(bad));
}

// ---- the model

async function about() {
  const response = await request("/v1/models");
  if (!response.ok) return show("about", await failure(response), true);
  const model = (await response.json()).data[0];
  const store = model.drt.store;
  storeThere = store !== null;
  const count = (n) => n.toLocaleString("en");
  show("about", model.id + ", " + count(Math.round(model.drt.parameters / 1e5) / 10) + "M parameters, " +
    model.drt.device + (store ? "; store of " + count(store.chunks) + " chunks from " + count(store.documents) + " documents" : "; no store"));
  const base = model.drt.variant === "base";
  for (const option of [...$("source").options, ...$("memory").options])
    option.disabled = (!storeThere && (option.value === "corpus" || option.value === "both"));
  if (base) $("source").disabled = true;
  $("source").value = base ? "none" : storeThere ? "corpus" : model.drt.retrieval;
  $("memory").value = model.drt.memory;
  for (const option of $("searcher").options) {
    const landmarks = option.value === "lexical" || (store && store.landmarks);
    option.disabled = !landmarks || (option.value !== "landmark" && !(store && store.lexical));
  }
  if (store && !store.landmarks) $("searcher").value = "lexical";
  for (const e of $("search").elements) e.disabled = !storeThere;
}

// ---- what was read

function originOf(neighbour) {
  if (neighbour.source !== "corpus") return "own past, chunk " + neighbour.chunk;
  return neighbour.name + (neighbour.key ? " (" + neighbour.key + ")" : "");
}

function sourceItem(neighbour) {
  const item = element("div", "source");
  item.append(element("div", "name", originOf(neighbour)));
  const facts = element("div", "facts");
  const bar = element("progress");
  bar.max = 1;
  bar.value = neighbour.weight;
  bar.setAttribute("aria-label", "weight");
  facts.append(bar, "weight " + neighbour.weight.toFixed(3) + ", score " + neighbour.score.toFixed(2) +
    (neighbour.group >= 0 ? ", layer group " + neighbour.group : ", token memory") +
    (neighbour.source === "corpus" ? ", document " + neighbour.document + ", token " + neighbour.token_offset : ""));
  item.append(facts);
  if (neighbour.text !== undefined) item.append(element("blockquote", "", neighbour.text));
  if (neighbour.source === "corpus") item.append(documentButton(neighbour.document, neighbour.chunk));
  return item;
}

function choose(part, record, share) {
  for (const e of document.querySelectorAll(".part.chosen")) {
    e.classList.remove("chosen");
    e.setAttribute("aria-pressed", "false");
  }
  part.classList.add("chosen");
  part.setAttribute("aria-pressed", "true");
  $("read-hint").hidden = true;
  const rows = [element("p", "facts", "From token " + record.position + " on, the model could read:")];
  if (share() > 0) rows.push(element("p", "facts", "Share of the token memory: " + (100 * share()).toFixed(1) + " %"));
  if (!record.neighbours.length) rows.push(element("p", "", "nothing: the first chunk of a text has no neighbours."));
  $("read").replaceChildren(...rows, ...record.neighbours.map(sourceItem));
}

// ---- the answer

// Text is shown a few times a second: laying out a long answer anew for each token would take longer than the token.
let shown = []; // [part, text]
let showing = 0;
function showText(part, text) {
  shown.push([part, text]);
  if (!showing) showing = setTimeout(showNow, 50);
}
function showNow() {
  clearTimeout(showing);
  showing = 0;
  const answer = $("answer"), follows = answer.scrollHeight - answer.scrollTop - answer.clientHeight < 40;
  for (const [part, text] of shown) {
    if (part.lastChild) part.lastChild.appendData(text);
    else part.append(text);
  }
  shown = [];
  if (follows) answer.scrollTop = answer.scrollHeight;
}

// One part of the answer: the tokens that could read the same chunks.
function newPart(record) {
  const part = element("span", "part");
  let shares = 0, events = 0;
  part.addShare = (share) => { shares += share; events++; };
  if (record) {
    part.classList.add("has");
    part.tabIndex = 0;
    part.setAttribute("role", "button");
    part.setAttribute("aria-pressed", "false");
    part.setAttribute("aria-label", "part from token " + record.position);
    const act = () => choose(part, record, () => (events ? shares / events : 0));
    part.addEventListener("click", act);
    part.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    });
  }
  $("answer").append(part);
  return part;
}

function times(all, tokens) {
  const rows = [["wait for a session", all.queue_seconds], ["prompt", all.prompt_seconds], ["tokens", all.generate_seconds],
    ["of these: search", all.search_seconds], ["of these: read chunks", all.read_seconds], ["of these: encode chunks", all.encode_seconds]];
  const most = Math.max(1e-9, all.queue_seconds, all.prompt_seconds, all.generate_seconds);
  $("times").tBodies[0].replaceChildren(...rows.filter((row) => row[1] !== undefined).map(([name, seconds]) => {
    const row = element("tr"), bar = element("td"), meter = element("meter");
    meter.max = most;
    meter.value = seconds;
    meter.setAttribute("aria-label", name);
    bar.append(meter);
    row.append(element("td", "", name), element("td", "number", seconds.toFixed(3)), bar);
    return row;
  }));
  $("times").hidden = false;
  const rate = all.generate_seconds > 0 ? tokens / all.generate_seconds : 0;
  return tokens + " tokens, " + rate.toFixed(1) + " a second" + (all.searched_by ? "; searched by " + all.searched_by : "");
}

// Server-sent events of one data line each.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2))
      if (held.startsWith("data: ")) yield held.slice(6, end);
  }
}

async function stream(response) {
  let part = newPart(null), tokens = 0, summary = "", shares = 0, shared = 0;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return summary + (shares > 0 ? "; the token memory gave " + (100 * shares / shared).toFixed(0) + " %" : "");
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    if (event.usage) tokens = event.usage.completion_tokens;
    if (event.timings) part.timings = event.timings;
    if (part.timings && event.usage) summary = times(part.timings, tokens);
    for (const choice of event.choices) {
      for (const record of (choice.retrieval ? choice.retrieval.records : [])) {
        const next = newPart(record.neighbours.length ? record : null);
        next.timings = part.timings;
        part = next;
      }
      if (choice.retrieval) {
        part.addShare(choice.retrieval.memory_share);
        shares += choice.retrieval.memory_share;
        shared++;
      }
      if (choice.text) showText(part, choice.text);
    }
  }
  return "the connection ended early";
}

async function generate() {
  const source = $("source").value, memory = $("memory").value;
  const body = {
    prompt: $("prompt").value, max_tokens: $("tokens").valueAsNumber, temperature: $("temperature").valueAsNumber,
    top_p: $("top_p").valueAsNumber, seed: $("seed").valueAsNumber, stream: true, stream_options: { include_usage: true },
    retrieval: { source: memory === "none" ? source : "none", memory, k: 4 },
  };
  running = new AbortController();
  $("start").disabled = true;
  $("stop").disabled = false;
  $("times").hidden = true;
  $("read").replaceChildren();
  $("read-hint").hidden = false;
  $("answer").replaceChildren(element("span", "prompt", body.prompt));
  show("state", "generating …");
  try {
    const response = await request("/v1/completions", body, running.signal);
    if (!response.ok) throw new Error(await failure(response));
    show("state", await stream(response));
  } catch (error) {
    show("state", error.name === "AbortError" ? "stopped" : error.message, error.name !== "AbortError");
  }
  showNow();
  $("start").disabled = false;
  $("stop").disabled = true;
  running = null;
}

// ---- search and documents

function documentButton(document, chunk) {
  const button = element("button", "", "Read the document");
  button.type = "button";
  button.addEventListener("click", () => read(document, chunk));
  return button;
}

async function read(id, chunk) {
  $("document-hint").hidden = true;
  $("document").hidden = true;
  const response = await request("/documents/" + id + "?first=0&chunks=256");
  if (!response.ok) return show("document-name", await failure(response), true);
  const found = await response.json();
  const number = chunk - found.first_chunk + 1;
  show("document-name", found.name + (found.key ? " (" + found.key + ")" : "") + " — document " + id + ", " + found.tokens + " tokens in " +
    found.chunks + " chunks; the hit is chunk " + number + (found.text_chunks < found.chunks ? "; the first " + found.text_chunks + " are shown" : ""));
  $("document").textContent = found.text;
  $("document").hidden = false;
  $("document").scrollTop = $("document").scrollHeight * (number - 1) / Math.max(1, found.text_chunks);
  $("document").focus();
}

async function search() {
  show("search-state", "searching …");
  const score = $("searcher").value === "landmark" ? "score " : "score of its landmark "; // words decide the order, too
  const response = await request("/search", { text: $("query").value, k: $("k").valueAsNumber, searcher: $("searcher").value });
  if (!response.ok) return show("search-state", await failure(response), true);
  const found = await response.json();
  show("search-state", found.hits.length + " hits in " + (1000 * found.seconds).toFixed(1) + " ms, " + found.searched_by);
  $("hits").replaceChildren(...found.hits.map((hit) => {
    const item = element("li");
    item.append(element("div", "name", hit.name + (hit.key ? " (" + hit.key + ")" : "")),
      element("div", "facts", score + hit.score.toFixed(3) + ", document " + hit.document + ", token " + hit.token_offset + ", chunk id " + hit.chunk),
      element("blockquote", "", hit.text), documentButton(hit.document, hit.chunk));
    return item;
  }));
}

function on(id, event, act) {
  $(id).addEventListener(event, (e) => {
    e.preventDefault();
    Promise.resolve(act()).catch((error) => show("state", error.message, true));
  });
}
on("generate", "submit", () => (running ? undefined : generate()));
on("search", "submit", search);
on("stop", "click", () => running && running.abort());
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("generate").requestSubmit();
});
$("key").addEventListener("change", () => about().catch((error) => show("about", error.message, true)));
about().catch((error) => show("about", error.message, true));
