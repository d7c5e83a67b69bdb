"use strict";
/* What the mask compiler does, for any block size that is a multiple of the smallest one on this page.
   Everything is computed from one number a small block: 0 empty, 1 full, 2 + n the n-th different partial block. */
const splash = (() => {
  const EMPTY = 0, PARTIAL = 1, FULL = 2;

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  /* Runs of (number, length), seven bits a byte. */
  function decode(text, size) {
    const raw = bytes(text), found = new Uint32Array(size);
    let at = 0, to = 0;
    const next = () => {
      let value = 0, factor = 1, byte;
      do {
        byte = raw[at++];
        value += (byte & 127) * factor;
        factor *= 128;
      } while (byte > 127);
      return value;
    };
    while (at < raw.length) {
      const number = next(), length = next();
      found.fill(number, to, to += length);
    }
    return found;
  }

  function model(data) {
    const rows = data.q_len / data.base[0], columns = data.kv_len / data.base[1];
    return { ...data, rows, columns, codes: decode(data.codes, rows * columns) };
  }

  /* Labels of blocks, which different partial block each one is (-1 for none), and what small blocks those are made of. */
  function cut(mask, blockQ, blockKv) {
    const high = blockQ / mask.base[0], wide = blockKv / mask.base[1];
    const rows = mask.rows / high, columns = mask.columns / wide;
    const labels = new Uint8Array(rows * columns), ids = new Int32Array(rows * columns).fill(-1);
    const known = new Map(), firsts = [];
    const counts = [0, 0, 0];
    const parts = new Uint32Array(high * wide);
    for (let i = 0, at = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++, at++) {
        let empty = true, full = true;
        for (let a = 0, n = 0; a < high; a++) {
          const start = (i * high + a) * mask.columns + j * wide;
          for (let b = 0; b < wide; b++, n++) {
            const code = parts[n] = mask.codes[start + b];
            empty &&= code === 0;
            full &&= code === 1;
          }
        }
        const label = empty ? EMPTY : full ? FULL : PARTIAL;
        labels[at] = label;
        counts[label]++;
        if (label !== PARTIAL) continue;
        const key = parts.length === 1 ? parts[0] : parts.join();
        let id = known.get(key);
        if (id === undefined) {
          known.set(key, id = firsts.length);
          firsts.push(at);
        }
        ids[at] = id;
      }
    }
    return { mask, blockQ, blockKv, high, wide, rows, columns, labels, ids, firsts, counts, distinct: firsts.length };
  }

  /* For every position the place of the next wanted one, wrapping around; or of the last one, if holding. */
  function carried(wanted, holding) {
    const size = wanted.length, places = new Int32Array(size);
    let first = -1, last = -1;
    for (let n = 0; n < size; n++) {
      if (!wanted[n]) continue;
      if (first < 0) first = n;
      last = n;
    }
    if (first < 0) return null;
    if (holding) {
      for (let n = 0, now = first; n < size; n++) places[n] = now = wanted[n] ? n : now;
    } else {
      for (let n = size - 1, now = first; n >= 0; n--) places[n] = now = wanted[n] ? n : now;
    }
    return places;
  }

  function schedule(form, width, row, label, own, ids, holding, stored) {
    const size = label.length;
    const data = new Int32Array(size), mask = stored ? new Int32Array(size) : null;
    const next = carried(label.map((value) => value > 0), holding);
    if (next) for (let n = 0; n < size; n++) data[n] = own[next[n]];
    const nextMask = stored && carried(label.map((value) => value === PARTIAL), holding);
    if (nextMask) for (let n = 0; n < size; n++) mask[n] = ids[nextMask[n]];
    return { form, width, row, label, own, data, mask, steps: size };
  }

  function gridBefore(cutting, stored) {
    const { rows, columns, labels, ids } = cutting;
    const row = new Int32Array(rows * columns), own = new Int32Array(rows * columns);
    for (let n = 0; n < row.length; n++) {
      own[n] = n % columns;
      row[n] = (n - own[n]) / columns;
    }
    return schedule("before", columns, row, labels, own, ids, false, stored);
  }

  function gridAfter(cutting, stored) {
    const { rows, columns, labels, ids } = cutting;
    const kept = [];
    let width = 1;
    for (let i = 0; i < rows; i++) {
      const mine = [];
      for (let j = 0; j < columns; j++) if (labels[i * columns + j]) mine.push(j);
      kept.push(mine);
      width = Math.max(width, mine.length);
    }
    const size = rows * width;
    const row = new Int32Array(size), own = new Int32Array(size).fill(-1);
    const label = new Uint8Array(size), place = new Int32Array(size).fill(-1);
    for (let i = 0, n = 0; i < rows; i++) {
      for (let w = 0; w < width; w++, n++) {
        row[n] = i;
        if (w >= kept[i].length) continue;
        own[n] = kept[i][w];
        label[n] = labels[i * columns + own[n]];
        place[n] = ids[i * columns + own[n]];
      }
    }
    return schedule("after", width, row, label, own, place, true, stored);
  }

  function flat(cutting, stored) {
    const { rows, columns, labels, ids } = cutting;
    const row = [], own = [], label = [], place = [];
    for (let i = 0; i < rows; i++) {
      const before = row.length;
      for (let j = 0; j < columns; j++) {
        const at = i * columns + j;
        if (!labels[at]) continue;
        row.push(i);
        own.push(j);
        label.push(labels[at]);
        place.push(ids[at]);
      }
      if (row.length === before) { // so that the row is written
        row.push(i);
        own.push(0);
        label.push(EMPTY);
        place.push(-1);
      }
    }
    const made = schedule(
      "flat", row.length, Int32Array.from(row), Uint8Array.from(label), Int32Array.from(own), place, false, stored);
    made.data = made.own; // a row that is only written names its first block
    return made;
  }

  const changes = (list) => {
    let number = 0;
    for (let n = 1; n < list.length; n++) number += list[n] !== list[n - 1];
    return number;
  };

  /* Fetches of k (as many of v) and of stored mask blocks over all heads. */
  function fetches(made, heads, kvHeads) {
    const { data, mask } = made, last = data.length - 1;
    const again = data[0] === data[last] ? 0 : heads - kvHeads;
    const k = kvHeads + heads * changes(data) + again;
    if (!mask) return { k, mask: 0 };
    return { k, mask: 1 + heads * changes(mask) + (heads - 1) * (mask[0] !== mask[last]) };
  }

  const largest = (list) => list.reduce((most, value) => Math.max(most, value), 0);
  const sizeOf = (value) => value < 128 ? 1 : value < 32768 ? 2 : 4;
  const up = (value, multiple) => Math.ceil(value / multiple) * multiple;

  /* Bytes of scalar memory, as the TPU compiler pads arrays. */
  function smem(made, rows) {
    const found = {};
    if (made.form === "flat") {
      const list = (size) => up(made.steps * size, 512);
      found.active_rows = list(sizeOf(rows - 1));
      found.active_cols = list(sizeOf(largest(made.own)));
      found.block_mask = list(1);
      found.bounds_start = found.bounds_end = list(4);
      if (made.mask) found.mask_next = list(sizeOf(largest(made.mask)));
    } else {
      const few = rows > 4 ? 8 : 2 ** Math.ceil(Math.log2(rows));
      const table = (size) => up(rows, Math.min(8, Math.max(few, 4 / size))) * up(made.width, 128) * size;
      found.data_next = table(sizeOf(largest(made.data)));
      found.block_mask = table(1);
      if (made.mask) found.mask_next = table(sizeOf(largest(made.mask)));
    }
    return found;
  }

  const layouts = { before: gridBefore, after: gridAfter, flat };

  const isStored = (mask, cutting) => cutting.distinct > 0 && !mask.computed;

  /* Every figure of a cut, by layout. */
  function measured(mask, cutting) {
    const { counts, distinct, rows, columns, blockKv } = cutting;
    const result = { counts, distinct, rows, columns, blockKv };
    for (const [name, make] of Object.entries(layouts)) {
      const made = make(cutting, isStored(mask, cutting)), scalar = smem(made, rows);
      const bytes = Object.values(scalar).reduce((sum, value) => sum + value, 0) + mask.smem_besides;
      result[name] = { steps: made.steps, fetches: fetches(made, mask.heads, mask.kv_heads), bytes };
    }
    return result;
  }

  const size = (bytes) => {
    for (const [unit, power] of [["TiB", 40], ["GiB", 30], ["MiB", 20], ["KiB", 10]]) {
      const value = bytes / 2 ** power;
      if (value >= 1) return `${value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1)} ${unit}`;
    }
    return `${bytes} B`;
  };
  const whole = (number) => number.toLocaleString("en");
  const share = (part) => {
    if (part > 0 && part < 0.0005) return "under 0.1 %";
    if (part > 0.9995 && part < 1) return "over 99.9 %";
    return `${(100 * part).toFixed(part === 0 || part === 1 ? 0 : 1)} %`;
  };

  return { EMPTY, PARTIAL, FULL, model, cut, layouts, fetches, smem, isStored, measured, words: { size, whole, share } };
})();
