"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const one = (selector, inside = document) => inside.querySelector(selector);

  // Clauses: a search field, and a box for every verdict.
  const filter = one("#filter");
  if (filter) {
    const search = one("#search");
    const chapters = all("details.chapter");
    const wasOpen = chapters.map((chapter) => chapter.open);
    let active = false;
    const apply = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const boxes = all("input[name=status]", filter);
      const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
      const filtered = words.length > 0 || wanted.size < boxes.length;
      let hits = 0;
      chapters.forEach((chapter, n) => {
        if (filtered && !active) wasOpen[n] = chapter.open;
        let mine = 0;
        for (const clause of all("details.clause", chapter)) {
          const fits = wanted.has(clause.dataset.status) &&
            words.every((word) => clause.dataset.search.includes(word));
          clause.hidden = !fits;
          mine += fits;
        }
        chapter.hidden = mine === 0;
        if (filtered) chapter.open = mine > 0;
        else if (active) chapter.open = wasOpen[n];
        hits += mine;
      });
      active = filtered;
      one("#hits").textContent = filtered ? `${hits} of ${all("details.clause").length}` : "";
      one("#nothing").hidden = hits > 0;
    };
    filter.addEventListener("input", apply);
    filter.addEventListener("submit", (event) => event.preventDefault());
    apply(); // a browser may have kept what was typed
  }

  // "/" goes to the search field, Escape empties it.
  const field = one("#search");
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && field && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape" && event.target === field) {
      field.value = "";
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
  });

  // Rows of a comparison: those that differ, or all.
  const rows = one("#rows");
  if (rows) {
    const apply = () => {
      const words = one("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
      const everything = one("#everything").checked;
      let hits = 0;
      for (const group of all("table.compare tbody", one("#clauses"))) {
        let mine = 0;
        for (const row of all("tr.row", group)) {
          const fits = (everything || "differs" in row.dataset) &&
            words.every((word) => row.dataset.search.includes(word));
          row.hidden = !fits;
          mine += fits;
        }
        group.hidden = mine === 0;
        hits += mine;
      }
      one("#hits").textContent = `${hits} of ${all("tr.row").length}`;
      one("#nothing").hidden = hits > 0;
    };
    rows.addEventListener("input", apply);
    rows.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  // Long lists of causes.
  for (const input of all("input.search")) {
    const items = all("details", document.getElementById(input.dataset.target));
    const hits = one("output", input.closest(".tools"));
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const item of items) {
        item.hidden = !words.every((word) => item.dataset.search.includes(word));
        shown += !item.hidden;
      }
      hits.textContent = words.length ? `${shown} of ${items.length}` : "";
    });
  }
  for (const button of all(".open-all, .close-all")) {
    button.addEventListener("click", () => {
      const open = button.classList.contains("open-all");
      for (const item of all("details", document.getElementById(button.dataset.target))) {
        if (!item.hidden) item.open = open;
      }
    });
  }

  // A link to something inside of closed parts opens them.
  const reveal = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const target = name && document.getElementById(name);
    if (!target) return;
    for (let part = target; part; part = part.parentElement) {
      part.hidden = false;
      if (part.tagName === "DETAILS") part.open = true;
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  for (const button of all("button.copy")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "copied";
      } catch {
        const range = document.createRange(); // files without permission: select it at least
        range.selectNodeContents(button.previousElementSibling);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 2000);
    });
  }

  // Coverage: numbers of a part of the problem space, darker where more was tried.
  const cells = one("#cells");
  const shade = (table) => {
    const inner = all("tbody td:not(:last-child)", table);
    const numberOf = (cell) => Number(cell.textContent) || 0;
    const most = Math.max(2, ...inner.map(numberOf));
    for (const cell of inner) {
      const number = numberOf(cell);
      const share = 10 + 80 * Math.log(number) / Math.log(most);
      cell.style.background = number
        ? `color-mix(in srgb, var(--b1) ${share.toFixed(0)}%, transparent)` : "";
    }
  };
  if (cells) {
    const counts = JSON.parse(cells.textContent);
    const feature = one("#feature");
    const dtype = one("#dtype");
    const table = one("table.space");
    const show = () => {
      for (const cell of all("td", table)) {
        const { kind, pattern } = cell.dataset;
        let number = 0;
        for (const [labels, dtypes] of Object.entries(counts[kind])) {
          if (pattern !== undefined && pattern !== labels) continue;
          for (const [name, features] of Object.entries(dtypes)) {
            if (!dtype.value || dtype.value === name) number += features[feature.value] || 0;
          }
        }
        cell.textContent = number || "·";
      }
      shade(table);
    };
    one("#space").addEventListener("input", show);
    show();
    all("table.space").slice(1).forEach(shade);
  }

  // Paper has no triangles to click on.
  addEventListener("beforeprint", () => {
    for (const item of all("details.cause, details.chapter")) {
      item.dataset.before = item.open ? "open" : "";
      item.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const item of all("details[data-before]")) item.open = item.dataset.before === "open";
  });
})();
