"use strict";
const $ = (id) => document.getElementById(id);
const look = { q: "", sort: "state", offset: 0 };
let source = null, total = 0, shown = null;

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
  made.innerHTML = html;
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

function page() {
  const size = Number($("programs").dataset.page);
  const last = Math.min(total, look.offset + size);
  $("at").textContent = total ? `${look.offset + 1}–${last} of ${total}` : "";
  document.querySelector("[data-act=back]").disabled = look.offset === 0;
  document.querySelector("[data-act=on]").disabled = last >= total;
  $("none").hidden = total > 0;
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
  if (data.counts) {
    total = 0;
    for (const [state, count] of Object.entries(data.counts)) {
      document.querySelector(`[data-count="${state}"]`).textContent = count;
      total += count;
    }
    $("programs").classList.toggle("budgets", data.budgets);
    page();
  }
}

function connect() {
  source?.close();
  source = new EventSource(`ui/events?${new URLSearchParams(look)}`);
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

async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  const found = await answer.json();
  $("said").textContent = answer.ok ? "" : found.error.message;
  return answer.ok;
}

async function story(row) {
  const answer = await fetch(`ui/story/${row}`);
  if (!answer.ok) return;
  const part = $("story").firstElementChild;
  part.innerHTML = await answer.text();
  clocks(part);
  shown = row;
  if (!$("story").open) $("story").showModal();
}

function stop(row) {
  const box = $("confirm"), name = $(`p-${row}`).querySelector("[data-act=story]").textContent;
  box.firstElementChild.textContent = `Stop ${name}? Its calls are aborted and refused for five minutes.`;
  box.returnValue = "";
  box.onclose = () => { if (box.returnValue === "stop") post("ui/act", { row, action: "stop" }); };
  box.showModal();
}

function turn(pages) {
  look.offset = Math.max(0, look.offset + pages * Number($("programs").dataset.page));
  connect();
}

const acts = {
  story, stop,
  raise: (row) => post("ui/act", { row, action: "raise" }),
  back: () => turn(-1), on: () => turn(1),
  "sign-out": async () => { if (await post("ui/sign-out", {})) location.reload(); },
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) acts[button.dataset.act](button.closest("[data-row]")?.dataset.row);
});

$("sign-in")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await post("ui/sign-in", { key: $("key").value })) location.reload();
});

if ($("look")) {
  const again = () => {
    Object.assign(look, { q: $("q").value, sort: ($("down").checked ? "-" : "") + $("sort").value, offset: 0 });
    connect();
  };
  let typed = 0;
  $("q").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(again, 250); });
  $("sort").addEventListener("change", again);
  $("down").addEventListener("change", again);
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
