"use strict";
(() => {
  const one = (selector) => document.querySelector(selector);
  const data = JSON.parse(one("#model").textContent);
  const model = splash.model(data);
  const NAMES = ["empty", "partial", "full"];
  const canvas = one("#canvas");
  const state = { cut: null, made: null, step: 0, cursor: 0, order: null };

  const { size, whole, share } = splash.words;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const element = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);

  const storedIn = (cutting) => splash.isStored(model, cutting);
  const blockBytes = (tokens) => tokens * model.head_dim * model.itemsize;

  /* Cutting */

  const qSlider = one("#block-q"), kvSlider = one("#block-kv"), together = one("#together"), form = one("#form");
  qSlider.max = model.q_sizes.length - 1;
  kvSlider.max = model.kv_sizes.length - 1;
  qSlider.value = model.q_sizes.indexOf(model.block[0]);
  kvSlider.value = model.kv_sizes.indexOf(model.block[1]);
  together.checked = model.block[0] === model.block[1];

  const sizes = () => [model.q_sizes[qSlider.value], model.kv_sizes[kvSlider.value]];

  function recut(moved) {
    if (together.checked && moved) {
      const [from, to, own, others] = moved === kvSlider
        ? [kvSlider, qSlider, model.kv_sizes, model.q_sizes] : [qSlider, kvSlider, model.q_sizes, model.kv_sizes];
      const wanted = own[from.value];
      const near = others.filter((other) => other <= wanted);
      to.value = near.length ? near.length - 1 : 0;
    }
    const [q, kv] = sizes();
    for (const [slider, value] of [[qSlider, q], [kvSlider, kv]]) {
      slider.setAttribute("aria-valuetext", `${value} tokens`);
      one(`#${slider.id}-out`).textContent = whole(value);
    }
    state.cut = splash.cut(model, q, kv);
    show();
  }

  function show() {
    state.made = splash.layouts[form.value](state.cut, storedIn(state.cut));
    state.order = new Int32Array(mapSize()).fill(-1);
    for (let n = state.made.steps - 1; n >= 0; n--) state.order[placeOf(n)] = n;
    stepSlider.max = state.made.steps - 1;
    goTo(0);
    facts();
    mark();
  }

  /* The map: blocks of the mask, or positions of the shrunk grid. */

  const mapColumns = () => state.made.form === "after" ? state.made.width : state.cut.columns;
  const mapSize = () => state.cut.rows * mapColumns();
  const placeOf = (step) => state.made.form === "flat"
    ? state.made.row[step] * state.cut.columns + state.made.own[step] : step;
  const labelAt = (place) => state.made.form === "after" ? state.made.label[place] : state.cut.labels[place];
  const columnAt = (place) => state.made.form === "after" ? state.made.own[place] : place % state.cut.columns;

  let small = null; // one pixel a cell

  function paint() {
    const columns = mapColumns(), rows = state.cut.rows;
    const tones = ["--b0", "--b1", "--b2"].map((name) => {
      const value = colour(name).replace("#", "");
      return [0, 2, 4].map((at) => parseInt(value.slice(at, at + 2), 16));
    });
    const image = new ImageData(columns, rows);
    for (let n = 0; n < columns * rows; n++) image.data.set([...tones[labelAt(n)], 255], 4 * n);
    small = new OffscreenCanvas(columns, rows);
    small.getContext("2d").putImageData(image, 0, 0);
    draw();
  }

  function cell() {
    return [canvas.width / mapColumns(), canvas.height / state.cut.rows];
  }

  function resize() {
    const width = canvas.clientWidth * devicePixelRatio;
    const shape = state.cut.rows / mapColumns();
    const height = width * Math.min(1, Math.max(0.15, shape)) ;
    canvas.width = Math.round(Math.max(1, width));
    canvas.height = Math.round(Math.max(1, Math.min(height, width)));
    canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
  }

  function draw() {
    const context = canvas.getContext("2d"), [wide, high] = cell();
    context.imageSmoothingEnabled = Math.min(wide, high) < 1;
    context.imageSmoothingQuality = "high";
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    if (Math.min(wide, high) >= 8) lines(context, wide, high);
    held(context, wide, high);
    outline(context, state.cursor, colour("--ink"), wide, high, document.activeElement === canvas ? 2 : 0);
  }

  function lines(context, wide, high) {
    context.fillStyle = colour("--paper");
    for (let x = 1; x < mapColumns(); x++) context.fillRect(Math.round(x * wide), 0, 1, canvas.height);
    for (let y = 1; y < state.cut.rows; y++) context.fillRect(0, Math.round(y * high), canvas.width, 1);
  }

  function outline(context, place, tone, wide, high, width) {
    if (!width) return;
    const x = place % mapColumns() * wide, y = Math.floor(place / mapColumns()) * high;
    // A ring in the colour of the page around it sets it off from cells of any colour.
    for (const [thick, shade] of [[width + 2, colour("--paper")], [width, tone]]) {
      const line = thick * devicePixelRatio;
      context.strokeStyle = shade;
      context.lineWidth = line;
      const sides = [Math.max(wide, 10 * devicePixelRatio), Math.max(high, 10 * devicePixelRatio)];
      const corner = [x + (wide - sides[0]) / 2, y + (high - sides[1]) / 2];
      context.strokeRect(corner[0] + line / 2, corner[1] + line / 2, sides[0] - line, sides[1] - line);
    }
  }

  /* Which q block is held is shown at the left, which k and v block at the top. */
  function held(context, wide, high) {
    const { made, step } = state;
    const thick = 5 * devicePixelRatio;
    const row = made.row[step], fetched = isFetch(step);
    context.fillStyle = colour(step === 0 || made.row[step - 1] !== row ? "--fetch" : "--held");
    context.fillRect(0, row * high, thick, Math.max(high, 2));
    if (made.form !== "after") {
      context.fillStyle = colour(fetched.k ? "--fetch" : "--held");
      context.fillRect(made.data[step] * wide, 0, Math.max(wide, 2), thick);
    }
    outline(context, placeOf(step), colour("--step"), wide, high, 3);
  }

  function mark() {
    resize();
    paint();
  }

  /* A block */

  function detail(place) {
    const box = one("#detail");
    const { cut, made } = state, row = Math.floor(place / mapColumns()), column = columnAt(place);
    const label = labelAt(place), step = state.order[place];
    const list = document.createElement("dl");
    list.className = "facts";
    const put = (name, value) => list.append(element("dt", name), element("dd", value));
    put("q block", `${row}: tokens ${tokens(row, cut.blockQ)}`);
    put("kv block", column < 0 ? "none: padding of a short row" : `${column}: tokens ${tokens(column, cut.blockKv)}`);
    put("block_mask", `${label}, ${NAMES[label]}: ${["neither runs nor is fetched", "runs and masks", "runs without masking"][label]}`);
    if (step >= 0) {
      if (made.form === "flat") put("active_rows, active_cols", `${made.row[step]}, ${made.own[step]}`);
      else put("data_next", `${made.data[step]}: ${label ? "its own block" : made.form === "after" ? "what is held already" : "the next block that runs"}`);
      put("mask_next", made.mask ? `${made.mask[step]}` : storedIn(cut) ? "" : "none: the mask is not stored");
      put("step", `${whole(step + 1)} of ${whole(made.steps)}`);
    } else {
      put("step", "not in the list");
    }
    box.replaceChildren(element("h3", `Block (${row}, ${column < 0 ? "–" : column})`), list);
    if (label === splash.PARTIAL) {
      const at = row * cut.columns + column;
      box.append(element("small", storedIn(cut)
        ? `partial_mask_blocks[${cut.ids[at]}], one of ${whole(cut.distinct)}`
        : "what the kernel computes here"));
      box.append(picture(at) ?? element("p", "no picture: there are too many different blocks", { className: "muted" }));
    }
  }

  const tokens = (number, block) => `${whole(number * block)}–${whole(number * block + block - 1)}`;

  /* What a partial block looks like, put together from pictures of small blocks. */
  function picture(at) {
    const { cut } = state, [tall, broad] = model.cells;
    const made = element("canvas", "", { width: cut.wide * broad, height: cut.high * tall });
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", "visible pairs of this block");
    const context = made.getContext("2d");
    const top = Math.floor(at / cut.columns) * cut.high, left = at % cut.columns * cut.wide;
    const paper = colour("--b0"), ink = colour("--b2");
    for (let i = 0; i < cut.high; i++) {
      for (let j = 0; j < cut.wide; j++) {
        const code = model.codes[(top + i) * model.columns + left + j];
        if (code > 1 && !model.pictures[code - 2]) return null;
        context.fillStyle = paper;
        context.globalAlpha = 1;
        context.fillRect(j * broad, i * tall, broad, tall);
        context.fillStyle = ink;
        for (let n = 0; n < tall * broad; n++) {
          const digit = code < 2 ? 4 * code : Number(model.pictures[code - 2][n]);
          if (!digit) continue;
          context.globalAlpha = digit / 4;
          context.fillRect(j * broad + n % broad, i * tall + Math.floor(n / broad), 1, 1);
        }
      }
    }
    return made;
  }

  /* Steps */

  const stepSlider = one("#step");

  function isFetch(step) {
    const { made } = state, before = step - 1;
    return {
      q: step === 0 || made.row[step] !== made.row[before],
      k: step === 0 || made.data[step] !== made.data[before],
      mask: made.mask !== null && (step === 0 || made.mask[step] !== made.mask[before]),
    };
  }

  function goTo(step) {
    const { made, cut } = state;
    state.step = Math.max(0, Math.min(made.steps - 1, step));
    stepSlider.value = state.step;
    const at = state.step, label = made.label[at], fetched = isFetch(at);
    stepSlider.setAttribute("aria-valuetext", `step ${at + 1} of ${made.steps}`);
    const where = label ? `q block ${made.row[at]} × kv block ${made.own[at]}` : `q block ${made.row[at]}`;
    const what = ["nothing to compute, the step is skipped", "runs and masks", "runs without masking"][label];
    one("#headline").textContent = `Step ${whole(at + 1)} of ${whole(made.steps)}: ${where}, ${NAMES[label]}: ${what}.${edges(at)}`;
    const rows = [
      ["q", made.row[at], fetched.q, blockBytes(cut.blockQ)],
      ["k and v", made.data[at], fetched.k, 2 * blockBytes(cut.blockKv)],
    ];
    if (made.mask) rows.push(["mask block", made.mask[at], fetched.mask, cut.blockQ * cut.blockKv * 4]);
    one("#operands").replaceChildren(...rows.map(([name, block, now, bytes]) => {
      const row = document.createElement("tr");
      row.append(
        element("th", name, { scope: "row" }), element("td", `${block}`),
        element("td", now ? "fetched" : "held", { className: now ? "now" : "" }), element("td", now ? size(bytes) : ""));
      return row;
    }));
    const all = totals();
    one("#totals").textContent = `So far in this head: ${whole(all.run[at])} of ${whole(all.run[made.steps - 1])} blocks computed, ` +
      `${whole(all.k[at])} of ${whole(all.k[made.steps - 1])} blocks of k and v fetched (flash attention: ${whole(cut.rows * cut.columns)}).`;
    state.cursor = placeOf(at);
    detail(state.cursor);
    if (small) draw();
  }

  /* What a step does to the output block. */
  function edges(step) {
    const { made } = state;
    const begins = step === 0 || made.row[step - 1] !== made.row[step];
    const ends = step === made.steps - 1 || made.row[step + 1] !== made.row[step];
    return (begins ? " The output block begins." : "") + (ends ? " The output block is written." : "");
  }

  function totals() {
    const { made } = state;
    if (!made.totals) {
      const run = new Int32Array(made.steps), k = new Int32Array(made.steps);
      for (let n = 0; n < made.steps; n++) {
        run[n] = (n ? run[n - 1] : 0) + (made.label[n] > 0);
        k[n] = (n ? k[n - 1] : 0) + (n === 0 || made.data[n] !== made.data[n - 1]);
      }
      made.totals = { run, k };
    }
    return made.totals;
  }

  function nextRun() {
    let step = state.step + 1;
    while (step < state.made.steps && !state.made.label[step]) step++;
    if (step < state.made.steps) goTo(step);
  }

  /* Figures of a cut */

  const kvBytes = (found, fetches) => fetches * 2 * blockBytes(found.blockKv);
  const known = new Map();
  function figuresOf(q, kv) {
    const key = `${q}x${kv}`;
    if (!known.has(key)) {
      const cutting = state.cut?.blockQ === q && state.cut?.blockKv === kv ? state.cut : splash.cut(model, q, kv);
      known.set(key, splash.measured(model, cutting));
    }
    return known.get(key);
  }

  function facts() {
    const { cut } = state, found = figuresOf(cut.blockQ, cut.blockKv), total = cut.rows * cut.columns;
    const list = one("#cut");
    list.replaceChildren();
    const put = (name, value) => list.append(element("dt", name), element("dd", value));
    put("blocks", `${whole(cut.rows)} × ${whole(cut.columns)}`);
    NAMES.forEach((name, label) => put(name, `${whole(cut.counts[label])} (${share(cut.counts[label] / total)})`));
    put("stored", storedIn(cut)
      ? `${whole(cut.distinct)} different, ${size(cut.distinct * cut.blockQ * cut.blockKv)} of booleans` : "nothing");
    put("steps", `${whole(found.before.steps)} before, ${whole(found.after.steps)} after shrinking, ${whole(found.flat.steps)} flat`);
    put("k and v", `${size(kvBytes(found, found.after.fetches.k))} in all heads`);
    table();
  }

  function table() {
    const pairs = model.q_sizes.flatMap((q) => model.kv_sizes.map((kv) => [q, kv]))
      .filter(([q, kv]) => q === kv || q * model.block[1] === kv * model.block[0] ||
        (q === state.cut.blockQ && kv === state.cut.blockKv));
    one("#table").replaceChildren(...pairs.map(([q, kv]) => {
      const found = figuresOf(q, kv), total = found.rows * found.columns;
      const row = document.createElement("tr");
      const here = q === state.cut.blockQ && kv === state.cut.blockKv;
      row.className = here ? "here" : "";
      const name = element("th", "", { scope: "row" });
      const button = element("button", `${q}×${kv}`, { type: "button" });
      if (here) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => choose(q, kv));
      name.append(button);
      row.append(name, ...[
        share(found.counts[0] / total), whole(found.counts[1]), whole(found.distinct), whole(found.before.steps),
        whole(found.after.steps), whole(found.flat.steps), size(kvBytes(found, found.after.fetches.k)),
      ].map((text) => element("td", text)), ...[found.after.bytes, found.flat.bytes].map((bytes) =>
        element("td", size(bytes), { className: bytes > model.smem_limit ? "over" : "" })));
      return row;
    }));
  }

  function choose(q, kv) {
    if (q !== kv) together.checked = false;
    qSlider.value = model.q_sizes.indexOf(q);
    kvSlider.value = model.kv_sizes.indexOf(kv);
    recut(null);
    one("#table [aria-current]").focus();
  }

  /* Hands */

  const placeUnder = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * mapColumns());
    const row = Math.floor((event.clientY - box.top) / box.height * state.cut.rows);
    return column >= 0 && row >= 0 && column < mapColumns() && row < state.cut.rows ? row * mapColumns() + column : null;
  };
  canvas.addEventListener("pointermove", (event) => {
    const place = placeUnder(event);
    if (place === null || place === state.cursor) return;
    state.cursor = place;
    detail(place);
  });
  const jump = (place) => {
    if (state.order[place] >= 0) goTo(state.order[place]);
  };
  canvas.addEventListener("click", (event) => {
    const place = placeUnder(event);
    if (place !== null) jump(place);
  });
  canvas.addEventListener("keydown", (event) => {
    const columns = mapColumns(), row = Math.floor(state.cursor / columns), column = state.cursor % columns;
    const moves = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
      Home: [0, -column], End: [0, columns - 1 - column], PageUp: [-10, 0], PageDown: [10, 0],
    };
    if (event.key === "Enter" || event.key === " ") jump(state.cursor);
    else if (moves[event.key]) {
      const [down, right] = moves[event.key];
      const to = [Math.max(0, Math.min(state.cut.rows - 1, row + down)), Math.max(0, Math.min(columns - 1, column + right))];
      state.cursor = to[0] * columns + to[1];
      detail(state.cursor);
      draw();
    } else return;
    event.preventDefault();
  });
  // Steps are told by what stands at them; a block is told where it is looked at.
  for (const [event, live] of [["focus", "polite"], ["blur", "off"]]) {
    canvas.addEventListener(event, () => {
      one("#detail").setAttribute("aria-live", live);
      draw();
    });
  }

  stepSlider.addEventListener("input", () => goTo(Number(stepSlider.value)));
  one("#first").addEventListener("click", () => goTo(0));
  one("#back").addEventListener("click", () => goTo(state.step - 1));
  one("#next").addEventListener("click", () => goTo(state.step + 1));
  one("#next-run").addEventListener("click", nextRun);
  one("#schedule").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = { n: nextRun, Home: () => goTo(0), End: () => goTo(state.made.steps - 1),
      ArrowRight: () => goTo(state.step + 1), ArrowLeft: () => goTo(state.step - 1) };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });

  let timer = 0;
  const play = one("#play");
  play.addEventListener("click", () => {
    const playing = play.getAttribute("aria-pressed") === "true";
    clearInterval(timer);
    play.setAttribute("aria-pressed", String(!playing));
    play.textContent = playing ? "play" : "pause";
    one("#said").setAttribute("aria-live", playing ? "polite" : "off"); // nobody can listen that fast
    if (playing) return;
    if (state.step === state.made.steps - 1) goTo(0);
    timer = setInterval(() => {
      goTo(state.step + 1);
      if (state.step === state.made.steps - 1) play.click();
    }, Math.max(30, Math.min(400, 20000 / state.made.steps)));
  });

  qSlider.addEventListener("input", () => recut(qSlider));
  kvSlider.addEventListener("input", () => recut(kvSlider));
  together.addEventListener("input", () => recut(qSlider));
  form.addEventListener("input", show);
  one("#controls").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", mark);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  recut(null);

  // page.html#step=41 begins there.
  const linked = () => {
    const step = /^#step=(\d+)$/.exec(location.hash);
    if (!step) return;
    goTo(Number(step[1]) - 1);
    one("#map").scrollIntoView();
  };
  addEventListener("hashchange", linked);
  linked();

  window.explained = { model, state, sizes, figuresOf }; // for the curious, and for tests
})();
