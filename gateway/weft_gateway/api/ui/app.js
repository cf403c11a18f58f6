"use strict";
const $ = (id) => document.getElementById(id);
const look = { stream: true, q: "", sort: "state" };
let source = null, shown = null;

function span(s) {
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} m`;
}

function clocks(within) {
  const now = Date.now() / 1000;
  for (const one of within.querySelectorAll("time[data-at]"))
    one.textContent = Number(one.dataset.at) ? span(Math.max(0, now - one.dataset.at)) : "";
  for (const one of within.querySelectorAll("time[data-clock]"))
    one.textContent = new Date(one.dataset.clock * 1000).toLocaleTimeString();
}

function put(name, html) {
  const made = document.createElement("template");
  made.innerHTML = html.trim();
  const fresh = made.content.firstElementChild, old = $(`p-${name}`);
  clocks(fresh);
  if (!old) return $("rows").append(fresh);
  const act = old.contains(document.activeElement) && document.activeElement.dataset.act;
  old.replaceWith(fresh);
  if (act) fresh.querySelector(`[data-act=${act}]`)?.focus();
}

function arrange(order) {
  const rows = $("rows"), wanted = new Set(order.map((name) => `p-${name}`));
  for (const row of [...rows.children]) if (!wanted.has(row.id)) row.remove();
  order.forEach((name, at) => {
    const row = $(`p-${name}`);
    if (row && rows.children[at] !== row) rows.insertBefore(row, rows.children[at] ?? null);
  });
}

function apply(data) {
  for (const [name, html] of Object.entries(data.rows ?? {})) put(name, html);
  if (data.order) arrange(data.order);
  if (data.engines !== undefined) $("engines").innerHTML = data.engines;
  if (data.events) {
    $("events").insertAdjacentHTML("afterbegin", data.events);
    while ($("events").children.length > 200) $("events").lastElementChild.remove();
    clocks($("events"));
  }
  if (data.budgets !== undefined) $("programs").classList.toggle("budgets", data.budgets);
  if (data.counts) {
    let total = 0;
    for (const [state, count] of Object.entries(data.counts)) {
      document.querySelector(`[data-count="${state}"]`).textContent = count;
      total += count;
    }
    const rows = $("rows").children.length;
    $("at").textContent = rows < total ? `the first ${rows} of ${total}` : "";
    $("none").hidden = total > 0;
  }
}

function connect() {
  source?.close();
  source = new EventSource(`ui/top?${new URLSearchParams(look)}`);
  let first = true;
  source.onopen = () => { first = true; $("said").textContent = ""; };
  source.onmessage = (event) => {
    // A stream begins with everything.
    if (first) $("events").replaceChildren();
    first = false;
    apply(JSON.parse(event.data));
  };
  source.onerror = () => { $("said").textContent = "The gateway does not answer."; };
  source.addEventListener("signed-out", () => location.reload());
}

async function send(method, path, body) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(path, { method, headers, body: JSON.stringify(body) });
  $("said").textContent = answer.ok ? "" : (await answer.json()).error.message;
  return answer.ok;
}

async function story(row) {
  const answer = await fetch(`ui/top/${row}`);
  if (!answer.ok) return;
  const part = $("story").firstElementChild;
  part.innerHTML = await answer.text();
  clocks(part);
  shown = row;
  if (!$("story").open) $("story").showModal();
}

function ask(name, text, then) {
  const box = $(name);
  box.firstElementChild.textContent = text;
  box.returnValue = "";
  box.onclose = () => { if (box.returnValue) then(box.querySelector("input")?.valueAsNumber); };
  box.showModal();
}

const acts = {
  story,
  stop: (row, button, session) =>
    ask("stop", `Stop ${session}? Its calls are aborted and refused for five minutes.`,
      () => send("DELETE", `ui/top/${row}`)),
  raise: (row, button, session) => {
    const { name, limit } = button.dataset;
    $("raise").querySelector("input").value = 2 * limit;
    ask("raise", `The budget of ${session} has a limit of ${limit} ${name}. Set it to`,
      (value) => send("PATCH", `ui/top/${row}`, { budget: { [name]: value } }));
  },
  "sign-out": async () => { if (await send("DELETE", "ui/sign-in")) location.reload(); },
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]"), row = button?.closest("[data-row]");
  if (button) acts[button.dataset.act](row?.dataset.row, button, row?.querySelector(".link").textContent);
});

$("sign-in")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await send("POST", "ui/sign-in", { key: $("key").value })) location.reload();
});

if ($("look")) {
  const again = () => {
    Object.assign(look, { q: $("q").value, sort: ($("down").checked ? "-" : "") + $("sort").value });
    connect();
  };
  let typed = 0;
  $("q").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(again, 250); });
  $("look").addEventListener("change", (event) => { if (event.target !== $("q")) again(); });
  $("look").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/INPUT|SELECT/.test(event.target.tagName)) { event.preventDefault(); $("q").focus(); }
  });
  $("story").addEventListener("close", () => { shown = null; });
  setInterval(() => { if (shown) story(shown); }, 2000);
  setInterval(() => clocks(document), 1000);
  clocks(document);
  connect();
}
