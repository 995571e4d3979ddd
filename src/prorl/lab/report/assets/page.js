// Builds the page from sections, as data, and keeps it up to date: `prorl.apply(sections)` replaces what changed.
// Only `section.html` is taken as HTML; it was escaped where it was made. Titles and notes are text.
"use strict";

(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const current = new Map(); // section key → its JSON, to see what changed
  const figures = new Map(); // figure key → figure
  let templates = {};
  let onScreen = null; // draws a figure once it comes near the screen

  const make = (tag, attributes = {}, text = "") => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.textContent = text;
    return element;
  };

  const holder = (key) => document.getElementById(`plot-${key}`);

  function draw(key) {
    const figure = figures.get(key);
    const element = holder(key);
    if (!figure || !element) return;
    const template = templates[dark.matches ? "dark" : "light"];
    const layout = { ...figure.layout, template, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    const menu = { modeBarButtons: [["toImage"]], toImageButtonOptions: { format: "svg", filename: key } };
    const options = { responsive: true, displaylogo: false, doubleClick: "reset+autosize", ...menu };
    Plotly.react(element, figure.data, { uirevision: key, ...layout, autosize: true }, options).then(() => {
      element.dataset.drawn = "true";
    });
  }

  function place(figure) {
    const card = make("figure", { id: `figure-${figure.key}` });
    const caption = card.appendChild(make("figcaption"));
    caption.append(make("h3", {}, figure.title), make("p", {}, figure.note));
    const plot = card.appendChild(make("div", { id: `plot-${figure.key}`, className: "plot" }));
    plot.dataset.key = figure.key;
    plot.style.minHeight = `${figure.layout.height || templates.light.layout.height}px`;
    for (const name of ["wide", "panels"]) card.classList.toggle(name, Boolean(figure.layout.meta?.[name]));
    return card;
  }

  function update(grid, wanted) {
    const keys = new Set(wanted.map((figure) => `figure-${figure.key}`));
    for (const card of [...grid.children]) {
      if (keys.has(card.id)) continue;
      const plot = card.querySelector(".plot");
      onScreen.unobserve(plot);
      figures.delete(plot.dataset.key);
      Plotly.purge(plot);
      card.remove();
    }
    wanted.forEach((figure, at) => {
      const changed = JSON.stringify(figures.get(figure.key)) !== JSON.stringify(figure);
      figures.set(figure.key, figure);
      let card = document.getElementById(`figure-${figure.key}`);
      if (!card) {
        card = place(figure);
        grid.insertBefore(card, grid.children[at] || null);
        onScreen.observe(card.querySelector(".plot"));
      } else if (changed) {
        card.querySelector("h3").textContent = figure.title;
        card.querySelector("p").textContent = figure.note;
        if (holder(figure.key).dataset.drawn) draw(figure.key);
      }
    });
  }

  // Changes only the nodes that differ: focus, scrolled places and selected text stay where they are.
  function patch(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeName !== fresh.nodeName || !fresh.firstChild) {
      old.replaceWith(fresh);
      return;
    }
    for (const name of new Set([...old.getAttributeNames(), ...fresh.getAttributeNames()])) {
      if (fresh.hasAttribute(name)) old.setAttribute(name, fresh.getAttribute(name));
      else old.removeAttribute(name);
    }
    patchChildren(old, fresh);
  }

  function patchChildren(old, fresh) {
    const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
    after.forEach((child, at) => (before[at] ? patch(before[at], child) : old.append(child)));
    before.slice(after.length).forEach((child) => child.remove());
  }

  // A reader who unfolded something keeps it unfolded when the section is renewed.
  function renew(body, html) {
    const open = [...body.querySelectorAll("details")].map((fold) => [fold.querySelector("summary")?.textContent, fold.open]);
    const fresh = make("div");
    fresh.innerHTML = html;
    patchChildren(body, fresh);
    const folds = [...body.querySelectorAll("details")];
    for (const [title, was] of open) {
      const fold = folds.find((one) => one.querySelector("summary")?.textContent === title);
      if (fold) fold.open = was;
    }
  }

  // Rollouts by task, verdict and step: what the reader chose holds when the section is renewed.
  function sift(element) {
    const cards = [...element.querySelectorAll("article.rollout[data-task]")];
    if (!cards.length) return;
    const bar = element.querySelector(".sift") || element.insertBefore(make("div", { className: "sift" }), element.children[1]);
    const verdict = (response) => response.querySelector(".verdict").textContent;
    const found = {
      task: cards.map((card) => card.dataset.task),
      verdict: cards.flatMap((card) => [...card.querySelectorAll(".response")].map(verdict)),
      step: cards.map((card) => card.dataset.step),
    };
    for (const [name, values] of Object.entries(found)) {
      let select = bar.querySelector(`[name="${name}"]`);
      if (!select) {
        select = bar.appendChild(make("label", {}, name)).appendChild(make("select", { name }));
        select.addEventListener("change", () => show(element));
      }
      const chosen = select.value;
      select.replaceChildren(make("option", { value: "" }, "all"));
      for (const value of new Set(values)) select.append(make("option", { value }, value));
      if (values.includes(chosen)) select.value = chosen;
    }
    show(element);
  }

  function show(element) {
    const [task, verdict, step] = ["task", "verdict", "step"].map((name) => element.querySelector(`.sift [name="${name}"]`).value);
    for (const card of element.querySelectorAll("article.rollout[data-task]")) {
      const responses = [...card.querySelectorAll(".response")];
      for (const one of responses) one.hidden = Boolean(verdict) && one.querySelector(".verdict").textContent !== verdict;
      const other = (task && card.dataset.task !== task) || (step && card.dataset.step !== step);
      card.hidden = Boolean(other) || responses.every((one) => one.hidden);
      const fold = card.closest("details");
      if (fold && !card.hidden && (task || verdict || step)) fold.open = true;
    }
  }

  function apply(sections) {
    for (const section of sections) {
      const json = JSON.stringify(section);
      if (current.get(section.key) === json) continue;
      current.set(section.key, json);
      let element = document.getElementById(section.key);
      if (!element) {
        element = make("section", { id: section.key });
        element.append(make("h2"), make("div", { className: "body" }), make("div", { className: "figures" }));
        document.getElementById("sections").append(element);
        const link = make("a", { id: `link-${section.key}`, href: `#${section.key}` }, section.title);
        document.getElementById("contents").append(link);
      }
      element.querySelector("h2").textContent = section.title;
      renew(element.querySelector(".body"), section.html);
      sift(element);
      update(element.querySelector(".figures"), section.figures);
    }
  }

  function remove(key) {
    current.delete(key);
    update(document.getElementById(key).querySelector(".figures"), []);
    document.getElementById(key).remove();
    document.getElementById(`link-${key}`).remove();
  }

  function redraw() {
    for (const key of figures.keys()) if (holder(key)?.dataset.drawn) draw(key);
  }

  function follow() {
    const links = () => [...document.querySelectorAll("#contents a")];
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links()) link.classList.toggle("here", link.hash === `#${entry.target.id}`);
      }
    }, { rootMargin: "-20% 0px -70% 0px" });
    const seen = new MutationObserver(() => document.querySelectorAll("main > section").forEach((one) => watcher.observe(one)));
    seen.observe(document.getElementById("sections"), { childList: true });
  }

  function begin() {
    const data = JSON.parse(document.getElementById("page-data").textContent);
    templates = data.templates;
    onScreen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        onScreen.unobserve(entry.target);
        draw(entry.target.dataset.key);
      }
    }, { rootMargin: "300px 0px" });
    follow();
    apply(data.sections);
    dark.addEventListener("change", redraw);
    window.addEventListener("beforeprint", () => figures.forEach((_, key) => draw(key)));
  }

  window.prorl = { apply, remove };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
