// Keeps the page up to date by server-sent events, and sends the operator's commands. page.js draws.
"use strict";

(() => {
  const TOKEN = "prorl.token";
  const AGAIN = 5000; // milliseconds
  const page = location.pathname.replace(/^\/(run\/)?/, ""); // as in the address: still percent-encoded
  let source = null;

  // The token comes in the fragment, which no server sees; from there it moves out of sight and out of the history.
  function keepToken() {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (!given) return;
    sessionStorage.setItem(TOKEN, given);
    history.replaceState(null, "", location.pathname);
  }

  const shown = () => [...document.querySelectorAll("#sections > section")].map((element) => element.id);

  function take({ outline, sections }) {
    prorl.apply(sections);
    for (const key of shown()) if (!outline.includes(key)) prorl.remove(key);
    arrange(outline);
    unlock();
    listed();
  }

  // Sections that came later than others may belong before them.
  function arrange(keys) {
    if (shown().join() === keys.join()) return;
    for (const key of keys) {
      document.getElementById("sections").append(document.getElementById(key));
      document.getElementById("contents").append(document.getElementById(`link-${key}`));
    }
  }

  // The list of runs: what the reader sorts by, looks for and chose holds when the rows are renewed.
  const list = { column: -1, down: false, text: "", chosen: new Set() };

  function listed() {
    const table = document.querySelector("table.runs");
    if (!table) return;
    const rows = [...table.tBodies[0].rows];
    if (list.column >= 0) {
      const value = (row) => row.cells[list.column].dataset.sort || "";
      const numbers = rows.every((row) => !Number.isNaN(Number(value(row) || 0)));
      const compare = (one, other) => numbers ? value(one) - value(other) : value(one).localeCompare(value(other));
      const empty = (row) => value(row) === "";
      const order = [...rows].sort((a, b) => empty(a) - empty(b) || (list.down ? -1 : 1) * compare(a, b));
      if (order.some((row, at) => row !== rows[at])) table.tBodies[0].append(...order);
    }
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      head.setAttribute("aria-sort", at !== list.column ? "none" : list.down ? "descending" : "ascending");
    });
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(list.text);
      const box = row.querySelector("input");
      box.checked = list.chosen.has(box.value);
    }
    const button = document.querySelector("#runs .sift button");
    button.disabled = list.chosen.size < 2;
    const search = document.querySelector("#runs .sift input");
    if (search.value.toLowerCase() !== list.text) search.value = list.text;
  }

  document.addEventListener("input", (event) => {
    if (event.target.matches("#runs .sift input")) list.text = event.target.value.toLowerCase();
    else if (event.target.matches("input[name=overlay]")) list.chosen[event.target.checked ? "add" : "delete"](event.target.value);
    else return;
    listed();
  });

  document.addEventListener("click", (event) => {
    const head = event.target.closest(".runs th button")?.closest("th");
    if (head) {
      list.down = list.column === head.cellIndex && !list.down;
      list.column = head.cellIndex;
      listed();
    } else if (event.target.closest("#runs .sift button")) {
      location.href = `/overlay?${new URLSearchParams([...list.chosen].map((name) => ["run", name]))}`;
    }
  });

  function connected(yes) {
    document.documentElement.dataset.live = yes ? "yes" : "no";
  }

  // A browser keeps six connections to one server: pages in the background give theirs back.
  function listen() {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (!source || source.readyState === EventSource.CLOSED) {
      source = new EventSource(`/events/${page}`);
      source.onopen = () => connected(true);
      source.onerror = () => {
        connected(false);
        // A browser asks again by itself, but not after an answer that is no stream, as of a run that was moved away.
        if (source?.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN);
      };
      source.onmessage = (event) => take(JSON.parse(event.data));
    }
  }

  function unlock() {
    const fieldset = document.querySelector(".commands fieldset");
    const paused = document.querySelector("#health dd span")?.textContent === "paused";
    for (const word of ["pause", "resume"]) {
      const button = document.querySelector(`.commands .words [value=${word}]`);
      if (button) button.disabled = paused === (word === "pause");
    }
    if (!fieldset || !fieldset.disabled || !sessionStorage.getItem(TOKEN)) return;
    fieldset.disabled = false;
    tell("Obeyed when the current step ends.", "soft");
  }

  function tell(sentence, kind) {
    const output = document.querySelector(".commands output");
    output.textContent = sentence;
    output.className = kind;
  }

  async function command(words, yes = false) {
    const headers = { "content-type": "application/json", authorization: `Bearer ${sessionStorage.getItem(TOKEN)}` };
    try {
      const answer = await fetch(`/command/${page}`, { method: "POST", headers, body: JSON.stringify({ words, yes }) });
      const text = await answer.text();
      const said = text.startsWith("{") ? JSON.parse(text).said : text;
      if (answer.status === 409 && confirm(`${said.split(":")[0]}. Give this command?`)) return command(words, true);
      tell(said, answer.ok ? "good" : "bad");
      return answer.ok;
    } catch (error) {
      tell(`The command was not given: ${error.message}`, "bad");
      return false;
    }
  }

  document.addEventListener("click", (event) => {
    const word = event.target.closest(".commands .words button")?.value;
    if (!word) return;
    if (word === "stop" && !confirm("Stop this run? It saves a checkpoint and ends; `prorl resume` goes on.")) return;
    if (word === "roll-back" && !confirm("Return this run to its last good checkpoint?")) return;
    if (word === "reset-reference" && !confirm("Take the present policy as the new reference of the KL penalty?")) return;
    command([word]);
  });

  document.addEventListener("submit", async (event) => {
    event.preventDefault();
    const line = event.target.elements.line;
    if (line.value.trim() && (await command(line.value.trim().split(/\s+/)))) line.value = "";
  });

  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/assets/live.css" }));
  keepToken();
  if (location.pathname !== "/overlay") { // which shows the runs as they were when it was opened
    listen();
    document.addEventListener("visibilitychange", listen);
  }
  window.addEventListener("hashchange", () => { keepToken(); unlock(); });
})();
